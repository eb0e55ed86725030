"""Joint rounds: the runs of several federations, each with a state of its own, whose local steps are taken at once."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from .aggregation.upload_sums import UploadSums
from .data.encoded import EncodedImages
from .exchange import Request, RoundReport
from .executors.devices import threads
from .executors.in_process import InProcess
from .executors.joint import Joint, Shape, numbers_of
from .federation import Federation
from .local import Begun, Trainer
from .settings.errors import one_line
from .settings.fingerprint import text
from .state import Made, State

log = logging.getLogger("fedsash")


@dataclass(frozen=True, eq=False)
class BegunRound:
    """A run's round before its steps: its state, its request, the sums of a probe, and its training.

    Nothing has `begun` if no client takes part, or more of them than there is room for in the joint steps.
    """

    state: State
    request: Request
    probed: UploadSums | None
    begun: Begun | None


class JointRounds:
    """Makes the rounds of several runs, whose federations are of one `kind`. Their executors are at work.

    `places[i]` is the place of federation i among the runs of the `shape`.
    """

    def __init__(self, federations: Sequence[Federation], shape: Shape, places: Sequence[int]) -> None:
        self._federations, self._clients = federations, shape.clients
        self._threads = federations[0].executor.threads
        self._joint = Joint([trainer_of(federation) for federation in federations], shape, places)

    def made(self, states: Mapping[int, State]) -> Iterator[tuple[int, Made | Exception]]:
        """The next rounds of some federations, with their numbers, or the exception that a round has raised.

        The steps of all are taken first; if the joint steps raise, each takes its steps alone. A round is finished only
        when it is its turn: until then its run's state is whole, even if an earlier run is interrupted. Each has an
        equal share of the time of the steps.
        """
        began = time.perf_counter()
        asked, taken = self._stepped(states)
        share = (time.perf_counter() - began) / len(states)
        for i, one in asked.items():
            yield i, self._finished(i, one, i in taken, share)

    @torch.no_grad()
    def _stepped(self, states: Mapping[int, State]) -> tuple[dict[int, BegunRound | Exception], Collection[int]]:
        """The rounds of some federations, and the numbers of those whose steps are taken."""
        with threads(self._threads):
            asked: dict[int, BegunRound | Exception] = {i: self._asked(i, state) for i, state in states.items()}
            begun = {i: one.begun for i, one in asked.items() if isinstance(one, BegunRound) and one.begun is not None}
            return asked, begun if self._taken(begun) else ()

    def _asked(self, i: int, state: State) -> BegunRound | Exception:
        try:
            return begin(self._federations[i], state, self._clients)
        except Exception as error:  # of this run; the others go on
            return error

    def _taken(self, begun: Mapping[int, Begun]) -> bool:
        """Whether the joint steps are taken."""
        if not begun:
            return False
        try:
            self._joint.take(begun)
        except Exception as error:  # of one of the runs, which will raise it alone
            log.warning("joint steps failed, each run takes them alone: %s", one_line(error))
            return False
        return True

    @torch.no_grad()
    def _finished(self, i: int, one: BegunRound | Exception, taken: bool, share: float) -> Made | Exception:
        if isinstance(one, Exception):
            return one
        began = time.perf_counter()
        try:
            with threads(self._threads):
                after, report = end(self._federations[i], one, taken)
        except Exception as error:  # of this run; the others go on
            return error
        return Made(after, report, share + time.perf_counter() - began)


def begin(federation: Federation, state: State, clients: int) -> BegunRound:
    """A round before its steps, in which at most so many clients are padded to their number."""
    request, probed = federation.ask_to_train(state)
    begun = trainer_of(federation).begin(request, clients) if 0 < len(request.ids) <= clients else None
    return BegunRound(state, request, probed, begun)


def end(federation: Federation, asked: BegunRound, taken: bool) -> tuple[State, RoundReport]:
    """The state after a round, whose steps are `taken` or are still to be taken by the federation's executor."""
    request, begun = asked.request, asked.begun
    if taken and begun is not None:
        trainer = trainer_of(federation)
        sums = UploadSums.of(
            request, federation.aggregation, federation.method, federation.sizes, federation.engine.pieces
        )
        sums.take(trainer.reply(request, np.arange(begun.count), *trainer.end(begun)))
    else:
        sums = federation.collect(request)
    return federation.finish(asked.state, request, sums, asked.probed)


def trainer_of(federation: Federation) -> Trainer:
    """The trainer of a federation that trains in this process."""
    executor = federation.executor
    assert isinstance(executor, InProcess)
    return executor.trainer


def kind(driver: object) -> str:
    """All that the steps of a run depend on, beside their inputs; empty if they can't be taken with another run's.

    These are the steps of stacked clients in this process: the model but for what it learns, the samples, the loss, the
    method but for numbers that may differ, the local optimiser, and the engine.
    """
    if not isinstance(driver, Federation) or not isinstance(driver.executor, InProcess):
        return ""
    trainer = driver.executor.trainer
    if trainer.gradient.one or isinstance(trainer.data.train.x, EncodedImages):
        return ""
    method, local = trainer.method, trainer.local
    may_differ = numbers_of(method)
    fixed = {name: value for name, value in vars(method).items() if name not in may_differ}
    return text(
        [
            driver.module_of(torch.zeros_like(driver.layout.flatten(driver.module))),
            [trainer.data.train.x, trainer.data.train.y, trainer.data.transform],
            [driver.goal.loss, type(method), fixed, driver.buffers, driver.personal],
            [local.optimiser, local.keep_moments, local.clip],
            trainer.batches.width if trainer.crosses else None,  # batches are padded to the largest of all runs
            driver.described(),
        ]
    )
