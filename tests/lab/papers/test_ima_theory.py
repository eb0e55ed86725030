"""IMA's claims on landscape, theory and factors: each says yes to what the paper describes, and no to its opposite."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any, cast

import numpy as np
import pytest
import torch

from fedsash.lab.papers import ima_theorems as theorems
from fedsash.lab.papers import ima_theory
from fedsash.lab.papers.claims import Evidence
from fedsash.lab.papers.ima_theory import CLAIMS, CROSS_DEVICE, CROSS_SILO, DECAY, NO_DECAY, STAGES, Plane
from fedsash.lab.papers.lines import correlation, slope, together
from fedsash.lab.papers.numbers import Key, Numbers
from fedsash.lab.papers.results import Results
from fedsash.lab.studies.landscape import plane
from support.by_default import by_default, some
from support.papers import drawn

RUNS = (NO_DECAY, DECAY)
ROUNDS = (5, 10, 20, 30, 40, 50, 60, 75, 100, 150, 200, 250, 300, 350, 399)
MODELS = ("model 1", "model 2", "model 3", "mean")
LINES = [f"{one} to {other}" for one, other in combinations(MODELS, 2)]
KINDS = ("largest", "mean")
Case = Callable[[int], Evidence]
"""Evidence of so many seeds."""


def models(clients: float, mean: float, *outer: tuple[str, ...]) -> dict[Key, float]:
    """Three clients with one value and their mean with another, for all labels of outer dimensions."""
    return {(*key, model): mean if model == "mean" else clients for key in product(*outer) for model in MODELS}


def lines(hill: float, *outer: tuple[str, ...]) -> dict[Key, float]:
    """Losses along all lines: a valley, or a hill, in the middle between two ends of loss 2."""
    return {
        (*key, line, place): 2 + hill * math.sin(math.pi * place)
        for key in product(*outer)
        for line in LINES
        for place in map(float, np.linspace(0, 1, 11))
    }


def by_round(no_decay: Callable[[int], float], decay: Callable[[int], float]) -> dict[Key, float]:
    """A curve for each run."""
    curves = {NO_DECAY: no_decay, DECAY: decay}
    return {(run, round): curve(round) for run, curve in curves.items() for round in ROUNDS}


def of_kinds(curves: Mapping[Key, float]) -> dict[Key, float]:
    """The same curve for the largest and for the mean distance."""
    return {(run, kind, round): value for (run, round), value in curves.items() for kind in KINDS}


def through(*corners: tuple[float, float]) -> Callable[[int], float]:
    """The curve of straight lines through the corners (round, value)."""
    x, y = zip(*corners, strict=True)
    return lambda round: float(np.interp(round, x, y))


def level(value: float) -> Callable[[int], float]:
    """The curve of one value."""
    return lambda round: value


def one(name: str, dims: tuple[str, ...], means: Mapping[Key, float], noise: float = 0.01) -> Case:
    """Evidence of one argument."""
    return lambda seeds: {name: drawn(dims, means, noise, seeds)}


def joined(*cases: Case) -> Case:
    """Evidence of several arguments."""
    return lambda seeds: {name: numbers for case in cases for name, numbers in case(seeds).items()}


def better(loss: tuple[float, float], error: tuple[float, float], *outer: tuple[str, ...]) -> Case:
    """Loss and error of the clients and of their mean."""
    dims = ("panel", "run", "model")[-1 - len(outer) :] if len(outer) == 2 else ("panel", "model")
    return joined(one("loss", dims, models(*loss, *outer)), one("error", dims, models(*error, *outer)))


def offsets(*by_stage: float) -> dict[Key, float]:
    """The same offset in loss and in error, by stage."""
    return {(stage, of): offset for stage, offset in zip(STAGES, by_stage, strict=True) for of in ("loss", "error")}


def climbs(clients: tuple[float, ...], mean: tuple[float, ...]) -> Case:
    """The height and the distance of clients and mean, by stage."""
    means: dict[Key, float] = {}
    for stage, of_clients, of_mean in zip(STAGES, clients, mean, strict=True):
        means |= {(stage, "clients"): of_clients, (stage, "mean"): of_mean}
    return joined(*(one(name, ("panel", "model"), means) for name in ("height", "distance")))


def trained_on(after: float, settled: float) -> Case:
    """The clients' error after the round and after more training."""
    means: dict[Key, float] = {}
    for stage in STAGES:
        means |= {(stage, "round"): after, (stage, "trained on"): settled}
    return one("error", ("panel", "model"), means, noise=0.1)


def series(name: str, curve: Callable[[int], float]) -> Case:
    """A curve over 400 rounds."""
    return one(name, ("round",), {(round,): curve(round) for round in range(1, 401)})


def drifts(ratio: float, rise: float) -> Case:
    """The ratio of the norms, and the loss before a round, of its clients and of their mean, which rises by a share."""
    means: dict[Key, float] = {}
    for round in range(1, 401):
        means |= {(round, "before"): 1.0, (round, "clients"): 4.0, (round, "mean"): 1 + 3 * rise}
    return joined(series("ratio", level(ratio)), one("loss", ("round", "model"), means))


def across(lower: float, higher: float) -> Case:
    """The offsets in the cross-device and the cross-silo federation."""
    offsets = {CROSS_DEVICE: lower, CROSS_SILO: higher}
    means: dict[Key, float] = {
        (run, measure, unit, round): offset
        for run, offset in offsets.items()
        for measure, unit, round in product(("loss", "error"), ("relative", "absolute"), (20, 100, 200))
    }
    return one("offset", ("run", "measure", "unit", "round"), means)


def participation(*offsets: float) -> Case:
    """The offset by the share of clients that take part."""
    shares = (0.05, 0.1, 0.2, 0.4, 1.0)
    return one("offset", ("participation",), dict(zip([(share,) for share in shares], offsets, strict=True)))


