"""Asynchronous schedulers behind the interface of a federation: one step of the server counts as one round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..client.messages import Ended, RoundReport
from ..engines import Training
from ..engines.clients import Clients
from ..methods import WeightedMean
from ..methods.sampling import Sampling, Uniform
from ..methods.schedules import Constant
from ..methods.server_optimisers import ServerSGD
from ..server.federation import Federation
from ..server.state import State
from ..settings.errors import check
from ..vector.arrays import Ints, Vectors
from ..vector.spaces import ExecutorMemory, WholeModel
from .chronicle import NetworkChronicle
from .learning import Learning, gradient_norm
from .rounds import INNER, inner
from .schedulers import Scheduler, Synchronous
from .site import Site

MODEL = "model/"


class Time(Protocol):
    """What decides when the events of a run happen: a simulated `Network`, or real nodes.

    `fits` refuses clients or a scheduler that it can't have. `past` says what a run's past depends on. `begin` gives
    the site at time 0, which replays what a site has `saved`. A model is `bytes` long (None: as long as its vector).
    With `gradients`, evaluations measure them.
    """

    @property
    def bytes(self) -> int | None: ...

    @property
    def gradients(self) -> bool: ...

    def fits(self, clients: Clients, scheduler: Scheduler) -> None: ...

    def past(self, scheduler: Scheduler, training: Training, sizes: Ints) -> dict[str, str]: ...

    def begin(self, learning: Learning, saved: Vectors) -> Site: ...


class Asynchronous:
    """A federation whose server is moved by a `scheduler`; `fedsash.run(driver, rounds)` runs it.

    It makes rounds; the `federation` begins the run, evaluates and is closed. By hand:

        driver = Asynchronous(federation, network, FedBuff(10))
        with federation:
            state = federation.start()
            state, report = driver.round(state)

    `time` says when what happens: a simulated `Network`, or nodes in real time (`fedsash.flower.RealTime`).

    One round is one step of the server. When a run is resumed, the events are replayed up to the step of the saved
    state, without any training. The state holds the models that are still needed, and the trainings whose uploads
    were refused (see `vectors`). The choice of an adaptive broadcast after a step takes effect from the next event on.

    Raises `SettingError` for settings that only have a meaning in synchronous rounds.
    """

    def __init__(self, federation: Federation, time: Time, scheduler: Scheduler) -> None:
        check(isinstance(scheduler, Scheduler), "scheduler", scheduler, "must be a Scheduler, such as FedBuff()")
        requirement = "must be asynchronous; for synchronous rounds give the federation OnNetwork clients"
        check(not isinstance(scheduler, Synchronous), "scheduler", "synchronous", requirement)
        time.fits(federation.clients, scheduler)
        check_asynchronous(federation)
        if scheduler.schedule_counts == "trainings":
            _check_tuning(federation)
        self.federation = federation
        self.time = time
        self.scheduler = scheduler
        self.chronicle: NetworkChronicle | None = None
        self._site: Site | None = None
        self._learning: Learning | None = None
        self._stopped = False
        self._before = ExecutorMemory({})

    def prepare(self, rounds: int | None = None, state: State | None = None) -> list[str]:
        """Start the engine, and replay the events up to the `state`, if there is one. Returns notes."""
        if state is not None:
            self._begin(state)
            state = replace(state, executor=ExecutorMemory(inner(state.executor)))
        return self.federation.prepare(rounds, state)

    @torch.no_grad()
    def round(self, state: State) -> tuple[State, RoundReport]:
        """Let time pass until the server has made its next step. It uses the given state up.

        If an exception ends a round before the server moves, as in a client's training, it can be made again. Raises
        `RunError` for a state that is used up.
        """
        state.check_usable()
        site, learning = self._prepared(state)
        learning.begin(state)
        site.missing.clear()
        self._before = ExecutorMemory({})
        self._stopped = True  # after an exception the events are replayed, since they stopped in the middle of a step
        try:
            self._advance(site, learning, state.round + 1)
        except BaseException:
            if not learning.moved:  # else averages have observed a part of it
                self._before = self._saved(learning)
            raise
        self._stopped = False
        if site.version == state.round:
            raise Ended(site.why)
        missing = {client: why for client, why in site.missing.items() if client not in learning.trained}
        report = RoundReport(
            round=state.round + 1,
            clients=np.array(learning.trained, dtype=np.int64),
            samples=learning.passed,
            refused=learning.left_out,
            missing=missing,
        )
        return learning.state, report

    def facts(self) -> Mapping[str, object]:
        """The facts about the federation, and the scheduler."""
        return {**self.federation.facts(), "scheduler": self.scheduler}

    def saved(self, state: State) -> State:
        """The state in the form in which it is saved. Raises `RunError` if a later round has used it up."""
        state.check_usable()
        # The executor's memory is that of the engine below names with a prefix, and the time's own beside it.
        vectors = state.executor
        if self._learning is not None:
            vectors = self._saved(self._learning)
        with_engine = self.federation.saved(replace(state, executor=ExecutorMemory(inner(vectors))))
        vectors = ExecutorMemory(dict(vectors))
        for name, value in with_engine.executor.items():
            vectors[INNER + name] = value
        return replace(with_engine, executor=vectors)

    def settled(self, began: Mapping[str, Any]) -> Asynchronous:
        """This driver with the engine that was chosen when the run began."""
        return Asynchronous(self.federation.settled(began), self.time, self.scheduler)

    @property
    def fingerprint(self) -> dict[str, str]:
        """Everything that determines the run's numbers: the federation, its time and the scheduler, as texts."""
        return self.federation.fingerprint | self._events

    @cached_property
    def _events(self) -> dict[str, str]:
        return self.time.past(self.scheduler, self.federation.training(), self.federation.sizes)

    def _prepared(self, state: State) -> tuple[Site, Learning]:
        """The site and the learning at the step of the state; events are replayed if they are at another one."""
        if self._site is None or self._stopped or self._site.version != state.round:
            if self._before and int(self._before["step"]) == state.round:
                state = replace(state, executor=self._before)
            self._begin(state)
        assert self._site is not None and self._learning is not None
        return self._site, self._learning

    @torch.no_grad()
    def _begin(self, state: State) -> None:
        """Start at time 0, and replay the events up to the state's step."""
        saved = state.executor
        step = 0
        if "step" in saved:
            step = int(saved["step"])
        check(step == state.round, "state.round", state.round, f"must be {step}, the step of the network's time in it")
        by_steps = self.scheduler.schedule_counts == "steps"
        learning = Learning(self.federation, state, self.time.bytes, by_steps)
        learning.replaying = state.round > 0
        if "refused" in saved:
            learning.refused = {(client, number) for client, number in saved["refused"].tolist()}
        site = self.time.begin(learning, saved)
        site.env.process(self.scheduler.run(site))
        learning.end()
        for version in range(1, state.round + 1):
            self._advance(site, learning, version)
        learning.replaying = False
        models = {name.removeprefix(MODEL): w for name, w in saved.items() if name.startswith(MODEL)}
        learning.numbering.load(models, state.w)
        self._site = site
        self._learning = learning
        self._stopped = False
        self.chronicle = NetworkChronicle(site, self._gradient())

    def _advance(self, site: Site, learning: Learning, version: int) -> None:
        """Let time pass until the server has made `version` steps, or the run is over."""
        site.advance(lambda: site.version >= version)
        if site.version > version:
            raise RuntimeError(f"{type(self.scheduler).__name__} made two steps of the server in one event")
        if site.version == version:
            learning.end()

    def _saved(self, learning: Learning) -> ExecutorMemory:
        """What is needed to replay the events up to the last step, and the models that are needed afterwards."""
        refused = torch.tensor(sorted(learning.refused), dtype=torch.int64).reshape(-1, 2)
        vectors = ExecutorMemory({"step": torch.tensor(learning.state.round), "refused": refused})
        if self._site is not None:
            vectors |= self._site.saved()
        for name, w in learning.numbering.saved().items():
            vectors[MODEL + name] = w
        return vectors

    def _gradient(self) -> Callable[[Tensor], float] | None:
        if not self.time.gradients:
            return None
        federation = self.federation
        return gradient_norm(
            federation.module,
            federation.layout,
            federation.training_data,
            federation.goal.loss,
            federation.evaluation.batch,
        )


