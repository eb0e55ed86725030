"""FedWindow's claims of tiers A and B.

An accuracy is in per cent, by "line" (vanilla, W = 2, W = 3, W = 4), by client "trips", by "reading", and by what else
the claim is about. A round of the paper is a turn of the ring here, of as many trips as there are clients. The paper
has two readings of the model that an entering client trains from: its own (Algorithm 1), or the newest (the proof). A
claim is decided where both agree. `measure` takes the paper's ResNet-18 if such runs are there, and otherwise LeNet-5:
the finding names the network, and `subject` says so, since Figures 3 and 4 are of ResNet-18. All that is said of
several splits is said of the same network. Margins are our reading and were fixed before any run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import geometric_mean
from typing import Literal

import numpy as np

from ...client import LocalTraining
from ...network import Asynchronous, ConstantWindow, FedWindow, Network
from ...network.fedwindow import Beginning
from ...vector.arrays import Floats
from ..studies.bound import Constants, bound
from .claims import (
    NO_NUMBERS,
    Claims,
    Evidence,
    Finding,
    above,
    agreed,
    at_most,
    below,
    between,
    every,
    largest,
    of_all,
    with_all,
)
from .figures import CurvesFigure
from .measures import BEYOND, compared, counts, of_curves, of_target, printed_target
from .numbers import Key, Numbers, Quantity, stacked
from .pick import pick
from .quadratics import on_network, quadratic_federation, sent, trajectory
from .results import Results

CLAIMS = Claims("FedWindow")

MARGIN = 2.0
"""Points of accuracy within which two schemes are comparable, and by which one may be slightly lower."""
HALF = 0.5
"""The share that is left at most where delays or failures are reduced significantly."""
FACTOR = 1.2
"""A gain of 1.5 is one from 1.5 / 1.2 to 1.5 * 1.2."""
EXACT = 1e-12

CLIENTS = 5
SPREAD = (-9.0, -2.0, 1.0, 4.0, 11.0)
"""The clients' optima where they differ: their mean is 1."""
EQUAL = (0.0,) * CLIENTS
SIZES = (2, 3, 4)
STARTS: tuple[Beginning, ...] = ("own", "newest")
Training = Literal["one", "all"]
"""Who trains in a step: the entering client, or the whole window, as the proof counts."""


# --- The measured curves and speed-ups ---

READINGS = {"own": "own models", "newest": "newest model"}
"""What an entering client trains from, as schemes and as findings call it."""
WINDOWS = ("W = 2", "W = 3", "W = 4")
LINES = ("vanilla", *WINDOWS)
NON_IID = ("two classes", "alpha = 0.5")
BOTH = ("IID", "two classes")
TASKS = ("MNIST 90 %", "CIFAR-10 60 %")
SCHEMES = ("synchronous", "FedWindow")
LOADS = (10, 30, 100, 300, 1000, 3000, 10_000)
"""The clients on one link in `python -m benchmarks.network load`."""
CONGESTED = (300, 1000, 3000, 10_000)
"""Those with which the link of synchronous rounds is congested."""


def _schemes(reading: str) -> dict[str, str]:
    """The scheme of each line. With W = 4 of five clients both readings are the same run."""
    return {"vanilla": "vanilla", "W = 2": f"W = 2, {reading}", "W = 3": f"W = 3, {reading}", "W = 4": "W = 4"}


def _curves(results: Results, **where: str) -> Numbers:
    """Accuracy by line, trips, reading and network: ResNet-18's, or LeNet-5's if no run of ResNet-18 is there."""
    resnet = _curves_of("ResNet-18", results, **where)
    if resnet:
        return stacked("network", {"ResNet-18": resnet})
    return stacked("network", {"LeNet-5": _curves_of("LeNet-5", results, **where)})


def _curves_of(network: str, results: Results, **where: str) -> Numbers:
    """Accuracy by line, trips and reading, of one network."""
    readings = {}
    for reading, name in READINGS.items():
        lines = {line: pick(scheme=scheme) for line, scheme in _schemes(reading).items()}
        figure = CurvesFigure("", "", pick(network=network, **where), lines, by="trips")
        readings[name] = of_curves(figure, results)
    return stacked("reading", readings)


def _iid(results: Results) -> Evidence:
    return {"accuracy": _curves(results)}


def _non_iid(results: Results) -> Evidence:
    return {"accuracy": stacked("split", {split: _curves(results, split=split) for split in NON_IID})}


