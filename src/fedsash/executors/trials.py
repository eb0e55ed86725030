"""Trials: what local steps take on this machine, measured once and kept for later runs."""

from __future__ import annotations

import json
import logging
import math
import platform
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from hashlib import sha256

import numpy as np
import torch
from torch import Tensor

from ..basics.machine import cores, own_version
from ..basics.paths import cache_folder, replaced
from ..schedules import Constant
from ..settings.fingerprint import fingerprint
from .devices import threads
from .local_engine import LocalEngine
from .training import ClientWork

BUSY = 0.9
"""If one thread gets a smaller share of a processor core than this, other programs use the cores."""

MOST_TRIES, LONG_TRIES = 20, 0.1
"""A step is tried at most so often, and for so many seconds of the processor. The shortest trial is the quietest."""

LONG_STEP = 1.0
"""A step that takes longer than this, in seconds, is not tried a third time."""

STEPS, SHORT_STEP = 4, 0.05
"""Steps shorter than this, in seconds, are tried so many at a time, since each answer takes time of its own."""

WATCHED, SLOWER = 20, 1.5
"""What was measured is forgotten if each of the first so many rounds takes more than this many times as long."""

log = logging.getLogger("fedsash")


@dataclass(frozen=True)
class Trial:
    """What a local step takes on some threads, in seconds: by the clock, and of the processor's time on all threads.

    Where other programs use the cores, the clock counts their time, too.
    """

    clock: float
    processor: float
    threads: int

    @property
    def busy(self) -> bool:
        """Whether other programs use the cores. Several threads also wait for each other, so they do not tell it."""
        return self.threads == 1 and self.processor < BUSY * self.clock


class Trials:
    """The trials of a work's local steps, kept in a file of the user's cache folder.

    A file belongs to all that the time of a step depends on: the machine, the versions, the model's layers, the shapes
    of a batch, the method and the optimiser. The learning rate, the seed, the partition and a method's numbers are not
    among it, so the runs of most sweeps share one file. A file that can't be read is measured again.
    """

    def __init__(self, work: ClientWork) -> None:
        self._work = work
        self._file = cache_folder() / "engines" / f"{sha256(_depends_on(work).encode()).hexdigest()[:32]}.json"
        self._known = self._read()
        self.measured = False
        """Whether one was measured now."""

    def of(self, engine: LocalEngine) -> Trial:
        """What a step of an engine with one process takes; it is measured unless it is known."""
        name = self._name(engine)
        if name not in self._known:
            self._known[name], self.measured = measured(engine, self._work), True
        return self._known[name]

    def known(self, engine: LocalEngine) -> bool:
        """Whether what a step of the engine takes is known."""
        return self._name(engine) in self._known

    def keep(self) -> None:
        """Keep what was measured now for later runs."""
        if not self.measured:
            return
        try:
            with replaced(self._file) as unfinished:
                unfinished.write_text(
                    json.dumps({name: astuple(trial) for name, trial in self._known.items()}, indent=1)
                )
        except OSError as error:
            log.warning("what was measured can't be kept (%s): the next run measures again", error)

    def forget(self) -> None:
        """Let the next run measure again."""
        try:
            self._file.unlink(missing_ok=True)
        except OSError as error:
            log.warning("what was measured can't be forgotten (%s): the next run takes it as it is", error)

    def _read(self) -> dict[str, Trial]:
        try:
            found = json.loads(self._file.read_text())
            return {name: Trial(float(clock), float(used), int(n)) for name, (clock, used, n) in found.items()}
        except (OSError, ValueError, TypeError, AttributeError, OverflowError):
            return {}

    def _name(self, engine: LocalEngine) -> str:
        """The settings that the time of a step depends on."""
        kind, memory = engine.kind, engine.memory_format
        compiled = f", compiled, {self._work.steps.max()} steps" if engine.compile is True else ""
        return f"{kind}, {engine.block} clients, {memory}, {engine.threads} threads, {engine.precision}{compiled}"


