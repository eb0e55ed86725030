"""python -m torture bottle [--seed N] [--cases N | --minutes M] [--processes N]

One case of a federation in the bottle is played, and its story told, a line an event. With --cases or --minutes many
are, from that seed on; each that shows a violation is told at once, and then with as few faults as a minute's search
finds to show it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from itertools import count, islice

from .case import Case, shrunk

Result = tuple[int, list[str], int]
"""A seed, what was violated in its case, and the number of its rounds."""


def main(arguments: Sequence[str]) -> int:
    """Play the cases that are asked for. The exit code is 1 if there is a violation."""
    asked = _parsed(arguments)
    if asked.cases is None and asked.minutes is None:
        outcome = Case(asked.seed).go()
        print("\n".join(outcome.story))
        return int(bool(outcome.violations))
    seeds: Iterable[int] = count(asked.seed)
    if asked.cases is not None:
        seeds = range(asked.seed, asked.seed + asked.cases)
    began = time.monotonic()
    cases = rounds = 0
    violated = []
    played = _played(seeds, asked.processes)
    for seed, violations, made in played:
        cases += 1
        rounds += made
        if violations:
            violated.append(seed)
            _tell(seed, violations[0])
        if sys.stderr.isatty():
            print(f"\r{cases:,} cases, {rounds:,} rounds, {len(violated)} violated", end="", file=sys.stderr)
        if asked.minutes is not None and time.monotonic() - began > 60 * asked.minutes:
            break
    seconds = time.monotonic() - began
    played.close()
    each = 1000 * seconds / max(rounds, 1)
    print(
        f"{cases:,} cases, {rounds:,} rounds in {seconds:.0f} s ({each:.1f} ms a round), violated: {violated or 'none'}"
    )
    return int(bool(violated))


def batch(first: str, size: str) -> None:
    """Play so many cases, and print what came out of each as a line of JSON."""
    for seed in range(int(first), int(first) + int(size)):
        _, violations, _ = play(seed)
        print(json.dumps({"seed": seed, "violations": violations}))


def play(seed: int) -> Result:
    """Play the case of a seed."""
    outcome = Case(seed).go()
    return seed, outcome.violations, outcome.rounds


def _played(seeds: Iterable[int], processes: int) -> Generator[Result]:
    """The results of cases, as they come."""
    if processes == 1:
        yield from map(play, seeds)
        return
    remaining = iter(seeds)
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        playing = {pool.submit(play, seed) for seed in islice(remaining, 2 * processes)}
        while playing:
            done, playing = wait(playing, return_when=FIRST_COMPLETED)
            playing |= {pool.submit(play, seed) for seed in islice(remaining, len(done))}
            for each in done:
                yield each.result()


def _tell(seed: int, violation: str) -> None:
    """Print what a case violates first, and then its story with fewer faults."""
    print(f"\nseed {seed}: VIOLATION: {violation}", flush=True)
    case = shrunk(seed, violation)
    print(f"seed {seed}, with {len(case.faults)} faults:")
    print("\n".join(case.go().story), flush=True)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m torture bottle", usage=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    return parser.parse_args(arguments)
