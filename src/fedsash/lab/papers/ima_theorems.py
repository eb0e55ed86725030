"""What IMA's theory says, calculated in float64: its lemma, its theorems and a corollary, on small models.

Each function has an argument for the piece of the statement that decides it, so that a wrong piece shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from ...client import LocalTraining
from ...data.federated import FederatedData
from ...engines import LocalEngine
from ...methods.sampling import Uniform
from ...server.federation import Federation
from ...server.state import State
from ...vector.arrays import Floats
from ..studies.client_models import client_models
from ..studies.decomposition import Decomposition, decompose, predictions, probabilities
from .claims import Evidence
from .numbers import Key, Numbers

SIZES = (12, 7, 20, 9)
"""The numbers of samples of the clients."""
RUNS = 3
"""The runs over which expectations are means. They differ in the order of batches."""
ROUNDS = 3
SHRINKAGES = (1 / 4, 1 / 8, 1 / 16, 1 / 32)
"""The shares of the clients' distances from their mean at which an order is measured."""
SPACINGS = (3.0, 4.0, 5.0)
"""The distances between a client's neighbouring points, in the widths of the kernel."""

Mean: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""A mean `[R, D]` of client models `[R, K, D]` whose clients hold the shares `[K]` of the data."""


def weighted_mean(w: Tensor, p: Tensor) -> Tensor:
    """The mean of the clients' models by their numbers of samples: the model that FedAvg makes."""
    return torch.einsum("k,rkd->rd", p, w)


def plain_mean(w: Tensor, p: Tensor) -> Tensor:
    """The mean in which all clients count the same."""
    return w.mean(1)


@dataclass(frozen=True, eq=False)
class Trained:
    """The models `w` `[R, K, D]` of K clients in R runs on the same `data`, and the clients' shares `p` `[K]` of it."""

    module: nn.Module
    data: FederatedData
    w: Tensor
    p: Tensor

    @property
    def y(self) -> Tensor:
        """The targets `[n, c]` of all samples."""
        return torch.eye(3, dtype=torch.float64)[self.data.train.y]

    def shrunk(self, share: float, towards: Tensor | None = None) -> Tensor:
        """The clients' models at a share of their way from a centre `[R, D]`, by default their mean."""
        if towards is None:
            towards = weighted_mean(self.w, self.p)
        centre = towards.unsqueeze(1)
        return centre + share * (self.w - centre)

    def answers(self, w: Tensor) -> Tensor:
        """The probabilities `[..., n, c]` that models `[..., D]` give for all samples."""
        return probabilities(self.module, w, self.data.train, self.data)

    def ensemble(self, w: Tensor) -> Tensor:
        """The weighted mean `[R, n, c]` of the answers of client models `[R, K, D]`."""
        return torch.einsum("k,rknc->rnc", self.p, self.answers(w))

    def loss(self, f: Tensor) -> float:
        """The squared error of answers `[R, n, c]`: summed over classes, the mean over samples and runs."""
        return float((self.y - f).square().sum(-1).mean())

    def parts(self, w: Tensor) -> Decomposition:
        """The decomposed error of the ensemble of client models `[R, K, D]`."""
        return decompose(*predictions(self.module, w, self.data, range(w.shape[1])), self.p)

    def along(self, w: Tensor, direction: Tensor) -> Tensor:
        """The derivative `[R, n, c]` of the answers of models `[R, D]` in directions `[R, D]`, by central differences.

        Their error is of the order of the square of the step.
        """
        step = 1e-4
        return (self.answers(w + step * direction) - self.answers(w - step * direction)) / (2 * step)


@cache
def trained() -> Trained:
    """Clients of unequal sizes, each with few labels, after a few rounds of FedAvg."""
    clients = []
    for seed in range(RUNS):
        federation, state = _after(ROUNDS, seed)
        with federation:
            clients.append(client_models(federation, state, np.arange(len(SIZES))))
    w = torch.stack([models.w for models in clients])
    return Trained(federation.module, federation.training_data, w, clients[0].p)


@cache
def better_model() -> Tensor:
    """The global models `[1, D]` of a run that has gone on for long."""
    _, state = _after(20 * ROUNDS, seed=0)
    return state.w.unsqueeze(0)


