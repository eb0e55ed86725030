"""The samples that the clients of W successive rounds hold together (IMA, section 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...methods.sampling import Poisson, Uniform
from ...runs.pictures import Axis, Line, Panel, Picture, look
from ...runs.pictures.styles import QUIET
from ...server.federation import Federation
from ...settings.errors import check, check_count
from ...vector.arrays import Floats, Ints
from .opened import OpenRun
from .study import Findings, OnProgress, Rows, Study, number, option, share, unseen
from .window import participation

SIZES = (1, 2, 5, 10, 20, 50, 100, 200)


@dataclass(frozen=True)
class CoverageStudy(Study):
    """How much of the data the rounds in a window have seen: the samples of all clients that took part in them.

    D is the samples of all clients. With D_t those of the clients of round t, a window of W rounds covers the union of
    D_{t-W+1}, ..., D_t. `share` is its size, as a share of D's. `distance` is the total variation between the
    distributions of its labels and of D's, None if the data do not have one label a sample. Both are lists by round for
    each of the `sizes` W (None: 1, 2, 5, 10, ..., as far as the run goes). Windows before round W have fewer rounds.
    `expected` is the share for uniform sampling, 1 - (1 - m/N)^W.

    Clients whose upload a round did not use (late, away, lost or refused) did not take part in it; `expected` knows of
    none. Of a fork it is the fork's own sampling, also in the rounds of the run that it goes on from. Nothing is
    trained.
    """

    kinds: ClassVar = ("coverage",)
    takes: ClassVar = "each"
    examples: ClassVar = """\
  fedsash coverage runs/a                          which share of the samples do 1, 2, 5, ... rounds see?
  fedsash coverage runs/a --sizes 5,20,100
