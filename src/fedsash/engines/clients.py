"""The clients of a federation as the server knows them, and how to reach them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from torch import nn

from ..client.messages import Answers, Executor, Request
from ..data.encoded import EncodedImages
from ..data.federated import FederatedData, Problem, untrained_classes
from ..data.members import Members
from ..evaluation import Chronicle, Evaluation
from ..evaluation.first_batch import suited
from ..settings.errors import check
from ..settings.fingerprint import text
from ..tasks import Loss
from ..vector.arrays import Ints
from . import ClientWork, Engine, Training

NO_TEST_SET = (
    "there is no test set: no model is tested; give test samples, or hold some of the clients' back by "
    "evaluation.held_out"
)


class Clients(Protocol):
    """The clients of a federation as the server knows them, and how to reach them.

    - `problem`: what they learn;
    - `data`: their samples if these are in this process, else None;
    - `sizes` `[N]`: their numbers of training samples; `held`: whether they have held-out samples;
    - `remember`: whether they keep their client state themselves, by version (see `Request`).
    """

    @property
    def data(self) -> FederatedData | None: ...

    @property
    def problem(self) -> Problem: ...

    @property
    def sizes(self) -> Ints: ...

    @property
    def held(self) -> bool: ...

    @property
    def remember(self) -> bool: ...

    def fits(self, evaluation: Evaluation, seed: int, engine: Engine) -> None:
        """Raise `SettingError` if their samples were not set aside as a federation's evaluation and seed do it, or if
        an engine in this process trains them, and it is not the federation's."""
        ...

    def open(self, training: Training, rounds: int | None = None) -> tuple[Executor, list[str]]:
        """An executor that reaches them, and lines that say what was chosen; `rounds`: the run's length, if known."""
        ...

    def settled(self, began: Mapping[str, Any]) -> Clients:
        """These clients, reached with the settings that their executor `described` when the run began."""
        ...

    def fingerprint(self, training: Training) -> dict[str, str]:
        """What determines a run's numbers beside the `training`, by name, as far as the server knows it."""
        ...