def _after(rounds: int, seed: int) -> tuple[Federation, State]:
    """The federation of four clients, and its state after some rounds."""
    random = np.random.default_rng(0)
    n = sum(SIZES)
    x = random.normal(size=(n, 4))
    labels = (x @ random.normal(size=(4, 3))).argmax(-1)
    clients = np.split(np.argsort(labels, kind="stable"), np.cumsum(SIZES)[:-1])  # each has few labels
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    federation = Federation(
        model=module,
        data=FederatedData.from_arrays(x, labels, clients, classes=3),
        local=LocalTraining(lr=0.1, batch=5, epochs=2),
        sampling=Uniform(len(SIZES)),
        engine=LocalEngine("sequential", workers=1, block=1, compile=False, memory_format="contiguous", threads=1),
        device="cpu",
        seed=seed,
    )
    with federation:
        state = federation.start()
        for _ in range(rounds):
            state, _ = federation.round(state)
    return federation, state


def order(gap: Callable[[float], float]) -> Numbers:
    """The order in the clients' distances in which a gap vanishes: log2 of the gap at a share over that at its half.

    By "share", the share of the way from the mean at which the clients are.
    """
    gaps = [gap(share) for share in SHRINKAGES]
    orders: dict[Key, float] = {}
    for share, (far, near) in zip(SHRINKAGES, pairwise(gaps), strict=False):
        orders[(share,)] = float(np.log2(far / near))
    return Numbers.exact(("share",), orders)


def in_two_parts(variance: Callable[[Tensor], Tensor] = lambda f: f.var(0, correction=0)) -> Evidence:
    """Bias and variance of one client's model (eq. 2): the largest gap of the equation over the samples.

    `variance` is that of answers `[R, n, c]` over the runs.
    """
    world = trained()
    f = world.answers(world.w[:, 0])
    error = (world.y - f).square().sum(-1).mean(0)
    bias = (world.y - f.mean(0)).square().sum(-1)
    gap = error - bias - variance(f).sum(-1)
    return {"gap": Numbers.exact((), {(): float(gap.abs().max())})}


def expansion(displaced: Mean = weighted_mean, factor: float = 1) -> Evidence:
    """What is left of ensemble minus one model after the lemma's term of first order, about the clients' plain mean.

    `displaced` is the mean of the clients' displacements, with which the gradient, times a `factor`, is multiplied.
    """
    world = trained()

    def left(share: float) -> float:
        w = world.shrunk(share)
        centre = plain_mean(w, world.p)
        displacement = displaced(w - centre.unsqueeze(1), world.p)
        gap = world.ensemble(w) - world.answers(centre)
        return float((gap - factor * world.along(centre, displacement)).norm())

    return {"order": order(left)}


def first_order(mean: Mean = weighted_mean) -> Evidence:
    """The mean displacement of the clients from their `mean`, in distances of the farthest, and the gap's order."""
    world = trained()
    apart = world.w - mean(world.w, world.p).unsqueeze(1)
    displacement = weighted_mean(apart, world.p).norm(dim=-1) / apart.norm(dim=-1).amax(1)

    def gap(share: float) -> float:
        w = world.shrunk(share)
        return float((world.ensemble(w) - world.answers(mean(w, world.p))).norm())

    return {"displacement": Numbers.exact((), {(): float(displacement.max())}), "order": order(gap)}


def five_factors(sums: Callable[[Decomposition], Tensor] | None = None) -> Evidence:
    """Theorem 1: the gap of the ensemble's loss and the sum of the terms, and the order of the averaged model's gap.

    `sums` `[n]` gives the sum of the terms.
    """
    world = trained()
    sums = sums or three_terms

    def gap(share: float) -> float:
        w = world.shrunk(share)
        loss = world.loss(world.answers(weighted_mean(w, world.p)))
        return abs(loss - float(sums(world.parts(w)).mean()))

    exact = world.loss(world.ensemble(world.w)) - float(sums(world.parts(world.w)).mean())
    return {"gap": Numbers.exact((), {(): abs(exact)}), "order": order(gap)}


def three_terms(parts: Decomposition) -> Tensor:
    """The theorem's sum, with the square on the sum of biases, as in the paper's appendix."""
    return parts.bias + parts.variance + parts.covariance


def without_square(parts: Decomposition) -> Tensor:
    """The sum as the main text prints it: the biases' sum counts by its size."""
    return parts.bias.sqrt() + parts.variance + parts.covariance


def of_all_pairs(parts: Decomposition) -> Tensor:
    """The sum in which the covariances are also those of each client with itself, as in eq. 12."""
    return three_terms(parts) + parts.variance