"""

    sizes: tuple[int, ...] | None = field(
        default=None, metadata=option("numbers of rounds in a window (default: 1, 2, 5, 10, ...)", metavar="W[,W...]")
    )

    def __post_init__(self) -> None:
        for size in self.sizes or ():
            check_count("CoverageStudy.sizes", size)

    def measure(self, runs: Sequence[OpenRun], progress: OnProgress = unseen) -> dict[str, Any]:
        (run,) = runs
        rounds = max(run.rounds, default=0)
        run.check_rounds()
        check(rounds > 0, str(run.folder), rounds, "must have finished a round")
        sizes = self.sizes or [size for size in SIZES if size <= rounds]
        check(max(sizes) <= rounds, "sizes", max(sizes), f"must be at most the run's {rounds} rounds")
        shares = []
        distances = []
        for size in sizes:
            share_seen, distance = _seen(run, rounds, size)
            shares.append(share_seen)
            distances.append(distance)
            progress(len(shares), len(sizes))
        return {
            "title": f"{run.folder.name}: the samples that the rounds in a window have seen",
            "sizes": list(sizes),
            "rounds": list(range(1, rounds + 1)),
            "share": shares,
            "distance": distances if distances[0] is not None else None,
            "expected": [expected(run.federation, size) for size in sizes],
        }

    @staticmethod
    def table(findings: Findings) -> Rows:
        yield ["window", "samples\nseen", "\nleast", "uniform\nsampling", "labels:\ndistance", "\nlargest"]
        for place, size in enumerate(findings["sizes"]):
            shares = _full(findings, "share", place)
            distances = _full(findings, "distance", place)
            cells = [share(_mean(shares)), share(min(shares)), share(findings["expected"][place])]
            yield [str(size), *cells, number(_mean(distances), 3), number(max(distances, default=None), 3)]

    @staticmethod
    def picture(findings: Findings) -> Picture:
        """What windows cover on average, by their size, and each of them, by round."""
        ticks = {size: str(size) for size in findings["sizes"]}
        size = Axis("W, the rounds in a window", log=True, ticks=ticks)
        round = Axis("round", whole=True)
        seen = Axis("share of all samples (%)", low=0, high=100)
        distance = Axis("distance of the labels", low=0)
        panels = [
            Panel("samples by size", size, seen, [_means(findings, "share", 100), *_expectation(findings)]),
            Panel("samples by round", round, seen, _by_round(findings, "share", 100)),
        ]
        if findings["distance"] is not None:
            panels.append(Panel("labels by size", size, distance, [_means(findings, "distance")]))
            panels.append(Panel("labels by round", round, distance, _by_round(findings, "distance")))
        caption = (
            "The samples held by the clients of the last W rounds, and how far their labels are distributed from those "
            "of all samples (total variation)."
        )
        return Picture(findings["title"], panels, columns=len(panels), caption=caption)


def covered(clients: Sequence[Ints], takes_part: NDArray[np.bool_], size: int) -> NDArray[np.bool_]:
    """Whether a client of the last W rounds holds each of n samples, `[t, n]`, after each of t rounds.

    `clients` are the indices of each client's samples, without duplicates; every sample has a client. `takes_part`
    `[t, N]` says which clients do. W is `size`; before round W it is the number of rounds that there are.
    """
    n = 1 + max(int(index.max(initial=-1)) for index in clients)
    holders = np.zeros(n, dtype=np.int64)
    seen = np.zeros((len(takes_part), n), dtype=np.bool_)
    for t, enters in enumerate(takes_part):
        for i in np.flatnonzero(enters).tolist():
            holders[clients[i]] += 1
        if t >= size:
            leaves = takes_part[t - size]
            for i in np.flatnonzero(leaves).tolist():
                holders[clients[i]] -= 1
        seen[t] = holders > 0
    return seen


def label_distance(y: Ints, seen: NDArray[np.bool_]) -> Floats:
    """The total variation between the labels of the seen samples and all labels, `[t]` for `seen` `[t, n]`.

    It is half the sum over the classes of |share among the seen samples - share among all|; 1 if none is seen.
    """
    classes = np.unique(y, return_inverse=True)[1]
    all_shares = np.bincount(classes) / len(y)
    distances = np.ones(len(seen))
    for t, row in enumerate(seen):
        if row.any():
            counts = np.bincount(classes[row], minlength=len(all_shares))
            distances[t] = np.abs(counts / counts.sum() - all_shares).sum() / 2
    return distances


def expected(federation: Federation, size: int) -> float | None:
    """The mean share of the samples that W = `size` rounds cover, 1 - (1 - m/N)^W for m of N clients a round.

    It holds if all clients are equally likely in every round, and each sample is held by one. Otherwise it is None.
    """
    sampling = federation.sampling
    sizes = federation.sizes
    traced = not isinstance(sampling.trace, str) or bool(sampling.trace)
    shared = len(np.unique(np.concatenate(federation.training_data.clients))) < sizes.sum()
    if not isinstance(sampling, Uniform | Poisson) or traced or shared:
        return None
    fraction = sampling.expected(len(sizes)) / len(sizes)
    return float(1 - (1 - fraction) ** size)


def _seen(run: OpenRun, rounds: int, size: int) -> tuple[Floats, Floats | None]:
    """For the window of that size after each round: the share of the samples in it, and the distance of its labels."""
    data = run.federation.training_data
    held, places = np.unique(np.concatenate(data.clients), return_inverse=True)
    ends = np.cumsum([len(client) for client in data.clients])[:-1]
    clients = [np.unique(index) for index in np.split(places, ends)]
    weights = participation(run.federation, rounds, run.left_out).numpy()
    seen = covered(clients, weights > 0, size)
    y = data.train.y.cpu().numpy()
    has_classes = y.ndim == 1 and np.issubdtype(y.dtype, np.integer)
    distance = label_distance(y[held], seen) if has_classes else None
    return seen.mean(1), distance


def _full(findings: Findings, name: str, place: int) -> list[float]:
    """The numbers of the windows of one size that have all their rounds."""
    if findings[name] is None:
        return []
    size = findings["sizes"][place]
    return list(findings[name][place][size - 1 :])


def _mean(values: Sequence[float]) -> float | None:
    """The mean; None without values."""
    if not values:
        return None
    return float(np.mean(values))


def _means(findings: Findings, name: str, scale: float = 1.0) -> Line:
    """The mean over the windows of each size, by their size."""
    means = []
    for place in range(len(findings["sizes"])):
        means.append(scale * float(np.mean(_full(findings, name, place))))
    return Line("measured" if name == "share" else "", findings["sizes"], means, look(0))


def _expectation(findings: Findings) -> list[Line]:
    """The line of uniform sampling, if the run's sampling is uniform."""
    if None in findings["expected"]:
        return []
    values = [100 * value for value in findings["expected"]]
    return [Line("uniform sampling", findings["sizes"], values, QUIET)]


def _by_round(findings: Findings, name: str, scale: float = 1.0) -> list[Line]:
    """A line for the windows of each size, by the round after which they end."""
    lines: list[Line] = []
    for size, values in zip(findings["sizes"], findings[name], strict=True):
        scaled = [scale * value for value in values]
        lines.append(Line(f"W = {size}", findings["rounds"], scaled, look(len(lines))))
    return lines
