"""IMA's claims of sections D, E and F: each says yes and no where it should, and what print and calculations say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import product
from math import exp
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsash import IID, Dirichlet
from fedsash.extend import Sampling
from fedsash.lab.papers import ima_claims, ima_cohorts
from fedsash.lab.papers.claims import Evidence
from fedsash.lab.papers.figures import StudyFigure
from fedsash.lab.papers.ima import METHODS as SETTINGS_OF
from fedsash.lab.papers.ima import ROWS, TABLE_1, TABLE_2
from fedsash.lab.papers.ima_claims import (
    BELOW_TARGET,
    CELLS,
    CLAIMS,
    FEATURE_SKEW,
    LABEL_SKEW,
    LISTED,
    METHODS,
    STARTS,
    TARGETED,
)
from fedsash.lab.papers.numbers import Key, Label, Numbers
from fedsash.lab.papers.pick import Labels, Pick
from fedsash.lab.papers.tables import Table
from fedsash.vector.arrays import Ints
from support.by_default import by_default, full, some
from support.papers import drawn, pretend

NAMES = [
    *(f"D{number}" for number in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 17)),
    *(f"E{number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 19, 20, 22, 23)),
    *(f"F{number}" for number in (1, 2, 3, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 17, 19, 20)),
]
CALCULATED = ("D2", "D3", "D4", "D12", "E7")
BETAS = np.linspace(-0.5, 1.5, 21).tolist()
LENGTH = Numbers.exact((), {(): 400.0})
"""How many rounds runs have."""
MISSED = 401.0
"""With what a run counts that misses the target in them."""


# --- Evidence as the paper describes it, and otherwise ---


def table_1(gain: Callable[[str, str], float] = lambda row, method: 3.0, **bases: float) -> Evidence:
    """Table 1 with these gains; accuracies without IMA are 60 unless they are given by row or method."""
    means: dict[Key, float] = {}
    for row in LABEL_SKEW + FEATURE_SKEW:
        for method in METHODS:
            base = bases.get(row, bases.get(method, 60.0))
            means[row, method, "base"], means[row, method, "+IMA"] = base, base + gain(row, method)
    return {"accuracy": drawn(("row", "column", "cell"), means)}


def but_for(place: tuple[str, str], other: float, usual: float = 3.0) -> Callable[[str, str], float]:
    """The usual gain, and another one in a single cell of Table 1."""
    return lambda row, method: other if (row, method) == place else usual


def of_row(row: str, other: float, usual: float = 3.0) -> Callable[[str, str], float]:
    """The usual gain, and another one in a row of Table 1."""
    return lambda each, method: other if each == row else usual


def over(name: str, dim: str, means: Mapping[float, float], methods: list[str] = METHODS) -> Evidence:
    """Numbers by method and another dimension, the same for all methods but for a per cent from one to the next."""
    factors = {method: 1 + i / 100 for i, method in enumerate(methods)}
    values = {(method, label): mean * by for method, by in factors.items() for label, mean in means.items()}
    return {name: drawn(("method", dim), values)}


def starts(name: str, means: Mapping[str, float], methods: list[str] = LISTED) -> Evidence:
    """Numbers by method and start, the same for all methods."""
    values = {(method, start): mean for start, mean in means.items() for method in methods}
    return {name: drawn(("method", "start"), values)}


def to_target(means: Mapping[str, float], **others: Mapping[str, float]) -> Evidence:
    """Rounds to the target by start, the same for all methods but for others, in runs of 400 rounds."""
    values = {(m, start): mean for m in LISTED for start, mean in {**means, **others.get(m, {})}.items()}
    return {"rounds": drawn(("method", "start"), values), "length": LENGTH}


def two_below(highest: float = 60.0, last: float = 58.0) -> Evidence:
    """The accuracies of the two methods that Table 2 leaves out; of one of them those without IMA are given."""
    means: dict[Key, float] = {}
    for method, cell in product(BELOW_TARGET, CELLS):
        given = (highest, last) if (method, cell) == ("FedNova", "base") else (60.0, 58.0)
        means |= {(method, cell, "highest"): given[0], (method, cell, "last ten"): given[1]}
    return {"accuracy": drawn(("method", "cell", "of"), means)}


def schemes(**means: float) -> Evidence:
    """Table 3 with these accuracies for all methods."""
    values = {(method, scheme): mean for method in METHODS for scheme, mean in means.items()}
    return {"accuracy": drawn(("method", "scheme"), values)}


def valley(dim: str, bottom: Mapping[str, float], wide: Mapping[str, float] | None = None, low: float = 0.5) -> Numbers:
    """Parabolas with the lowest point at `bottom` and curvatures 2 / wide, by `dim` and beta."""
    values = {
        (label, beta): low + (beta - place) ** 2 / (wide or {}).get(label, 1.0)
        for label, place in bottom.items()
        for beta in BETAS
    }
    return drawn((dim, "beta"), values, noise=1e-5)


def everywhere(dim: str, labels: list[str], curve: Callable[[float], float]) -> Numbers:
    """The same curve over beta for all labels."""
    return drawn((dim, "beta"), {(label, beta): curve(beta) for label in labels for beta in BETAS}, noise=1e-5)


def by(dim: str, noise: float = 0.01, **means: float) -> Numbers:
    """Numbers by the labels of one dimension."""
    return drawn((dim,), {(label,): mean for label, mean in means.items()}, noise)


def steps(spread: Mapping[str, float]) -> Evidence:
    """Accuracies over 40 rounds after the start that go up and down by a spread, by start, P and round."""
    values = {
        (start, size, round): 60 + spread[size] * (-1) ** round
        for start in STARTS[1:]
        for size in spread
        for round in range(301, 341)
    }
    return {"accuracy": drawn(("start", "P", "round"), values)}


def windows(worst: tuple[str, str]) -> Evidence:
    """FedAvg's accuracies by start and P, with one cell below the others."""
    cells = [(start, size) for start in STARTS[1:] for size in ("3", "5", "9")]
    return {"accuracy": drawn(("start", "P"), {cell: 62.0 if cell == worst else 64.0 for cell in cells})}


