"""How the clients' learning rate moves: by round, and by local step within a round.

A schedule by round is a function of the number `t` of finished rounds, which is the 0-based index of the next one, and
of the client's learning rate `lr` (or its number of local epochs); a schedule by local step gives a factor on it.
Neither remembers anything, so every client, engine and resumed run reads the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, isfinite, pi
from typing import Literal

import numpy as np

from .basics.arrays import Floats, Ints
from .basics.errors import check
from .basics.typed import typed


@typed
class Schedule:
    """A schedule by round; without more, nothing changes."""

    def lr(self, t: int, lr: float) -> float:
        """The learning rate of the round after `t` finished ones, from the client's learning rate."""
        return lr

    def epochs(self, t: int, epochs: int) -> int:
        """The number of local epochs of that round, from the client's number of epochs."""
        return epochs

    @property
    def moves_epochs(self) -> bool:
        """Whether the number of epochs changes from round to round."""
        return False


@dataclass(frozen=True)
class Constant(Schedule):
    """The same learning rate in every round."""


@dataclass(frozen=True)
class Exponential(Schedule):
    """Exponential decay, `lr * decay^t`: 0.99 in IMA, 0.998 in FedSWA."""

    decay: float

    def __post_init__(self) -> None:
        _check_factor("Exponential.decay", self.decay)

    def lr(self, t: int, lr: float) -> float:
        return lr * self.decay**t


