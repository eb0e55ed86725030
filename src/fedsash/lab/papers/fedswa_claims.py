"""FedSWA's and FedMoSWA's claims of tiers A and B.

"accuracy" is in per cent, "rounds" are those to the target, and, where "target" is beyond, those in which it was not
reached; both by "row" (method), "column" (Dirichlet's parameter) and "data", as in Table 3. "sharpness" is by "measure"
(the Hessian's largest eigenvalue, the rise of the loss at a distance) and "method", of the training loss at the last
global models. Margins are our reading and were fixed before any run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import exp, hypot
from typing import Any, Literal

import numpy as np

from ...client import LocalTraining
from ...methods import FedMoSWA, FedSWA, Method
from ...methods.schedules import SawTooth
from ...network.messages import lengths
from ...vector.arrays import Floats
from .claims import (
    NO_NUMBERS,
    Claims,
    Evidence,
    Finding,
    above,
    at_most,
    below,
    between,
    either,
    every,
    noted,
    of_all,
    with_all,
)
from .figures import StudyFigure
from .ledger import Ledger
from .measures import compared, counts, entered_target, of_study, of_table, of_target, printed_target
from .numbers import Key, Numbers, Quantity, reduced, stacked
from .pick import Pick
from .quadratics import quadratic_federation
from .results import Results

CLAIMS = Claims("FedSWA")

TABLES = {"CIFAR-100": "fedswa-table-3-cifar100", "Tiny-ImageNet": "fedswa-table-3-tiny-imagenet"}
OURS = ("FedSWA", "FedMoSWA")
"""The paper's own methods."""
RIVALS = ("SCAFFOLD", "FedLESAM", "FedSAM", "MoFedSAM")
"""The other methods whose surfaces are shown."""
COLUMNS = ("Dir 0.1", "Dir 0.3", "Dir 0.6")
METHODS = (
    "FedAvg", "FedDyn", "SCAFFOLD", "FedSAM", "MoFedSAM", "FedLESAM", "FedASAM", "FedACG", "FedSWA", "FedMoSWA",
)  # fmt: skip
OF_OTHERS = tuple(method for method in METHODS if method not in OURS)
"""The methods of Table 3 that are not the paper's own."""
IN_TABLE_3 = {"column": COLUMNS, "data": tuple(TABLES)}
"""The columns of Table 3: what is said of the table is said of each of them."""
FLATNESS = ("largest eigenvalue", "rise at 0.05", "rise at 0.1", "rise at 0.2")
"""The measures of flatness: of the Hessian, and of the loss at a distance."""
HEIGHTS = ("height at 0.5", "height at 1")
"""The measures of a surface: how far it is above its centre at a radius."""
LEVELS = ("centre", "plane")
"""The losses of a surface: at its centre, and in the mean over the plane."""
DIGIT = 0.05
"""Half of the last printed digit."""
EXACT = 1e-12
NOT_REFUTED = "the bound is not refuted, and no more: it is far too large to fail in this calculation"


# --- The printed and measured numbers ---


def _printed(cell: str) -> Numbers:
    from .fedswa import TABLE_3

    accuracies = {data: TABLE_3.printed(table).at(cell=cell) for data, table in TABLES.items()}
    return stacked("data", accuracies)


def printed_accuracy() -> Evidence:
    """The accuracies that Table 3 prints."""
    return {"accuracy": _printed("accuracy")}


def printed_rounds() -> Evidence:
    """The rounds that Table 3 prints, and those in which the target was not reached."""
    from .fedswa import TABLE_3

    tables = {data: printed_target(TABLE_3, table, "rounds") for data, table in TABLES.items()}
    return {"rounds": stacked("data", tables)}


def _accuracy(results: Results) -> Evidence:
    from .fedswa import TABLE_3

    measured = {data: of_table(TABLE_3, results, table).at(cell="accuracy") for data, table in TABLES.items()}
    return {"accuracy": stacked("data", measured)}


def _rounds(results: Results) -> Evidence:
    from .fedswa import TABLE_3

    tables = {data: of_target(TABLE_3, results, table, "rounds") for data, table in TABLES.items()}
    return {"rounds": stacked("data", tables)}


def _entered_rounds(ledger: Ledger) -> Evidence:
    from .fedswa import TABLE_3

    tables = {data: entered_target(TABLE_3, ledger, table, "rounds") for data, table in TABLES.items()}
    return {"rounds": stacked("data", tables)}


def _of_study(name: str, results: Results, read: Callable[[dict[str, Any]], Mapping[Key, float]]) -> Numbers:
    """What a figure's study finds in the runs of all seeds, by "measure" and "method"."""
    from .fedswa import TABLE_3

    (figure,) = (each for each in TABLE_3.figures_at(results.scale) if each.name == name)
    assert isinstance(figure, StudyFigure)
    where = {axis: labels for axis, labels in figure.where.where.items() if axis != "seed"}
    numbers = of_study(replace(figure, where=Pick(where)), results, lambda finding, run: read(finding), "measure")
    quantities: dict[Key, Quantity] = {}
    for (_, run, measure), quantity in numbers.items():
        method = str(run).split(", ")[-1]
        quantities[measure, method] = quantity
    return Numbers(("measure", "method"), quantities)


