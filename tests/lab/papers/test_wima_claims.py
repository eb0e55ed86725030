"""WiMA's claims: each says yes and no of the evidence that the paper describes and of its opposite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path

import pytest

from fedsash import Broadcast, Scaffold
from fedsash.evaluation import Evaluation
from fedsash.lab.papers.claims import Evidence
from fedsash.lab.papers.numbers import Key, Numbers
from fedsash.lab.papers.reproduction import Reproduction
from fedsash.lab.papers.results import Results
from fedsash.lab.papers.wima import (
    CIFAR_SPLITS,
    FEDERATIONS,
    FIGURE_2,
    FIGURE_3,
    METHODS,
    STARTS,
    TABLE_2,
    TABLE_3,
    TABLE_5,
)
from fedsash.lab.papers.wima_claims import (
    CLAIMS,
    OF_FIGURE_1,
    added_by_the_window,
    mean_and_step,
    weights_by_age,
    window_and_pseudo_gradients,
    window_and_steps,
)
from fedsash.runs.records import Records
from fedsash.runs.summaries import GOAL, goal_content
from fedsash.tasks import Criterion
from support.by_default import by_default, some
from support.histories import history_of
from support.json_files import write_json
from support.papers import drawn, lessened

CELLS = ("row", "column", "cell")
ENDS = ("split", "clients", "model")
SPLITS = tuple(FEDERATIONS)
ROUNDS: list[int] = [*range(10, 990, 10), *range(990, 1001)]
"""The rounds after which drawn runs are evaluated: every ten, and all of the last hundredth."""


def table_2(
    bases: Mapping[str, float] | None = None,
    gains: Mapping[Key, float] | None = None,
    seeds: int = 3,
    splits: Sequence[str] = SPLITS,
) -> Evidence:
    """Table 2 as drawn: SCAFFOLD has 80, MIME SGD 20, the others 50; gains are 6, or those of a method and split."""
    bases, gains = {"SCAFFOLD": 80.0, "MIME SGD": 20.0} | dict(bases or {}), gains or {}
    means: dict[Key, float] = {}
    for method, split in product(METHODS, splits):
        base = bases.get(method, 50.0)
        means[method, split, "base"] = base
        means[method, split, "WiMA"] = base + gains.get((method, split), 6.0)
    return {"accuracy": drawn(CELLS, means, seeds=seeds)}


def everywhere(gain: float, method: str = "", split: str = "") -> dict[Key, float]:
    """The gain of one method, or in one split, or of all in all."""
    return {(m, s): gain for m, s in product(METHODS, SPLITS) if method in ("", m) and split in ("", s)}


def straight(begin: float, middle: float, end: float, round: int) -> float:
    """The value in a round of a line that is straight from its start to its middle, and from there to its end."""
    place = 2 * round / ROUNDS[-1]
    return begin + place * (middle - begin) if place < 1 else middle + (place - 1) * (end - middle)


def curves(
    dims: Sequence[str], lines: Mapping[Key, tuple[float, float, float]], noise: Sequence[float], seeds: int
) -> Numbers:
    """Curves over `ROUNDS` from start, middle and end, each line with `noise` of its own size in every round."""
    unit = drawn(dims, {(*line, round): 0.0 for line in lines for round in ROUNDS}, 1.0, seeds)
    values: dict[Key, Sequence[float]] = {}
    for (line, ends), size in zip(lines.items(), noise, strict=True):
        for round in ROUNDS:
            values[(*line, round)] = [straight(*ends, round) + size * each for each in unit[(*line, round)].values]
    return Numbers.measured(dims, values)


def figure_1(wima: tuple[float, float, float], noise: tuple[float, float], seeds: int) -> Evidence:
    """Figure 1's curves: the base rises from 10 over 30 to 40. `noise` is the base's and WiMA's."""
    lines: dict[Key, tuple[float, float, float]] = {}
    for method in OF_FIGURE_1:
        lines |= {(method, "base"): (10.0, 30.0, 40.0), (method, "WiMA"): wima}
    return {"curves": curves(("method", "cell", "round"), lines, len(OF_FIGURE_1) * noise, seeds)}


