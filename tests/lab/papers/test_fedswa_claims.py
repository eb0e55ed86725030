"""FedSWA's claims: each says yes to evidence as the paper describes it, and no to its opposite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsash.client import LocalTraining
from fedsash.lab.papers.claims import Evidence
from fedsash.lab.papers.fedswa import TABLE_3
from fedsash.lab.papers.fedswa_claims import (
    CLAIMS,
    COLUMNS,
    FLATNESS,
    HEIGHTS,
    LEVELS,
    METHODS,
    constant,
    error_over_its_order,
    gap_over_bound,
    gaps_of_algorithm_1,
    printed_accuracy,
    printed_bounds,
    printed_rounds,
    vectors_sent,
    what_fedmoswa_saves,
)
from fedsash.lab.papers.figures import StudyFigure
from fedsash.lab.papers.numbers import Key, Numbers, stacked
from fedsash.lab.papers.pick import Labels
from fedsash.lab.papers.quadratics import quadratic_federation, trajectory
from fedsash.lab.papers.results import Results
from fedsash.lab.sweeps import PlannedRun
from fedsash.methods import FedMoSWA, FedSWA
from support.by_default import some
from support.papers import drawn, lessened, of_seeds, pretend

CLAIMED = {
    "A": ["S1", "S2", "S16", "S18", "S20", "S29"],
    "B": ["S3", "S4", "S8", "S9", "S11", "S12", "S14", "S17", "S19", "S21", "S22", "S25", "S30", "S31", "S32"],
}

DATA = ("CIFAR-100", "Tiny-ImageNet")


def table(gains: Mapping[str, float], growing: float = 1.0, places: float = 1.0) -> Numbers:
    """Table 3 where each method lies so far above FedAvg. In each column heterogeneity multiplies the gains by less.

    `growing` is that factor's fall from column to column, `places` turns gains into losses for rounds.
    """
    means: dict[Key, float] = {}
    for data in DATA:
        for i, column in enumerate(COLUMNS):
            for method in METHODS:
                means[method, column, data] = 50 + places * gains.get(method, 0.0) * (1 - i * (1 - growing))
    return drawn(("row", "column", "data"), means)


def accuracy(growing: float = 0.8, **gains: float) -> Evidence:
    """Accuracies in which FedMoSWA is best and FedSWA second, unless `gains` say otherwise."""
    return {"accuracy": table({"FedSWA": 4.0, "FedMoSWA": 9.0, "FedACG": 2.0, **gains}, growing)}


def rounds(**gains: float) -> Evidence:
    reached = table({"FedSWA": 4.0, "FedMoSWA": 9.0, **gains}, places=-1.0)
    return {"rounds": stacked("target", {"reached": reached})}


def by_method(name: str = "sharpness", **levels: float) -> Evidence:
    """Measures by method: the four rivals at about 10, FedSWA at 5, FedMoSWA at 4, unless `levels` say otherwise."""
    known = {"SCAFFOLD": 10.0, "FedLESAM": 11.0, "FedSAM": 12.0, "MoFedSAM": 9.0, "FedSWA": 5.0, "FedMoSWA": 4.0}
    means: dict[Key, float] = {}
    measures = LEVELS if name == "loss" else (*HEIGHTS, *FLATNESS)
    for method, level in {**known, **levels}.items():
        means |= {(measure, method): level / (1 + place) for place, measure in enumerate(measures)}
    return {name: drawn(("measure", "method"), means)}


def errors(rising: bool) -> Evidence:
    """Test errors that rise with `by_method`'s sharpness, or fall."""
    (sharpness,) = by_method().values()
    sign = 1.0 if rising else -1.0
    of_one = sharpness.at(measure=FLATNESS[0])
    means: dict[Key, float] = {key: 50 + sign * quantity.mean for key, quantity in of_one.items()}
    return {"error": drawn(("method",), means)}


