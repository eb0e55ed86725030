"""Differential privacy of clients: updates are clipped, and their sum gets Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, TypeAlias

import torch
from annotated_types import Interval
from torch import Tensor

from ..settings.errors import RunError, SettingError, check
from ..settings.limits import Guard, Positive, Remark, Share, Strength
from ..settings.setting import Setting
from ..vector.arrays import Vectors
from ..vector.randomness import Purpose, generator
from ..vector.sharing import Sharing
from .accountant import ACCOUNTED, LEAST_NOISE, MOST_NOISE, Privacy, accounting, known, least_noise, spent, unknown
from .base import Effort, Method, Upload
from .rules import Aggregation, Surroundings
from .sampling import Sampling

NoiseMultiplier: TypeAlias = Annotated[
    float, Interval(ge=0, le=MOST_NOISE), Remark(": the accountant knows no other noise")
]


@dataclass(frozen=True)
class Adaptive(Setting):
    """Adaptive clipping: the clip norm S follows a quantile of the updates' norms (Andrew et al. 2021).

        b_i = 1 if |Delta_i| <= S, else 0
        b = 1/2 + (sum_i (b_i - 1/2) + N(0, sigma_b^2)) / m,    S <- S * exp(-rate * (b - quantile))

    with m the expected number of clients of a round.
    """

    quantile: Share = 0.5
    """the share of updates that shall be shorter than S"""

    rate: Strength = 0.2
    """how fast S moves"""

    noise: Positive | None = None
    """sigma_b, the standard deviation of the noise on the sum of the b_i; left out: the paper's m/20"""

    def sigma(self, expected: float) -> float:
        """The standard deviation of the noise on the sum of the b_i, for `expected` clients in a round."""
        return expected / 20 if self.noise is None else self.noise