def _curvature(finding: dict[str, Any]) -> dict[Key, float]:
    """The largest eigenvalue and the rises of the loss in the finding of a study of flatness."""
    model = finding["models"]["model"]
    numbers: dict[Key, float] = {("largest eigenvalue",): model["eigenvalues"][0]}
    for rho, value in model["sharpness"].items():
        numbers[(f"rise at {rho}",)] = value
    return numbers


def _losses_of(surface: dict[str, Any]) -> Floats:
    """The losses of a surface's points, a row for each y and a column for each x."""
    return np.array(surface["loss"], dtype=float)


def _heights(surface: dict[str, Any]) -> dict[Key, float]:
    """How far a surface lies above its centre, in the mean over the points at a radius."""
    losses = _losses_of(surface)
    distances = np.array([hypot(x, y) for y in surface["y"] for x in surface["x"]]).reshape(losses.shape)
    half = (surface["x"][1] - surface["x"][0]) / 2
    centre = surface["at_models"]["model"]["loss"]
    heights: dict[Key, float] = {}
    for radius in (0.5, 1.0):
        ring = abs(distances - radius) <= half
        heights[(f"height at {radius:g}",)] = float(losses[ring].mean()) - centre
    return heights


def _levels(surface: dict[str, Any]) -> dict[Key, float]:
    """The loss at a surface's centre, and its mean over the plane."""
    centre = surface["at_models"]["model"]["loss"]
    return {("centre",): centre, ("plane",): float(_losses_of(surface).mean())}


def _sharpness(results: Results) -> Evidence:
    return {"sharpness": _of_study("fedswa-flatness", results, _curvature)}


def _sharpness_and_error(results: Results) -> Evidence:
    accuracy = _accuracy(results)["accuracy"].at(data="CIFAR-100", column="Dir 0.1")
    errors = Numbers(("method",), dict((accuracy * -1.0 + 100.0).items()))
    return _sharpness(results) | {"error": errors}


def _surfaces(results: Results) -> Evidence:
    heights = _of_study("fedswa-surfaces", results, _heights)
    curvature = _of_study("fedswa-flatness", results, _curvature)
    return {"sharpness": Numbers(heights.dims, {**heights, **curvature})}


def _losses(results: Results) -> Evidence:
    return {"loss": _of_study("fedswa-surfaces", results, _levels)}


# --- What is made of them ---


def _lead(
    numbers: Numbers, method: str, best: Callable[[Sequence[float]], float], rivals: Sequence[str] = ()
) -> Numbers:
    """A method's number less that of the best other one, or of the best of these rivals, in each column."""
    others = numbers.at(row=list(rivals)) if rivals else numbers.without(row=method)
    return numbers.at(row=method) - others.over("row", best)


def _gains(accuracy: Numbers, data: str) -> Numbers:
    """The paper's methods less each other method on one data set, by "row", "column" and "rival"."""
    of_data = accuracy.at(data=data)
    others: dict[str, Numbers] = {}
    for rival in map(str, of_data.labels("row")):
        ours = [method for method in OURS if method != rival]
        others[rival] = of_data.at(row=ours) - of_data.at(row=rival)
    return stacked("rival", others)


def _a_pair(gains: Numbers, gain: float) -> Finding:
    """Whether one of all gains is this number when rounded to one digit; the words name the nearest."""
    low = gain - DIGIT
    high = gain + DIGIT
    pairs = [between(Numbers((), {(): quantity}), low, high) for quantity in gains.values()]
    if not pairs:
        return Finding(None, NO_NUMBERS)
    holding = [pair for pair in pairs if pair.holds]
    nearest = min(gains, key=lambda key: abs(gains[key].mean - gain))
    where = ", ".join(map(str, nearest))
    words = f"{len(holding)} of {len(pairs)} between {low:g} and {high:g}"
    return Finding(either(*pairs).holds, f"{words}, the nearest {gains[nearest].mean:.4g} ({where})")


def _lead_in_rounds(rounds: Numbers, method: str) -> Numbers:
    """A method's rounds less those of the quickest other one, by column and data, in seeds that all of them have."""
    by_cell = counts(rounds)
    leads: dict[Key, Quantity] = {}
    for (row, *place), own in by_cell.items():
        if row != method:
            continue
        others = [rival for (other, *at), rival in by_cell.items() if other != method and at == place]
        if not others:
            continue
        quickest = {}
        for seed in own:
            if all(seed in rival for rival in others):
                quickest[seed] = min(rival[seed] for rival in others)
        lead = compared(lambda mine, theirs: mine - theirs, own, quickest)
        if lead is not None:
            leads[tuple(place)] = lead
    return Numbers(("column", "data"), leads)


def _against_rivals(numbers: Numbers) -> Numbers:
    """The paper's methods less each of the four rivals whose surfaces are shown."""
    ours = numbers.at(method=list(OURS))
    return stacked("rival", {rival: ours - numbers.at(method=rival) for rival in RIVALS})


