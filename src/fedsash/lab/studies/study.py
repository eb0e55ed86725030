"""The base class of studies: a study examines finished runs, writes its findings, and shows them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from ...runs.pictures import Picture
from ...settings.errors import check
from ...system.files import table as read_table
from ...system.files import write_table
from ...system.paths import check_folder
from ...tasks.criterion import UNKNOWN
from .opened import OpenRun

Findings = Mapping[str, Any]
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


@dataclass(frozen=True)
class Study(ABC):
    """A study of finished runs: how its findings are made, and how they are shown.

    A subclass is a frozen dataclass. Its fields, each with `option` as metadata, are the options of its command.
    Errors name them: `"samples = 0: must be ..."`. The findings are plain
    data, `Findings`. Table and picture are made from them alone.

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
    def measure(self, runs: Sequence[OpenRun], progress: OnProgress = unseen) -> dict[str, Any]:
        """Examine the runs. The findings have a `title` and the study's own keys, with numbers, lists and texts."""

    def measure_from(self, draft: Path, runs: Sequence[OpenRun], progress: OnProgress) -> dict[str, Any]:
        """What `measure` gives. A long study keeps its numbers so far in the file `draft`, and continues from them."""
        return self.measure(runs, progress)

    @staticmethod
    @abstractmethod
    def table(findings: Findings) -> Rows:
        """The heads of a table in the terminal, then its rows."""

    @staticmethod
    @abstractmethod
    def picture(findings: Findings) -> Picture:
        """The picture, with one or two sentences below it.

        Raises `KeyError`, `TypeError` or `ValueError` if the findings come from a damaged file.
        """

    def write(self, runs: Sequence[OpenRun], name: str, command: str = "", progress: OnProgress = unseen) -> Findings:
        """Measure, write the findings to `analyses/NAME.json` of the first run, and return them as read from there.

        An interrupted study may leave `NAME.npz`, from which it continues. Raises `ValueError` unless `name` is a valid
        file name.
        """
        valid = re.fullmatch(r"[\w-]+", name) and len(name.encode()) <= 200
        check(bool(valid), "name", name, "must be letters, digits, _ and -, at most 200 bytes")
        folder = runs[0].folder / "analyses"
        check_folder(folder)
        folder.mkdir(exist_ok=True)
        file = folder / f"{name}.json"
        draft = folder / f"{name}.npz"
        findings = self.measure_from(draft, runs, progress)
        write_table(file, {"kind": self.kind, "title": findings["title"], "command": command, **findings})
        draft.unlink(missing_ok=True)
        return read_table(file)


def names_of(models: Sequence[str]) -> list[str]:
    """The names of models in pictures. A file is called by its name, or by its path if another model has its name."""
    names = [_short_name(model) for model in models]
    unique = []
    for model, name in zip(models, names, strict=True):
        if names.count(name) > 1 and "/" in model:
            name = model.removesuffix(".safetensors")
        elif names.count(name) > 1:
            name = model
        unique.append(name)
    return unique


def _short_name(model: str) -> str:
    if model.endswith(".safetensors"):
        return Path(model).stem
    return model


def number(value: float | None, digits: int = 4) -> str:
    """A number in a table."""
    if value is None:
        return UNKNOWN
    return f"{value:.{digits}g}"


def times(factor: float, values: Sequence[float | None]) -> list[float | None]:
    """The values as they are drawn: times a factor."""
    return [None if value is None else factor * value for value in values]


def share(value: float | None) -> str:
    """A share in a table, in per cent."""
    if value is None:
        return UNKNOWN
    return f"{100 * value:.2f} %"


def split_in_words(findings: Findings) -> str:
    """The samples on which something was measured, in words."""
    words = {"test": "on the test set", "train": "on training samples"}
    return words.get(findings.get("split", ""), "evaluated")