def ensembles(apart: float, gap: Callable[[float], float]) -> Case:
    """The errors of mean and ensemble, and the gap of their outputs as a function of the distance."""
    distances = {
        (run, round): 1 + 2 * i + j for j, run in enumerate(RUNS) for i, round in enumerate((40, 75, 200, 399))
    }
    errors: dict[Key, float] = {}
    for key in distances:
        errors |= {(*key, "mean"): 40 + apart, (*key, "ensemble"): 40}
    return joined(
        one("error", ("run", "round", "model"), errors, noise=0.1),
        one("gap", ("run", "round"), {key: gap(distance) for key, distance in distances.items()}),
        one("distance", ("run", "round"), cast(Mapping[Key, float], distances)),
    )


def two_biases(train: float, heterogeneous: float) -> Case:
    """The two biases of each run and round."""
    values = {"train": train, "heterogeneous": heterogeneous}
    means: dict[Key, float] = {
        (run, kind, round): value for run, (kind, value), round in product(RUNS, values.items(), ROUNDS)
    }
    return one("bias", ("run", "kind", "round"), means)


def identical(covariance: float, error: Callable[[int], float]) -> Case:
    """Clients with the same distribution: covariance for a variance of 1, and the error by the number of them."""
    errors: dict[Key, float] = {(number, round): error(number) for number, round in product(range(1, 11), (40, 200))}
    constant: dict[Key, float] = {(40,): 1.0, (200,): 1.0}
    return joined(
        one("covariance", ("round",), {key: covariance for key in constant}),
        one("variance", ("round",), constant),
        one("error", ("clients", "round"), errors, noise=0.05),
    )


def curves(**of_names: tuple[Callable[[int], float], Callable[[int], float]]) -> Case:
    """Curves of the run without decay and of that with it. Those of the distance are the same for both of its kinds."""
    cases = []
    for name, (no_decay, decay) in of_names.items():
        means = by_round(no_decay, decay)
        if name == "distance":
            cases.append(one(name, ("run", "kind", "round"), of_kinds(means)))
        else:
            cases.append(one(name, ("run", "round"), means))
    return joined(*cases)


def factors(**sizes: float) -> Case:
    """What each factor adds to the loss."""
    names = ("train bias", "heterogeneous bias", "variance", "covariance", "locality")
    means: dict[Key, float] = {
        (run, factor, round): sizes.get(factor.replace(" ", "_"), 0.02)
        for run, factor, round in product(RUNS, names, ROUNDS)
    }
    return one("size", ("run", "factor", "round"), means, noise=0.005)


def by_number(error: Callable[[int], float]) -> Case:
    """The error of the mean of 1 to 10 models."""
    means: dict[Key, float] = {
        (run, round, number): error(number) for run, round, number in product(RUNS, (40, 399), range(1, 11))
    }
    return one("error", ("run", "round", "clients"), means)


def similarities(skewed: tuple[float, float], iid: tuple[float, float]) -> Case:
    """CKA of the runs without and with decay, of each split."""
    splits = {"#C = 2": dict(zip(RUNS, skewed, strict=True)), "IID": dict(zip(RUNS, iid, strict=True))}
    means: dict[Key, float] = {
        (split, run, round): splits[split][run] for split, run, round in product(splits, RUNS, ROUNDS)
    }
    return one("similarity", ("split", "run", "round"), means)


def ends(similarity: tuple[float, float], error: tuple[float, float]) -> Case:
    """CKA and error of the last round, without and with decay."""
    return joined(
        one("similarity", ("run",), {(run,): value for run, value in zip(RUNS, similarity, strict=True)}),
        one("error", ("run",), {(run,): value for run, value in zip(RUNS, error, strict=True)}),
    )


def calculated(found: Callable[[], Evidence]) -> Case:
    """Evidence of a calculation, which has no seeds."""
    return lambda seeds: found()


UP_AND_DOWN = through((5, 1), (40, 2), (75, 4), (399, 1))
ERROR_UP_AND_DOWN = through((5, 50), (40, 40), (75, 44), (399, 35))
GROWING = through((5, 1), (399, 3))
SLIGHTLY_GROWING = through((5, 50), (40, 40), (399, 43))
STAGES_AND_RUNS = (STAGES, (CROSS_DEVICE, CROSS_SILO))
DISTANCE = through((5, 1), (40, 3), (75, 2.5), (399, 2.5))

