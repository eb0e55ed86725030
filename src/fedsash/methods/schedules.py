"""Schedules of the clients' learning rate: by round, and by local step within a round.

A schedule by round is a function of the number `t` of finished rounds, which is the 0-based index of the next round,
and of the learning rate `lr` (or the number of local epochs) in `LocalTraining`. A schedule by local step gives a
factor on this rate. Schedules remember nothing, so every client, engine and resumed run gets the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, pi
from typing import Annotated, Literal

import numpy as np
from annotated_types import Interval

from ..settings.errors import MOST, check
from ..settings.limits import Count, CountFromZero, Factor, Strength
from ..settings.setting import Accepts, Setting, dataclass
from ..vector.arrays import Floats, Ints


class Schedule(Setting):
    """The base class of schedules by round; it changes nothing."""

    def lr(self, t: int, lr: float) -> float:
        """The learning rate of the round after `t` finished rounds, from the setting `lr`."""
        return lr

    def epochs(self, t: int, epochs: int) -> int:
        """The number of local epochs in the round after `t` finished rounds, from the setting `epochs`."""
        return epochs

    @property
    def moves_epochs(self) -> bool:
        """Whether the number of epochs changes from round to round."""
        return False


@dataclass(frozen=True)
class Constant(Schedule, name="constant"):
    """The same learning rate in every round."""


@dataclass(frozen=True)
class Exponential(Schedule, name="exponential"):
    """Exponential decay, `lr * decay^t`: 0.99 in IMA, 0.998 in FedSWA."""

    decay: Factor
    """the factor of each round"""

    def lr(self, t: int, lr: float) -> float:
        return lr * self.decay**t


@dataclass(frozen=True)
class Cosine(Schedule, name="cosine"):
    """Half a cosine from `lr` down to `floor`, which is reached after `rounds` rounds (FedSWA's later code).

    `floor + (lr - floor) * (1 + cos(pi * t / rounds)) / 2` for t <= `rounds`, then `floor`.
    """

    rounds: Count
    """how many rounds the fall takes; from then on the rate is `floor`"""
    floor: Strength = 0.0
    """the learning rate at the end"""

    def lr(self, t: int, lr: float) -> float:
        share = (1 + cos(pi * min(t, self.rounds) / self.rounds)) / 2
        return self.floor + (lr - self.floor) * share


@dataclass(frozen=True)
class StepDecay(Schedule, name="step"):
    """Step decay, `lr * factor^(t // every)`: one drop after every `every` rounds."""

    every: Count
    """how many rounds pass before each drop"""
    factor: Factor
    """what the rate is multiplied by at a drop"""

    def lr(self, t: int, lr: float) -> float:
        return lr * self.factor ** (t // self.every)


@dataclass(frozen=True)
class Cyclic(Schedule, name="cyclic"):
    """Cycles of the clients' learning rate over rounds, for SWA on the server (Caldarola et al. 2022).

    `(1 - q) * lr + q * low` with `q = ((t mod cycle) + 1) / cycle`: the rate falls to `low`, then jumps back.
    Before, for t < `start`, the rate is `lr`.
    """

    start: CountFromZero
    """after how many finished rounds the cycles begin. It should be a multiple of `cycle`, since the position in the
    cycle depends on t, as in the published code"""
    cycle: Count
    """how many rounds a cycle has; with 1 the rate stays `lr`"""
    low: Strength
    """the learning rate at the end of a cycle, `lr / 100` in WiMA's comparison"""

    def lr(self, t: int, lr: float) -> float:
        if t < self.start or self.cycle == 1:
            return lr
        q = (t % self.cycle + 1) / self.cycle
        return (1 - q) * lr + q * self.low


@dataclass(frozen=True)
class Warmup(Schedule, name="warmup"):
    """A linear rise in the first `rounds` rounds: `lr * min((t + 1) / rounds, 1)`.

    So the first round has `lr / rounds`, and round `rounds` is the first with all of `lr`.
    """

    rounds: Count
    """how many rounds the rise takes"""

    def lr(self, t: int, lr: float) -> float:
        return lr * min((t + 1) / self.rounds, 1)


@dataclass(frozen=True)
class Chained(Schedule, name="chained"):
    """Several schedules one after another: each takes the rate (and the epochs) that the one before it gives.

    So schedules that multiply are a product, and `[exponential, cyclic]` has cycles on a base that decays. A warm-up
    comes last, so that it lowers what the others give.
    """

    schedules: Accepts[tuple[Schedule, ...], Sequence[Schedule]]
    """the schedules, in order"""

    def __post_init__(self) -> None:
        check(len(self.schedules) > 0, "Chained.schedules", self.schedules, "must hold at least one schedule")

    def lr(self, t: int, lr: float) -> float:
        for schedule in self.schedules:
            lr = schedule.lr(t, lr)
        return lr

    def epochs(self, t: int, epochs: int) -> int:
        for schedule in self.schedules:
            epochs = schedule.epochs(t, epochs)
        return epochs

    @property
    def moves_epochs(self) -> bool:
        return any(schedule.moves_epochs for schedule in self.schedules)


@dataclass(frozen=True)
class Mild(Schedule, name="mild"):
    """IMA's mild exploration: smaller client steps from `start` on (Zhou et al., Table 3), after a base decay.

    Before, for t < `start`, the rate is `lr * decay^t`. From then on, with `s = t - start` and the position
    `p = s mod period` in a period:

    | `scheme` | learning rate | epochs |
    |---|---|---|
    | exponential | `lr * decay^start * late_decay^s` | all |
    | constant | `floor` | all |
    | cyclic | see below | all |
    | epochs | `lr * decay^t`, see below | one less every `period` rounds (first at `s = period`), at least 1 |
    | none | `lr * decay^t` | all |

    The paper and FedIMA's code differ, see `variant`:

    - cyclic, "paper": each period falls linearly from `lr` to `floor`, which its last round has. "code": with
      `high = lr * decay^start` and `slope = (high - floor) / (period / 2)`, the first half of a period has
      `high - p * slope`, and the second half `floor + p * slope`. So the second half starts at `high` and rises to
      almost twice that. Where `high` is below `floor` the slope is 0; the code's rates become negative there.
    - epochs, "paper": the base decay continues. "code": the rate restarts as `lr * decay^s` (for all methods there but
      FedFA). This is probably why that column of the published table is weak.

    `start` is IMA's t_s. The paper counts rounds from 1, and in its round t_s it sends an average that is not computed
    yet. This class follows the code, where t_s is a 0-based index: round t_s has smaller steps and begins from the
    model, and the average is sent after it (`Broadcast` with `start = t_s + 1`).
    """

    start: CountFromZero
    """after how many finished rounds the steps become smaller"""
    scheme: Literal["exponential", "constant", "cyclic", "epochs", "none"] = "exponential"
    """what happens from `start` on: the rate decays by `late_decay` ("exponential"), stays at `floor`
    ("constant") or goes through periods ("cyclic"), or there are fewer and fewer epochs ("epochs"). With "none" the
    rate decays as before"""
    decay: Factor = 0.99
    """the factor of each round before `start`"""
    late_decay: Factor = 0.97
    """the factor of each round from `start` on, in the exponential scheme"""
    floor: Strength = 5e-5
    """the learning rate of the constant scheme, and the one towards which the cyclic scheme falls"""
    period: Annotated[int, Interval(ge=2, le=MOST)] = 20
    """how many rounds a period has, in the cyclic and the epoch scheme"""
    variant: Literal["paper", "code"] = "paper"
    """how the cyclic and the epoch scheme are read: as in the paper, or as in FedIMA's code"""

    def lr(self, t: int, lr: float) -> float:
        s = t - self.start
        if s < 0:
            return lr * self.decay**t
        match self.scheme:
            case "exponential":
                return lr * self.decay**self.start * self.late_decay**s
            case "constant":
                return self.floor
            case "cyclic":
                return self._cyclic(s % self.period, lr)
            case "epochs" if self.variant == "code":
                return lr * self.decay**s
            case _:
                return lr * self.decay**t

    def _cyclic(self, p: int, lr: float) -> float:
        if self.variant == "paper":
            return lr - p * (lr - self.floor) / (self.period - 1)
        high = lr * self.decay**self.start
        half = self.period / 2
        slope = max(high - self.floor, 0.0) / half
        if p < half:
            return high - p * slope
        return self.floor + p * slope

    def epochs(self, t: int, epochs: int) -> int:
        if not self.moves_epochs or t < self.start:
            return epochs
        return max(epochs - (t - self.start) // self.period, 1)

    @property
    def moves_epochs(self) -> bool:
        return self.scheme == "epochs"


class LocalSchedule(Setting):
    """The base class of schedules by local step, which give factors on the round's learning rate."""

    def factors(self, k: Ints, steps: Ints) -> Floats:
        """The factors in the 0-based local steps `k` of clients that take `steps` steps.

        Shapes are broadcast: `k` `[K, 1]` and `steps` `[C]` give `[K, C]`. Values with `k >= steps` have no meaning.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Flat(LocalSchedule, name="constant"):
    """The same learning rate in every local step."""

    def factors(self, k: Ints, steps: Ints) -> Floats:
        return np.ones(np.broadcast_shapes(k.shape, steps.shape))


@dataclass(frozen=True)
class SawTooth(LocalSchedule, name="sawtooth"):
    """FedSWA's linear fall within every round, from the full rate towards `rho` times this rate (Liu et al. 2025).

    `1 - k/K + (k/K) * rho` in step k = 0..K-1 of K; the sum over a round is `(K * (1 + rho) + 1 - rho) / 2`.
    FedSWA's README prints K + 1 steps; its code takes K, as here. Its later code has `rho = 0` and twice the learning
    rate.
    """

    rho: Strength = 0.1
    """the factor on the rate towards which a round falls; 1 is a constant rate"""

    def factors(self, k: Ints, steps: Ints) -> Floats:
        # In this order the factor is exactly 1 if rho = 1. A client without samples has steps = 0.
        return 1.0 - (1.0 - self.rho) * (k / np.maximum(steps, 1))


SCHEDULES = Schedule.by_name

LOCAL_SCHEDULES = LocalSchedule.by_name
