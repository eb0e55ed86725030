"""IMA's claims about the loss landscape, about its theory, and about the factors of the averaged model's loss.

Losses and errors are those of the test set, errors in per cent. Margins were fixed before any run; the paper prints
none, so they are our reading. A round is that after which a state was saved; its clients train in the next one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import fmean
from typing import Any

import numpy as np

from ...vector.arrays import Floats
from ..sweeps import PlannedRun
from . import ima_theorems as theorems
from .claims import Claims, Evidence, Finding, above, below, between, either, every, falling, of_all, of_many, smallest
from .figures import StudyFigure
from .lines import along, ascending, correlation, slope, together
from .measures import of_study
from .numbers import Key, Numbers, elementwise
from .reproduction import Reproduction
from .results import Results

CLAIMS = Claims("IMA")

CROSS_DEVICE = "CIFAR-10 CNN #C=2"
CROSS_SILO = "cross-silo"
STAGES = ("early", "middle", "final")
NO_DECAY = "no decay"
DECAY = "decay 0.01"
RUNS = (NO_DECAY, DECAY)
MODELS = ("model 1", "model 2", "model 3", "mean")
LINES = [f"{one} to {other}" for one, other in combinations(MODELS, 2)]
"""The lines from client to client, and from each client to the mean."""
MEASURES = ("loss", "error")
KINDS = ("largest", "mean")
"""The distances of clients: that of the farthest, and the mean one."""
OFF = 0.1
"""A model is off a place if it is farther from it than this, in units of the models' mean distance from their mean."""
PRINTED_ROUNDS = 400
"""The rounds of the paper's runs; those of shorter ones are counted as shares of them."""
TURN = 40
"""The round at which the paper lets the early phase end."""
SETTLED = 75
"""The round from which on it calls the distances stable."""
LATE = 200
"""The first of the late rounds: the second half of 400."""

X1 = "run X1: 1 h on two cores, 1 min on a GPU"
X2 = "run X2: 19 h on two cores, 20 min on a GPU; with 500 images a client 1.9 h"
BOTH = "runs X1 and X2: 20 h on two cores, 21 min on a GPU; with 500 images a client 2.9 h"
X3 = "run X3: 58 h on two cores, 60 min on a GPU; with 500 images a client 5.8 h"
PLACES = np.linspace(0, 1, 11)
"""The places on a line between two models."""


def _rounds(numbers: Numbers, first: float = 0, last: float = math.inf) -> Numbers:
    """The numbers of the rounds from a first to a last one."""
    return numbers.at(round=[round for round in numbers.labels("round") if first <= float(round) <= last])


def _early(numbers: Numbers) -> Numbers:
    """The numbers of the first twentieth of the rounds."""
    return _rounds(numbers, last=max(map(float, numbers.labels("round")), default=0) / 20)


def _late(numbers: Numbers) -> Numbers:
    """The numbers of the last twentieth of the rounds."""
    return _rounds(numbers, first=max(map(float, numbers.labels("round")), default=0) * 19 / 20)


def _size(values: Sequence[float]) -> float:
    """The mean size, whatever the signs."""
    return fmean(map(abs, values))


# --- What figures hold ---


@dataclass(frozen=True)
class Plane:
    """The plane through three models, as `fedsash landscape` finds it: their places, and a grid of losses and errors.

    `models` are called by their places, because each run has other clients: "model 1", "model 2", "model 3".
    """

    table: Mapping[str, Any]

    @property
    def models(self) -> dict[str, Floats]:
        """The places of the three models."""
        places = list(self.table["models"].values())
        return {f"model {i}": np.asarray(place, dtype=float) for i, place in enumerate(places, 1)}

    @property
    def mean(self) -> Floats:
        """The place of their mean."""
        return np.asarray(self.table["mean"], dtype=float)

    @property
    def radius(self) -> float:
        """The models' mean distance from their mean."""
        return fmean(float(np.linalg.norm(place - self.mean)) for place in self.models.values())

    def values(self, what: str) -> dict[str, float]:
        """Loss or error of the three models and of the "mean"."""
        values = {}
        for name, at_model in zip(self.models, self.table["at_models"].values(), strict=True):
            values[name] = float(at_model[what])
        values["mean"] = float(self.table["at_mean"][what])
        return values

    def lowest(self, what: str) -> tuple[Floats, float]:
        """The grid's point with the lowest loss or error, and its value; of several such points the middle one."""
        grid = np.array(self.table[what], dtype=float)
        if np.isnan(grid).all():
            return np.array([math.nan, math.nan]), math.nan
        value = float(np.nanmin(grid))
        rows, columns = np.nonzero(grid == value)
        x = np.asarray(self.table["x"], dtype=float)
        y = np.asarray(self.table["y"], dtype=float)
        return np.array([x[columns].mean(), y[rows].mean()]), value

    @property
    def coarse(self) -> bool:
        """Whether a place that lies on no point of the grid may be `OFF` the nearest one: by half a cell's diagonal."""
        x = self.table["x"]
        y = self.table["y"]
        half = math.hypot(x[1] - x[0], y[1] - y[0]) / 2
        return half > OFF * self.radius

    def offsets(self, what: str) -> dict[str, float]:
        """The distances of the three models and of the "mean" from the lowest point, in units of the radius.

        On a grid that is too `coarse` for them they are no numbers.
        """
        place, _ = self.lowest(what)
        places = self.models | {"mean": self.mean}
        if self.coarse:
            return dict.fromkeys(places, math.nan)
        return {name: float(np.linalg.norm(each - place)) / self.radius for name, each in places.items()}

    def heights(self) -> dict[str, float]:
        """The loss above the lowest point: of the three models on average, as "clients", and of the "mean"."""
        values = self.values("loss")
        _, lowest = self.lowest("loss")
        clients = fmean(values[name] for name in self.models)
        return {"clients": clients - lowest, "mean": values["mean"] - lowest}

    def distances(self) -> dict[str, float]:
        """The distance from the lowest point: of the three models on average, as "clients", and of the "mean"."""
        place, _ = self.lowest("loss")
        clients = fmean(float(np.linalg.norm(each - place)) for each in self.models.values())
        return {"clients": clients, "mean": float(np.linalg.norm(self.mean - place))}

    def lines(self) -> Iterator[tuple[Key, float]]:
        """The loss on the lines between two models and from each to the mean, by line and place.

        Between the points of the grid it is interpolated.
        """
        from scipy.interpolate import RegularGridInterpolator

        axes = np.asarray(self.table["x"], dtype=float), np.asarray(self.table["y"], dtype=float)
        loss = RegularGridInterpolator(axes, np.array(self.table["loss"], dtype=float).T)
        ends = list((self.models | {"mean": self.mean}).items())
        for i, (name, start) in enumerate(ends):
            for other, stop in ends[i + 1 :]:
                for place in PLACES:
                    yield (f"{name} to {other}", float(place)), float(loss(start + place * (stop - start))[0])