CASES: dict[str, tuple[Case, Case]] = {
    "A1": (better((4, 1), (80, 50), STAGES), better((4, 1), (50, 80), STAGES)),
    "A2": (
        one("loss", ("panel", "line", "place"), lines(-1, STAGES)),
        one("loss", ("panel", "line", "place"), lines(1, STAGES)),
    ),
    "A4": (
        one("offset", ("panel", "measure"), offsets(0.4, 0.4, 0.4)),
        one("offset", ("panel", "measure"), offsets(0.4, 0.4, 0.02)),
    ),
    "A5": (
        one("offset", ("model",), models(1.0, 0.3)),
        one("offset", ("model",), models(1.0, 1.3)),
    ),
    "A7": (climbs((1, 2, 3), (0.5, 0.3, 0.1)), climbs((1, 2, 3), (0.5, 0.6, 0.7))),
    "A8": (trained_on(80.5, 80), trained_on(80, 70)),
    "A13": (series("cosine", through((1, 0.8), (400, 0))), series("cosine", through((1, 0.2), (400, 0)))),
    "A14": (series("cosine", through((1, 0.8), (400, 0))), series("cosine", through((1, 0.2), (400, 0.5)))),
    "A15": (drifts(0.3, 0.02), drifts(0.3, 0.4)),
    "A17": (
        joined(
            better((4, 1), (80, 50), *STAGES_AND_RUNS),
            one("line_loss", ("panel", "run", "line", "place"), lines(-1, *STAGES_AND_RUNS)),
        ),
        joined(
            better((4, 1), (80, 50), *STAGES_AND_RUNS),
            one("line_loss", ("panel", "run", "line", "place"), lines(1, *STAGES_AND_RUNS)),
        ),
    ),
    "A18": (across(0.2, 0.5), across(0.5, 0.2)),
    "A19": (participation(0.9, 0.7, 0.5, 0.3, 0.1), participation(0.1, 0.3, 0.5, 0.7, 0.9)),
    "B1": (calculated(theorems.in_two_parts), calculated(lambda: theorems.in_two_parts(lambda f: f.var(0)))),
    "B4": (calculated(theorems.expansion), calculated(lambda: theorems.expansion(theorems.plain_mean))),
    "B5": (calculated(theorems.first_order), calculated(lambda: theorems.first_order(theorems.plain_mean))),
    "B6": (ensembles(0.5, lambda distance: 0.1 * distance**2), ensembles(9, lambda distance: 0.3)),
    "B8": (calculated(theorems.five_factors), calculated(lambda: theorems.five_factors(theorems.without_square))),
    "B9": (calculated(theorems.losses), calculated(lambda: theorems.losses(theorems.plain_mean))),
    "B12": (two_biases(0.1, 1.2), two_biases(1.2, 0.1)),
    "B14": (
        calculated(lambda: theorems.nearer_clients(theorems.better_model())),
        calculated(theorems.nearer_clients),
    ),
    "B15": (calculated(lambda: theorems.kernel_variance(power=2)), calculated(theorems.kernel_variance)),
    "B19": (
        calculated(theorems.pair_covariances),
        calculated(lambda: theorems.pair_covariances(lambda pairs: pairs.amax(0))),
    ),
    "B20": (series("bound", level(0.05)), series("bound", level(-0.05))),
    "B23": (identical(1.0, level(30)), identical(0.1, through((1, 40), (10, 30)))),
    "C1": (curves(bias=(level(0.01), level(0.02))), curves(bias=(level(0.01), through((5, 0.4), (40, 0))))),
    "C4": (curves(bias=(GROWING, level(1))), curves(bias=(level(1), GROWING))),
    "C7": (
        curves(bias=(GROWING, UP_AND_DOWN), error=(SLIGHTLY_GROWING, ERROR_UP_AND_DOWN)),
        curves(bias=(GROWING, UP_AND_DOWN), error=(SLIGHTLY_GROWING, through((5, 50), (40, 40), (399, 55)))),
    ),
    "C8": (
        curves(bias=(GROWING, UP_AND_DOWN), error=(SLIGHTLY_GROWING, ERROR_UP_AND_DOWN)),
        curves(bias=(GROWING, UP_AND_DOWN), error=(through((5, 50), (399, 30)), ERROR_UP_AND_DOWN)),
    ),
    "C9": (
        curves(bias=(GROWING, UP_AND_DOWN), error=(SLIGHTLY_GROWING, ERROR_UP_AND_DOWN)),
        curves(bias=(GROWING, UP_AND_DOWN), error=(through((5, 50), (399, 30)), ERROR_UP_AND_DOWN)),
    ),
    "C10": (curves(distance=(level(3), level(2))), curves(distance=(level(2), level(3)))),
    "C11": (curves(error=(level(45), level(40))), curves(error=(level(40), level(45)))),
    "C12": (
        curves(distance=(DISTANCE, DISTANCE), error=(SLIGHTLY_GROWING, ERROR_UP_AND_DOWN)),
        curves(distance=(DISTANCE, DISTANCE), error=(through((5, 40), (40, 50)), ERROR_UP_AND_DOWN)),
    ),
    "C13": (
        curves(distance=(DISTANCE, DISTANCE), error=(SLIGHTLY_GROWING, ERROR_UP_AND_DOWN)),
        curves(distance=(DISTANCE, DISTANCE), error=(SLIGHTLY_GROWING, through((5, 50), (75, 30)))),
    ),
    "C15": (
        curves(distance=(DISTANCE, through((5, 1), (40, 3), (399, 0.2)))),
        curves(distance=(through((5, 1), (399, 9)), DISTANCE)),
    ),
    "C17": (
        factors(heterogeneous_bias=0.6, locality=0.3),
        factors(heterogeneous_bias=0.6, locality=0.05, covariance=0.3),
    ),
    "C18": (by_number(lambda number: 40 + 40 / number), by_number(lambda number: 80 - 0.3 * number**2)),
    "C20": (similarities((0.3, 0.5), (0.9, 0.9)), similarities((0.5, 0.3), (0.9, 0.9))),
    "C21": (
        curves(similarity=(GROWING, GROWING), error=(level(40), through((5, 60), (399, 40)))),
        curves(similarity=(through((5, 0), (399, 1)),) * 2, error=(through((5, 30), (399, 50)),) * 2),
    ),
    "C22": (ends((0.3, 0.5), (45, 40)), ends((0.3, 0.5), (40, 45))),
    "C23": (
        curves(covariance=(level(0.02), level(-0.02)), error=(level(1), level(1))),
        curves(covariance=(level(0.02), level(-0.4)), error=(level(1), level(1))),
    ),
}  # fmt: skip
CALCULATED = [claim.name for claim in CLAIMS if claim.identity]
DRAWN = [name for name in CASES if name not in CALCULATED]


def test_every_claim_of_tiers_a_and_b_has_both_cases_in_the_list_s_order() -> None:
    headlines = "A1 A2 A4 A5 B8 C1 C10 C17 C18 C20 C23"
    wanted = "A1 A2 A4 A5 A7 A8 A13 A14 A15 A17 A18 A19 B1 B4 B5 B6 B8 B9 B12 B14 B15 B19 B20 B23 "
    wanted += "C1 C4 C7 C8 C9 C10 C11 C12 C13 C15 C17 C18 C20 C21 C22 C23"
    assert [claim.name for claim in CLAIMS] == list(CASES) == wanted.split()
    assert {claim.name for claim in CLAIMS if claim.tier == "A"} == set(headlines.split())