def averages(accuracy: Mapping[str, float], rounds: Mapping[str, float]) -> Evidence:
    """Accuracies and rounds by start and model, a little better from later starts."""
    found: Evidence = {"length": LENGTH}
    for name, of in (("accuracy", accuracy), ("rounds", rounds)):
        means: dict[Key, float] = {}
        for i, start in enumerate(STARTS):
            means |= {(start, model): min(mean + i / 10, MISSED) for model, mean in of.items()}
        found[name] = drawn(("start", "model"), means, noise=0.0 if MISSED in of.values() else 0.01)
    return found


def of_models(accuracy: Mapping[str, float], rounds: Mapping[str, float]) -> Evidence:
    return {"accuracy": _by_model(accuracy), "rounds": _by_model(rounds), "length": LENGTH}


def _by_model(means: Mapping[str, float]) -> Numbers:
    return drawn(("model",), {(model,): mean for model, mean in means.items()})


MISSING: dict[Key, float] = {("one", 399): 1.2, ("mean", 399): 1.0, ("one", 400): 1.3, ("mean", 400): 1.1}
PAIRS = [f"{earlier} and 400" for earlier in range(200, 400, 20)]
BOWL = {
    "loss": everywhere("pair", PAIRS, lambda b: (b - 0.5) ** 2),
    "error": everywhere("pair", PAIRS, lambda b: b * b - b),
}
IMA = dict.fromkeys(METHODS, 1.0)
"""Each method's lowest point at IMA's model."""
FLAT = {"FedASAM": 4.0}
HIGHER = {"loss": valley("method", IMA, FLAT), "error": valley("method", {"FedASAM": 0.5} | IMA)}


class Same(Sampling):
    """The same ten clients in every round."""

    def draw(self, round: int, sizes: Ints, seed: int) -> Ints:
        return np.arange(10)


def asam_error(high: float) -> Numbers:
    """The error (per cent) on the line, that of FedASAM 40 and the others' lower or higher."""
    return drawn(("method", "beta"), {(m, b): (40.0 if m == "FedASAM" else high) + b for m in METHODS for b in BETAS})


LATE = {"loss": by("model", **{"1": 0.60, "2": 0.61, "3": 0.62, "mean": 0.5})}
AROUND = {"spread": drawn((), {(): 0.6})}
TWICE = {0.05: 6.0, 0.1: 4.5, 0.2: 3.0, 0.4: 2.0}
EPOCHS = (3, 5, 7, 11, 14, 17)
IN_ROUNDS = {"150": 190.0, "200": 210.0, "250": 260.0, "300": 310.0, "FMA": 390.0}
RESTRAINED = {"Exp": 64.6, "Const": 64.4, "Cyclic": 64.0, "Epoch": 63.0, "NA": 63.5}
LADDER = {"none": 61.0, "SWA": 62.0, "window": 63.0, "IMA": 64.0}
QUICK = {"SWA": 380.0, "window": 350.0, "IMA": 310.0}
TOP = ("FMNIST #C=2", "FedFA")
RESNET = "CIFAR-10 ResNet #C=2"

