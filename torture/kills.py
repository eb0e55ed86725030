"""Kills and signals at random moments: the command that goes on ends with the bytes of one that nobody disturbed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

from fedsash.vector.saved import saved_rounds

from .frame import REFUSED, Bench, Case, Finding, Running
from .scenarios import SCENARIOS, Scenario, Undisturbed

SIZES = {"full": 160, "short": 8}
SAVING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals after which a run finishes its round and saves its state."""
MOST = 3
"""The most kills of one case."""
ANEW = 8
"""Of so many cases, the processes of one are started anew."""
IMPORTS = 3.0
"""About how many seconds they then import."""


def cases(bench: Bench, size: int) -> Iterator[Case]:
    """Each case disturbs one scenario up to three times, each time in another way and at another moment."""
    undisturbed = Undisturbed(bench)
    names = list(SCENARIOS)
    for number in range(size):
        scenario = SCENARIOS[names[number % len(names)]]
        anew = number % ANEW == ANEW - 1
        what = f"{scenario.name}, killed"
        if anew:
            what += ", in processes started anew"
        yield Case(what, partial(_case, bench, undisturbed, scenario, bench.random(number), anew))


def _case(
    bench: Bench, undisturbed: Undisturbed, scenario: Scenario, random: Random, anew: bool, place: Path
) -> Iterator[Finding]:
    undisturbed.prepare(scenario.name, place)
    saved = False
    for _ in range(random.randint(1, MOST)):
        number = random.choice((signal.SIGKILL, signal.SIGKILL, *SAVING))
        if anew and number == signal.SIGINT:
            number = signal.SIGTERM  # Ctrl-C among the imports gives Python's own traceback
        running = bench.start(place, *scenario.next(place), anew=anew)
        time.sleep(random.uniform(0, undisturbed.seconds(scenario.name) + IMPORTS * anew))
        yield from _disturb(running, number, random, scenario, place)
        saved |= number in SAVING
    yield from bench.command(place, *scenario.next(place), anew=anew).findings(0)
    yield from undisturbed.differences(scenario.name, place, only_common_states=saved)


def _disturb(running: Running, number: int, random: Random, scenario: Scenario, place: Path) -> Iterator[Finding]:
    """Kill the process, its whole group or one of its workers, and judge how it ended."""
    workers = _children(running.process.pid)
    if number == signal.SIGKILL and workers and random.random() < 0.5:
        os.kill(random.choice(workers), number)
        codes = [0]
        if scenario.has_jobs:
            codes.append(REFUSED)  # a sweep says which runs failed
        yield from running.wait().findings(*codes)
        return
    if random.random() < 0.5:
        running.process.send_to_group(number)
    else:
        running.process.send_signal(number)
    ended = running.wait()
    yield from ended.findings(0, -number, 128 + number)
    if number in SAVING and scenario.resumes and not scenario.stateless:
        lost = _lost(place / scenario.out)
        if lost:
            yield Finding("wrong", f"{lost} rounds were lost after {signal.Signals(number).name}", ended.output)


def _children(pid: int) -> list[int]:
    """The processes that a process has started; none if it is gone."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _lost(run: Path) -> int:
    """How many rounds were recorded after the last saved state."""
    file = run / "metrics.jsonl"
    rows = file.read_text().splitlines() if file.exists() else []
    if not rows:
        return 0
    recorded = int(json.loads(rows[-1])["round"])
    return recorded - max(saved_rounds(run / "state"), default=0)