def with_window(wima: tuple[float, float, float], noise: tuple[float, float], seeds: int) -> Evidence:
    """Figure 2's curves of FedAvg, which rises from 10 over 30 to 40, and of WiMA; each has its `noise`."""
    lines: dict[Key, tuple[float, float, float]] = {("FedAvg",): (10.0, 30.0, 40.0), ("WiMA",): wima}
    return {"curves": curves(("line", "round"), lines, noise, seeds)}


def overall(seeds: int, **bases: float) -> Evidence:
    """Tables 2 and 3, in which SCAFFOLD is best unless `bases` say otherwise."""
    return table_2(bases, seeds=seeds) | {"landmarks": landmarks(5, seeds)["accuracy"]}


def figure_2(early: tuple[float, float, float], seeds: int) -> Evidence:
    """Figure 2's curves: FedAvg rises from 5 over 15 to 23."""
    lines: dict[Key, tuple[float, float, float]] = {("FedAvg",): (5.0, 15.0, 23.0), ("SWA c=10 from 25 %",): early}
    return {"curves": curves(("line", "round"), lines, (0.1, 0.1), seeds)}


def ends_of_figure_2(early: float, late: float, latest: float, seeds: int) -> Evidence:
    """The ends of Figure 2: FedAvg 23, WiMA 28, SWA from at most 75 % on, from 90 % and from 95 %."""
    means: dict[Key, float] = {("FedAvg",): 23.0, ("WiMA",): 28.0}
    for name, (share, _) in STARTS.items():
        means[(name,)] = early if share <= 0.75 else late if share == 0.9 else latest
    return {"accuracy": drawn(("line",), means, 0.1, seeds)}


def figure_3(wima: Mapping[int, float], split: str | Sequence[str], seeds: int) -> Evidence:
    """The ends of Figure 3 in splits: FedAvg has 50 with 10 clients, 58 with 15, 62 with 20, and 70 with 50."""
    means: dict[Key, float] = {}
    for each in [split] if isinstance(split, str) else split:
        means |= {(each, n, "FedAvg"): a for n, a in {10: 50.0, 15: 58.0, 20: 62.0, 50: 70.0}.items()}
        means |= {(each, n, "WiMA"): a for n, a in wima.items()}
    return {"accuracy": drawn(ENDS, means, 0.1, seeds)}


def table_4(best: int, seeds: int, at_50: float = 69.0) -> Evidence:
    """Table 4, with the best size, and what 50 models reach."""
    rows = {5: 60.0, 10: 65.0, 50: at_50, 100: 72.0, 200: 70.0}
    rows[best] = 75.0
    means: dict[Key, float] = {
        (f"W = {size}", data, ""): value for size, value in rows.items() for data in ("CIFAR-10", "CIFAR-100")
    }
    return {"accuracy": drawn(CELLS, means, 0.1, seeds)}


def table_5(extractor: float, seeds: int) -> Evidence:
    means: dict[Key, float] = {
        (split, column, ""): value
        for split in CIFAR_SPLITS
        for column, value in (("classifier only", 48.0), ("feature extractor only", extractor), ("all", 60.0))
    }
    return {"accuracy": drawn(CELLS, means, 0.1, seeds)}


def batches(accuracy: float, distance: float, seeds: int) -> Evidence:
    """Accuracy and distance at batches of 20, where they are 70 and 1 at batches of 100."""
    means: dict[Key, float] = {}
    for split in CIFAR_SPLITS:
        means["accuracy", split, 100], means["accuracy", split, 20] = 70.0, accuracy
        means["distance", split, 100], means["distance", split, 20] = 1.0, distance
    return {"numbers": drawn(("what", "split", "batch"), means, 0.01, seeds)}


