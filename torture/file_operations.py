"""A kill before every single file operation of a command, with whole files and with the last one torn.

A first run notes every operation on a file below its folder: opened for writing, renamed, linked, removed, a folder
made or removed. Then each case is a run that kills itself before one of them. Half of the cases also tear the file that
was written last: of what was written and not yet asked to be on the disk (`fsync`), the second half is gone. A sweep's
processes count by themselves.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .frame import Bench, Case, Ended, Finding
from .scenarios import SCENARIOS, Scenario, Undisturbed
from .server import command

SIZES = {"full": 2000, "short": 12}
DISTURBED = ("run", "sweep", "reproduce", "network", "timing", "fork", "report", "average", "landscape")
ENTRY = "torture.file_operations:watched_command"
ORDER = "TORTURE_OPERATIONS"
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "torture.write"}


def cases(bench: Bench, size: int) -> Iterator[Case]:
    """Kill each scenario before each of its operations; evenly spread ones if there are more than `size`."""
    undisturbed = Undisturbed(bench)
    found = [place for name in DISTURBED for place in _places(bench, undisturbed, name)]
    for number in range(min(size, len(found))):
        name, who, at, torn = found[number * len(found) // min(size, len(found))]
        what = f"{name}, {who} killed before operation {at}{', torn' if torn else ''}"
        yield Case(what, partial(_case, bench, undisturbed, SCENARIOS[name], who, at, torn))


def _places(bench: Bench, undisturbed: Undisturbed, name: str) -> Iterator[tuple[str, str, int, bool]]:
    """All operations of a scenario: whose, and which."""
    place = undisturbed.prepare(name, bench.folder / f"counted-{name}")
    ended = watched(bench, place, SCENARIOS[name].words, {"note": str(bench.folder / f"operations-{name}")})
    if ended.code != 0:
        raise RuntimeError(f"the campaign's own preparation failed:\n{ended.output}")
    for who in ("main", "job"):
        file = bench.folder / f"operations-{name}-{who}"
        count = len(file.read_text().splitlines()) if file.exists() else 0
        yield from ((name, who, at, torn) for at in range(1, count + 1) for torn in (False, True))


def _case(
    bench: Bench, undisturbed: Undisturbed, scenario: Scenario, who: str, at: int, torn: bool, place: Path
) -> Iterator[Finding]:
    undisturbed.prepare(scenario.name, place)
    ended = watched(bench, place, scenario.words, {"who": who, "at": at, "torn": torn})
    if who == "main":
        yield from ended.findings(-signal.SIGKILL)
    yield from bench.command(place, *scenario.next(place)).findings(0)
    yield from undisturbed.differences(scenario.name, place)


def watched(bench: Bench, place: Path, words: Sequence[str], order: dict[str, Any]) -> Ended:
    """Carry out a command that notes its operations, or is killed before one of them; a sweep's runs one at a time."""
    words = list(words)
    if "--jobs" in words:
        words[words.index("--jobs") + 1] = "1"
    return bench.command(place, words, entry=ENTRY, environment={ORDER: json.dumps(order)})


class _Watch:
    """Sees every file operation of this process, notes it or kills the process before it."""

    def __init__(self, who: str, order: dict[str, Any]) -> None:
        self._pid = os.getpid()
        self._root = f"{os.getcwd()}/"
        self._count = 0
        self._at = order.get("at") if order.get("who") == who else None
        self._torn = order.get("torn")
        self._note = open(f"{order['note']}-{who}", "a", buffering=1) if "note" in order else None  # noqa: SIM115
        self._last: tuple[str, int] | None = None  # the file that was opened last, and its size then

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if (event not in CHANGES and not (event == "open" and arguments[2] & WRITING)) or os.getpid() != self._pid:
            return
        path = _path(event, arguments)
        if path is None or not path.startswith(self._root):
            return
        self._count += 1
        if self._note is not None:
            self._note.write(f"{event} {path}\n")
        if self._count == self._at:
            self._kill()
        if event in ("open", "torture.write"):
            self._last = path, os.path.getsize(path) if os.path.exists(path) else 0

    def synced(self, handle: int) -> None:
        """A file is on the disk: it can't be torn any more."""
        last = self._last  # states are brought to the disk by a thread of their own
        if last is not None and os.readlink(f"/proc/self/fd/{handle}") == last[0]:
            self._last = None

    def _kill(self) -> None:
        if self._torn and self._last is not None and os.path.isfile(self._last[0]):
            path, before = self._last
            handle = os.open(path, os.O_RDONLY)
            written = os.fstat(handle).st_size
            if written > before:
                _truncate(path, before + (written - before) // 2)
        os.kill(os.getpid(), signal.SIGKILL)


def _truncate(path: str, size: int) -> None:
    os.truncate(path, size)


def _path(event: str, arguments: tuple[Any, ...]) -> str | None:
    """The file of an operation; None if it is a number, a stream that is open already."""
    first = arguments[0]
    if not isinstance(first, str | bytes | os.PathLike):
        return None
    folder = next((value for value in arguments[1:] if event in ("os.remove", "os.rmdir") and value != -1), None)
    start = os.getcwd() if folder is None else os.readlink(f"/proc/self/fd/{folder}")
    return os.path.join(start, os.fsdecode(first))


def watch(who: str) -> None:
    """Watch this process. safetensors writes without Python: its writing is announced."""
    import safetensors.torch

    seen = _Watch(who, json.loads(os.environ[ORDER]))
    sync = os.fsync
    save = safetensors.torch.save_file
    sys.addaudithook(seen)

    def synced(handle: int) -> None:
        sync(handle)
        seen.synced(handle)

    def announced(tensors: Any, path: Any, *more: Any) -> None:
        sys.audit("torture.write", str(path))
        save(tensors, path, *more)

    vars(os)["fsync"] = synced
    vars(safetensors.torch)["save_file"] = announced


def watched_command(arguments: Sequence[str]) -> int:
    """The command line of fedsash in a process that is watched."""
    watch("main")
    return command(arguments)
