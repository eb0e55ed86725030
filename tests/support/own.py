"""An average, a server, a transform, a sampling, a method and an engine as users write them, in their own module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsash.averages import Average, Pieces
from fedsash.client.messages import Answers, Executor, Request
from fedsash.data import Transform, draws
from fedsash.engines import ClientWork, Engine
from fedsash.methods import Method, Step
from fedsash.methods.sampling import Sampling
from fedsash.methods.server_optimisers import Server
from fedsash.vector.arrays import Ints


@dataclass(frozen=True)
class PlainMean(Average):
    """The mean of all models from round `start` on."""

    start: int = 1

    def init(self, w: Tensor) -> dict[str, Tensor]:
        return {"sum": torch.zeros_like(w, dtype=torch.float64), "seen": torch.tensor(0)}

    def observes(self, round: int) -> bool:
        return round >= self.start

    def take(self, state: dict[str, Tensor], w: Pieces, round: int, past: Mapping[int, Tensor]) -> None:
        state["sum"] += w.whole()
        state["seen"] += 1

    def mean(self, state: dict[str, Tensor], w: Tensor, past: Mapping[int, Tensor]) -> Tensor:
        return (state["sum"] / state["seen"]).to(w.dtype)


@dataclass(frozen=True)
class Slower(Server):
    """Steps that shrink: lr / (1 + n) of the update in step n."""

    lr: float = 1.0

    def init(self, w: Tensor) -> dict[str, Tensor]:
        return {"steps": torch.zeros((), dtype=torch.int64)}

    def step(self, sent: Tensor, delta: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return sent + self.lr / (1 + int(state["steps"])) * delta, {"steps": state["steps"] + 1}


@dataclass(frozen=True)
class Noise(Transform):
    """Adds uniform noise to the features in training."""

    size: float = 0.1

    def augment(self, x: Tensor, keys: Tensor) -> Tensor:
        return x + self.size * (draws(keys, *x.shape[1:]).to(x.dtype) - 0.5)


@dataclass(frozen=True)
class Everyone(Sampling):
    """All clients, or the even ones in odd rounds."""

    def draw(self, round: int, sizes: Ints, seed: int) -> Ints:
        return np.arange(0, len(sizes), 1 + round % 2)


@dataclass(frozen=True)
class Signs(Method):
    """Local steps along the gradient's sign, `scale` wide."""

    scale: float = 0.01

    def direction(self, step: Step) -> Tensor:
        return self.scale * step.grad(step.w).sign()


@dataclass(frozen=True)
class Backwards(Engine):
    """Trains the last client first, and answers in the round's order."""

    def open(self, work: ClientWork, rounds: int | None = None) -> tuple[Executor, list[str]]:
        return LastFirst(work), ["engine: backwards"]


class LastFirst(Executor):
    def __init__(self, work: ClientWork) -> None:
        self._trainer = work.trainer()

    def work(self, request: Request) -> Answers:
        places = range(len(request.ids))
        answers = [self._trainer.answer(request.only(np.array([p])), np.array([p])) for p in reversed(places)]
        yield from reversed(answers)


@dataclass(frozen=True)
class Remembers(Server):
    """A server with a mistake: it goes on from the model that it remembers, not from what was sent."""

    def init(self, w: Tensor) -> dict[str, Tensor]:
        return {"w": w.clone()}

    def step(self, sent: Tensor, delta: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        w = state["w"] + delta
        return w, {"w": w.clone()}


@dataclass(frozen=True)
class Borrows(PlainMean):
    """An average with a mistake: it keeps the vector that it was given."""

    def take(self, state: dict[str, Tensor], w: Pieces, round: int, past: Mapping[int, Tensor]) -> None:
        state["sum"] = w.whole().to(torch.float64)
        state["seen"] = torch.tensor(1)


@dataclass(frozen=True)
class Counts(Method):
    """A method with a mistake: what one client does depends on how many are trained beside it."""

    def direction(self, step: Step) -> Tensor:
        return step.grad(step.w) / len(step.w)


@dataclass(frozen=True)
class Doubled(Sampling):
    """A sampling with a mistake: it asks a client twice."""

    def draw(self, round: int, sizes: Ints, seed: int) -> Ints:
        return np.array([0, 0, 1])
