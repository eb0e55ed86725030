"""Replaces the "auto" settings of an engine: a list of candidates, a timing of each, and the fastest of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch

from ..data.encoded import EncodedImages
from ..settings.errors import FedsashError, SettingError, check, one_line, raised_as, shortened
from ..system.machine import core_count
from ..vector.arrays import Ints
from ..vector.randomness import draws_kept
from . import workers
from .local_engine import LocalEngine
from .timings import Timings
from .training import ClientWork

STACKED_BYTES = 2**30
"""The largest size in bytes of the parameters of all clients in one stack, approximately."""

SLOW_STEP = 0.01
"""On the CPU no stack is timed if a step of one client takes longer, in seconds: stacking saves calls, and large stacks
take long to time."""

SLOW_STACK = 2.0
"""On the CPU no more stacks are timed after one that takes so many times as long as its clients one after another."""

QUICK_STEP = 0.001
"""They are timed nevertheless if a step of one client is quicker, in seconds: then calls take the time, which compiled
steps save."""

COMPILING = 20.0
"""What a first compilation takes, in seconds."""

LOADING = 2.5
"""What it takes to load code that is in the cache folder, in seconds."""

GAIN = 3.0
"""How many times as fast compiled steps are expected to be before they are timed."""

CLOSE = 1.05
"""Of all engines that take at most this many times as long as the fastest, the simplest one is chosen."""

FULL = 4
"""With so many clients in a round for each core, processes keep the cores busy: threads are not timed, since that
takes as long as all else."""

MESSAGE = 2e-4
"""The time in seconds that communication with worker processes takes in each round."""


@dataclass(frozen=True)
class Candidate:
    """An engine without "auto" settings, and in `steps` how many steps its busiest process takes in a round.

    `step` is the time of a step in seconds. If it can't be timed, `error` is the exception.
    """

    engine: LocalEngine
    steps: float
    step: float = math.inf
    error: Exception | None = None

    @property
    def seconds(self) -> float:
        """The approximate time of a round."""
        seconds = self.steps * self.step
        if self.engine.workers != 1:
            seconds += MESSAGE
        return seconds


def resolve(
    engine: LocalEngine, work: ClientWork, rounds: int | None = None, *, renewed: bool = False
) -> tuple[LocalEngine, list[str]]:
    """The engine with every `"auto"` replaced as the fastest candidate has it, and lines that say why.

    Each candidate is timed for a few local steps, or its timing is known from an earlier run, unless it is to be
    `renewed`. The time of a round follows from the timing and from the steps of the clients in the first rounds.
    `rounds` is the length of the run, if known. What can't be timed is left out, with a line that says why. Raises
    `SettingError` if steps are to be compiled or clients stacked, and can't be; if nothing can be timed, the first
    exception.
    """
    obstacle = _obstacle_to_compiling(work)
    check(not (obstacle and engine.compile is True), "LocalEngine.compile", True, obstacle)
    if engine.resolved:
        if engine.kind == "vectorised":
            with raised_as(lambda reason: _unstacked(engine, reason)):
                work.check_stackable()
        return engine, []
    timings = Timings(work, renewed=renewed)
    with draws_kept():  # the run draws as if nothing had been timed
        compared = compare(candidates(engine, work), timings, on_cpu=work.on_cpu)
        if engine.compile == "auto" and not obstacle:
            compared += compiled(compared, timings, rounds or 0)
    best = choose(compared)
    if best.error is not None:
        demanded = engine.kind == "vectorised" or engine.compile is True
        if demanded and isinstance(best.error, RuntimeError | MemoryError):
            raise _unstacked(engine, _reason(best.error)) from best.error
        raise best.error
    timings.keep()
    return best.engine, [*_left_out(compared), _comparison(best, compared, timings.measured)]


def candidates(engine: LocalEngine, work: ClientWork) -> list[Candidate]:
    """Every engine that agrees with the settings of `engine`, the simplest first; none is timed yet.

    Steps are compiled only if `engine` demands it. How many steps the busiest process takes in a round is a mean over
    the first rounds.
    """
    rounds = _steps_of_rounds(work)
    per_round = max(map(len, rounds))
    possible_kinds = ["sequential", "vectorised"]
    if engine.compile is True:
        possible_kinds = ["vectorised"]
    possible_formats = ["contiguous"]
    if work.images:
        possible_formats = ["channels_last", "contiguous"]
    kinds = _choices(engine.kind, possible_kinds)
    formats = _choices(engine.memory_format, possible_formats)
    processes = _processes(engine, work, per_round)
    options = []
    for kind, memory_format, (count, threads) in product(kinds, formats, processes):
        block = 1
        if kind == "vectorised":
            share = math.ceil(per_round / count)
            fitting = max(min(share, STACKED_BYTES // work.model_bytes), 1)
            (block,) = _choices(engine.block, [fitting])
        option = replace(
            engine,
            kind=kind,
            workers=count,
            threads=threads,
            compile=engine.compile is True,
            block=block,
            memory_format=memory_format,
        )
        steps = np.mean([_busiest(of_clients, block, count) for of_clients in rounds])
        options.append(Candidate(option, float(steps)))
    return options


def _steps_of_rounds(work: ClientWork) -> list[Ints]:
    """The local steps `[s]` of the clients on this machine in each of the first rounds, if any of them takes part."""
    rounds: list[Ints] = []
    for ids in work.training.sample:
        chosen = np.isin(work.numbers, ids)
        if chosen.any():
            rounds.append(work.steps[chosen])
    return rounds or [work.steps[:1]]


def _processes(engine: LocalEngine, work: ClientWork, per_round: int) -> list[tuple[int, int]]:
    """Every number of processes, with every number of threads in each, that agrees with the engine's settings."""
    possible_counts = [1]
    if work.on_cpu and (workers.can_fork() or engine.start == "spawn"):
        possible_counts = sorted({1, min(core_count(), per_round)})
    counts = _choices(engine.workers, possible_counts)
    pairs = []
    for count in counts:
        possible_threads = [1]
        if not work.on_cpu:  # then threads decode images and do the server's part, and there is nothing to choose
            possible_threads = [torch.get_num_threads()]
        elif count == 1 and (len(counts) == 1 or per_round < FULL * core_count()):
            possible_threads = sorted({1, min(torch.get_num_threads(), core_count())})
        for threads in _choices(engine.threads, possible_threads):
            pairs.append((count, threads))
    return pairs


