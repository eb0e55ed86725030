"""What a study is: it looks at finished runs, writes down what it found, and says how that is shown."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from ...basics.errors import check
from ..pictures import Picture
from ..records import write_json
from .opened import OpenRun

Found = Mapping[str, Any]
"""What a study found, as its JSON has it: `kind`, `title`, `command`, and the study's own keys."""

OnProgress = Callable[[int, int], None]
"""`progress(done, all)`, called on the way."""

Rows = Iterator[list[str]]
"""The heads of a table, then its rows."""

UNKNOWN = "-"


def unseen(done: int, total: int) -> None:
    """The progress that nobody follows."""


def option(help: str, metavar: str = "", none: str = "") -> dict[str, str]:
    """The metadata of a study's field, for its command: a line of help, what its value is called, the word for None."""
    return {"help": help, "metavar": metavar, "none": none}


@dataclass(frozen=True)
class Study(ABC):
    """A question to finished runs, and how its answer is shown.

    A subclass is a frozen dataclass. Its fields, each with `option` as metadata, are the options of its command and the
    keys of a figure in a reproduction's file. Errors name them: `"samples = 0: must be ..."`. What it finds is plain
    data, `Found`, from which alone table and picture are made.

    `kinds` are the values of `"kind"` in what it finds, `takes` says whether it looks at one run, at several, one after
    another, or at several together; `examples` stand below the help of its command.
    """

    kinds: ClassVar[tuple[str, ...]]
    takes: ClassVar[Literal["one", "each", "together"]] = "one"
    examples: ClassVar[str] = ""

    @property
    def kind(self) -> str:
        """The kind of what it will find."""
        return self.kinds[0]

    def parts(self) -> Sequence[Study]:
        """The studies of which each finds one thing: several where a command asks for several."""
        return (self,)

    def about(self) -> Sequence[str]:
        """What it looks at in a run, for the name of its files: models, for example."""
        return ()

    def answer(self, runs: Sequence[OpenRun]) -> Sequence[str]:
        """The lines of an answer that is only said; none if something is to be made, written and drawn."""
        return ()

    @abstractmethod
    def make(self, runs: Sequence[OpenRun], progress: OnProgress = unseen, draft: Path | None = None) -> dict[str, Any]:
        """Look at the runs; what was found: `kind`, `title` and the study's own keys, as numbers, lists and texts.

        What an interrupted study can go on from it keeps in the file `draft`.
        """

    @staticmethod
    @abstractmethod
    def rows(found: Found) -> Rows:
        """The heads of a table in the terminal, then its rows."""

    @staticmethod
    @abstractmethod
    def picture(found: Found) -> Picture:
        """The picture, with a sentence or two below it.

        Raises `KeyError`, `TypeError` or `ValueError` for what a damaged file holds.
        """

    def write(self, runs: Sequence[OpenRun], name: str, command: str = "", progress: OnProgress = unseen) -> Found:
        """Make it, and leave it in the first run's `analyses/NAME.json`; what a reader will find there.

        An interrupted study may leave `NAME.npz`, and goes on from it.
        """
        folder = runs[0].folder
        draft, file = place(folder, name, "npz"), place(folder, name, "json")
        made = self.make(runs, progress, draft)
        write_json(file, {"kind": made["kind"], "title": made["title"], "command": command, **made})
        draft.unlink(missing_ok=True)
        written: Found = json.loads(file.read_text())
        return written


def place(folder: Path, name: str, ending: str) -> Path:
    """Where a file of a study lies. Raises `ValueError` unless `name` can be a file's."""
    check(bool(re.fullmatch(r"[\w-]+", name)), "name", name, "must be letters, digits, _ and -")
    (folder / "analyses").mkdir(exist_ok=True)
    return folder / "analyses" / f"{name}.{ending}"


def names_of(models: Sequence[str]) -> list[str]:
    """What models are called in pictures: files by their name, without the folder."""
    return [Path(name).stem if name.endswith(".safetensors") else name for name in models]


def number(value: float | None, digits: int = 4) -> str:
    """A number in a table."""
    return UNKNOWN if value is None else f"{value:.{digits}g}"


def share(value: float | None) -> str:
    """A share in a table, in per cent."""
    return UNKNOWN if value is None else f"{100 * value:.2f} %"


def split_in_words(found: Found) -> str:
    """On which samples something was measured."""
    return {"test": "on the test set", "train": "on training samples"}.get(found.get("split", ""), "evaluated")
