"""Replaces the "auto" settings of an engine: a list of candidates, a timing of each, and the fastest of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np
import torch

from ..basics.arrays import Ints
from ..basics.machine import cores
from ..basics.randomness import draws_kept
from ..data.encoded import EncodedImages
from ..settings.errors import FedsashError, SettingError, check, one_line, raised_as, shortened
from . import workers
from .gradients import MemoryFormat
from .local_engine import LocalEngine
from .timings import Timing, Timings
from .training import ClientWork

STACKED_BYTES = 2**30
"""The largest size in bytes of the parameters of all clients in one stack, approximately."""

SLOW_STEP, QUICK_STEP, SLOW_STACK = 0.01, 0.001, 2.0
"""On the CPU, stacking gains nothing if one step of one client takes longer than the first, in seconds; or if a stack
takes so many times as long as its clients one after another, unless their steps are quicker than the second: then
calls take the time, which compiled steps save."""

COMPILING, LOADING = 20.0, 2.5
"""What a first compilation takes, in seconds, and what it takes to load code that is in the cache folder."""

GAIN = 3.0
"""How many times as fast compiled steps are expected to be before they are timed."""

CLOSE = 1.05
"""Of all engines that take at most this many times as long as the fastest, the simplest one is chosen."""

FULL = 4
"""With so many clients in a round for each core, processes keep the cores busy: threads are not timed."""

MESSAGE = 2e-4
"""The time in seconds that communication with worker processes takes in each round."""

BUSY = 0.9
"""If one thread gets a smaller share of a processor core than this, other programs use the cores."""


@dataclass(frozen=True)
class Candidate:
    """An engine without "auto" settings, and the approximate time of a round with it, in seconds.

    If the engine can't be timed, `error` is the exception, and the time is infinite.
    """

    engine: LocalEngine
    seconds: float = math.inf
    error: Exception | None = None


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
    options = _options(replace(engine, compile=False) if obstacle else engine, work)
    with draws_kept():  # the run draws as if nothing had been timed
        candidates = decide(options, timings, rounds, work.on_cpu)
    best = choose(candidates)
    if best.error is not None:
        demanded = engine.kind == "vectorised" or engine.compile is True
        if demanded and isinstance(best.error, RuntimeError | MemoryError):
            raise _unstacked(engine, _reason(best.error)) from best.error
        raise best.error
    timings.keep()
    return best.engine, [*_left_out(candidates), _comparison(best, candidates, timings.measured)]


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
    # Then the clock counts their time, too. Several threads also wait for each other, so they do not show it.
    others = any(option.threads == 1 and timing.processor < BUSY * timing.clock for option, timing in timed.items())
    for option, timing in timed.items():
        step = timing.processor if others else timing.clock
        messages = MESSAGE if option.workers != 1 else 0.0
        engine = replace(option, compile=option.compile is True)
        candidates.append(Candidate(engine, options[option] * step + messages))
    if any(option.kind == "vectorised" and option.compile == "auto" for option in timed):
        candidates += _compiled(candidates, timings, rounds or 0)
    return candidates


def _compiled(candidates: Sequence[Candidate], timings: Timings, rounds: int) -> list[Candidate]:
    """The stacked candidates with compiled steps, if a run of so many rounds may repay the compilation.

    The steps of one stack are compiled and timed, and the others are taken to gain as much. If their timing is known
    from an earlier run, so is their code.
    """
    stacked = [one for one in candidates if one.engine.kind == "vectorised" and one.error is None]
    fastest = min(candidate.seconds for candidate in candidates)
    best = min(stacked, key=lambda candidate: candidate.seconds)
    compiled = replace(best.engine, compile=True)
    price = LOADING if timings.known(compiled) else COMPILING
    if price == COMPILING and rounds * (fastest - best.seconds / GAIN) <= price:
        return []
    try:
        gain = timings.of(best.engine).processor / timings.of(compiled).processor
    except Exception as error:  # PyTorch's compiler can't do everything
        return [Candidate(compiled, error=error)]
    if rounds * (fastest - best.seconds / gain) <= price:
        return []
    return [Candidate(replace(one.engine, compile=True), one.seconds / gain) for one in stacked]


def _gains_nothing(timings: Mapping[LocalEngine, Timing]) -> bool:
    """Whether stacking gains nothing, given the timings of single clients, if any, and perhaps of the first stacks."""
    single = [timing.processor for engine, timing in timings.items() if engine.kind == "sequential"]
    stacked = [timing.processor / int(one.block) for one, timing in timings.items() if one.kind == "vectorised"]
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


def _obstacle_to_compiling(work: ClientWork) -> str:
    """Why steps with these samples can't be compiled; empty if they can."""
    if isinstance(work.data.train.x, EncodedImages):
        return 'compiled steps need decoded images: set decode = "once" in the data, or compile = false'
    transform = work.data.transform
    if transform.own:
        name = type(transform).__name__
        return f"the transform's own functions can't be compiled ({name}): set compile = false"
    return ""