def _choices(setting: Any, possible: Sequence[Any]) -> Sequence[Any]:
    """The values among which a setting leaves the choice."""
    if setting == "auto":
        return possible
    return [setting]


def _busiest(steps: Ints, block: int, count: int) -> int:
    """How many steps the busiest of `count` processes takes, if clients that take `steps` `[s]` train in stacks."""
    of_stacks = [int(steps[first : first + block].max()) for first in range(0, len(steps), block)]
    most = 0
    for stacks in workers.dealt(of_stacks, count):
        most = max(most, sum(of_stacks[stack] for stack in stacks))
    return most


def compare(options: Sequence[Candidate], timings: Timings, *, on_cpu: bool) -> list[Candidate]:
    """The options with the time of a step, the simplest first, without stacks that gain nothing.

    Where compiled steps are demanded, the timings of uncompiled ones stand for them: each compilation takes long.
    """
    compared = [_timed(option, timings) for option in options if option.engine.kind == "sequential"]
    single = min((candidate.step for candidate in compared), default=0.0)
    if on_cpu and SLOW_STEP < single < math.inf:
        return compared
    for option in options:
        if option.engine.kind == "sequential":
            continue
        stack = _timed(option, timings)
        compared.append(stack)
        slow = SLOW_STACK * single * int(option.engine.block) < stack.step < math.inf
        if on_cpu and slow and single > QUICK_STEP:
            break
    return compared


