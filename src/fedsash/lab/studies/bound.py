"""FedWindow's bound on the gradient's norms (its equation 17), beside the norms that runs have recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...client import LocalTraining, RoundPlan
from ...evaluation import Curvature
from ...methods import FedAvg
from ...network import ConstantWindow, FedWindow
from ...runs.pictures import Axis, Line, Panel, Picture, look
from ...runs.records import Records
from ...server.federation import Federation
from ...settings.errors import RunError, check, check_count
from ...vector.arrays import Floats
from ...vector.randomness import Purpose, generator
from ..config import NetworkExperiment
from .client_studies import check_settings
from .flatness import curvature_of, hessian_eigenvalues
from .opened import OpenRun, spaced
from .study import Findings, OnProgress, Rows, Study, number, option, unseen

TERMS = ("start", "local", "window")
"""The terms of the bound, in the order of the equation."""

SHOWN = (1, 10, 20, 50, 100, 200, 500)
"""The steps that a table shows, beside the last."""


@dataclass(frozen=True)
class BoundStudy(Study):
    """FedWindow's bound on the mean squared norm of the training loss's gradient (the paper's eq. 17).

        (1/T) sum_{t<T} E||grad F(w^t)||^2
            <= (F(w^0) - F*)/(eta E T) + L eta E sigma_l^2/(2 W) + L eta E sigma_g^2/(2 W^2)

    The expectation is the mean over the runs, which differ in their seed; the factor E is the number of local steps.
    The norms are those that the runs have recorded in every step (`network.gradients = true`, `evaluation.every = 1`).
    The other constants are measured at the first model and at those of the saved rounds: L is the largest eigenvalue of
    the Hessian over `samples` training samples; sigma_l^2 the largest variance of a client's mini-batch gradients, over
    `batches` of a size; sigma_g^2 follows from it, see `bound`. F* is `least`; 0 bounds a loss that is never negative.

    Raises `RunError` if a run is not of FedWindow with a constant window, or not of plain SGD with one rate, or lacks
    norms.
    """

    kinds: ClassVar = ("bound",)
    takes: ClassVar = "together"
    examples: ClassVar = """\
  fedsash bound runs/window
  fedsash bound runs/a runs/b runs/c --least 0.21 --samples all
"""

    least: float = field(default=0.0, metadata=option("F*, the least training loss", metavar="F"))
    batches: int = field(default=10, metadata=option("batches of each client, of each size", metavar="N"))
    samples: int | None = field(
        default=1000, metadata=option("at most N training samples for the Hessian, or all", metavar="N", none="all")
    )

    def __post_init__(self) -> None:
        check_count("BoundStudy.batches", self.batches)

    def measure(self, runs: Sequence[OpenRun], progress: OnProgress = unseen) -> dict[str, Any]:
        size, rate = _same([_window(run) for run in runs])
        check_settings(runs)
        norms = [_squared_norms(run) for run in runs]
        trips = min(map(len, norms))
        squared_norms = np.mean([of_run[:trips] for of_run in norms], axis=0)
        constants = self._constants(runs, progress)
        federation = runs[0].federation
        plan = RoundPlan.mean(federation.local, federation.method, federation.sizes)
        steps = float(plan.steps.mean())
        terms = np.array([bound(constants, rate, steps, size, t) for t in range(1, trips + 1)])
        return {
            "title": f"{runs[0].folder.name}: FedWindow's bound",
            "runs": len(runs),
            "window": size,
            "rate": rate,
            "steps": steps,
            "least": self.least,
            "constants": constants._asdict(),
            "trips": list(range(1, trips + 1)),
            "squared_norms": squared_norms,
            "mean": squared_norms.cumsum() / np.arange(1, trips + 1),
            "terms": dict(zip(TERMS, terms.T, strict=True)),
        }

    def _constants(self, runs: Sequence[OpenRun], progress: OnProgress) -> Constants:
        """The largest L and sigma_l^2 along the runs, and the mean of their first losses above F*."""
        smoothness = []
        noise = []
        first_losses = []
        for done, run in enumerate(runs, start=1):
            federation = run.federation
            start = federation.start().w
            first_losses.append(training_loss(federation).loss(start))
            curvature = training_loss(federation, self.samples)
            models = [start, *(run.state(round).w for round in run.rounds)]
            for w in models:
                eigenvalues = hessian_eigenvalues(curvature, w, tolerance=1e-2).values
                smoothness.append(float(eigenvalues[0]))
                for client in range(len(federation.sizes)):
                    noise.append(batch_noise(federation, w, client, self.batches))
            progress(done, len(runs))
        return Constants(max(smoothness), max(noise), fmean(first_losses) - self.least)

    @staticmethod
    def table(findings: Findings) -> Rows:
        heads = ["steps", "mean of\n||grad F||^2", "bound"]
        heads += [f"{name}\nterm" for name in TERMS]
        yield heads
        last = len(findings["trips"])
        steps = [step for step in SHOWN if step < last]
        for t in [*steps, last]:
            terms = [findings["terms"][name][t - 1] for name in TERMS]
            values = [findings["mean"][t - 1], _sum(terms), *terms]
            texts = [number(value, 3) for value in values]
            yield [str(t), *texts]

    @staticmethod
    def picture(findings: Findings) -> Picture:
        """The norms, their mean up to each trip, and the bound on it."""
        trips = findings["trips"]
        terms = findings["terms"]
        columns = [terms[name] for name in TERMS]
        total = [_sum(parts) for parts in zip(*columns, strict=True)]
        lines = [
            Line("squared norm", trips, findings["squared_norms"], look(1)),
            Line("its mean so far", trips, findings["mean"], look(0)),
            Line("the bound on the mean", trips, total, look(2)),
            Line("the bound without noise", trips, terms["start"], look(3)),
        ]
        panel = Panel("gradient", Axis("server steps", log=True), Axis("squared norm", log=True), lines, width=5.6)
        caption = (
            "The bound's constants are measured along the runs. Where the mean is above the bound, the bound is wrong."
        )
        return Picture(findings["title"], [panel], caption=caption)


class Constants(NamedTuple):
    """What the bound needs to know of loss and models: L, sigma_l^2, and F(w^0) - F*."""

    smoothness: float
    noise: float
    gap: float


def bound(constants: Constants, rate: float, steps: float, size: int, trips: int) -> Floats:
    """The three terms of the bound `[3]` for the rate eta, E local `steps`, the window's size W and T `trips`.

        (F(w^0) - F*) / (eta E T),    L eta E sigma_l^2 / (2 W),    L eta E sigma_g^2 / (2 W^2)

    sigma_g^2 bounds E||(1/W) sum over W - 1 clients of (g_k - grad F_k)||^2. Clients draw their batches independently,
    so it is (W - 1)/W^2 sigma_l^2.
    """
    smoothness, noise, gap = constants
    of_window = (size - 1) / size**2 * noise
    drift = smoothness * rate * steps / 2
    return np.array([gap / (rate * steps * trips), drift * noise / size, drift * of_window / size**2])


def batch_noise(federation: Federation, w: Tensor, client: int, batches: int, seed: int = 0) -> float:
    """E||g - grad F_i||^2 of a client's mini-batch gradients g at `w` `[D]`: a mean over `batches` random batches.

    The batches are those that its training takes of passes over its samples, each in a random order. If the last batch
    of a pass is smaller, there is a mean over as many batches of its size, and the larger mean counts. It is 0 if a
    batch holds all samples.
    """
    index = torch.from_numpy(federation.training_data.clients[client])
    local = federation.local
    if local.batch == "full" or local.batch >= len(index):
        return 0.0
    _, most = local.amount_range
    work = local.batching.workload(np.array([len(index)]), most)
    of_pass = min(int(work.per_epoch[0]), int(work.steps[0]))
    random = generator(seed, Purpose.DIRECTION, client)
    mean = _gradient(federation, w, index)
    squared_distances: dict[int, list[float]] = {}
    for _ in range(batches):
        order = torch.from_numpy(random.permutation(len(index)))
        for batch in torch.split(index[order], local.batch)[:of_pass]:
            of_size = squared_distances.setdefault(len(batch), [])
            if len(of_size) < batches:
                difference = _gradient(federation, w, batch) - mean
                of_size.append(float(difference.square().sum()))
    return max(map(fmean, squared_distances.values()))


def training_loss(federation: Federation, count: int | None = None) -> Curvature:
    """F and its derivatives: the mean loss over all clients' training samples, or over `count` evenly spaced ones.

    A sample that several clients hold counts for each of them, as in the recorded gradient norms.
    """
    data = federation.training_data
    index = torch.from_numpy(np.concatenate(data.clients))
    if count is not None:
        index = index[spaced(len(index), count)]
    return curvature_of(federation, data.train[index.to(data.train.y.device)])


def _gradient(federation: Federation, w: Tensor, index: Tensor) -> Tensor:
    """The gradient `[D]` of the mean loss over some training samples."""
    train = federation.training_data.train
    return curvature_of(federation, train[index.to(train.y.device)]).gradient(w)


def _sum(terms: Sequence[float | None]) -> float | None:
    """The sum of terms, unknown if one of them is."""
    numbers = [term for term in terms if term is not None]
    if len(numbers) < len(terms):
        return None
    return sum(numbers)


def _window(run: OpenRun) -> tuple[int, float]:
    """The window's size W and the clients' rate. Raises `RunError` if the bound is not about the run."""
    experiment = run.experiment
    scheduler = None
    if isinstance(experiment, NetworkExperiment):
        scheduler = experiment.scheduler
    if not isinstance(scheduler, FedWindow) or not isinstance(scheduler.window, ConstantWindow):
        raise RunError(f"{run.folder}: the bound is for the scheduler fedwindow with a constant window")
    if type(run.federation.method) is not FedAvg:
        raise RunError(f"{run.folder}: the bound is for clients that follow the plain gradient: fedavg")
    local = run.federation.local
    plain = LocalTraining(lr=local.lr, batch=local.batch, epochs=local.epochs, steps=local.steps)
    if local != plain:
        raise RunError(
            f"{run.folder}: the bound is for plain SGD with one rate: leave all but lr, batch and amount out"
        )
    return scheduler.window.size, local.lr


def _same(settings: Sequence[tuple[int, float]]) -> tuple[int, float]:
    """The window's size and the rate of all runs. Raises `SettingError` if runs differ in them."""
    check(len(set(settings)) == 1, "bound: (W, rate)", settings, "must be the same in all runs")
    return settings[0]


def _squared_norms(run: OpenRun) -> Floats:
    """||grad F(w^t)||^2 for t = 0, ..., T - 1, `[T]`. Raises `RunError` if one was not recorded."""
    federation = run.federation
    norms = [float(training_loss(federation).gradient(federation.start().w).norm())]
    recorded = {}
    for t, load in Records(run.folder).load().network.items():
        if "gradient_norm" in load.measures:
            recorded[t] = load.measures["gradient_norm"]
    if not recorded:
        raise RunError(f"{run.folder} has no gradient norms: set network.gradients and evaluation.every")
    for t in range(1, max(recorded)):
        if t not in recorded:
            raise RunError(f"{run.folder} has no gradient norm of step {t}: set network.gradients and evaluation.every")
        if recorded[t] is None:
            raise RunError(f"{run.folder}: the gradient norm of step {t} is not finite, so its mean is none")
        norms.append(recorded[t])
    return np.square(norms)