def _rank_correlation(sharpness: Numbers, error: Numbers) -> Numbers:
    """Spearman's correlation over methods, in each seed, by measure; of three methods at least."""
    correlations: dict[Key, Quantity] = {}
    for measure in sharpness.labels("measure"):
        of_measure = sharpness.at(measure=measure)
        methods = [key for key in of_measure if key in error]
        if len(methods) < 3:
            continue
        quantities = [of_measure[key] for key in methods]
        quantities += [error[key] for key in methods]
        correlation = reduced(quantities, _spearman)
        if correlation is not None:
            correlations[(measure,)] = correlation
    return Numbers(("measure",), correlations)


def _spearman(values: Sequence[float]) -> float:
    """The rank correlation of the first half of the values and the second."""
    from scipy.stats import spearmanr

    half = len(values) // 2
    return float(spearmanr(values[:half], values[half:]).statistic)


RUN = "run X23: 7 h on two cores for three seeds"
OF = "fedswa-table-3"


# --- The claims ---


@CLAIMS.add("S1", "A", where="title, README", cost=f"print; {RUN}", printed=printed_accuracy, of=OF, measure=_accuracy)
def generalisation_is_improved(accuracy: Numbers) -> Finding:
    """FedSWA and FedMoSWA generalise better than federated learning without them, where data are heterogeneous.

    `accuracy`: both above FedAvg in every column of Table 3. 12 of 12 in print.
    """
    gain = accuracy.at(row=list(OURS)) - accuracy.at(row="FedAvg")
    return of_all(above(gain), gain, row=OURS, **IN_TABLE_3)


@CLAIMS.add("S2", "A", where="README", cost=RUN, of=OF, measure=_sharpness)
def fedswa_finds_flatter_global_minima(sharpness: Numbers) -> Finding:
    """FedSWA is more likely than FedSAM to find a flat minimum of the global loss.

    `sharpness` by "measure" and "method", of the loss over all clients' samples at the last global models: FedSWA's
    below FedSAM's in each measure. No number is printed.
    """
    gap = sharpness.at(method="FedSWA") - sharpness.at(method="FedSAM")
    return of_all(below(gap), gap, measure=FLATNESS)


@CLAIMS.add("S3", "B", where="README, a heading", cost=RUN, of=OF, measure=_sharpness_and_error)
def flat_minima_generalise_better(sharpness: Numbers, error: Numbers) -> Finding:
    """Flatter minima generalise better.

    `sharpness` by "measure" and "method", and the test `error` by "method", in per cent, of the six methods whose
    surfaces are shown: in each seed Spearman's rank correlation of the two over methods, which is to be above 0 for
    each measure. The drawing that is beside the heading is lost.
    """
    both = [method for method in sharpness.labels("method") if (method,) in error]
    finding = above(_rank_correlation(sharpness, error))
    return with_all(finding, sharpness.at(method=both), measure=FLATNESS, method=(*RIVALS, *OURS))


def _accuracy_and_sharpness(results: Results) -> Evidence:
    return _accuracy(results) | _sharpness(results)


@CLAIMS.add(
    "S4",
    "B",
    where="README, a heading",
    cost=f"print; {RUN}",
    printed=printed_accuracy,
    of=OF,
    measure=_accuracy_and_sharpness,
)
def fedswa_is_better_and_flatter_than_fedsam(accuracy: Numbers, sharpness: Numbers) -> Finding:
    """FedSWA is better than FedSAM, and its minima are flatter.

    `accuracy`: FedSWA above FedSAM in every column of Table 3 (S20); `sharpness` by "measure" and "method": below it in
    each measure. Print has the first half alone, so it doesn't decide.
    """
    return every(fedswa_is_better_than_fedsam(accuracy), fedswa_finds_flatter_global_minima(sharpness))


# --- The theorems ---

Case = Literal["non-convex", "strongly convex"]
CASES: tuple[Case, ...] = ("non-convex", "strongly convex")


def constant(case: Case, steps: int, rounds: int, share: Fraction = Fraction(1, 2)) -> Fraction:
    """The constant of Theorem 5.1, exactly: c, or b for a strongly convex loss with `share` = mu/(beta + mu).

        c = 1 + (2 + 1/(K T))^(K - 1) / T,    b = 1 + (mu/((beta + mu) K))^(K - 1) / T

    K are the local `steps`, and T the `rounds`.
    """
    base = share / steps
    if case == "non-convex":
        base = 2 + Fraction(1, steps * rounds)
    return 1 + base ** (steps - 1) / rounds


def printed_bounds() -> Evidence:
    """What the paper's table has of the bounds: FedSWA's on the generalisation, in units of 2 L^2 e / (m n beta).

    At K = 10 and T = 1000, sigma = sigma_g = L. FedSAM's has a constant that is not defined.
    """
    bounds: dict[Key, float] = {("generalisation", "FedSWA"): 3 * float(constant("non-convex", 10, 1000))}
    return {"bounds": Numbers.exact(("of", "method"), bounds)}


