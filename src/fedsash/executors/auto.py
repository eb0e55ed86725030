"""Replaces the "auto" settings of an engine: a list of candidates, a timing of each, and the fastest of them."""

from __future__ import annotations

import json
import logging
import math
import platform
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from hashlib import sha256
from itertools import product
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..basics.arrays import Ints
from ..basics.machine import cores, own_version
from ..basics.paths import cache_folder, replaced
from ..basics.randomness import draws_kept
from ..data.encoded import EncodedImages
from ..schedules import Constant
from ..settings.errors import FedsashError, SettingError, check, one_line, raised_as, shortened
from ..settings.fingerprint import fingerprint
from . import workers
from .devices import threads
from .gradients import MemoryFormat
from .local_engine import LocalEngine
from .training import ClientWork

STACKED_BYTES = 2**30
"""The largest size in bytes of the parameters of all clients in one stack, approximately."""

SLOW_STEP, QUICK_STEP, SLOW_STACK = 0.01, 0.001, 2.0
"""On the CPU, stacking gains nothing if one step of one client takes longer than the first, in seconds; or if a stack
takes so many times as long as its clients one after another, unless their steps are quicker than the second: then
calls take the time, which compiled steps save."""

COMPILING = 20.0
"""What a first compilation takes, in seconds."""

COMPILED = 3.0
"""How many times as fast compiled steps are expected to be before they are timed."""

CLOSE = 1.05
"""Of all engines that take at most this many times as long as the fastest, the simplest one is chosen."""

FULL = 4
"""With so many clients in a round for each core, processes keep the cores busy: threads are not timed."""

MESSAGE = 2e-4
"""The time in seconds that communication with worker processes takes in each round."""

BUSY = 0.9
"""If one thread gets a smaller share of a processor core than this, other programs use the cores."""

MOST_CALLS, ENOUGH, LONG_STEP = 20, 0.1, 1.0
"""A step is timed at most so often, and for so many seconds of the processor. One that is longer is timed twice."""

STEPS, SHORT_STEP = 4, 0.05
"""Steps shorter than this, in seconds, are timed so many at once, since each answer takes time of its own."""

LONGEST = 60.0
"""Once the timings of a run have taken so many seconds, only those that are known are added."""

WATCHED, SLOWER = 20, 1.5
"""Timings are forgotten if each of the first so many rounds takes more than this many times as long."""

log = logging.getLogger("fedsash")


@dataclass(frozen=True)
class Timing:
    """What a local step takes on some threads, in seconds: by the clock, and of the processor's time on all threads.

    Where other programs use the cores, the clock counts their time, too.
    """

    clock: float
    processor: float
    threads: int

    @property
    def busy(self) -> bool:
        """Whether other programs use the cores. Several threads also wait for each other, so they do not show it."""
        return self.threads == 1 and self.processor < BUSY * self.clock


@dataclass(frozen=True)
class Candidate:
    """An engine without "auto" settings, and the approximate time of a round with it, in seconds.

    `processor` is the time that local steps take of the processor in the busiest process. If the engine can't be timed,
    `error` is the exception, and both times are infinite.
    """

    engine: LocalEngine
    seconds: float = math.inf
    processor: float = math.inf
    error: Exception | None = None


class EngineEstimate:
    """What a round's local steps are expected to take of the processor, in seconds; it is called with what they take.

    If all of the first rounds take much more, the timings are forgotten, with a line that says so. The run itself goes
    on as it is. The time of other programs does not count; but they empty the caches, so the fastest round counts.
    """

    def __init__(self, seconds: float, forget: Callable[[], None]) -> None:
        self.forget = forget
        self._seconds = seconds
        self._rounds = 0
        self._fastest = math.inf

    def __call__(self, seconds: float) -> None:
        """A round took so many seconds of the processor in its busiest process."""
        self._rounds += 1
        self._fastest = min(self._fastest, seconds)
        if self._rounds == WATCHED and self._fastest > SLOWER * self._seconds:
            line = "engine: a round takes %s here, and took %s when it was timed; so the next run times it again"
            log.warning(line, duration(self._fastest), duration(self._seconds))
            self.forget()


@dataclass(frozen=True)
class Choice:
    """An engine without "auto" settings, lines that say why it was chosen, and its estimate, if it was timed."""

    engine: LocalEngine
    notes: list[str]
    estimate: EngineEstimate | None