@pytest.mark.parametrize("name", by_default(CASES, lambda name: name not in ("B1", "B14")))
def test_what_the_paper_describes_is_a_yes(name: str) -> None:
    evidence = CASES[name][0](3)
    assert set(evidence) == set(CLAIMS[name].needs)
    finding = CLAIMS[name].judged(evidence)
    assert finding.verdict == "yes", finding.words


@pytest.mark.parametrize("name", CASES)
def test_the_opposite_is_a_no(name: str) -> None:
    finding = CLAIMS[name].judged(CASES[name][1](3))
    assert finding.verdict == "no", finding.words


# Claims of several parts: all but one of them hold.
PARTS: dict[str, list[Case]] = {
    "A1": [better((1, 4), (80, 50), STAGES)],
    "A5": [one("offset", ("model",), models(0.03, 0.01), noise=1e-4)],
    "A7": [climbs((3, 2, 1), (0.5, 0.3, 0.1)), climbs((1, 2, 3), (0.5, 0.6, 0.1))],
    "A8": [trained_on(65, 65), trained_on(90, 90)],
    "A13": [series("cosine", level(0.999))],
    "A15": [drifts(0.9, 0.02)],
    "A17": [
        joined(
            better((4, 5), (80, 50), *STAGES_AND_RUNS),
            one("line_loss", ("panel", "run", "line", "place"), lines(-1, *STAGES_AND_RUNS)),
        )
    ],
    "A19": [participation(0.9, 0.7, 0.8, 0.3, 0.1)],
    "B8": [calculated(lambda: theorems.five_factors(theorems.of_all_pairs))],
    "B23": [identical(1.0, lambda number: 40 - number), identical(0.1, level(30))],
    "C7": [
        curves(bias=(GROWING, UP_AND_DOWN), error=(SLIGHTLY_GROWING, through((5, 50), (40, 40), (75, 30), (399, 25))))
    ],
    "C8": [
        curves(bias=(through((5, 3), (399, 1)), UP_AND_DOWN), error=(SLIGHTLY_GROWING, ERROR_UP_AND_DOWN)),
        curves(bias=(GROWING, UP_AND_DOWN), error=(through((5, 50), (40, 30), (399, 55)), ERROR_UP_AND_DOWN)),
    ],
    "C12": [curves(distance=(DISTANCE, level(3)), error=(ERROR_UP_AND_DOWN, through((5, 40), (40, 50))))],
    "C13": [curves(distance=(DISTANCE, GROWING), error=(SLIGHTLY_GROWING, ERROR_UP_AND_DOWN))],
    "C15": [curves(distance=(DISTANCE, through((5, 1), (75, 1), (76, 2), (399, 2))))],
    "C17": [factors(heterogeneous_bias=0.05, locality=0.6, variance=0.3), factors(train_bias=0.9, locality=0.6)],
    "C18": [by_number(lambda number: 40 + number)],
    "C20": [similarities((0.3, 0.5), (0.2, 0.2))],
    "C22": [ends((0.5, 0.3), (45, 40))],
}


@pytest.mark.parametrize("name", PARTS)
def test_one_part_that_fails_is_a_no(name: str) -> None:
    for case in PARTS[name]:
        finding = CLAIMS[name].judged(case(3))
        assert finding.verdict == "no", finding.words


@pytest.mark.parametrize("name", DRAWN)
def test_two_seeds_decide_nothing(name: str) -> None:
    for case in CASES[name]:
        finding = CLAIMS[name].judged(case(2))
        assert finding.verdict == "not decided" and "2 of the 3 seeds" in finding.words


# --- Evidence that is not whole, or in another order ---

WHOLE: list[tuple[str, str, str]] = [
    *(("A1", part, dim) for part in ("loss", "error") for dim in ("panel", "model")),
    ("A2", "loss", "panel"),
    ("A2", "loss", "line"),
    ("A4", "offset", "panel"),
    ("A4", "offset", "measure"),
    ("A5", "offset", "model"),
    *(("A7", part, dim) for part in ("height", "distance") for dim in ("panel", "model")),
    *(("A17", part, dim) for part in ("loss", "error") for dim in ("panel", "run", "model")),
    *(("A17", "line_loss", dim) for dim in ("panel", "run", "line")),
    *(("A18", "offset", dim) for dim in ("measure", "unit")),
    ("A19", "offset", "participation"),
    ("B6", "error", "run"),
    ("B6", "distance", "run"),
    ("B12", "bias", "run"),
    ("C1", "bias", "run"),
    ("C9", "bias", "run"),
    ("C9", "error", "run"),
    ("C10", "distance", "kind"),
    *(("C12", "distance", dim) for dim in ("run", "kind")),
    ("C12", "error", "run"),
    ("C13", "distance", "kind"),
    *(("C15", "distance", dim) for dim in ("run", "kind")),
    *(("C17", "size", dim) for dim in ("run", "factor")),
    ("C18", "error", "run"),
    ("C20", "similarity", "run"),
    ("C21", "similarity", "run"),
    ("C21", "error", "run"),
    ("C23", "covariance", "run"),
    ("C23", "error", "run"),
]
"""Claims about all labels of a dimension, and the part of their evidence that has it."""


@pytest.mark.parametrize("name, part, dim", some((pytest.param(*one) for one in WHOLE), "A1", "A4", "A18", "B6"))
def test_what_is_said_of_all_is_no_yes_without_one(name: str, part: str, dim: str) -> None:
    evidence = CASES[name][0](3)
    for label in evidence[part].labels(dim):
        finding = CLAIMS[name].judged(evidence | {part: evidence[part].without(**{dim: label})})
        assert finding.verdict == "not decided", (label, finding.words)