def bounds(**of_fedsam: float) -> Evidence:
    """Bounds of FedSWA at 1 and of FedSAM."""
    means: dict[Key, float] = {}
    for of, bound in of_fedsam.items():
        means |= {(of, "FedSWA"): 1.0, (of, "FedSAM"): bound}
    return {"bounds": Numbers.exact(("of", "method"), means)}


RUNS: dict[str, tuple[Evidence, Evidence]] = {
    "S1": (accuracy(), accuracy(FedSWA=-1.0)),
    "S2": (by_method(), by_method(FedSWA=13.0)),
    "S3": (by_method() | errors(rising=True), by_method() | errors(rising=False)),
    "S4": (accuracy() | by_method(), accuracy() | by_method(FedSWA=13.0)),
    "S16": (accuracy(growing=1.0, FedMoSWA=6.3), accuracy(growing=1.0, FedMoSWA=9.0)),
    "S17": (accuracy(growing=1.0, FedMoSWA=1.8), accuracy(growing=1.0, FedMoSWA=9.0)),
    "S18": (accuracy(), accuracy(FedACG=9.5)),
    "S19": (rounds(), rounds(FedACG=9.5)),
    "S20": (accuracy(), accuracy(FedSAM=4.5)),
    "S21": (accuracy(), accuracy(FedSWA=-0.5)),
    "S22": (accuracy(), accuracy(FedACG=4.5)),
    "S25": (accuracy(growing=0.8), accuracy(growing=1.2)),
    "S29": (by_method(), by_method(FedSWA=10.5)),
    "S30": (by_method("loss"), by_method("loss", FedMoSWA=10.5)),
}

CALCULATED: dict[str, tuple[Callable[[], Evidence], Callable[[], Evidence]]] = {
    "S8": (
        lambda: bounds(generalisation=2.0, convergence=2.0),
        lambda: bounds(generalisation=2.0, convergence=0.5),
    ),
    "S9": (what_fedmoswa_saves, lambda: what_fedmoswa_saves(multiplied=True)),
    "S11": (lambda: gap_over_bound("non-convex"), lambda: gap_over_bound("non-convex", rate=1000.0)),
    "S12": (lambda: gap_over_bound("strongly convex"), lambda: gap_over_bound("strongly convex", rate=1000.0)),
    "S14": (lambda: error_over_its_order(with_clients=True), error_over_its_order),
    "S31": (gaps_of_algorithm_1, lambda: gaps_of_algorithm_1(option="I")),
    "S32": (vectors_sent, lambda: vectors_sent(FedSWA())),
}
"""Evidence without chance, or that is calculated: what gives yes, and what gives no."""


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


NOT_NEEDED: dict[str, tuple[str, ...]] = {
    "S1": ("FedDyn", "SCAFFOLD", "FedSAM", "MoFedSAM", "FedLESAM", "FedASAM", "FedACG"),
    "S2": ("SCAFFOLD", "FedLESAM", "MoFedSAM", "FedMoSWA", *HEIGHTS),
    "S3": HEIGHTS,
    "S4": ("SCAFFOLD", "FedLESAM", "MoFedSAM", "FedMoSWA", "FedAvg", "FedDyn", "FedASAM", "FedACG", *HEIGHTS),
    "S16": ("Tiny-ImageNet",),
    "S17": ("CIFAR-100",),
    "S20": tuple(method for method in METHODS if method not in ("FedSWA", "FedSAM")),
    "S21": tuple(method for method in METHODS if method not in ("FedSWA", "FedAvg")),
    "S22": ("FedAvg", "FedSAM", "FedMoSWA"),
    "S25": ("FedSWA",),
}
"""Labels that a claim says nothing of."""