def resolve(engine: LocalEngine, work: ClientWork, rounds: int | None = None) -> Choice:
    """The engine with every `"auto"` replaced, as the fastest candidate has it.

    Each candidate is timed for a few local steps, or its timing is known from an earlier run. The time of a round
    follows from the timing and from the steps of the clients in the first rounds. `rounds` is the length of the run, if
    known. What can't be timed is left out, with a line that says why. Raises `SettingError` if steps are to be
    compiled or clients stacked, and can't be; if nothing can be timed, the first exception.
    """
    obstacle = _uncompiled(work)
    check(not (obstacle and engine.compile is True), "LocalEngine.compile", True, obstacle)
    if engine.resolved:
        if engine.kind == "vectorised":
            with raised_as(lambda reason: _unstacked(engine, reason)):
                work.check_stackable()
        return Choice(engine, [], None)
    timings = Timings(work)
    options = _options(replace(engine, compile=False) if obstacle else engine, work)
    with draws_kept():  # the run draws as if nothing had been timed
        candidates = decide(options, timings, rounds, work.on_cpu)
        best = choose(candidates)
        if best.error is not None:
            demanded = engine.kind == "vectorised" or engine.compile is True
            if demanded and isinstance(best.error, RuntimeError | MemoryError):
                raise _unstacked(engine, _reason(best.error)) from best.error
            raise best.error
        notes = [*_left_out(candidates), _comparison(best, candidates, timings.measured)]
        notes += _slower_in_bfloat16(best.engine, timings)
    timings.keep()
    return Choice(best.engine, notes, EngineEstimate(best.processor, timings.forget))


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """The simplest candidate that is about as fast as the fastest, or the first one if none can be timed.

    They must be ordered, the simplest first.
    """
    close = CLOSE * min(candidate.seconds for candidate in candidates)
    return next((candidate for candidate in candidates if candidate.seconds < close), candidates[0])


def decide(options: Mapping[LocalEngine, float], timings: Timings, rounds: int | None, on_cpu: bool) -> list[Candidate]:
    """The candidates among `options`, the simplest first, each with the steps of its busiest process in a round.

    They depend on timings only. On the CPU stacks are timed only while they may gain something. Where compiled steps
    are demanded, the timings of uncompiled ones stand for them; where they are left open, they are more candidates.
    """
    timed: dict[LocalEngine, Timing] = {}
    candidates = []
    for option in options:
        if option.kind == "vectorised" and on_cpu and _gains_nothing(timed):
            timed = {engine: timing for engine, timing in timed.items() if engine.kind == "sequential"}
            break
        uncompiled = replace(option, compile=False)
        try:
            timed[option] = timings.of(uncompiled)
        except FedsashError:
            raise
        except Exception as error:  # its class depends on the model and on the device
            candidates.append(Candidate(uncompiled, error=error))
    for option, seconds in zip(timed, step_seconds(list(timed.values())), strict=True):
        steps = options[option]
        messages = MESSAGE if option.workers != 1 else 0.0
        engine = replace(option, compile=option.compile is True)
        candidates.append(Candidate(engine, steps * seconds + messages, steps * timed[option].processor))
    if any(option.kind == "vectorised" and option.compile == "auto" for option in timed):
        candidates += _compiled(candidates, timings, rounds)
    return candidates


def _compiled(candidates: Sequence[Candidate], timings: Timings, rounds: int | None) -> list[Candidate]:
    """The stacked candidates with compiled steps, if a run of so many rounds may repay the compilation.

    The steps of one stack are compiled and timed, and the others are taken to gain as much.
    """
    stacked = [one for one in candidates if one.engine.kind == "vectorised" and one.error is None]
    fastest = min(candidate.seconds for candidate in candidates)
    best = min(stacked, key=lambda candidate: candidate.seconds)
    compiled = replace(best.engine, compile=True)
    if not timings.known(compiled) and not repays(fastest - best.seconds / COMPILED, rounds):
        return []
    try:
        gain = timings.of(best.engine).processor / timings.of(compiled).processor
    except Exception as error:  # PyTorch's compiler can't do everything
        return [Candidate(compiled, error=error)]
    if not repays(fastest - best.seconds / gain, rounds):
        return []
    return [Candidate(replace(one.engine, compile=True), one.seconds / gain, one.processor / gain) for one in stacked]


def step_seconds(timings: Sequence[Timing]) -> list[float]:
    """The time of each step by the clock, or by the processor's time if other programs used the cores.

    Then several threads wait for each other, and gain nothing.
    """
    busy = any(timing.busy for timing in timings)
    return [timing.processor if busy else timing.clock for timing in timings]


def repays(saved: float, rounds: int | None) -> bool:
    """Whether a run of so many rounds that saves so many seconds in each repays the time that it takes to compile."""
    return saved * (rounds or 0) > COMPILING


def _gains_nothing(timings: Mapping[LocalEngine, Timing]) -> bool:
    """Whether stacking gains nothing, given the timings of single clients, if any, and perhaps of the first stacks."""
    single = [timing.processor for engine, timing in timings.items() if engine.kind == "sequential"]
    stacked = [
        timing.processor / int(engine.block) for engine, timing in timings.items() if engine.kind == "vectorised"
    ]
    if not single:
        return False
    hopeless = bool(stacked) and min(stacked) > SLOW_STACK * min(single)
    return min(single) > SLOW_STEP or (hopeless and min(single) > QUICK_STEP)