def windows(begin: float, end: float, seeds: int) -> Evidence:
    """Windows of 100 and 200 models by round: what the larger one is above the smaller one at both ends of the run."""
    lines: dict[Key, tuple[float, float, float]] = {}
    for data in ("CIFAR-10", "CIFAR-100"):
        lines[data, 100] = (20.0, 50.0, 70.0)
        lines[data, 200] = (20 + begin, 50 + (begin + end) / 2, 70 + end)
    return {"curves": curves(("data", "window", "round"), lines, 4 * (0.1,), seeds)}


def pair(dims: Sequence[str], base: Mapping[Key, float], wima: Mapping[Key, float], seeds: int) -> Numbers:
    """Numbers of the base and of WiMA, by `dims` after the model."""
    means: dict[Key, float] = {("base", *key): value for key, value in base.items()}
    means |= {("WiMA", *key): value for key, value in wima.items()}
    return drawn(("model", *dims), means, 0.1, seeds)


def forgetting(wima: Mapping[int, float], seeds: int) -> Evidence:
    """Accuracy on clients of some rounds ago; the base has 80 on the last ones', 40, 30 and 20 on those before."""
    base: dict[Key, float] = {(1,): 80.0, (2,): 40.0, (3,): 30.0, (4,): 20.0}
    return {"accuracy": pair(("ago",), base, {(ago,): value for ago, value in wima.items()}, seeds)}


def bad_rounds(drop: float, spread: float, seeds: int) -> Evidence:
    """WiMA's drop and spread, where its base has 6 and 3."""
    return {"drop": pair((), {(): 6}, {(): drop}, seeds), "spread": pair((), {(): 3}, {(): spread}, seeds)}


def bias(last: float, others: float, seeds: int) -> Evidence:
    """WiMA's accuracy on the last round's classes and on the others, where its base has 80 and 30."""
    base: dict[Key, float] = {("last round's",): 80.0, ("others",): 30.0}
    wima: dict[Key, float] = {("last round's",): last, ("others",): others}
    return {"accuracy": pair(("classes",), base, wima, seeds)}


def features(wima: float, seeds: int) -> Evidence:
    """The accuracy from WiMA's features, by a probe and by the base's classifier, where its own features give 50."""
    means: dict[Key, float] = {}
    for split, classifier in product(CIFAR_SPLITS, ("probe", "base")):
        means[split, "base", classifier], means[split, "WiMA", classifier] = 50.0, wima
    return {"accuracy": drawn(("split", "features", "classifier"), means, 0.1, seeds)}


def landmarks(gain: float, seeds: int) -> Evidence:
    means: dict[Key, float] = {}
    for method, base in (("FedAvg", 58.0), ("SCAFFOLD", 62.0)):
        means[method, "without", ""], means[method, "with WiMA", ""] = base, base + gain
    return {"accuracy": drawn(CELLS, means, 0.1, seeds)}


