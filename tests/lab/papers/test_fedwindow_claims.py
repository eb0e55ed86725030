"""FedWindow's claims: each says yes to evidence as the paper describes it, and no to its opposite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from fedsash.lab.papers.claims import NO_NUMBERS, Evidence, Finding
from fedsash.lab.papers.fedwindow import FIGURE_3, FIGURE_4, TABLE_1
from fedsash.lab.papers.fedwindow_claims import (
    BOTH,
    CLAIMS,
    LINES,
    LOADS,
    TASKS,
    a_rounds_volume,
    a_squared_step_is_bounded_by_the_noise,
    distance_from_the_steps_mean,
    distance_from_the_windows_mean,
    extra_work,
    left_in_the_end,
    norms_and_bound,
    squared_step_less_its_bound,
    the_bound_holds,
    worth_of_a_step,
)
from fedsash.lab.papers.numbers import Key, Numbers
from fedsash.lab.papers.pick import Labels
from fedsash.lab.papers.reproduction import Reproduction
from support.by_default import full, some
from support.papers import drawn, lessened, of_seeds, pretend

CLAIMED = {
    "A": ["V3", "V4", "V22", "V26", "V28", "V32"],
    "B": ["V5", "V6", "V7", "V8", "V16", "V17", "V20", "V21", "V24", "V27", "V29", "V34", "V35"],
}


OWN, NEWEST = "own models", "newest model"
READINGS = (OWN, NEWEST)


def curves(splits: Mapping[str, Mapping[str, float]], readings: Sequence[str] = READINGS) -> Evidence:
    """ResNet-18's accuracy by trips, up to each line's end; vanilla has a model after every fifth trip only."""
    means: dict[Key, float] = {}
    for reading in readings:
        for split, ends in splits.items():
            for line, end in ends.items():
                every = 5 if line == "vanilla" else 1
                for trips in range(every, 101, every):
                    means[line, trips, reading, "ResNet-18", split] = end - 30 / (1 + trips / 10)
    return {"accuracy": drawn(("line", "trips", "reading", "network", "split"), means, noise=0.1)}


def ends(vanilla: float, *windows: float) -> dict[str, float]:
    """The ends of vanilla and of W = 2, 3, 4."""
    return {"vanilla": vanilla, **{f"W = {size}": end for size, end in zip((2, 3, 4), windows, strict=True)}}


def by_load(synchronous: float, window: float) -> Numbers:
    """What grows with the load for each scheme, from nothing with 10 clients."""
    means: dict[Key, float] = {}
    for scheme, last in (("synchronous", synchronous), ("FedWindow", window)):
        means |= {(scheme, load): last * place / len(LOADS) for place, load in enumerate(LOADS)}
    return drawn(("scheme", "clients"), means)


def speed_ups(*factors: float) -> Evidence:
    """Trips of LeNet-5: vanilla's are 400, those of the windows fewer by about these factors."""
    means: dict[Key, float] = {}
    for reading, task, split in product(READINGS, TASKS, BOTH):
        shift = 0.05 if split == "IID" else -0.05
        for line, factor in zip(LINES, (1.0, *factors), strict=True):
            trips = 400 if line == "vanilla" else 400 / (factor + shift)
            means[line, reading, task, "LeNet-5", split, "reached"] = trips
    return {"trips": drawn(("line", "reading", "task", "network", "split", "target"), means)}


def missed(evidence: Evidence, seeds: Mapping[str, Sequence[str]]) -> Evidence:
    """The same where these seeds of some lines did not reach the target in 500 trips."""
    trips = evidence["trips"]
    values: dict[Key, dict[str, float]] = {}
    for (*place, _), quantity in trips.items():
        for seed, value in zip(quantity.names, quantity.values, strict=True):
            beyond = seed in seeds.get(str(place[0]), ())
            key = (*place, "beyond" if beyond else "reached")
            values.setdefault(key, {})[seed] = 500.0 if beyond else value
    return {"trips": Numbers.measured(trips.dims, values)}


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
        curves({"IID": ends(70, 72, 71, 71), "two classes": ends(60, 59, 59, 60)}),
        curves({"IID": ends(70, 72, 71, 71), "two classes": ends(60, 55, 59, 60)}),
    ),
    "V6": (
        curves({"IID": ends(70, 72, 71, 71), "two classes": ends(60, 62, 63, 64)}),
        curves({"IID": ends(70, 72, 71, 71), "two classes": ends(60, 59, 59, 60)}),
    ),
    "V26": (curves({"IID": ends(70, 74, 73, 72)}), curves({"IID": ends(70, 72, 73, 74)})),
    "V27": (curves({"IID": ends(70, 74, 73, 72.5)}), curves({"IID": ends(70, 76, 73, 72)})),
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