def _unstacked(engine: LocalEngine, reason: str) -> SettingError:
    name = "kind" if engine.kind == "vectorised" else "compile"
    message = f"this model can't be vectorised over clients ({reason})"
    return SettingError("LocalEngine", name, getattr(engine, name), message)


def _reason(error: Exception) -> str:
    return shortened(one_line(error.__cause__ or error), 90)


def _left_out(candidates: Sequence[Candidate]) -> list[str]:
    """Lines that say which engines can't be timed, and why."""
    notes = []
    stacked = any(one.engine.kind == "vectorised" and one.error is None for one in candidates)
    failed = [(one.engine, one.error) for one in candidates if one.error is not None]
    for engine, error in failed:
        reason = _reason(error)
        # Only its text tells PyTorch's error for memory from others: "... you tried to allocate 8 bytes".
        short = isinstance(error, MemoryError | TimeoutError) or "allocate" in str(error)
        if engine.compile is True:
            line = f"engine: local steps can't be compiled ({reason}); they run uncompiled"
        elif short or stacked or engine.kind == "sequential":
            line = f"engine: {described(engine)}: left out ({reason})"
        else:
            line = f"engine: this model can't be vectorised over clients ({reason}); training one client at a time"
        if line not in notes:
            notes.append(line)
    return notes


def _comparison(best: Candidate, candidates: Sequence[Candidate], measured: bool) -> str:
    """A line that says which engine was chosen, and how its speed compares with the next best."""
    line = f"engine: {described(best.engine)}: about {duration(best.seconds)} for each round"
    others = [candidate for candidate in candidates if candidate is not best and candidate.error is None]
    if others:
        next_best = min(others, key=lambda candidate: candidate.seconds)
        gain = next_best.seconds / best.seconds
        factor = f"{gain:.2f} times" if gain > CLOSE else "about"
        line += f", {factor} as fast as {described(next_best.engine)}"
    return line if measured else f"{line} (measured in an earlier run)"


def _slower_in_bfloat16(engine: LocalEngine, timings: Timings) -> list[str]:
    """A line if bfloat16 makes local steps slower, as on processors that have no instructions for it."""
    if engine.precision == "full":
        return []
    low = replace(engine, compile=False)
    with suppress(Exception):  # full precision may need more memory than there is
        ratio = timings.of(low).processor / timings.of(replace(low, precision="full")).processor
        if ratio > CLOSE:
            return [f"engine: a step in bfloat16 takes {ratio:.1f} times as long as in full precision here"]
    return []


def described(engine: LocalEngine) -> str:
    """The settings of an engine without "auto" settings in words."""
    how = f"vectorised over {engine.block} clients" if engine.kind == "vectorised" else "one client at a time"
    if engine.compile is True:
        how += " and compiled"
    if engine.workers != 1:
        return f"{how} in {engine.workers} processes, {engine.memory_format}"
    return f"{how} on {engine.threads} thread{'s' * (engine.threads != 1)}, {engine.memory_format}"


def duration(seconds: float) -> str:
    """A time of a round, in seconds or in milliseconds."""
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1e3:.3g} ms"


