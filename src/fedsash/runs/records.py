"""The file of a run's records, `metrics.jsonl`: a line for each."""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..evaluation import SPLITS, History, Record, Row, record_of
from ..settings.errors import MOST, RunError, brief, one_line, shortened
from ..system import files
from ..system.paths import naming, plain_file
from ..vector.saved import StateError, manifest, place, saved_rounds
from .cures import restore


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf)


def _is_round(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST


Form = tuple[Callable[[Any], bool], str]
"""What a value must be: a check, and words for it."""
NUMBER: Form = (_is_number, "a number, or null")
ANYTHING: Form = (lambda value: True, "anything")
FORM: dict[str, Form] = {
    "round": (_is_round, "a round"),
    "model": (_is_text, "the name of a model"),
    "split": (_is_text, "the name of a split"),
    "loss": NUMBER,
    "epsilon": NUMBER,
    "delta": NUMBER,
    "time": NUMBER,
    "trips": NUMBER,
    "skipped": (_is_text, "a text"),
    "domains": (lambda value: isinstance(value, dict) and all(map(_is_number, value.values())), "numbers by domain"),
}
"""What the values of a row must be. Rows may have more keys: those of metrics hold numbers, or null."""
OTHERS = ("classes",)
"""The keys of such rows that are no metrics."""

Mark = tuple[int, int]
"""The number of rows, and their CRC-32 checksum."""


def mark(records: Iterable[Record], before: Mark = (0, 0)) -> Mark:
    """The mark of all records so far: those of the mark `before`, followed by `records`."""
    content = _lines(records)
    return before[0] + content.count(b"\n"), zlib.crc32(content, before[1])


def _mark_of(lines: list[bytes]) -> Mark:
    return len(lines), zlib.crc32(_joined(lines))


def _joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


class Records:
    """The records of a run in `metrics.jsonl`: one JSON object a line, in the order in which they were recorded.

    A line is the `row()` of a record (see `History`), whose `split` says of which type it is: "guard" is `Problems`,
    "privacy" is `PrivacySpent`, "broadcast" is `Decision`, "network" is `NetworkLoad`, and all others are `Score`.

    A saved state has the mark of the rows before it, so that neither it nor a reader goes on from other ones.

    JSON has no number for NaN or infinity: both are written as `null`, and `load` has NaN for them.
    A line counts only if it ends in a newline, so a line that a killed process left incomplete is never read.
    Call `cut` before appending to a file that may end in such a line.
    """

    def __init__(self, folder: Path | str) -> None:
        self.path = Path(folder) / "metrics.jsonl"

    @property
    def begun(self) -> bool:
        """Whether there is a run: its file, or a state that was saved after rows which have been lost.

        The states that a fork has copied from its source before it was killed are none of its own.
        """
        if self.path.exists():
            return True
        state = self._newest()
        return state.get("round") != state.get("forked")

    def create(self, records: Iterable[Record]) -> None:
        """Create the file with these records. It is written completely or not at all."""
        self._replace(_lines(records))

    def append(self, records: Iterable[Record]) -> None:
        """Append the records in one write. The file is created even if there are none."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with naming(self.path), self.path.open("ab") as file:
            file.write(_lines(records))

    def flush(self) -> None:
        """Wait until the rows are on the disk (fsync)."""
        with naming(self.path), self.path.open("rb+") as file:  # Windows syncs no file that is only read
            os.fsync(file.fileno())

    def load(self) -> History:
        """All records. Raises `ValueError`, which names the file and the line, if a finished line is no row of a run.

        Also raises it if the rows before the newest saved state are not those of which the state has the mark.
        """
        return History(self._record(number, line) for number, line in enumerate(self.checked(), 1))

    def checked(self) -> list[bytes]:
        """The finished lines, not yet parsed. Raises `RunError` as `load` does for those before the newest state."""
        while True:
            state = self._newest()
            lines = self._lines_there()
            expected = tuple(state.get("records", (0, 0)))
            found = _mark_of(lines[: expected[0]])
            if found == expected:
                return lines
            if state == self._newest():  # else a session was at work meanwhile
                raise self._damaged(state["round"], found, expected)

    def cut(self, round: int, expected: Mark | None = None) -> None:
        """Remove all rows after `round` or after those that are `expected`, and an incomplete last line.

        The other lines keep their bytes. Raises `ValueError` and leaves the file unchanged if their mark is not
        `expected`.
        """
        lines = self._lines_there()
        kept = [line for number, line in enumerate(lines, 1) if self._row(number, line)["round"] <= round]
        kept = kept if expected is None else kept[: expected[0]]
        found = _mark_of(kept)
        if expected not in (None, found):
            raise self._damaged(round, found, expected)
        self._replace(_joined(kept))

    def _replace(self, content: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        files.replace_file(self.path, content)

    def _lines_there(self) -> list[bytes]:
        """The finished lines of the file; none if it is not there."""
        return plain_file(self.path).read_bytes().split(b"\n")[:-1] if self.path.exists() else []

    def _newest(self) -> dict[str, Any]:
        """What the newest saved state says whose manifest is not damaged; nothing if there is none."""
        states = self.path.parent / "state"
        for round in reversed(saved_rounds(states)):
            with suppress(StateError):
                return manifest(place(states, round))
        return {}

    def _damaged(self, round: int, found: Mark, expected: Mark) -> RunError:
        cure = restore(self.path.parent)
        if not self.path.exists():
            return RunError(f"{self.path} is missing: {cure}")
        lost = f"up to round {round} it has {found[0]} rows where there were {expected[0]}, or some have changed"
        return RunError(f"{self.path} is damaged: {lost}; {cure}")

    def _record(self, number: int, line: bytes) -> Record:
        row = self._row(number, line)
        try:
            return record_of(row)
        except (TypeError, ValueError, AttributeError) as error:
            raise RunError(f"{self.path}, line {number}: must be a record of a run: {one_line(error)}") from None

    def _row(self, number: int, line: bytes) -> Row:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise RunError(f"{self.path}, line {number}: must be a JSON object")
        for key in ("round", "model", "split", *row):
            right, words = FORM.get(key, NUMBER if row.get("split") in SPLITS and key not in OTHERS else ANYTHING)
            if not right(row.get(key)):
                raise RunError(f"{self.path}, line {number}: {shortened(key)} = {brief(row.get(key))}: must be {words}")
        return row


def _lines(records: Iterable[Record]) -> bytes:
    return "".join(json.dumps(files.strict(record.row()), allow_nan=False) + "\n" for record in records).encode()
