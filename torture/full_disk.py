"""A disk that fills up: one line that names a file, and with room again the command goes on to the right bytes.

Each case works on a small file system of its own (a tmpfs, in a user's own name space of mounts) that is too small, and
is then made larger. Where that is not allowed, and in every second case, no file may become longer than a limit instead
(RLIMIT_FSIZE).
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random

from .frame import REFUSED, Bench, Case, Finding
from .scenarios import SCENARIOS, Scenario, Undisturbed
from .server import command

SIZES = {"full": 100, "short": 6}
FILLED = ("run", "network", "fork", "workers", "report", "average", "sweep")
SEPARATE_USER_AND_MOUNTS = 0x10000000 | 0x20000
ROOM = "256m"


def cases(bench: Bench, size: int) -> Iterator[Case]:
    """Each case fills the disk at another moment of a command."""
    undisturbed = Undisturbed(bench)
    mounts = _mounts_allowed()
    for number in range(size):
        scenario = SCENARIOS[FILLED[number % len(FILLED)]]
        random = bench.random(number)
        small = mounts and number // len(FILLED) % 2 == 0 and scenario.name != "sweep"
        what = f"{scenario.name} on a {'small disk' if small else 'disk of short files'}"
        yield Case(what, partial(_small if small else _short, bench, undisturbed, scenario, random))


def _short(
    bench: Bench, undisturbed: Undisturbed, scenario: Scenario, random: Random, place: Path
) -> Iterator[Finding]:
    undisturbed.prepare(scenario.name, place)
    sizes = [file.stat().st_size for file in undisturbed.folder(scenario.name).rglob("*") if file.is_file()]
    limit = random.randrange(1, max(sizes))
    ended = bench.command(place, list(scenario.words), limit, entry="torture.full_disk:limited")
    found = ended.findings(0, REFUSED, names=scenario.out)
    yield from (each for each in found if each.sort != "slow")  # the disk may fill up at the end of the work
    yield from _go_on(bench, undisturbed, scenario, place)


def _go_on(bench: Bench, undisturbed: Undisturbed, scenario: Scenario, place: Path) -> Iterator[Finding]:
    yield from bench.command(place, *scenario.next(place)).findings(0)
    yield from undisturbed.differences(scenario.name, place, only_common_states=True)


def _small(
    bench: Bench, undisturbed: Undisturbed, scenario: Scenario, random: Random, place: Path
) -> Iterator[Finding]:
    undisturbed.prepare(scenario.name, place)
    whole, before = (_pages(folder / scenario.out) for folder in (undisturbed.folder(scenario.name), place))
    pages = before + random.randrange(1, max(2, whole - before))
    ended = bench.command(place, scenario.name, pages, entry="torture.full_disk:filled")
    yield from ended.findings(0)
    first = (place / "first.txt").read_text()
    if "Traceback" in first:
        yield Finding("traceback", "on a full disk", first)
    elif not first.startswith(("0\n", f"{REFUSED}\n")):
        yield Finding("unclear", "another exit code", first)
    elif first.startswith(f"{REFUSED}\n") and scenario.out not in first:
        yield Finding("unclear", "the refusal names no file", first)
    yield from undisturbed.differences(scenario.name, place, only_common_states=True)


def _pages(folder: Path) -> int:
    """How much of a tmpfs a folder needs, in kilobytes."""
    return sum(4 * -(-file.stat().st_size // 4096) for file in folder.rglob("*") if file.is_file())


def limited(words: Sequence[str], limit: int) -> int:
    """The command line in a process whose files can't be longer than `limit` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return command(words)


def filled(name: str, kilobytes: int) -> int:
    """A command on a small file system, and the one that goes on after it was made larger; then all is copied out.

    The first one's exit code and output are left in `first.txt`.
    """
    scenario = SCENARIOS[name]
    here = Path.cwd()
    _own_mounts()
    disk = here / "disk"
    out = here / scenario.out
    disk.mkdir()
    _mount(f"size={kilobytes}k", disk)
    if out.exists():
        shutil.copytree(out, disk, dirs_exist_ok=True)
        shutil.rmtree(out)
    out.mkdir()
    subprocess.run(["mount", "--bind", str(disk), str(out)], check=True)
    code = _forked(scenario.words, here / "output.txt")
    (here / "first.txt").write_text(f"{code}\n{(here / 'output.txt').read_text()}")
    _mount(f"remount,size={ROOM}", disk)
    code = _forked(scenario.next(here), here / "output.txt") if code else 0
    subprocess.run(["umount", str(out)], check=True)
    shutil.copytree(disk, out, dirs_exist_ok=True)
    print((here / "output.txt").read_text())
    return code


def _forked(words: Sequence[str], output: Path) -> int:
    """The exit code of a command in a process of its own."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    raise SystemExit(command(words))


def _mount(options: str, folder: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)


def _own_mounts() -> None:
    """Give this process mounts of its own, which end with it."""
    user = os.getuid()
    group = os.getgid()
    if ctypes.CDLL(None, use_errno=True).unshare(SEPARATE_USER_AND_MOUNTS):
        raise OSError(ctypes.get_errno(), "no name space of one's own")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def _mounts_allowed() -> bool:
    tried = "mount -t tmpfs -o size=64k tmpfs /tmp"
    return subprocess.run(["unshare", "-rm", "sh", "-c", tried], capture_output=True).returncode == 0