@CLAIMS.add("S8", "B", where="README, table of bounds", cost="print", printed=printed_bounds)
def fedswas_bounds_are_below_fedsams(bounds: Numbers) -> Finding:
    """By uniform stability FedSWA has better results than FedSAM, both on generalisation and on convergence.

    `bounds` by "of" (generalisation, convergence) and "method": FedSWA's below FedSAM's in both. Print can't decide it:
    FedSAM's bound on the generalisation has a constant c-bar that is not defined, and those on convergence are orders,
    whose factors are not given.
    """
    gap = bounds.at(method="FedSWA") - bounds.at(method="FedSAM")
    return every(below(gap.at(of="generalisation")), below(gap.at(of="convergence")))


def what_fedmoswa_saves(multiplied: bool = False) -> Evidence:
    """1 - FedMoSWA's bound / FedSWA's, by Theorem 5.1, for L = sigma_g = sigma, in exact fractions.

    `multiplied`: whether FedMoSWA's sigma_g has the constant, too.
    """
    saved: dict[Key, float] = {}
    for case in CASES:
        for steps in (1, 10, 20, 50):
            c = constant(case, steps, 1000)
            heterogeneity = c if multiplied else Fraction(1)
            fedmoswa = c + heterogeneity + c
            saved[case, steps] = float(1 - fedmoswa / (3 * c))
    return {"saved": Numbers.exact(("case", "steps"), saved)}


@CLAIMS.add("S9", "B", where="README, table of bounds, Theorem 5.1", cost="identity", identity=what_fedmoswa_saves)
def fedmoswas_bound_is_smaller(saved: Numbers) -> Finding:
    """FedMoSWA's bound on the generalisation is FedSWA's without the constant at the heterogeneity, so it is smaller.

    FedSWA: (2L/(mn beta)) e^(1+1/T) (c L + c sigma_g + c sigma); FedMoSWA: the same with sigma_g for c sigma_g. The
    difference is (2L/(mn beta)) e^(1+1/T) (c - 1) sigma_g, above 0 if sigma_g is. `saved`: its share of FedSWA's bound,
    calculated for T = 1000 and several K. For large c it is sigma_g/(L + sigma_g + sigma); for a strongly convex loss
    it is about 10^-15 at K = 10.
    """
    return above(saved)


def _not_refuted(finding: Finding) -> Finding:
    """The finding; if it holds, with a note on how little this says."""
    if not finding.holds:
        return finding
    return noted(finding, NOT_REFUTED)


@CLAIMS.add("S11", "B", where="Theorem 5.1, non-convex", cost="identity", identity=lambda: gap_over_bound("non-convex"))
def the_bound_on_the_gap_holds(ratio: Numbers) -> Finding:
    """For a non-convex loss FedSWA's and FedMoSWA's generalisation gap is at most the bound of Theorem 5.1.

    eps_gen <= (2L/(mn beta)) e^(1+1/T) (c L + c sigma_g + c sigma), c = 1 + (2 + 1/(KT))^(K-1)/T, for m clients of n
    samples that all take part, option I, and a rate of at most 1/(beta K T). `ratio` by "method": the mean loss on new
    samples less that on the training samples, over the bound (FedMoSWA's has sigma_g without c), by seed. Calculated
    here for a small smooth non-convex loss and labels without any rule; a rate far above the condition breaks it. A yes
    is no more than "not refuted": the ratio is about 0.03, so that only a bound 30 times smaller could fail here. The
    bound says little, too: c - 1 is 0.512 at K = 10 and T = 1000, 525 at K = 20, and 5.6e11 at K = 50.
    """
    return _not_refuted(at_most(ratio, 1.0))


@CLAIMS.add(
    "S12",
    "B",
    where="Theorem 5.1, strongly convex",
    cost="identity",
    identity=lambda: gap_over_bound("strongly convex"),
)
def the_bound_on_the_gap_holds_for_convex_losses(ratio: Numbers) -> Finding:
    """For a strongly convex loss FedSWA's and FedMoSWA's generalisation gap is at most Theorem 5.1's bound with smaller
    factors.

    e^(1 - mu/((beta+mu)T)) stands for e^(1+1/T), and b = 1 + (mu/((beta+mu)K))^(K-1)/T for c. `ratio` as in S11,
    calculated for logistic regression with mu/2 ||w||^2 added to the loss; a yes is no more than "not refuted" here,
    too. At K = 10, T = 1000 and mu = beta b - 1 is 10^-14.7, so that FedSWA's and FedMoSWA's bounds coincide.
    """
    return _not_refuted(at_most(ratio, 1.0))


