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
from ..system.host import host, make_folders, opened, write_all
from ..system.paths import naming, plain_file
from ..vector.saved import StateError, manifest, place, saved_rounds
from .cures import restore


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    """Whether a value is a finite number, or None, which stands for one that is not finite."""
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf


def _is_round(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST


Requirement = tuple[Callable[[Any], bool], str]
"""A check of a value, and the words for what it must be."""
NUMBER: Requirement = (_is_number, "a number, or null")
ANYTHING: Requirement = (lambda value: True, "anything")
REQUIREMENTS: dict[str, Requirement] = {
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
"""What the values of a row must be, by key. Rows may have more keys: those of metrics hold numbers, or null."""
OTHERS = ("classes",)
"""The keys of a score's row that are no metrics."""

Mark = tuple[int, int]
"""The number of rows, and their CRC-32 checksum."""


def mark(records: Iterable[Record], before: Mark = (0, 0)) -> Mark:
    """The mark of all records so far: those of the mark `before`, followed by `records`."""
    rows, checksum = before
    content = _lines(records)
    return rows + content.count(b"\n"), zlib.crc32(content, checksum)


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
        make_folders(self.path.parent)
        with naming(self.path), opened(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as handle:
            write_all(handle, _lines(records))

    def flush(self) -> None:
        """Wait until the rows are on the disk (fsync)."""
        with naming(self.path), opened(self.path, os.O_RDWR) as handle:  # Windows syncs no file that is only read
            host.disk.sync(handle)

    def load(self) -> History:
        """All records. Raises `ValueError`, which names the file and the line, if a finished line is no row of a run.

        Also raises it if the rows before the newest saved state are not those of which the state has the mark.
        """
        return History(self._record(number, line) for number, line in enumerate(self.checked(), 1))

    def checked(self) -> list[bytes]:
        """The finished lines, not yet parsed. Raises `RunError` as `load` does for those before the newest state."""
        while True:
            state = self._newest()
            lines = self._finished_lines()
            rows, checksum = state.get("records", (0, 0))
            actual = _mark_of(lines[:rows])
            if actual == (rows, checksum):
                return lines
            if state == self._newest():  # else a session was at work meanwhile
                raise self._damaged(state["round"], actual, (rows, checksum))

    def cut(self, round: int, expected: Mark | None = None) -> None:
        """Remove all rows after `round` or after those that are `expected`, and an incomplete last line.

        The other lines keep their bytes. Raises `ValueError` and leaves the file unchanged if their mark is not
        `expected`.
        """
        kept = []
        for number, line in enumerate(self._finished_lines(), 1):
            if self._row(number, line)["round"] <= round:
                kept.append(line)
        if expected is not None:
            rows, _ = expected
            kept = kept[:rows]
            actual = _mark_of(kept)
            if actual != expected:
                raise self._damaged(round, actual, expected)
        self._replace(_joined(kept))

    def _replace(self, content: bytes) -> None:
        make_folders(self.path.parent)
        files.replace_file(self.path, content)

    def _finished_lines(self) -> list[bytes]:
        """The finished lines of the file; none if it is not there."""
        if not self.path.exists():
            return []
        return plain_file(self.path).read_bytes().split(b"\n")[:-1]

    def _newest(self) -> dict[str, Any]:
        """The manifest of the newest saved state whose manifest is not damaged; empty if there is none."""
        states = self.path.parent / "state"
        for round in reversed(saved_rounds(states)):
            with suppress(StateError):
                return manifest(place(states, round))
        return {}

    def _damaged(self, round: int, actual: Mark, expected: Mark) -> RunError:
        cure = restore(self.path.parent)
        if not self.path.exists():
            return RunError(f"{self.path} is missing: {cure}")
        lost = f"up to round {round} it has {actual[0]} rows where there were {expected[0]}, or some have changed"
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
        usual = NUMBER if row.get("split") in SPLITS else ANYTHING  # a score's other keys are metrics
        for key in ("round", "model", "split", *row):
            if key in OTHERS:
                continue
            satisfies, words = REQUIREMENTS.get(key, usual)
            if not satisfies(row.get(key)):
                raise RunError(f"{self.path}, line {number}: {shortened(key)} = {brief(row.get(key))}: must be {words}")
        return row


def _lines(records: Iterable[Record]) -> bytes:
    lines = [json.dumps(files.strict(record.row()), allow_nan=False) + "\n" for record in records]
    return "".join(lines).encode()
