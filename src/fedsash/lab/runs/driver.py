"""The interface of a driver: what makes the rounds of a run, such as a federation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from ...aggregation import Privacy
from ...averages import Average, Observers
from ...broadcast import Broadcast
from ...evaluation import Evaluation, Goal, Metrics
from ...exchange import Chronicle, RoundReport
from ...executors.clients import Clients
from ...state import State


class Driver(Protocol):
    """Makes the rounds of a run. `Federation` is a driver, and documents each method.

    `round` makes the next state. It raises `Ended` if the run is over before all its rounds are finished. If a driver
    must remember more than the models between two rounds, `saved` puts it into the state, and `prepare` restores it.
    `chronicle`, available after `prepare`, holds what else the driver reports of the run, such as times on a network.
    """

    @property
    def evaluation(self) -> Evaluation: ...

    @property
    def goal(self) -> Goal: ...

    @property
    def seed(self) -> int: ...

    @property
    def broadcast(self) -> Broadcast | None: ...

    @property
    def averages(self) -> Mapping[str, Average]: ...

    @property
    def observers(self) -> Observers: ...

    @property
    def clients(self) -> Clients: ...

    @property
    def chronicle(self) -> Chronicle | None: ...

    def start(self, folder: Path | None = None) -> State: ...

    def prepare(self, rounds: int | None = None, state: State | None = None) -> list[str]: ...

    def round(self, state: State) -> tuple[State, RoundReport]: ...

    def evaluate(self, state: State, each: Callable[[list[str]], Iterable[str]] = iter) -> list[Metrics]: ...

    def facts(self) -> Mapping[str, object]: ...

    def privacy(self, state: State) -> Privacy | None: ...

    def learn(self, state: State, metrics: list[Metrics]) -> tuple[State, list[Metrics]]: ...

    def models(self, state: State) -> dict[str, Tensor]: ...

    def export(self, w: Tensor) -> bytes: ...

    def module_of(self, w: Tensor) -> nn.Module: ...

    def saved(self, state: State) -> State: ...

    def settled(self, began: Mapping[str, Any]) -> Driver: ...

    def described(self) -> dict[str, Any]: ...

    def memory(self) -> int: ...

    @property
    def fingerprint(self) -> dict[str, str]: ...

    def close(self) -> None: ...

    def __enter__(self) -> Driver: ...

    def __exit__(self, *error: object) -> None: ...
