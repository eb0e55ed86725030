"""FedWindow's claims: each says yes to evidence as the paper describes it, and no to its opposite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fedsash.lab.papers.claims import Evidence
from fedsash.lab.papers.fedwindow import FIGURE_3, FIGURE_4, TABLE_1
from fedsash.lab.papers.fedwindow_claims import (
    CLAIMS,
    a_rounds_volume,
    distance_from_the_steps_mean,
    distance_from_the_windows_mean,
    extra_work,
    left_in_the_end,
    norms_and_bound,
    squared_step_less_its_bound,
    worth_of_a_step,
)
from fedsash.lab.papers.numbers import Key, Numbers
from fedsash.lab.papers.pick import Labels
from fedsash.lab.papers.reproduction import Reproduction
from support.papers import drawn, of_seeds, pretend

CLAIMED = {
    "A": ["V3", "V4", "V22", "V26", "V28", "V32"],
    "B": ["V5", "V6", "V7", "V8", "V16", "V17", "V20", "V21", "V24", "V27", "V29", "V34", "V35"],
}


def curves(splits: Mapping[str, Mapping[str, float]]) -> Evidence:
    """Accuracy by trips that rises to each line's end; vanilla has a model after every fifth trip only."""
    means: dict[Key, float] = {}
    for split, ends in splits.items():
        for line, end in ends.items():
            every = 5 if line == "vanilla" else 1
            for trips in range(every, 101, every):
                means[line, trips, split] = end - 30 / (1 + trips / 10)
    return {"accuracy": drawn(("line", "trips", "split"), means, noise=0.1)}


def ends(vanilla: float, *windows: float) -> dict[str, float]:
    """The ends of vanilla and of W = 2, 3, 4."""
    return {"vanilla": vanilla, **{f"W = {size}": end for size, end in zip((2, 3, 4), windows, strict=True)}}


def by_load(synchronous: float, window: float) -> Numbers:
    """What grows with the load for each scheme, from nothing with 10 clients."""
    means: dict[Key, float] = {}
    for scheme, last in (("synchronous", synchronous), ("FedWindow", window)):
        means |= {(scheme, 10): 0.0, (scheme, 100): last / 2, (scheme, 1000): last}
    return drawn(("scheme", "clients"), means)


def speed_ups(*factors: float) -> Evidence:
    """The speed-up of each window, in two rows."""
    columns = ("W = 2, own", "W = 3, own", "W = 4")
    means: dict[Key, float] = {
        (row, column): factor + shift
        for row, shift in (("MNIST", -0.05), ("CIFAR-10", 0.05))
        for column, factor in zip(columns, factors, strict=True)
    }
    return {"speed_up": drawn(("row", "column"), means)}


def time(synchronous: float, window: float) -> Numbers:
    return drawn(("scheme",), {("synchronous",): synchronous, ("FedWindow",): window})


def trips(fedasync: float, fedbuff: float) -> Evidence:
    return {"trips": drawn(("scheme",), {("FedAsync",): fedasync, ("FedBuff",): fedbuff})}