CASES: dict[str, tuple[Evidence, list[Evidence]]] = {
    "D1": (
        LATE | AROUND,
        [
            LATE | {"spread": drawn((), {(): 0.95})},
            AROUND | {"loss": by("model", **{"1": 0.60, "2": 0.61, "3": 0.62, "mean": 0.7})},
        ],
    ),
    "D2": (ima_cohorts.missing_labels(), [ima_cohorts.missing_labels(partition=IID(100))]),
    "D3": (ima_cohorts.weighted_labels(), [ima_cohorts.weighted_labels(weights=lambda n: (1 / n) / (1 / n).sum())]),
    "D4": (ima_cohorts.missed_samples(), [ima_cohorts.missed_samples(sampling=Same())]),
    "D5": (
        {"bias": drawn(("model", "round"), MISSING)},
        [{"bias": drawn(("model", "round"), MISSING | {("mean", 399): 1.5})}],
    ),
    "D6": (
        BOWL,
        [
            BOWL | {"error": everywhere("pair", PAIRS, lambda b: b)},
            {name: everywhere("pair", PAIRS[:1], lambda b: -((b - 0.5) ** 2)) for name in BOWL},
        ],
    ),
    "D8": (
        {"loss": everywhere("pair", PAIRS, lambda b: (1 - b) ** 4)},
        [
            {"loss": everywhere("pair", PAIRS, lambda b: (0.5 - b) ** 4)},
            {"loss": everywhere("pair", PAIRS, lambda b: 1 - exp(-8 * (1 - b) ** 2))},
        ],
    ),
    "D10": (
        of_models({"fed back": 64.0, "observed": 63.0}, {"fed back": 309.0, "observed": 350.0}),
        [
            of_models({"fed back": 62.0, "observed": 63.0}, {"fed back": 309.0, "observed": 350.0}),
            of_models({"fed back": 64.0, "observed": 63.0}, {"fed back": 350.0, "observed": 309.0}),
        ],
    ),
    "D12": (ima_cohorts.cost(), [ima_cohorts.cost(models=6)]),
    "D15": (
        averages(LADDER, QUICK),
        [
            averages(LADDER | {"none": 65.0}, QUICK),
            averages(LADDER | {"SWA": 63.5}, QUICK),
            averages(LADDER | {"window": 65.0}, QUICK),
            averages(LADDER | {"SWA": 64.5, "window": 65.0}, QUICK),
            averages(LADDER, QUICK | {"window": 300.0}),
            averages(LADDER, QUICK | {"SWA": 300.0}),
        ],
    ),
    "D17": (table_1(), [table_1(but_for(("PACS a=0.1", "FedYogi"), -1.0))]),
    "E1": (table_1(), [table_1(but_for(("CIFAR-10 ResNet a=0.1", "FedAdam"), -2.0))]),
    "E2": (table_1(), [table_1(but_for(("PACS #C=2", "FedASAM"), -0.2))]),
    "E3": (table_1(), [table_1(of_row("CIFAR-100 VGG a=0.1", -0.5))]),
    "E4": (
        table_1(but_for(TOP, 8.0)),
        [
            table_1(but_for(("FMNIST #C=2", "FedAdam"), 9.0)),
            table_1(but_for(TOP, 4.0), FedProx=65.0),
        ],
    ),
    "E5": (table_1(of_row(RESNET, 9.0)), [table_1(lambda row, _: {RESNET: 9.0, "PACS a=0.1": 9.5}.get(row, 3.0))]),
    "E6": (
        table_1(of_row("CIFAR-10 ResNet a=0.1", 6.4)),
        [table_1(lambda row, _: {"CIFAR-10 ResNet a=0.1": 6.41, "CIFAR-100 ResNet a=0.1": 1.37}.get(row, 3.0))],
    ),
    "E7": (ima_cohorts.label_skew(), [ima_cohorts.label_skew(milder=Dirichlet(100, 0.1))]),
    "E8": (
        over("gain", "skew", {1.25: 0.5, 2.5: 2.0, 5.0: 1.9, 10.0: 3.0, 20.0: 5.0}),
        [over("gain", "skew", {1.25: 4.0, 2.5: 3.0, 5.0: 3.1, 10.0: 2.0, 20.0: 1.0})],
    ),
    "E9": (
        table_1(**{"CIFAR-10 ResNet a=0.1": 50.5}),
        [table_1(**{"CIFAR-10 ResNet a=0.1": 40.0})],
    ),
    "E13": (table_1(of_row("PACS a=0.1", 5.0)), [table_1(of_row("Digit-Five a=0.1", 5.0))]),
    "E15": (
        over("gain", "alpha", {0.05: 5.0, 0.1: 4.0, 0.2: 3.0, 0.4: 2.0, 0.8: 0.2}),
        [over("gain", "alpha", {0.05: 5.0, 0.1: 4.0, 0.2: 3.0, 0.4: 3.5, 0.8: 0.2})],
    ),
    "E16": (
        over("gain", "alpha", {0.05: 5.1, 0.1: 4.8, 0.8: 0.3}),
        [over("gain", "alpha", {0.05: 4.0, 0.1: 3.0, 0.8: 0.3})],
    ),
    "E17": (
        over("gain", "alpha", {0.05: 5.0, 0.1: 4.8, 0.8: 0.3}),
        [over("gain", "alpha", {0.05: 5.0, 0.1: 0.3, 0.8: 2.0})],
    ),
    "E19": (
        over("gain", "participation", TWICE | {0.3: 3.2}),
        [over("gain", "participation", {0.05: 2.0, 0.1: 2.5, 0.2: 3.0, 0.3: 2.9, 0.4: 4.0})],
    ),
    "E20": (over("gain", "participation", TWICE), [over("gain", "participation", TWICE | {0.2: 5.0})]),
    "E22": (
        over("gain", "epochs", dict.fromkeys(EPOCHS, 3.0)),
        [over("gain", "epochs", dict.fromkeys(EPOCHS, 3.0) | {17: -0.5})],
    ),
    "E23": (
        over("gain", "epochs", {epochs: 3.0 + (-1) ** epochs / 4 for epochs in EPOCHS}),
        [
            over("gain", "epochs", {epochs: 1.0 + epochs / 5 for epochs in EPOCHS}),
            over("gain", "epochs", dict.fromkeys(EPOCHS, 3.0) | {9: 6.0}),
        ],
    ),
    "F1": (
        starts("accuracy", {"150": 61.0, "200": 62.0, "250": 63.0, "300": 64.0}),
        [starts("accuracy", {"150": 61.0, "200": 62.0, "250": 64.0, "300": 63.0})],
    ),
    "F2": (
        starts("accuracy", {"200": 61.0, "300": 64.0}),
        [starts("accuracy", {"200": 63.5, "300": 64.0})],
    ),
    "F3": (to_target(IN_ROUNDS), [to_target(IN_ROUNDS | {"150": 320.0})]),
    "F5": (to_target(IN_ROUNDS), [to_target(IN_ROUNDS | {"150": 320.0})]),
    "F6": (to_target(IN_ROUNDS), [to_target(IN_ROUNDS | {"150": 310.0})]),
    "F7": (two_below(), [two_below(62.0), two_below(63.0, 62.0)]),
    "F8": (to_target(IN_ROUNDS), [to_target(IN_ROUNDS | {"300": 395.0})]),
    "F11": (steps({"3": 1.0, "5": 0.6, "9": 0.3}), [steps({"3": 1.0, "5": 0.3, "9": 0.6})]),
    "F12": (windows(("200", "9")), [windows(("200", "5")), windows(("300", "9"))]),
    "F13": (
        {"loss": valley("method", IMA), "error": valley("method", IMA)},
        [
            {"loss": valley("method", IMA | {"FedNova": 0.5}), "error": valley("method", IMA)},
            {"loss": valley("method", IMA), "error": valley("method", IMA | {"FedGMA": 1.5})},
        ],
    ),
    "F14": ({"loss": valley("method", IMA)}, [{"loss": valley("method", IMA | {"FedAvg": -0.4})}]),
    "F15": (
        {"loss": valley("method", IMA, FLAT), "error": asam_error(35.0)},
        [
            {"loss": valley("method", IMA, {"FedAvg": 8.0}), "error": asam_error(35.0)},
            {"loss": valley("method", IMA, FLAT), "error": asam_error(45.0)},
        ],
    ),
    "F16": (
        schemes(**RESTRAINED),
        [schemes(**RESTRAINED | {"Cyclic": 64.5}), schemes(**RESTRAINED | {"NA": 64.55})],
    ),
    "F17": (schemes(**RESTRAINED), [schemes(**RESTRAINED | {"Epoch": 65.0})]),
    "F19": (schemes(**RESTRAINED), [schemes(**RESTRAINED | {"NA": 65.0})]),
    "F20": (
        to_target(IN_ROUNDS | {"adaptive": 250.0}),
        [to_target(IN_ROUNDS | {"adaptive": 330.0})],
    ),
}


def runs() -> list[str]:
    """The claims that runs decide, or print."""
    return [name for name in NAMES if name not in CALCULATED]


def with_two_seeds(evidence: Evidence) -> Evidence:
    return {
        name: Numbers.measured(numbers.dims, {key: quantity.values[:2] for key, quantity in numbers.items()})
        for name, numbers in evidence.items()
    }


def verdict(name: str) -> str:
    """What print says of a claim, or a calculation."""
    finding = CLAIMS[name].in_print()
    assert finding is not None
    return str(finding)


# --- The tests ---


