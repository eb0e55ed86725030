"""Damaged files: every command that reads a folder either gives the result of the whole one, or names the file.

The folders are finished runs and sweeps, and ones that were killed. A case damages one file in one way, and lets two of
the commands that read the folder work on it, each on a copy of its own.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from threading import RLock

from .file_operations import watched
from .folders import contents
from .frame import REFUSED, Bench, Case, Ended, Finding
from .scenarios import QUIET, SCENARIOS, TABLE, Undisturbed

SIZES = {"full": 1000, "short": 16}
SWAPS = ("that of another run", "that of its neighbour")
AT_THE_END = ("summary.json", "partition.json", "clients.json", "timeline.json", "own_code.json")
"""Tables that a run may not have written yet, so that nobody misses one that was removed."""
COMMANDS = 2
"""How many commands read each damaged folder."""

SHAPES = (
    "[]",
    "{}",
    "null",
    '"text"',
    "12",
    '[{"round": "x"}]',
    '{"round": 1}',
    "{" * 900,
    "[" * 900 + "]" * 900,
    "NaN",
)
"""JSON that is not ours."""

RUN: Mapping[str, tuple[str, ...]] = {
    "resume": ("resume", "out", QUIET),
    "more rounds": ("resume", "out", "--rounds", "14", QUIET),
    "report": ("report", "out", "--out", "page.html"),
    "compare": ("compare", "out"),
    "average": ("average", "out", "--name", "a"),
    "landscape": ("landscape", "out", "--models", "model,w3,ema", "--points", "3", "--name", "l"),
    "flatness": ("flatness", "out", "--models", "model-best", "--eigenvalues", "1", "--name", "f"),
    "decompose": ("decompose", "out", "--name", "d"),
    "window": ("window", "out", "--average", "w3", "--name", "w"),
    "fork": ("run", "run.toml", "--fork", "out@4", "--out", "forked", QUIET),
}
READING: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "run": RUN,
    "stopped": {name: RUN[name] for name in ("resume", "report", "compare", "fork", "decompose")},
    "sweep": {
        "sweep": SCENARIOS["sweep"].words,
        "report": RUN["report"],
        "compare": ("compare", "out", "--against", "ima=off"),
    },
    "stopped sweep": {"sweep": SCENARIOS["sweep"].words, "report": RUN["report"], "compare": RUN["compare"]},
    "reproduction": {"reproduce": ("reproduce", "ima-table-1", "--out", "out", *TABLE)},
    "network": {name: RUN[name] for name in ("resume", "report", "compare")},
    "stopped network": {name: RUN[name] for name in ("resume", "report")},
}
"""The folders, and the commands that read each."""

MADE = {
    "run": ("run", 0),
    "stopped": ("run", 150),
    "sweep": ("sweep", 0),
    "stopped sweep": ("sweep", 150),
    "reproduction": ("reproduce", 0),
    "network": ("network", 0),
    "stopped network": ("network", 50),
}
"""The scenario that makes each folder, and the file operation before which it is killed."""


def cases(bench: Bench, size: int) -> Iterator[Case]:
    """Each case damages one file of one folder in one way."""
    subjects = Subjects(bench)
    names = list(READING)
    for number in range(size):
        name = names[number % len(names)]
        yield Case(name, partial(_case, subjects, name, bench.random(number)))


@dataclass(frozen=True)
class Result:
    """What a command that reads a folder gives: its exit code, what it prints, and all files after it."""

    ended: Ended
    files: dict[str, bytes]


class Subjects:
    """The folders, whole, and what each command makes of them. They are made when they are first asked for."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._whole = Undisturbed(bench)
        self._lock = RLock()
        self._right = dict[tuple[str, str], Result]()

    def folder(self, name: str, seed: int = 0) -> Path:
        """The folder of that name, or the same with another seed; a sweep with another rate."""
        place = self.bench.folder / f"{name}-{seed}"
        with self._lock:
            if not place.exists():
                scenario, stop = MADE[name]
                self._whole.prepare(scenario, place)
                setting = "local.lr=0.06" if scenario == "sweep" else f"seed={seed}"
                words = [*SCENARIOS[scenario].words, *(("--set", setting) if seed else ())]
                watched(self.bench, place, words, {"who": "job" if scenario == "sweep" else "main", "at": stop})
        return place

    def right(self, name: str, command: str) -> Result:
        """What a command makes of the whole folder."""
        with self._lock:
            if (name, command) not in self._right:
                place = self.bench.folder / f"{name}-{command}"
                shutil.copytree(self.folder(name), place)
                self._right[name, command] = self.read(name, command, place)
        return self._right[name, command]

    def read(self, name: str, command: str, place: Path) -> Result:
        """Carry out a command that reads the folder in `place`."""
        return Result(self.bench.command(place, *READING[name][command]), contents(place))


def _case(subjects: Subjects, name: str, random: Random, place: Path) -> Iterator[Finding]:
    kinds = _kinds(subjects.folder(name) / "out")
    file = random.choice(kinds[random.choice(sorted(kinds))])
    how = random.choice(sorted(DAMAGES))
    damaged = place / "damaged"
    shutil.copytree(subjects.folder(name), damaged)
    target = damaged / "out" / file
    other = subjects.folder(name, 1) / "out" / file
    DAMAGES[how](target, other, random)
    before = contents(damaged)
    commands = sorted(READING[name])
    for command in random.sample(commands, min(COMMANDS, len(commands))):
        copy = place / command
        shutil.copytree(damaged, copy)
        found = subjects.read(name, command, copy)
        right = subjects.right(name, command)
        for finding in _judge(found, right, file, before, _as_it_is(file, how)):
            yield Finding(finding.sort, f"{file} ({how}), then {command}: {finding.what}", finding.output)


