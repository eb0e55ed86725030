"""Where the processes of a sweep run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from ...system.machine import core_count, cores
from ...system.subprocesses import Child
from .plan import Segment
from .process import Program

JOB = "fedsash.lab.sweeps.job"
"""The module that a process runs."""


class Machines(Protocol):
    """Has a number of `slots`: so many processes run at the same time.

    With `together`, a process may have several slots. Segments whose process dies are tried `tries` times.
    """

    together: ClassVar[bool]
    tries: ClassVar[int]
    slots: Sequence[int]

    def program(self, slot: int) -> Program:
        """A new program that trains segments."""

    def cores(self, slots: Sequence[int]) -> Sequence[int]:
        """The cores of a process that has these slots; empty if it has one, whichever it gets."""


class Here(Machines):
    """This machine. The slots share its cores."""

    together = True
    tries = 1

    def __init__(self, segments: Sequence[Segment], out: Path, jobs: int | None) -> None:
        self._out = out
        self._cores = cores()
        self._most_cores = core_count()
        self.slots = range(min(jobs or self._most(segments), len(segments)))

    def program(self, slot: int) -> Child:
        return Child(JOB, log_of(self._out, f"{slot}"), os.getcwd(), {})

    def cores(self, slots: Sequence[int]) -> Sequence[int]:
        count = len(self.slots)
        chosen: set[int] = set()
        most = len(self._cores)
        if self._most_cores < most:  # others compute on this machine, too: which cores are free, the system knows
            most = self._most_cores // count
            if most * len(slots) <= 1:
                return ()
        for slot in slots:
            share = self._cores[slot::count][:most]
            if not share:  # there are more slots than cores
                share = [self._cores[slot % len(self._cores)]]
            chosen |= set(share)
        return sorted(chosen)

    def _most(self, segments: Sequence[Segment]) -> int:
        """One process for each core, or one for a GPU."""
        from ...engines import pick_device

        for device in {segment.experiment.device for segment in segments}:
            kind = pick_device("auto").type if device == "auto" else device
            if kind.startswith(("cuda", "mps")):
                return 1
        return core_count()


def log_of(out: Path, name: str) -> str:
    """The file for the output of a process."""
    return str(out / "logs" / f"{name}.txt")