def test_all_claims_of_the_sections_are_there_in_their_order() -> None:
    assert [claim.name for claim in CLAIMS] == NAMES
    assert "".join(claim.tier for claim in CLAIMS) == "BBBBBAABBAB" + "AAABBBBBBBAABABAB" + "ABABBBABBABBABBB"
    assert list(CASES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_evidence_as_the_paper_has_it_says_yes(name: str) -> None:
    finding = CLAIMS[name].judged(CASES[name][0])
    assert finding.verdict == "yes", finding.words


@pytest.mark.parametrize("name, number", [(name, i) for name in NAMES for i in range(len(CASES[name][1]))])
def test_evidence_against_it_says_no(name: str, number: int) -> None:
    finding = CLAIMS[name].judged(CASES[name][1][number])
    assert finding.verdict == "no", finding.words


@pytest.mark.parametrize("name", runs())
def test_two_seeds_do_not_decide(name: str) -> None:
    finding = CLAIMS[name].judged(with_two_seeds(CASES[name][0]))
    assert finding.verdict == "not decided", finding.words


@pytest.mark.parametrize("name", NAMES)
def test_the_first_paragraph_is_a_sentence_and_the_second_names_the_evidence(name: str) -> None:
    claim = CLAIMS[name]
    assert claim.says.endswith(".") and claim.where and claim.cost
    paragraphs = (claim.judge.__doc__ or "").split("\n\n")
    assert len(paragraphs) == 2
    assert all(f"`{need}`" in paragraphs[1] for need in claim.needs)


PRINTED = {
    "D17": "yes: 24 of 24 above 0: from 0.13 (CIFAR-10 ResNet a=0.1, FedAdam)",
    "E1": "yes: 64 of 64 above 0: from 0.13 (CIFAR-10 ResNet a=0.1, FedAdam) to 9.65 (CIFAR-10 ResNet #C=2, FedNova)",
    "E2": "yes: 32 of 32 above 0: from 0.31 (PACS #C=2, FedASAM)",
    "E4": "yes: 7 of 7 below 0: from -4.29 (FedProx) to -1.07 (FedAdam); 8 of 8 below 0: from -8.28 (FedProx)",
    "E5": "yes: 10 of 10 below 0: from -8.44 (CIFAR-100 VGG a=0.1) to -0.18 (PACS a=0.1)",
    "E6": "no: 0 of 1 between 1.5 and 2.5: 4.679",
    "E9": "no: 6 of 16 between 8 and 12: from 4.69 (FedASAM, +IMA) to 22.15 (FedFA, base)",
    "E13": "no: 7 of 8 above 0: from -0.65 (FedYogi)",
    "E16": "no: 2 of 8 between 4.5 and 5.5: from 1.74 (FedYogi, 0.1) to 4.98 (FedNova, 0.1)",
    "F3": "no: 30 of 36 above 0: from -74 (FedGMA, 200 - 150)",
    "F5": "no: 16 of 18 below 0: from -125 (FedFA, 150) to 9 (FedAvg, 150)",
    "F6": "yes: 2 of 2 between 45 and 55: 48.98 (FedProx), 50.77 (FedAdam)",
    "F7": "not decided: 4 of 4 below 61.61: 56.92 (FedASAM, base), 59.1 (FedASAM, +IMA), 55.11 (FedNova, base), 60.09",
    "F8": "yes: 24 of 24 below 1: from 0.4923 (FedAdam, 150) to 0.9032 (FedFA, 300)",
    "F16": "no: 23 of 24 below 0: from -2.73 (FedYogi, Epoch) to 0.23 (FedASAM, Cyclic); 19 of 24 below 0",
    "F17": "yes: above 0: 1.61",
    "F19": "yes: above 0: 0.655; by method 8 of 8 above 0",
    "F20": "not decided: fixed starts only",
}


@pytest.mark.parametrize("name", PRINTED)
def test_what_print_says(name: str) -> None:
    assert verdict(name).startswith(PRINTED[name])


@pytest.mark.parametrize("name", some(CALCULATED, "D2", "D3", "D4", "D12"))
def test_what_a_calculation_says(name: str) -> None:
    assert CLAIMS[name].identity is not None
    assert verdict(name).startswith("yes: ")


def test_only_these_are_decided_without_runs() -> None:
    assert {claim.name for claim in CLAIMS if claim.printed} == {*PRINTED}
    assert {claim.name for claim in CLAIMS if claim.identity} == {*CALCULATED}


def test_counts_that_docstrings_quote() -> None:
    accuracy = ima_claims._table_1()["accuracy"]
    gains = ima_claims.gain(accuracy)
    more = gains.at(row="CIFAR-10 CNN a=0.1", column=METHODS)
    assert max(quantity.mean for quantity in more.values()) < 5  # of the earlier text's "more than 5"
    rows = {row: quantity.mean for (row,), quantity in gains.over("column").items()}
    assert len(gains) == 96
    assert round(float(np.mean([gain.mean for gain in gains.values()])), 2) == 3.29
    assert {row: round(mean, 2) for row, mean in rows.items() if row in (RESNET, "CIFAR-100 VGG a=0.1")} == {
        RESNET: 7.98,
        "CIFAR-100 VGG a=0.1": 0.83,
    }
    larger = [
        sum(more.mean > 0 for more in (gains.at(row=f"{data} #C=2") - gains.at(row=f"{data} a=0.1")).values())
        for data in ("FMNIST", "CIFAR-10 CNN", "CIFAR-10 ResNet", "Digit-Five", "PACS")
    ]
    assert larger == [5, 6, 8, 7, 2]
    schemes = ima_claims._table_3()["accuracy"]
    not_restrained = schemes.at(scheme="NA")
    above = {
        scheme: sum(more.mean > 0 for more in (schemes.at(scheme=scheme) - not_restrained).values())
        for scheme in ("Exp", "Const", "Cyclic", "Epoch")
    }
    assert above == {"Exp": 8, "Const": 7, "Cyclic": 8, "Epoch": 2}
    base = {(method,): quantity for (method,), quantity in accuracy.at(row="CIFAR-10 CNN a=0.1", cell="base").items()}
    assert all(more.mean > 0 for more in (not_restrained - Numbers(("method",), base)).values())


def test_a_claim_of_always_needs_many_cases() -> None:
    one = {name: numbers.at(pair=PAIRS[:1]) for name, numbers in BOWL.items()}
    finding = CLAIMS["D6"].judged(one)
    assert finding.verdict == "not decided"
    assert finding.words.endswith("1 of 10 pairs")


ALONG: list[tuple[str, str, list[Label], list[Label]]] = [
    ("E15", "alpha", [0.05, 0.8], [0.05, 0.1, 0.8]),
    ("E19", "participation", [0.05, 0.4], [0.05, 0.1, 0.4]),
    ("E22", "epochs", [3, 17], [3, 7, 17]),
    ("E23", "epochs", [3, 17], [3, 7, 17]),
    ("F11", "P", ["3", "5"], ["3", "5", "9"]),
]


@pytest.mark.parametrize("name, dim, few, enough", ALONG)
def test_two_places_do_not_say_what_happens_along_a_dimension(
    name: str, dim: str, few: list[Label], enough: list[Label]
) -> None:
    ((part, numbers),) = CASES[name][0].items()
    for labels, expected in ((few, "not decided"), (enough, "yes")):
        finding = CLAIMS[name].judged({part: numbers.at(**{dim: labels})})
        assert finding.verdict == expected, finding.words


WHOLE: list[tuple[str, str, str, Iterable[Label]]] = [
    ("D1", "loss", "model", ["1", "2", "3", "mean"]),
    ("D15", "accuracy", "start", STARTS),
    ("D15", "accuracy", "model", LADDER),
    ("D15", "rounds", "start", STARTS),
    ("D15", "rounds", "model", QUICK),
    ("D17", "accuracy", "row", LABEL_SKEW + FEATURE_SKEW),
    ("D17", "accuracy", "column", ["FedAdam", "FedYogi"]),
    ("E1", "accuracy", "row", LABEL_SKEW),
    ("E1", "accuracy", "column", METHODS),
    ("E2", "accuracy", "row", FEATURE_SKEW),
    ("E2", "accuracy", "column", METHODS),
    ("E3", "accuracy", "row", LABEL_SKEW + FEATURE_SKEW),
    ("E3", "accuracy", "column", METHODS),
    ("E4", "accuracy", "column", METHODS),
    ("E4", "accuracy", "cell", CELLS),
    ("E5", "accuracy", "row", [row for row in LABEL_SKEW + FEATURE_SKEW if row != "CIFAR-10 ResNet a=0.1"]),
    ("E5", "accuracy", "column", METHODS),
    ("E6", "accuracy", "row", ["CIFAR-10 ResNet a=0.1", "CIFAR-100 ResNet a=0.1"]),
    ("E9", "accuracy", "column", METHODS),
    ("E9", "accuracy", "cell", CELLS),
    ("E13", "accuracy", "column", METHODS),
    ("E15", "gain", "method", METHODS),
    ("E15", "gain", "alpha", [0.05, 0.1, 0.8]),
    ("E16", "gain", "method", METHODS),
    ("E16", "gain", "alpha", [0.05, 0.1]),
    ("E17", "gain", "method", METHODS),
    ("E19", "gain", "method", METHODS),
    ("E19", "gain", "participation", [0.05, 0.4]),
    ("E20", "gain", "method", METHODS),
    ("E20", "gain", "participation", [0.05, 0.2]),
    ("E22", "gain", "method", METHODS),
    ("E22", "gain", "epochs", [3, 17]),
    ("E23", "gain", "method", METHODS),
    ("E23", "gain", "epochs", [3, 17]),
    ("F1", "accuracy", "method", LISTED),
    ("F1", "accuracy", "start", STARTS),
    ("F3", "rounds", "method", LISTED),
    ("F3", "rounds", "start", STARTS),
    ("F5", "rounds", "method", LISTED),
    ("F5", "rounds", "start", STARTS),
    ("F6", "rounds", "method", ["FedAdam", "FedProx"]),
    ("F6", "rounds", "start", ["150", "FMA"]),
    ("F7", "accuracy", "method", BELOW_TARGET),
    ("F7", "accuracy", "cell", CELLS),
    ("F7", "accuracy", "of", ["highest", "last ten"]),
    ("F8", "rounds", "method", LISTED),
    ("F8", "rounds", "start", [*STARTS, "FMA"]),
    ("F11", "accuracy", "P", ["3", "5", "9"]),
    ("F12", "accuracy", "start", STARTS[1:]),
    ("F12", "accuracy", "P", ["3", "5", "9"]),
    ("F13", "loss", "method", METHODS),
    ("F13", "error", "method", METHODS),
    ("F14", "loss", "method", METHODS),
    ("F15", "loss", "method", METHODS),
    ("F15", "error", "method", METHODS),
    ("F16", "accuracy", "method", METHODS),
    ("F16", "accuracy", "scheme", RESTRAINED),
    ("F19", "accuracy", "method", METHODS),
    ("F19", "accuracy", "scheme", ["Exp", "NA"]),
    ("F20", "rounds", "method", LISTED),
    ("F20", "rounds", "start", ["300", "adaptive"]),
]
"""Claims about all labels of a dimension, the part of their evidence that has it, and the labels."""


@pytest.mark.parametrize(
    "name, part, dim, labels", some((pytest.param(*one) for one in WHOLE), "D1", "D15", "E4", "E15")
)
def test_what_is_said_of_all_is_no_yes_without_one(name: str, part: str, dim: str, labels: Iterable[Label]) -> None:
    evidence = CASES[name][0]
    for label in labels:
        finding = CLAIMS[name].judged(evidence | {part: evidence[part].without(**{dim: label})})
        assert finding.verdict == "not decided", (label, finding.words)


ONE_CELL: list[tuple[str, str, Key]] = [
    ("E1", "accuracy", ("CIFAR-10 CNN a=0.1", "FedNova", "+IMA")),
    ("E5", "accuracy", ("FMNIST a=0.1", "FedYogi", "base")),
    ("E20", "gain", ("FedGMA", 0.05)),
    ("F1", "accuracy", ("FedFA", "200")),
    ("F3", "rounds", ("FedGMA", "250")),
    ("F8", "rounds", ("FedAvg", "300")),
    ("F12", "accuracy", ("300", "3")),
    ("F16", "accuracy", ("FedProx", "Cyclic")),
]


@pytest.mark.parametrize("name, part, cell", ONE_CELL)
def test_one_cell_that_is_missing_is_no_yes(name: str, part: str, cell: Key) -> None:
    evidence = CASES[name][0]
    kept = {key: quantity for key, quantity in evidence[part].items() if key != cell}
    finding = CLAIMS[name].judged(evidence | {part: Numbers(evidence[part].dims, kept)})
    assert finding.verdict == "not decided", finding.words


@pytest.mark.parametrize(
    "name, against",
    [
        *((name, "no") for name in ("E8", "E15", "E16", "E17", "E22", "E23")),
        *((name, "not decided") for name in ("E19", "E20")),
    ],
)
def test_fedavg_alone_says_nothing_of_all_methods(name: str, against: str) -> None:
    """Against what is said of each method it is enough; against a mean over them it is not."""
    yes, no = CASES[name][0]["gain"], CASES[name][1][0]["gain"]
    for gain, expected in ((yes, "not decided"), (no, against)):
        finding = CLAIMS[name].judged({"gain": gain.at(method=["FedAvg"])})
        assert finding.verdict == expected
        assert finding.words.startswith("FedAvg alone: ")


@pytest.mark.parametrize("name", ["F16", "F17"])
@pytest.mark.parametrize("epoch, expected", [(63.0, "yes"), (65.0, "not decided")])
def test_a_scheme_as_worded_must_give_the_same_verdict(name: str, epoch: float, expected: str) -> None:
    as_worded = {"Cyclic, as worded": 64.0, "Epoch, as worded": epoch}
    assert CLAIMS[name].judged(schemes(**RESTRAINED, **as_worded)).verdict == expected


def test_the_schemes_as_worded_are_evidence_beside_those_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_table(_: object, __: object, table: str = "") -> Numbers:
        return Numbers.exact(("row", "column", "cell"), {("FedAvg", "Epoch", ""): 51.0 if table else 48.0})

    monkeypatch.setattr(ima_claims, "of_table", of_table)
    accuracy = measured("F17", AT_FULL_SCALE)["accuracy"]
    assert {key: quantity.mean for key, quantity in accuracy.items()} == {
        ("FedAvg", "Epoch"): 48.0,
        ("FedAvg", "Epoch, as worded"): 51.0,
    }


def test_a_part_of_the_participations_is_no_no() -> None:
    rising = over("gain", "participation", {0.1: 1.0, 0.2: 2.0, 0.3: 3.0})
    assert CLAIMS["E19"].judged(rising).verdict == "not decided"


def test_the_middle_of_three_splits_does_not_count() -> None:
    finding = CLAIMS["E8"].judged(over("gain", "skew", {1.25: 0.5, 10.0: 5.0, 20.0: 2.0}))
    assert finding.verdict == "not decided" and "3 of 4 splits" in finding.words


def test_a_gain_that_is_nowhere_large_is_neither_insignificant_nor_stable() -> None:
    assert CLAIMS["E17"].judged(over("gain", "alpha", {0.05: 0.9, 0.8: 0.9})).verdict == "not decided"
    small = over("gain", "epochs", {3: 0.1, 5: 0.3, 17: 1.4})
    assert CLAIMS["E23"].judged(small).verdict == "not decided"


def test_a_mean_over_fewer_methods_is_no_no() -> None:
    restrained = schemes(**RESTRAINED | {"NA": 65.0})["accuracy"].without(method="FedNova")
    assert CLAIMS["F19"].judged({"accuracy": restrained}).verdict == "not decided"
    bad = CASES["E3"][1][0]["accuracy"].without(column="FedNova")
    assert CLAIMS["E3"].judged({"accuracy": bad}).verdict == "not decided"
    other = CASES["E5"][1][0]["accuracy"]
    without = {key: quantity for key, quantity in other.items() if key[:2] != (RESNET, "FedNova")}
    assert CLAIMS["E5"].judged({"accuracy": Numbers(other.dims, without)}).verdict == "not decided"


def test_one_method_that_is_not_harmed_is_no_no() -> None:
    """Without decay performance may suffer: here it does not for FedAvg alone."""
    accuracy = schemes(**RESTRAINED)["accuracy"]
    means = {key: quantity.mean for key, quantity in accuracy.items()} | {("FedAvg", "NA"): 65.0}
    assert CLAIMS["F19"].judged({"accuracy": drawn(accuracy.dims, means)}).verdict == "yes"


def test_a_bias_that_is_lower_in_most_rounds_is_lower() -> None:
    means = MISSING | {("one", 398): 1.2, ("mean", 398): 1.25}
    assert CLAIMS["D5"].judged({"bias": drawn(("model", "round"), means)}).verdict == "yes"


def test_resnet_at_another_skew_is_no_rival() -> None:
    gains = {RESNET: 9.0, "CIFAR-10 ResNet a=0.1": 9.5}
    assert CLAIMS["E5"].judged(table_1(lambda row, _: gains.get(row, 3.0))).verdict == "yes"


def test_two_losses_are_no_gains_of_which_one_is_twice_the_other() -> None:
    lost = {"CIFAR-10 ResNet a=0.1": -2.0, "CIFAR-100 ResNet a=0.1": -1.0}
    assert CLAIMS["E6"].judged(table_1(lambda row, _: lost.get(row, 3.0))).verdict == "no"
    assert CLAIMS["E20"].judged(over("gain", "participation", {0.05: -2.0, 0.2: -1.0})).verdict == "no"


def test_other_methods_at_a_twentieth_than_at_a_fifth_are_not_compared() -> None:
    gain = over("gain", "participation", TWICE)["gain"]
    kept = {key: quantity for key, quantity in gain.items() if (key[0] in METHODS[:4]) == (key[1] == 0.05)}
    assert CLAIMS["E20"].judged({"gain": Numbers(gain.dims, kept)}).verdict == "not decided"


def test_gains_about_five_at_one_alpha_and_above_it_at_the_other_are_not_about_five() -> None:
    """The earlier text, which has more than 5 at one alpha, is another claim."""
    assert CLAIMS["E16"].judged(over("gain", "alpha", {0.05: 9.0, 0.1: 2.0})).verdict == "no"


def test_a_loss_that_is_no_number_leaves_the_place_of_the_lowest_open() -> None:
    loss = valley("method", IMA)
    holed = dict(loss.items()) | {("FedAvg", -0.5): drawn((), {(): np.nan})[()]}
    for name in ("F13", "D8"):
        of = {"method": "pair"} if name == "D8" else {}
        evidence = {"loss": Numbers(tuple(of.get(dim, dim) for dim in loss.dims), holed), "error": loss}
        assert CLAIMS[name].judged(evidence).verdict == "not decided"


OUTCOMES: list[tuple[str, dict[str, float], str]] = [
    ("F8", {"300": MISSED, "FMA": 350.0}, "no"),
    ("F8", {"FMA": MISSED}, "yes"),
    ("F8", {"300": MISSED, "FMA": MISSED}, "not decided"),
    ("F3", {"300": MISSED}, "yes"),
    ("F3", {"150": MISSED}, "no"),
    ("F3", {"250": MISSED, "300": MISSED}, "not decided"),
    ("F5", {"300": MISSED}, "yes"),
    ("F5", {"150": MISSED}, "no"),
    ("F5", {"250": MISSED, "300": MISSED}, "not decided"),
    ("F6", {"150": MISSED}, "no"),
    ("F6", {"FMA": MISSED}, "not decided"),
]


@pytest.mark.parametrize(
    "name, missed, expected",
    by_default(
        (pytest.param(*one) for one in OUTCOMES),
        lambda name, missed, expected: (name, expected) in (("F8", "no"), ("F3", "yes"), ("F6", "not decided")),
    ),
)
def test_a_missed_target_contradicts_where_another_run_reaches_it(
    tmp_path: Path, name: str, missed: dict[str, float], expected: str
) -> None:
    """In the runs of one method, all seeds; the others' are as the paper has them."""
    evidence = CLAIMS[name].judged(of_table_2(tmp_path, FedAdam=missed))
    assert evidence.verdict == expected, evidence.words


@pytest.mark.parametrize(
    "ima, window, expected", [(310.0, MISSED, "yes"), (MISSED, 350.0, "no"), (MISSED, MISSED, "not decided")]
)
def test_what_is_fed_back_is_faster_if_the_other_misses_the_target(ima: float, window: float, expected: str) -> None:
    rounds = {"SWA": MISSED, "window": window, "IMA": ima}
    finding = CLAIMS["D15"].judged(averages(LADDER, rounds))
    assert finding.verdict == expected, finding.words


def test_a_run_that_misses_the_target_counts_with_one_round_more_than_it_has(tmp_path: Path) -> None:
    evidence = of_table_2(tmp_path, FedAvg={"300": MISSED, "250": 0.0})
    assert evidence["length"][()].mean == 400
    assert dict(zip("012", evidence["rounds"]["FedAvg", "300"].values, strict=True)) == dict.fromkeys("012", 401)
    assert evidence["rounds"]["FedAvg", "200"].seeds == ("0", "1", "2")
    assert evidence["rounds"]["FedAvg", "200"].values == (210, 211, 212)
    assert ("FedAvg", "250") not in evidence["rounds"]


def of_table_2(out: Path, **others: dict[str, float]) -> Evidence:
    """The evidence in runs that reach the target in the usual rounds, but for others by method and start.

    In 401 rounds it is not reached; with 0 there is no run.
    """

    def accuracy(run: Labels) -> Mapping[int, float]:
        if run["method"] not in LISTED or run["P"] != "5":
            return {}
        usual = {start: mean + int(run["seed"]) for start, mean in IN_ROUNDS.items()}
        needed = round((usual | others.get(run["method"], {}))[run["start"]])
        if not needed:
            return {}
        return {10: 0.1, 400: 0.5} if needed > 400 else {10: 0.1, needed: 0.62}

    reproduction = replace(TABLE_2, axes={**TABLE_2.axes, "seed": [0, 1, 2]})
    measure = CLAIMS["F8"].measure
    assert measure is not None
    return measure(pretend(out, reproduction, accuracy, target=0.6161, models=("model", "ima")))


@pytest.mark.parametrize(
    "of_base, expected",
    [
        full({t: 0.58 for t in range(1, 401)}, "yes"),
        full({t: 0.58 for t in range(1, 401)} | {350: 0.62}, "no"),
        ({t: 0.58 for t in range(10, 401, 10)}, "not decided"),
        full({t: 0.58 for t in range(10, 401, 10)} | {350: 0.62}, "no"),
    ],
)
def test_single_rounds_reach_a_target(tmp_path: Path, of_base: dict[int, float], expected: str) -> None:
    """Means of the last rounds below it say nothing; neither do those rounds that were evaluated, if not all were."""
    whole = {t: 0.59 for t in range(1, 401)}

    def accuracy(run: Labels) -> Mapping[int, float]:
        if run["method"] not in BELOW_TARGET or run["row"] != TARGETED or run["IMA"] == "mild":
            return {}
        return of_base if (run["method"], run["IMA"]) == ("FedNova", "off") else whole

    axes = {
        **TABLE_1.axes,
        "seed": [0, 1, 2],
        "row": {TARGETED: ROWS[TARGETED]},
        "method": {method: SETTINGS_OF[method] for method in BELOW_TARGET},
        "strength": {"0.01": {}},
    }
    reproduction = replace(TABLE_1, axes=axes, notes=(), tables=[Table(rows="row", columns="method")], scales={})
    evidence = measured("F7", pretend(tmp_path, reproduction, accuracy, models=("model", "ima")))
    finding = CLAIMS["F7"].judged(evidence)
    assert finding.verdict == expected, finding.words


def test_the_order_of_labels_does_not_matter() -> None:
    for name in ("D2", "E15", "F1", "F3", "F11"):
        evidence, against = CASES[name]
        for given, expected in ((evidence, "yes"), (against[0], "no")):
            backwards = {part: Numbers(each.dims, dict(list(each.items())[::-1])) for part, each in given.items()}
            assert CLAIMS[name].judged(backwards).verdict == expected


# --- How the evidence is read from results ---


def run(seed: int, **labels: str) -> Any:
    """A run of a reproduction, as far as its labels go."""
    return SimpleNamespace(
        name=f"run-{seed}", labels={"seed": str(seed), **labels}, experiment=SimpleNamespace(seed=seed)
    )


def finds(monkeypatch: pytest.MonkeyPatch, findings: list[tuple[str, Any, dict[str, Any]]]) -> None:
    """Every figure of a study finds this, in whatever results."""
    monkeypatch.setattr(StudyFigure, "findings", lambda self, results, job=None: iter(findings))


AT_FULL_SCALE = SimpleNamespace(scale="full")
"""Results of which only the scale is read."""


def measured(name: str, results: Any) -> Evidence:
    measure = CLAIMS[name].measure
    assert measure is not None
    return measure(results)


def test_every_measure_is_of_a_reproduction() -> None:
    assert all(claim.of for claim in CLAIMS if claim.measure)
    assert {claim.of for claim in CLAIMS} == {
        "",
        "ima-table-1",
        "ima-table-2",
        "ima-table-3",
        "ima-figure-1",
        "ima-figure-6",
    }


PATHS = [
    ([(0, 0), (1, 0), (3, 0)], 1.0, "no"),
    ([(-1, 0), (0, 0.1), (1, 0)], 0.9934, "no"),
    ([(0, 0), (1, 0), (0, 1)], 0.625, "yes"),
    ([(0, 0), (2, 0), (1, 3**0.5)], 0.5, "yes"),
]


@pytest.mark.parametrize("places, spread, expected", PATHS)
def test_a_path_that_is_almost_straight_does_not_surround_its_mean(
    monkeypatch: pytest.MonkeyPatch, places: list[tuple[float, float]], spread: float, expected: str
) -> None:
    found = {
        "at_models": {f"round:{t}": {"loss": 0.6} for t in (398, 399, 400)},
        "at_mean": {"loss": 0.5},
        "models": {f"round:{398 + i}": list(place) for i, place in enumerate(places)},
        "mean": np.mean(places, axis=0).tolist(),
    }
    finds(monkeypatch, [("final, global", run(seed), found) for seed in range(3)])
    evidence = measured("D1", AT_FULL_SCALE)
    assert evidence["spread"][()].mean == pytest.approx(spread, abs=1e-4)
    assert CLAIMS["D1"].judged(evidence).verdict == expected


def test_late_models_are_read_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "at_models": {f"round:{t}": {"loss": loss} for t, loss in ((398, 0.6), (399, 0.7), (400, 0.8))},
        "at_mean": {"loss": 0.5},
        "models": {"round:398": [0.0, 0.0], "round:399": [4.0, 0.0], "round:400": [2.0, 3.0]},
        "mean": [2.0, 1.0],
    }
    finds(monkeypatch, [("early", run(0), {}), ("final, global", run(3), found)])
    evidence = measured("D1", AT_FULL_SCALE)
    assert {key: quantity.values for key, quantity in evidence["loss"].items()} == {
        ("1",): (0.6,),
        ("2",): (0.7,),
        ("3",): (0.8,),
        ("mean",): (0.5,),
    }
    assert evidence["spread"][()].seeds == ("3",)
    finds(monkeypatch, [("early", run(0), {})])
    assert CLAIMS["D1"].judged(measured("D1", AT_FULL_SCALE)).words.startswith("no loss, no spread")


