"""A case of the bottle, drawn from a seed; and the same case with fewer faults."""

from __future__ import annotations

import logging
import re
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from unittest.mock import patch

import torch

from fedsash.system.host import host
from fedsash.testing.grid import identify

from .faults import drawn
from .play import Play
from .setup import Setup

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where the bottle's files lie, so that no real disk is waited for."""
SEARCH = 60.0
"""For how many seconds of the processor a search for fewer faults begins another replay."""


@dataclass
class Outcome:
    """What came out of a case: its violations, the number of rounds that were made, and its story, a line an event."""

    violations: list[str] = field(default_factory=list)
    rounds: int = 0
    story: list[str] = field(default_factory=list)


class Case:
    """The case of a seed. The faults at the places `without` are left out."""

    def __init__(self, seed: int, without: Collection[int] = ()) -> None:
        chance = Random(f"bottle {seed}")
        self.setup = Setup.drawn(chance, seed)
        faults = drawn(chance, self.setup)
        self.places = [place for place in range(len(faults)) if place not in without]
        self.faults = [faults[place] for place in self.places]

    def go(self) -> Outcome:
        """Let it happen."""
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder, _alone():
            play = Play(self.setup, self.faults, Path(folder))
            told = play.go()
        story = [line.replace(folder, "") for line in play.world.story]
        violations = [line.replace(folder, "") for line in told.violations]
        return Outcome(violations, told.rounds, story)


def shrunk(seed: int, violation: str) -> Case:
    """The case of a seed with fewer faults, which still shows a violation like this one.

    All faults are left out, then halves of them, quarters and so on to single ones, whatever is not needed: until each
    one is, or the time for the search is over.
    """
    places = Case(seed).places
    without: set[int] = set()
    end = time.process_time() + SEARCH
    size = len(places)
    while size:
        for first in range(0, len(places), size):
            fewer = without | set(places[first : first + size])
            if fewer != without and time.process_time() < end and _shows(Case(seed, fewer), violation):
                without = fewer
        size //= 2
    return Case(seed, without)


def _shows(case: Case, violation: str) -> bool:
    """Whether a case shows a violation like this one: with the same words, whatever the numbers are."""
    return _words(violation) in map(_words, case.go().violations)


def _words(line: str) -> str:
    """A line without its numbers."""
    return re.sub(r"[\d.]+(e[+-]\d+)?", "", line)


@contextmanager
def _alone() -> Iterator[None]:
    """On one thread, without log lines and pictures, which take longer than all else, and with one generator.

    `torch.manual_seed` would seed accelerators, too, and keeps the stack of each call until there is one. What a run
    says of the real machine, its seconds, its name and its command, has always the same length: it takes room on a disk
    that may be full.
    """
    identify()
    threads = torch.get_num_threads()
    disabled = logging.root.manager.disable
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    try:
        with (
            patch("fedsash.runs.folder.can_draw", lambda: False),
            patch("torch.manual_seed", torch.default_generator.manual_seed),
            patch("time.perf_counter", lambda: 0.0),
            patch("socket.gethostname", lambda: "bottle"),
            patch("getpass.getuser", lambda: "server"),
            patch("sys.argv", ["fedsash"]),
            patch("flwr.serverapp.strategy.strategy_utils.sleep", lambda seconds: host.clock.sleep(seconds)),
        ):
            yield
    finally:
        logging.disable(disabled)
        torch.set_num_threads(threads)
