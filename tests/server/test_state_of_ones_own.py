"""What a server optimiser or a rule of one's own remembers: a state that could not be loaded again is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsash.methods import Aggregation
from fedsash.methods.sampling import Sampling
from fedsash.methods.server_optimisers import Server
from fedsash.settings.errors import SettingError
from fedsash.vector.arrays import Vectors
from support.worlds import after, federation


@dataclass(frozen=True)
class Moving(Server):
    """It moves by the update, and remembers what `_new` says."""

    def init(self, w: Tensor) -> Vectors:
        return {"n": torch.zeros(())}

    def step(self, sent: Tensor, delta: Tensor, state: Vectors) -> tuple[Tensor, Vectors]:
        return sent + delta, self._new(delta, state)

    def _new(self, delta: Tensor, state: Vectors) -> Any:
        return {"n": state["n"] + 1}


class Adding(Moving):
    def _new(self, delta: Tensor, state: Vectors) -> Vectors:
        return state | {"v": delta}


class Forgetting(Moving):
    def _new(self, delta: Tensor, state: Vectors) -> Vectors:
        return {}


class Nothing(Moving):
    def _new(self, delta: Tensor, state: Vectors) -> None:
        return None


class Reshaping(Moving):
    def _new(self, delta: Tensor, state: Vectors) -> Vectors:
        return {"n": state["n"].unsqueeze(0)}


@dataclass(frozen=True)
class Releasing(Aggregation):
    """The weighted mean, whose memory is what `_new` says."""

    def init(self, sampling: Sampling, clients: int) -> Vectors:
        return {"n": torch.zeros(())}

    def release(self, mean: Vectors, *, memory: Vectors, **others: Any) -> tuple[Vectors, Vectors]:  # type: ignore[override]
        return mean, self._new(mean["delta"], memory)

    def _new(self, delta: Tensor, memory: Vectors) -> Any:
        return {"n": memory["n"] + 1}


class AddingRule(Releasing):
    def _new(self, delta: Tensor, memory: Vectors) -> Vectors:
        return memory | {"v": delta}


class ForgettingRule(Releasing):
    def _new(self, delta: Tensor, memory: Vectors) -> Vectors:
        return {}


class NothingRule(Releasing):
    def _new(self, delta: Tensor, memory: Vectors) -> None:
        return None


class RetypedRule(Releasing):
    def _new(self, delta: Tensor, memory: Vectors) -> Vectors:
        return {"n": memory["n"].long()}


REFUSED: list[tuple[Any, str]] = [
    (Adding(), r"Adding\.step = \['n', 'v'\]: 'v' must begin in init\(\), which does not have it"),
    (Forgetting(), r"Forgetting\.step = \[\]: must also return the new state 'n'"),
    (Nothing(), r"Nothing\.step = 'NoneType': must return the new state, a dictionary of tensors"),
    (Reshaping(), r"Reshaping\.step: n: shape = \[1\]: must be \[\]"),
    (AddingRule(), r"AddingRule\.release = \['n', 'v'\]: 'v' must begin in init\(\), which does not have it"),
    (ForgettingRule(), r"ForgettingRule\.release = \[\]: must also return the new memory 'n'"),
    (NothingRule(), r"NothingRule\.release = 'NoneType': must return the new memory, a dictionary of tensors"),
    (RetypedRule(), r"RetypedRule\.release: n: type = 'torch\.int64': must be torch\.float32"),
]


@pytest.mark.parametrize(("part", "message"), REFUSED)
def test_a_state_of_other_names_shapes_or_types_is_refused_in_the_first_round(part: Any, message: str) -> None:
    setting = "server" if isinstance(part, Server) else "aggregation"
    with pytest.raises(SettingError, match=message):
        after(federation(**{setting: part}), 1)


def test_a_state_of_the_same_names_goes_on() -> None:
    state = after(federation(server=Moving(), aggregation=Releasing()), 3)
    assert float(state.optimiser["n"]) == float(state.aggregation["n"]) == 3