def losses(mean: Mean = weighted_mean) -> Evidence:
    """Loss of the averaged model and of the ensemble: their gap's order, and it over what the output gap allows.

    | ||y - a||^2 - ||y - b||^2 | is at most ||a - b|| (||y - a|| + ||y - b||). `mean` makes the averaged model.
    """
    world = trained()

    def answers(share: float) -> tuple[Tensor, Tensor]:
        w = world.shrunk(share)
        return world.answers(mean(w, world.p)), world.ensemble(w)

    def gap(share: float) -> float:
        one, all_of_them = answers(share)
        return abs(world.loss(one) - world.loss(all_of_them))

    ratios: dict[Key, float] = {}
    for share in SHRINKAGES:
        one, all_of_them = answers(share)
        sizes = (world.y - one).norm(dim=-1) + (world.y - all_of_them).norm(dim=-1)
        ratios[(share,)] = gap(share) / float(((one - all_of_them).norm(dim=-1) * sizes).mean())
    return {"ratio": Numbers.exact(("share",), ratios), "order": order(gap)}


def nearer_clients(towards: Tensor | None = None) -> Evidence:
    """The change of the averaged model's loss when its clients come nearer to each other.

    They come nearer to their mean, or to the models `towards` `[1, D]`. By the share of their distances that is left.
    """
    world = trained()
    before = world.loss(world.answers(weighted_mean(world.w, world.p)))
    changes: dict[Key, float] = {}
    if towards is not None:
        towards = towards.expand(RUNS, -1)
    for share in SHRINKAGES:
        w = world.shrunk(share, towards)
        changes[(share,)] = world.loss(world.answers(weighted_mean(w, world.p))) - before
    return {"change": Numbers.exact(("share",), changes)}


def pair_covariances(least: Callable[[Tensor], Tensor] = lambda pairs: pairs.amin(0)) -> Evidence:
    """Corollary 1: mean covariance minus its bound, with pairs of two clients, and with each client's own, too.

    `least` `[n]` is the bound's covariance at each sample, of those of all pairs of two clients `[pairs, n]`.
    """
    f = trained().answers(trained().w)
    k = f.shape[1]
    apart = f - f.mean(0)
    between = torch.einsum("rinc,rjnc->ijn", apart, apart) / f.shape[0]
    pairs = between[~torch.eye(k, dtype=torch.bool)]
    bound = (k - 1) / k * float(least(pairs).mean())
    sums = {"two clients": pairs.sum(0), "all pairs": between.sum((0, 1))}
    slack: dict[Key, float] = {(reading,): float(total.mean()) / k**2 - bound for reading, total in sums.items()}
    return {"slack": Numbers.exact(("pairs",), slack)}


def kernel_variance(power: int = 1) -> Evidence:
    """Theorem 2: variance of a Gaussian process on all data minus the theorem's sum, in units of epsilon.

    MMD is taken in the space of the kernel to a `power`. By "pairs", whether a sample's pair with itself counts among
    the client's own, and by "epsilon", the largest kernel of two of the client's samples.
    """
    remainders: dict[Key, float] = {}
    for spacing in SPACINGS:
        own = spacing * np.arange(5.0)
        everyone = np.concatenate([own + shift for shift in (0.0, 0.3, -0.5, 5.0 * spacing)])
        size = 2.0
        n = len(own)
        inner = _kernel(own, own, size)
        across = _kernel(everyone, own, size)
        whole = _kernel(everyone, everyone, size)
        explained = np.einsum("ij,ji->i", across, np.linalg.solve(inner, across.T))
        variance = float((whole.diagonal() - explained).mean())
        epsilon = float(inner[~np.eye(n, dtype=bool)].max())
        own_pairs = {"all": inner**power, "distinct": (inner * (1 - np.eye(n))) ** power}
        for pairs, within in own_pairs.items():
            mmd = float(within.mean() - 2 * (across**power).mean() + (whole**power).mean())
            sums = n / (2 * size) * mmd + float(whole.diagonal().mean()) - n / (2 * size) * float((whole**2).mean())
            remainders[pairs, epsilon] = abs(variance - sums) / epsilon
    return {"remainder": Numbers.exact(("pairs", "epsilon"), remainders)}


def _kernel(a: Floats, b: Floats, size: float) -> Floats:
    """A Gaussian kernel of width 1 between points on a line."""
    return np.asarray(size * np.exp(-((a[:, None] - b) ** 2) / 2))