def _figure(reproduction: Reproduction, name: str, scale: str) -> StudyFigure:
    """A study's figure of a reproduction, at the scale of its runs."""
    (figure,) = [each for each in reproduction.figures_at(scale) if each.name == name]
    assert isinstance(figure, StudyFigure)
    return figure


def _planes(name: str, results: Results, read: Callable[[Plane], Mapping[Key, float]], *dims: str) -> Numbers:
    """What is read of the planes of one of Figure 1's figures, by panel, run and `dims`."""
    from .ima import FIGURE_1

    return of_study(_figure(FIGURE_1, name, results.scale), results, lambda found, run: read(Plane(found)), *dims)


def _named(values: Mapping[str, float]) -> dict[Key, float]:
    return {(name,): value for name, value in values.items()}


def _figure_1(
    results: Results, read: Callable[[Plane], Mapping[Key, float]], *dims: str, panels: Sequence[str] = STAGES
) -> Numbers:
    """What is read of Figure 1's planes, by panel and `dims`."""
    return _planes("ima-figure-1", results, read, *dims).at(run=CROSS_DEVICE, panel=list(panels))


def _models_of_figure_1(results: Results) -> Evidence:
    return {
        "loss": _figure_1(results, lambda plane: _named(plane.values("loss")), "model"),
        "error": _figure_1(results, lambda plane: _named(plane.values("error")), "model"),
    }


def _lines_of_figure_1(results: Results) -> Evidence:
    return {"loss": _figure_1(results, lambda plane: dict(plane.lines()), "line", "place")}


def _offsets_of_figure_1(results: Results) -> Evidence:
    def read(plane: Plane) -> dict[Key, float]:
        return {(what,): plane.offsets(what)["mean"] for what in ("loss", "error")}

    return {"offset": _figure_1(results, read, "measure")}


def _offsets_of_global_models(results: Results) -> Evidence:
    panel = "final, global"
    offset = _figure_1(results, lambda plane: _named(plane.offsets("loss")), "model", panels=[panel])
    return {"offset": offset.at(panel=panel)}


def _climbs_of_figure_1(results: Results) -> Evidence:
    return {
        "height": _figure_1(results, lambda plane: _named(plane.heights()), "model"),
        "distance": _figure_1(results, lambda plane: _named(plane.distances()), "model"),
    }


def _figure_8(results: Results) -> Evidence:
    name = "ima-figure-8"
    return {
        "loss": _planes(name, results, lambda plane: _named(plane.values("loss")), "model"),
        "error": _planes(name, results, lambda plane: _named(plane.values("error")), "model"),
        "line_loss": _planes(name, results, lambda plane: dict(plane.lines()), "line", "place"),
    }


def _by_round(**kinds: str) -> Callable[[Results], Evidence]:
    """Evidence by run and round: what Figure 2's decomposition calls a name, for each argument."""

    def measure(results: Results) -> Evidence:
        return {name: _decomposed(results, {kind: kind}).at(kind=kind) for name, kind in kinds.items()}

    return measure


def _decomposed(results: Results, kinds: Mapping[str, str]) -> Numbers:
    """Numbers of Figure 2's decomposition by run, "kind" and round, each kind under its name. Errors in per cent.

    Rounds are counted as in the paper's 400, also where runs are shorter.
    """
    from .ima import FIGURE_2

    def read(finding: Mapping[str, Any], run: PlannedRun) -> dict[Key, float]:
        numbers: dict[Key, float] = {}
        for name, kind in kinds.items():
            scale = 100 if kind == "test_error" else 1
            for round, value in zip(finding["rounds"], finding[kind], strict=True):
                if value is not None:
                    numbers[name, _in_print(round, run)] = float(value) * scale
        return numbers

    return of_study(_figure(FIGURE_2, "ima-figure-2", results.scale), results, read, "kind", "round").at(panel="")


def _in_print(round: int, run: PlannedRun) -> int:
    """The round of the paper's 400 that stands at the same share of a run."""
    return round * PRINTED_ROUNDS // run.experiment.rounds


def _distances(results: Results) -> Evidence:
    return {"distance": _decomposed(results, {"largest": "locality_max", "mean": "locality_mean"})}


def _distances_and_errors(results: Results) -> Evidence:
    return _distances(results) | _by_round(error="test_error")(results)


def _biases(results: Results) -> Evidence:
    return {"bias": _decomposed(results, {"train": "train_bias", "heterogeneous": "heterogeneous_bias"})}


def _last_round(results: Results) -> Evidence:
    evidence = {}
    for name, numbers in _by_round(similarity="cka", error="test_error")(results).items():
        last = max(map(int, numbers.labels("round")), default=0)
        evidence[name] = numbers.at(round=last)
    return evidence