def _options(engine: LocalEngine, work: ClientWork) -> dict[LocalEngine, float]:
    """Every engine that agrees with the settings of `engine`, the simplest first; `compile` is as it is there.

    Its value is how many steps its busiest process takes in a round, as a mean over the first rounds.
    """
    here = [np.isin(work.numbers, ids) for ids in work.training.sample]
    sample = [work.steps[clients] for clients in here if clients.any()] or [work.steps[:1]]
    per_round = max(map(len, sample))
    kinds: list[Literal["sequential", "vectorised"]] = ["sequential", "vectorised"]
    if engine.kind != "auto":
        kinds = [engine.kind]
    elif engine.compile is True:
        kinds = ["vectorised"]
    formats: list[MemoryFormat] = ["channels_last", "contiguous"] if work.images else ["contiguous"]
    if engine.memory_format != "auto":
        formats = [engine.memory_format]
    options = {}
    for kind, memory_format, (count, number) in product(kinds, formats, _processes(engine, work, per_round)):
        block = 1
        if kind == "vectorised":
            share = -(-per_round // count)
            fitting = max(min(share, STACKED_BYTES // work.model_bytes), 1)
            block = fitting if engine.block == "auto" else engine.block
        option = replace(engine, kind=kind, workers=count, block=block, memory_format=memory_format, threads=number)
        options[option] = float(np.mean([_busiest(steps, block, count) for steps in sample]))
    return options


def _processes(engine: LocalEngine, work: ClientWork, per_round: int) -> list[tuple[int, int]]:
    """Every number of processes, with every number of threads in each, that agrees with the engine's settings."""
    can_start = work.on_cpu and (workers.can_fork() or engine.start == "spawn")
    busy = min(len(cores()), per_round)
    counts = [1, busy] if can_start and busy > 1 else [1]
    if engine.workers != "auto":
        counts = [engine.workers]
    most = torch.get_num_threads()
    pairs = []
    for count in counts:
        numbers = [1]
        if count == 1 and (len(counts) == 1 or per_round < FULL * len(cores())):
            numbers = sorted({1, most})
        if not work.on_cpu:  # then threads decode images and do the server's part, and there is nothing to choose
            numbers = [most]
        if engine.threads != "auto":
            numbers = [engine.threads]
        pairs += [(count, number) for number in numbers]
    return pairs


def _busiest(steps: Ints, block: int, count: int) -> int:
    """How many steps the busiest of `count` processes takes, if clients that take `steps` `[s]` train in stacks."""
    longest = [int(steps[i : i + block].max()) for i in range(0, len(steps), block)]
    return max(sum(longest[i] for i in share) for share in workers.dealt(longest, count))


def _uncompiled(work: ClientWork) -> str:
    """Why steps with these samples can't be compiled; empty if they can."""
    if isinstance(work.data.train.x, EncodedImages):
        return 'compiled steps need decoded images: set decode = "once" in the data, or compile = false'
    transform = work.data.transform
    if transform.own:
        name = type(transform).__name__
        return f"the transform's own functions can't be compiled ({name}): set compile = false"
    return ""


class Timings:
    """The timings of a work's local steps, kept in a file of the user's cache folder.

    A file belongs to all that the time of a step depends on: the machine, the versions, the model's layers, the shapes
    of a batch, the method and the optimiser. The learning rate, the seed, the partition and a method's numbers are not
    among it, so the runs of most sweeps share one file. A file that can't be read is measured again.
    """

    def __init__(self, work: ClientWork) -> None:
        self._work = work
        self._file = cache_folder() / "engines" / f"{sha256(_depends_on(work).encode()).hexdigest()[:32]}.json"
        self._timings = self._read()
        self._seconds = 0.0
        self.measured = False
        """Whether one was measured now."""

    def of(self, engine: LocalEngine) -> Timing:
        """What a step of an engine with one process takes; it is measured unless it is known.

        Raises `TimeoutError` if measuring has taken long already, but for compiled steps, which only long runs have.
        """
        if engine.kind == "vectorised":  # the timing may be known from a run with another loss
            self._work.check_stackable()
        name = self._name(engine)
        if name not in self._timings:
            if self._seconds > LONGEST and engine.compile is not True:
                raise TimeoutError(f"others took {self._seconds:.0f} s")
            began = time.perf_counter()
            try:
                self._timings[name] = measured(engine, self._work)
            except Exception as error:
                traceback.clear_frames(error.__traceback__)  # their variables hold the memory that may have run out
                raise
            finally:
                self._seconds += time.perf_counter() - began
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

    def forget(self) -> None:
        """Let the next run measure again."""
        try:
            self._file.unlink(missing_ok=True)
        except OSError as error:
            log.warning("what was measured can't be forgotten (%s): the next run takes it as it is", error)

    def _read(self) -> dict[str, Timing]:
        try:
            rows = json.loads(self._file.read_text())
            return {name: Timing(float(clock), float(used), int(n)) for name, (clock, used, n) in rows.items()}
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
        return _timed_steps(engine, work, most)
    timing = _timed_steps(engine, _of_steps(work, 1), 1)
    steps = min(STEPS, most)
    if steps == 1 or timing.clock > SHORT_STEP:
        return timing
    return _timed_steps(engine, _of_steps(work, steps), steps)


def _of_steps(work: ClientWork, steps: int) -> ClientWork:
    """The same work with so many local steps, and no more of a personal part by itself."""
    training = work.training
    local = replace(training.local, steps=steps, epochs=1, schedule=Constant())
    return replace(work, training=replace(training, local=local, sharing=training.sharing.together))


def _timed_steps(engine: LocalEngine, work: ClientWork, steps: int) -> Timing:
    """What each of the steps of the largest clients takes."""
    assert isinstance(engine.block, int) and isinstance(engine.threads, int)
    trainer = engine.trainer(work)
    largest = np.argsort(work.data.sizes, kind="stable")[-engine.block :]
    ids = work.numbers[np.sort(largest)]
    with threads(engine.threads):
        request, _ = work.first(trainer, ids)
        places = np.arange(len(ids))
        # To read the norms is to wait for the device.
        return timed(lambda: float(trainer.answer(request, places).norms.sum()), engine.threads, steps)


def timed(call: Callable[[], object], threads: int, steps: int = 1) -> Timing:
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
    return Timing(min(clock), min(processor), threads)


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