def _both(results: Results) -> Evidence:
    return {"accuracy": stacked("split", {split: _curves(results, split=split, task=TASKS[1]) for split in BOTH})}


def _other_network(measure: Callable[[Results], Evidence]) -> Callable[[Results], str]:
    """The network of a figure's evidence, if it is not that of the printed figure."""

    def subject(results: Results) -> str:
        networks = [str(network) for network in measure(results)["accuracy"].labels("network")]
        others = [network for network in networks if network != "ResNet-18"]
        if not others:
            return ""
        return f"{', '.join(others)} (print: ResNet-18)"

    return subject


def _by_task(trips: Numbers) -> Numbers:
    """Table I's trips by line, reading, task, network, split and target."""
    by_task: dict[Key, Quantity] = {}
    for reading, name in READINGS.items():
        for line, scheme in _schemes(reading).items():
            for (row, target), quantity in trips.at(column=scheme).items():
                task, network, split = str(row).split(", ")
                by_task[line, name, task, network, split, target] = quantity
    return Numbers(("line", "reading", "task", "network", "split", "target"), by_task)


def _trips(results: Results) -> Evidence:
    from .fedwindow import TABLE_1

    return {"trips": _by_task(of_target(TABLE_1, results, cell="trips"))}


def _printed_trips() -> Evidence:
    from .fedwindow import TABLE_1

    return {"trips": _by_task(printed_target(TABLE_1, cell="trips"))}


def _speed_ups(trips: Numbers) -> Numbers:
    """Vanilla's trips over each window's, by line, reading, task, network and split.

    Where one of the two does not reach the target it is a bound, as long as this one says which of them is less.
    """
    by_line = counts(trips)
    speed_ups: dict[Key, Quantity] = {}
    for (line, *place), window in by_line.items():
        vanilla = by_line.get(("vanilla", *place))
        if line == "vanilla" or vanilla is None:
            continue
        ratio = compared(lambda theirs, mine: theirs / mine, vanilla, window)
        if ratio is not None:
            speed_ups[line, *place] = ratio
    return Numbers([dim for dim in trips.dims if dim != "target"], speed_ups)


def _by_reading(numbers: Numbers, judge: Callable[[Numbers], Finding]) -> Finding:
    """What both readings say: a claim is decided where they agree."""
    known = numbers.labels("reading")
    findings = {name: judge(numbers.at(reading=name)) for name in READINGS.values() if name in known}
    finding = agreed(findings) if findings else Finding(None, NO_NUMBERS)
    return with_all(finding, numbers, reading=list(READINGS.values()))


def _end(accuracy: Numbers) -> Numbers:
    """The mean over the last tenth of the trips: the window moves around the ring, and accuracy with it."""
    trips = [float(each) for each in accuracy.labels("trips")]
    return accuracy.at(trips=[each for each in trips if each > 0.9 * max(trips)]).over("trips")


def _over_vanilla(accuracy: Numbers, lines: Sequence[str]) -> Numbers:
    """How far lines end above vanilla."""
    end = _end(accuracy)
    return end.at(line=list(lines)) - end.at(line="vanilla")


def _before(accuracy: Numbers) -> Numbers:
    """The mean over the trips before the last tenth, from the first on after which vanilla has a model.

    There is none without vanilla.
    """
    trips = [float(each) for each in accuracy.labels("trips")]
    first = min((float(each) for each in accuracy.at(line="vanilla").labels("trips")), default=float("inf"))
    return accuracy.at(trips=[each for each in trips if first <= each <= 0.9 * max(trips)]).over("trips")


# --- The claims ---


@CLAIMS.add("V3", "A", where="abstract, section 1, conclusion", cost="exists (X22)")
def less_delay(waiting: Numbers, time: Numbers) -> Finding:
    """Compared with synchronous federated learning, FedWindow makes delays that come from congestion much shorter.

    The paper describes no experiment. `waiting`, by "scheme" (synchronous, FedWindow) and number of "clients": seconds
    that an upload waits for the link, at the loads at which that of synchronous rounds is congested, from 300 clients
    on. `time`, by "scheme": seconds to the same accuracy at such a load. Much, here: at each load the wait is at most
    half, and the accuracy is reached sooner. A scheme that leaves the link idle does not wait and is late all the same,
    so both are needed. `python -m benchmarks.network load` gives the waiting; the time is that of a run with training.
    """
    congested = waiting.at(clients=list(CONGESTED))
    less = below(congested.at(scheme="FedWindow") / congested.at(scheme="synchronous"), HALF)
    return every(
        with_all(less, waiting, scheme=SCHEMES, clients=CONGESTED),
        below(time.at(scheme="FedWindow") / time.at(scheme="synchronous"), 1.0),
    )