def _ensembles(results: Results, read: Callable[[Mapping[str, Any], int], Mapping[Key, float]], *dims: str) -> Numbers:
    """What is read of each round of Figure 4's ensembles, by its place, by run and `dims`."""
    from .ima import FIGURE_2

    def by_round(finding: Mapping[str, Any], run: PlannedRun) -> dict[Key, float]:
        numbers: dict[Key, float] = {}
        for place, round in enumerate(finding["rounds"]):
            for key, value in read(finding, place).items():
                numbers[(_in_print(round, run), *key)] = value
        return numbers

    figure = _figure(FIGURE_2, "ima-figure-4-models", results.scale)
    return of_study(figure, results, by_round, "round", *dims).at(panel="")


def _errors_by_number(results: Results) -> Evidence:
    def read(found: Mapping[str, Any], place: int) -> dict[Key, float]:
        return {(number,): 100 * float(error) for number, error in enumerate(found["mean"][place], 1)}

    return {"error": _ensembles(results, read, "clients")}


def _all_clients(results: Results) -> Evidence:
    def errors(found: Mapping[str, Any], place: int) -> dict[Key, float]:
        return {(model,): 100 * float(found[model][place][-1]) for model in ("mean", "ensemble")}

    def last(name: str) -> Numbers:
        return _ensembles(results, lambda found, place: {(): float(found[name][place][-1])})

    return {"error": _ensembles(results, errors, "model"), "gap": last("gap"), "distance": last("distance")}


# --- A: the loss landscape ---


def _barrier(loss: Sequence[float]) -> float:
    """The most by which losses along a line rise above the straight line between the ends, in parts of the higher end.

    The losses are at even distances.
    """
    straight = np.linspace(loss[0], loss[-1], len(loss))
    return float((np.asarray(loss) - straight).max()) / max(loss[0], loss[-1])


def _better(loss: Numbers, error: Numbers, **wanted: Sequence[str]) -> Finding:
    """Whether the mean has the lowest loss and error of its plane's models, for all the labels that are wanted."""
    parts = [of_all(smallest(each, model="mean"), each, model=MODELS, **wanted) for each in (loss, error)]
    return every(*parts)


def _climb(loss: Sequence[float]) -> float:
    """The most by which losses along a line rise above the first, in parts of the first."""
    return float(np.max(loss)) / loss[0] - 1


def _common_basin(loss: Numbers, **wanted: Sequence[str]) -> Finding:
    """Whether no line has a barrier, and none to the mean a climb, for all the labels that are wanted."""
    to_mean = loss.at(line=[line for line in loss.labels("line") if str(line).endswith("to mean")])
    finding = every(below(loss.over("place", _barrier), 0.05), below(to_mean.over("place", _climb), 0.05))
    return of_all(finding, loss, line=LINES, **wanted)


@CLAIMS.add("A1", "A", where="abstract, section 4.1, Figure 1", cost=X1, of="ima-figure-1", measure=_models_of_figure_1)
def the_mean_is_better_than_its_clients(loss: Numbers, error: Numbers) -> Finding:
    """At each stage that is shown, early, middle and late, the averaged model has a lower test loss and a lower test
    error than every client model that it averages.

    Loss and error by "panel" (a stage) and "model": three clients of a round and their "mean". The text says that the
    clients' errors are about 80 %, and nothing of the mean's.
    """
    return _better(loss, error, panel=STAGES)


@CLAIMS.add("A2", "A", where="abstract, section 4.1, Figure 1", cost=X1, of="ima-figure-1", measure=_lines_of_figure_1)
def clients_and_mean_share_a_basin(loss: Numbers) -> Finding:
    """During the whole training the clients' models and their mean lie in one basin, the clients close around the mean.

    The test loss along the lines from client to client and from client to mean, by "panel" (a stage), "line" and
    "place" from 0 to 1: no barrier. Here: nowhere above the straight line between the ends by more than 5 % of the
    higher end, and on the way to the mean nowhere above the client by more than 5 %. That the mean of three models is
    in their triangle is true of any three, and decides nothing.
    """
    return _common_basin(loss, panel=STAGES)


@CLAIMS.add(
    "A4", "A", where="section 4.1, Figure 1, columns 1 to 3", cost=X1, of="ima-figure-1", measure=_offsets_of_figure_1
)
def the_mean_is_off_the_lowest_point(offset: Numbers) -> Finding:
    """At all three stages the mean of the clients is not where loss or error are lowest in the clients' plane.

    The distance of the mean from the grid's lowest point, in units of the clients' mean distance from the mean, by
    "panel" (a stage) and "measure", loss or error. Here: more than a tenth, which is more than half of the diagonal of
    a cell in a grid of 21 by 21 points; a coarser grid gives no offset. By the same figure the mean is said to be near
    a local optimum.
    """
    return of_all(above(offset, OFF), offset, panel=STAGES, measure=MEASURES)


@CLAIMS.add(
    "A5", "A", where="section 4.1, Figure 1, column 4", cost=X1, of="ima-figure-1", measure=_offsets_of_global_models
)
def global_models_are_off_the_lowest_point_too(offset: Numbers) -> Finding:
    """The global models of the last three rounds are off the lowest point of their plane as well, and their mean is
    nearer to it than each of them.

    The distance from the grid point with the lowest loss, in units of the models' mean distance from their mean, by
    "model": three global models (rounds 398, 399 and 400) and their "mean". Here: off by more than a tenth.
    """
    finding = every(above(offset.without(model="mean"), OFF), smallest(offset, model="mean"))
    return of_all(finding, offset, model=MODELS)