NOT_NEEDED: dict[str, tuple[Any, ...]] = {"V3": (10, 30, 100), "V28": ("W = 2", "W = 3"), "V29": ("W = 4",)}
"""Labels that a claim says nothing of."""


@pytest.mark.parametrize("name", some(RUNS, "V3", "V4", "V27", "V32", "V35"))
def test_a_part_of_the_evidence_decides_nothing(name: str) -> None:
    """A claim about all windows, splits, loads or tasks is not decided where one of them is missing."""
    yes, _ = RUNS[name]
    for dim, label, less in lessened(yes):
        if dim != "trips":
            wanted = "yes" if label in NOT_NEEDED.get(name, ()) else "not decided"
            assert CLAIMS[name].judged(less).verdict == wanted, (dim, label)


def test_the_largest_load_does_not_decide_for_the_others() -> None:
    """In the mean over the loads uploads wait a tenth as long; at one congested load they wait longer."""
    evidence, _ = RUNS["V3"]
    means = {key: quantity.mean for key, quantity in evidence["waiting"].items()} | {("FedWindow", 300): 40.0}
    assert CLAIMS["V3"].judged(evidence | {"waiting": drawn(("scheme", "clients"), means)}).verdict == "no"


def test_windows_that_never_reach_the_target_need_more_trips_than_vanilla() -> None:
    """They have no speed-up, and the windows that do reach it are not all windows."""
    found = missed(speed_ups(1.3, 1.5, 1.8), {"W = 2": "012", "W = 3": "012"})
    assert CLAIMS["V35"].judged(found).verdict == "no"
    finding = CLAIMS["V32"].judged(found)
    assert finding.verdict == "not decided"
    assert "8 of 16 did not reach the target with every seed" in finding.words


def test_a_single_seed_that_does_not_reach_the_target_counts_as_one() -> None:
    found = missed(speed_ups(1.3, 1.5, 1.8), {"W = 2": "1"})
    assert CLAIMS["V35"].judged(found).verdict == "not decided"
    assert CLAIMS["V32"].judged(found).verdict == "not decided"


def test_where_vanilla_does_not_reach_the_target_the_windows_are_quicker() -> None:
    found = missed(speed_ups(1.3, 1.5, 1.8), {"vanilla": "012"})
    assert CLAIMS["V35"].judged(found).verdict == "yes"
    assert CLAIMS["V32"].judged(found).verdict == "not decided"
    nobody = missed(found, dict.fromkeys(LINES, "012"))
    assert CLAIMS["V35"].judged(nobody).verdict == "not decided"


def test_readings_that_contradict_each_other_decide_nothing() -> None:
    """On IID data the order of the windows is one with the clients' own models, and the other with the newest."""
    newest = curves({"IID": ends(70, 74, 73, 72)}, [NEWEST])["accuracy"]
    own = curves({"IID": ends(70, 72, 73, 74)}, [OWN])["accuracy"]
    assert CLAIMS["V26"].judged({"accuracy": newest}).verdict == "not decided"
    finding = CLAIMS["V26"].judged({"accuracy": newest.joined(own)})
    assert finding.verdict == "not decided"
    assert "own models: no, " in finding.words and "newest model: yes, " in finding.words


def test_splits_of_different_networks_are_not_one_result() -> None:
    found = RUNS["V28"][0]["accuracy"]
    other = Numbers(found.dims, {(*key[:3], "LeNet-5", key[4]): each for key, each in found.items()})
    mixed = found.at(split=["two classes"]).joined(other.at(split=["alpha = 0.5"]))
    assert CLAIMS["V28"].judged({"accuracy": mixed}).verdict == "not decided"
    assert CLAIMS["V28"].judged({"accuracy": found.joined(other)}).verdict == "yes"


@pytest.mark.parametrize("name", ["V5", "V6", "V26", "V27", "V28", "V29"])
def test_a_window_alone_is_judged_and_decides_nothing(name: str) -> None:
    """Such as with --only "scheme=W = 2, own"."""
    alone = RUNS[name][0]["accuracy"].at(line=["W = 2"], reading=[OWN])
    assert CLAIMS[name].judged({"accuracy": alone}) == Finding(None, NO_NUMBERS)


@pytest.mark.parametrize("name", some(CALCULATED, "V17", "V20", "V22"))
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
    "V35": ("not decided", "no trips"),
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


def test_the_bound_fails_in_the_end_even_where_the_whole_window_trains() -> None:
    """It lacks the mean gradient's part of the squared step, which is a two thousandth here."""
    found = norms_and_bound(trains="all", trips=(2000, 10_000))
    ratio = (found["norms"] / found["bounds"]).at(reading="newest", window=2)
    assert ratio[(2000,)].mean < 1
    assert ratio[(10_000,)].mean == pytest.approx(1.0005, abs=1e-5)
    assert "no longer" in " ".join((the_bound_holds.__doc__ or "").split())


