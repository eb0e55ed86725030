"""A case of the bottle, drawn from a seed; and the same case with fewer faults."""

from __future__ import annotations

import logging
import tempfile
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
        faults = drawn(chance, self.setup.nodes, self.setup.rounds)
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


def shrunk(seed: int) -> Case:
    """The case of a seed with as few faults as show a violation: one after another is left out if it is not needed."""
    without: set[int] = set()
    for place in Case(seed).places:
        if Case(seed, without | {place}).go().violations:
            without.add(place)
    return Case(seed, without)


@contextmanager
def _alone() -> Iterator[None]:
    """On one thread, without log lines and pictures, which take longer than all else, and with one generator.

    `torch.manual_seed` would seed accelerators, too, and keeps the stack of each call until there is one.
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
            patch("flwr.serverapp.strategy.strategy_utils.sleep", lambda seconds: host.clock.sleep(seconds)),
        ):
            yield
    finally:
        logging.disable(disabled)
        torch.set_num_threads(threads)