@CLAIMS.add("A7", "B", where="caption of Figure 1, section 4", cost=X1, of="ima-figure-1", measure=_climbs_of_figure_1)
def clients_climb_and_the_mean_descends(height: Numbers, distance: Numbers) -> Finding:
    """As training goes on the clients' models climb up the wall of the basin, while the global model comes down to its
    bottom.

    From each stage to the next, by "panel" (early, middle, final) and "model" ("clients" on average, "mean"): the loss
    above the lowest of the plane, and the distance from its place. The mean's fall; the clients' grow or stay. Here
    they stay if they fall by at most 5 % of what they were at the stage before.
    """
    findings = []
    for number in (height, distance):
        clients = number.at(model="clients")
        mean = number.at(model="mean")
        steps = []
        for earlier, later in pairwise(STAGES):
            growth = clients.at(panel=later) / clients.at(panel=earlier)
            steps += [above(growth - 1, -0.05), below(mean.at(panel=later) - mean.at(panel=earlier))]
        findings.append(of_all(every(*steps), number, panel=STAGES, model=("clients", "mean")))
    return every(*findings)


@CLAIMS.add("A8", "B", where="section 4", cost=X1)
def clients_are_near_their_own_optima(error: Numbers) -> Finding:
    """The clients' test errors are about 80 %, almost the least that training on two of ten classes allows, so the
    clients are close to the optima of their own data.

    The clients' mean test error by "panel" (a stage) and "model": after the "round", and after they have "trained on"
    alone until their loss settles. Here: within 3 points of 80, and within 2 of each other. Print: about 80 %, with
    20 % for the ideal accuracy; on a balanced test set 80 % is the floor of whoever answers two classes only.
    `python -m benchmarks.drift` trains clients on, with another network.
    """
    after = error.at(model="round")
    settled = error.at(model="trained on")
    return every(between(after, 77, 83), between(after - settled, -2, 2))


@CLAIMS.add("A13", "B", where="section 4", cost=X1)
def early_updates_point_the_same_way(cosine: Numbers) -> Finding:
    """Early in training the clients' updates point roughly, but not exactly, the same way, so that drifts are small.

    The mean cosine of two clients' updates by "round", in the mean over the first twentieth of the rounds. Here: from
    0.5, 60 degrees, to 0.95. `python -m benchmarks.drift` gives it, with another network.
    """
    return between(_early(cosine).over("round"), 0.5, 0.95)


@CLAIMS.add("A14", "B", where="section 4", cost=X1)
def late_updates_are_less_alike(cosine: Numbers) -> Finding:
    """Late in training the clients' updates may point in all directions, from the bottom to the wall: they are less
    alike than early.

    The mean cosine of two clients' updates by "round": the mean over the last twentieth of the rounds is below that
    over the first. `python -m benchmarks.drift` gives it, with another network.
    """
    return above(_early(cosine).over("round") - _late(cosine).over("round"))


@CLAIMS.add("A15", "B", where="section 4", cost=X1)
def late_drifts_cancel(ratio: Numbers, loss: Numbers) -> Finding:
    """Late in training the clients' drifts cancel in their average: the drift that is left is small, and the global
    model stays near the bottom, late as early.

    `ratio` is the norm of the mean update over the mean norm of the updates, by "round"; here below 0.5 in the mean
    over the last twentieth of the rounds (ten updates at right angles give 0.32). `loss` is that of the global model
    "before" the round, of its "clients" on average, and of their "mean", by "round" and "model"; here the mean's rise
    is below a tenth of the clients', or below zero if they do not rise, in the means over the first and over the last
    twentieth. `python -m benchmarks.drift` gives them, with another network.
    """
    rises = loss.without(model="before") - loss.at(model="before")
    left = []
    for part in (_early(rises), _late(rises)):
        of_part = part.over("round")
        left.append(below(elementwise(_too_high, of_part.at(model="mean"), of_part.at(model="clients"))))
    return every(below(_late(ratio).over("round"), 0.5), *left)


def _too_high(mean: float, clients: float) -> float:
    """By how much the mean's rise is above a tenth of the clients'."""
    return mean - 0.1 * max(clients, 0.0)


@CLAIMS.add("A17", "B", where="appendix B, Figure 8", cost=BOTH, of="ima-figure-1", measure=_figure_8)
def both_hold_across_devices_and_silos(loss: Numbers, error: Numbers, line_loss: Numbers) -> Finding:
    """In cross-device and in cross-silo federations alike, throughout training, the averaged model has lower loss and
    error than its clients and lies in one basin with them.

    As A1 and A2, by "run", too: loss and error by "model", and the loss along lines by "line" and "place". Which
    rounds are shown is not said.
    """
    both = {"panel": STAGES, "run": (CROSS_DEVICE, CROSS_SILO)}
    return every(_better(loss, error, **both), _common_basin(line_loss, **both))


@CLAIMS.add("A18", "B", where="appendix B, Figures 8 and 9", cost=BOTH)
def the_offset_is_smaller_across_devices(offset: Numbers) -> Finding:
    """The mean of the clients is less far from the lowest point of their plane, in loss and in error, in the
    cross-device federation than in the cross-silo one.

    The mean's distance from the grid's lowest point by "run", "measure" (loss, error), "unit" ("relative" to the
    clients' mean distance from the mean, "absolute") and "round": the difference of the runs, in the mean over the
    rounds that both have. Figure 8's stages are shares of 400 and of 200 rounds, so it takes planes of its own
    (`fedsash landscape`).
    """
    more = offset.at(run=CROSS_DEVICE) - offset.at(run=CROSS_SILO)
    return of_all(below(more.over("round")), more, measure=MEASURES, unit=("relative", "absolute"))


def _order_in_print() -> Evidence:
    """The order of the two federations that are shown, by their participation: the smaller offset is 1."""
    return {"offset": Numbers.exact(("participation",), {(0.1,): 1, (1.0,): 2})}


