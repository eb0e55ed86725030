"""What the measurements come to: ratios to the plain loop, whether all learnt the same, tables and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

Runs = Sequence[Mapping[str, Any]]
Work = Mapping[str, Runs]
"""Each peer's runs, in the order in which they took turns."""

PLAIN = "plain, 1 thread"
FASTEST = "fastest, 1 thread"
BOUND = "fastest, 2 side by side"
OWN = "fedsash"


def ratios(work: Work, peer: str) -> list[float]:
    """The peer's speed over that of the plain loop, in each turn that both have had."""
    return [a["samples/s"] / b["samples/s"] for a, b in zip(work.get(peer, ()), work.get(PLAIN, ()), strict=False)]


def learnt(initial: float, work: Work, peer: str) -> list[float]:
    """How far the peer's loss has come down, as a share of how far the plain loops' have."""
    plain = median(run["loss"] for name in work if name.startswith("plain") for run in work[name])
    return [(initial - run["loss"]) / (initial - plain) for run in work[peer]]


def same(initial: float, work: Work, peer: str) -> bool:
    """Whether the peer learnt what the plain loops did: within a twentieth, or three times their own spread."""
    plain = [share for name in work if name.startswith("plain") for share in learnt(initial, work, name)]
    return abs(median(learnt(initial, work, peer)) - 1) <= max(0.05, 3 * (max(plain) - min(plain)))


def cell(values: Sequence[float]) -> str:
    """The median, and the smallest and the largest."""
    if not values:
        return "-"
    ends = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
    return f"{median(values):.2f}{ends}"


def over_the_best(work: Work) -> str:
    """How much faster fedsash is than the fastest of the other simulators."""
    others = [peer for peer in work if peer not in (OWN, FASTEST, BOUND) and not peer.startswith("plain")]
    found = [median(speeds) for peer in others if (speeds := ratios(work, peer))]
    return f"{median(ratios(work, OWN)) / max(found):.2f}" if found else "-"


def markdown(results: Mapping[str, Work], initial: Mapping[str, float], failed: Mapping[str, Mapping[str, str]]) -> str:
    """The tables for the docs."""
    works = list(results)
    peers = list(dict.fromkeys(peer for work in results.values() for peer in work))
    head = f"| {{}} | {' | '.join(works)} |\n|---|{'---|' * len(works)}"

    def rows(title: str, one: Any) -> str:
        lines = (
            " | ".join(["| " + p, *(one(results[w], p, w) if results[w].get(p) else "-" for w in works)]) + " |"
            for p in peers
        )
        return "\n".join([head.format(title), *lines])

    def middle(work: Work, peer: str, what: str) -> float:
        return median(run[what] for run in work[peer])

    def loss(work: Work, peer: str, name: str) -> str:
        mark = "" if PLAIN not in work or same(initial[name], work, peer) else " **differs**"
        return f"{middle(work, peer, 'loss'):.3f}{mark}"

    parts = [
        rows("speed beside the plain loop", lambda work, peer, _: cell(ratios(work, peer))),
        rows("samples/s", lambda work, peer, _: f"{middle(work, peer, 'samples/s'):,.0f}"),
        rows("loss in the end", loss),
        rows("memory, MB", lambda work, peer, _: f"{middle(work, peer, 'peak MB'):,.0f}"),
        goals(results),
    ]
    named = [f"- {peer} did not run {work}: {reason}" for work in failed for peer, reason in failed[work].items()]
    return "\n\n".join([*parts, *(["\n".join(named)] if named else [])]) + "\n"


def goals(results: Mapping[str, Work]) -> str:
    """fedsash beside the best peer and two of the fastest threads, and what its windows cost."""
    heads = ("over the best peer", "share of twice the fastest thread", "share of two fastest threads side by side")
    lines = [f"| | {' | '.join(heads)} | windows of 5, 20 and 100, of a round |", "|---|---|---|---|---|"]
    for name, work in results.items():
        if not (own := ratios(work, OWN)) or not (fastest := ratios(work, FASTEST)):
            continue
        windows = median(run["windows s"] * run["rounds/s"] for run in work[OWN])
        share = median(own) / (2 * median(fastest))
        bound = ratios(work, BOUND)
        of_bound = f"{median(own) / median(bound):.0%}" if bound else "-"
        lines.append(f"| {name} | {over_the_best(work)} | {share:.0%} | {of_bound} | {windows:.1%} |")
    return "\n".join(lines)


def picture(results: Mapping[str, Work], path: Path) -> None:
    """Bars of the ratios, a group for each work, on a logarithmic axis."""
    from matplotlib.figure import Figure

    peers = list(dict.fromkeys(peer for work in results.values() for peer in work if peer != PLAIN))
    figure = Figure(figsize=(11, 4), layout="constrained")
    axes = figure.add_subplot()
    for i, peer in enumerate(peers):
        found = [(at, values) for at, work in enumerate(results.values()) if (values := ratios(work, peer))]
        places = [at + 0.85 * ((i + 0.5) / len(peers) - 0.5) for at, _ in found]
        middles = [median(values) for _, values in found]
        ends = [[m - min(v) for m, (_, v) in zip(middles, found, strict=True)]]
        ends.append([max(v) - m for m, (_, v) in zip(middles, found, strict=True)])
        colour = "black" if peer == OWN else f"C{i}"
        axes.bar(places, middles, 0.85 / len(peers), yerr=ends, label=peer, color=colour)
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set(yscale="log", ylabel="speed beside a plain loop on one thread", xticks=range(len(results)))
    axes.set_xticklabels(list(results))
    axes.legend(ncols=4, fontsize="small", frameon=False)
    figure.savefig(path)