@pytest.mark.parametrize("number", [1, 2, 5, 10])
def test_less_and_less_needs_each_number_of_clients(number: int) -> None:
    error = CASES["C18"][0](3)["error"].without(clients=number)
    assert CLAIMS["C18"].judged({"error": error}).verdict == "not decided"


def test_a_factor_that_lacks_a_round_is_not_compared() -> None:
    size = CASES["C17"][0](3)["size"]
    kept = {key: quantity for key, quantity in size.items() if key != (DECAY, "variance", 200)}
    assert CLAIMS["C17"].judged({"size": Numbers(size.dims, kept)}).verdict == "not decided"


SHARED = (200, 300, 399)
"""Rounds of which one side of a comparison has the last alone."""


def unequal(name: str, dims: tuple[str, ...], higher: dict[str, str], lower: dict[str, str], **others: Any) -> Case:
    """What should be higher is lower in each round, but it has the highest round alone."""
    means: dict[Key, float] = {}
    for labels in product(*others.values()):
        rest = dict(zip(others, labels, strict=True))
        for round in SHARED:
            means[tuple({**rest, **lower, "round": round}[dim] for dim in dims)] = round / 100
        means[tuple({**rest, **higher, "round": 399}[dim] for dim in dims)] = 3.9
    return one(name, dims, means)


TWO_RUNS: tuple[dict[str, str], dict[str, str]] = ({"run": NO_DECAY}, {"run": DECAY})
UNEQUAL: dict[str, Case] = {
    "A18": unequal(
        "offset",
        ("run", "measure", "unit", "round"),
        {"run": CROSS_SILO},
        {"run": CROSS_DEVICE},
        measure=("loss", "error"),
        unit=("relative", "absolute"),
    ),
    "B12": unequal("bias", ("run", "kind", "round"), {"kind": "heterogeneous"}, {"kind": "train"}, run=RUNS),
    "C4": unequal("bias", ("run", "round"), *TWO_RUNS),
    "C10": unequal("distance", ("run", "kind", "round"), *TWO_RUNS, kind=KINDS),
    "C11": unequal("error", ("run", "round"), *TWO_RUNS),
    "C20": unequal("similarity", ("split", "run", "round"), {"split": "IID"}, {"split": "#C = 2"}, run=RUNS),
}


@pytest.mark.parametrize("name", UNEQUAL)
def test_the_same_rounds_are_compared(name: str) -> None:
    finding = CLAIMS[name].judged(UNEQUAL[name](3))
    assert finding.verdict == "no", finding.words


def test_numbers_of_clients_are_compared_in_the_same_rounds() -> None:
    """At round 200 ten clients are 30 points better than one; of one client there is no other round."""
    errors: dict[Key, float] = {(1, 200): 40, (5, 200): 25, (10, 200): 10, (10, 40): 70}
    evidence = identical(1.0, level(30))(3) | {"error": drawn(("clients", "round"), errors)}
    assert CLAIMS["B23"].judged(evidence).verdict == "no"


def test_one_number_of_clients_or_two_say_nothing_of_more() -> None:
    evidence = CASES["B23"][0](3)
    for clients, expected in (([1], "not decided"), ([1, 10], "not decided"), ([1, 5, 10], "yes")):
        few = evidence | {"error": evidence["error"].at(clients=clients)}
        assert CLAIMS["B23"].judged(few).verdict == expected


@pytest.mark.parametrize("name", ["A1", "A7", "A19", "B23", "C18"])
def test_the_order_of_labels_does_not_matter(name: str) -> None:
    for case, expected in zip(CASES[name], ("yes", "no"), strict=True):
        given = case(3)
        backwards = {part: Numbers(each.dims, dict(list(each.items())[::-1])) for part, each in given.items()}
        assert CLAIMS[name].judged(backwards).verdict == expected


def test_averages_of_more_clients_that_are_far_better_are_not_useless_in_any_order() -> None:
    evidence = identical(1.0, lambda number: 40 - 3 * number)(3)
    error = evidence["error"]
    backwards = Numbers(error.dims, dict(list(error.items())[::-1]))
    assert CLAIMS["B23"].judged(evidence | {"error": backwards}).verdict == "no"


@pytest.mark.parametrize("middle, expected", [(0.951, "yes"), (0.94, "no")])
def test_clients_stay_if_they_fall_by_little_of_what_they_were(middle: float, expected: str) -> None:
    means: dict[Key, float] = {}
    for stage, clients, mean in zip(STAGES, (1.0, middle, 1.0), (0.3, 0.2, 0.1), strict=True):
        means |= {(stage, "clients"): clients, (stage, "mean"): mean}
    evidence = {name: drawn(("panel", "model"), means, noise=1e-5) for name in ("height", "distance")}
    assert CLAIMS["A7"].judged(evidence).verdict == expected


@pytest.mark.parametrize("clients, mean, expected", [(1.8, 1.0, "yes"), (1.8, 2.1, "no"), (4.0, 2.1, "yes")])
def test_a_mean_that_falls_with_its_clients_stays_near_the_bottom(clients: float, mean: float, expected: str) -> None:
    """The loss before is 2.0: the mean's rise is compared to a tenth of the clients', or to 0 where they fall."""
    means: dict[Key, float] = {}
    for round in range(1, 401):
        means |= {(round, "before"): 2.0, (round, "clients"): clients, (round, "mean"): mean}
    evidence = series("ratio", level(0.3))(3) | {"loss": drawn(("round", "model"), means)}
    assert CLAIMS["A15"].judged(evidence).verdict == expected