ALPHAS = ("a=0", "a=0.05")
SMOOTH, ROUGH = (2.0, 0.1), (0.1, 2.0)
WORST_GAINS_MOST = everywhere(15, method="MIME SGD")
EASIER_GAIN_LESS = everywhere(1, split="FEMNIST") | everywhere(1, split="Shakespeare")
OF_RUNS: dict[str, tuple[Callable[[int], Evidence], Callable[[int], Evidence]]] = {
    "W5": (lambda n: with_window((14, 34, 44), SMOOTH, n), lambda n: with_window((5, 32, 44), SMOOTH, n)),
    "W6": (lambda n: figure_1((14, 34, 44), SMOOTH, n), lambda n: figure_1((14, 34, 44), ROUGH, n)),
    "W9": (lambda n: bad_rounds(1, 1, n), lambda n: bad_rounds(1, 4, n)),
    "W10": (lambda n: bias(60, 50, n), lambda n: bias(85, 30, n)),
    "W11": (
        lambda n: forgetting({1: 60, 2: 55, 3: 50, 4: 45}, n),
        lambda n: forgetting({1: 25, 2: 20, 3: 20, 4: 20}, n),
    ),
    "W19": (lambda n: table_2(seeds=n), lambda n: table_2(gains={("FedCM", "FEMNIST"): -1.0}, seeds=n)),
    "W20": (overall, lambda n: overall(n, FedACG=85.0)),
    "W23": (
        lambda n: table_2(gains=EASIER_GAIN_LESS, seeds=n),
        lambda n: table_2(gains=everywhere(8, split="Shakespeare"), seeds=n),
    ),
    "W24": (
        lambda n: table_2(gains=WORST_GAINS_MOST, seeds=n),
        lambda n: table_2({"FedDyn": 10.0}, WORST_GAINS_MOST, n),
    ),
    "W25": (lambda n: table_2(seeds=n), lambda n: table_2(gains={("SCAFFOLD", "CIFAR-100 a=0"): -1.0}, seeds=n)),
    "W26": (lambda n: table_2(seeds=n), lambda n: table_2(gains={("FedAvg", "Shakespeare"): -1.0}, seeds=n)),
    "W29": (lambda n: landmarks(5, n), lambda n: landmarks(0.5, n)),
    "W30": (lambda n: figure_2((5, 18, 18), n), lambda n: figure_2((5, 18, 25), n)),
    "W31": (lambda n: ends_of_figure_2(20, 25, 27.5, n), lambda n: ends_of_figure_2(27, 27, 27.5, n)),
    "W32": (lambda n: ends_of_figure_2(20, 25, 27, n), lambda n: ends_of_figure_2(20, 25, 29, n)),
    "W35": (lambda n: figure_3({10: 60}, ALPHAS, n), lambda n: figure_3({10: 49}, ALPHAS, n)),
    "W36": (lambda n: figure_3({10: 57}, "a=0", n), lambda n: figure_3({10: 54}, "a=0", n)),
    "W37": (lambda n: figure_3({10: 59}, "a=0", n), lambda n: figure_3({10: 57}, "a=0", n)),
    "W38": (lambda n: figure_3({10: 61}, "a=0.05", n), lambda n: figure_3({10: 58}, "a=0.05", n)),
    "W39": (lambda n: figure_3({20: 71}, "a=0", n), lambda n: figure_3({20: 75}, "a=0", n)),
    "W40": (lambda n: figure_3({20: 72}, "a=0.05", n), lambda n: figure_3({20: 69}, "a=0.05", n)),
    "W41": (lambda n: figure_3({10: 69}, "a=0.05", n), lambda n: figure_3({10: 65}, "a=0.05", n)),
    "W42": (lambda n: batches(60, 2, n), lambda n: batches(72, 2, n)),
    "W43": (lambda n: table_4(100, n), lambda n: table_4(100, n, at_50=63.0)),
    "W44": (lambda n: windows(-4, -1, n), lambda n: windows(4, -1, n)),
    "W45": (lambda n: table_4(100, n), lambda n: table_4(200, n)),
    "W46": (lambda n: table_5(59, n), lambda n: table_5(47, n)),
    "W48": (lambda n: features(55, n), lambda n: features(49, n)),
}
"""Of each claim about numbers with seeds: the evidence of n seeds as the paper describes it, and its opposite."""


def of_print(name: str) -> Evidence:
    """The claim's evidence in print, or as it is calculated."""
    source = CLAIMS[name].printed or CLAIMS[name].identity
    assert source is not None
    return source()


def right_gains() -> Evidence:
    """Table 2 and its gains, with FedAvg's base in the first cell as its printed gain of 5.3 has it."""
    evidence = of_print("W28")
    accuracy = {key: quantity.mean for key, quantity in evidence["accuracy"].items()}
    accuracy["FedAvg", "CIFAR-10 a=0", "base"] = 64.65
    return {"accuracy": Numbers.exact(CELLS, accuracy), "gains": evidence["gains"]}


def as_printed() -> Evidence:
    """No factor off from what is printed. No window has such, since two of the four statements exclude each other."""
    return {"off": Numbers.exact(("what",), dict.fromkeys(of_print("W16")["off"], 0.0))}