def _as_it_is(file: str, how: str) -> bool:
    """Whether commands take a file as they find it.

    Anybody may change an experiment, a table of another run is whole by itself, and one that is gone is not missed.
    """
    path = Path(file)
    if path.suffix == ".toml":
        return True
    if path.suffix != ".json" or "state" in path.parts:
        return False
    return how in SWAPS or (how == "removed" and path.name in AT_THE_END)


def _judge(found: Result, right: Result, file: str, before: dict[str, bytes], as_it_is: bool) -> Iterator[Finding]:
    """A command that ends well gives the right result, or says that the file is damaged; others name it in a line.

    One that takes the file `as_it_is` may give another result. A refusal leaves nothing behind that was not there
    `before`. A sweep trains its other runs.
    """
    if wrong := found.ended.findings(right.ended.code, REFUSED):
        yield from wrong
        return
    left = found.files.keys() - before.keys()
    if found.ended.code == REFUSED and not found.ended.partial and left and not any("seed=" in name for name in left):
        yield Finding("leftover", f"a refusal left {', '.join(sorted(left))}", found.ended.output)
    if as_it_is:
        return
    said = any(name in found.ended.err + found.ended.out for name in (file, *_names(file)))
    if found.ended.code == REFUSED:
        if not said and right.ended.code != REFUSED:
            yield Finding("unclear", "the refusal does not name the file", found.ended.output)
        return
    names = found.files.keys() | right.files.keys()
    changed = {name for name in names if found.files.get(name) != right.files.get(name)}
    if found.files.get(f"out/{file}") == before.get(f"out/{file}"):
        changed.discard(f"out/{file}")
    if changed and not said:
        yield Finding("wrong", f"other results: {', '.join(sorted(changed))}", found.ended.output)
    elif found.ended.out != right.ended.out and not said:
        yield Finding("wrong", "another output", f"{found.ended.output}\n--- instead of ---\n{right.ended.out}")


def _names(file: str) -> Iterator[str]:
    """The names by which a message may name the file: its own, or that of the state to which it belongs."""
    parts = Path(file).parts
    yield parts[-1]
    if "state" in parts[:-1]:
        yield parts[parts.index("state") + 1]


def _kinds(folder: Path) -> dict[str, list[str]]:
    """The files of a folder by kind, so that each kind is damaged as often as another."""
    kinds: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and "logs" not in parts:
            kind = "".join(letter for letter in "/".join(parts[-2:]) if not letter.isdigit()) if parts else ""
            kinds.setdefault(kind, []).append(str(path.relative_to(folder)))
    return kinds


def _flip(path: Path, other: Path, random: Random) -> None:
    content = bytearray(path.read_bytes() or b"\0")
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    _write(path, bytes(content))


def _cut(path: Path, other: Path, random: Random) -> None:
    content = path.read_bytes()
    _write(path, content[: random.randrange(len(content) + 1)])


def _zero(path: Path, other: Path, random: Random) -> None:
    content = path.read_bytes()
    start = random.randrange(len(content) + 1)
    _write(path, content[:start] + bytes(len(content) - start))


def _swap(path: Path, other: Path, random: Random) -> None:
    _write(path, other.read_bytes() if other.is_file() else b"")


def _neighbour(path: Path, other: Path, random: Random) -> None:
    others = sorted(file for file in path.parent.iterdir() if file.is_file() and file != path)
    _write(path, random.choice(others).read_bytes() if others else b"")


def _append(path: Path, other: Path, random: Random) -> None:
    content = path.read_bytes()
    _write(path, content + random.choice((random.randbytes(100), content, b"\0", b"{}\n")))


def _shape(path: Path, other: Path, random: Random) -> None:
    text = random.choice(SHAPES)
    if path.suffix in (".json", ".jsonl", ".toml") or random.random() < 0.2:
        _write(path, text.encode() + b"\n")
    else:
        _flip(path, other, random)


def _field(path: Path, other: Path, random: Random) -> None:
    """Another value, of another type, somewhere in the JSON."""
    try:
        lines = path.read_text().splitlines(keepends=True) if path.suffix == ".jsonl" else [path.read_text()]
        at = random.randrange(len(lines))
        tree = json.loads(lines[at])
        holder = tree
        while isinstance(holder, dict | list) and holder:
            key = random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
            if not isinstance(holder[key], dict | list) or random.random() < 0.3:
                holder[key] = random.choice((None, "text", -1, 1e300, [], {}, True, 10**30))
                break
            holder = holder[key]
        _write(path, "".join([*lines[:at], json.dumps(tree) + "\n", *lines[at + 1 :]]).encode())
    except (ValueError, UnicodeDecodeError, IndexError):
        _flip(path, other, random)


def _remove(path: Path, other: Path, random: Random) -> None:
    path.unlink()


def _folder(path: Path, other: Path, random: Random) -> None:
    path.unlink()
    path.mkdir()


def _write(path: Path, content: bytes) -> None:
    """Write into a new file: the old one may have other links."""
    path.unlink()
    path.write_bytes(content)


DAMAGES: Mapping[str, Callable[[Path, Path, Random], None]] = {
    "a bit flipped": _flip,
    "cut": _cut,
    "ends in zeros": _zero,
    "that of another run": _swap,
    "that of its neighbour": _neighbour,
    "appended to": _append,
    "another shape": _shape,
    "another value": _field,
    "removed": _remove,
    "a folder": _folder,
}
"""What is done to a file; `other` is the file at the same place in a run with another seed."""