@pytest.mark.parametrize("name", some(RUNS, "S1", "S2", "S3", "S22", "S29"))
def test_a_part_of_the_evidence_decides_nothing(name: str) -> None:
    """A claim about a whole table, about all measures or about all methods is not decided where one is missing."""
    yes, _ = RUNS[name]
    for dim, label, less in lessened(yes):
        wanted = "yes" if label in NOT_NEEDED.get(name, ()) else "not decided"
        assert CLAIMS[name].judged(less).verdict == wanted, (dim, label)


@pytest.mark.parametrize("name", ["S16", "S17"])
def test_that_there_is_no_such_gain_needs_all_methods(name: str) -> None:
    """FedMoSWA's would be the one."""
    _, no = RUNS[name]
    assert CLAIMS[name].judged(no).verdict == "no"
    less = {"accuracy": no["accuracy"].without(row="FedMoSWA")}
    assert CLAIMS[name].judged(less).verdict == "not decided"


def test_a_gain_is_of_the_same_pair_in_all_seeds() -> None:
    """6.3 is in each seed the gain of another pair, and of none in the mean."""
    values: dict[Key, list[float]] = {}
    for key, quantity in accuracy(growing=1.0, FedMoSWA=20.0)["accuracy"].items():
        seed = {"FedAvg": 0, "FedDyn": 1, "SCAFFOLD": 2}.get(str(key[0]))
        values[key] = [70 - 6.3 if place == seed else quantity.mean for place in range(3)]
        if key[0] == "FedMoSWA":
            values[key] = [70.0] * 3
    found = CLAIMS["S16"].judged({"accuracy": Numbers.measured(("row", "column", "data"), values)})
    assert found.verdict != "yes", found


def test_what_print_alone_decides_is_not_judged_by_runs() -> None:
    """At the scale small CIFAR-10 stands in the place of CIFAR-100."""
    assert [CLAIMS[name].measure for name in ("S16", "S17", "S25")] == [None] * 3


def one_column(**by_method: Mapping[str, float | None]) -> Evidence:
    """Rounds of some methods by seed in every column, and 900 of the others; None is beyond 1,000."""
    reached: dict[Key, Mapping[str, float]] = {}
    beyond: dict[Key, Mapping[str, float]] = {}
    for data in DATA:
        for column in COLUMNS:
            for method in METHODS:
                seeds = by_method.get(method, dict.fromkeys("012", 900.0))
                reached[method, column, data] = {seed: each for seed, each in seeds.items() if each is not None}
                beyond[method, column, data] = {seed: 1000.0 for seed, each in seeds.items() if each is None}
    parts = {
        name: Numbers.measured(("row", "column", "data"), {key: each for key, each in values.items() if each})
        for name, values in (("reached", reached), ("beyond", beyond))
    }
    return {"rounds": stacked("target", parts)}


def test_a_seed_that_does_not_reach_the_target_does_not_take_the_others_with_it() -> None:
    """FedACG is quicker in two seeds of three."""
    ours = {"0": 700.0, "1": 700.0, "2": 700.0}
    finding = CLAIMS["S19"].judged(one_column(FedMoSWA=ours, FedACG={"0": 500.0, "1": 500.0, "2": None}))
    assert finding.verdict == "not decided", finding
    finding = CLAIMS["S19"].judged(one_column(FedMoSWA=ours, FedACG={"0": None, "1": None, "2": None}))
    assert finding.verdict == "yes", finding


def test_where_no_method_reaches_the_target_nobody_is_quickest() -> None:
    never: dict[str, float | None] = dict.fromkeys("012")
    finding = CLAIMS["S19"].judged(one_column(**dict.fromkeys(METHODS, never)))
    assert finding.verdict == "not decided", finding
    late = one_column(**dict.fromkeys(METHODS, never) | {"FedMoSWA": dict.fromkeys("012", 1000.0)})
    assert CLAIMS["S19"].judged(late).verdict == "yes"
    slow = one_column(FedMoSWA=never)
    assert CLAIMS["S19"].judged(slow).verdict == "no"