def test_lines_by_method_and_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"beta": [0.0, 1.0], "loss": [0.9, None], "error": [0.4, 0.3]}
    finds(monkeypatch, [("", run(seed, method="FedAvg", start="300", P="5"), found) for seed in (0, 1)])
    evidence = measured("F13", AT_FULL_SCALE)
    assert evidence["error"][("FedAvg", 1.0)].values == (30.0, 30.0)
    assert evidence["loss"][("FedAvg", 0.0)].values == (0.9, 0.9)
    assert np.isnan(evidence["loss"][("FedAvg", 1.0)].values).all()
    assert measured("D6", AT_FULL_SCALE)["loss"].labels("pair") == ["the last round and one 5 % earlier"]


def test_gains_are_by_method_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        ("FedAvg", "0.05"): [50.0],
        ("FedAvg + IMA", "0.05"): [55.0],
        ("FedAvg", "0.8"): [70.0],
        ("FedAvg + IMA", "0.8"): [70.5],
        ("FedProx", "0.8"): [70.0],
    }
    monkeypatch.setattr(ima_claims, "of_values", lambda figure, results: Numbers.measured(("line", "point"), values))
    gains = measured("E15", AT_FULL_SCALE)["gain"]
    assert {key: quantity.values for key, quantity in gains.items()} == {
        ("FedAvg", 0.05): (5.0,),
        ("FedAvg", 0.8): (0.5,),
    }
    assert measured("E8", AT_FULL_SCALE)["gain"].labels("skew") == [20.0, 1.25]