@CLAIMS.add(
    "A19",
    "B",
    where="appendix B",
    cost="print; a fair test: run X9, 9 h on two cores, 4 to 8 min on a GPU",
    printed=_order_in_print,
)
def low_participation_widens_the_offset(offset: Numbers) -> Finding:
    """The fewer clients take part, the farther the global model is from the lowest point.

    The offset by "participation": it falls from each to the next larger one. Print has no number, only which of two
    federations has the smaller offset (1, and 2 for the other): the cross-device one, which is the one with the low
    participation, 0.1 against 1. So print says the inverse of what it concludes. A fair test has one population, and a
    yes needs all of it: 0.05, 0.1, 0.2, 0.4 and 1 of 100 clients, at the end of training, with the offset as in A4.
    """
    falls = falling(ascending(offset, "participation"), "participation")
    return of_all(falls, offset, participation=PARTICIPATIONS)


# --- B: the theory ---

PARTICIPATIONS = (0.05, 0.1, 0.2, 0.4, 1.0)
"""The shares of 100 clients that make a fair test of A19."""
EXACT = 1e-12
"""The largest gap of an identity in float64."""


def _second_order(order: Numbers) -> Finding:
    """Whether a gap vanishes with the square of the clients' distances."""
    return between(order, 1.9, 2.1)


@CLAIMS.add("B1", "B", where="section 5.1, eq. 2", cost="identity", identity=theorems.in_two_parts)
def loss_is_bias_and_variance(gap: Numbers) -> Finding:
    """The expected squared loss of a model from the solution set is the squared bias of the mean output and the
    variance.

    E ||y - f||^2 = ||y - E f||^2 + E ||f - E f||^2 for every sample, E the mean over R seeds. It is exact with a
    variance that divides by R; with R - 1 it is not. The largest gap over the samples.
    """
    return below(gap, EXACT)


@CLAIMS.add("B4", "B", where="Lemma 1", cost="identity", identity=theorems.expansion)
def the_ensemble_is_the_mean_model_to_first_order(order: Numbers) -> Finding:
    """The clients' weighted ensemble minus the averaged model is the gradient times the weighted mean of the clients'
    displacements, but for terms of second order in them.

    f_WENS - f_FMA = <grad f(w_FMA), sum_k (n_k/n) (w_k - w_FMA)> + O(Delta^2), if no n_i/n_j is infinite. At w_FMA the
    sum is B5's zero, and any gradient would do. So what is calculated is the same expansion about the clients' plain
    mean, where the sum is not zero. The clients are brought nearer to each other: what is left of the equation falls
    with the square of their distances (its order, by the "share" of the distances, is between 1.9 and 2.1). Print has
    Delta_k for a norm and uses it as a vector, and prints Delta in the place of the gradient's sign; both are read as
    meant.
    """
    return _second_order(order)


@CLAIMS.add("B5", "B", where="appendix A, eq. 7", cost="identity", identity=theorems.first_order)
def the_first_order_term_vanishes(displacement: Numbers, order: Numbers) -> Finding:
    """With the weighted mean the term of first order is zero, so that the gap is one of second order.

    sum_k (n_k/n) (w_k - w_FMA) = 0, in units of the farthest client, and ||f_WENS - f_FMA|| falls with the square of
    the clients' distances. With a mean that does not weigh by samples neither holds.
    """
    return every(below(displacement, EXACT), _second_order(order))


@CLAIMS.add("B6", "B", where="on Lemma 1", cost=X2, of="ima-figure-2", measure=_all_clients)
def near_clients_average_like_an_ensemble(error: Numbers, gap: Numbers, distance: Numbers) -> Finding:
    """When the clients' models are close to each other, the averaged model approximates the ensemble of their outputs.

    By "run" and "round": the test errors of the "mean" and of the "ensemble" (by "model"), the norm of the gap between
    their outputs, and the clients' largest distance. Here: in that half of both runs' rounds in which clients are
    nearest the errors differ by less than 2 points on average. Whether the gap goes with the distance over the rounds,
    which is not said, stands beside and is not judged. The study gives no loss of the ensemble, which would be compared
    as the errors are.
    """
    apart = error.at(model="mean") - error.at(model="ensemble")
    size = together("place", _size_where_near, _of_both_runs(apart), _of_both_runs(distance))
    near = of_all(below(size, 2), apart, run=RUNS)
    near = of_all(near, distance, run=RUNS)
    beside = above(together("round", correlation, gap, distance))
    return Finding(near.holds, f"{near.words}; correlation of gap and distance {beside.words}")


def _of_both_runs(numbers: Numbers) -> Numbers:
    """Numbers by "run" and "round" along one dimension, "place"."""
    return Numbers(("place",), {(f"{run}, {round}",): number for (run, round), number in numbers.items()})