def test_near_clients_may_be_like_an_ensemble_while_the_gap_falls_with_their_distance() -> None:
    """The correlation stands beside: it neither decides nor is it needed."""
    finding = CLAIMS["B6"].judged(ensembles(0.5, lambda distance: 2 - 0.1 * distance)(3))
    assert finding.verdict == "yes" and "correlation of gap and distance 0 of 2 certainly above 0" in finding.words


def test_a_run_whose_clients_are_far_apart_says_nothing_of_near_ones() -> None:
    errors: dict[Key, float] = {}
    distances: dict[Key, float] = {}
    for run, distance, apart in zip(RUNS, (30.0, 3.0), (5.7, 0.6), strict=True):
        for i, round in enumerate((40, 75, 200, 399)):
            distances[run, round] = distance + i
            errors |= {(run, round, "mean"): 40 + apart, (run, round, "ensemble"): 40.0}
    evidence = joined(
        one("error", ("run", "round", "model"), errors, noise=0.1),
        one("gap", ("run", "round"), distances),
        one("distance", ("run", "round"), distances),
    )
    assert CLAIMS["B6"].judged(evidence(3)).verdict == "yes"


# --- What is calculated, and what is printed ---


@pytest.mark.parametrize("name", ["B1", "B4", "B5", "B8", "B9", "B19"])
def test_what_is_true_as_printed_holds(name: str) -> None:
    finding = CLAIMS[name].in_print()
    assert finding is not None and finding.verdict == "yes", finding


@pytest.mark.parametrize("name", ["A19", "B14", "B15"])
def test_what_print_itself_or_mathematics_contradicts_does_not_hold(name: str) -> None:
    finding = CLAIMS[name].in_print()
    assert finding is not None and finding.verdict == "no", finding


def test_no_other_claim_is_decided_without_runs() -> None:
    decided = [claim.name for claim in CLAIMS if claim.in_print()]
    assert decided == ["A19", "B1", "B4", "B5", "B8", "B9", "B14", "B15", "B19"]


def test_numbers_of_the_theory() -> None:
    """Counts and orders by name: a gap of rounding, an order of two, no change of the loss, no bound of the gap."""
    words = {name: str(CLAIMS[name].in_print()) for name in ("A19", "B1", "B4", "B14", "B15")}
    assert words["A19"] == "no: 0 of 1 below 0: 1 (1)"
    assert words["B1"].startswith("yes: below 1e-12")
    assert words["B4"].startswith("yes: 3 of 3 between 1.9 and 2.1")
    assert words["B14"].startswith("no: 0 of 4 below -1e-12")
    assert words["B15"].count("0 of 3 below 10") == 2


@pytest.mark.parametrize("factor", [-7, -1, 0, 2])
def test_the_first_order_term_of_the_lemma_needs_the_gradient(factor: float) -> None:
    finding = CLAIMS["B4"].judged(theorems.expansion(factor=factor))
    assert finding.verdict == "no", finding.words


def test_an_order_is_that_of_a_power() -> None:
    for power in (1, 2, 3):
        found = theorems.order(lambda share, power=power: 5 * share**power)  # type: ignore[misc]
        assert [quantity.mean for quantity in found.values()] == pytest.approx([power] * 3)


def test_clients_of_the_theory_differ_in_size_and_in_each_run() -> None:
    world = theorems.trained()
    assert world.p.tolist() == pytest.approx([12 / 48, 7 / 48, 20 / 48, 9 / 48])
    assert world.w.dtype == torch.float64
    assert (world.w[0] - world.w[1]).norm() > 0.01
    torch.testing.assert_close(world.answers(world.w).sum(-1), torch.ones(3, 4, 48, dtype=torch.float64))


# --- What is read from figures ---


@dataclass(frozen=True)
class Experiment:
    seed: int
    rounds: int = 400


@dataclass(frozen=True)
class Run:
    """The labels of a run, and its experiment."""

    labels: Mapping[str, str]
    experiment: Experiment
    name: str = "run"


@dataclass(frozen=True)
class AtFullScale:
    """Results of which only the scale is read."""

    scale: str = "full"


@dataclass(frozen=True)
class Figure:
    """A study's figure with its findings: by panel, labels of the run and seed."""

    found: Mapping[tuple[str, str], Callable[[int], dict[str, Any]]]
    axis: str = "run"
    asked: list[str] = field(default_factory=list)

    def findings(self, results: Results) -> Iterator[tuple[str, Run, dict[str, Any]]]:
        for (panel, run), finding in self.found.items():
            for seed in range(3):
                yield panel, Run({"seed": str(seed), self.axis: run}, Experiment(seed)), finding(seed)


def measured(monkeypatch: pytest.MonkeyPatch, name: str, figure: Figure) -> Evidence:
    """What a claim's measure reads from a figure."""

    def chosen(reproduction: Any, wanted: str, scale: str) -> Figure:
        assert reproduction.name == CLAIMS[name].of
        figure.asked.append(wanted)
        return figure

    monkeypatch.setattr(ima_theory, "_figure", chosen)
    measure = CLAIMS[name].measure
    assert measure is not None
    return measure(cast(Results, AtFullScale()))


def bowl(seed: int, lowest: tuple[float, float] = (1.2, 1.0), ridge: float = 0.0, points: int = 29) -> dict[str, Any]:
    """A plane through three models around a bowl whose lowest point is at a place of the grid, or a ridge."""
    corners = [torch.tensor(place, dtype=torch.float64) for place in ((0.0, 0.0), (3.0, 0.0), (1.5, 3.0))]
    section = plane(*corners, points=points)
    x, y = section.axes
    bottom = np.array([x[np.abs(x - lowest[0]).argmin()], y[np.abs(y - lowest[1]).argmin()]])

    def loss(place: Any) -> float:
        hill = ridge * math.exp(-8 * float(((np.asarray(place) - section.places[3]) ** 2).sum()))
        return 1 + 0.1 * float(((np.asarray(place) - bottom) ** 2).sum()) + hill + 0.001 * seed

    grid = [[loss((a, b)) for a in x] for b in y]
    at = [{"loss": loss(place), "error": loss(place) / 10} for place in section.places]
    names = [f"client:{seed + i}@20" for i in range(3)]
    return {
        "x": list(x),
        "y": list(y),
        "loss": grid,
        "error": [[value / 10 for value in row] for row in grid],
        "models": dict(zip(names, section.places.tolist(), strict=False)),
        "mean": section.places[3].tolist(),
        "at_models": dict(zip(names, at, strict=False)),
        "at_mean": at[3],
    }