@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine from `lr` down to `floor`, reached after `rounds` rounds and kept then (FedSWA's later code).

    `floor + (lr - floor) * (1 + cos(pi * t / rounds)) / 2`; `floor` is a learning rate.
    """

    rounds: int
    floor: float = 0.0

    def __post_init__(self) -> None:
        check(self.rounds >= 1, "Cosine.rounds", self.rounds, "must be at least 1")
        _check_lr("Cosine.floor", self.floor)

    def lr(self, t: int, lr: float) -> float:
        share = (1 + cos(pi * min(t, self.rounds) / self.rounds)) / 2
        return self.floor + (lr - self.floor) * share


@dataclass(frozen=True)
class StepDecay(Schedule):
    """Step decay, `lr * factor^(t // every)`: one drop every so many rounds."""

    every: int
    factor: float

    def __post_init__(self) -> None:
        check(self.every >= 1, "StepDecay.every", self.every, "must be at least 1")
        _check_factor("StepDecay.factor", self.factor)

    def lr(self, t: int, lr: float) -> float:
        return lr * self.factor ** (t // self.every)


@dataclass(frozen=True)
class Cyclic(Schedule):
    """Server SWA's cycles of the clients' learning rate between rounds (Caldarola et al. 2022).

    `(1 - q) * lr + q * low` with `q = ((t mod cycle) + 1) / cycle`: a fall that ends at `low`, then a jump back.
    `start = r` means: from the model after r finished rounds on, t >= r; `lr` before. `low` is a learning rate, one
    hundredth of `lr` in WiMA's comparison. The position in the cycle follows t, as published, so choose `start` as a
    multiple of `cycle`. With `cycle = 1` the rate stays `lr`.
    """

    start: int
    cycle: int
    low: float

    def __post_init__(self) -> None:
        check(self.start >= 0, "Cyclic.start", self.start, "must be at least 0")
        check(self.cycle >= 1, "Cyclic.cycle", self.cycle, "must be at least 1")
        _check_lr("Cyclic.low", self.low)

    def lr(self, t: int, lr: float) -> float:
        if t < self.start or self.cycle == 1:
            return lr
        q = (t % self.cycle + 1) / self.cycle
        return (1 - q) * lr + q * self.low


@dataclass(frozen=True)
class Mild(Schedule):
    """IMA's mild exploration: smaller client steps from `start` on (Zhou et al., Table 3), after a base decay.

    `start = r` means: from the model after r finished rounds on, t >= r. Before it the rate is `lr * decay^t`; then,
    with `s = t - start` and its position `p = s mod period`:

    | `scheme` | learning rate | epochs |
    |---|---|---|
    | exponential | `lr * decay^start * late_decay^s` | all |
    | constant | `floor` | all |
    | cyclic | see below | all |
    | epochs | `lr * decay^t`, see below | one less every `period` rounds (first at `s = period`), at least 1 |
    | none | `lr * decay^t` | all |

    `variant` chooses where paper and FedIMA's code differ:

    - cyclic, "paper": from `lr` in a straight line to `floor` in the last round of each period. "code": `high =
      lr * decay^start`; the first half of a period falls by `(high - floor) / (period / 2)` a round, the second half
      rises from `floor + p * ...`, so that it jumps to `high` and goes on to almost twice of it.
    - epochs, "paper": the base decay goes on. "code": the rate starts again, `lr * decay^s` (all methods there but
      FedFA), which is the likely reason for that column's weak published numbers.

    `start` is IMA's t_s. The paper counts rounds from 1 and sends an average in round t_s that it has not computed yet.
    This follows its code, in which t_s is a 0-based index: that round has mild steps and begins from the model, and the
    average is sent after it (`Broadcast` with `start = t_s + 1`).
    """

    start: int
    scheme: Literal["exponential", "constant", "cyclic", "epochs", "none"] = "exponential"
    decay: float = 0.99
    late_decay: float = 0.97
    floor: float = 5e-5
    period: int = 20
    variant: Literal["paper", "code"] = "paper"

    def __post_init__(self) -> None:
        check(self.start >= 0, "Mild.start", self.start, "must be at least 0")
        _check_factor("Mild.decay", self.decay)
        _check_factor("Mild.late_decay", self.late_decay)
        _check_lr("Mild.floor", self.floor)
        check(self.period >= 2, "Mild.period", self.period, "must be at least 2")

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
        high, half = lr * self.decay**self.start, self.period / 2
        slope = (high - self.floor) / half
        return high - p * slope if p < half else self.floor + p * slope

    def epochs(self, t: int, epochs: int) -> int:
        if not self.moves_epochs or t < self.start:
            return epochs
        return max(epochs - (t - self.start) // self.period, 1)

    @property
    def moves_epochs(self) -> bool:
        return self.scheme == "epochs"


@typed
class LocalSchedule:
    """A schedule by local step: a factor on the round's learning rate."""

    def factors(self, k: Ints, steps: Ints) -> Floats:
        """The factors in the 0-based local steps `k` of clients that make `steps` steps, broadcast together.

        `k` [K] and `steps` [C, 1] give [C, K]. Where `k >= steps` there is no such step and the value has no meaning.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Flat(LocalSchedule):
    """The same learning rate in every local step."""

    def factors(self, k: Ints, steps: Ints) -> Floats:
        return np.ones(np.broadcast_shapes(k.shape, steps.shape))


@dataclass(frozen=True)
class SawTooth(LocalSchedule):
    """FedSWA's linear fall within every round, from the full rate towards `rho` times it (Liu et al. 2025).

    `1 - k/K + (k/K) * rho` in step k = 0..K-1 of K; the sum over a round is `(K * (1 + rho) + 1 - rho) / 2`.
    `rho = 1` is a flat rate. The README prints K + 1 steps, its code makes K, as here; its later code fixes `rho` to 0
    and doubles the learning rate.
    """

    rho: float = 0.1

    def __post_init__(self) -> None:
        check(isfinite(self.rho) and self.rho >= 0, "SawTooth.rho", self.rho, "must be a finite number of at least 0")

    def factors(self, k: Ints, steps: Ints) -> Floats:
        # Grouped so that rho = 1 is exactly 1; a client without data makes no step.
        return 1.0 - (1.0 - self.rho) * (k / np.maximum(steps, 1))


SCHEDULES: dict[str, type[Schedule]] = {
    "constant": Constant,
    "exponential": Exponential,
    "cosine": Cosine,
    "step": StepDecay,
    "cyclic": Cyclic,
    "mild": Mild,
}

LOCAL_SCHEDULES: dict[str, type[LocalSchedule]] = {"constant": Flat, "sawtooth": SawTooth}


def _check_factor(field: str, value: float) -> None:
    check(0 < value <= 1, field, value, "must be above 0 and at most 1")


def _check_lr(field: str, value: float) -> None:
    check(isfinite(value) and value >= 0, field, value, "must be a finite learning rate of at least 0")
