"""The rules that make one update of a round's uploads: the weighted mean, FedNova, FedGMA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from math import isfinite
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from ..settings.errors import SettingError, check
from ..settings.limits import Guard, Share
from ..settings.setting import Setting
from ..vector.arrays import Ints, Vectors
from ..vector.sharing import Sharing
from ..vector.spaces import AggregationMemory, CommonPart
from .accountant import Privacy
from .base import Effort, Method, Upload, divided
from .sampling import Sampling


class Surroundings(Protocol):
    """What an aggregation may know of the federation that it is put into; of its clients their `sizes` `[N]`."""

    @property
    def method(self) -> Method: ...

    @property
    def sampling(self) -> Sampling: ...

    @property
    def sizes(self) -> Ints: ...

    @property
    def sharing(self) -> Sharing: ...

    @property
    def averages(self) -> Mapping[str, Any]: ...

    @property
    def broadcast(self) -> Any: ...


@dataclass(frozen=True)
class Aggregation(Setting):
    """The base class of aggregations: the weighted mean of the uploads.

    Uploads are summed as they come, so memory is O(model) for any number of clients. The guard leaves out a client
    whose upload or new state has a value that is not finite, or whose upload is beyond the `limit`. Such clients are
    reported, and the weights of the others are scaled up to sum to 1.
    """

    _: KW_ONLY
    limit: Guard = 1e6
    """the largest Euclidean norm that a vector of an upload may have; a client beyond it is left out of the round"""

    uniform: ClassVar[tuple[str, ...]] = ()
    """Vectors of `derive` that are averaged uniformly, whatever the method's weighting."""
    normalises: ClassVar[bool] = False
    """Whether `derive` needs `Effort.normaliser`. Then clients must step by SGD."""
    keeps_updates: ClassVar[bool] = False
    """Whether the update needs all single uploads of the round, which takes memory for all of them."""
    least: ClassVar[int] = 1
    """A round with fewer usable uploads is skipped. With 0 a round moves the model without any upload, too, whatever
    the executor's `minimum` is."""

    def accepts(self, norms: Tensor) -> list[int]:
        """The guard: the positions of the clients whose upload can be used, given their largest norms `[b]`."""
        return [position for position, norm in enumerate(norms.tolist()) if isfinite(norm) and norm <= self.limit]

    def refuses(self, federation: Surroundings) -> Iterator[SettingError]:
        """The errors of all settings of a federation with which the rule can't be combined."""
        yield from self.refuses_broadcast(federation.broadcast)

    def refuses_broadcast(self, broadcast: Any) -> Iterator[SettingError]:
        """The errors of a broadcast, or of None: an experiment file with one is refused before its data are read."""
        yield from ()

    def init(self, sampling: Sampling, clients: int) -> Vectors:
        """The rule's memory from round to round, as it is before the first one."""
        return {}

    def derive(self, upload: Upload, effort: Effort, memory: Vectors) -> Upload:
        """The vectors `[b, ...]` to sum, from the uploads `[b, ...]` and the effort of some clients.

        `memory` is the rule's, as it was before the round.
        """
        return upload

    def release(
        self, mean: Vectors, *, clients: int, memory: AggregationMemory, like: CommonPart, round: int, seed: int
    ) -> tuple[Vectors, Vectors]:
        """A round's means over `clients` clients as the server may know them, and the rule's memory after the round.

        `memory` is that before the round. An update is `like` the common part `[D]` of the model that was sent.
        """
        return mean, memory

    def update(self, mean: Vectors, updates: list[Tensor]) -> Tensor:
        """The round's update `[D]`, from the means of the `derive`d vectors.

        `updates` are the single updates `[D]` of the accepted clients if the rule `keeps_updates`, else there are none.
        """
        return mean["delta"]

    def check_composed(self, fingerprint: Mapping[str, str], earlier: Mapping[str, str]) -> None:
        """Raise `RunError` if the rounds of a run with this `fingerprint` can't follow those of one with `earlier`."""

    def privacy(self, sampling: Sampling, clients: int, rounds: int) -> Privacy | None:
        """How private so many rounds are, skipped ones included; None if the rule protects nobody."""
        return None


def check_guard(rule: Aggregation) -> None:
    """Raise `SettingError` unless the rule's guard lists positions; here it is asked about one upload, of norm 0.

    The entries of a mask would be taken for the positions 0 and 1.
    """
    positions: Any = rule.accepts(torch.zeros(1))
    fits = isinstance(positions, list) and positions in ([], [0])
    if fits:
        fits = all(type(position) is int or isinstance(position, np.integer) for position in positions)
    requirement = "must be a list of the positions of the clients that are accepted, such as [0, 2] of three"
    check(fits, f"{type(rule).__name__}.accepts", positions, requirement)