def compiled(compared: Sequence[Candidate], timings: Timings, rounds: int) -> list[Candidate]:
    """The fastest stack with compiled steps, if a run of so many rounds repays that; else nothing.

    A first compilation is tried if its price is repaid by the gain that is expected. Then its code is in the cache
    folder, and the gain is known: from now on, it must repay the loading only.
    """
    stacks = [candidate for candidate in compared if _timed_stack(candidate)]
    if not stacks:
        return []
    best = min(stacks, key=lambda candidate: candidate.seconds)
    option = replace(best, engine=replace(best.engine, compile=True))
    fastest = min(candidate.seconds for candidate in compared)
    if not timings.known(option.engine) and rounds * (fastest - best.seconds / GAIN) <= COMPILING:
        return []
    try:
        option = replace(option, step=timings.of(option.engine))
    except Exception as error:  # PyTorch's compiler can't do everything
        return [replace(option, step=math.inf, error=error)]
    if rounds * (fastest - option.seconds) <= LOADING:
        return []
    return [option]


def _timed_stack(candidate: Candidate) -> bool:
    """Whether a candidate stacks clients, and could be timed."""
    return candidate.engine.kind == "vectorised" and candidate.error is None


def choose(compared: Sequence[Candidate]) -> Candidate:
    """The simplest candidate that is about as fast as the fastest, or the first one if none can be timed.

    They must be ordered, the simplest first.
    """
    close = CLOSE * min(candidate.seconds for candidate in compared)
    for candidate in compared:
        if candidate.seconds < close:
            return candidate
    return compared[0]


def _timed(option: Candidate, timings: Timings) -> Candidate:
    """The option with the time of its uncompiled step, or with the exception in which the timing ended."""
    uncompiled = replace(option.engine, compile=False)
    try:
        return replace(option, step=timings.of(uncompiled))
    except FedsashError:
        raise
    except Exception as error:  # its class depends on the model and on the device
        return replace(option, engine=uncompiled, error=error)


def _unstacked(engine: LocalEngine, reason: str) -> SettingError:
    """The error of a setting that demands stacked clients, where these can't be stacked."""
    name = "compile"
    if engine.kind == "vectorised":
        name = "kind"
    message = f"this model can't be vectorised over clients ({reason})"
    return SettingError("LocalEngine", name, getattr(engine, name), message)


def _reason(error: Exception) -> str:
    """The message of an exception, or of its cause, in one short line."""
    return shortened(one_line(error.__cause__ or error), 90)


def _left_out(candidates: Sequence[Candidate]) -> list[str]:
    """Lines that say which engines can't be timed, and why."""
    notes: list[str] = []
    stacked = any(map(_timed_stack, candidates))
    for candidate in candidates:
        engine = candidate.engine
        error = candidate.error
        if error is None:
            continue
        reason = _reason(error)
        # Only its text tells PyTorch's error for memory from others: "... you tried to allocate 8 bytes".
        short = isinstance(error, MemoryError) or "allocate" in str(error)
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
        factor = "about"
        if gain > CLOSE:
            factor = f"{gain:.2f} times"
        line += f", {factor} as fast as {described(next_best.engine)}"
    if not measured:
        line += " (measured in an earlier run)"
    return line


def described(engine: LocalEngine) -> str:
    """The settings of an engine without "auto" settings in words."""
    how = "one client at a time"
    if engine.kind == "vectorised":
        how = f"vectorised over {engine.block} clients"
    if engine.compile is True:
        how += " and compiled"
    if engine.workers != 1:
        return f"{how} in {engine.workers} processes, {engine.memory_format}"
    threads = f"{engine.threads} threads"
    if engine.threads == 1:
        threads = "1 thread"
    return f"{how} on {threads}, {engine.memory_format}"


def duration(seconds: float) -> str:
    """A time of a round, in seconds or in milliseconds."""
    if seconds >= 0.1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.3g} ms"


def _obstacle_to_compiling(work: ClientWork) -> str:
    """Why steps with these samples can't be compiled; empty if they can."""
    if isinstance(work.data.train.x, EncodedImages):
        return 'compiled steps need decoded images: set decode = "once" in the data, or compile = false'
    transform = work.data.transform
    if transform.own:
        name = type(transform).__name__
        return f"the transform's own functions can't be compiled ({name}): set compile = false"
    return ""