@CLAIMS.add("V4", "A", where="abstract, section 1", cost="exists (X22)")
def fewer_failures(failures: Numbers) -> Finding:
    """Compared with synchronous federated learning, far fewer uploads fail because of congestion.

    The paper describes no experiment. `failures`, by "scheme" (synchronous, FedWindow) and number of "clients": failed
    uploads per trip, at loads from 10 to 10,000, where uploads of synchronous rounds fail. Far fewer, here: at most
    half in the mean over the loads. `python -m benchmarks.network load` gives them.
    """
    mean = failures.over("clients")
    fewer = below(mean.at(scheme="FedWindow") / mean.at(scheme="synchronous"), HALF)
    return with_all(fewer, failures, scheme=SCHEMES, clients=LOADS)


@CLAIMS.add(
    "V5",
    "B",
    where="abstract, section 1",
    cost="run X19: 3.7 h on two cores",
    of="fedwindow-table-1",
    measure=_both,
    subject=_other_network(_both),
)
def performance_is_kept(accuracy: Numbers) -> Finding:
    """The model performs as well as with synchronous federated learning.

    `accuracy` by "line", "trips" and "split" (IID, two classes a client), at the end, which is the mean over the last
    tenth of the trips. As well, here: no window is more than 2 points below vanilla in any split. The text on Figure 4
    says that W = 2 and 3 are lower on non-IID data (V29): the paper's claims differ.
    """

    def kept(accuracy: Numbers) -> Finding:
        gain = _over_vanilla(accuracy, WINDOWS)
        return of_all(above(gain, -MARGIN), gain, line=WINDOWS, split=BOTH, network=gain.labels("network"))

    return _by_reading(accuracy, kept)


@CLAIMS.add(
    "V6",
    "B",
    where="abstract, second contribution, conclusion",
    cost="run X19: 3.7 h on two cores",
    of="fedwindow-table-1",
    measure=_both,
    subject=_other_network(_both),
)
def performance_is_improved(accuracy: Numbers) -> Finding:
    """The model performs better than with traditional federated learning.

    `accuracy` by "line", "trips" and "split" (IID, two classes a client), at the end, which is the mean over the last
    tenth of the trips: each window above vanilla in each split. The paper tells so for IID data (V26, V27) and not for
    non-IID data, where its text has W = 4 comparable and W = 2 and 3 lower (V28, V29).
    """

    def improved(accuracy: Numbers) -> Finding:
        gain = _over_vanilla(accuracy, WINDOWS)
        return of_all(above(gain), gain, line=WINDOWS, split=BOTH, network=gain.labels("network"))

    return _by_reading(accuracy, improved)


def extra_work(epochs: int = 2) -> Evidence:
    """What a turn of the ring costs beyond a synchronous round, where clients of the window train so many epochs.

    Vanilla's clients train two. Counted in the third turn, in which every client has trained before.
    """
    vanilla = sent(on_network(quadratic_federation(SPREAD, _local(epochs=2))), steps=1, before=2)
    extra: dict[Key, float] = {}
    for start in STARTS:
        federation = quadratic_federation(SPREAD, _local(epochs=epochs))
        ring = Asynchronous(federation, Network(), FedWindow(ConstantWindow(2), start=start))
        window = sent(ring, steps=CLIENTS, before=2 * CLIENTS)
        extra["bytes up", start] = window.up - vanilla.up
        extra["bytes down", start] = window.down - vanilla.down
        extra["samples in local steps", start] = window.samples - vanilla.samples
    return {"extra": Numbers.exact(("what", "start"), extra)}


@CLAIMS.add("V7", "B", where="section 1", cost="identity", identity=extra_work)
def no_extra_work_for_clients(extra: Numbers) -> Finding:
    """Clients send, receive and compute no more than in synchronous federated learning.

    `extra` by "what" (bytes up, bytes down, samples in local steps): that of all clients in a turn of the ring, less
    that in a synchronous round. None may be above 0. Calculated with a run of each, in both readings of Algorithm 1.
    """
    return at_most(extra)


