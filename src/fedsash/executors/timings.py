"""What local steps take on this machine: measured once, and kept in the user's cache folder."""

from __future__ import annotations

import json
import logging
import platform
import time
import traceback
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..basics.machine import cores, own_version
from ..basics.paths import cache_folder, replaced
from ..schedules import Constant
from ..settings.fingerprint import fingerprint
from .devices import threads
from .training import ClientWork

if TYPE_CHECKING:
    from .local_engine import LocalEngine

MOST_CALLS, ENOUGH, LONG_STEP = 20, 0.1, 1.0
"""A step is timed at most so often, and for so many seconds of the processor. One that is longer is timed twice."""

STEPS, SHORT_STEP = 4, 0.05
"""Steps shorter than this, in seconds, are timed so many at once, since each answer takes time of its own."""

LONGEST = 60.0
"""Once the timings of a run have taken so many seconds, only those that are known are added."""

log = logging.getLogger("fedsash")


@dataclass(frozen=True)
class Timing:
    """What a local step takes, in seconds: by the clock, and of the processor's time on all threads.

    Where other programs use the cores, the clock counts their time, too.
    """

    clock: float
    processor: float


class Timings:
    """The timings of a work's local steps, kept in a file of the user's cache folder.

    A file belongs to all that the time of a step depends on: the machine, the versions, the model's layers, the shapes
    of a batch, the method and the optimiser. The learning rate, the seed, the partition and a method's numbers are not
    among it, so the runs of most sweeps share one file. What can't be read, or is to be
    `renewed`, is measured again.
    """

    def __init__(self, work: ClientWork, *, renewed: bool = False) -> None:
        self._work = work
        self._file = cache_folder() / "engines" / f"{sha256(_depends_on(work).encode()).hexdigest()[:32]}.json"
        self._timings = {} if renewed else self._read()
        self._began = time.perf_counter()
        self.measured = False
        """Whether one was measured now."""

    def of(self, engine: LocalEngine) -> Timing:
        """What a step of an engine with one process takes; it is measured unless it is known.

        Raises `TimeoutError` if measuring has taken long already, but for compiled steps, which only long runs have.
        """
        if engine.kind == "vectorised":  # the timing may be known from a run with another loss or another code
            self._work.check_stackable()
        name = self._name(engine)
        if name not in self._timings:
            seconds = time.perf_counter() - self._began
            if self.measured and seconds > LONGEST and engine.compile is not True:
                raise TimeoutError(f"others took {seconds:.0f} s")
            try:
                self._timings[name] = measured(engine, self._work)
            except Exception as error:
                traceback.clear_frames(error.__traceback__)  # their variables hold the memory that may have run out
                raise
            self.measured = True
        return self._timings[name]

    def known(self, engine: LocalEngine) -> bool:
        """Whether what a step of the engine takes is known."""
        return self._name(engine) in self._timings

    def keep(self) -> None:
        """Keep what was measured now for later runs."""
        if not self.measured:
            return
        text = json.dumps({name: astuple(timing) for name, timing in self._timings.items()}, indent=1)
        try:
            with replaced(self._file) as unfinished:
                unfinished.write_text(text)
        except OSError as error:
            log.warning("what was measured can't be kept (%s): the next run measures again", error)

    def _read(self) -> dict[str, Timing]:
        try:
            rows = json.loads(self._file.read_text())
            return {name: Timing(float(clock), float(processor)) for name, (clock, processor) in rows.items()}
        except (OSError, ValueError, TypeError, AttributeError, OverflowError):
            return {}

    def _name(self, engine: LocalEngine) -> str:
        """The settings that the time of a step depends on."""
        compiled = f", compiled, {self._work.steps.max()} steps" if engine.compile is True else ""
        stack = f"{engine.kind}, {engine.block} clients, {engine.memory_format}"
        return f"{stack}, {engine.threads} threads, {engine.precision}{compiled}"


def measured(engine: LocalEngine, work: ClientWork) -> Timing:
    """What a local step of a stack (or of one client) takes. Compiled steps are those of a round, as a run has them."""
    most = int(work.steps.max())
    if engine.compile is True:
        return _of_largest(engine, work, most)
    timing = _of_largest(engine, _of_steps(work, 1), 1)
    if most == 1 or timing.clock > SHORT_STEP:
        return timing
    steps = min(STEPS, most)
    return _of_largest(engine, _of_steps(work, steps), steps)


def _of_steps(work: ClientWork, steps: int) -> ClientWork:
    """The same work with so many local steps, and no more of a personal part by itself."""
    training = work.training
    local = replace(training.local, steps=steps, epochs=1, schedule=Constant())
    return replace(work, training=replace(training, local=local, sharing=training.sharing.together))


def _of_largest(engine: LocalEngine, work: ClientWork, steps: int) -> Timing:
    """What each of the steps of the largest clients takes."""
    assert isinstance(engine.block, int) and isinstance(engine.threads, int)
    trainer = engine.trainer(work)
    largest = np.argsort(work.data.sizes, kind="stable")[-engine.block :]
    ids = work.numbers[np.sort(largest)]
    places = np.arange(len(ids))
    with threads(engine.threads):
        request, _ = work.first(trainer, ids)
        # To read the norms is to wait for the device.
        return timed(lambda: float(trainer.answer(request, places).norms.sum()), steps)


def timed(call: Callable[[], object], steps: int = 1) -> Timing:
    """What each of the steps of a call takes: the shortest time of some calls, after a first one.

    The first one never counts: it may compile, or import what stacked clients need, which takes longer than many steps.
    The call must wait for the device.
    """
    clock = list[float]()
    processor = list[float]()
    call()
    while len(clock) < 2 or (len(clock) < MOST_CALLS and sum(processor) < ENOUGH):
        began = time.perf_counter()
        used = time.process_time()
        call()
        clock.append((time.perf_counter() - began) / steps)
        processor.append((time.process_time() - used) / steps)
        if clock[-1] > LONG_STEP:
            break
    return Timing(min(clock), min(processor))


def _depends_on(work: ClientWork) -> str:
    """All that the time of a step depends on, besides the engine."""
    training = work.training
    data = work.data
    local = training.local
    layout = training.sharing.layout
    largest = int(data.sizes.max())
    x = data.train.x[:1]
    parts = {"": x} if isinstance(x, Tensor) else x
    shapes = [list(shape) for shape in layout.shapes]
    named = {
        "machine": [platform.node(), platform.machine(), len(cores()), str(data.train.y.device)],
        "versions": [own_version(), torch.__version__],
        "model": [repr(training.module), *shapes, str(layout.dtype), training.sharing.personal],
        "samples": {name: [list(part.shape), str(part.dtype)] for name, part in parts.items()},
        "labels": list(data.train.y.shape[1:]),
        "transform": data.transform,
        "batch": largest if local.batch == "full" else min(local.batch, largest),
        "loss": training.goal.loss,
        "method": type(training.method),
        "optimiser": [local.optimiser, local.clip is None, local.keep_moments],
    }
    return repr(fingerprint(named))
