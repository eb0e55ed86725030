"""WiMA's claims: what the paper says of its window, as functions of numbers.

Margins are fixed here, before any run, and are our reading: the paper names none. Accuracies are in per cent, their
differences in points. An end is the mean over the last 100 rounds, as in the paper's tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ...averages import Tracker, Window
from ...client import LocalTraining
from ...data import FederatedData
from ...engines import LocalEngine
from ...methods.sampling import Uniform
from ...methods.server_optimisers import FedAdagrad, FedAdam, FedYogi, Server, ServerSGD
from ...network.messages import lengths
from ...server.federation import Federation
from ...vector.spaces import CommonPart, OptimiserState
from ..studies.client_models import client_models
from .claims import (
    NO_NUMBERS,
    Claims,
    Evidence,
    Finding,
    above,
    below,
    between,
    every,
    falling,
    given,
    largest,
    noted,
    of_all,
    rising,
    with_all,
)
from .figures import CurvesFigure
from .measures import of_curves, of_ends, of_table
from .numbers import Key, Label, Numbers, Quantity, stacked
from .pick import pick
from .reproduction import Reproduction
from .results import Results
from .wima import CIFAR_SPLITS, COUNTS, FIGURE_2, FIGURE_3, METHODS, STARTS, TABLE_2, TABLE_3, TABLE_5

CLAIMS = Claims("WiMA")

ROUNDING = 1e-12
"""The largest difference of two numbers near 1 that differ by the rounding of float64 alone."""
RARELY = 0.1
"""What happens in less than this share of the rounds happens rarely."""
COMPARABLE = 2.0
"""The largest difference of two comparable accuracies, in points."""
SUBSTANTIAL = 1.5
"""The least substantial gain, in points: the paper prints gains from here on."""
FLAT = 1.0
"""The most points by which the last quarter of a flat curve is above the one before."""


# --- Print: the tables as evidence, and what is made of them ---

CIFAR = (*CIFAR_SPLITS, "CIFAR-100 PAM")
SPLITS = (*CIFAR, "FEMNIST")
"""The columns of Table 2 that have numbers in print as we have it; Shakespeare's is lost."""
CIFAR_100 = ("CIFAR-100 a=0", "CIFAR-100 a=0.5")
FEDDYN = ("CIFAR-100 a=0", "CIFAR-100 a=0.5", "CIFAR-100 PAM")
"""The columns in which FedDyn has a number; in the others it diverged."""
DATA = ("CIFAR-10", "CIFAR-100")
"""The data sets of Table 4."""
ALPHAS = ("a=0", "a=0.05")
"""The splits of Figure 3."""


def _methods(split: str) -> list[str]:
    """The methods that have a number in a column of Table 2."""
    return [method for method in METHODS if method != "FedDyn" or split in FEDDYN]


def _of_table_2(finding: Finding, numbers: Numbers, splits: Sequence[str] = SPLITS) -> Finding:
    """The finding, which is no yes without the methods that print has in each of these columns."""
    for split in splits:
        finding = of_all(finding, numbers, column=[split], row=_methods(split))
    return finding


def _with_table_2(finding: Finding, numbers: Numbers, splits: Sequence[str] = SPLITS) -> Finding:
    """The finding, which is neither yes nor no without them."""
    for split in splits:
        finding = with_all(finding, numbers, column=[split], row=_methods(split))
    return finding


def _table_2() -> Evidence:
    return {"accuracy": TABLE_2.printed("wima-table-2")}


def _measured_2(results: Results) -> Evidence:
    return {"accuracy": of_table(TABLE_2, results, "wima-table-2")}


def _table_3() -> Evidence:
    return {"accuracy": TABLE_3.printed()}


def _tables_2_and_3() -> Evidence:
    return _table_2() | {"landmarks": TABLE_3.printed()}


def _measured_3(results: Results) -> Evidence:
    return {"accuracy": of_table(TABLE_3, results)}


def _table_4() -> Evidence:
    return {"accuracy": TABLE_2.printed("wima-table-4")}


def _measured_4(results: Results) -> Evidence:
    return {"accuracy": of_table(TABLE_2, results, "wima-table-4")}


def _table_5() -> Evidence:
    return {"accuracy": TABLE_5.printed()}


def _measured_5(results: Results) -> Evidence:
    return {"accuracy": of_table(TABLE_5, results)}


def _gain(accuracy: Numbers) -> Numbers:
    """What the window gains, by row and column of Table 2."""
    return accuracy.at(cell="WiMA") - accuracy.at(cell="base")


GAINS: dict[str, list[float | None]] = {
    "FedAvg": [5.3, 4.2, 4.9, 3.2, None, 1.5],
    "FedAvgM": [2.4, 2.2, 4.5, 2.2, 5.7, None],
    "MIME SGD": [5.7, 4.0, 11.5, 13.1, 3.1, None],
    "MIME SGDm": [1.6, 2.0, 4.3, 4.7, 2.7, None],
    "MIMELite": [3.4, 2.9, 4.7, 3.6, 6.4, None],
    "FedCM": [2.9, 6.3, 5.7, 4.0, None, None],
    "FedACG": [4.8, 3.2, 3.5, 2.7, 2.5, None],
    "FedProx": [5.7, 4.1, 5.0, 3.0, 6.3, None],
    "SCAFFOLD": [2.5, 1.9, 4.1, 2.8, 1.6, None],
    "FedDyn": [None, None, 2.6, 3.7, 5.6, None],
    "AdaBest": [7.9, 5.9, 6.5, 6.4, 2.6, None],
}
"""The gains as Table 2 prints them beside the accuracies, in the order of its columns."""


def _table_2_with_gains() -> Evidence:
    columns = TABLE_2.labels["data"]
    printed: dict[Key, float] = {}
    for row, gains in GAINS.items():
        for column, gain in zip(columns, gains, strict=False):  # the last column is lost
            if gain is not None:
                printed[row, column] = gain
    return _table_2() | {"gains": Numbers.exact(("row", "column"), printed)}


def _tables_2_and_5() -> Evidence:
    """Accuracies with WiMA by split and batch: 100 samples in Table 2, 20 in Table 5."""
    tables = {
        100: TABLE_2.printed("wima-table-2").at(row="FedAvg", column=list(CIFAR_SPLITS), cell="WiMA"),
        20: TABLE_5.printed().at(column="all", cell=""),
    }
    values: dict[Key, Quantity] = {}
    for batch, accuracy in tables.items():
        values |= {("accuracy", split, batch): quantity for (split,), quantity in accuracy.items()}
    return {"numbers": Numbers(("what", "split", "batch"), values)}


