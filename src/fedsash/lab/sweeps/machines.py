"""Where the processes of a sweep run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from ...system.machine import core_count, cores
from ...system.subprocesses import Child
from .plan import Leg
from .process import Program

JOB = "fedsash.lab.sweeps.job"
"""The module that a process runs."""


class Machines(Protocol):
    """Has a number of `slots`: so many processes run at the same time.

    With `together`, a process may have several slots. Legs whose process dies are tried `tries` times.
    """

    together: ClassVar[bool]
    tries: ClassVar[int]
    slots: Sequence[int]

    def program(self, slot: int) -> Program:
        """A new program that trains legs."""

    def cores(self, slots: Sequence[int]) -> Sequence[int]:
        """The cores of a process that has these slots; empty if it has one, whichever it gets."""


class Here(Machines):
    """This machine. The slots share its cores."""

    together = True
    tries = 1

    def __init__(self, legs: Sequence[Leg], out: Path, jobs: int | None) -> None:
        self._out = out
        self._cores = cores()
        self.slots = range(min(jobs or self._most(legs), len(legs)))

    def program(self, slot: int) -> Child:
        return Child(JOB, log_of(self._out, f"{slot}"), os.getcwd(), {})

    def cores(self, slots: Sequence[int]) -> Sequence[int]:
        count = len(self.slots)
        cores = self._cores
        return sorted({core for i in slots for core in cores[i::count] or [cores[i % len(cores)]]})

    def _most(self, legs: Sequence[Leg]) -> int:
        """One process for each core, or one for a GPU."""
        from ...engines import pick_device

        devices = {leg.experiment.device for leg in legs}
        gpu = any(device.startswith(("cuda", "mps")) for device in devices)
        gpu |= "auto" in devices and pick_device("auto").type != "cpu"
        return 1 if gpu else core_count()


def log_of(out: Path, name: str) -> str:
    """The file for the output of a process."""
    return str(out / "logs" / f"{name}.txt")
