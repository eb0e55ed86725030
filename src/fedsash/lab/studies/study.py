"""The base class of studies: a study examines finished runs, writes its findings, and shows them."""

from __future__ import annotations

import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

from ...basics.files import table, write_table
from ...runs.pictures import Picture
from ...settings.errors import check
from ...tasks.criterion import UNKNOWN
from .opened import OpenRun

Found = Mapping[str, Any]
"""The findings of a study, as in its JSON file: `kind`, `title`, `command`, and the study's own keys."""

OnProgress = Callable[[int, int], None]
"""`progress(done, all)`, called during the work."""

Rows = Iterator[list[str]]
"""The heads of a table, then its rows."""


@dataclass(frozen=True)
class Answer:
    """An answer that is only printed: its `lines`, and the same as plain data."""

    lines: Sequence[str]
    data: Mapping[str, Any]


def unseen(done: int, total: int) -> None:
    """A progress function that does nothing."""


def option(help: str, metavar: str = "", none: str = "") -> dict[str, str]:
    """The metadata of a study's field, for its command: a line of help, the name of its value, the word for None."""
    return {"help": help, "metavar": metavar, "none": none}


ROUNDS = option("saved rounds (default: all of them)", metavar="N[,N...]")
CLIENT_SAMPLES = option("at most N of the clients' samples, or all", metavar="N", none="all")


@dataclass(frozen=True)
class Study(ABC):
    """A study of finished runs: how its findings are made, and how they are shown.

    A subclass is a frozen dataclass. Its fields, each with `option` as metadata, are the options of its command.
    Errors name them: `"samples = 0: must be ..."`. The findings are plain
    data, `Found`. Table and picture are made from them alone.

    `kinds` are the possible values of `"kind"` in the findings. `takes` says whether the study takes one run, several
    runs one after another, or several runs together. `examples` appear below the help of its command.
    """

    kinds: ClassVar[tuple[str, ...]]
    takes: ClassVar[Literal["one", "each", "together"]] = "one"
    examples: ClassVar[str] = ""

    @property
    def kind(self) -> str:
        """The kind of the findings that it will make."""
        return self.kinds[0]

    def parts(self) -> Sequence[Study]:
        """One study for each finding. There are several if the command asks for several findings."""
        return (self,)

    def answer(self, runs: Sequence[OpenRun]) -> Answer | None:
        """An answer that is only printed. None if the study makes findings, which are also drawn."""
        return None

    @abstractmethod
    def make(self, runs: Sequence[OpenRun], progress: OnProgress = unseen) -> dict[str, Any]:
        """Examine the runs. The findings have `kind`, `title` and the study's own keys, as numbers, lists and texts."""

    def go_on(self, runs: Sequence[OpenRun], draft: Path, progress: OnProgress) -> dict[str, Any]:
        """What `make` gives. A long study keeps its numbers so far in the file `draft`, and continues from them."""
        return self.make(runs, progress)

    @staticmethod
    @abstractmethod
    def rows(found: Found) -> Rows:
        """The heads of a table in the terminal, then its rows."""

    @staticmethod
    @abstractmethod
    def picture(found: Found) -> Picture:
        """The picture, with one or two sentences below it.

        Raises `KeyError`, `TypeError` or `ValueError` if the findings come from a damaged file.
        """

    def write(self, runs: Sequence[OpenRun], name: str, command: str = "", progress: OnProgress = unseen) -> Found:
        """Make the findings, write them to `analyses/NAME.json` of the first run, and return them as read from there.

        An interrupted study may leave `NAME.npz`, from which it continues.
        """
        folder = runs[0].folder
        draft = place(folder, name, "npz")
        file = place(folder, name, "json")
        made = self.go_on(runs, draft, progress)
        write_table(file, {"kind": made["kind"], "title": made["title"], "command": command, **made})
        draft.unlink(missing_ok=True)
        return table(file)


def place(folder: Path, name: str, ending: str) -> Path:
    """The path of a study's file. Raises `ValueError` unless `name` is a valid file name."""
    valid = re.fullmatch(r"[\w-]+", name) and len(name.encode()) <= 200
    check(bool(valid), "name", name, "must be letters, digits, _ and -, at most 200 bytes")
    (folder / "analyses").mkdir(exist_ok=True)
    return folder / "analyses" / f"{name}.{ending}"


def words(study: Study) -> list[str]:
    """What of a study is set otherwise than usual, as words of its files' name.

    Models, rounds and averages are named alone, and all other settings as NAME-VALUE.
    """
    found = []
    for each in fields(study):
        value = getattr(study, each.name)
        if value == each.default:
            continue
        if each.name == "models":
            named = zip(names_of(value), value, strict=True)
            found += [_short(name, model) if model.endswith(".safetensors") else name for name, model in named]
        elif each.name == "rounds":
            found += _rounds(value)
        elif each.name in ("average", "round"):
            found.append(str(value))
        else:
            value = each.metadata.get("none") if value is None else value
            said = value if isinstance(value, tuple) else () if value is True else (value,)
            found.append("-".join(map(str, (each.name, *said))))
    return [re.sub(r"[^\w-]", "-", word) for word in found]


def _rounds(rounds: Sequence[int]) -> list[str]:
    """Rounds in a file's name; of many, the first, the last and their number."""
    if len(rounds) <= 5:
        return [str(round) for round in rounds]
    return [f"{rounds[0]}-{rounds[-1]}", _short(f"{len(rounds)}-rounds", rounds)]


def _short(said: str, whole: object) -> str:
    """An abbreviation, told apart from others by a checksum of what it stands for."""
    return f"{said}-{zlib.crc32(repr(whole).encode()):08x}"


def names_of(models: Sequence[str]) -> list[str]:
    """The names of models in pictures. A file is called by its name, or by its path if another model has its name."""
    names = [Path(name).stem if name.endswith(".safetensors") else name for name in models]
    paths = [model.removesuffix(".safetensors") if "/" in model else model for model in models]
    return [name if names.count(name) == 1 else path for name, path in zip(names, paths, strict=True)]


def number(value: float | None, digits: int = 4) -> str:
    """A number in a table."""
    return UNKNOWN if value is None else f"{value:.{digits}g}"


def times(factor: float, values: Sequence[float | None]) -> list[float | None]:
    """The values as they are drawn: times a factor."""
    return [None if value is None else factor * value for value in values]


def share(value: float | None) -> str:
    """A share in a table, in per cent."""
    return UNKNOWN if value is None else f"{100 * value:.2f} %"


def split_in_words(found: Found) -> str:
    """The samples on which something was measured, in words."""
    return {"test": "on the test set", "train": "on training samples"}.get(found.get("split", ""), "evaluated")
