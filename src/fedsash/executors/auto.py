"""Replaces the "auto" settings of an engine, by a short measurement of the actual work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import torch

from ..basics.arrays import Ints
from ..basics.errors import check
from ..data.encoded import EncodedImages
from ..schedules import Constant
from . import workers
from .devices import cores, threads
from .gradients import MemoryFormat
from .local_engine import LocalEngine
from .training import ClientWork

STACKED_BYTES = 2**30
"""The largest size in bytes of the parameters of all clients in one stack, approximately."""

SLOW_STEP = 0.02
"""On the CPU, stacking gains nothing if one step of one client takes longer than this, in seconds."""

COMPILING = 20.0
"""What a first compilation takes, in seconds."""

COMPILED = 3.0
"""How many times as fast compiled steps are, if their uncompiled ones take at most `SLOW_STEP`. It is rather more."""

BUSY = 0.9
"""If one thread gets a smaller share of a processor core than this, other programs use the cores."""

CLOSE = 1.05
"""Of all engines that take at most this many times as long as the fastest, the simplest one is chosen."""

CLOSE_COMPILED = 1.3
"""The same tolerance if the steps will be compiled: this already removes most overhead that processes would avoid."""

MOST_TRIES, LONG_TRIES = 20, 0.1
"""A step is tried at most so often, and for so many seconds of the processor. The shortest trial is the quietest."""

LONG_STEP = 1.0
"""A step that takes longer than this, in seconds, is not tried again."""

MESSAGE = 2e-4
"""The time in seconds that communication with worker processes takes in each round."""


@dataclass(frozen=True)
class Trial:
    """What a local step takes on some threads, in seconds: by the clock, and of the processor's time on each thread.

    Where other programs use the cores, the clock counts their time, too.
    """

    clock: float
    processor: float
    threads: int

    @property
    def busy(self) -> bool:
        """Whether other programs use the cores. Several threads also wait for each other, so they do not tell it."""
        return self.threads == 1 and self.processor < BUSY * self.clock


@dataclass(frozen=True)
class Candidate:
    """An engine without "auto" settings, and the approximate time of a round with it, in seconds."""

    engine: LocalEngine
    seconds: float

    def __str__(self) -> str:
        e = self.engine
        how = f"vectorised over {e.block} clients" if e.kind == "vectorised" else "one client at a time"
        where = f"in {e.workers} processes" if e.workers != 1 else f"on {e.threads} thread{'s' * (e.threads != 1)}"
        return f"{how} {where}, {e.memory_format}"


def resolve(engine: LocalEngine, work: ClientWork, rounds: int | None = None) -> tuple[LocalEngine, list[str]]:
    """The engine with every `"auto"` replaced, and lines that say what was chosen and why.

    Each candidate is timed for a few local steps. The time of a round follows from this time and from the steps of the
    clients in the first rounds. `rounds` is the length of the run, if known; only runs that repay it are compiled.
    While other programs use the cores, the processor's time counts. A model that can't be vectorised is trained one
    client at a time, with a line that says so. Raises `ValueError` if steps are to be compiled and can't be, and
    `RuntimeError` if the model can't be vectorised but must be.
    """
    reason = _uncompiled(work)
    check(not (reason and engine.compile is True), "LocalEngine.compile", True, reason)
    if engine.resolved:
        return engine, []
    try:
        candidates = _candidates(engine, work)
    except RuntimeError as error:
        if engine.kind == "sequential":
            raise
        line = f"engine: this model can't be vectorised over clients ({_short(error)}); training one client at a time"
        chosen, notes = resolve(replace(engine, kind="sequential", block="auto", compile="auto"), work, rounds)
        return chosen, [line, *notes]
    best, compile = choose(candidates, lambda candidate: not reason and _compiles(engine, candidate, rounds))
    return replace(best.engine, compile=compile), [_said(best, candidates, compile)]


def choose(candidates: Sequence[Candidate], compiles: Callable[[Candidate], bool]) -> tuple[Candidate, bool]:
    """The simplest candidate that is about as fast as the fastest, and whether its steps are compiled.

    `candidates` must be ordered, the simplest first.
    """
    fastest = min(candidates, key=lambda candidate: candidate.seconds)
    close = fastest.seconds * (CLOSE_COMPILED if compiles(fastest) else CLOSE)
    best = next(candidate for candidate in candidates if candidate.seconds < close)
    return best, compiles(best)


def _said(best: Candidate, candidates: Sequence[Candidate], compile: bool) -> str:
    """A line that says which engine was chosen, and how its speed compares with the next best."""
    line = f"engine: {best}: about {duration(best.seconds)} for each round"
    others = [candidate for candidate in candidates if candidate is not best]
    if others:
        next_best = min(others, key=lambda candidate: candidate.seconds)
        gain = next_best.seconds / best.seconds
        line += f", {f'{gain:.2f} times' if gain > CLOSE else 'about'} as fast as {next_best}"
    return line + ("; to be compiled" if compile else "")


def duration(seconds: float) -> str:
    """A time of a round, in seconds or in milliseconds."""
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1e3:.3g} ms"


def _candidates(engine: LocalEngine, work: ClientWork) -> list[Candidate]:
    """Every possible engine with its time for a round; raises `RuntimeError` if the model can't be vectorised."""
    here = [np.isin(work.numbers, ids) for ids in work.training.sample]
    sample = [work.steps[some] for some in here if some.any()] or [work.steps[:1]]
    measure = lru_cache(lambda alone: _trial(alone, work))
    tried: list[tuple[LocalEngine, Trial]] = []
    for option in _options(engine, work, max(map(len, sample))):
        if option.kind == "vectorised" and engine.kind == "auto" and work.on_cpu and _is_slow(tried):
            break
        tried.append((option, measure(replace(option, workers=1))))
    seconds = step_seconds([trial for _, trial in tried])
    calls = [float(np.mean([_calls(option, own) for own in sample])) for option, _ in tried]
    return [
        Candidate(option, count * step + MESSAGE * (option.workers != 1))
        for (option, _), count, step in zip(tried, calls, seconds, strict=True)
    ]


