"""What all kinds of the campaign share: commands with a time limit, what may come out of them, cases, figures.

A kind is a module with two names: `SIZES`, the number of cases at each scale, and `cases(bench, size)`, which yields
`Case(what, go)` objects. `go(folder)` does the case in an empty folder and returns its findings. A case depends on its
number and the seed only (`bench.random(number)`), so that `python -m torture --only KIND --case N` repeats it exactly.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any, Literal, Protocol, get_args

from .server import Anew, Process, Server

Sort = Literal["wrong", "traceback", "hang", "crash", "leftover", "slow", "unclear"]
"""What a finding is: a wrong result that was accepted, a traceback, a command that does not end, one that a signal of
nobody ends, a file that a refused or killed command leaves behind for ever, a refusal after more than a second of work,
and a refusal that is no single line or does not name what is wrong."""

NONE: Mapping[str, str] = {}
COMMAND = "torture.server:command"
REFUSED = 2
TIME_LIMIT = 120.0
SLOW = 1.0
LONGEST_LINE = 600


@dataclass(frozen=True)
class Finding:
    """Something that must not be, with the command's output."""

    sort: Sort
    what: str
    output: str = ""


@dataclass(frozen=True)
class Case:
    """One case: what is done, in words, and the function that does it in a folder of its own."""

    what: str
    go: Callable[[Path], Iterable[Finding]]


class Kind(Protocol):
    """A module of the campaign."""

    SIZES: dict[str, int]

    def cases(self, bench: Bench, size: int) -> Iterator[Case]: ...


@dataclass
class Ended:
    """A command that has ended: its exit code (minus a signal), its output, its processor time, and if it hung."""

    command: str
    code: int
    out: str
    err: str
    seconds: float
    hung: bool = False

    @property
    def output(self) -> str:
        """All that can be shown of it."""
        return f"$ {self.command}\n{self.out}{self.err}[exit code {self.code}]"

    @property
    def partial(self) -> bool:
        """Whether it gave a result, and said in notes what it had to leave out."""
        return "note: " in self.out

    def findings(self, *codes: int, names: str = "") -> list[Finding]:
        """What is wrong with its end. `codes` are the right exit codes; a refusal must contain the text `names`."""
        if self.hung:
            return [Finding("hang", f"no end after {TIME_LIMIT:.0f} seconds", self.output)]
        if "Traceback" in self.err or self.code == 1:
            return [Finding("traceback", (self.err.strip().splitlines() or [""])[-1], self.output)]
        if self.code < 0 and self.code not in codes:
            return [Finding("crash", f"killed by {signal.Signals(-self.code).name}", self.output)]
        if self.code not in codes:
            return [Finding("unclear", f"exit code {self.code} instead of {codes}", self.output)]
        return self._refusal(names) if self.code == REFUSED else []

    def _refusal(self, names: str) -> list[Finding]:
        line = (self.err.strip().splitlines() or [""])[-1]
        if self.partial and not line:
            return []
        if not line.startswith("fedsash") or len(line) > LONGEST_LINE:
            return [Finding("unclear", "the refusal is no single line", self.output)]
        if names not in self.err:
            return [Finding("unclear", f"the refusal does not name {names}", self.output)]
        if self.seconds > SLOW:
            return [Finding("slow", f"refused after {self.seconds:.1f} s of work", self.output)]
        return []


class Running:
    """A command that was started: it can be sent signals, and waited for."""

    def __init__(
        self, process: Process | Anew, command: str, streams: tuple[Path, Path], note: Callable[[Ended], None]
    ) -> None:
        self.process = process
        self._command = command
        self._streams = streams
        self._note = note

    def wait(self, limit: float = TIME_LIMIT) -> Ended:
        """Wait until it ends; after `limit` seconds it is killed and has hung."""
        hung = False
        try:
            self.process.wait(limit)
        except TimeoutError:
            hung = True
            self.process.send_to_group(signal.SIGKILL)
            self.process.wait()
        out, err = (path.read_text(errors="replace") for path in self._streams)
        ended = Ended(self._command, self.process.wait(), out, err, self.process.seconds, hung)
        self._note(ended)
        return ended

    def ended(self) -> bool:
        """Whether it has ended."""
        return self.process.ended()


@dataclass
class Figures:
    """What came out of a kind: how many cases, in which time, and the findings of each sort."""

    cases: int = 0
    seconds: float = 0.0
    slowest_refusal: float = 0.0
    findings: list[dict[str, Any]] = field(default_factory=list)

    def count(self, sort: str) -> int:
        """The number of findings of a sort."""
        return sum(found["sort"] == sort for found in self.findings)


