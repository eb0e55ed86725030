"""What local steps take on this machine: measured once, and kept in the user's cache folder."""

from __future__ import annotations

import json
import logging
import platform
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..methods.schedules import Constant
from ..settings.fingerprint import fingerprint
from ..system.machine import core_count, own_version
from ..system.paths import cache_folder, replaced
from .processes import threads
from .training import ClientWork

if TYPE_CHECKING:
    from .local_engine import LocalEngine

MOST_CALLS = 20
"""Steps are timed at most so often."""

ENOUGH = 0.1
"""They are timed until all calls together have taken so many seconds."""

SHORT_STEP = 0.05
"""Steps shorter than this, in seconds, are timed several at once, since each answer takes time of its own."""

STEPS = 4
"""So many of them are timed at once."""

log = logging.getLogger("fedsash")


class Timings:
    """The seconds that a work's local steps take, kept in a file of the user's cache folder.

    A file belongs to all that the time of a step depends on: the machine, the versions, the model's layers, the shapes
    of a batch, the method and the optimiser. The learning rate, the seed, the partition and a method's numbers are not
    among it, so the runs of most sweeps share one file. What can't be read, or is to be `renewed`, is measured again.
    """

    def __init__(self, work: ClientWork, *, renewed: bool = False) -> None:
        self._work = work
        identity = sha256(_depends_on(work).encode()).hexdigest()[:32]
        self._file = cache_folder() / "engines" / f"{identity}.json"
        self._seconds: dict[str, float] = {}
        if not renewed:
            self._seconds = self._read()
        self.measured = False
        """Whether one was measured now."""

    def of(self, engine: LocalEngine) -> float:
        """What a step of an engine with one process takes; it is measured unless it is known."""
        if engine.kind == "vectorised":  # the time may be known from a run with another loss or another code
            self._work.check_stackable()
        name = self._name(engine)
        if name not in self._seconds:
            try:
                self._seconds[name] = measured(engine, self._work)
            except Exception as error:
                traceback.clear_frames(error.__traceback__)  # their variables hold the memory that may have run out
                raise
            self.measured = True
        return self._seconds[name]

    def known(self, engine: LocalEngine) -> bool:
        """Whether what a step of the engine takes is known."""
        return self._name(engine) in self._seconds

    def keep(self) -> None:
        """Keep what was measured now for later runs."""
        if not self.measured:
            return
        try:
            with replaced(self._file) as unfinished:
                unfinished.write_text(json.dumps(self._seconds, indent=1))
        except OSError as error:
            log.warning("what was measured can't be kept (%s): the next run measures again", error)

    def _read(self) -> dict[str, float]:
        """The timings in the file; none if there is no file, or if it can't be read."""
        try:
            rows = json.loads(self._file.read_text())
            return {name: float(seconds) for name, seconds in rows.items()}
        except (OSError, ValueError, TypeError, AttributeError, OverflowError):
            return {}

    def _name(self, engine: LocalEngine) -> str:
        """The settings that the time of a step depends on."""
        name = f"{engine.kind}, {engine.block} clients, {engine.memory_format}, {engine.threads} threads"
        if engine.compile is True:
            name += f", compiled, {self._work.steps.max()} steps"
        return f"{name}, {engine.precision}"


def measured(engine: LocalEngine, work: ClientWork) -> float:
    """What a local step of a stack (or of one client) takes. Compiled steps are those of a round, as a run has them."""
    most = int(work.steps.max())
    if engine.compile is True:
        return _of_largest(engine, work, most)
    seconds = _of_largest(engine, _of_steps(work, 1), 1)
    if most == 1 or seconds > SHORT_STEP:
        return seconds
    steps = min(STEPS, most)
    return _of_largest(engine, _of_steps(work, steps), steps)


def _of_steps(work: ClientWork, steps: int) -> ClientWork:
    """The same work with so many local steps, and no more of a personal part by itself."""
    training = work.training
    local = replace(training.local, steps=steps, epochs=1, schedule=Constant())
    return replace(work, training=replace(training, local=local, sharing=training.sharing.together))


def _of_largest(engine: LocalEngine, work: ClientWork, steps: int) -> float:
    """What each of the steps of the largest clients takes.

    Where other programs use the cores, the clock counts their time, too, and the processor's time does not. But several
    threads also wait for each other, and a device computes while the processor waits: only the clock shows that. So it
    does on Windows, where the processor's time is counted in steps of 16 ms.
    """
    assert isinstance(engine.block, int) and isinstance(engine.threads, int)
    clock = time.perf_counter
    if engine.threads == 1 and work.on_cpu and sys.platform != "win32":
        clock = time.process_time
    trainer = engine.trainer(work)
    largest = np.argsort(work.data.sizes, kind="stable")[-engine.block :]
    ids = work.numbers[np.sort(largest)]
    places = np.arange(len(ids))
    with threads(engine.threads):
        request, _ = work.first(trainer, ids)

        def answer() -> None:
            norms = trainer.answer(request, places).norms
            float(norms.sum())  # to read the norms is to wait for the device

        return shortest(answer, clock) / steps


def shortest(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """The shortest time of some calls, after a first one. A call must wait for the device.

    The first one never counts: it may compile, or import what stacked clients need, which takes longer than many steps.
    """
    call()
    seconds = list[float]()
    while len(seconds) < MOST_CALLS and sum(seconds) < ENOUGH:
        began = clock()
        call()
        seconds.append(clock() - began)
    return min(seconds)


def _depends_on(work: ClientWork) -> str:
    """All that the time of a step depends on, besides the engine."""
    training = work.training
    data = work.data
    local = training.local
    layout = training.sharing.layout
    largest = int(data.sizes.max())
    batch = largest
    if local.batch != "full":
        batch = min(local.batch, largest)
    x = data.train.x[:1]
    if isinstance(x, Tensor):
        x = {"": x}
    samples = {name: [list(part.shape), str(part.dtype)] for name, part in x.items()}
    shapes = [list(shape) for shape in layout.shapes]
    named = {
        "machine": [platform.node(), platform.machine(), core_count(), str(data.train.y.device)],
        "versions": [own_version(), torch.__version__],
        "model": [repr(training.module), *shapes, str(layout.dtype), training.sharing.personal],
        "samples": samples,
        "labels": list(data.train.y.shape[1:]),
        "transform": data.transform,
        "batch": batch,
        "loss": training.goal.loss,
        "method": type(training.method),
        "optimiser": [local.optimiser, local.clip is None, local.keep_moments],
    }
    return repr(fingerprint(named))