WITHOUT_CHANCE: dict[str, tuple[Callable[[], Evidence], Callable[[], Evidence]]] = {
    "W3": (mean_and_step, lambda: mean_and_step(rate=0.5)),
    "W4": (added_by_the_window, lambda: added_by_the_window(broadcast=Broadcast("wima"))),
    "W14": (window_and_pseudo_gradients, lambda: window_and_pseudo_gradients(equal=True)),
    "W15": (window_and_steps, lambda: window_and_steps(own_steps=False)),
    "W16": (as_printed, lambda: of_print("W16")),
    "W17": (lambda: weights_by_age("velocity"), lambda: weights_by_age("position")),
    "W28": (right_gains, lambda: of_print("W28")),
}
"""The same of claims about calculated or printed numbers; where it goes, by a calculation with a false piece."""

NAMES = [claim.name for claim in CLAIMS]


def test_there_are_claims_in_the_order_of_the_paper_and_each_has_both_cases() -> None:
    assert sorted(NAMES, key=lambda name: int(name[1:])) == NAMES
    assert len(NAMES) == 35
    assert [claim.tier for claim in CLAIMS].count("A") == 11
    assert OF_RUNS.keys() | WITHOUT_CHANCE.keys() == set(NAMES)
    assert not OF_RUNS.keys() & WITHOUT_CHANCE.keys()


@pytest.mark.parametrize("name", OF_RUNS)
def test_a_claim_says_yes_and_no(name: str) -> None:
    yes, no = (CLAIMS[name].judged(evidence(3)) for evidence in OF_RUNS[name])
    assert yes.verdict == "yes", yes
    assert no.verdict == "no", no


@pytest.mark.parametrize("name", some(WITHOUT_CHANCE, "W3", "W4", "W16", "W17", "W28"))
def test_a_claim_without_chance_says_yes_and_no(name: str) -> None:
    yes, no = (CLAIMS[name].judged(evidence()) for evidence in WITHOUT_CHANCE[name])
    assert yes.verdict == "yes", yes
    assert no.verdict == "no", no


@pytest.mark.parametrize("name", OF_RUNS)
def test_two_seeds_decide_nothing(name: str) -> None:
    for evidence in OF_RUNS[name]:
        finding = CLAIMS[name].judged(evidence(2))
        assert finding.verdict == "not decided"
        assert "2 of the 3 seeds" in finding.words


CIFAR = [split for split in SPLITS if split.startswith("CIFAR")]
NOT_NEEDED: dict[str, Sequence[object]] = {
    "W11": (2, 3, 4),
    "W19": ("Shakespeare",),
    "W20": ("Shakespeare", "WiMA", "with WiMA"),
    "W23": ("Shakespeare",),
    "W24": [split for split in SPLITS if split not in ("CIFAR-100 a=0", "CIFAR-100 a=0.5")],
    "W25": ("Shakespeare", *(method for method in METHODS if method != "SCAFFOLD")),
    "W26": ("FedDyn", *CIFAR),
    "W31": ("FedAvg", "SWA c=10 from 90 %"),
    "W36": (20, 50),
    "W37": (20, 50),
    "W38": (15, 50),
    "W39": (10, 15),
    "W40": (10, 15),
    "W41": (15, 20),
    "W43": ("W = 200",),
    "W46": ("all",),
}
"""Labels that a claim says nothing of; Shakespeare's column is lost in print."""


@pytest.mark.parametrize("name", some([*OF_RUNS, "W28"], "W9", "W10", "W20", "W23", "W44", "W48", "W28"))
def test_a_part_of_the_evidence_decides_nothing(name: str) -> None:
    """A claim about all methods, splits, sizes or lines is not decided where one of them is missing."""
    yes = right_gains() if name == "W28" else OF_RUNS[name][0](3)
    for dim, label, less in lessened(yes):
        if dim != "round":
            wanted = "yes" if label in NOT_NEEDED.get(name, ()) else "not decided"
            assert CLAIMS[name].judged(less).verdict == wanted, (dim, label)