def a_rounds_volume(slides: int = CLIENTS) -> Evidence:
    """What is sent in a round of so many slides of the window, beside a synchronous round."""
    vanilla = sent(on_network(quadratic_federation(SPREAD, _local())), steps=1, before=2)
    ring = Asynchronous(quadratic_federation(SPREAD, _local()), Network(), FedWindow(ConstantWindow(2)))
    window = sent(ring, steps=slides, before=2 * CLIENTS)
    volume: dict[Key, float] = {("up",): window.up / vanilla.up, ("down",): window.down / vanilla.down}
    uploads: dict[Key, float] = {(f"client {i}",): float(count) for i, count in enumerate(window.trained)}
    return {"uploads": Numbers.exact(("client",), uploads), "volume": Numbers.exact(("way",), volume)}


@CLAIMS.add("V8", "B", where="section II.B", cost="identity", identity=a_rounds_volume)
def a_round_sends_as_much_as_vanilla(uploads: Numbers, volume: Numbers) -> Finding:
    """In a round that is a turn of the ring every client sends and receives once, as much as in a round of vanilla.

    `uploads` by "client" in a round, and `volume` by "way" (up, down): the bytes of a round over those of vanilla; all
    must be 1. Calculated with five clients where a round is a turn of the ring. A round of Algorithm 1 is one slide, in
    which one client sends and one receives: a fifth. The paper has both.
    """
    return every(between(uploads, 1.0, 1.0), between(volume, 1.0, 1.0))


def distance_from_the_windows_mean(missing: int = 0) -> Evidence:
    """How far the models of runs are from equation 4, with the divisor W less `missing`, made by hand.

    The run is of fedsash's scheduler. By hand a training takes a client from x to optimum + (1 - eta)^K (x - optimum),
    and the new model is the sum of the window's uploads over the divisor.
    """
    gaps: dict[Key, float] = {}
    for size in SIZES:
        divisor = size - missing
        for start in STARTS:
            scheduler = FedWindow(ConstantWindow(size), start=start)
            run = trajectory(Asynchronous(quadratic_federation(SPREAD, _local()), Network(), scheduler), 4 * CLIENTS)
            by_hand, moved = _by_hand(size, start, 4 * CLIENTS, divisor)
            gaps["the window's mean", size, start] = float(np.abs(run - by_hand).max())
            gaps["w_t + (U_i - U_j)/W", size, start] = float(np.abs(np.diff(run) - moved / divisor).max())
    return {"gap": Numbers.exact(("form", "window", "start"), gaps)}


@CLAIMS.add("V16", "B", where="equation 4", cost="identity", identity=distance_from_the_windows_mean)
def the_model_is_the_windows_mean(gap: Numbers) -> Finding:
    """The new global model is the mean of the entering client's model and of the models of those that stay.

    w_{t+1} = (1/W) (sum over the window without j of w_k + w_i). Without the leaving j the window has W - 1 members, so
    with the entering i there are W, and the divisor is right; the step is (U_i - U_j)/W. `gap` by "form": the largest
    distance of a run's models from each, calculated with optima that differ, for W = 2, 3, 4, in both readings.
    """
    return below(gap, EXACT)


def distance_from_the_steps_mean(trains: Training = "one") -> Evidence:
    """How far the first step of a run is from the mean of a training's step of all who are in the window then.

    All hold w_0, also in the window, as the proof assumes. `trains`: the entering client alone, or all in the window.
    """
    gaps: dict[Key, float] = {}
    for size in SIZES:
        slide = size if trains == "all" else 1
        scheduler = FedWindow(ConstantWindow(size), slide=slide, start="newest")
        federation = quadratic_federation(SPREAD, _local(), start=20.0)  # all optima are below it
        before, after = trajectory(Asynchronous(federation, Network(), scheduler), 1)
        window = [(slide + place) % CLIENTS for place in range(size)]
        steps = [_trained(before, SPREAD[client]) - before for client in window]
        gaps[(size,)] = abs((after - before) - sum(steps) / size) / abs(after - before)
    return {"gap": Numbers.exact(("window",), gaps)}