def _size_where_near(values: Sequence[float], distance: Sequence[float]) -> float:
    """The mean size of the values in the half of the places with the smallest distances."""
    nearest = sorted(range(len(values)), key=distance.__getitem__)[: (len(values) + 1) // 2]
    return _size([values[place] for place in nearest])


@CLAIMS.add("B8", "A", where="Theorem 1", cost=f"identity; {X3}", identity=theorems.five_factors)
def five_factors_make_the_loss(gap: Numbers, order: Numbers) -> Finding:
    """The expected global loss is the squared weighted sum of train and heterogeneous biases, the weighted variances
    and the weighted covariances, but for a term of second order in the clients' largest distance.

    E L = mean over D of ||sum_k p_k (TB_k + HB_k)||^2 + sum_k p_k^2 V_k + sum_{k != k'} p_k p_k' Cov_kk' + O(Delta^2).
    Without the last term it is the loss of the ensemble, exactly, if E is the mean over R seeds; for the averaged model
    the gap falls with the square of the clients' distances. The main text prints the sum of biases without the square,
    and with k' = k allowed in one place: so read the equation is wrong. The appendix (eq. 10, 14) has the square.
    """
    return every(below(gap, EXACT), _second_order(order))


@CLAIMS.add("B9", "B", where="appendix A, eq. 13", cost="identity", identity=theorems.losses)
def losses_differ_by_the_output_gap(ratio: Numbers, order: Numbers) -> Finding:
    """The loss of the averaged model is that of the ensemble but for a term of the order of the gap between their
    outputs, and so of second order in the clients' distances.

    |L(f_FMA) - L(f_WENS)| over the mean of ||a - b|| (||y - a|| + ||y - b||), a and b the two outputs, is at most 1,
    and it falls with the square of the clients' distances.
    """
    return every(below(ratio, 1), _second_order(order))


@CLAIMS.add("B12", "B", where="section 5.2", cost=f"{X2}; with its variance {X3}", of="ima-figure-2", measure=_biases)
def heterogeneous_bias_outweighs_train_bias(bias: Numbers) -> Finding:
    """The heterogeneous bias is expected to matter more than the train bias, because of the samples that a client never
    saw.

    The clients' mean squared bias by "run", "kind" (train, heterogeneous) and "round": the difference of the kinds, in
    the mean over the rounds. A sample is foreign to nine clients of ten, so that the heterogeneous one's share of the
    squared bias is greater still.
    """
    more = bias.at(kind="heterogeneous") - bias.at(kind="train")
    return of_all(above(more.over("round")), more, run=RUNS)


@CLAIMS.add("B14", "B", where="section 5.3.2", cost=f"identity; {X2}", identity=theorems.nearer_clients)
def nearer_clients_lower_the_loss(change: Numbers) -> Finding:
    """The test loss falls when the clients' largest distance falls, as the theorem is said to show.

    The change of the averaged model's loss when its clients come nearer to their mean, by the "share" of the distances
    that is left. It is zero: their mean does not move. The remainder O(Delta^2) has no sign, so the loss need not fall
    with Delta. It does if clients come nearer to a better model than their mean.
    """
    return below(change, -EXACT)


@CLAIMS.add("B15", "B", where="Theorem 2", cost="identity", identity=theorems.kernel_variance)
def variance_grows_with_the_distance_of_data(remainder: Numbers) -> Finding:
    """In the kernel regime, with a constant diagonal lambda_k of the kernel and off-diagonals of at most epsilon on the
    client's data, the client's mean variance on all data is n_k/(2 lambda_k) MMD^2(D_k, D) + lambda_D -
    n_k/(2 lambda_k) beta_D, but for a term of order epsilon.

    A Gaussian process with a Gaussian kernel: variance minus that sum, over "epsilon", stays bounded as epsilon falls
    from 0.02 to 7e-6 (here: below 10), with or without each sample's pair with itself in the client's own term
    ("pairs"). MMD is taken in the space of the kernel K, as printed: wrong, the gap does not fall with epsilon. The
    variance contains squares of K, as beta_D does. With MMD in the space of K^2 and without these pairs the formula is
    right; with them lambda_k/2 is left.
    """
    return either(below(remainder.at(pairs="distinct"), 10), below(remainder.at(pairs="all"), 10))


@CLAIMS.add("B19", "B", where="Corollary 1", cost=f"identity; {X3}", identity=theorems.pair_covariances)
def covariance_has_a_lower_bound(slack: Numbers) -> Finding:
    """For clients of equal size the mean covariance term is at least (K - 1)/K times the mean, over the samples, of the
    smallest covariance of two clients.

    mean over D of (1/K^2) sum_k sum_k' Cov_kk' >= ((K - 1)/(n K)) sum over D of min Cov_kk': left minus right, by
    "pairs": of "two clients", or "all pairs", each client's with itself, too, since print does not exclude k = k'.
    """
    return above(slack, -EXACT)


@CLAIMS.add("B20", "B", where="section 5.3.4", cost=X3)
def the_bound_is_not_zero(bound: Numbers) -> Finding:
    """The lower bound of the covariance term is not zero: there is covariance that cannot be taken away.

    ((K - 1)/(n K)) sum over D of min Cov_kk', over the squared error, by "round", in the mean over the rounds: above 0.
    A negative bound, which one anti-correlated pair makes, takes nothing away. A seed is one partition with several
    runs. The least of estimates from few runs is too low, also where all clients are independent, so that a no needs a
    pair that other runs have chosen: `python -m benchmarks.factors`. `fedsash variance` gives a bound of the mean
    covariances, which is no lower than this one, of each sample.
    """
    return above(bound.over("round"))


@CLAIMS.add(
    "B23", "B", where="section 5.3.3, appendix C", cost="XS, IID, three seeds: 2.9 h on two cores, 3 min on a GPU"
)
def averaging_identical_clients_is_useless(covariance: Numbers, variance: Numbers, error: Numbers) -> Finding:
    """If the clients' data have one distribution, the variance term and the covariance term are that of one client, and
    to average more clients does nothing.

    On an IID split: the mean covariance of two clients over the mean variance of one, both by "round", in the mean over
    the rounds; here between 0.9 and 1.1. The test error of the mean of K models by "clients" (K, at least three of
    them) and "round": here it falls by less than 1 point from the smallest K to the largest, in the mean over the
    rounds that both have. Equal distributions alone do not make Cov equal to Var: independent models have Cov = 0.
    `fedsash variance` and `fedsash ensemble` give the numbers, and so does `python -m benchmarks.factors`.
    """
    share = together("round", lambda shared, own: fmean(shared) / fmean(own), covariance, variance)
    numbers = sorted(error.labels("clients"), key=float)
    fall = (error.at(clients=numbers[0]) - error.at(clients=numbers[-1])).over("round")
    useless = of_many(below(fall, 1), len(numbers), 3, "numbers of clients")
    return every(between(share, 0.9, 1.1), useless)


# --- C: which factor matters ---


@CLAIMS.add(
    "C1",
    "A",
    where="section 5.3.1, summary of section 5, Figure 2",
    cost=X2,
    of="ima-figure-2",
    measure=_by_round(bias="train_bias"),
)
def train_bias_is_almost_zero(bias: Numbers) -> Finding:
    """Local steps suffice to fit the client's data: the train bias is almost zero throughout training.

    The clients' mean squared train bias by "run" and "round": the largest over the rounds. Here: below 0.05, where
    probabilities of a tenth for each class have 0.9.
    """
    return of_all(below(bias.over("round", max), 0.05), bias, run=RUNS)


@CLAIMS.add("C4", "B", where="section 5.3.1", cost=X2, of="ima-figure-2", measure=_by_round(bias="heterogeneous_bias"))
def larger_steps_forget_more(bias: Numbers) -> Finding:
    """The larger the clients' steps, the more they forget of what the average has brought, and the greater is the
    heterogeneous bias.

    The runs without and with decay of the rate are what the text offers: the heterogeneous bias by "run" and "round",
    without decay above that with it, in the mean over the late rounds that both have, from 200 on.
    """
    return above(_without_decay(_rounds(bias, LATE)))


def _without_decay(numbers: Numbers) -> Numbers:
    """By how much the run without decay is above that with it, in the mean over the rounds that both have."""
    return (numbers.at(run=NO_DECAY) - numbers.at(run=DECAY)).over("round")


_BIAS_AND_ERROR = _by_round(bias="heterogeneous_bias", error="test_error")


@CLAIMS.add("C7", "B", where="section 5.3.1", cost=X2, of="ima-figure-2", measure=_BIAS_AND_ERROR)
def with_decay_bias_and_error_move_together(bias: Numbers, error: Numbers) -> Finding:
    """With decay, from about round 40 on, test error and heterogeneous bias rise together and fall together.

    Both by "run" and "round": their correlation over the rounds is positive from 40 to 75 and from 75 on.
    """
    bias = bias.at(run=DECAY)
    error = error.at(run=DECAY)
    phases = ((TURN, SETTLED), (SETTLED, math.inf))
    return every(
        *(above(together("round", correlation, _rounds(bias, *phase), _rounds(error, *phase))) for phase in phases)
    )


@CLAIMS.add("C8", "B", where="section 5.3.1", cost=X2, of="ima-figure-2", measure=_BIAS_AND_ERROR)
def without_decay_both_grow(bias: Numbers, error: Numbers) -> Finding:
    """Without decay, from about round 40 on, the test error grows slightly as the heterogeneous bias grows.

    Both by "run" and "round": their trends from 40 on are positive. Slightly, here: by less than 5 points until the
    last round.
    """
    late_bias, late_error = (_rounds(each.at(run=NO_DECAY), TURN) for each in (bias, error))
    growth = along(late_error, "round", slope) * _span(late_error)
    return every(above(along(late_bias, "round", slope)), between(growth, 0, 5))


def _span(numbers: Numbers) -> float:
    """The number of rounds from the first to the last."""
    rounds = list(map(float, numbers.labels("round")))
    return max(rounds, default=0) - min(rounds, default=0)


@CLAIMS.add("C9", "B", where="section 5.3.1", cost=X2, of="ima-figure-2", measure=_BIAS_AND_ERROR)
def bias_and_error_are_correlated(bias: Numbers, error: Numbers) -> Finding:
    """After the early phase heterogeneous bias and test error are positively correlated, with decay and without.

    Both by "run" and "round": their correlation over the rounds from 40 on, for each run.
    """
    late_bias = _rounds(bias, TURN)
    late_error = _rounds(error, TURN)
    finding = above(together("round", correlation, late_bias, late_error))
    return of_all(of_all(finding, late_bias, run=RUNS), late_error, run=RUNS)


@CLAIMS.add("C10", "A", where="section 5.3.2, Figure 3", cost=X2, of="ima-figure-2", measure=_distances)
def distances_are_larger_without_decay(distance: Numbers) -> Finding:
    """The clients are farther from their mean without decay of the rate than with it.

    The distance by "run", "kind" (largest, mean) and "round", in the mean over the rounds that both runs have. Whether
    Figure 3 shows the largest, which the theorem has, or the mean is not said: both.
    """
    more = _without_decay(distance)
    return of_all(above(more), more, kind=KINDS)


@CLAIMS.add("C11", "B", where="section 5.3.2", cost=X2, of="ima-figure-2", measure=_by_round(error="test_error"))
def errors_are_larger_without_decay(error: Numbers) -> Finding:
    """The run with the larger distances, that without decay, has the larger test error.

    The mean model's test error by "run" and "round", in the mean over the late rounds that both runs have, from 200 on.
    """
    return above(_without_decay(_rounds(error, LATE)))


@CLAIMS.add("C12", "B", where="section 5.3.2", cost=X2, of="ima-figure-2", measure=_distances_and_errors)
def early_errors_fall_as_distances_rise(distance: Numbers, error: Numbers) -> Finding:
    """Before round 40 the test error falls in both runs although the clients' distances rise.

    The trends over the rounds up to 40 of the distance by "run", "kind" (largest, mean) and "round", and of the error
    by "run" and "round".
    """
    early_distance = _rounds(distance, last=TURN)
    early_error = _rounds(error, last=TURN)
    rises = above(along(early_distance, "round", slope))
    falls = below(along(early_error, "round", slope))
    return every(of_all(rises, early_distance, run=RUNS, kind=KINDS), of_all(falls, early_error, run=RUNS))


@CLAIMS.add("C13", "B", where="section 5.3.2", cost=X2, of="ima-figure-2", measure=_distances_and_errors)
def then_errors_rise_as_distances_fall(distance: Numbers, error: Numbers) -> Finding:
    """With decay, from round 40 to round 75, the clients' distances fall while the test error rises.

    The trends over these rounds of the distance by "run", "kind" (largest, mean) and "round", and of the error by "run"
    and "round".
    """
    of_distance, of_error = (_rounds(each.at(run=DECAY), TURN, SETTLED) for each in (distance, error))
    falls = of_all(below(along(of_distance, "round", slope)), of_distance, kind=KINDS)
    return every(falls, above(along(of_error, "round", slope)))


@CLAIMS.add("C15", "B", where="section 5.3.2", cost=X2, of="ima-figure-2", measure=_distances)
def distances_settle(distance: Numbers) -> Finding:
    """After the early phase the clients' distances settle, bounded from above in both runs: clients stay near the
    global model.

    The distance by "run", "kind" (largest, mean) and "round", from 75 on. Here: its trend up to the last round is a
    growth of less than a tenth of its mean, and its largest value is at most a tenth above the largest before. A
    distance that falls, as with a rate that falls, is bounded, too.
    """
    settled = _rounds(distance, SETTLED)
    before = _rounds(distance, last=SETTLED)
    growth = along(settled, "round", slope) * _span(settled) / settled.over("round")
    bounded = settled.over("round", max) / before.over("round", max)
    finding = every(below(growth, 0.1), below(bounded, 1.1))
    return of_all(of_all(finding, settled, run=RUNS, kind=KINDS), before, run=RUNS, kind=KINDS)


DOMINANT = ["heterogeneous bias", "locality"]
OTHERS = ["train bias", "variance", "covariance"]


@CLAIMS.add("C17", "A", where="title, abstract, introduction, summary of section 5, closing section", cost=X3)
def bias_and_distance_dominate(size: Numbers) -> Finding:
    """After early training the heterogeneous bias and the clients' distances dominate the global loss.

    What each factor adds to the averaged model's squared error, by "run", "factor" and "round", in its mean size over
    the rounds from 40 on: "heterogeneous bias" and "locality" are each larger than "train bias", "variance" and
    "covariance". Locality adds the averaged model's squared error minus the ensemble's; the two biases share their
    cross term in the squared bias. `python -m benchmarks.factors` gives all five, with another network.
    """
    late = _rounds(size, TURN)
    sizes = late.over("round", _size)
    others = sizes.at(factor=OTHERS)
    finding = every(*(below(others - sizes.at(factor=factor)) for factor in DOMINANT))
    return of_all(finding, late, run=RUNS, factor=[*DOMINANT, *OTHERS], round=late.labels("round"))


@CLAIMS.add(
    "C18",
    "A",
    where="section 5.3.3, summary of section 5, Figure 4",
    cost=X2,
    of="ima-figure-2",
    measure=_errors_by_number,
)
def more_clients_help_less_and_less(error: Numbers) -> Finding:
    """To average more clients lowers the variance term and the global loss, to some extent only: the more there are,
    the less one more does.

    The test error of the mean of K models of a round by "run", "round" and "clients" (K), in the mean over the rounds,
    at 1, 2, 5 and 10 clients: it falls from each to the next, and by less for each client that is added. That the
    variance term falls as 1/K with equal clients is arithmetic.
    """
    numbers = (1, 2, 5, 10)
    falls = []
    for fewer, more in pairwise(numbers):
        falls.append((error.at(clients=fewer) - error.at(clients=more)) * (1 / (more - fewer)))
    finding = every(
        *(above(fall.over("round")) for fall in falls),
        *(above((earlier - later).over("round")) for earlier, later in pairwise(falls)),
    )
    return of_all(finding, error, run=RUNS, clients=numbers)


@CLAIMS.add("C20", "A", where="section 5.3.4, Figure 4", cost=f"{X2}; the IID split 1 h on two cores, 1 min on a GPU")
def heterogeneous_data_make_clients_differ(similarity: Numbers) -> Finding:
    """Heterogeneous data by themselves make the clients' covariance small, and most so without decay.

    It is measured by the CKA of two clients' outputs, in the mean over all pairs, by "split" (#C = 2, IID), "run" and
    "round", in the mean over the rounds that both sides have: lower with two classes a client than IID, in both runs,
    and with two classes lower without decay than with it. CKA has no scale and no sign, so it is not the size of the
    covariance, which should stand beside it. `python -m benchmarks.factors` has both splits, with another network.
    """
    skewed = similarity.at(split="#C = 2")
    more = skewed - similarity.at(split="IID")
    return every(of_all(below(more.over("round")), more, run=RUNS), below(_without_decay(skewed)))


@CLAIMS.add(
    "C21",
    "B",
    where="section 5.3.4",
    cost=X2,
    of="ima-figure-2",
    measure=_by_round(similarity="cka", error="test_error"),
)
def diversity_need_not_help(similarity: Numbers, error: Numbers) -> Finding:
    """To keep the clients' models highly diverse may not lower the global loss in a way that counts.

    CKA of the clients' outputs and test error of their mean by "run" and "round": the slope of the error against CKA
    over a run's rounds. Diversity helps if the error rises with similarity; here it counts from 0.5 points for a tenth
    of CKA on.
    """
    slopes = together("round", slope, similarity, error)
    return of_all(below(slopes, 5), slopes, run=RUNS)


@CLAIMS.add("C22", "B", where="section 5.3.4", cost=X2, of="ima-figure-2", measure=_last_round)
def diversity_can_hurt_late(similarity: Numbers, error: Numbers) -> Finding:
    """Late, diversity can even hurt: at round 400 the run whose clients are less similar, that without decay, is the
    worse one.

    CKA of the clients' outputs and test error of their mean, by "run", for the clients of the last round.
    """
    return every(
        below(similarity.at(run=NO_DECAY) - similarity.at(run=DECAY)),
        above(error.at(run=NO_DECAY) - error.at(run=DECAY)),
    )


@CLAIMS.add("C23", "A", where="summary of section 5", cost=X3)
def covariance_hardly_counts(covariance: Numbers, error: Numbers) -> Finding:
    """The covariance is too small to affect the global loss.

    The weighted sum of covariances and the squared error of the ensemble, both by "run" and "round": the size of the
    first over the second, in the mean over all rounds. Here: less than a twentieth. A seed is one partition with
    several runs; `fedsash decompose` gives both numbers as means over these, and `python -m benchmarks.factors` without
    the bias of few runs.
    """
    shares = covariance / error
    return of_all(below(shares.over("round", _size), 0.05), shares, run=RUNS)
