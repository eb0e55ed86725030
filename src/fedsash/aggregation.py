"""From the uploads of a round's clients to one mean: streaming weighted sums behind a guard; FedNova, FedGMA."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import isfinite
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .checks import check, check_choice
from .methods import Method, Upload, Vectors


@dataclass(frozen=True)
class Effort:
    """How much the clients of a round do: their local `steps` `[s]`, and FedNova's normalisers a_i `[s]`."""

    steps: Tensor
    coefficients: Tensor


@dataclass(frozen=True)
class Mean:
    """The weighted mean of the uploads, summed as they come: memory is O(model), whatever the number of clients.

    A client whose upload holds a non-finite value, or a vector whose Euclidean norm exceeds `limit`, is left out and
    named; the weights of the others are scaled up to sum to 1.
    """

    _: KW_ONLY
    limit: float = 1e6
    uniform: ClassVar[tuple[str, ...]] = ()
    needs_effort: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self.limit > 0, f"{type(self).__name__}.limit", self.limit, "must be positive")

    def begin(self, method: Method, sizes: NDArray[np.int64], effort: Effort | None = None) -> Sums:
        """Empty sums for a round with s clients of `sizes` `[s]` samples; `effort` if the aggregation needs it."""
        return Sums(self, method, sizes, effort)

    @property
    def keeps(self) -> bool:
        """Whether single updates are needed after the round, which takes memory for all of them."""
        return False

    def derive(self, upload: Upload, effort: Effort | None) -> Upload:
        """What is summed, from the uploads `[b, ...]` of some clients."""
        return upload

    def update(self, mean: Vectors, kept: list[Tensor]) -> Tensor:
        """The round's update `[D]`, from the means of what was summed and the single updates, if they were kept."""
        return mean["delta"]


@dataclass(frozen=True)
class FedNova(Mean):
    """Normalised averaging against unequal numbers of local steps (Wang et al. 2020).

        a_i = the sum of the weights with which the gradients of client i enter its update
        w_{t+1} = w_t + tau * sum_i p_i * (w_i - w_t) / a_i,        tau = sum_i p_i * a_i

    For plain SGD a_i is the number of steps. Here it follows the exact recursion of local momentum, of the method's
    tether (FedProx, FedACG, FedDyn) and of a rate that moves within the round; published code adds the recursions of
    momentum and tether up, which is not exact. Weight decay is left out, as published. With equal steps it is the
    mean. `tau = "steps"` takes sum_i p_i * K_i, as the official code does with FedProx. The weights p_i are the
    method's; a global momentum is the server optimiser's.
    """

    tau: Literal["coefficients", "steps"] = "coefficients"
    needs_effort: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("FedNova.tau", self.tau, "coefficients", "steps")

    def derive(self, upload: Upload, effort: Effort | None) -> Upload:
        assert effort is not None
        a, delta = effort.coefficients.to(upload["delta"]), upload["delta"]
        tau = a if self.tau == "coefficients" else effort.steps.to(delta)
        return upload | {"normalised": delta / a.unsqueeze(-1), "tau": tau}

    def update(self, mean: Vectors, kept: list[Tensor]) -> Tensor:
        return mean["tau"] * mean["normalised"]


@dataclass(frozen=True)
class FedGMA(Mean):
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

    def derive(self, upload: Upload, effort: Effort | None) -> Upload:
        return upload | {"sign": upload["delta"].sign()}

    def update(self, mean: Vectors, kept: list[Tensor]) -> Tensor:
        delta, vote = mean["delta"], mean["sign"]
        if self.mask == "code":
            return _published_masking(delta, vote, kept, self.threshold)
        agreement = vote.abs()
        agreed = agreement >= self.threshold - 1e-6  # a sum of s terms 1/s is not exact
        return torch.where(agreed, delta, agreement * delta if self.mask == "soft" else 0.0)


AGGREGATIONS: dict[str, type[Mean]] = {"mean": Mean, "fednova": FedNova, "fedgma": FedGMA}


class Sums:
    """The running weighted sums of one round.

    Clients are added in the round's order, whichever finishes first, so that the result repeats bitwise.
    """

    def __init__(self, rule: Mean, method: Method, sizes: NDArray[np.int64], effort: Effort | None) -> None:
        self._rule, self._effort = rule, effort
        self._uniform_names = method.uniform + rule.uniform
        self._uniform = torch.full((len(sizes),), 1 / len(sizes), dtype=torch.float64)
        by_samples = method.weighting == "samples"
        self._weights = torch.from_numpy(sizes / sizes.sum()) if by_samples else self._uniform
        self._sums: Vectors = {}
        self._kept: list[Tensor] = []
        self._accepted: list[int] = []
        self._asked = len(sizes)

    def add(self, first: int, upload: Upload, norms: Tensor) -> list[int]:
        """Add the uploads `[b, ...]` of the clients at places `first`, `first + 1`, ... of the round.

        `norms` `[b]` is the largest norm among each client's vectors. Returns the positions, from 0 to b - 1, of the
        clients that were accepted.
        """
        good = [i for i, norm in enumerate(norms.tolist()) if isfinite(norm) and norm <= self._rule.limit]
        if good:
            self._accepted += [first + i for i in good]
            places: slice | list[int] = slice(first, first + len(norms))
            if len(good) < len(norms):
                places = [first + i for i in good]
                upload = {name: value[good] for name, value in upload.items()}
            effort = self._effort and Effort(self._effort.steps[places], self._effort.coefficients[places])
            for name, value in self._rule.derive(upload, effort).items():
                self._accumulate(name, value, self._of(name)[places])
            if self._rule.keeps:
                self._kept += upload["delta"].clone()
        return good

    def mean(self) -> Vectors:
        """The weighted means over the accepted clients; empty if there are none."""
        if len(self._accepted) == self._asked:
            return dict(self._sums)
        return {name: total / float(self._of(name)[self._accepted].sum()) for name, total in self._sums.items()}

    def update(self, mean: Vectors) -> Tensor:
        """The round's update `[D]`, which the rule makes of the means."""
        return self._rule.update(mean, self._kept)

    @property
    def accepted(self) -> int:
        """How many clients are in the mean."""
        return len(self._accepted)

    def _of(self, name: str) -> Tensor:
        return self._uniform if name in self._uniform_names else self._weights

    def _accumulate(self, name: str, value: Tensor, weights: Tensor) -> None:
        if name not in self._sums:
            self._sums[name] = torch.zeros_like(value[0])
        if len(value) == 1:
            self._sums[name].add_(value[0], alpha=float(weights[0]))
        else:
            self._sums[name] += (weights.to(value) @ value.reshape(len(value), -1)).view(value.shape[1:])


def largest_norms(upload: Upload) -> Tensor:
    """The largest Euclidean norm among each client's vectors, `[b]`; not a number where a value is not one."""
    norms = [torch.linalg.vector_norm(value.reshape(len(value), -1), dim=1) for value in upload.values()]
    return norms[0] if len(norms) == 1 else torch.stack(norms).amax(dim=0)


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