@CLAIMS.add("V17", "B", where="equations 7 and 9", cost="identity", identity=distance_from_the_steps_mean)
def a_step_is_the_mean_of_the_windows_steps(gap: Numbers) -> Finding:
    """The global model's step is 1/W times the sum of the steps of all who stay and of the entering client.

    w^{t+1} - w^t = (1/W) sum_{stay} (w_k^{t+1} - w_k^t) + (1/W) (w_i^{t+1} - w_i^t), each a training's step. `gap` by
    "window": the distance of the two sides over the length of the left one. False as printed: in a step only the
    entering client trains, so the sum over those who stay is 0, and with the proof's assumption that all hold w^t
    equation 4 gives (1/W) (w_i^{t+1} - w^t) alone. It holds where the whole window trains in each step.
    """
    return below(gap, EXACT)


def squared_step_less_its_bound(mean_gradient: bool = False) -> Evidence:
    """The squared length of a run's first step less equation 12's right side, where each step takes all samples.

    Then both variances are 0. With `mean_gradient` the right side has eta^2 E^2 ||grad F||^2 as well.
    """
    excess: dict[Key, float] = {}
    for size in SIZES:
        local = _local()
        scheduler = FedWindow(ConstantWindow(size), start="newest")
        before, after = trajectory(Asynchronous(quadratic_federation(EQUAL, local), Network(), scheduler), 1)
        bound = 0.0
        if mean_gradient:
            bound = (local.lr * STEPS * before) ** 2
        excess[(size,)] = (after - before) ** 2 - bound
    return {"excess": Numbers.exact(("window",), excess)}


@CLAIMS.add("V20", "B", where="equation 12", cost="identity; run X21: minutes", identity=squared_step_less_its_bound)
def a_squared_step_is_bounded_by_the_noise(excess: Numbers) -> Finding:
    """The expected squared step is at most eta^2 E^2 sigma_l^2 / W + eta^2 E^2 sigma_g^2 / W^2.

    `excess`: the squared length of a run's first step less the right side; in no case above 0. In runs the expectation
    is the mean over seeds. False as printed: the right side has no part of the mean gradient. Clients that
    take all their samples have no noise, so it is 0, and the model moves all the same. With eta^2 E^2 ||grad F||^2
    added it holds in this calculation.
    """
    return at_most(excess)


def worth_of_a_step(trains: Training = "one") -> Evidence:
    """How much of -eta E ||grad F||^2 a run's step is worth, in the first step and after 30, for a small rate."""
    rate = 1e-3
    late = 30
    shares: dict[Key, float] = {}
    for size in SIZES:
        slide = size if trains == "all" else 1
        scheduler = FedWindow(ConstantWindow(size), slide=slide, start="newest")
        local = LocalTraining(lr=rate, batch="full", steps=1)
        run = trajectory(Asynchronous(quadratic_federation(EQUAL, local), Network(), scheduler), late + 1)
        for step in (0, late):
            shares[size, step] = float((run[step] - run[step + 1]) / (rate * run[step]))
    return {"share": Numbers.exact(("window", "step"), shares)}


@CLAIMS.add("V21", "B", where="equations 13 and 14", cost="identity; run X21: minutes", identity=worth_of_a_step)
def a_step_is_worth_a_whole_update(share: Numbers) -> Finding:
    """The expected product of the gradient and the step is -eta E times the expected squared norm of the gradient.

    E<grad F(w^t), w^{t+1} - w^t> = -eta E E||grad F(w^t)||^2. `share`: the left side over the right one, which is to be
    1, here within 1 %. False as printed: by equation 4, where all hold w^t, it is 1/W of that; once the window is full
    of trainings from the newest model it is 2/(W + 1). It holds where the whole window trains in each step. Calculated
    for (w - optimum)^2 / 2, E = 1 and all samples.
    """
    return between(share, 0.99, 1.01)


TRIPS = (1, 10, 100, 1000, 2000)


def norms_and_bound(trains: Training = "one", trips: Sequence[int] = TRIPS) -> Evidence:
    """The mean squared norm along equation 4, and equation 17, for F(w) = w^2 / 2 and steps without noise.

    The clients are equal and w_0 = 1, so L = 1, both variances are 0, F* = 0, and assumptions 1 to 5 hold.
    """
    rate = 1e-3
    norms: dict[Key, float] = {}
    bounds: dict[Key, float] = {}
    for size in SIZES:
        ages = {"own": CLIENTS - size - 1, "newest": 0, "all hold w^t": None}
        for reading, age in ages.items():
            squared = _recursion(size, age, rate, max(trips), trains) ** 2
            for count in trips:
                known = Constants(smoothness=1.0, noise=0.0, gap=0.5)
                norms[reading, size, count] = float(squared[:count].mean())
                bounds[reading, size, count] = float(bound(known, rate, 1, size, count).sum())
    dims = ("reading", "window", "trips")
    return {"norms": Numbers.exact(dims, norms), "bounds": Numbers.exact(dims, bounds)}