@dataclass(frozen=True)
class WeightedMean(Aggregation, name="mean"):
    """The weighted mean of the uploads: sum_i p_i * upload_i."""


@dataclass(frozen=True)
class FedNova(Aggregation, name="fednova"):
    """Normalised averaging against unequal numbers of local steps (Wang et al. 2020).

        a_i = the sum of the weights with which the gradients of client i enter its update
        w_{t+1} = w_t + tau * sum_i p_i * (w_i - w_t) / a_i,        tau = sum_i p_i * a_i

    For plain SGD a_i is the number of steps K_i. Here it follows the exact recursion of SGD's momentum, of the
    method's proximal term (FedProx, FedACG, FedDyn), and of a rate that moves within the round. (Published code adds
    up the recursions of momentum and of the proximal term, which is not exact.) Weight decay is left out, as
    published. If all clients take equal steps, FedNova is the weighted mean, unless `tau = "steps"`. The weights p_i
    are the method's. For a global momentum use the server optimiser.
    """

    tau: Literal["coefficients", "steps"] = "coefficients"
    """what tau is the mean of: "coefficients", the a_i; "steps", the numbers of steps K_i, as in the official code with
    FedProx"""

    normalises: ClassVar[bool] = True

    def derive(self, upload: Upload, effort: Effort, memory: Vectors) -> Upload:
        assert effort.normaliser is not None
        delta = upload["delta"]
        a = torch.from_numpy(effort.normaliser).to(delta)
        tau = a
        if self.tau == "steps":
            tau = torch.from_numpy(effort.steps).to(delta)
        normalised = divided(delta, a.unsqueeze(-1))  # a = 0 if all rates are 0
        return upload | {"normalised": normalised, "tau": tau}

    def update(self, mean: Vectors, updates: list[Tensor]) -> Tensor:
        return mean["tau"] * mean["normalised"]


@dataclass(frozen=True)
class FedGMA(Aggregation, name="fedgma"):
    """Gradient masked averaging: coordinates on which clients agree in sign count more (Tenison et al. 2023).

        A = |(1/s) * sum_i sign(w_i - w_t)|,    w_{t+1} = w_t + M * sum_i p_i * (w_i - w_t)    element-wise

    Every client has one vote in A. M is 1 where A >= `threshold`. Elsewhere it is A with `mask = "soft"`, and 0 with
    "hard" (the form of the earlier workshop paper).

    `mask = "code"` reproduces FedIMA's code, which made IMA's published row. The update u starts as the plain mean.
    Then for each client in turn, with its update Delta_i = w_i - w_t:

        d_i = Delta_i - u (for the first client Delta_i),    u <- u - (1e-4/s) * d_i    where A > threshold
                                                             and d_i has the sign of the vote

    So u differs from the mean by about 1e-4 of an update. This needs the update of every single client.
    """

    threshold: Share = 0.8
    """the agreement A from which on a coordinate counts fully; 0 is the mean, but for `mask = "code"`"""

    mask: Literal["soft", "hard", "code"] = "soft"
    """what becomes of the other coordinates: "soft", they are multiplied by A; "hard", they do not move; "code",
    the rule of FedIMA's code for all"""

    uniform: ClassVar[tuple[str, ...]] = ("sign",)

    @property
    def keeps_updates(self) -> bool:  # type: ignore[override]
        return self.mask == "code"

    def derive(self, upload: Upload, effort: Effort, memory: Vectors) -> Upload:
        return upload | {"sign": upload["delta"].sign().double()}  # in float32 many votes don't add up to 1

    def update(self, mean: Vectors, updates: list[Tensor]) -> Tensor:
        delta = mean["delta"]
        vote = mean["sign"]  # the votes of float32 models are float64
        if self.mask == "code":
            return _published_masking(delta, vote, updates, self.threshold)
        agreement = vote.abs()
        agreed = agreement >= self.threshold - 1e-6  # since a floating-point sum of s terms 1/s is not exact
        if self.mask == "hard":
            return torch.where(agreed, delta, 0.0)
        return torch.where(agreed, delta, agreement.to(delta) * delta)


def _published_masking(mean: Tensor, vote: Tensor, updates: list[Tensor], threshold: float) -> Tensor:
    """The update `[D]` of FedIMA's published masking (see `FedGMA`), from the `vote` `[D]` and all `updates` `[D]`."""
    strong = vote.abs() > threshold + 1e-6
    u = mean
    base = torch.zeros_like(mean)  # for the first client d is its update
    for update in updates:
        d = update - base
        agrees = strong & ((d > 0) == (vote > 0))
        u = u - 1e-4 / len(updates) * d * agrees
        base = u
    return u