def test_one_column_of_print_does_not_contradict_what_print_has_in_all() -> None:
    """FEMNIST's gains are the smallest: their mean is below 1.5 points, and that over all columns is not."""
    accuracy = of_print("W19")["accuracy"]
    finding = CLAIMS["W19"].judged({"accuracy": accuracy.at(column=["FEMNIST"])})
    assert finding.verdict == "not decided", finding
    for name in ("W20", "W23", "W25"):
        some = of_print(name) | {"accuracy": accuracy.without(column=["CIFAR-100 PAM", "FEMNIST"])}
        assert CLAIMS[name].judged(some).verdict == "not decided", name


def test_the_worst_methods_are_those_on_cifar_100() -> None:
    """Other columns alone say nothing of the claim, nor do gains without a base."""
    accuracy = of_print("W24")["accuracy"]
    on_cifar_10 = accuracy.at(column=["CIFAR-10 a=0", "CIFAR-10 a=0.05"])
    assert CLAIMS["W24"].judged({"accuracy": on_cifar_10}).verdict == "not decided"
    assert CLAIMS["W24"].judged({"accuracy": accuracy.without(cell="base")}).verdict == "not decided"


def test_a_curve_that_is_stuck_is_not_smooth() -> None:
    """A model at chance has no changes, whoever of the two it is."""
    for cell in ("base", "WiMA"):
        values: dict[Key, Sequence[float]] = {}
        for key, quantity in figure_1((14, 34, 44), SMOOTH, 3)["curves"].items():
            stuck = key[:2] == ("FedCM", cell) and float(key[2]) > 600
            values[key] = [10.0] * 3 if stuck else quantity.values
        curves = Numbers.measured(("method", "cell", "round"), values)
        assert CLAIMS["W6"].judged({"curves": curves}).verdict == "not decided"


def test_forgetting_is_counted_from_the_last_rounds_clients_in_whatever_order_they_come() -> None:
    yes = OF_RUNS["W11"][0](3)["accuracy"]
    no = PARTS["W11 forgetting"]()["accuracy"]
    for accuracy, verdict in ((yes, "yes"), (no, "no")):
        backwards = Numbers(accuracy.dims, dict(reversed(list(accuracy.items()))))
        assert CLAIMS["W11"].judged({"accuracy": backwards}).verdict == verdict


def test_swa_that_falls_is_saturated_too() -> None:
    finding = CLAIMS["W30"].judged(figure_2((5, 22, 12), 3))
    assert finding.verdict == "yes", finding


def test_where_there_is_no_gap_there_is_none_to_narrow() -> None:
    """FedAvg with 50 clients is no better than with 10; the claim is then not that WiMA is better with 10."""
    for wima in (55.0, 45.0):
        evidence = figure_3({10: wima}, ALPHAS, 3)["accuracy"]
        lower = drawn(ENDS, {key: -25.0 if key[1] == 50 else 0.0 for key in evidence}, 0.0)
        finding = CLAIMS["W35"].judged({"accuracy": evidence + lower})
        assert finding.verdict == "not decided", finding


def test_what_print_alone_decides_is_not_judged_by_runs() -> None:
    assert [CLAIMS[name].measure for name in ("W20", "W23")] == [None] * 2


def test_a_finding_says_what_it_does_not_measure() -> None:
    assert "the drift is judged by this bias alone" in CLAIMS["W10"].judged(OF_RUNS["W10"][0](3)).words
    lower = batches(60, 2, 3)["numbers"].at(what=["accuracy"])
    finding = CLAIMS["W42"].judged({"numbers": lower})
    assert finding.verdict == "not decided"
    assert "there are no distances of clients" in finding.words


PARTS: dict[str, Callable[[], Evidence]] = {
    "W5 late": lambda: with_window((14, 29, 36), (1.0, 0.1), 3),
    "W9 drop": lambda: bad_rounds(8, 1, 3),
    "W11 forgetting": lambda: forgetting({1: 95, 2: 41, 3: 31, 4: 21}, 3),
    "W19 not substantial": lambda: table_2(gains=everywhere(0.5, method="FedCM")),
    "W24 MIME": lambda: table_2(gains=everywhere(9, method="MIME SGD")),
    "W30 not flat": lambda: figure_2((1, 8, 20), 3),
    "W31 late": lambda: ends_of_figure_2(20, 25, 25, 3),
    "W32 FedAvg": lambda: {"accuracy": drawn(("line",), {("FedAvg",): 29.0, ("WiMA",): 28.0})},
    "W42 distance": lambda: batches(60, 0.5, 3),
    "W44 end": lambda: windows(-4, 3, 3),
    "W39 below": lambda: figure_3({20: 67}, "a=0", 3),
    "W41 above": lambda: figure_3({10: 71}, "a=0.05", 3),
    "W4 bytes": lambda: added_by_the_window(method=Scaffold()),
}
"""Evidence against one part of a claim alone."""