@CLAIMS.add("V22", "A", where="equations 15 to 17", cost="identity; run X21: minutes", identity=norms_and_bound)
def the_bound_holds(norms: Numbers, bounds: Numbers) -> Finding:
    """The mean squared norm of the gradient over T steps is at most the proof's bound.

    (1/T) sum E||grad F(w^t)||^2 <= (F(w^0) - F*)/(eta E T) + L eta E sigma_l^2/(2W) + L eta E sigma_g^2/(2W^2), for a
    smooth, non-convex F under the proof's assumptions. `norms`: the left side after T "trips"; `bounds`: the right one
    with measured constants, as `fedsash bound` finds both; in runs the expectation is the mean over seeds. False as
    printed: the proof counts a training of all W for each step (V21). Without noise the left side becomes
    (2d + W + 1)/2 times the first term, d the age of the models from which clients train, and W times where all hold
    the newest, as the proof assumes. Calculated from equation 4 for w^2/2. Where the whole window trains it holds up to
    about 2,000 trips here and no longer: at 10,000 the left side is 1.0005 times the bound, which has no part of the
    mean gradient (V20). The paper equates F* with E F(w^T).
    """
    return below(norms / bounds, 1.0)


def left_in_the_end(spread: float = 1.0, noise: float = 1.0) -> Evidence:
    """What is left of the squared norm of the gradient at a constant rate, as a share of the first.

    In runs of 12 turns of the ring with all samples in each step, where the clients' optima differ by `spread`; and
    in the paper's own bound, between T = 1 and T = 10^9, with a variance of `noise`.
    """
    left: dict[Key, float] = {}
    optima = [spread * (optimum - 1.0) for optimum in SPREAD]
    for size in SIZES:
        scheduler = FedWindow(ConstantWindow(size), start="newest")
        driver = Asynchronous(quadratic_federation(optima, _local()), Network(), scheduler)
        squared = trajectory(driver, 12 * CLIENTS) ** 2  # the mean of the optima is 0, so the model is the gradient
        left["clients that differ", size] = float(squared[-20:].mean() / squared[0])
        constants = Constants(smoothness=1.0, noise=noise, gap=0.5)
        first = bound(constants, 0.5, 1, size, 1).sum()
        last = bound(constants, 0.5, 1, size, 10**9).sum()
        left["the bound", size] = float(last / first)
    return {"left": Numbers.exact(("of", "window"), left)}


@CLAIMS.add("V24", "B", where="section III.C", cost="identity; run X21: minutes", identity=left_in_the_end)
def it_converges_to_a_stationary_point(left: Numbers) -> Finding:
    """With the number of steps growing the algorithm converges to a first-order stationary point.

    `left`: the squared norm of the training loss's gradient in the end over the first one, which is to go to 0, here
    below 1 %. It does not follow: at a constant rate the last two terms of equation 17 do not fall with T, so the bound
    gives a neighbourhood. Nor is it so: the bound has no term for the difference between clients, and where they differ
    the mean of W of them moves around the ring and stays away, even without noise. Both are calculated here; equal
    clients without noise do converge. Runs with `network.gradients = true` give it, too.
    """
    return below(left, 0.01)


@CLAIMS.add(
    "V26",
    "A",
    where="section IV.B.1, Figure 3",
    cost="run X19: 3.7 h on two cores",
    of="fedwindow-figure-3",
    measure=_iid,
    subject=_other_network(_iid),
)
def two_is_best_on_iid_data(accuracy: Numbers) -> Finding:
    """On IID CIFAR-10 with ResNet18, W = 2 has the highest accuracy after equally many rounds, also above vanilla.

    `accuracy` by "line" and "trips", of 100 rounds (500 trips): W = 2 above vanilla and W = 3 and 4, at the end, which
    is the mean over the last tenth of the trips, and in the mean over the trips before, in both readings. A trip is
    worth most with W = 2 where clients train from the newest model, and with W = 4 where they train from their own.
    """

    def best(accuracy: Numbers) -> Finding:
        parts = stacked("part", {"before": _before(accuracy), "end": _end(accuracy)})
        return of_all(largest(parts, line="W = 2"), parts, line=LINES, part=["before", "end"])

    return _by_reading(accuracy, best)