@pytest.mark.parametrize("name", some(["S11", "S12"], "S12"))
def test_a_bound_that_is_thirty_times_too_large_is_not_refuted_and_no_more(name: str) -> None:
    identity = CLAIMS[name].identity
    assert identity is not None
    ratio = identity()["ratio"]
    assert all(0.01 < quantity.mean < 0.04 for quantity in ratio.values())
    assert "not refuted" in CLAIMS[name].judged({"ratio": ratio}).words
    _, no = CALCULATED[name]
    assert "not refuted" not in CLAIMS[name].judged(no()).words


@pytest.mark.parametrize("name", some(CALCULATED, "S8", "S9", "S12", "S14", "S32"))
def test_a_calculation_says_yes_or_no_by_the_piece_that_is_changed(name: str) -> None:
    yes, no = CALCULATED[name]
    assert CLAIMS[name].judged(yes()).verdict == "yes"
    assert CLAIMS[name].judged(no()).verdict == "no"


IN_PRINT = {
    "S1": ("yes", "12 of 12 above 0: from 0.4 (FedSWA, Dir 0.6, Tiny-ImageNet) to 16.1 (FedMoSWA, Dir 0.1, CIFAR-100)"),
    "S4": ("not decided", "no sharpness"),
    "S8": ("not decided", "there are no numbers"),
    "S9": ("yes", "8 of 8 above 0"),
    "S11": ("yes", "2 of 2 at most 1"),
    "S12": ("yes", "2 of 2 at most 1"),
    "S14": ("no", "5 of 8 at most 2: from 1 (clients, 1) to 15.58 (clients, 256)"),
    "S16": ("no", "0 of 54 between 6.25 and 6.35, the nearest 6.2 (FedMoSWA, Dir 0.6, FedACG)"),
    "S17": ("yes", "2 of 54 between 1.75 and 1.85, the nearest 1.8 ("),
    "S18": ("yes", "6 of 6 above 0: 9.7 (Dir 0.1, CIFAR-100), 8.5 (Dir 0.3, CIFAR-100), 6.2 (Dir 0.6, CIFAR-100)"),
    "S19": ("yes", "6 of 6 below 0: -424 (Dir 0.1, CIFAR-100), -249 (Dir 0.3, CIFAR-100), -188 (Dir 0.6, CIFAR-100)"),
    "S20": ("yes", "6 of 6 above 0: 10.2 (Dir 0.1, CIFAR-100), 6.5 (Dir 0.3, CIFAR-100), 7.9 (Dir 0.6, CIFAR-100)"),
    "S21": ("yes", "6 of 6 above 0: 4.5 (Dir 0.1, CIFAR-100), 3 (Dir 0.3, CIFAR-100), 5.6 (Dir 0.6, CIFAR-100)"),
    "S22": ("no", "29 of 36 below 0"),
    "S25": ("no", "3 of 4 below -0.05"),
    "S31": ("yes", "3 of 3 below 1e-12"),
    "S32": ("yes", "2 of 2 between 1 and 1: 1 (down), 1 (up); 2 of 2 between 2 and 2: 2 (down), 2 (up)"),
}


def test_what_print_and_calculations_say() -> None:
    said = {claim.name: finding for claim in CLAIMS if (finding := claim.in_print()) is not None}
    assert {
        name: (finding.verdict, finding.words[: len(IN_PRINT[name][1])]) for name, finding in said.items()
    } == IN_PRINT


def test_print_has_all_of_table_3() -> None:
    assert len(printed_accuracy()["accuracy"]) == len(printed_rounds()["rounds"]) == 10 * 6
    assert printed_rounds()["rounds"]["FedMoSWA", "Dir 0.1", "reached", "CIFAR-100"].mean == 577
    assert printed_rounds()["rounds"]["FedAvg", "Dir 0.1", "beyond", "CIFAR-100"].mean == 1000