# --- Curves: Figures 1 to 3, and windows of Table 4 by round ---


WINDOWS = CurvesFigure(
    "wima-windows",
    "WiMA, Table 4 by round",
    pick(method="FedAvg"),
    lines={
        f"{data}, W = {size}": pick(model, data=f"{data} a=0")
        for data in ("CIFAR-10", "CIFAR-100")
        for size, model in ((100, "wima"), (200, "w200"))
    },
)


def _curves_of(reproduction: Reproduction, place: int = 0) -> CurvesFigure:
    figure = reproduction.figures[place]
    assert isinstance(figure, CurvesFigure)
    return figure


def _full_window(figure: CurvesFigure, results: Results) -> int:
    """The round in which the windows of a figure's runs are full."""
    full = 0
    for line in figure.picks(results.labels):
        for run in results.runs(line):
            average = run.experiment.averages["wima"]
            if isinstance(average, Window):
                full = max(full, average.size)
    return full


def _figure_1(results: Results) -> Evidence:
    """Figure 1's curves by method, cell and round, from the round on after which the window is full."""
    figure = _curves_of(TABLE_2)
    full = _full_window(figure, results)
    curves: dict[Key, Quantity] = {}
    for (label, round), quantity in of_curves(figure, results).items():
        method, _, cell = str(label).partition(" + ")
        if float(round) >= full:
            curves[method, cell or "base", round] = quantity
    return {"curves": Numbers(("method", "cell", "round"), curves)}


def _windows_by_round(results: Results) -> Evidence:
    curves: dict[Key, Quantity] = {}
    for (line, round), quantity in of_curves(WINDOWS, results).items():
        data, _, size = str(line).partition(", W = ")
        curves[data, int(size), round] = quantity
    return {"curves": Numbers(("data", "window", "round"), curves)}


def _early_swa(results: Results) -> Evidence:
    """Figure 2's curves of FedAvg and of SWA with the earliest start."""
    return {"curves": of_curves(_curves_of(FIGURE_2), results).at(line=["FedAvg", EARLY])}


def _full_windows_of_figure_2(results: Results) -> Evidence:
    """Figure 2's curves of FedAvg and WiMA by line and round, from the round on after which the window is full."""
    figure = _curves_of(FIGURE_2)
    full = _full_window(figure, results)
    curves = of_curves(figure, results).at(line=["FedAvg", "WiMA"])
    rounds = [round for round in curves.labels("round") if float(round) >= full]
    return {"curves": curves.at(round=rounds)}


def _ends_of_figure_2(results: Results) -> Evidence:
    return {"accuracy": of_ends(_curves_of(FIGURE_2), results)}


def _ends_of_figure_3(results: Results) -> Evidence:
    """The ends of Figure 3's curves by split, clients a round, and model."""
    ends: dict[Key, Quantity] = {}
    for place, split in enumerate(("a=0", "a=0.05")):
        for (line,), quantity in of_ends(_curves_of(FIGURE_3, place), results).items():
            clients = re.findall(r"\d+", str(line))
            model = "WiMA" if str(line).endswith("+ WiMA") else "FedAvg"
            ends[split, int(clients[0]), model] = quantity
    return {"accuracy": Numbers(("split", "clients", "model"), ends)}


def _part(curves: Numbers, begin: float, end: float) -> Numbers:
    """The curves in a part of the run: after the share `begin` of its rounds, up to the share `end`."""
    rounds = [float(round) for round in curves.labels("round")]
    last = max(rounds, default=0)
    return curves.at(round=[round for round in rounds if begin * last < round <= end * last])


def _evenly(curves: Numbers) -> Numbers:
    """The curves at rounds that are as far apart as the first two: at the end of a run every round is evaluated."""
    rounds = [float(round) for round in curves.labels("round")]
    if len(rounds) < 2:
        return curves
    step = rounds[1] - rounds[0]
    return curves.at(round=[round for round in rounds if (round - rounds[0]) % step == 0])


def _end(curves: Numbers) -> Numbers:
    """The mean over the last hundredth of the rounds: the last 100 of 10,000."""
    return _part(curves, 0.99, 1).over("round")


def _share_below(values: Sequence[float]) -> float:
    """The share of values below 0."""
    return fmean(value < 0 for value in values)


