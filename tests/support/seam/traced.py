"""The file operations of processes, as the system saw them (strace) and as the seam was asked for them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

OPERATIONS = {
    "open": ("open", "openat", "openat2", "creat"),
    "write": ("write", "pwrite64", "writev", "pwritev", "pwritev2", "sendfile", "copy_file_range"),
    "truncate": ("truncate", "ftruncate"),
    "reserve": ("fallocate",),
    "sync": ("fsync", "fdatasync"),
    "link": ("link", "linkat", "symlink", "symlinkat"),
    "rename": ("rename", "renameat", "renameat2"),
    "unlink": ("unlink", "unlinkat"),
    "make folder": ("mkdir", "mkdirat"),
    "remove folder": ("rmdir",),
}
"""The system's calls for each operation."""
BY_CALL = {call: operation for operation, calls in OPERATIONS.items() for call in calls}
OF_OPEN_FILES = ("write", "truncate", "reserve", "sync")
"""The operations whose calls have a file's handle, and no name, but for `truncate`."""
WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT")
"""The flags with which a file is opened to change it, or a name."""
INTERRUPTED = re.compile(r"= (\? ERESTART|-1 EINTR)")
"""How a call ends that has done nothing, and is made again."""
HANDLE_OR_NAME = re.compile(r'(?:AT_FDCWD|\b\d+)<([^>]*)>|"((?:\\.|[^"\\])*)"')
"""A handle with the path of its file, or a name."""
OF_SAFETENSORS = re.compile(r"/\.tmp\w{6}$")
"""The end of the path under which safetensors writes a file before it renames it."""


class Call(NamedTuple):
    """An operation of a thread on one or two paths."""

    thread: int
    operation: str
    paths: tuple[str, ...]


def tracer(traces: Path) -> list[str]:
    """The words before a command that let strace write what its processes do, in `traces`, a file for each thread.

    The process that is started is that of the command. strace has one of its own, which ends after all of them.
    """
    calls = ",".join(f"?{call}" for call in BY_CALL)
    return ["strace", "-DD", "-ff", "-q", "--seccomp-bpf", "-y", "-s", "0", "-e", calls, "-o", str(traces / "thread")]


def can_trace(folder: Path) -> bool:
    """Whether strace is there, and may trace a process."""
    try:
        return subprocess.run([*tracer(folder), "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def wait_for_end(traces: Path, seconds: float = 60) -> None:
    """Wait until all traced threads have ended, and strace has written it down."""
    end = time.monotonic() + seconds
    while open_traces := [file.name for file in traces.iterdir() if not _last_line(file).startswith("+++")]:
        if time.monotonic() > end:
            raise TimeoutError(f"these have not ended: {open_traces}")
        time.sleep(0.1)


def killed_threads(traces: Path) -> set[int]:
    """The threads that were killed (SIGKILL)."""
    return {_thread(file) for file in traces.iterdir() if "SIGKILL" in _last_line(file)}


def traced(traces: Path, folders: Sequence[Path]) -> list[Call]:
    """The operations in these folders that strace saw, those that failed among them."""
    calls: list[Call] = []
    for file in sorted(traces.iterdir()):
        calls += _read(_thread(file), file.read_text().splitlines())
    return [call for call in calls if _is_in(call, folders)]


def recorded(log: Path, folders: Sequence[Path]) -> list[Call]:
    """The operations in these folders that the seam was asked for."""
    calls = []
    for line in log.read_text().splitlines():
        thread, operation, paths = json.loads(line)
        calls.append(_call(thread, operation, paths))
    return [call for call in calls if _is_in(call, folders)]


def beyond(known: Iterable[Call], calls: Iterable[Call]) -> list[Call]:
    """The calls that are not known, or that were made more often."""
    unknown = Counter(calls) - Counter(known)
    return list(unknown.elements())


def _read(thread: int, lines: Iterable[str]) -> Iterator[Call]:
    """The operations in the trace of a thread, each on the paths that the system knows.

    A relative name counts in the folder that is named with it, and so those of the calls that name none do not count:
    no process works in the folders that are looked at.
    """
    for line in lines:
        name, _, rest = line.partition("(")
        operation = BY_CALL.get(name, "")
        if not operation or INTERRUPTED.search(rest):
            continue
        if operation == "open" and not WRITES.search(rest):
            continue
        if name == "unlinkat" and "AT_REMOVEDIR" in rest:
            operation = "remove folder"
        paths = _paths(name, operation, rest)
        if operation in OF_OPEN_FILES and any(map(OF_SAFETENSORS.search, paths)):
            continue  # the seam leaves to safetensors how it writes a file
        yield _call(thread, operation, paths)


def _paths(name: str, operation: str, rest: str) -> tuple[str, ...]:
    """The paths on which a call acts: that of its handle, or its names, each in the folder before it."""
    pairs = HANDLE_OR_NAME.findall(rest)
    if operation in OF_OPEN_FILES and name != "truncate":
        handles = [handle for handle, _ in pairs if handle]
        target = 1 if name == "copy_file_range" else 0
        return tuple(handles[target : target + 1])
    paths = []
    folder = ""
    for handle, text in pairs:
        if text:
            path = os.path.join(folder, text)
            paths.append(os.path.normpath(path))
        folder = handle
    return tuple(paths)


def _call(thread: int, operation: str, paths: Iterable[str]) -> Call:
    """A call, with `.tmp*` for each name that safetensors has made up."""
    return Call(thread, operation, tuple(OF_SAFETENSORS.sub("/.tmp*", path) for path in paths))


def _is_in(call: Call, folders: Sequence[Path]) -> bool:
    """Whether one of the paths of a call is in one of the folders, or is the folder itself."""
    return any(Path(path).is_relative_to(folder) for path in call.paths for folder in folders)


def _thread(file: Path) -> int:
    return int(file.suffix[1:])


def _last_line(file: Path) -> str:
    lines = file.read_text().splitlines()
    return lines[-1] if lines else ""