def step_seconds(trials: Sequence[Trial]) -> list[float]:
    """The time of a step in each trial, by the clock, or by the processor's time if other programs used the cores."""
    busy = any(trial.busy for trial in trials)
    return [trial.processor if busy else trial.clock for trial in trials]


def _options(engine: LocalEngine, work: ClientWork, per_round: int) -> Iterator[LocalEngine]:
    """Every engine without "auto" settings that agrees with the given ones, the simplest first."""
    default = torch.get_num_threads()
    can_start = work.on_cpu and (workers.can_fork() or engine.start == "spawn")
    several = [min(cores(), per_round)] if can_start and min(cores(), per_round) > 1 else []
    sizes = [1, *several] if engine.workers == "auto" else [engine.workers]
    formats: list[MemoryFormat] = ["channels_last", "contiguous"] if work.images else ["contiguous"]
    kinds: tuple[Literal["sequential", "vectorised"], ...] = ("sequential", "vectorised")
    for kind in kinds if engine.kind == "auto" else (engine.kind,):
        for memory_format in formats if engine.memory_format == "auto" else [engine.memory_format]:
            for count in sizes:
                counts = [1] if count > 1 else sorted({1, default})
                for number in counts if engine.threads == "auto" else [engine.threads]:
                    yield replace(
                        engine,
                        kind=kind,
                        workers=count,
                        block=_block(engine, work, kind, -(-per_round // count)),
                        compile=False,
                        memory_format=memory_format,
                        threads=number,
                    )


def _block(engine: LocalEngine, work: ClientWork, kind: str, share: int) -> int:
    """How many clients are stacked: `share`, one process's clients in a round, or fewer if memory is too small."""
    if kind == "sequential":
        return 1
    if engine.block != "auto":
        return engine.block
    return max(min(share, STACKED_BYTES // work.model_bytes), 1)


def _calls(engine: LocalEngine, steps: Ints) -> float:
    """How many steps the busiest process takes in a round, given the `steps` `[s]` of the round's clients."""
    assert isinstance(engine.block, int) and isinstance(engine.workers, int)
    pieces = [int(steps[i : i + engine.block].max()) for i in range(0, len(steps), engine.block)]
    loads = [0] * engine.workers
    for piece in sorted(pieces, reverse=True):
        loads[loads.index(min(loads))] += piece
    return float(max(loads))


def _trial(engine: LocalEngine, work: ClientWork) -> Trial:
    """What a local step of a stack (or of one client) takes: the shortest of some, after a first one."""
    client = replace(work.training.local, steps=1, epochs=1, schedule=Constant())
    trial = replace(work, training=replace(work.training, local=client))
    trainer = replace(engine, compile=False).trainer(trial)
    assert isinstance(engine.block, int) and isinstance(engine.threads, int)
    ids = work.numbers[np.sort(np.argsort(work.data.sizes, kind="stable")[-engine.block :])]
    with threads(engine.threads):
        request, _ = trial.first(trainer, ids)
        return timed(lambda: float(trainer.answer(request, np.arange(len(ids))).norms.sum()), engine.threads)


def timed(call: Callable[[], object], threads: int) -> Trial:
    """What a call takes on so many threads: the shortest of some, after a first one. It must wait for the device."""
    clock, processor = list[float](), list[float]()
    while len(clock) < 3 or (len(clock) <= MOST_TRIES and sum(processor) < LONG_TRIES):
        began, used = time.perf_counter(), time.process_time()
        call()
        clock.append(time.perf_counter() - began)
        processor.append((time.process_time() - used) / threads)
        if clock[-1] > LONG_STEP:
            break
    return Trial(min(clock[1:] or clock), min(processor[1:] or processor), threads)


def _is_slow(tried: Sequence[tuple[LocalEngine, Trial]]) -> bool:
    """Whether a single client's step takes so long that the overhead of calls does not matter."""
    return min(step_seconds([trial for _, trial in tried])) > SLOW_STEP


def _uncompiled(work: ClientWork) -> str:
    """Why steps with these samples can't be compiled; empty if they can."""
    if isinstance(work.data.train.x, EncodedImages):
        return 'compiled steps need decoded images: set decode = "once" in the data, or compile = false'
    own = f"the transform's own functions can't be compiled ({type(work.data.transform).__name__}): set compile = false"
    return own if work.data.transform.own else ""


def _compiles(engine: LocalEngine, best: Candidate, rounds: int | None) -> bool:
    """Whether the steps of a candidate are compiled: as the engine says, or with "auto" if the run repays it."""
    if engine.compile != "auto":
        return engine.compile
    return best.engine.kind == "vectorised" and repays(best.seconds, rounds)


def repays(seconds: float, rounds: int | None) -> bool:
    """Whether a run of so many rounds, of so many seconds each, saves more time than it takes to compile its steps."""
    return seconds * (1 - 1 / COMPILED) * (rounds or 0) > COMPILING


def _short(error: RuntimeError) -> str:
    """The first line of an error, cut to at most 90 characters."""
    first = str(error).strip().splitlines()[0]
    return first if len(first) < 90 else first[:87] + "..."