@pytest.mark.parametrize(
    "last, first", [(400, {"200": 210, "250": 260, "300": 310}), (40, {"200": 30, "250": 35}), (12, {})]
)
def test_rounds_until_the_windows_are_full_are_not_judged(
    monkeypatch: pytest.MonkeyPatch, last: int, first: dict[str, int]
) -> None:
    """In shorter runs a start stands for the same share; one after which too few rounds are left is not there."""
    values = {(f"t_s = {t}, P = 5", round): [60.0] for t in STARTS[1:] for round in range(1, last + 1)}
    monkeypatch.setattr(ima_claims, "of_curves", lambda figure, results: Numbers.measured(("line", "round"), values))
    accuracy = measured("F11", AT_FULL_SCALE)["accuracy"]
    assert {start: accuracy.at(start=start).labels("round")[0] for start in accuracy.labels("start")} == first
    assert all(accuracy.at(start=start).labels("round")[-1] == last for start in first)


def test_ends_by_start_and_by_window() -> None:
    """Of the model that clients receive; without runs there is no number."""

    def ends(pick: Pick) -> Any:
        assert (pick.model, pick.statistic) == ("sent", "last_mean")
        labels = {axis: label for axis, (label,) in pick.where.items()}
        there = labels["method"] == "FedAvg" and labels["start"] != "150"
        return SimpleNamespace(values={"0": float(labels["start"]) + float(labels["P"])} if there else {})

    results = SimpleNamespace(measured=ends)
    by_start = measured("F1", results)["accuracy"]
    assert {key: quantity.values for key, quantity in by_start.items()} == {
        ("FedAvg", "200"): (205.0,),
        ("FedAvg", "250"): (255.0,),
        ("FedAvg", "300"): (305.0,),
    }
    assert len(measured("F12", results)["accuracy"]) == 9
    assert measured("F12", results)["accuracy"][("250", "9")].values == (259.0,)