@CLAIMS.add(
    "V27",
    "B",
    where="section IV.B.1, Figure 3",
    cost="run X19: 3.7 h on two cores",
    of="fedwindow-figure-3",
    measure=_iid,
    subject=_other_network(_iid),
)
def three_and_four_are_between(accuracy: Numbers) -> Finding:
    """On IID CIFAR-10, W = 3 and W = 4 end slightly lower than W = 2 and still above vanilla.

    `accuracy` by "line" and "trips", at the end, which is the mean over the last tenth of the trips. Slightly, here: by
    2 points at most. Nothing is said of 3 against 4.
    """

    def between_them(accuracy: Numbers) -> Finding:
        end = _end(accuracy)
        lower = end.at(line=["W = 3", "W = 4"]) - end.at(line="W = 2")
        finding = every(below(lower), above(lower, -MARGIN), above(_over_vanilla(accuracy, WINDOWS[1:])))
        return of_all(finding, end, line=LINES)

    return _by_reading(accuracy, between_them)


@CLAIMS.add(
    "V28",
    "A",
    where="section IV.B.1, Figure 4",
    cost="run X19: 3.7 h on two cores",
    of="fedwindow-figure-4",
    measure=_non_iid,
    subject=_other_network(_non_iid),
)
def four_is_comparable_on_non_iid_data(accuracy: Numbers) -> Finding:
    """On non-IID CIFAR-10 with ResNet18, W = 4 is comparable to vanilla.

    `accuracy` by "line" and "trips" (and "split": the paper gives no rule), at the end, which is the mean over the last
    tenth of the trips. Comparable, here: to 2 points, in each split.
    """

    def comparable(accuracy: Numbers) -> Finding:
        gain = _over_vanilla(accuracy, WINDOWS[2:])
        return of_all(
            between(gain, -MARGIN, MARGIN), gain, line=WINDOWS[2:], split=NON_IID, network=gain.labels("network")
        )

    return _by_reading(accuracy, comparable)


@CLAIMS.add(
    "V29",
    "B",
    where="section IV.B.1, Figure 4",
    cost="run X19: 3.7 h on two cores",
    of="fedwindow-figure-4",
    measure=_non_iid,
    subject=_other_network(_non_iid),
)
def two_and_three_are_lower_on_non_iid_data(accuracy: Numbers) -> Finding:
    """On non-IID CIFAR-10, accuracy is lower than vanilla's with W = 2 and with W = 3.

    `accuracy` by "line" and "trips" (and "split": the paper gives no rule), at the end, which is the mean over the last
    tenth of the trips, in each split. Nothing is said of 2 against 3.
    """

    def lower(accuracy: Numbers) -> Finding:
        gain = _over_vanilla(accuracy, WINDOWS[:2])
        return of_all(below(gain), gain, line=WINDOWS[:2], split=NON_IID, network=gain.labels("network"))

    return _by_reading(accuracy, lower)


@CLAIMS.add(
    "V32",
    "A",
    where="section IV.B.2",
    cost="exists for IID digits (X20); two classes a client: minutes",
    of="fedwindow-table-1",
    measure=_trips,
)
def one_and_a_half_times_as_efficient(trips: Numbers) -> Finding:
    """FedWindow is 1.5 times as efficient as synchronous federated learning.

    Efficiency is not defined, and neither W nor data nor split is named. `trips` by "line", "reading", "task",
    "network", "split" and "target": client trips to a target, as Table I counts. Here: vanilla's over the window's, in
    the geometric mean over all windows, tasks and splits, is from 1.25 to 1.8, that is 1.5 to a factor of 1.2, for each
    network and in both readings. If the target is not reached in one of these runs, nothing is decided: the mean of the
    others favours whom they are of. The paper has several competitors; vanilla is the only one that was run.
    """

    def efficient(trips: Numbers) -> Finding:
        speed_up = _speed_ups(trips)
        mean = speed_up.over("split", geometric_mean).over("task", geometric_mean).over("line", geometric_mean)
        finding = _of_table_1(between(mean, 1.5 / FACTOR, 1.5 * FACTOR), speed_up, with_all)
        beyond = len(trips.at(target=BEYOND))
        if not beyond:
            return finding
        missed = f"; {beyond} of {len(counts(trips))} did not reach the target with every seed"
        return Finding(None, finding.words + missed)

    return _by_reading(trips, efficient)