def _roughness(values: Sequence[float]) -> float:
    """The standard deviation of the changes from each value to the next; not a number of a curve that is stuck.

    Stuck is one whose last quarter, of two values at least, does not change: such a model no longer trains, and says
    nothing of smoothness.
    """
    last = values[-max(2, len(values) // 4) :]
    if len(set(last)) == 1:
        return math.nan
    return stdev(later - earlier for earlier, later in pairwise(values))


# --- Identities: a tiny federation in float64, and a window over unit steps ---


def _federation(**settings: Any) -> Federation:
    """Six clients of unequal size, four of them in a round, with random data and a small network in float64."""
    random = np.random.default_rng(0)
    sizes = (7, 12, 3, 20, 9, 1)
    x = random.normal(size=(sum(sizes), 4))
    y = random.integers(0, 3, sum(sizes))
    clients = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    defaults: dict[str, Any] = {
        "data": FederatedData.from_arrays(x, y, clients, test=(x, y), classes=3),
        "local": LocalTraining(lr=0.1, batch=10, epochs=1),
        "sampling": Uniform(4),
        "engine": LocalEngine("sequential", workers=1, block=1, compile=False, threads=1),
        "device": "cpu",
    }
    return Federation(model, **defaults | settings)


@dataclass(frozen=True)
class _Walk:
    """A training: its models `w` `[T + 1, D]`; by round, the `pseudo_gradients` `[T, D]` of eq. 3, and the `steps`
    `[T, D]` that its server optimiser takes for them; and the `window` `[D]` over the last models."""

    w: Tensor
    pseudo_gradients: Tensor
    steps: Tensor
    window: Tensor


def _walk(server: Server, size: int, rounds: int) -> _Walk:
    """The training by a server optimiser, with a window of some `size`.

    A pseudo-gradient is calculated from the single models of the clients, and a step is asked of the optimiser once
    more: neither is a difference of global models.
    """
    with _federation(server=server, averages={"wima": Window(size)}) as federation:
        state = federation.start()
        w = [state.w.clone()]
        pseudo_gradients = []
        steps = []
        for _ in range(rounds):
            models = client_models(federation, state)
            pseudo_gradients.append((models.p[:, None] * (state.w - models.w)).sum(0))
            sent = federation.sharing.common_of(state.w)
            update = CommonPart(-pseudo_gradients[-1])
            memory = OptimiserState({name: value.clone() for name, value in state.optimiser.items()})
            steps.append(state.w - server.step(sent, update, memory)[0])
            state, _ = federation.round(state)
            w.append(state.w.clone())
        window = federation.models(state)["wima"].clone()
    return _Walk(torch.stack(w), torch.stack(pseudo_gradients), torch.stack(steps), window)


def _falling_factors(size: int) -> Tensor:
    """Eq. 6's factors of the steps in a window, oldest first: 1, (W - 1)/W, ..., 1/W."""
    return torch.arange(size, 0, -1).double() / size


def _distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


class _Position(nn.Module):
    """A model whose only parameter is its position `w` `[d]`."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(size, dtype=torch.float64))


def _factors(size: int) -> Tensor:
    """The weight of each of W updates, oldest first, in the mean of a `Window` over the W models that they lead to.

    Update k is the unit vector k, so that entry k of any position is the weight of update k in it.
    """
    position = _Position(size)
    server = ServerSGD()
    tracker = Tracker(Window(size), position)
    for update in torch.eye(size, dtype=torch.float64):
        w, _ = server.step(position.w.detach(), update, {})
        position.w.data.copy_(w)
        tracker.update()
    return tracker.value()["w"]


# --- The claims ---


def mean_and_step(rate: float = 1.0) -> Evidence:
    """The distance of the mean of the clients' models from a step of this rate, in three rounds."""
    walk = _walk(ServerSGD(), size=2, rounds=3)
    gaps: dict[Key, float] = {
        (round,): _distance(walk.w[round + 1], walk.w[round] - rate * walk.pseudo_gradients[round])
        for round in range(3)
    }
    return {"gap": Numbers.exact(("round",), gaps)}


@CLAIMS.add("W3", "B", where="§1, §2, eq. 3", cost="identity", identity=mean_and_step)
def fedavg_is_a_step_of_rate_1(gap: Numbers) -> Finding:
    """FedAvg's mean of the clients' models is one SGD step of rate 1 along the mean of the clients' differences.

    Formula: sum_i p_i w_i = w - 1 * sum_i p_i (w - w_i), with weights p_i of sum 1. `gap`, by round: the largest
    difference of an entry of the two sides, in a federation in float64. It holds if all of them are rounding errors.
    """
    return below(gap, ROUNDING)


def added_by_the_window(**changed: Any) -> Evidence:
    """What a window over two models adds in three rounds; `changed` are further settings of the run with it."""

    def trained(**settings: Any) -> tuple[dict[str, float], Tensor]:
        with _federation(**settings) as federation:
            sent = lengths(federation.training(), None).train
            state = federation.start()
            samples = 0
            for _ in range(3):
                state, report = federation.round(state)
                samples += report.samples
        return {"bytes down": sent.down, "bytes up": sent.up, "samples trained": samples}, state.w

    without, w = trained()
    observed, w_observed = trained(**{"averages": {"wima": Window(2)}} | changed)
    added: dict[Key, float] = {(what,): number - without[what] for what, number in observed.items()}
    added[("distance of the models",)] = _distance(w, w_observed)
    return {"added": Numbers.exact(("what",), added)}


@CLAIMS.add("W4", "A", where="abstract, §1, §2", cost="identity", identity=added_by_the_window)
def clients_do_no_more(added: Numbers) -> Finding:
    """WiMA adds no communication, and no computation at the clients.

    `added`, by what: the run with the window minus the run without it, in bytes to a client and from a client in a
    round, in samples that the clients train on, and in the largest entry of the difference of the last models. All
    must be exactly 0: then the training is the same bit by bit, and so is the clients' work; their time is not
    measured. The server keeps W models, of which the paper says nothing.
    """
    return between(added, 0, 0)


@CLAIMS.add(
    "W5",
    "A",
    where="abstract, §1, contribution 1, §4.2",
    cost="run X15: 1.3 h; CIFAR-100: data not here",
    of="wima-figure-2",
    measure=_full_windows_of_figure_2,
)
def usable_from_the_first_stages(curves: Numbers) -> Finding:
    """WiMA can be used from the first stages of training on, which SWA can't.

    `curves`, by line and round: accuracy of "FedAvg" and "WiMA" from the round on in which the window is full (eq. 4
    needs W models), not smoothed. In each seed the share of evaluations is counted, evenly spaced over the run, in
    which WiMA is below FedAvg: it must be less than a tenth, here, in the first quarter of the run as well as in all
    of it. It is judged of FedAvg, beside which the paper shows SWA; that SWA can't is W30.
    """
    gain = _evenly(curves.at(line="WiMA") - curves.at(line="FedAvg"))
    early = _part(gain, 0, 0.25).over("round", _share_below)
    return every(below(early, RARELY), below(gain.over("round", _share_below), RARELY))


OF_FIGURE_1 = ("FedAvg", "MIME SGD", "FedCM", "AdaBest", "SCAFFOLD")
"""The methods of Figure 1; which ones it has is our reading, but for MIME and SCAFFOLD."""


@CLAIMS.add(
    "W6",
    "A",
    where="abstract, contribution 3, §4.2, Figure 1, conclusion",
    cost="run X14 (FedAvg), X18 (each other method): 18 h on two cores, 12.5 min on a GPU",
    of="wima-table-2",
    measure=_figure_1,
)
def curves_are_smoother(curves: Numbers) -> Finding:
    """A method's curve with WiMA is smoother and steadier than without.

    `curves`, by method, cell ("base", "WiMA") and round: accuracy over the whole run from the round on in which the
    window is full. Roughness is the standard deviation of the changes from each evaluation to the next, evenly spaced,
    in each seed. It must be lower with WiMA, for every method of Figure 1 as it is read here. A curve that no longer
    changes in its last quarter, such as that of a model at chance, decides nothing. The paper names no statistic, and
    of its figure's methods only MIME and SCAFFOLD. Figure 1's runs are evaluated every 20 rounds here.
    """
    roughness = _evenly(curves).over("round", _roughness)
    change = roughness.at(cell="WiMA") - roughness.at(cell="base")
    return of_all(below(change), change, method=OF_FIGURE_1)


@CLAIMS.add(
    "W9",
    "A",
    where="abstract, §1, contribution 1",
    cost="run X15 with three sampling seeds: 4 h; run X14: 18 h on two cores, 12.5 min on a GPU",
)
def robust_to_bad_rounds(drop: Numbers, spread: Numbers) -> Finding:
    """WiMA's model is robust to shifts of the distribution between rounds, and to bad draws of clients.

    `drop`, by model ("base", "WiMA"): by how many points the accuracy falls, on average, in the rounds whose clients
    hold few classes: at most half of all, here. `spread`, by model: the standard deviation, in points, of the ends of
    runs that differ in who is drawn alone, for each seed of the rest. Both must be lower for WiMA than for its base.
    The paper has no experiment of its own for it. They need an evaluation after every round; who took part in a round
    is what the run's sampling draws again.
    """
    drops = drop.at(model="WiMA") - drop.at(model="base")
    spreads = spread.at(model="WiMA") - spread.at(model="base")
    return every(below(drops), below(spreads))


@CLAIMS.add(
    "W10",
    "B",
    where="abstract, §1, §3.2",
    cost="run X15: 1.3 h; run X14: 18 h on two cores, 12.5 min on a GPU",
)
def less_biased_to_the_last_clients(accuracy: Numbers) -> Finding:
    """The window's mean leans less to the clients of the last round, and drifts less with them.

    `accuracy`, by model ("base", "WiMA") and classes ("last round's", "others"): accuracy on the classes that the
    clients of the last round hold, and on the others, over the rounds of the run. The bias is the difference of the
    two in points; it must be lower for WiMA than for its base. The drift from one round's clients to the next one's is
    read as what makes this bias: no number of its own is measured, and the finding says so. It needs the accuracy by
    class after every round.
    """
    bias = accuracy.at(classes="last round's") - accuracy.at(classes="others")
    return noted(below(bias.at(model="WiMA") - bias.at(model="base")), "the drift is judged by this bias alone")


@CLAIMS.add("W11", "B", where="§1, §2", cost="run X15: 1.3 h")
def less_forgetting(accuracy: Numbers) -> Finding:
    """The window's mean keeps what earlier clients knew: less is forgotten.

    `accuracy`, by model ("base", "WiMA") and by how many rounds ago clients took part ("ago": 1, 2, ...): accuracy on
    these clients' data, over the rounds of the run. Two numbers decide, in each seed: on clients of more than one round
    ago WiMA is better than its base, on average over `ago`; and what is forgotten, the accuracy on the last round's
    clients minus this average, is less. It needs the accuracy of every client after many rounds.
    """
    earlier = accuracy.without(ago=1).over("ago")
    forgotten = accuracy.at(ago=1) - earlier
    kept = earlier.at(model="WiMA") - earlier.at(model="base")
    return every(above(kept), below(forgotten.at(model="WiMA") - forgotten.at(model="base")))


def window_and_pseudo_gradients(equal: bool = False) -> Evidence:
    """The distance of a window of four models from eq. 6, for two rates of the server; `equal`: with equal factors."""
    gaps: dict[Key, float] = {}
    for rate in (1.0, 0.5):
        walk = _walk(ServerSGD(rate), size=4, rounds=6)
        factors = _falling_factors(4)
        if equal:
            factors = torch.ones(4).double()
        gaps[(rate,)] = _distance(walk.window, walk.w[2] - rate * (factors @ walk.pseudo_gradients[2:]))
    return {"gap": Numbers.exact(("rate",), gaps)}


@CLAIMS.add(
    "W14",
    "A",
    where="contribution 2, §2, §3.2.1, eq. 5, 6",
    cost="identity",
    identity=window_and_pseudo_gradients,
)
def the_window_is_a_falling_rate(gap: Numbers) -> Finding:
    """The window's mean is the model before the window, moved by its pseudo-gradients with linearly falling weights.

    Formula: wima_{t'+W} = w_{t'} - eta_s * sum_{tau=t'}^{t'+W-1} ((t'+W-tau)/W) G_tau, a server's rate that falls from
    eta_s to eta_s/W. `gap`, by the server's rate: the largest difference of an entry of the two sides in float64, with
    W = 4 and pseudo-gradients from the single models of the clients. It holds if all of them are rounding errors.
    """
    return below(gap, ROUNDING)


OPTIMISERS: dict[str, Server] = {
    "heavy ball": ServerSGD(0.5, momentum=0.9),
    "FedAdagrad": FedAdagrad(0.1),
    "FedAdam": FedAdam(0.1),
    "FedYogi": FedYogi(0.1),
}


def window_and_steps(own_steps: bool = True) -> Evidence:
    """The distance of a window of four models from eq. 7, by optimiser; without `own_steps` from eq. 6."""
    gaps: dict[Key, float] = {}
    for name, server in OPTIMISERS.items():
        walk = _walk(server, size=4, rounds=6)
        steps = walk.steps if own_steps else walk.pseudo_gradients
        gaps[(name,)] = _distance(walk.window, walk.w[2] - _falling_factors(4) @ steps[2:])
    return {"gap": Numbers.exact(("optimiser",), gaps)}


@CLAIMS.add("W15", "B", where="eq. 7, conclusion", cost="identity", identity=window_and_steps)
def any_server_optimiser(gap: Numbers) -> Finding:
    """The window's falling weights hold for the steps of any server optimiser.

    Formula: wima_{t'+W} = w_{t'} - sum_{tau=t'}^{t'+W-1} ((t'+W-tau)/W) u_tau, where u_tau is the step that the
    optimiser takes in round tau. `gap`, by optimiser: the largest difference of an entry of the two sides in float64,
    with W = 4 and steps that the optimiser is asked for apart from the training. It holds if all of them are rounding
    errors.
    """
    return below(gap, ROUNDING)


def off_the_printed_factors() -> Evidence:
    """What the paper says of the factors of a window of eight models, taken from what they are."""
    factors = _factors(8)
    twice = _factors(16)
    off: dict[Key, float] = {
        ("the oldest factor, from 1",): float(factors[0]) - 1,
        ("the newest factor, from 1/W",): float(factors[-1]) - 1 / 8,
        ("the steps, from W - 1",): int(factors.count_nonzero()) - 7,
        ("what doubling W makes of the newest factor, from 2",): float(twice[-1] / factors[-1]) - 2,
    }
    return {"off": Numbers.exact(("what",), off)}


@CLAIMS.add("W16", "B", where="§3.2.1", cost="identity", identity=off_the_printed_factors)
def factors_as_printed(off: Numbers) -> Finding:
    """A window is W - 1 steps, whose factor goes from 1 to 1/W; what is new enters at a rate proportional to W.

    Formula: the factor of step tau is (t'+W-tau)/W, tau = t', ..., t'+W-1. `off`, by what: how far each of the four
    statements (the two ends of the factor, the number of steps, the rate) is from the factors that a window over unit
    steps has, W = 8. It holds if none is off. It is false as printed: these are W steps, not W - 1, and the newest has
    the factor 1/W, which is inversely proportional to W, so that the second and the fourth statement exclude each
    other. The factor is 1 and 1/W at the two ends; the paper says that it tends to them.
    """
    return between(off, -ROUNDING, ROUNDING)


def weights_by_age(place: Literal["position", "velocity"] = "position") -> Evidence:
    """The weight of an update by its age in a window's mean and, with momentum, in the model's place or velocity."""
    momentum = ServerSGD(momentum=0.9)
    size = 8
    w = torch.zeros(size, dtype=torch.float64)
    memory = momentum.init(w)
    for update in torch.eye(size, dtype=torch.float64):
        w, memory = momentum.step(w, update, memory)
    window = _factors(size)
    if place == "velocity":
        w = memory["v"]
    weights: dict[Key, float] = {}
    for age in range(size):  # the update of age a stands at size - 1 - a
        weights["WiMA", age] = float(window[size - 1 - age])
    for age in range(size):
        weights["momentum", age] = float(w[size - 1 - age])
    return {"weight": Numbers.exact(("method", "age"), weights)}


@CLAIMS.add("W17", "B", where="§3.2.1", cost="identity", identity=weights_by_age)
def older_updates_weigh_more(weight: Numbers) -> Finding:
    """In WiMA older updates have more weight than newer ones; in methods with momentum newer ones have more.

    Formula: in the position, an update of some age has the weight (age + 1)/W in WiMA, and the heavy ball
    (1 - beta^(age+1))/(1 - beta). `weight`, by method ("WiMA", "momentum") and age: the weight in the position after 8
    updates. It must rise with age in WiMA and fall with momentum. It is false as printed: with momentum it rises as
    well. What falls with age, as beta^age, is an update's share of the velocity, the next step.
    """
    return every(rising(weight.at(method="WiMA"), "age"), falling(weight.at(method="momentum"), "age"))


@CLAIMS.add(
    "W19",
    "A",
    where="§4.2, Table 2, conclusion",
    cost="print; run X18: 18 h on two cores, 12.5 min on a GPU for each method and split",
    printed=_table_2,
    of="wima-table-2",
    measure=_measured_2,
)
def every_method_gains(accuracy: Numbers) -> Finding:
    """Every method ends better with WiMA, by a substantial or significant gain.

    `accuracy`, by method, split and cell ("base", "WiMA"): ends in per cent. Every gain must be above 0, which over
    seeds means significantly, and each method's mean over the splits at least 1.5 points: this is what is called
    substantial here, since the paper prints no smaller gain. It takes all methods in all columns that print has. In
    print 63 of 63 are above 0, and 51 at least 1.5.
    """
    gain = _gain(accuracy)
    substantial = above(gain.over("column"), SUBSTANTIAL)
    return every(_of_table_2(above(gain), gain), _with_table_2(substantial, gain))


@CLAIMS.add("W20", "B", where="§4.2", cost="print", printed=_tables_2_and_3)
def scaffold_is_best_without(accuracy: Numbers, landmarks: Numbers) -> Finding:
    """Without WiMA SCAFFOLD is the best method overall.

    `accuracy`, by method, split and cell, and `landmarks`, Table 3 by method and column: ends in per cent. In each
    split and on Landmarks, SCAFFOLD's lead over the best of the other methods must be above 0: "overall" is read as
    everywhere. Print contradicts it in two of six splits: FedACG and FedDyn are above it in the fifth, MIMELite and
    MIME SGDm in the sixth. Read as in the mean over the splits it holds: SCAFFOLD leads by 7.5, 67.2 against 59.7; the
    finding names both. On Landmarks, where there are two methods, it leads FedAvg by 4.15.
    """
    base = accuracy.at(cell="base")
    lead = above(base.at(row="SCAFFOLD") - base.without(row="SCAFFOLD").over("row", max))
    two = landmarks.at(cell="", column="without")
    of_two = two.at(row="SCAFFOLD") - two.without(row="SCAFFOLD").over("row", max)
    on_landmarks = above(stacked("data", {"Landmarks": of_two}))
    finding = every(_of_table_2(lead, base), of_all(on_landmarks, two, row=["FedAvg", "SCAFFOLD"]))
    return noted(finding, f"in the mean over the splits {_mean_lead(base)}")


def _mean_lead(base: Numbers) -> str:
    """SCAFFOLD's mean over the splits against the best of the methods that are in all of them, in words."""
    splits = base.labels("column")
    whole = [row for row in base.labels("row") if len(base.at(row=row)) == len(splits)]
    mean = {str(row): quantity.mean for (row,), quantity in base.at(row=whole).over("column").items()}
    scaffold = mean.pop("SCAFFOLD", math.nan)
    return f"{scaffold:.1f} against {max(mean.values(), default=math.nan):.1f}"


OTHER_DATA = ("FEMNIST", "Shakespeare")
"""The columns of Table 2 that are no CIFAR sets."""


@CLAIMS.add("W23", "B", where="§4.2", cost="print", printed=_table_2)
def largest_gains_on_cifar(accuracy: Numbers) -> Finding:
    """WiMA gains most on the CIFAR sets, which are the harder ones.

    `accuracy`, by method, split and cell: ends in per cent. Each CIFAR split's gain, the mean over the methods, must be
    above that of each other data set. That the fifth pair is CIFAR-100 by PAM and the sixth FEMNIST is an inference.
    """
    gain = _gain(accuracy)
    mean = gain.over("row")
    lead = mean.without(column=OTHER_DATA) - mean.at(column=OTHER_DATA).over("column", max)
    return _with_table_2(above(lead), gain)


def _lead_of_the_worst(accuracy: Numbers) -> Numbers:
    """By split, the gain of the method whose base is lowest minus the largest gain of the others.

    The lowest base is that of the mean over the seeds.
    """
    leads: dict[Key, Quantity] = {}
    for column in accuracy.labels("column"):
        split = accuracy.at(column=column)
        base = split.at(cell="base")
        gain = _gain(split)
        if not base:
            continue
        (worst,) = min(base, key=lambda key: base[key].mean)
        lead = gain.at(row=worst) - gain.without(row=worst).over("row", max)
        if () in lead:
            leads[(column,)] = lead[()]
    return Numbers(("column",), leads)


@CLAIMS.add("W24", "B", where="§4.2", cost="print", printed=_table_2, of="wima-table-2", measure=_measured_2)
def worst_methods_gain_most(accuracy: Numbers) -> Finding:
    """WiMA helps the worst methods especially, such as MIME SGD on CIFAR-100, by more than 11 points at both alphas.

    `accuracy`, by method, split and cell: ends in per cent. In both splits of CIFAR-100 the gain of the method with the
    lowest base, minus the largest gain of the others, must be above 0; and MIME SGD's two gains above 11. Print has
    these two, and contradicts the rest: MIME SGD is second lowest in the two, above FedDyn, which gains 2.60 and 3.66.
    Of all six splits the lowest base gains most in one, which the finding names, too.
    """
    gain = _gain(accuracy)
    lead = _lead_of_the_worst(accuracy)
    worst = _with_table_2(above(lead.at(column=CIFAR_100)), gain, CIFAR_100)
    mime = gain.at(row="MIME SGD", column=CIFAR_100)
    finding = every(worst, of_all(above(mime, 11), mime, column=CIFAR_100))
    return noted(finding, f"in all splits {above(lead).words}")


@CLAIMS.add(
    "W25",
    "B",
    where="§4.2",
    cost="print; run X18: 18 h on two cores, 12.5 min on a GPU for each split",
    printed=_table_2,
    of="wima-table-2",
    measure=_measured_2,
)
def the_best_method_gains_too(accuracy: Numbers) -> Finding:
    """SCAFFOLD, overall the best method, ends better with WiMA as well.

    `accuracy`, by method, split and cell: ends in per cent. SCAFFOLD's gain must be above 0 in every split.
    """
    gain = _gain(accuracy).at(row="SCAFFOLD")
    return of_all(above(gain), gain, column=SPLITS)


@CLAIMS.add(
    "W26",
    "B",
    where="§4.1.1, §4.2",
    cost="print; not timed, data not here",
    printed=_table_2,
    of="wima-table-2",
    measure=_measured_2,
)
def gains_on_easier_data(accuracy: Numbers) -> Finding:
    """WiMA also helps on the easier FEMNIST and on Shakespeare, which is not a task of vision.

    `accuracy`, by method, split and cell: ends in per cent. Every gain on the two must be above 0, of all methods but
    FedDyn, which diverged. Print has 10 of 10 for FEMNIST. Shakespeare's column is lost in our source, so print as we
    have it does not decide.
    """
    gain = _gain(accuracy)
    return every(*(_of_table_2(above(gain.at(column=data)), gain, [data]) for data in OTHER_DATA))


@CLAIMS.add("W28", "B", where="Table 2", cost="print", printed=_table_2_with_gains)
def gains_are_differences(accuracy: Numbers, gains: Numbers) -> Finding:
    """The gains that Table 2 prints are the differences of the accuracies beside them.

    `accuracy`, by method, split and cell; `gains`, by method and split: as printed, with one digit. Each gain minus the
    difference must be at most half of the last digit, up to rounding. One is not: FedAvg's on CIFAR-10 at alpha = 0 is
    printed as 5.3, and 69.95 - 64.37 = 5.58.
    """
    half = 0.05 + 1e-9
    off = gains - _gain(accuracy)
    finding = between(off, -half, half)
    for row, printed in GAINS.items():
        there = [column for column, gain in zip(SPLITS, printed, strict=True) if gain is not None]
        finding = of_all(finding, off, row=[row], column=there)
    return finding


@CLAIMS.add(
    "W29",
    "B",
    where="§4.2, Table 3",
    cost="print; not timed, data not here",
    printed=_table_3,
    of="wima-table-3",
    measure=_measured_3,
)
def gains_on_landmarks(accuracy: Numbers) -> Finding:
    """WiMA gains much in classification on a large scale, too, for FedAvg and for SCAFFOLD.

    `accuracy`, by method and column ("without", "with WiMA"): ends in per cent on Landmarks with W = 370. Both gains
    must be above 1.5 points, here (see W19).
    """
    accuracy = accuracy.at(cell="")
    gain = accuracy.at(column="with WiMA") - accuracy.at(column="without")
    return of_all(above(gain, SUBSTANTIAL), gain, row=["FedAvg", "SCAFFOLD"])


EARLY = "SWA c=10 from 25 %"
NOT_LATE: list[Label] = [EARLY, "SWA c=10 from 50 %", "SWA c=10 from 75 %", "SWA c=20 from 75 %"]
LATEST = "SWA c=10 from 95 %"


@CLAIMS.add(
    "W30",
    "A",
    where="§4.2, Figure 2",
    cost="run X15: 1.3 h; CIFAR-100: data not here",
    of="wima-figure-2",
    measure=_early_swa,
)
def early_swa_saturates(curves: Numbers) -> Finding:
    """SWA that is started early saturates, and ends worse than FedAvg.

    `curves`, by line and round: accuracy of "FedAvg" and of SWA on the server from a quarter of the rounds on, which is
    what early means here; the paper states no start but three quarters. SWA must be below FedAvg in the last hundredth
    of the rounds, and flat or falling: the mean of its last quarter is less than a point above that of the one before,
    here.
    """
    early = curves.at(line=EARLY)
    even = _evenly(early)
    rise = _part(even, 0.75, 1).over("round") - _part(even, 0.5, 0.75).over("round")
    return every(below(_end(early) - _end(curves.at(line="FedAvg"))), below(rise, FLAT))


@CLAIMS.add(
    "W31",
    "A",
    where="§4.2, Figure 2",
    cost="run X15: 1.3 h; CIFAR-100: data not here",
    of="wima-figure-2",
    measure=_ends_of_figure_2,
)
def only_late_swa_is_comparable(accuracy: Numbers) -> Finding:
    """SWA ends comparable to WiMA only if it is started close to the last rounds.

    `accuracy`, by line: the ends of "WiMA" and of SWA by start. SWA from 95 % of the rounds on must be within 2 points
    of WiMA, here, and SWA from 25, 50 and 75 % on more than 2 points below it. A start at 90 % may be either. The
    caption of the figure says otherwise (W32).
    """
    gap = accuracy - accuracy.at(line="WiMA")
    finding = every(between(gap.at(line=LATEST), -COMPARABLE, COMPARABLE), below(gap.at(line=NOT_LATE), -COMPARABLE))
    return of_all(finding, gap, line=[LATEST, *NOT_LATE])


@CLAIMS.add(
    "W32",
    "B",
    where="Figure 2, caption",
    cost="run X15: 1.3 h; CIFAR-100: data not here",
    of="wima-figure-2",
    measure=_ends_of_figure_2,
)
def wima_ends_best(accuracy: Numbers) -> Finding:
    """WiMA, which is steady from the beginning, ends better than SWA, which suffers from early starts.

    `accuracy`, by line: the ends of "FedAvg", "WiMA" and of SWA by start. WiMA must be above all others: above SWA from
    every start. The text lets a late start be comparable (W31); so the two differ. Print has FedAvg 23.00 and WiMA
    27.91, and no number of SWA.
    """
    return of_all(largest(accuracy, line="WiMA"), accuracy, line=["WiMA", "FedAvg", *STARTS])


FIGURE_3_COST = "run X16: 3 h on two cores with LeNet-5, 50 min on a GPU with ResNet20"


@CLAIMS.add(
    "W35",
    "A",
    where="contribution 3, §4.2, conclusion, Figure 3",
    cost=FIGURE_3_COST,
    of="wima-figure-3",
    measure=_ends_of_figure_3,
)
def the_gap_to_more_clients_narrows(accuracy: Numbers) -> Finding:
    """WiMA helps to narrow the gap to runs with more clients in a round.

    `accuracy`, by split, clients a round and model ("FedAvg", "WiMA"): ends in per cent. For every larger number of
    clients, FedAvg's gap between it and 10 clients must be smaller if WiMA runs on the 10. Their difference has no part
    of the larger number: WiMA must be above FedAvg, both with 10 clients. Where there is no gap above 0, there is none
    to narrow, and nothing is decided. Where WiMA is better than the larger number, the gap is below 0, and so narrower.
    """
    fedavg = accuracy.at(model="FedAvg")
    more = fedavg.without(clients=10)
    gap = more - fedavg.at(clients=10)
    narrowed = more - accuracy.at(clients=10, model="WiMA")
    counts = [int(count) for count in COUNTS if count != "10"]
    return of_all(given(above(gap), below(narrowed - gap)), narrowed - gap, split=ALPHAS, clients=counts)


def _lead(accuracy: Numbers, split: str, clients: int, more: int) -> Numbers:
    """WiMA's lead over FedAvg with more clients in a round, in points."""
    few = accuracy.at(split=split, clients=clients, model="WiMA")
    return few - accuracy.at(split=split, clients=more, model="FedAvg")


@CLAIMS.add("W36", "B", where="§4.2, Figure 3", cost=FIGURE_3_COST, of="wima-figure-3", measure=_ends_of_figure_3)
def ten_clients_like_fifteen(accuracy: Numbers) -> Finding:
    """At alpha = 0, WiMA with 10 % of the clients is at least comparable to FedAvg with 1.5 times as many.

    `accuracy`, by split, clients a round and model: ends in per cent. WiMA with 10 clients must not be more than 2
    points below FedAvg with 15, here.
    """
    return above(_lead(accuracy, "a=0", 10, 15), -COMPARABLE)


@CLAIMS.add(
    "W37", "B", where="Figure 3, caption (a)", cost=FIGURE_3_COST, of="wima-figure-3", measure=_ends_of_figure_3
)
def ten_clients_above_fifteen(accuracy: Numbers) -> Finding:
    """At alpha = 0, WiMA with 10 % of the clients is above FedAvg with 1.5 times as many.

    `accuracy`, by split, clients a round and model: ends in per cent. WiMA with 10 clients must be above FedAvg with
    15. This is the caption, which is stricter than the text (W36).
    """
    return above(_lead(accuracy, "a=0", 10, 15))


@CLAIMS.add("W38", "B", where="§4.2, Figure 3", cost=FIGURE_3_COST, of="wima-figure-3", measure=_ends_of_figure_3)
def ten_clients_like_twenty(accuracy: Numbers) -> Finding:
    """At alpha = 0.05, WiMA with 10 % of the clients is at least comparable to FedAvg with twice as many.

    `accuracy`, by split, clients a round and model: ends in per cent. WiMA with 10 clients must not be more than 2
    points below FedAvg with 20, here. The caption has five times as many (W41).
    """
    return above(_lead(accuracy, "a=0.05", 10, 20), -COMPARABLE)


@CLAIMS.add(
    "W39",
    "B",
    where="§4.2, Figure 3, caption (a)",
    cost=FIGURE_3_COST,
    of="wima-figure-3",
    measure=_ends_of_figure_3,
)
def twenty_clients_like_fifty(accuracy: Numbers) -> Finding:
    """At alpha = 0, WiMA with 20 % of the clients is comparable to FedAvg with 50 %.

    `accuracy`, by split, clients a round and model: ends in per cent. WiMA with 20 clients and FedAvg with 50 must be
    within 2 points, here.
    """
    return between(_lead(accuracy, "a=0", 20, 50), -COMPARABLE, COMPARABLE)


@CLAIMS.add("W40", "B", where="§4.2, Figure 3", cost=FIGURE_3_COST, of="wima-figure-3", measure=_ends_of_figure_3)
def twenty_clients_above_fifty(accuracy: Numbers) -> Finding:
    """At alpha = 0.05, WiMA with 20 % of the clients is better than FedAvg with 50 %.

    `accuracy`, by split, clients a round and model: ends in per cent. WiMA with 20 clients must be above FedAvg with
    50.
    """
    return above(_lead(accuracy, "a=0.05", 20, 50))


@CLAIMS.add(
    "W41", "B", where="Figure 3, caption (b)", cost=FIGURE_3_COST, of="wima-figure-3", measure=_ends_of_figure_3
)
def ten_clients_almost_like_fifty(accuracy: Numbers) -> Finding:
    """In Figure 3b, WiMA with 10 % of the clients is almost on a par with FedAvg with 50 %.

    `accuracy`, by split, clients a round and model: ends in per cent. WiMA with 10 clients must be below FedAvg with
    50, by at most 2 points, here. That Figure 3b is alpha = 0.05 is inferred from the text, which claims no more than
    twice as many clients (W38).
    """
    return between(_lead(accuracy, "a=0.05", 10, 50), -COMPARABLE, 0)


@CLAIMS.add(
    "W42",
    "B",
    where="§4.2",
    cost="print; run X16: 3 h on two cores with LeNet-5, 50 min on a GPU with ResNet20",
    printed=_tables_2_and_5,
)
def small_batches_show_drift(numbers: Numbers) -> Finding:
    """Batches of 20 mean more local steps, and so a more visible drift of the clients.

    `numbers`, by what, split and batch (100, 20). "accuracy" is the end with WiMA, since print has no other at 20; it
    must be lower with 20. "distance", from runs, is the mean distance of a client's model from the mean of the round's
    clients; it must be larger with 20. Both are what the paper calls visible, so that one of them alone can contradict
    it, and a yes takes both. Print has no distances, and the smaller batch lowers the accuracy in one of four splits:
    it raises it in two, and in CIFAR-100 at alpha = 0 both are 27.91, which may be a slip. So print contradicts itself
    by its accuracies, and the finding names what it lacks. No reproduction has both batches: it needs Table 5's and
    Table 2's runs, with the client models of some rounds.
    """
    change = numbers.at(batch=20) - numbers.at(batch=100)
    accuracy = below(change.at(what="accuracy"))
    distance = above(change.at(what="distance"))
    if distance.words == NO_NUMBERS:
        distance = Finding(None, "there are no distances of clients")
    return of_all(every(accuracy, distance), change, what=["accuracy", "distance"], split=CIFAR_SPLITS)


UP_TO_100: list[Label] = ["W = 5", "W = 10", "W = 50", "W = 100"]


@CLAIMS.add(
    "W43",
    "B",
    where="§4.3, Table 4",
    cost="print; run X14: 18 h on two cores, 12.5 min on a GPU; CIFAR-100: data not here",
    printed=_table_4,
    of="wima-table-2",
    measure=_measured_4,
)
def small_windows_are_worse(accuracy: Numbers) -> Finding:
    """The smaller the window, the worse: it has too little information.

    `accuracy`, by W and data: ends of FedAvg at alpha = 0 in per cent. It must rise from each size to the next, from 5
    over 10 and 50 to 100. Print contradicts it in one of six: CIFAR-100 has 25.70 at W = 10 and 22.75 at W = 50, where
    27.75 is plausible. Read literally, small windows only need to be worse than 100: in print they are, six of six,
    which the finding names.
    """
    ends = accuracy.at(cell="", row=UP_TO_100)
    finding = of_all(rising(ends, "row"), ends, row=UP_TO_100, column=DATA)
    literal = below(ends.without(row="W = 100") - ends.at(row="W = 100"))
    return noted(finding, f"less than W = 100 alone: {literal.verdict}, {literal.words}")


@CLAIMS.add(
    "W44",
    "B",
    where="§4.3",
    cost="run X14: 18 h on two cores, 12.5 min on a GPU",
    of="wima-table-2",
    measure=_windows_by_round,
)
def large_windows_slow_training(curves: Numbers) -> Finding:
    """A very large window slows training, because its updates are outdated.

    `curves`, by data, window (100, 200) and round: accuracy of windows over FedAvg's models. W = 200 must be below
    W = 100 on average over the first quarter of the run, which is where slow training shows, and in its last hundredth.
    Of this print has the ends alone, 1.20 and 0.19 lower.
    """
    change = curves.at(window=200) - curves.at(window=100)
    finding = every(below(_part(change, 0, 0.25).over("round")), below(_end(change)))
    return of_all(finding, change, data=DATA)


@CLAIMS.add(
    "W45",
    "A",
    where="§4.1.3, §4.3, Table 4",
    cost="print; run X14: 18 h on two cores, 12.5 min on a GPU; CIFAR-100: data not here",
    printed=_table_4,
    of="wima-table-2",
    measure=_measured_4,
)
def windows_of_100_are_best(accuracy: Numbers) -> Finding:
    """A window of 100 models is best on both data sets, and so it is used everywhere but on Landmarks.

    `accuracy`, by W and data: ends of FedAvg at alpha = 0 in per cent. W = 100 must be above each other size. Print has
    no spread; its leads over the second are 0.15 and 0.19. For the 370 models of Landmarks there is no such table.
    """
    ends = accuracy.at(cell="")
    return of_all(largest(ends, row="W = 100"), ends, row=[*UP_TO_100, "W = 200"], column=DATA)


@CLAIMS.add(
    "W46",
    "A",
    where="§4.3, Table 5",
    cost="print; run X17: 1.5 h; CIFAR-100: data not here",
    printed=_table_5,
    of="wima-table-5",
    measure=_measured_5,
)
def the_extractor_matters_most(accuracy: Numbers) -> Finding:
    """WiMA acts mainly on the feature extractor.

    `accuracy`, by split and what the window averages: ends of FedAvg with batches of 20, in per cent. The window over
    the extractor alone must be above the one over the classifier alone. FedAvg itself is not printed at this batch, so
    gains over it are not in print. The smallest lead there is 0.17.
    """
    accuracy = accuracy.at(cell="")
    lead = accuracy.at(column="feature extractor only") - accuracy.at(column="classifier only")
    return of_all(above(lead), lead, row=CIFAR_SPLITS)


@CLAIMS.add("W48", "B", where="§4.3, §2, conclusion", cost="run X17: 1.5 h")
def features_are_better(accuracy: Numbers) -> Finding:
    """WiMA's features are better, more robust and less biased, and so the classifier predicts better from them.

    `accuracy`, by split, features ("base", "WiMA") and classifier ("probe", "base"), in per cent with batches of 20. A
    probe is a linear or nearest-mean classifier that is fitted to the features of either model; "base" is FedAvg's own
    classifier, which on WiMA's features is Table 5's second column. With both, WiMA's features must be better, in the
    splits of Table 5. It needs the models of some late rounds.
    """
    gain = accuracy.at(features="WiMA") - accuracy.at(features="base")
    return of_all(above(gain), gain, split=CIFAR_SPLITS, classifier=["probe", "base"])
