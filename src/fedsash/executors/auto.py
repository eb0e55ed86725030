"""Replaces the "auto" settings of an engine, by a short measurement of the actual work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Literal

import numpy as np
import torch

from ..basics.arrays import Ints
from ..basics.machine import cores
from ..data.encoded import EncodedImages
from ..settings.errors import SettingError, check, one_line, raised_as, shortened
from . import workers
from .gradients import MemoryFormat
from .local_engine import LocalEngine
from .training import ClientWork
from .trials import Promise, Trial, Trials, duration

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
"""With so many clients in a round for each core, processes keep the cores busy: threads are not tried."""

MESSAGE = 2e-4
"""The time in seconds that communication with worker processes takes in each round."""


@dataclass(frozen=True)
class Candidate:
    """An engine without "auto" settings, and the approximate time of a round with it, in seconds.

    `processor` is the time that local steps take of the processor in the busiest process.
    """

    engine: LocalEngine
    seconds: float
    processor: float

    def __str__(self) -> str:
        e = self.engine
        how = f"vectorised over {e.block} clients" if e.kind == "vectorised" else "one client at a time"
        how += " and compiled" if e.compile is True else ""
        where = f"in {e.workers} processes" if e.workers != 1 else f"on {e.threads} thread{'s' * (e.threads != 1)}"
        return f"{how} {where}, {e.memory_format}"


def resolve(
    engine: LocalEngine, work: ClientWork, rounds: int | None = None
) -> tuple[LocalEngine, list[str], Promise | None]:
    """The engine with every `"auto"` replaced, lines that say what was chosen and why, and what a round should take.

    Each candidate is timed for a few local steps, or its time is known from an earlier run. The time of a round follows
    from this time and from the steps of the clients in the first rounds. `rounds` is the length of the run, if known;
    only runs that repay it are compiled. While other programs use the cores, the processor's time counts. A model that
    can't be vectorised is trained one client at a time, with a line that says so. Raises `ValueError` if steps are to
    be compiled or clients vectorised, and can't be.
    """
    reason = _uncompiled(work)
    check(not (reason and engine.compile is True), "LocalEngine.compile", True, reason)
    if engine.resolved:
        if engine.kind == "vectorised":
            with raised_as(partial(_unstacked, "kind", engine.kind)):
                work.check_stackable()
        return engine, [], None
    trials = Trials(work)
    try:
        candidates = _candidates(engine, work, trials)
    except RuntimeError as error:
        if engine.kind == "sequential":
            raise
        why = shortened(one_line(error), 90)
        for name, must in (("kind", engine.kind == "vectorised"), ("compile", engine.compile is True)):
            if must:
                raise _unstacked(name, getattr(engine, name), why) from error
        line = f"engine: this model can't be vectorised over clients ({why}); training one client at a time"
        alone = replace(engine, kind="sequential", block="auto", compile="auto")
        chosen, notes, promise = resolve(alone, work, rounds)
        return chosen, [line, *notes], promise
    notes = []
    if engine.compile == "auto" and not reason:
        try:
            candidates += _compiled(candidates, trials, rounds)
        except (RuntimeError, SettingError) as error:
            why = shortened(one_line(error.__cause__ or error), 90)
            notes = [f"engine: local steps can't be compiled ({why}); they run uncompiled"]
    best = choose(candidates)
    notes += [_said(best, candidates, trials.measured), *_slower_in_bfloat16(best.engine, trials)]
    trials.keep()
    return best.engine, notes, Promise(best.processor, trials.forget)


def _unstacked(name: str, value: object, why: str) -> SettingError:
    return SettingError("LocalEngine", name, value, f"this model can't be vectorised over clients ({why})")


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """The simplest candidate that is about as fast as the fastest. They must be ordered, the simplest first."""
    close = CLOSE * min(candidate.seconds for candidate in candidates)
    return next(candidate for candidate in candidates if candidate.seconds < close)


def _said(best: Candidate, candidates: Sequence[Candidate], measured: bool) -> str:
    """A line that says which engine was chosen, and how its speed compares with the next best."""
    line = f"engine: {best}: about {duration(best.seconds)} for each round"
    others = [candidate for candidate in candidates if candidate is not best]
    if others:
        next_best = min(others, key=lambda candidate: candidate.seconds)
        gain = next_best.seconds / best.seconds
        line += f", {f'{gain:.2f} times' if gain > CLOSE else 'about'} as fast as {next_best}"
    return line if measured else f"{line} (measured in an earlier run)"


def _slower_in_bfloat16(engine: LocalEngine, trials: Trials) -> list[str]:
    """A line if bfloat16 makes local steps slower, as on processors that have no instructions for it."""
    if engine.precision == "full":
        return []
    low = replace(engine, compile=False)
    times = trials.of(low).processor / trials.of(replace(low, precision="full")).processor
    line = f"engine: a step in bfloat16 takes {times:.1f} times as long as in full precision here"
    return [line] if times > CLOSE else []


def _candidates(engine: LocalEngine, work: ClientWork, trials: Trials) -> list[Candidate]:
    """Every possible engine with its time for a round; raises `RuntimeError` if the model can't be vectorised.

    If steps are to be compiled, those of uncompiled steps stand for them.
    """
    here = [np.isin(work.numbers, ids) for ids in work.training.sample]
    sample = [work.steps[some] for some in here if some.any()] or [work.steps[:1]]
    tried: list[tuple[LocalEngine, Trial]] = []
    for option in _options(engine, work, max(map(len, sample))):
        if option.kind == "vectorised" and engine.kind == "auto" and work.on_cpu and _gains_nothing(tried):
            tried = [one for one in tried if one[0].kind == "sequential"]
            break
        if option.kind == "vectorised":  # its time may be known from a run with another loss
            work.check_stackable()
        tried.append((option, trials.of(replace(option, compile=False))))
    seconds = step_seconds([trial for _, trial in tried])
    calls = [float(np.mean([_calls(option, own) for own in sample])) for option, _ in tried]
    return [
        Candidate(option, count * step + MESSAGE * (option.workers != 1), count * trial.processor)
        for (option, trial), count, step in zip(tried, calls, seconds, strict=True)
    ]


def _compiled(candidates: Sequence[Candidate], trials: Trials, rounds: int | None) -> list[Candidate]:
    """The stacked candidates with compiled steps, if a run of so many rounds may repay the compilation.

    The steps of one stack are compiled and timed, and the others are taken to gain as much.
    """
    stacked = [candidate for candidate in candidates if candidate.engine.kind == "vectorised"]
    if not stacked:
        return []
    fastest, best = (min(of, key=lambda candidate: candidate.seconds) for of in (candidates, stacked))
    plain, compiled = best.engine, replace(best.engine, compile=True)
    if not trials.known(compiled) and not repays(fastest.seconds - best.seconds / COMPILED, rounds):
        return []
    gain = trials.of(plain).processor / trials.of(compiled).processor
    faster = [Candidate(replace(c.engine, compile=True), c.seconds / gain, c.processor / gain) for c in stacked]
    return faster if repays(fastest.seconds - best.seconds / gain, rounds) else []


def step_seconds(trials: Sequence[Trial]) -> list[float]:
    """The time of a step in each trial, by the clock, or by the processor's time if other programs used the cores.

    Then several threads wait for each other, and gain nothing.
    """
    busy = any(trial.busy for trial in trials)
    return [trial.processor if busy else trial.clock for trial in trials]


def _options(engine: LocalEngine, work: ClientWork, per_round: int) -> Iterator[LocalEngine]:
    """Every engine without "auto" settings that agrees with the given ones, the simplest first."""
    kinds: list[Literal["sequential", "vectorised"]] = ["sequential", "vectorised"]
    if engine.kind != "auto" or engine.compile is True:
        kinds = ["vectorised" if engine.kind == "auto" else engine.kind]
    formats: list[MemoryFormat] = ["channels_last", "contiguous"] if work.images else ["contiguous"]
    if engine.memory_format != "auto":
        formats = [engine.memory_format]
    for kind, memory_format, (count, threads) in product(kinds, formats, _processes(engine, work, per_round)):
        yield replace(
            engine,
            kind=kind,
            workers=count,
            block=_block(engine, work, kind, -(-per_round // count)),
            compile=engine.compile is True,
            memory_format=memory_format,
            threads=threads,
        )


def _processes(engine: LocalEngine, work: ClientWork, per_round: int) -> Iterator[tuple[int, int]]:
    """Every number of processes, with every number of threads in each, that agrees with the engine's settings."""
    can_start = work.on_cpu and (workers.can_fork() or engine.start == "spawn")
    busy = min(len(cores()), per_round)
    counts = [1, busy] if can_start and busy > 1 else [1]
    if engine.workers != "auto":
        counts = [engine.workers]
    idle = len(counts) == 1 or per_round < FULL * len(cores())
    for count in counts:
        most = torch.get_num_threads()
        threads = sorted({1, most}) if count == 1 and idle else [1]
        if not work.on_cpu:  # then threads decode images and do the server's part, and there is nothing to choose
            threads = [most]
        yield from ((count, number) for number in (threads if engine.threads == "auto" else [engine.threads]))


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
    blocks = [int(steps[i : i + engine.block].max()) for i in range(0, len(steps), engine.block)]
    return float(max(sum(blocks[i] for i in own) for own in workers.dealt(blocks, engine.workers)))


def _gains_nothing(tried: Sequence[tuple[LocalEngine, Trial]]) -> bool:
    """Whether stacking gains nothing, given trials of single clients, if any, and perhaps of the first stacks."""
    alone = min((trial.processor for option, trial in tried if option.kind == "sequential"), default=0.0)
    stacked = [trial.processor / int(option.block) for option, trial in tried if option.kind == "vectorised"]
    hopeless = bool(stacked) and min(stacked) > SLOW_STACK * alone
    return alone > SLOW_STEP or (hopeless and alone > QUICK_STEP)


def _uncompiled(work: ClientWork) -> str:
    """Why steps with these samples can't be compiled; empty if they can."""
    if isinstance(work.data.train.x, EncodedImages):
        return 'compiled steps need decoded images: set decode = "once" in the data, or compile = false'
    own = f"the transform's own functions can't be compiled ({type(work.data.transform).__name__}): set compile = false"
    return own if work.data.transform.own else ""


def repays(saved: float, rounds: int | None) -> bool:
    """Whether a run of so many rounds that saves so many seconds in each repays the time that it takes to compile."""
    return saved * (rounds or 0) > COMPILING