RUNS: dict[str, tuple[Evidence, Evidence]] = {
    "V3": (
        {"waiting": by_load(50.0, 2.0), "time": time(900.0, 700.0)},
        {"waiting": by_load(50.0, 2.0), "time": time(66.0, 151.0)},
    ),
    "V4": ({"failures": by_load(1.9, 0.1)}, {"failures": by_load(1.9, 1.5)}),
    "V5": (
        curves({"IID": ends(70, 72, 71, 71), "non-IID": ends(60, 59, 59, 60)}),
        curves({"IID": ends(70, 72, 71, 71), "non-IID": ends(60, 55, 59, 60)}),
    ),
    "V6": (
        curves({"IID": ends(70, 72, 71, 71), "non-IID": ends(60, 62, 63, 64)}),
        curves({"IID": ends(70, 72, 71, 71), "non-IID": ends(60, 59, 59, 60)}),
    ),
    "V26": (curves({"": ends(70, 74, 73, 72)}), curves({"": ends(70, 72, 73, 74)})),
    "V27": (curves({"": ends(70, 74, 73, 72.5)}), curves({"": ends(70, 76, 73, 72)})),
    "V28": (
        curves({"two classes": ends(60, 50, 55, 61), "alpha = 0.5": ends(60, 50, 55, 59)}),
        curves({"two classes": ends(60, 50, 55, 65), "alpha = 0.5": ends(60, 50, 55, 59)}),
    ),
    "V29": (
        curves({"two classes": ends(60, 50, 55, 61), "alpha = 0.5": ends(60, 50, 55, 59)}),
        curves({"two classes": ends(60, 50, 62, 61), "alpha = 0.5": ends(60, 50, 55, 59)}),
    ),
    "V32": (speed_ups(1.3, 1.5, 1.8), speed_ups(2.3, 2.5, 2.8)),
    "V34": (trips(1000.0, 400.0), trips(1000.0, 900.0)),
    "V35": (speed_ups(1.3, 1.5, 1.8), speed_ups(0.9, 1.5, 1.8)),
}

CALCULATED: dict[str, tuple[Callable[[], Evidence], Callable[[], Evidence]]] = {
    "V7": (extra_work, lambda: extra_work(epochs=3)),
    "V8": (a_rounds_volume, lambda: a_rounds_volume(slides=1)),
    "V16": (distance_from_the_windows_mean, lambda: distance_from_the_windows_mean(missing=1)),
    "V17": (lambda: distance_from_the_steps_mean(trains="all"), distance_from_the_steps_mean),
    "V20": (lambda: squared_step_less_its_bound(mean_gradient=True), squared_step_less_its_bound),
    "V21": (lambda: worth_of_a_step(trains="all"), worth_of_a_step),
    "V22": (lambda: norms_and_bound(trains="all"), norms_and_bound),
    "V24": (lambda: left_in_the_end(spread=0.0, noise=0.0), left_in_the_end),
}
"""A calculation that gives yes, and one that gives no. As printed they hold for V7, V8 and V16, and for no other."""


def test_every_claim_of_tiers_a_and_b_has_a_case_for_yes_and_one_for_no() -> None:
    for tier, names in CLAIMED.items():
        assert [claim.name for claim in CLAIMS if claim.tier == tier] == names
    assert {*RUNS, *CALCULATED} == {claim.name for claim in CLAIMS}


@pytest.mark.parametrize("name", RUNS)
def test_runs_as_the_paper_describes_them_say_yes_and_their_opposite_no(name: str) -> None:
    yes, no = RUNS[name]
    assert CLAIMS[name].judged(yes).verdict == "yes"
    assert CLAIMS[name].judged(no).verdict == "no"
    assert CLAIMS[name].judged(of_seeds(yes, 2)).verdict == "not decided"
    assert CLAIMS[name].judged(of_seeds(no, 2)).verdict == "not decided"


@pytest.mark.parametrize("name", CALCULATED)
def test_a_calculation_says_yes_or_no_by_the_piece_that_is_changed(name: str) -> None:
    yes, no = CALCULATED[name]
    assert CLAIMS[name].judged(yes()).verdict == "yes"
    assert CLAIMS[name].judged(no()).verdict == "no"


IN_PRINT = {
    "V7": ("yes", "6 of 6 at most 0"),
    "V8": ("yes", "5 of 5 between 1 and 1"),
    "V16": ("yes", "12 of 12 below 1e-12"),
    "V17": ("no", "0 of 3 below 1e-12"),
    "V20": ("no", "0 of 3 at most 0"),
    "V21": ("no", "0 of 6 between 0.99 and 1.01: 0.5 (2, 0), 0.6667 (2, 30), 0.3333 (3, 0)"),
    "V22": ("no", "27 of 45 below 1"),
    "V24": ("no", "0 of 6 below 0.01"),
    "V35": ("not decided", "no speed_up"),
}