@CLAIMS.add("V34", "B", where="section IV.B.2", cost="exists for IID digits (X20)")
def fedbuff_is_two_and_a_half_times_as_efficient(trips: Numbers) -> Finding:
    """FedBuff is 2.5 times as efficient as FedAsync, its closest asynchronous rival.

    A sentence about FedBuff, for which the paper has no experiment. `trips` by "scheme" (FedAsync, FedBuff): client
    trips to the same target, each at its best rate. Here: the quotient is 2.5 to a factor of 1.2, from 2.08 to 3.
    `python -m benchmarks.claims buffer` counts them on the digits.
    """
    return between(trips.at(scheme="FedAsync") / trips.at(scheme="FedBuff"), 2.5 / FACTOR, 2.5 * FACTOR)


@CLAIMS.add(
    "V35",
    "B",
    where="Table I",
    cost="print; run X20: minutes",
    printed=_printed_trips,
    of="fedwindow-table-1",
    measure=_trips,
)
def fewer_trips_to_a_target(trips: Numbers) -> Finding:
    """With W = 2, 3 and 4 fewer client trips are needed than with vanilla, to 90 % on MNIST and to 60 % on CIFAR-10.

    `trips` by "line", "reading", "task", "network", "split" and "target": vanilla's over the window's, each above 1,
    for each network at hand and in both readings. A run that did not reach the target takes more trips than it had, so
    that the quotient is a bound. Table I is to have the average trips and these quotients; all its cells are empty, so
    print decides nothing. Over what it averages, and which network and split it is of, is not said.
    """

    def fewer(trips: Numbers) -> Finding:
        speed_up = _speed_ups(trips)
        return _of_table_1(above(speed_up, 1.0), speed_up, of_all)

    return _by_reading(trips, fewer)


def _of_table_1(finding: Finding, speed_up: Numbers, whole: Callable[..., Finding]) -> Finding:
    """The finding, if each network at hand has all windows, tasks and splits: `whole` is `of_all` or `with_all`."""
    wanted = {"line": WINDOWS, "task": TASKS, "split": BOTH}
    for network in speed_up.labels("network"):
        finding = whole(finding, speed_up.at(network=network), **wanted)
    return finding


# --- What the identities are calculated with ---

STEPS = 4


def _local(epochs: int = STEPS) -> LocalTraining:
    """A training with all samples of a client in each step; a client has one sample, so an epoch is a step."""
    return LocalTraining(lr=0.1, batch="full", epochs=epochs)


def _trained(w: float, optimum: float) -> float:
    """The model after a client's training from w."""
    local = _local()
    return optimum + (1 - local.lr) ** STEPS * (w - optimum)


def _by_hand(size: int, start: Beginning, steps: int, divisor: int) -> tuple[Floats, Floats]:
    """The models of equation 4, `[steps + 1]`, and U_i - U_j of each step."""
    w = 1.0
    own_models = [w] * CLIENTS
    window = [(client, w) for client in range(size)]
    models = [w]
    moved = []
    for step in range(steps):
        entering = (size + step) % CLIENTS
        received = own_models[entering] if start == "own" else w
        upload = _trained(received, SPREAD[entering])
        leaving, old = window.pop(0)
        window.append((entering, upload))
        w = sum(member for _, member in window) / divisor
        own_models[leaving] = w
        models.append(w)
        moved.append(upload - old)
    return np.array(models), np.array(moved)


def _recursion(size: int, age: int | None, rate: float, steps: int, trains: Training) -> Floats:
    """The models before each step by equation 4, for equal clients with the loss w^2 / 2, of which each goes a share
    `rate` of the way to 0.

    They train from models `age` steps old. Where it is None, the window's models are all the newest, as in the proof.
    """
    models = [1.0]
    uploads = [1.0] * size
    for step in range(steps - 1):
        newest = models[-1]
        if trains == "all":
            uploads = [(1 - rate) * newest] * size
        elif age is None:
            uploads = [*([newest] * (size - 1)), (1 - rate) * newest]
        else:
            uploads = [*uploads[1:], (1 - rate) * models[max(step - age, 0)]]
        models.append(_mean(uploads))
    return np.array(models)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