@dataclass(frozen=True, eq=False)
class LocalClients:
    """Clients whose samples are in this process; an engine trains them. `notes` are lines about their data.

    `evaluation` and `seed` say how samples were set aside; without a seed none were drawn.
    """

    data: FederatedData
    engine: Engine
    remember: bool = False
    notes: tuple[str, ...] = ()
    evaluation: Evaluation = field(default_factory=Evaluation)
    seed: int | None = None

    @property
    def problem(self) -> Problem:
        return self.data.problem

    @cached_property
    def sizes(self) -> Ints:
        return self.data.sizes

    @property
    def held(self) -> bool:
        return len(Members.of(self.data.held).flat) > 0

    def fits(self, evaluation: Evaluation, seed: int, engine: Engine) -> None:
        requirement = "must be the federation's, {}: take the clients of a federation that has it"
        drawn_by: int | None = seed
        if self.seed is None:
            drawn_by = None
        check_set_aside("clients", self, evaluation, drawn_by, requirement)
        check(engine == self.engine, "clients.engine", self.engine, requirement.format(engine))

    def open(self, training: Training, rounds: int | None = None) -> tuple[Executor, list[str]]:
        executor, notes = self.engine.open(ClientWork(training, self.data), rounds)
        return executor, [*self.notes, *notes]

    def settled(self, began: Mapping[str, Any]) -> LocalClients:
        return replace(self, engine=self.engine.settled(began))

    def fingerprint(self, training: Training) -> dict[str, str]:
        """The fingerprint uses about a thousand evenly spaced samples, and the whole partition."""
        x = self.data.train.x
        y = self.data.train.y
        spaced = slice(None, None, max(len(y) // 1000, 1))
        features = x.rows[spaced] if isinstance(x, EncodedImages) else x[spaced]
        partition = [self.data.sizes, Members.of(self.data.clients).flat]
        if self.data.numbers is not None:
            partition.append(self.data.numbers)
        return {
            "data": f"{len(y)} samples: x {text(features)}, y {text(y)}",
            "partition": f"{len(self.data.clients)} clients: {text(np.concatenate(partition))}",
            "transform": text(self.data.transform),
        }


class SetAside(Protocol):
    """Clients whose samples were set aside by an evaluation and a seed."""

    @property
    def evaluation(self) -> Evaluation: ...

    @property
    def seed(self) -> int | None: ...


def check_set_aside(name: str, clients: SetAside, evaluation: Evaluation, seed: int | None, requirement: str) -> None:
    """Raise `SettingError` unless their samples were set aside as a federation's `evaluation` and `seed` do it."""
    for key in ("held_out", "client_test"):
        of_clients = getattr(clients.evaluation, key)
        of_federation = getattr(evaluation, key)
        check(of_clients == of_federation, f"{name}.evaluation.{key}", of_clients, requirement.format(of_federation))
    check(clients.seed == seed, f"{name}.seed", clients.seed, requirement.format(seed))


def set_aside(data: FederatedData, evaluation: Evaluation, seed: int) -> FederatedData:
    """The data after test samples are dealt out and samples held out; a node does it as the simulation does."""
    if evaluation.client_test and not len(data.client_test):
        data = data.deal_test(seed)
    return data.hold_out(evaluation.held_out, seed)


def local_clients(
    module: nn.Module, data: FederatedData, engine: Engine, *, evaluation: Evaluation, seed: int
) -> LocalClients:
    """Clients in this process, whose samples are on the module's device and of the types that it takes.

    Of each client's samples the fraction `evaluation.held_out`, by `seed`, is held out. If clients are to have test
    samples and the data do not say which, the test set is dealt out by `seed`. Their `notes` say what was chosen,
    whether there is neither a test set nor a held-out sample, and which classes are tested and not trained. Raises
    `SettingError` if the fraction is above 0 and so small that no client has a held-out sample, and `ModelError` if the
    module does not take the samples.
    """
    held_out = evaluation.held_out
    data, notes = suited(module, data)
    untested = untrained_classes(data)
    if data.test is None and held_out == 0:
        untested = [NO_TEST_SET]
    drawn_by = None
    if held_out > 0 or (evaluation.client_test and not len(data.client_test)):
        drawn_by = seed
    clients = LocalClients(
        set_aside(data, evaluation, seed),
        engine,
        notes=(*notes, *untested),
        evaluation=evaluation,
        seed=drawn_by,
    )
    if held_out > 0:
        most = data.sizes.max()
        requirement = f"must be 0, or hold out at least one sample of the largest client, which has {most} samples"
        check(clients.held, "evaluation.held_out", held_out, requirement)
    return clients


def clients_of(
    data: FederatedData | Clients,
    module: nn.Module,
    engine: Engine,
    loss: Loss | None,
    evaluation: Evaluation,
    seed: int,
) -> Clients:
    """The clients of a federation: local ones with these data, or those that it was given."""
    if isinstance(data, FederatedData):
        return local_clients(module, data.learning(loss), engine, evaluation=evaluation, seed=seed)
    check(hasattr(data, "open"), "Federation.data", type(data), "must be FederatedData or Clients")
    data.fits(evaluation, seed, engine)
    return data


class NotStarted(Executor):
    """What an executor is before it has been started: it has no process, no chronicle, and nothing to remember."""

    def work(self, request: Request) -> Answers:
        raise RuntimeError("the executor has not been started")


NOT_STARTED = NotStarted()


class LazyExecutor:
    """Starts the executor that reaches clients when it is first needed; after `close` it can be started again.

    `current` is the executor as it is: the running one, or `NOT_STARTED`.
    """

    def __init__(self, clients: Clients, training: Training) -> None:
        self._clients = clients
        self._training = training
        self.current: Executor = NOT_STARTED

    @property
    def started(self) -> bool:
        """Whether the executor is running."""
        return self.current is not NOT_STARTED

    @property
    def running(self) -> Executor:
        """The executor, which is started if it is not running."""
        if self.current is NOT_STARTED:
            self.start()
        return self.current

    def start(self, rounds: int | None = None) -> list[str]:
        """Start the executor if it is not running; returns lines that say what was chosen."""
        if self.started:
            return []
        self.current, notes = self._clients.open(self._training, rounds)
        return notes

    def close(self) -> None:
        """End the executor."""
        self.current.close()
        self.current = NOT_STARTED


class WithExecutor:
    """The base of a class with an executor, which starts when it is first needed and ends with `close` or `with`."""

    _lazy: LazyExecutor

    @property
    def executor(self) -> Executor:
        """The executor, which answers requests; it is started if necessary."""
        return self._lazy.running

    @property
    def chronicle(self) -> Chronicle | None:
        """The executor's additional records of the run, if it has been started and has any."""
        chronicle: Chronicle | None = self._lazy.current.chronicle
        return chronicle

    def memory(self) -> int:
        """The memory of the executor's own processes in bytes, without this process."""
        return self._lazy.current.memory()

    def close(self) -> None:
        """End the executor's processes."""
        self._lazy.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