def error_over_its_order(with_clients: bool = False) -> Evidence:
    """The smallest mean squared gradient norm that FedMoSWA reaches at any rate of Theorem 5.2, over the printed order.

    Exactly, in expectation, for F(w) = w^2/2 of equal clients, noise of variance 1 in each gradient, all taking part,
    K = 5, rho = gamma = 1 (the theorem names neither) and alpha = sqrt(m). Then the corrections cancel in the mean over
    clients, and a round is w <- A w + noise (see `_mean_squared_norm`). Along the numbers of clients and of rounds, as
    multiples of the first.
    `with_clients`: whether the order's root covers the clients, too: sqrt(T K s) for sqrt(T K) s.
    """

    def quotient(clients: int, rounds: int) -> float:
        return _mean_squared_norm(clients, rounds) / _order(clients, rounds, with_clients)

    numbers: dict[Key, float] = {}
    first = quotient(1, 10**8)
    for clients in (1, 4, 16, 64, 256):
        numbers["clients", clients] = quotient(clients, 10**8) / first
    first = quotient(4, 10**4)
    for rounds in (10**4, 10**6, 10**8):
        numbers["rounds", rounds] = quotient(4, rounds) / first
    return {"quotient": Numbers.exact(("along", "value"), numbers)}


@CLAIMS.add(
    "S14",
    "B",
    where="Theorem 5.2, non-convex; table of bounds",
    cost="identity; print",
    identity=error_over_its_order,
)
def the_error_is_of_the_printed_order(quotient: Numbers) -> Finding:
    """For a non-convex loss FedMoSWA's optimisation error is of the order that Theorem 5.2 gives.

    O(sigma sqrt(F)/(sqrt(TK) s) sqrt(1 + m/alpha^2) + (beta F/T) (m/s)^(2/3)) with s of m clients in a round, for rates
    of at most (s/m)^(2/3)/(K alpha beta). `quotient` by "along" and "value": the mean squared norm of the gradient at
    the best such rate over this order, along growing s, m, T or alpha, as a multiple of the first: a quotient that
    grows without end refutes the order; here it may double. Print differs: the theorem has m/alpha^2, the table
    s/alpha^2, as the strongly convex half. False as printed: with all clients and alpha = sqrt(m) the noise enters as
    1/sqrt(s), and the order has 1/s, for either form; the quotient grows as sqrt(s). With the root over all, sqrt(TKs),
    it holds in this calculation.
    """
    return at_most(quotient, 2.0)


# --- Table 3 ---


@CLAIMS.add("S16", "A", where="README, text", cost="print", printed=printed_accuracy)
def a_gain_of_six_points_on_cifar_100(accuracy: Numbers) -> Finding:
    """On CIFAR-100 accuracy is improved by 6.3 per cent.

    Of which method, over which, and at which heterogeneity is not said. `accuracy`: of all differences of FedSWA or
    FedMoSWA and another method on CIFAR-100, in points, one must be 6.3 when rounded to one digit. None is: FedMoSWA
    over the best other one is 9.7, 8.5 and 6.2. Print decides, which the sentence sums up; other data would not.
    """
    finding = _a_pair(_gains(accuracy, "CIFAR-100"), 6.3)
    return with_all(finding, accuracy, row=METHODS, column=COLUMNS, data=["CIFAR-100"])


@CLAIMS.add("S17", "B", where="README, text", cost="print", printed=printed_accuracy)
def a_gain_of_two_points_on_tiny_imagenet(accuracy: Numbers) -> Finding:
    """On ImageNet (the table has Tiny-ImageNet) accuracy is improved by 1.8 per cent, over some method.

    Of which method, over which, and at which heterogeneity is not said. `accuracy`: of all
    differences of FedSWA or FedMoSWA and another method there, in points, one must be 1.8 when rounded to one digit.
    Two are: FedMoSWA - FedSWA at 0.3 and FedMoSWA - FedSAM at 0.6. Over the best rival that is not the paper's own they
    are 1.9, 1.9 and 1.6. Print decides (see S16).
    """
    finding = _a_pair(_gains(accuracy, "Tiny-ImageNet"), 1.8)
    return with_all(finding, accuracy, row=METHODS, column=COLUMNS, data=["Tiny-ImageNet"])


@CLAIMS.add("S18", "A", where="Table 3", cost=f"print; {RUN}", printed=printed_accuracy, of=OF, measure=_accuracy)
def fedmoswa_is_the_most_accurate(accuracy: Numbers) -> Finding:
    """FedMoSWA has the best accuracy in every column of Table 3.

    `accuracy`: FedMoSWA's less that of the best other method. 6 of 6 in print.
    """
    return of_all(above(_lead(accuracy, "FedMoSWA", max)), accuracy, row=METHODS, **IN_TABLE_3)


@CLAIMS.add(
    "S19",
    "B",
    where="Table 3",
    cost=f"print; {RUN}",
    printed=printed_rounds,
    of=OF,
    measure=_rounds,
    entered=_entered_rounds,
)
def fedmoswa_needs_the_fewest_rounds(rounds: Numbers) -> Finding:
    """FedMoSWA needs the fewest rounds to the target in every column of Table 3.

    `rounds`: FedMoSWA's less those of the quickest other method, in each seed. A target that was not reached in 1,000
    rounds takes 1,001 at least, so that the difference is a bound. A seed in which no method reaches it says nothing. 6
    of 6 in print.
    """
    return of_all(below(_lead_in_rounds(rounds, "FedMoSWA")), rounds, row=METHODS, **IN_TABLE_3)