class Bench:
    """Where a kind works: its folder, its seed and scale, and a server that starts its commands."""

    def __init__(self, name: str, folder: Path, seed: int, server: Server, scale: str) -> None:
        self.name = name
        self.folder = folder
        self.seed = seed
        self._server = server
        self.scale = scale
        self.figures = Figures()
        self._lock = Lock()
        self._started = 0
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def random(self, number: int) -> Random:
        """The source of all chance in a case."""
        return Random(f"{self.name} {self.seed} {number}")

    def start(
        self,
        folder: Path,
        *arguments: Any,
        entry: str = COMMAND,
        environment: Mapping[str, str] = NONE,
        anew: bool = False,
    ) -> Running:
        """Start a command of fedsash in a folder; or another function, `entry`, with these arguments.

        `environment` is added to that of this process. A process that is started `anew` imports everything itself.
        """
        with self._lock:
            self._started += 1
            number = self._started
        streams = self.folder / f"{number}.out", self.folder / f"{number}.err"
        process: Process | Anew
        words = [str(word) for word in arguments]
        with streams[0].open("wb") as out, streams[1].open("wb") as err:
            given = [words] if entry == COMMAND else arguments
            if anew:
                process = Anew(words, folder, out.fileno(), err.fileno())
            else:
                process = self._server.start(entry, given, folder, out.fileno(), err.fileno(), environment)
        text = shlex.join(["fedsash" if entry == COMMAND else entry, *words])
        return Running(process, text, streams, self._note)

    def command(self, folder: Path, *arguments: Any, limit: float = TIME_LIMIT, **more: Any) -> Ended:
        """Carry out a command of fedsash in a folder, and wait for it."""
        return self.start(folder, *arguments, **more).wait(limit)

    def right(self, folder: Path, *arguments: Any) -> Ended:
        """Carry out a command that must succeed for the campaign to make sense."""
        ended = self.command(folder, *arguments)
        if ended.code != 0:
            raise RuntimeError(f"the campaign's own preparation failed:\n{ended.output}")
        return ended

    def _note(self, ended: Ended) -> None:
        if ended.code == REFUSED and not ended.hung:
            with self._lock:
                self.figures.slowest_refusal = max(self.figures.slowest_refusal, ended.seconds)


def carry_out(kind: Kind, bench: Bench, size: int, only: int | None, done: Callable[[int], None]) -> Figures:
    """Do all cases of a kind, as many at the same time as there are cores. `done` is told how many have ended."""
    began = time.monotonic()
    waiting = set[Future[None]]()

    def do(number: int, case: Case) -> None:
        place = bench.folder / f"case-{number}"
        place.mkdir()
        found = list(case.go(place))
        again = f"python -m torture --only {bench.name} --scale {bench.scale} --seed {bench.seed} --case {number}"
        for finding in found:
            row = {"sort": finding.sort, "what": f"{case.what}: {finding.what}", "output": finding.output}
            bench.figures.findings.append({"case": number, **row, "again": again})
        if not found and only is None:
            shutil.rmtree(place)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, case in enumerate(kind.cases(bench, size)):
            if only in (None, number):
                waiting.add(pool.submit(do, number, case))
                bench.figures.cases += 1
            while len(waiting) > 2 * (os.cpu_count() or 1):
                waiting = _settle(waiting)
                done(bench.figures.cases - len(waiting))
        while waiting:
            waiting = _settle(waiting)
            done(bench.figures.cases - len(waiting))
    bench.figures.seconds = time.monotonic() - began
    return bench.figures


def _settle(waiting: set[Future[None]]) -> set[Future[None]]:
    ended, others = wait(waiting, return_when=FIRST_COMPLETED)
    for future in ended:
        future.result()
    return set(others)


HEADINGS = (
    "wrong results accepted",
    "tracebacks",
    "hangs",
    "crashes",
    "leftovers",
    "slow refusals",
    "unclear refusals",
)
"""The sorts of findings, as the table calls them."""


def row(name: str, figures: Figures) -> list[str]:
    """A kind's row of the table."""
    counts = [str(figures.count(sort)) for sort in get_args(Sort)]
    return [name, str(figures.cases), *counts, f"{figures.slowest_refusal:.1f} s", f"{figures.seconds:.0f} s"]


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """The table for the documentation."""
    head = ["kind", "cases", *HEADINGS, "slowest refusal", "time"]
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
