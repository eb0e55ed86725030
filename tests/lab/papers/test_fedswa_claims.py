"""FedSWA's claims: each says yes to evidence as the paper describes it, and no to its opposite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsash.lab.papers.claims import Evidence
from fedsash.lab.papers.fedswa import TABLE_3
from fedsash.lab.papers.fedswa_claims import (
    CLAIMS,
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
from fedsash.lab.papers.numbers import Key, Numbers
from fedsash.lab.papers.pick import Labels
from fedsash.lab.papers.quadratics import quadratic_federation, trajectory
from fedsash.lab.papers.results import Results
from fedsash.lab.sweeps import PlannedRun
from fedsash.local import LocalTraining
from fedsash.methods import FedMoSWA, FedSWA
from support.papers import drawn, of_seeds, pretend

CLAIMED = {
    "A": ["S1", "S2", "S16", "S18", "S20", "S29"],
    "B": ["S3", "S4", "S8", "S9", "S11", "S12", "S14", "S17", "S19", "S21", "S22", "S25", "S30", "S31", "S32"],
}

METHODS = ("FedAvg", "FedDyn", "SCAFFOLD", "FedSAM", "MoFedSAM", "FedLESAM", "FedASAM", "FedACG", "FedSWA", "FedMoSWA")
COLUMNS = ("Dir 0.1", "Dir 0.3", "Dir 0.6")
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
    return {"rounds": table({"FedSWA": 4.0, "FedMoSWA": 9.0, **gains}, places=-1.0)}


def by_method(name: str = "sharpness", **levels: float) -> Evidence:
    """Two measures by method: the four rivals at 10, FedSWA at 5 and FedMoSWA at 4, unless `levels` say otherwise."""
    known = {"SCAFFOLD": 10.0, "FedLESAM": 11.0, "FedSAM": 12.0, "MoFedSAM": 9.0, "FedSWA": 5.0, "FedMoSWA": 4.0}
    means: dict[Key, float] = {}
    for method, level in {**known, **levels}.items():
        means |= {("one", method): level, ("another", method): level / 10}
    return {name: drawn(("measure", "method"), means)}


def errors(rising: bool) -> Evidence:
    """Test errors that rise with `by_method`'s sharpness, or fall."""
    (sharpness,) = by_method().values()
    sign = 1.0 if rising else -1.0
    of_one = sharpness.at(measure="one")
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


@pytest.mark.parametrize("name", CALCULATED)
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
    "S16": ("no", "0 of 1 between 6.25 and 6.35: 6.2"),
    "S17": ("yes", "between 1.75 and 1.85: 1.8"),
    "S18": ("yes", "6 of 6 above 0: 9.7 (Dir 0.1, CIFAR-100), 8.5 (Dir 0.3, CIFAR-100), 6.2 (Dir 0.6, CIFAR-100)"),
    "S19": ("yes", "6 of 6 below 0: -423 (Dir 0.1, CIFAR-100), -249 (Dir 0.3, CIFAR-100), -188 (Dir 0.6, CIFAR-100)"),
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
    assert printed_rounds()["rounds"]["FedMoSWA", "Dir 0.1", "CIFAR-100"].mean == 577
    assert printed_rounds()["rounds"]["FedAvg", "Dir 0.1", "CIFAR-100"].mean == 1000


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
    """The accuracies of the last two rounds of a run on CIFAR-100: FedMoSWA reaches the target, a round before the end.

    Of the others FedSWA alone reaches it, in the last round, and FedAvg never.
    """
    if run["data"] != "CIFAR-100" or run["method"] not in ("FedAvg", "FedSAM", "FedSWA", "FedMoSWA"):
        return {}
    ends = {"FedAvg": (0.40, 0.42), "FedSAM": (0.38, 0.40), "FedSWA": (0.52, 0.56), "FedMoSWA": (0.57, 0.62)}
    before, end = ends[run["method"]]
    noise = 0.001 * int(run["seed"])
    return {999: before + noise, 1000: end + noise}


def found(run: Labels) -> dict[str, Any]:
    """What studies of flatness and of a surface find: a bowl around the model, flatter for the paper's own methods."""
    own = run["method"] in ("FedSWA", "FedMoSWA")
    bend = (1.0 if own else 2.0) + 0.01 * int(run["seed"])
    x = list(np.linspace(-1, 1, 9))
    rises = {"0.05": bend / 10, "0.1": bend / 5}
    return {
        "models": {"model": {"eigenvalues": [bend, bend / 2], "sharpness": rises}},
        "x": x,
        "y": x,
        "loss": [[bend + bend * (a * a + b * b) for a in x] for b in x],
        "at_models": {"model": {"loss": bend}},
    }


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    def findings(figure: StudyFigure, results: Results) -> Iterator[tuple[str, PlannedRun, dict[str, Any]]]:
        for run in results.sweep.runs:
            if figure.where.takes(run.labels):
                yield "", run, found(run.labels)

    monkeypatch.setattr(StudyFigure, "findings", findings)
    return pretend(tmp_path, TABLE_3, last_two, target=0.55)


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


def test_a_target_that_was_not_reached_counts_all_rounds(results: Results) -> None:
    """So FedMoSWA's lead over FedAvg is known, and FedSWA's last round is no worse than none."""
    claim = CLAIMS["S19"]
    assert claim.measure is not None
    rounds = claim.measure(results)["rounds"]
    by_method = {str(row): quantity.mean for (row,), quantity in rounds.at(data="CIFAR-100", column="Dir 0.1").items()}
    assert by_method == {"FedAvg": 1000, "FedSAM": 1000, "FedSWA": 1000, "FedMoSWA": 999}


def test_a_surfaces_height_is_that_above_its_centre(results: Results) -> None:
    claim = CLAIMS["S29"]
    assert claim.measure is not None
    sharpness = claim.measure(results)["sharpness"].at(method="FedSWA")
    assert sharpness[("height at 0.5",)].values[0] == pytest.approx(0.25, abs=0.06)
    assert sharpness[("height at 1",)].values[0] == pytest.approx(1.0, abs=0.1)
    assert sharpness[("largest eigenvalue",)].values == (1.0, 1.01, 1.02)


def test_flatness_goes_with_the_error_over_the_methods_that_have_both(results: Results) -> None:
    """Only FedSAM, FedSWA and FedMoSWA have a surface and runs here."""
    claim = CLAIMS["S3"]
    assert claim.measure is not None
    evidence = claim.measure(results)
    assert {key[0]: round(quantity.values[0], 6) for key, quantity in evidence["error"].items()} == {
        "FedAvg": 58.0,
        "FedSAM": 60.0,
        "FedSWA": 44.0,
        "FedMoSWA": 38.0,
    }
    assert claim.judged(evidence).verdict == "yes"