@CLAIMS.add(
    "S20",
    "A",
    where="README, headings, Table 3",
    cost=f"print; {RUN}",
    printed=printed_accuracy,
    of=OF,
    measure=_accuracy,
)
def fedswa_is_better_than_fedsam(accuracy: Numbers) -> Finding:
    """FedSWA is better than FedSAM.

    `accuracy`: FedSWA above FedSAM in every column of Table 3. 6 of 6 in print, on Tiny-ImageNet by 0.5 at most, where
    deviations of up to 0.4 are printed.
    """
    gain = accuracy.at(row="FedSWA") - accuracy.at(row="FedSAM")
    return of_all(above(gain), gain, **IN_TABLE_3)


@CLAIMS.add("S21", "B", where="Table 3", cost=f"print; {RUN}", printed=printed_accuracy, of=OF, measure=_accuracy)
def fedswa_is_better_than_fedavg(accuracy: Numbers) -> Finding:
    """FedSWA is above FedAvg (read from the table).

    No sentence says so, but for the title (S1). `accuracy`: in every column. 6 of 6 in print.
    """
    gain = accuracy.at(row="FedSWA") - accuracy.at(row="FedAvg")
    return of_all(above(gain), gain, **IN_TABLE_3)


@CLAIMS.add("S22", "B", where="Table 3", cost=f"print; {RUN}", printed=printed_accuracy, of=OF, measure=_accuracy)
def fedswa_is_better_than_the_other_rivals(accuracy: Numbers) -> Finding:
    """FedSWA is above the other rivals, too: those that are neither FedAvg nor FedSAM nor the paper's own (read from
    the table).

    No sentence says so. `accuracy`: above each of the six in every column. 29 of 36 in print: on CIFAR-100 it is below
    FedACG and MoFedSAM in 3 of 3 columns and above the others; on Tiny-ImageNet it is level with FedLESAM at 0.1 and
    above all else.
    """
    rivals = [method for method in OF_OTHERS if method not in ("FedAvg", "FedSAM")]
    gap = accuracy.at(row=rivals) - accuracy.at(row="FedSWA")
    return of_all(below(gap), gap, row=rivals, **IN_TABLE_3)


@CLAIMS.add("S25", "B", where="title, Table 3", cost="print", printed=printed_accuracy)
def the_gain_grows_with_heterogeneity(accuracy: Numbers) -> Finding:
    """FedMoSWA's gain over the best rival grows with heterogeneity (read from the table).

    `accuracy`: FedMoSWA's less that of the best method that is not the paper's own, which is to fall
    from each Dirichlet parameter to the next larger one, here by more than half of the last printed digit. 3 of 4 in
    print: 9.7, 8.5, 6.2 on CIFAR-100, and 1.9, 1.9, 1.6 on Tiny-ImageNet, whose tie is one of rounded numbers.
    """
    finding = below(_lead(accuracy, "FedMoSWA", max, OF_OTHERS).steps("column"), -DIGIT)
    return with_all(finding, accuracy, row=[*OF_OTHERS, "FedMoSWA"], **IN_TABLE_3)


# --- The surfaces ---


@CLAIMS.add("S29", "A", where="README, loss surfaces", cost=RUN, of=OF, measure=_surfaces)
def our_surfaces_are_flatter(sharpness: Numbers) -> Finding:
    """The paper's algorithm has a flatter loss landscape than SCAFFOLD, FedLESAM, FedSAM and MoFedSAM.

    "Algorithm" is singular; the panels show FedSWA and FedMoSWA, so both are to be flatter than each of the four. No
    order among the six is claimed. `sharpness` by "measure" and "method": a surface's height above its centre at a
    radius, in the same directions on the same scale, and the Hessian's largest eigenvalue. Data, network, round,
    normalisation and scale of the paper's surfaces are not stated.
    """
    gap = _against_rivals(sharpness)
    return of_all(below(gap), gap, measure=[*HEIGHTS, *FLATNESS], method=OURS, rival=RIVALS)


@CLAIMS.add("S30", "B", where="README, loss surfaces", cost=RUN, of=OF, measure=_losses)
def our_surfaces_are_lower(loss: Numbers) -> Finding:
    """The paper's algorithm has lower loss values than SCAFFOLD, FedLESAM, FedSAM and MoFedSAM on the surfaces.

    `loss` by "measure" (at the centre, in the mean over the plane) and "method": FedSWA's and FedMoSWA's below that of
    each of the four.
    """
    gap = _against_rivals(loss)
    return of_all(below(gap), gap, measure=LEVELS, method=OURS, rival=RIVALS)


# --- Algorithm 1 ---