def test_bounds_on_convergence_alone_do_not_decide_for_fedswa() -> None:
    """FedSAM's bound on the generalisation has a constant that the paper does not define."""
    assert list(printed_bounds()["bounds"]) == [("generalisation", "FedSWA")]
    assert CLAIMS["S8"].judged(bounds(convergence=2.0)).verdict == "not decided"


@pytest.mark.parametrize(
    "steps, rounds, c", [(10, 1000, 0.512), (20, 1000, 525), (50, 1000, 10**11.75), (50, 400, 1.4e12)]
)
def test_the_constant_of_theorem_5_1_is_huge_for_many_steps(steps: int, rounds: int, c: float) -> None:
    assert float(constant("non-convex", steps, rounds) - 1) == pytest.approx(c, rel=0.01)


def test_for_a_strongly_convex_loss_the_constant_is_1_in_practice() -> None:
    assert np.log10(float(constant("strongly convex", 10, 1000) - 1)) == pytest.approx(-14.7, abs=0.05)


def test_for_a_large_constant_fedmoswa_saves_the_share_of_the_heterogeneity() -> None:
    """(L + sigma)/(L + sigma_g + sigma) is left of FedSWA's bound: two thirds, if all three are equal."""
    saved = what_fedmoswa_saves()["saved"]
    assert saved["non-convex", 50].mean == pytest.approx(1 / 3, abs=1e-11)


def test_the_steps_that_are_made_do_not_reach_rho() -> None:
    """k = 0, ..., K are K + 1 steps, as printed; in K steps the last rate is above rho."""
    gap = gaps_of_algorithm_1(left_out=1)["gap"]
    assert gap[("the last rate is rho",)].mean == pytest.approx(0.9 / 4)
    assert CLAIMS["S31"].judged({"gap": gap}).verdict == "no"


def test_with_all_clients_and_gamma_1_the_corrections_of_fedmoswa_cancel_in_the_mean() -> None:
    """So w goes to A w in a round, A = 1 - alpha (1 - (1 - eta)^K), on which the orders of S14 are calculated."""
    eta, steps, alpha = 0.05, 5, 2.0
    local = LocalTraining(lr=eta, batch="full", steps=steps)
    method = FedMoSWA(rho=1.0, alpha=alpha, gamma=1.0)
    found = trajectory(quadratic_federation([-3.0, 1.0, 2.0, 0.0], local, method=method), 6)
    a = 1 - alpha * (1 - (1 - eta) ** steps)
    assert found == pytest.approx(a ** np.arange(7), abs=1e-13)


# --- The evidence in a reproduction's results ---


def last_two(run: Labels) -> dict[int, float]:
    """The accuracies of a run's last two rounds: FedMoSWA reaches the target a round before the end.

    Of the others FedSWA alone reaches it, in the last round.
    """
    ends = {"FedSAM": (0.38, 0.40), "FedSWA": (0.52, 0.56), "FedMoSWA": (0.57, 0.62)}
    before, end = ends.get(run["method"], (0.40, 0.42))
    noise, last = 0.001 * int(run["seed"]), 1000 if run["data"] == "CIFAR-100" else 400
    return {last - 1: before + noise, last: end + noise}


def of_cifar_100(run: Labels) -> dict[int, float]:
    """The same of some runs alone: of four methods on one data set."""
    there = run["data"] == "CIFAR-100" and run["method"] in ("FedAvg", "FedSAM", "FedSWA", "FedMoSWA")
    return last_two(run) if there else {}