def test_the_squared_step_is_that_of_a_runs_first_step() -> None:
    """The docstring says what is calculated: at w = 1, where a training goes a share of 1 - 0.9^4 of the way."""
    excess = squared_step_less_its_bound()["excess"]
    for (size,), quantity in excess.items():
        assert quantity.mean == pytest.approx(((1 - 0.9**4) / float(size)) ** 2)
    assert "first step" in (a_squared_step_is_bounded_by_the_noise.__doc__ or "")


def test_a_round_of_algorithm_1_sends_a_fifth_of_vanillas() -> None:
    volume = a_rounds_volume(slides=1)["volume"]
    assert [quantity.mean for quantity in volume.values()] == [0.2, 0.2]


def test_a_curve_that_ends_first_and_was_lower_before_is_not_the_best() -> None:
    """W = 2 is to be best after equally many rounds, before the end as well."""
    late = curves({"IID": ends(70, 74, 73, 72)})["accuracy"]
    lower = drawn(late.dims, {key: -20.0 if key[0] == "W = 2" and float(key[1]) < 80 else 0.0 for key in late})
    assert CLAIMS["V26"].judged({"accuracy": late + lower}).verdict == "no"


# --- The evidence in a reproduction's results ---

ENDS = {
    "vanilla": 0.60,
    "W = 2, own": 0.66,
    "W = 3, own": 0.65,
    "W = 2, newest": 0.66,
    "W = 3, newest": 0.65,
    "W = 4": 0.64,
}


def rising(run: Labels, network: str = "LeNet-5") -> dict[int, float]:
    """A curve of a network over 20 trips; vanilla has a model after every fifth. Runs of the other one are missing."""
    if run.get("network") != network:
        return {}
    end = ENDS[run["scheme"]] + 0.001 * int(run["seed"])
    every = 5 if run["scheme"] == "vanilla" else 1
    return {trips: end * trips / 20 for trips in range(every, 21, every)}


def of_resnet(run: Labels) -> dict[int, float]:
    return rising(run, "ResNet-18")


def of_own_models(run: Labels) -> dict[int, float]:
    """The same without runs that train from the newest model."""
    return {} if "newest" in run["scheme"] else rising(run)


def three_seeds(reproduction: Reproduction) -> Reproduction:
    return replace(reproduction, axes={**reproduction.axes, "seed": [0, 1, 2]})


@pytest.mark.parametrize(
    "reproduction, verdicts",
    [
        (FIGURE_3, {"V26": "yes", "V27": "yes"}),
        (FIGURE_4, {"V28": "no", "V29": "no"}),
        full(TABLE_1, {"V5": "yes", "V6": "yes", "V35": "yes"}),
    ],
    ids=lambda value: value.name if isinstance(value, Reproduction) else "",
)
def test_the_evidence_is_in_the_results(tmp_path: Path, reproduction: Reproduction, verdicts: dict[str, str]) -> None:
    results = pretend(tmp_path / "both", three_seeds(reproduction), rising)
    own = pretend(tmp_path / "own", three_seeds(reproduction), of_own_models)
    for name, verdict in verdicts.items():
        claim = CLAIMS[name]
        assert claim.of == reproduction.name
        assert claim.measure is not None
        finding = claim.judged(claim.measure(results))
        assert finding.verdict == verdict, finding
        assert "LeNet-5" in finding.words
        assert "own models: " in finding.words and "newest model: " in finding.words
        of_half = claim.judged(claim.measure(own)).verdict
        assert of_half == ("no" if name == "V28" else "not decided"), name  # V28 is of W = 4, where both are the same


def test_the_figures_claims_say_of_which_network_the_evidence_is_if_it_is_not_the_printed_one(tmp_path: Path) -> None:
    """Figures 3 and 4 are of ResNet-18; runs of LeNet-5 differ from the paper's runs of LeNet-5 in no setting."""
    of = {"V5": TABLE_1, "V6": TABLE_1, "V26": FIGURE_3, "V27": FIGURE_3, "V28": FIGURE_4, "V29": FIGURE_4}
    for name, reproduction in of.items():
        subject = CLAIMS[name].subject
        assert subject is not None
        assert subject(pretend(tmp_path / name, reproduction, rising)) == "LeNet-5 (print: ResNet-18)"
        assert subject(pretend(tmp_path / f"{name} printed", reproduction, of_resnet)) == ""


def test_every_claim_that_names_a_reproduction_reads_it_and_decides_nothing_without_runs(tmp_path: Path) -> None:
    empty = {each.name: pretend(tmp_path / each.name, each, lambda run: {}) for each in (FIGURE_3, FIGURE_4, TABLE_1)}
    for claim in CLAIMS:
        assert bool(claim.of) == (claim.measure is not None)
        if claim.measure is not None:
            assert claim.judged(claim.measure(empty[claim.of])).verdict == "not decided"