def gaps_of_algorithm_1(option: Literal["I", "II"] = "II", left_out: int = 0) -> Evidence:
    """How far fedsash's rates and variates are from what Algorithm 1 is to give, for K = 4 and rho = 0.1.

    `left_out`: how many of the K + 1 steps k = 0, ..., K are not made. The variates are those of three rounds of
    FedMoSWA with clients that differ, beside the clients' own gradients, weighted by the rates.
    """
    steps = 4
    rho = 0.1
    places = np.arange(steps + 1 - left_out)
    rates = SawTooth(rho).factors(places, np.full(len(places), steps))
    gaps: dict[Key, float] = {
        ("the fall is linear",): float(np.abs(np.diff(rates, 2)).max()),
        ("the last rate is rho",): abs(float(rates[-1]) - rho),
        ("the variates are mean gradients",): float(np.abs(_variates(option) - _variates("raw")).max()),
    }
    return {"gap": Numbers.exact(("what",), gaps)}


@CLAIMS.add("S31", "B", where="Algorithm 1, lines 8 and 13", cost="identity", identity=gaps_of_algorithm_1)
def rates_fall_and_variates_are_mean_gradients(gap: Numbers) -> Finding:
    """The rate falls linearly within a round to rho eta, and option II gives the client's mean gradient by rates.

    eta_k = eta (1 - k/K + (k/K) rho), and c_i+ = c_i - m + (w_t - w_i) / sum_k eta_k = sum_k eta_k g_k / sum_k eta_k.
    `gap` by "what": the distance from each, calculated. k = 0, ..., K as printed are K + 1 steps; only the last of them
    has rho eta. fedsash takes K, as the published code does, so its last rate is above rho eta.
    """
    return below(gap, EXACT)


def vectors_sent(momentum: Method | None = None) -> Evidence:
    """How many models long the messages of FedSWA are, and of FedMoSWA, or of another method in its place."""
    vectors: dict[Key, float] = {}
    for name, method in {"FedSWA": FedSWA(), "FedMoSWA": momentum or FedMoSWA()}.items():
        federation = quadratic_federation(OPTIMA, LOCAL, method=method)
        message = lengths(federation.training(), None).train
        model = federation.layout.size * federation.layout.dtype.itemsize
        vectors[name, "down"] = message.down / model
        vectors[name, "up"] = message.up / model
    return {"vectors": Numbers.exact(("method", "way"), vectors)}


@CLAIMS.add("S32", "B", where="Algorithm 1, lines 3, 4, 12 and 14", cost="identity", identity=vectors_sent)
def fedmoswa_sends_twice_as_much(vectors: Numbers) -> Finding:
    """FedSWA sends one model down and one up, FedMoSWA two vectors of its length down and two up.

    `vectors` by "method" and "way": the bytes of a message over those of a model, 1 and 2. Calculated from what the
    methods of fedsash send.
    """
    return every(between(vectors.at(method="FedSWA"), 1.0, 1.0), between(vectors.at(method="FedMoSWA"), 2.0, 2.0))


# --- What the identities are calculated with ---

OPTIMA = (-9.0, -2.0, 1.0, 4.0, 11.0)
LOCAL = LocalTraining(lr=0.1, batch="full", steps=4)


def _variates(option: Literal["I", "II", "raw"]) -> Floats:
    """The clients' variates after three rounds of FedMoSWA, `[N]`."""
    federation = quadratic_federation(OPTIMA, LOCAL, method=FedMoSWA(option=option))
    with federation:
        state = federation.start()
        for _ in range(3):
            state, _ = federation.round(state)
    variates: Floats = state.client_state["c"].reshape(-1).numpy()
    return variates


def _mean_squared_norm(clients: int, rounds: int, steps: int = 5) -> float:
    """The smallest mean of E w_t^2 over the rounds, for w_0 = 1, at any rate up to 1/(K alpha).

    A client's step is y <- (1 - eta) y - eta xi, so the mean over clients goes to a^K w with a = 1 - eta, and noise of
    the variance eta^2/s (1 - a^2K)/(1 - a^2). The server's step makes A = 1 - alpha (1 - a^K) of a^K.
    """
    alpha = float(np.sqrt(clients))
    eta = np.logspace(-10, 0, 2000) / (steps * alpha)
    step = -alpha * np.expm1(steps * np.log1p(-eta))  # 1 - A
    variance = alpha**2 * eta**2 / clients * np.expm1(2 * steps * np.log1p(-eta)) / np.expm1(2 * np.log1p(-eta))
    lost = step * (2 - step)  # 1 - A^2
    of_start = -np.expm1(2 * rounds * np.log1p(-step)) / (rounds * lost)
    return float((of_start + variance / lost * (1 - of_start)).min())


def _order(clients: int, rounds: int, with_clients: bool, steps: int = 5) -> float:
    """The order of Theorem 5.2 for sigma = beta = 1, F = 1/2 and m = s = alpha^2."""
    root = np.sqrt(rounds * steps) * clients
    if with_clients:
        root = np.sqrt(rounds * steps * clients)
    return float(np.sqrt(0.5) / root * np.sqrt(2.0) + 0.5 / rounds)