class Promise:
    """What a round's local steps were promised to take of the processor, in seconds. It is told what they take.

    If all of the first rounds take much more, what was measured is forgotten, with a line that says so. The run itself
    goes on as it is. The time of other programs does not count; but they empty the caches, so the fastest round counts.
    """

    def __init__(self, seconds: float, forget: Callable[[], None]) -> None:
        self._seconds, self.forget = seconds, forget
        self._left, self._fastest = WATCHED, math.inf

    def __call__(self, seconds: float) -> None:
        """A round took so many seconds of the processor in its busiest process."""
        self._left -= 1
        self._fastest = min(self._fastest, seconds)
        if self._left == 0 and self._fastest > SLOWER * self._seconds:
            said = duration(self._fastest), duration(self._seconds)
            line = "engine: a round takes %s here, and took %s when it was timed; so the next run times it again"
            log.warning(line, *said)
            self.forget()


def measured(engine: LocalEngine, work: ClientWork) -> Trial:
    """What a local step of a stack (or of one client) takes. Compiled steps are those of a round, as a run has them."""
    most = int(work.steps.max())
    if engine.compile is True:
        return _timed(engine, work, most)
    trial = _timed(engine, _of_steps(work, 1), 1)
    steps = min(STEPS, most)
    return trial if trial.clock > SHORT_STEP or steps == 1 else _timed(engine, _of_steps(work, steps), steps)


def _of_steps(work: ClientWork, steps: int) -> ClientWork:
    """The same work with so many local steps, and no more of a personal part by itself."""
    local, sharing = replace(work.training.local, steps=steps, epochs=1, schedule=Constant()), work.training.sharing
    return replace(work, training=replace(work.training, local=local, sharing=sharing.together))


def _timed(engine: LocalEngine, work: ClientWork, steps: int) -> Trial:
    """What each of the steps of the largest clients takes: the shortest of some trials, after a first one."""
    assert isinstance(engine.block, int) and isinstance(engine.threads, int)
    trainer = engine.trainer(work)
    ids = work.numbers[np.sort(np.argsort(work.data.sizes, kind="stable")[-engine.block :])]
    with threads(engine.threads):
        request, _ = work.first(trainer, ids)

        def answer() -> float:
            return float(trainer.answer(request, np.arange(len(ids))).norms.sum())

        return timed(answer, engine.threads, steps)


def timed(call: Callable[[], object], threads: int, steps: int = 1) -> Trial:
    """What each of the steps of a call takes: the shortest of some trials, after a first one.

    The first one never counts: it may compile, or import what stacked clients need, which takes longer than many steps.
    The call must wait for the device.
    """
    clock, processor = list[float](), list[float]()
    while len(clock) < 3 or (len(clock) <= MOST_TRIES and sum(processor[1:]) < LONG_TRIES):
        began, used = time.perf_counter(), time.process_time()
        call()
        clock.append((time.perf_counter() - began) / steps)
        processor.append((time.process_time() - used) / steps)
        if clock[-1] > LONG_STEP and len(clock) > 1:
            break
    return Trial(min(clock[1:]), min(processor[1:]), threads)


def duration(seconds: float) -> str:
    """A time of a round, in seconds or in milliseconds."""
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1e3:.3g} ms"


def _depends_on(work: ClientWork) -> str:
    """All that the time of a step depends on, besides the engine."""
    training, data = work.training, work.data
    local, layout, largest = training.local, training.sharing.layout, int(data.sizes.max())
    x = data.train.x[:1]
    parts = {"": x} if isinstance(x, Tensor) else x
    return repr(
        fingerprint(
            {
                "machine": [platform.node(), platform.machine(), len(cores()), str(data.train.y.device)],
                "versions": [own_version(), torch.__version__],
                "model": [
                    repr(training.module),
                    *map(list, layout.shapes),
                    str(layout.dtype),
                    training.sharing.personal,
                ],
                "samples": {name: [list(part.shape), str(part.dtype)] for name, part in parts.items()},
                "labels": list(data.train.y.shape[1:]),
                "transform": data.transform,
                "batch": largest if local.batch == "full" else min(local.batch, largest),
                "loss": training.goal.loss,
                "method": type(training.method),
                "optimiser": [local.optimiser, local.clip is None, local.keep_moments],
            }
        )
    )
