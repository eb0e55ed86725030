"""From the uploads of a round's clients to one mean: what is summed, and what becomes of the sums; FedNova, FedGMA."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import isfinite
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..basics.errors import check, check_choice
from ..exchange import Effort
from ..methods import Upload, Vectors


@dataclass(frozen=True)
class Aggregation:
    """The weighted mean of the uploads, summed as they come: memory is O(model), whatever the number of clients.

    A client whose upload holds a non-finite value, or a vector whose Euclidean norm exceeds `limit`, is left out and
    named; the weights of the others are scaled up to sum to 1.
    """

    _: KW_ONLY
    limit: float = 1e6
    uniform: ClassVar[tuple[str, ...]] = ()
    normalises: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self.limit > 0, f"{type(self).__name__}.limit", self.limit, "must be positive")

    def accepts(self, norms: Tensor) -> list[int]:
        """The positions of the clients with these largest norms `[b]` whose upload can be used: the guard."""
        return [i for i, norm in enumerate(norms.tolist()) if isfinite(norm) and norm <= self.limit]

    @property
    def keeps(self) -> bool:
        """Whether single updates are needed after the round, which takes memory for all of them."""
        return False

    def derive(self, upload: Upload, effort: Effort) -> Upload:
        """What is summed, from the uploads `[b, ...]` and the effort of some clients."""
        return upload

    def update(self, mean: Vectors, kept: list[Tensor]) -> Tensor:
        """The round's update `[D]`, from the means of what was summed and the single updates, if they were kept."""
        return mean["delta"]


@dataclass(frozen=True)
class WeightedMean(Aggregation):
    """The weighted mean of the uploads: sum_i p_i * upload_i."""


@dataclass(frozen=True)
class FedNova(Aggregation):
    """Normalised averaging against unequal numbers of local steps (Wang et al. 2020).

        a_i = the sum of the weights with which the gradients of client i enter its update
        w_{t+1} = w_t + tau * sum_i p_i * (w_i - w_t) / a_i,        tau = sum_i p_i * a_i

    For plain SGD a_i is the number of steps. Here it follows the exact recursion of local momentum, of the method's
    proximal term (FedProx, FedACG, FedDyn) and of a rate that moves within the round; published code adds the
    recursions of momentum and the proximal term up, which is not exact. Weight decay is left out, as published. With
    equal steps it is the mean. `tau = "steps"` takes sum_i p_i * K_i, as the official code does with FedProx. The
    weights p_i are the method's; a global momentum is the server optimiser's.
    """

    tau: Literal["coefficients", "steps"] = "coefficients"
    normalises: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("FedNova.tau", self.tau, "coefficients", "steps")

    def derive(self, upload: Upload, effort: Effort) -> Upload:
        assert effort.normaliser is not None
        delta = upload["delta"]
        a = torch.from_numpy(effort.normaliser).to(delta)
        tau = a if self.tau == "coefficients" else torch.from_numpy(effort.steps).to(delta)
        return upload | {"normalised": delta / a.unsqueeze(-1), "tau": tau}

    def update(self, mean: Vectors, kept: list[Tensor]) -> Tensor:
        return mean["tau"] * mean["normalised"]


@dataclass(frozen=True)
class FedGMA(Aggregation):
    """Gradient masked averaging: the coordinates on which clients agree in sign count more (Tenison et al. 2023).

        A = |(1/s) * sum_i sign(w_i - w_t)|,    w_{t+1} = w_t + M * sum_i p_i * (w_i - w_t)    element-wise

    Every client has one vote in A. `mask = "soft"`: M = 1 where A >= `threshold`, else A; `"hard"` (the older, workshop
    form): else 0. `threshold = 0` is the mean.

    `mask = "code"` is what stands behind IMA's published row, the mean in all but a ten-thousandth: FedIMA's code takes
    the plain mean, then subtracts for one client after the other 1e-4/s of its distance from the model so far (from w_t
    for the first), where A > `threshold` and that distance has the vote's sign. That needs every single update.
    """

    threshold: float = 0.8
    mask: Literal["soft", "hard", "code"] = "soft"
    uniform: ClassVar[tuple[str, ...]] = ("sign",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0 <= self.threshold <= 1, "FedGMA.threshold", self.threshold, "must be between 0 and 1")
        check_choice("FedGMA.mask", self.mask, "soft", "hard", "code")

    @property
    def keeps(self) -> bool:
        return self.mask == "code"

    def derive(self, upload: Upload, effort: Effort) -> Upload:
        return upload | {"sign": upload["delta"].sign()}

    def update(self, mean: Vectors, kept: list[Tensor]) -> Tensor:
        delta, vote = mean["delta"], mean["sign"]
        if self.mask == "code":
            return _published_masking(delta, vote, kept, self.threshold)
        agreement = vote.abs()
        agreed = agreement >= self.threshold - 1e-6  # a sum of s terms 1/s is not exact
        return torch.where(agreed, delta, agreement * delta if self.mask == "soft" else 0.0)


AGGREGATIONS: dict[str, type[Aggregation]] = {"mean": WeightedMean, "fednova": FedNova, "fedgma": FedGMA}


def _published_masking(mean: Tensor, vote: Tensor, updates: list[Tensor], threshold: float) -> Tensor:
    """The update `[D]` of FedIMA's published masking, client after client."""
    strong = vote.abs() > threshold + 1e-6
    result, base = mean, torch.zeros_like(mean)
    for update in updates:
        distance = update - base
        agrees = strong & ((distance > 0) == (vote > 0))
        result = result - 1e-4 / len(updates) * distance * agrees
        base = result
    return result