def gap_over_bound(case: Case, rate: float = 1.0) -> Evidence:
    """The generalisation gap of FedSWA and FedMoSWA over the bound of Theorem 5.1, by method and seed.

    Twenty clients of four samples each, in 120 dimensions, of which each is in the unit ball and has a label of chance:
    what is learned does not generalise. `rate`: the clients' rate as a multiple of the largest one of the theorem.
    """
    ratios: dict[Key, list[float]] = {}
    for method in OURS:
        ratios[(method,)] = [_gap_over_bound(case, method, rate, seed) for seed in range(6)]
    return {"ratio": Numbers.measured(("method",), ratios)}


def _gap_over_bound(case: Case, method: str, rate: float, seed: int) -> float:
    """The gap over the bound of one method after 20 rounds, written plainly."""
    clients = 20
    samples = 4
    size = 120
    steps = 5
    rounds = 20
    mu = 0.001
    random = np.random.default_rng(seed)
    loss = _Logistic(mu) if case == "strongly convex" else _SquaredSigmoid()
    x = _signed(random, clients * samples, size).reshape(clients, samples, size)
    eta = rate / (loss.smoothness * steps * rounds)
    w = np.zeros(size)
    m = np.zeros(size)
    c = np.zeros((clients, size))
    for _ in range(rounds):
        y = np.tile(w, (clients, 1))
        at_start = loss.gradients(np.tile(w, (clients, 1)), x).mean(1)
        for k in range(steps):
            chosen = random.integers(samples, size=clients)
            gradients = loss.gradients(y, x[np.arange(clients), chosen][:, None])[:, 0]
            if method == "FedMoSWA":
                gradients = gradients + (m - c)
            y = y - eta * (1 - 0.9 * k / steps) * gradients
        c = at_start  # option I
        w = w + 1.5 * (y.mean(0) - w)
        m = m + 0.2 * (c.mean(0) - m)
    gap = loss.mean(w, _signed(random, 4000, size)) - loss.mean(w, x.reshape(-1, size))
    return gap / _gap_bound(case, method, loss, x, w, steps, rounds)


def _gap_bound(
    case: Case, method: str, loss: _Logistic | _SquaredSigmoid, x: Floats, w: Floats, steps: int, rounds: int
) -> float:
    """The bound of Theorem 5.1, with sigma and sigma_g of the gradients at the first model."""
    clients, samples, size = x.shape
    each = loss.gradients(np.zeros((clients, size)), x)
    of_client = each.mean(1)
    sigma = float(np.sqrt(np.square(each - of_client[:, None]).sum(-1).mean(1).max()))
    sigma_g = float(np.sqrt(np.square(of_client - of_client.mean(0)).sum(-1).mean()))
    lipschitz = loss.slope + loss.mu * float(np.linalg.norm(w))
    smoothness = loss.smoothness
    mu = loss.mu
    exponent = 1 + 1 / rounds
    if case == "strongly convex":
        exponent = 1 - mu / ((smoothness + mu) * rounds)
    c = float(constant(case, steps, rounds, Fraction(mu / (smoothness + mu))))
    heterogeneity = sigma_g if method == "FedMoSWA" else c * sigma_g
    inner = c * lipschitz + heterogeneity + c * sigma
    return float(2 * lipschitz / (clients * samples * smoothness) * exp(exponent) * inner)


def _signed(random: np.random.Generator, count: int, size: int) -> Floats:
    """Samples of the unit ball times their label, -1 or 1 by chance, `[count, size]`."""
    x = random.standard_normal((count, size))
    signs: Floats = random.choice([-1.0, 1.0], size=(count, 1))
    samples: Floats = signs * x / np.linalg.norm(x, axis=1, keepdims=True)
    return samples


class _SquaredSigmoid:
    """The loss (1 - s(z))^2 of z = w.x y, s the sigmoid: smooth and not convex. |l'| <= 8/27, and |l''| <= 0.16."""

    slope = 8 / 27
    smoothness = 0.16
    mu = 0.0

    def gradients(self, w: Floats, x: Floats) -> Floats:
        """The gradients of each client's model `[m, d]` for its samples `[m, n, d]`."""
        s = 1 / (1 + np.exp(-(x @ w[:, :, None])))
        gradients: Floats = -2 * s * (1 - s) ** 2 * x
        return gradients

    def mean(self, w: Floats, x: Floats) -> float:
        """The mean loss over samples `[n, d]`."""
        return float(np.square(1 - 1 / (1 + np.exp(-(x @ w)))).mean())


class _Logistic:
    """The loss log(1 + exp(-z)) + mu/2 ||w||^2 of z = w.x y: strongly convex. |l'| <= 1, and l'' <= 1/4."""

    slope = 1.0

    def __init__(self, mu: float) -> None:
        self.mu = mu
        self.smoothness = 0.25 + mu

    def gradients(self, w: Floats, x: Floats) -> Floats:
        """The gradients of each client's model `[m, d]` for its samples `[m, n, d]`."""
        gradients: Floats = -x / (1 + np.exp(x @ w[:, :, None])) + self.mu * w[:, None]
        return gradients

    def mean(self, w: Floats, x: Floats) -> float:
        """The mean loss over samples `[n, d]`."""
        return float(np.logaddexp(0, -(x @ w)).mean() + self.mu / 2 * w @ w)
