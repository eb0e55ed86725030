"""A machine in the bottle: a disk, a clock, and a process that can die at any of its operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from fedsash.system import posix
from fedsash.system.host import Clock, Process, host

from .disk import SimulatedDisk
from .world import Killed, World

MOMENT = 1e-3
"""The seconds that the code between two looks at the clock takes."""
IN_BACKGROUND = 3.0
"""A file is brought to the disk in the background within so many seconds."""


class Machine:
    """A machine with a disk in `folder`, and at most one process of fedsash.

    Each operation of its process is a step. A process that is killed makes no step any more, whatever it catches.
    The disk of a machine that is not `powered` loses what it may lose before the next process starts. `upset` is called
    when its time is not that of the others, with the seconds for which that lasts; `upsets` counts this.
    """

    def __init__(self, world: World, name: str, folder: Path, chance: Random) -> None:
        self.world = world
        self.name = name
        self.chance = chance
        self.disk = SimulatedDisk(folder, self._disk_step)
        self.alive = False
        self.powered = True
        self.steps = 0
        self.process = 0
        self.jump = 0.0
        self.paused_until = 0.0
        self.upsets = 0
        self.upset: Callable[[float], None] = lambda seconds: None
        self.disk_steps = 0
        self.deaths: dict[int, Callable[[], None]] = {}
        self.deaths_at_disk: dict[int, Callable[[], None]] = {}

    def start(self) -> None:
        """Start a process."""
        if not self.powered:
            self.powered = True
            self.disk.cut_power(self.chance)
        self.process += 1
        self.alive = True

    def die(self, why: str) -> None:
        """Kill the process."""
        if self.alive:
            self.alive = False
            self.world.tell(f"{self.name} {why}")

    def jump_ahead(self, seconds: float) -> None:
        """Let its clock jump."""
        self.jump += seconds
        self.upsets += 1
        self.upset(0.0)

    def pause(self, seconds: float) -> None:
        """Let its process do nothing for so many seconds, while all others go on."""
        self.paused_until = self.world.now + seconds
        self.upsets += 1
        self.upset(seconds)

    def fill_disk(self, seconds: float) -> None:
        """Let the disk have little room for so many seconds."""
        self.disk.room = int(10 * seconds)
        self.world.after(seconds, self._make_room)

    def _make_room(self) -> None:
        self.world.tell(f"the disk of {self.name} has room again")
        self.disk.room = None

    def step(self) -> None:
        """Count an operation of the process, once it is not paused. Raises `Killed` if it is dead, or dies here."""
        if not self.alive:
            raise Killed(here=False)
        if self.world.now < self.paused_until:
            self.world.wait(self.paused_until - self.world.now)
        self.steps += 1
        if self.steps in self.deaths:
            self.deaths.pop(self.steps)()
        if not self.alive:
            raise Killed(here=True)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Let the code in the `with` block run on this machine."""
        before = host.clock, host.disk, host.process
        host.clock = SimulatedClock(self)
        host.disk = self.disk
        host.process = SimulatedProcess(self)
        try:
            yield
        finally:
            host.clock, host.disk, host.process = before

    def _disk_step(self) -> None:
        """Count an operation of the process with its disk."""
        self.step()
        self.disk_steps += 1
        if self.disk_steps in self.deaths_at_disk:
            self.deaths_at_disk.pop(self.disk_steps)()
            raise Killed(here=True)


class SimulatedClock(Clock):
    """A clock by simulated time. Whoever sleeps lets the others go on."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def now(self) -> float:
        self.sleep(MOMENT)
        return self._machine.world.now + self._machine.jump

    def sleep(self, seconds: float) -> None:
        self._machine.step()
        self._machine.world.wait(seconds)
        self._machine.step()


class SimulatedProcess(Process):
    """The process of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    @property
    def number(self) -> int:
        return self._machine.process

    def lives(self, number: int) -> bool:
        return number == self._machine.process

    def background(self) -> Executor:
        return InBackground(self._machine)


class InBackground(Executor):
    """What a machine does in the background: some time later, or when somebody waits for it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        later = Later(self._machine, partial(call, *arguments, **named))
        self._machine.world.after(self._machine.chance.uniform(0, IN_BACKGROUND), later.do)
        return later


class Later(Future[Any]):
    """What a process does later, unless it is dead by then."""

    def __init__(self, machine: Machine, call: Callable[[], Any]) -> None:
        super().__init__()
        self._machine = machine
        self._process = machine.process
        self._call = call

    def do(self) -> None:
        """Do it, unless it is done, or has begun: while its process is paused in it, its own moment may come."""
        if self.done() or self.running() or not self._machine.alive or self._machine.process != self._process:
            return
        self.set_running_or_notify_cancel()
        with self._machine.at_work():
            try:
                self.set_result(self._call())
            except Killed:
                return
            except BaseException as error:
                self.set_exception(error)

    def result(self, timeout: float | None = None) -> Any:
        self.do()
        if not self.done():
            raise Killed(here=False)
        return super().result()


def forget_process() -> None:
    """Forget what a process of fedsash remembers in its modules, as a new one does that is forked."""
    for call in posix.after_fork:
        call()
