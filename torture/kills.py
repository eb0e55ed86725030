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
MOST, ANEW, IMPORTS = 3, 8, 3.0
"""The most kills of one case; every how many cases the processes are started anew; about how long they then import."""


def cases(bench: Bench, size: int) -> Iterator[Case]:
    """Each case disturbs one scenario up to three times, each time in another way and at another moment."""
    undisturbed, names = Undisturbed(bench), list(SCENARIOS)
    for number in range(size):
        scenario, anew = SCENARIOS[names[number % len(names)]], number % ANEW == ANEW - 1
        what = f"{scenario.name}, killed" + (", in processes started anew" if anew else "")
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
        yield from running.wait().findings(0, *((REFUSED,) if scenario.has_jobs else ()))  # a sweep says it
        return
    group = random.random() < 0.5
    (running.process.send_to_group if group else running.process.send_signal)(number)
    ended = running.wait()
    yield from ended.findings(0, -number, 128 + number)
    saves = scenario.resumes and not scenario.stateless
    if number in SAVING and saves and (lost := _lost(place / scenario.out)):
        yield Finding("wrong", f"{lost} rounds were lost after {signal.Signals(number).name}", ended.output)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _lost(run: Path) -> int:
    """How many rounds were recorded after the last saved state."""
    file = run / "metrics.jsonl"
    rows = file.read_text().splitlines() if file.exists() else []
    return int(json.loads(rows[-1])["round"]) - max(saved_rounds(run / "state"), default=0) if rows else 0