def test_what_print_and_calculations_say() -> None:
    said = {claim.name: finding for claim in CLAIMS if (finding := claim.in_print()) is not None}
    assert {
        name: (finding.verdict, finding.words[: len(IN_PRINT[name][1])]) for name, finding in said.items()
    } == IN_PRINT


def test_without_noise_the_mean_norm_exceeds_the_bound_by_what_a_step_falls_short_of_an_update() -> None:
    """(2d + W + 1)/2 in the limit, for models d steps old; and W where the window's models are all the newest."""
    found = norms_and_bound()
    excess = (found["norms"] / found["bounds"]).at(trips=2000)
    for (reading, window), quantity in excess.items():
        size = float(window)
        age = 5 - size - 1 if reading == "own" else 0
        limit = size if reading == "all hold w^t" else (2 * age + size + 1) / 2
        assert 0.6 * limit < quantity.mean < limit


def test_a_round_of_algorithm_1_sends_a_fifth_of_vanillas() -> None:
    volume = a_rounds_volume(slides=1)["volume"]
    assert [quantity.mean for quantity in volume.values()] == [0.2, 0.2]


def test_a_curve_that_ends_first_and_was_lower_before_is_not_the_best() -> None:
    """W = 2 is to be best after equally many rounds, before the end as well."""
    late = curves({"": ends(70, 74, 73, 72)})["accuracy"]
    lower = drawn(late.dims, {key: -20.0 if key[0] == "W = 2" and float(key[1]) < 80 else 0.0 for key in late})
    assert CLAIMS["V26"].judged({"accuracy": late + lower}).verdict == "no"


# --- The evidence in a reproduction's results ---

ENDS = {"vanilla": 0.60, "W = 2, own": 0.66, "W = 3, own": 0.65, "W = 4": 0.64}


def rising(run: Labels) -> dict[int, float]:
    """A curve over 20 trips; vanilla has a model after every fifth. Runs of ResNet-18 and newest models are missing."""
    if run.get("network") != "LeNet-5" or run["scheme"] not in ENDS:
        return {}
    end = ENDS[run["scheme"]] + 0.001 * int(run["seed"])
    every = 5 if run["scheme"] == "vanilla" else 1
    return {trips: end * trips / 20 for trips in range(every, 21, every)}


def three_seeds(reproduction: Reproduction) -> Reproduction:
    return replace(reproduction, axes={**reproduction.axes, "seed": [0, 1, 2]})


@pytest.mark.parametrize(
    "reproduction, verdicts",
    [
        (FIGURE_3, {"V26": "yes", "V27": "yes"}),
        (FIGURE_4, {"V28": "no", "V29": "no"}),
        (TABLE_1, {"V5": "yes", "V6": "yes", "V35": "yes"}),
    ],
    ids=lambda value: value.name if isinstance(value, Reproduction) else "",
)
def test_the_evidence_is_in_the_results(tmp_path: Path, reproduction: Reproduction, verdicts: dict[str, str]) -> None:
    results = pretend(tmp_path, three_seeds(reproduction), rising)
    for name, verdict in verdicts.items():
        claim = CLAIMS[name]
        assert claim.of == reproduction.name
        assert claim.measure is not None
        finding = claim.judged(claim.measure(results))
        assert finding.verdict == verdict, finding
    assert "LeNet-5" in finding.words


def test_every_claim_that_names_a_reproduction_reads_it_and_decides_nothing_without_runs(tmp_path: Path) -> None:
    empty = {each.name: pretend(tmp_path / each.name, each, lambda run: {}) for each in (FIGURE_3, FIGURE_4, TABLE_1)}
    for claim in CLAIMS:
        assert bool(claim.of) == (claim.measure is not None)
        if claim.measure is not None:
            assert claim.judged(claim.measure(empty[claim.of])).verdict == "not decided"