@dataclass(frozen=True)
class Private(Aggregation, name="private"):
    """Differential privacy of clients: clipped updates and Gaussian noise, DP-FedAvg (McMahan et al. 2018).

        Delta_i <- Delta_i * min(1, S / |Delta_i|)
        w_{t+1} = w_t + (sum_i Delta_i + N(0, (z S)^2 I)) / m

    with S = `clip`, z = `noise`, and m the expected number of clients of a round. Every client has the same weight, and
    a round without clients adds noise, too. What is made of the update (the server optimiser, averages, a broadcast)
    needs no more noise.

    With `adaptive`, a part of the noise hides the b_i of `Adaptive`: the sum's multiplier is
    (z^-2 - (2 sigma_b)^-2)^(-1/2) instead of z, so that both together are as private as z says.

    After each evaluation the records name epsilon. It needs the sampling `Poisson` or `Uniform`, and a method that
    sends up its update alone, with `weighting = "uniform"`.
    """

    clip: Guard
    """the clip norm S, to which longer updates are shortened; with `adaptive` only the first S. An infinite one clips
    nothing; it goes neither with noise nor with `adaptive`"""

    noise: NoiseMultiplier
    """the noise multiplier z: the standard deviation of the noise on the sum, in multiples of S; 0 adds none"""

    adaptive: Adaptive | None = None
    """how S follows the updates' norms; left out: S stays"""

    delta: Annotated[float, Interval(gt=0, lt=1)] | None = None
    """the delta at which the records name epsilon; left out: N^-1.1, for N clients"""

    least: ClassVar[int] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        requirement = "must be 0, or at least 1e-6: the accountant knows no smaller noise"
        check(self.noise == 0 or self.noise >= LEAST_NOISE, "Private.noise", self.noise, requirement)
        if self.noise > 0 or self.adaptive is not None:
            finite = self.clip < math.inf
            check(finite, "Private.clip", self.clip, "must be finite, since the noise is a multiple of it")

    def refuses(self, federation: Surroundings) -> Iterator[SettingError]:
        yield from super().refuses(federation)
        yield from self._refuses_uploads(federation.method, federation.sharing)
        yield from self._refuses_draws(federation.sampling, len(federation.sizes))
        yield from self._refuses_statistics(federation.averages, federation.sharing)

    def refuses_broadcast(self, broadcast: Any) -> Iterator[SettingError]:
        if broadcast is not None and broadcast.adaptive:
            requirement = (
                "decides by clients' scores, which a Private aggregation does not protect: give a round and one average"
            )
            yield SettingError.at("Broadcast.start, average", (broadcast.start, broadcast.average), requirement)

    def _refuses_uploads(self, method: Method, sharing: Sharing) -> Iterator[SettingError]:
        """The errors of a method whose uploads it does not clip, or whose clients do not count the same."""
        if sharing.means:
            requirement = (
                "must not be 'average': Private does not clip statistics, which show a client's data; let them be "
                "'local'"
            )
            yield SettingError.at("Federation.buffers", sharing.buffers, requirement)
        if method.weighting != "uniform":
            requirement = "must be 'uniform': the update of every client counts the same in a private aggregation"
            yield SettingError.at("method.weighting", method.weighting, requirement)
        if method.overridden & {"probe", "upload"}:
            problem = "has uploads of its own, which Private does not clip: use a method like fedavg, fedprox or fedsam"
            yield SettingError.at("method", type(method).__name__, problem)

    def _refuses_draws(self, sampling: Sampling, clients: int) -> Iterator[SettingError]:
        """The errors of all that the accountant can't work with.

        Raises `LibraryError` if the accountant is needed and not installed.
        """
        if self.delta is None and clients == 1:
            requirement = "must be given for a federation of one client: the default, N^-1.1, is 1"
            yield SettingError.at("Private.delta", self.delta, requirement)
        if type(sampling) not in ACCOUNTED:
            yield unknown(sampling)
            return
        if self.adaptive is not None:
            sigma = self.adaptive.sigma(known(sampling).expected(clients))
            half = self.noise / 2
            if sigma <= half:
                requirement = f"must be above {half:g}, half of Private.noise; None is a twentieth of a round's clients"
                yield SettingError.at("Adaptive.noise", sigma, requirement)
        if self.noise:
            accounting()

    def _refuses_statistics(self, averages: Mapping[str, Any], sharing: Sharing) -> Iterator[SettingError]:
        """The errors of averages whose statistics would be made of clients' samples."""
        if not sharing.layout.norms:
            return
        requirement = (
            "must be 'average' or 'latest': the statistics of the clients' samples have no noise, as Private needs"
        )
        for name in sorted(averages):
            if averages[name].buffers == "re-estimate":
                yield SettingError.at(f"averages.{name}.buffers", "re-estimate", requirement)

    def init(self, sampling: Sampling, clients: int) -> Vectors:
        m = known(sampling).expected(clients)
        return {
            "clip": torch.tensor(self.clip, dtype=torch.float64),
            "expected": torch.tensor(m, dtype=torch.float64),
        }

    def derive(self, upload: Upload, effort: Effort, memory: Vectors) -> Upload:
        delta = upload["delta"]
        clip = float(memory["clip"])
        norms = torch.linalg.vector_norm(delta, dim=1)
        clipped = {"delta": delta * (clip / norms).clamp(max=1).unsqueeze(-1)}
        if self.adaptive is not None:
            clipped["short"] = (norms <= clip).to(delta) - 0.5
        return clipped

    def release(
        self, mean: Vectors, *, clients: int, memory: Vectors, like: Tensor, round: int, seed: int
    ) -> tuple[Vectors, Vectors]:
        clip = float(memory["clip"])
        m = float(memory["expected"])
        draws = generator(seed, Purpose.PRIVACY, round)
        delta = mean["delta"] * (clients / m) if clients else torch.zeros_like(like)
        if self.noise:
            noise = torch.from_numpy(draws.standard_normal(len(delta)))
            delta = delta + (self._multiplier(m) * clip / m * noise).to(delta)
        if self.adaptive is not None:
            short = 0.0
            if clients:
                short = float(mean["short"]) * (clients / m)
            b = 0.5 + short + self.adaptive.sigma(m) / m * draws.standard_normal()
            new_clip = clip * math.exp(-self.adaptive.rate * (b - self.adaptive.quantile))
            memory = memory | {"clip": torch.tensor(new_clip, dtype=torch.float64)}
        return {"delta": delta}, memory

    def check_composed(self, fingerprint: Mapping[str, str], earlier: Mapping[str, str]) -> None:
        if not earlier:
            return
        names = ("aggregation", "sampling", "partition", "clients")
        changed = [name for name in names if fingerprint.get(name) != earlier.get(name)]
        if changed:
            line = f"a fork of a private run must keep its {' and '.join(changed)}: the accountant adds up equal rounds"
            raise RunError(line)

    def privacy(self, sampling: Sampling, clients: int, rounds: int) -> Privacy:
        return spent(self.noise, known(sampling), clients, rounds, self._delta(clients))

    def for_epsilon(self, epsilon: float, sampling: Sampling, clients: int, rounds: int) -> Private:
        """The same rule with the least noise with which `rounds` rounds spend at most `epsilon` (see `least_noise`).

        Raises `SettingError` if there is none, for a sampling that the accountant does not know, and if `adaptive` has
        too little noise for it.
        """
        noise = least_noise(epsilon, known(sampling), clients, rounds, self._delta(clients))
        rule = replace(self, noise=noise)
        for error in rule._refuses_draws(sampling, clients):
            raise error
        return rule

    def _delta(self, clients: int) -> float:
        return self.delta or clients**-1.1

    def _multiplier(self, expected: float) -> float:
        """The noise on the sum of the updates, in multiples of S."""
        if self.adaptive is None:
            return self.noise
        return 1 / math.sqrt(self.noise**-2 - (2 * self.adaptive.sigma(expected)) ** -2)