@pytest.mark.parametrize("case", PARTS)
def test_every_part_of_a_claim_can_say_no(case: str) -> None:
    finding = CLAIMS[case.split()[0]].judged(PARTS[case]())
    assert finding.verdict == "no", finding


IN_PRINT = {
    "W3": ("yes", ["3 of 3 below"]),
    "W4": ("yes", ["4 of 4 between 0 and 0"]),
    "W14": ("yes", ["2 of 2 below"]),
    "W15": ("yes", ["4 of 4 below"]),
    "W16": ("no", ["2 of 4", "1 (the steps, from W - 1)", "-1.5 (what doubling W makes"]),
    "W17": ("no", ["7 of 7 above 0", "0 of 7 below 0"]),
    "W19": ("yes", ["63 of 63 above 0", "11 of 11 above 1.5"]),
    "W20": ("no", ["4 of 6 above 0", "above 0: 4.15 (Landmarks)", "in the mean over the splits 67.2 against 59.7"]),
    "W23": ("yes", ["5 of 5 above 0"]),
    "W24": ("no", ["0 of 2 above 0", "2 of 2 above 11", "in all splits 1 of 6 above 0", "0.4 (FEMNIST)"]),
    "W25": ("yes", ["6 of 6 above 0"]),
    "W26": ("not decided", ["10 of 10 above 0", "from 0.26 (FedAvgM) to 1.47 (FedAvg)", "there are no numbers"]),
    "W28": ("no", ["51 of 52", "-0.28 (FedAvg, CIFAR-10 a=0)"]),
    "W29": ("yes", ["2 of 2", "4.88 (FedAvg), 5.98 (SCAFFOLD)"]),
    "W42": ("no", ["1 of 4 below 0", "there are no distances of clients"]),
    "W43": ("no", ["5 of 6 above 0", "-2.95 (W = 50, CIFAR-100)", "less than W = 100 alone: yes, 6 of 6 below 0"]),
    "W45": ("yes", ["8 of 8 below 0", "-0.15 (W = 50, CIFAR-10)"]),
    "W46": ("yes", ["4 of 4 above 0", "0.17 (CIFAR-100 a=0.5)"]),
}


def test_which_claims_print_or_a_calculation_decides() -> None:
    assert [claim.name for claim in CLAIMS if claim.printed or claim.identity] == list(IN_PRINT)


@pytest.mark.parametrize("name", by_default(IN_PRINT, lambda name: name not in ("W4", "W14", "W15")))
def test_the_verdict_in_print_or_of_a_calculation(name: str) -> None:
    verdict, words = IN_PRINT[name]
    finding = CLAIMS[name].in_print()
    assert finding is not None
    assert finding.verdict == verdict
    for part in words:
        assert part in finding.words


def test_print_has_51_gains_of_at_least_a_point_and_a_half() -> None:
    accuracy = of_print("W19")["accuracy"]
    gains = accuracy.at(cell="WiMA") - accuracy.at(cell="base")
    assert sum(round(gain.mean, 2) >= 1.5 for gain in gains.values()) == 51