def check_asynchronous(federation: Federation) -> None:
    """Raise `SettingError` for settings that only have a meaning in synchronous rounds."""
    check(not federation.local.keep_moments, "local.keep_moments", True, "needs synchronous rounds: leave it out")
    part = federation.personal.part
    check(not part, "personal", part, "needs synchronous rounds, in which clients keep state: leave it out")
    buffers = federation.buffers
    stateless = federation.sharing.own_size == 0
    check(stateless, "buffers", buffers, "needs synchronous rounds, in which clients keep state: take 'average'")
    engine = federation.engine
    requirement = "sums up uploads where the clients are, and here each one is needed: take another engine"
    check(not engine.sums, "engine", type(engine).__name__, requirement)
    method = federation.method
    requirement = (
        "keeps state or sums for a round: use the scheduler synchronous, or a method like fedavg, fedprox, fedsam"
    )
    check(not _counts_on_rounds(federation), "method", type(method).__name__, requirement)
    requirement = "an asynchronous scheduler says itself who trains: leave it out"
    check(_everybody(federation.sampling, len(federation.sizes)), "sampling", federation.sampling, requirement)
    requirement = "an asynchronous scheduler moves the model itself: leave it out"
    check(federation.server == ServerSGD(), "server", federation.server, requirement)
    aggregation = type(federation.aggregation)
    check(aggregation is WeightedMean, "aggregation", aggregation.__name__, requirement)
    broadcast = federation.broadcast
    if broadcast is not None:
        check(broadcast.order == "after", "Broadcast.order", broadcast.order, "must be 'after' here")


def _counts_on_rounds(federation: Federation) -> bool:
    """Whether the method remembers something between rounds, or has a say in one beside local steps."""
    if federation.remembers or federation.method.overridden & {"send", "probe", "upload", "server_update"}:
        return True
    w = federation.sharing.common_of(WholeModel(federation.layout.flatten(federation.module)))
    return bool(federation.method.server_state(w, federation.sharing.common))


def _check_tuning(federation: Federation) -> None:
    """Raise `SettingError` if clients are to fine-tune at the last round's rate, and each counts its own rounds."""
    tuning = federation.evaluation.fine_tuning
    if tuning is None or not tuning.trains or federation.local.schedule == Constant():
        return
    requirement = "must be given: the scheduler counts each client's own trainings, so there is no last round's rate"
    check(tuning.lr is not None, "evaluation.fine_tuning.lr", None, requirement)


def _everybody(sampling: Sampling, clients: int) -> bool:
    """Whether a sampling chooses nobody: it is the default one, or asks all of so many clients."""
    if not isinstance(sampling, Uniform) or sampling.dropout or not isinstance(sampling.trace, str) or sampling.trace:
        return False
    return (sampling.count, sampling.fraction) in ((None, None), (None, 1.0), (clients, None))