def found(run: Labels) -> dict[str, Any]:
    """What studies of flatness and of a surface find: a bowl around the model, flatter for the paper's own methods."""
    own = run["method"] in ("FedSWA", "FedMoSWA")
    bend = (1.0 if own else 2.0) + 0.01 * int(run["seed"])
    x = list(np.linspace(-1, 1, 9))
    rises = {"0.05": bend / 10, "0.1": bend / 5, "0.2": bend / 2}
    return {
        "models": {"model": {"eigenvalues": [bend, bend / 2], "sharpness": rises}},
        "x": x,
        "y": x,
        "loss": [[bend + bend * (a * a + b * b) for a in x] for b in x],
        "at_models": {"model": {"loss": bend}},
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return pretend(tmp_path_factory.mktemp("all"), TABLE_3, last_two, target=0.55)


@pytest.fixture
def results(trained: Results, monkeypatch: pytest.MonkeyPatch) -> Results:
    """All runs of Table 3, and their studies."""
    study(monkeypatch)
    return trained


def study(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let studies find `found`."""

    def findings(figure: StudyFigure, results: Results) -> Iterator[tuple[str, PlannedRun, dict[str, Any]]]:
        for run in results.sweep.runs:
            if figure.where.takes(run.labels):
                yield "", run, found(run.labels)

    monkeypatch.setattr(StudyFigure, "findings", findings)


def test_the_evidence_is_in_the_results(results: Results) -> None:
    verdicts = {
        "S1": "yes", "S2": "yes", "S4": "yes", "S18": "yes", "S19": "yes", "S20": "yes", "S21": "yes",
        "S29": "yes", "S30": "yes",
    }  # fmt: skip
    for name, verdict in verdicts.items():
        claim = CLAIMS[name]
        assert claim.measure is not None
        finding = claim.judged(claim.measure(results))
        assert finding.verdict == verdict, (name, finding)


def test_four_methods_on_one_data_set_decide_nothing_about_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study(monkeypatch)
    results = pretend(tmp_path, TABLE_3, of_cifar_100, target=0.55)
    for name in ("S1", "S4", "S18", "S19", "S20", "S21", "S22"):
        claim = CLAIMS[name]
        assert claim.measure is not None
        finding = claim.judged(claim.measure(results))
        assert finding.verdict == "not decided", (name, finding)


def test_a_target_that_was_not_reached_counts_all_rounds(results: Results) -> None:
    """So FedMoSWA's lead over FedAvg is known, and FedSWA's last round is better than none."""
    claim = CLAIMS["S19"]
    assert claim.measure is not None
    rounds = claim.measure(results)["rounds"].at(data="CIFAR-100", column="Dir 0.1")
    by_method = {key: quantity.values for key, quantity in rounds.items() if "Fed" in str(key[0])}
    assert by_method["FedAvg", "beyond"] == by_method["FedSAM", "beyond"] == (1000, 1000, 1000)
    assert by_method["FedSWA", "reached"] == (1000, 1000, 1000)
    assert by_method["FedMoSWA", "reached"] == (999, 999, 999)


def test_a_surfaces_height_is_that_above_its_centre(results: Results) -> None:
    claim = CLAIMS["S29"]
    assert claim.measure is not None
    sharpness = claim.measure(results)["sharpness"].at(method="FedSWA")
    assert sharpness[("height at 0.5",)].values[0] == pytest.approx(0.25, abs=0.06)
    assert sharpness[("height at 1",)].values[0] == pytest.approx(1.0, abs=0.1)
    assert sharpness[("largest eigenvalue",)].values == (1.0, 1.01, 1.02)


def test_flatness_goes_with_the_error_over_the_methods_that_have_both(results: Results) -> None:
    """The six methods with a surface; all methods have an error."""
    claim = CLAIMS["S3"]
    assert claim.measure is not None
    evidence = claim.measure(results)
    errors = {key[0]: round(quantity.values[0], 6) for key, quantity in evidence["error"].items()}
    assert len(errors) == len(METHODS)
    assert (errors["FedAvg"], errors["FedSAM"], errors["FedSWA"], errors["FedMoSWA"]) == (58.0, 60.0, 44.0, 38.0)
    assert claim.judged(evidence).verdict == "yes"
    assert claim.judged(evidence | {"error": evidence["error"].without(method="SCAFFOLD")}).verdict == "not decided"