def test_the_last_rounds_which_are_all_evaluated_count_no_more_than_others() -> None:
    """Here WiMA falls below its base in all of the last rounds but the last one, and jumps there."""
    evidence = {
        "W5": with_window((14, 34, 44), SMOOTH, 3)["curves"],
        "W6": figure_1((14, 34, 44), SMOOTH, 3)["curves"],
    }
    for name, numbers in evidence.items():
        values: dict[Key, Sequence[float]] = {}
        for key, quantity in numbers.items():
            dense = "WiMA" in key and float(key[-1]) % 10 != 0
            values[key] = [0.0] * 3 if dense else quantity.values
        assert CLAIMS[name].judged({"curves": Numbers.measured(numbers.dims, values)}).verdict == "yes"


# --- Evidence from the results of a reproduction ---


def pretended(out: Path, reproduction: Reproduction) -> Results:
    """Folders of runs that were not trained, at the tiny scale, with labels such as those of the paper's scale.

    In round t every model has the accuracy t/100, and averages 0.1 more.
    """
    sweep = reproduction.plan("tiny")
    for run in sweep.runs:
        rows = [
            {"round": t, "model": model, "split": "test", "accuracy": t / 100 + 0.1 * (model != "model")}
            for t in range(1, run.experiment.rounds + 1)
            for model in ("model", *run.experiment.averages)
        ]
        folder = out / "runs" / run.name
        folder.mkdir(parents=True)
        Records(folder).create(history_of(rows))
        write_json(folder / GOAL, goal_content(Criterion(), Evaluation(last=run.experiment.evaluation.last)))
        write_json(folder / "summary.json", {"rounds": run.experiment.rounds})
    return Results(sweep, out, reproduction.labels)


def measured(name: str, results: Results) -> Evidence:
    claim = CLAIMS[name]
    assert claim.measure is not None
    return claim.measure(results)


def test_measured_evidence_of_table_2_and_figure_1(tmp_path: Path) -> None:
    results = pretended(tmp_path, TABLE_2)
    accuracy = measured("W19", results)["accuracy"]
    assert accuracy["FedAvg", "CIFAR-100 a=0", "base"].values == pytest.approx((11, 11))
    assert accuracy["FedAvg", "CIFAR-100 a=0", "WiMA"].values == pytest.approx((21, 21))
    smooth = measured("W6", results)["curves"]
    assert smooth.dims == ("method", "cell", "round")
    assert smooth.labels("round") == list(range(5, 13))  # W = 5 of 12 rounds
    assert smooth["FedAvg", "WiMA", 5].values == pytest.approx((15, 15))
    assert measured("W45", results)["accuracy"]["W = 100", "CIFAR-100", ""].values == pytest.approx((21, 21))
    by_round = measured("W44", results)["curves"]
    assert by_round.dims == ("data", "window", "round")
    assert by_round["CIFAR-100", 200, 12].values == pytest.approx((22, 22))


def test_measured_evidence_of_tables_3_and_5(tmp_path: Path) -> None:
    landmarks = measured("W29", pretended(tmp_path / "3", TABLE_3))
    assert landmarks["accuracy"]["SCAFFOLD", "with WiMA", ""].values == pytest.approx((21, 21))
    parts = measured("W46", pretended(tmp_path / "5", TABLE_5))
    assert parts["accuracy"]["CIFAR-10 a=0", "feature extractor only", ""].values == pytest.approx((21, 21))


def test_measured_evidence_of_figures_2_and_3(tmp_path: Path) -> None:
    results = pretended(tmp_path / "2", FIGURE_2)
    assert measured("W30", results)["curves"]["FedAvg", 20].values == pytest.approx((20,))
    from_the_first = measured("W5", results)["curves"]
    assert from_the_first.labels("line") == ["FedAvg", "WiMA"]
    full = results.sweep.runs[0].experiment.averages["wima"].size
    assert from_the_first.labels("round") == list(range(full, 21))
    ends = measured("W31", results)["accuracy"]
    assert ends["FedAvg",].values == pytest.approx((19,))
    assert ends["SWA c=10 from 25 %",].values == pytest.approx((29,))
    accuracy = measured("W35", pretended(tmp_path / "3", FIGURE_3))["accuracy"]
    assert accuracy["a=0", 10, "WiMA"].values == pytest.approx((29,))
    assert accuracy["a=0", 50, "FedAvg"].values == pytest.approx((19,))