def planes(
    lowest: tuple[float, float] = (1.2, 1.0),
    ridge: float = 0.0,
    runs: tuple[str, ...] = (CROSS_DEVICE,),
    points: int = 29,
) -> Figure:
    panels = (*STAGES, "final, global")
    found = {(panel, run): lambda seed: bowl(seed, lowest, ridge, points) for panel, run in product(panels, runs)}
    return Figure(found)


def verdict(name: str, evidence: Evidence) -> str:
    return CLAIMS[name].judged(evidence).verdict


@pytest.mark.parametrize("name", some(["A1", "A2", "A4"], "A4"))
def test_planes_of_three_clients_decide(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The mean of a bowl's three models is lower than they; a ridge between them makes it higher."""
    figure = planes()
    evidence = measured(monkeypatch, name, figure)
    assert set(figure.asked) == {"ima-figure-1"}
    assert all(numbers.labels("panel") == list(STAGES) for numbers in evidence.values())
    assert verdict(name, evidence) == "yes"
    opposite = planes(lowest=(1.5, 1.0)) if name == "A4" else planes(ridge=5.0)
    assert verdict(name, measured(monkeypatch, name, opposite)) == "no"


def test_a_plane_with_a_loss_that_is_no_number_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def holed(seed: int) -> dict[str, Any]:
        found = bowl(seed)
        for row in found["loss"][8:16]:
            row[8:20] = [None] * 12
        return found

    figure = Figure({(stage, CROSS_DEVICE): holed for stage in STAGES})
    assert verdict("A2", measured(monkeypatch, "A2", figure)) == "not decided"


def test_planes_of_global_models_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = measured(monkeypatch, "A5", planes())
    assert evidence["offset"].dims == ("model",) and verdict("A5", evidence) == "yes"
    assert verdict("A5", measured(monkeypatch, "A5", planes(lowest=(0.0, 0.0)))) == "no"


@pytest.mark.parametrize("points, expected", [(11, "not decided"), (21, "yes")])
def test_a_coarse_plane_has_no_offsets(monkeypatch: pytest.MonkeyPatch, points: int, expected: str) -> None:
    """Half of a cell's diagonal is the most by which the grid's lowest point may be off where it lies."""
    for name, lowest in (("A4", (0.9, 0.9)), ("A5", (1.1, 1.0))):
        finding = CLAIMS[name].judged(measured(monkeypatch, name, planes(lowest=lowest, points=points)))
        assert finding.verdict == expected, finding.words


def test_of_equally_low_points_the_middle_one_is_the_lowest() -> None:
    x, y = [0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0]
    error = [[0.5, 0.4, 0.4, 0.5], [0.5, 0.4, 0.4, None], [0.5, 0.5, 0.5, 0.5]]
    place, value = Plane({"x": x, "y": y, "error": error}).lowest("error")
    assert place.tolist() == [1.5, 0.5] and value == 0.4


def test_a_plane_without_numbers_has_no_lowest_point() -> None:
    place, value = Plane({"x": [0.0, 1.0], "y": [0.0], "loss": [[None, None]]}).lowest("loss")
    assert np.isnan(place).all() and math.isnan(value)


@pytest.mark.full
def test_planes_of_both_federations_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = planes(runs=(CROSS_DEVICE, CROSS_SILO))
    evidence = measured(monkeypatch, "A17", figure)
    assert set(figure.asked) == {"ima-figure-8"} and evidence["loss"].labels("run") == [CROSS_DEVICE, CROSS_SILO]
    assert verdict("A17", evidence) == "yes"
    figure = planes(ridge=5.0, runs=(CROSS_DEVICE, CROSS_SILO))
    assert verdict("A17", measured(monkeypatch, "A17", figure)) == "no"


def test_climbs_are_read_stage_by_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lowest point comes nearer to the mean, (1.5, 1), or goes farther from it."""
    nearer = [(1.0, 1.0), (1.2, 1.0), (1.4, 1.0)]
    for places, expected in ((nearer, "yes"), (nearer[::-1], "no")):
        found = {
            (stage, CROSS_DEVICE): lambda seed, place=place: bowl(seed, place)  # type: ignore[misc]
            for stage, place in zip(STAGES, places, strict=True)
        }
        evidence = measured(monkeypatch, "A7", Figure(found))
        assert evidence["height"].dims == evidence["distance"].dims == ("panel", "model")
        assert verdict("A7", evidence) == expected


def test_a_plane_is_measured_in_units_of_its_models_distance() -> None:
    found = Plane(bowl(0, lowest=(0.0, 0.0)))
    assert found.lowest("loss")[0].tolist() == [0.0, 0.0]
    assert found.radius == pytest.approx(np.mean([math.hypot(1.5, 1), math.hypot(1.5, 1), 2]))
    assert found.offsets("loss")["model 1"] == 0
    assert found.offsets("loss")["mean"] == pytest.approx(math.hypot(1.5, 1) / found.radius)
    assert found.heights()["mean"] == pytest.approx(0.1 * 3.25)
    assert found.distances()["clients"] == pytest.approx((3 + math.hypot(1.5, 3)) / 3)
    on_lines = dict(found.lines())
    assert set(line for line, _ in on_lines) == set(LINES)
    assert on_lines["model 1 to model 2", 0.5] == pytest.approx(1 + 0.1 * 2.25, abs=0.01)


def decomposition(seed: int, decay: bool) -> dict[str, Any]:
    """What the decomposition finds in a run: with decay the clients are nearer and more alike, the bias is smaller."""
    rounds = list(ROUNDS)
    wave = UP_AND_DOWN if decay else GROWING
    error = ERROR_UP_AND_DOWN if decay else SLIGHTLY_GROWING
    distance = DISTANCE if decay else through((5, 2), (40, 4), (399, 4))
    return {
        "rounds": rounds,
        "train_bias": [0.01 + 0.001 * seed for _ in rounds],
        "heterogeneous_bias": [wave(round) + 0.001 * seed for round in rounds],
        "locality_max": [2 * distance(round) + 0.001 * seed for round in rounds],
        "locality_mean": [distance(round) + 0.001 * seed for round in rounds],
        "cka": [None, *((0.5 if decay else 0.3) + 0.001 * seed for _ in rounds[1:])],
        "test_error": [error(round) / 100 + 0.0001 * seed for round in rounds],
    }


def two_runs(found: Callable[[int, bool], dict[str, Any]]) -> Figure:
    return Figure({("", run): lambda seed, run=run: found(seed, run == DECAY) for run in RUNS}, "decay")  # type: ignore[misc]


OF_DECOMPOSITION = ["B12", "C1", "C4", "C7", "C8", "C9", "C10", "C11", "C12", "C13", "C15", "C22"]


@pytest.mark.parametrize("name", OF_DECOMPOSITION)
def test_decompositions_of_both_runs_decide(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    figure = two_runs(decomposition)
    evidence = measured(monkeypatch, name, figure)
    assert set(figure.asked) == {"ima-figure-2"}
    assert all(set(numbers.labels("run")) == set(RUNS) for numbers in evidence.values())
    assert verdict(name, evidence) == "yes", CLAIMS[name].judged(evidence)


def test_a_run_of_another_outcome_is_a_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the two runs exchanged the claims that compare them say no."""
    exchanged = two_runs(lambda seed, decay: decomposition(seed, not decay))
    for name in ("C4", "C10", "C11", "C13", "C22"):
        assert verdict(name, measured(monkeypatch, name, exchanged)) == "no", name


def test_errors_are_in_per_cent_and_what_is_missing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = measured(monkeypatch, "C21", two_runs(decomposition))
    assert evidence["error"][DECAY, 5].mean == pytest.approx(50.01)
    assert 5 not in evidence["similarity"].labels("round") and 10 in evidence["similarity"].labels("round")


def ensemble(seed: int, decay: bool) -> dict[str, Any]:
    """What the ensembles of 1 to 10 clients find at four rounds."""
    rounds, numbers = [40, 75, 200, 399], range(1, 11)
    errors = [[0.4 + 0.4 / number + 0.001 * seed for number in numbers] for _ in rounds]
    return {
        "rounds": rounds,
        "mean": errors,
        "ensemble": [[error - 0.005 for error in each] for each in errors],
        "gap": [[0.1 * place**2 + 0.001 * seed + 0.01 for _ in numbers] for place in range(4)],
        "distance": [[1.0 + place for _ in numbers] for place in range(4)],
    }


@pytest.mark.parametrize("name", ["B6", "C18"])
def test_ensembles_of_both_runs_decide(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    figure = two_runs(ensemble)
    evidence = measured(monkeypatch, name, figure)
    assert set(figure.asked) == {"ima-figure-4-models"}
    assert evidence["error"].labels("round") == [40, 75, 200, 399]
    assert verdict(name, evidence) == "yes", CLAIMS[name].judged(evidence)


def test_claims_with_a_measure_name_figures_that_are_there() -> None:
    from fedsash.lab.papers.ima import FIGURE_1, FIGURE_2

    for claim in CLAIMS:
        assert bool(claim.measure) == bool(claim.of)
    assert {claim.of for claim in CLAIMS} - {""} == {FIGURE_1.name, FIGURE_2.name}
    for name in ("ima-figure-1", "ima-figure-8"):
        figure = ima_theory._figure(FIGURE_1, name, "full")
        assert set(STAGES) <= set(figure.panels)
    assert {CROSS_DEVICE, CROSS_SILO} <= set(FIGURE_1.labels["run"])
    assert set(RUNS) == set(FIGURE_2.labels["decay"])
    assert all(ima_theory._figure(FIGURE_2, name, "full").study for name in ("ima-figure-2", "ima-figure-4-models"))


# --- Series of numbers ---


def test_series_are_taken_together_label_by_label_and_seed_by_seed() -> None:
    x = Numbers.measured(("run", "round"), {("a", 1): {"0": 1, "1": 5}, ("a", 2): {"0": 2, "1": 4}, ("a", 3): {"0": 9}})
    y = Numbers.measured(("run", "round"), {("a", 2): {"1": 3, "0": 4}, ("a", 1): {"1": 7, "0": 2}, ("b", 1): {"0": 1}})
    found = together("round", lambda first, second: sum(first) * 100 + second[0], x, y)
    assert found.dims == ("run",) and list(found) == [("a",)]
    assert found["a",].seeds == ("0", "1") and found["a",].values == (302, 907)


def test_what_does_not_vary_has_neither_slope_nor_correlation() -> None:
    assert correlation([1, 2, 3], [2, 4, 6]) == pytest.approx(1) and correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(
        -1
    )
    assert slope([1, 2, 3], [2, 4, 6]) == pytest.approx(2)
    assert math.isnan(correlation([1, 2, 3], [3, 3, 3])) and math.isnan(slope([1, 1, 1], [3, 4, 5]))
