"""The progress of a served run: its process writes lines of JSON into a file, the command that follows reads them."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...client.messages import RoundReport
from ...evaluation import Score
from ...runs import Callback
from ...runs.callback import LiveRun

FILE = "news.jsonl"
"""The name of the file, in the folder of the app that the command has written."""


class ProgressWriter(Callback):
    """Writes a line for each round with every model's last value, for each warning in the log, and for the run's end.

    If no command follows the run any more, its folder is gone, and nothing is written.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._values = dict[str, str]()
        logging.getLogger("fedsash").addHandler(_WarningHandler(self))

    def write(self, message: Mapping[str, Any]) -> None:
        """Write one line."""
        with suppress(FileNotFoundError), self._file.open("a") as file:
            file.write(json.dumps(message) + "\n")

    def begin(self, run: LiveRun) -> None:
        self.write({"round": run.round, "values": {}})

    def evaluation(self, run: LiveRun, scores: list[Score]) -> None:
        criterion = run.federation.goal.criterion
        models = run.curves().models
        self._values = {}
        for name, curve in models.items():
            if run.round in curve:
                self._values[name] = criterion.text(curve[run.round])

    def round(self, run: LiveRun, report: RoundReport) -> None:
        self.write({"round": run.round, "values": self._values})

    def ended(self, code: int, line: str) -> None:
        """The process ends with this exit code; `line` says what was wrong."""
        self.write({"code": code, "line": line})


class _WarningHandler(logging.Handler):
    """Writes each warning of the log as a `note`."""

    def __init__(self, writer: ProgressWriter) -> None:
        super().__init__(logging.WARNING)
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        self._writer.write({"note": record.getMessage()})


class ProgressReader:
    """Reads the lines of a `ProgressWriter`, each once."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._position = 0

    def news(self) -> list[dict[str, Any]]:
        """The lines since the last call: a `note`, a `round` with `values`, or at the end a `code` with a `line`."""
        if not self._file.exists():
            return []
        with self._file.open("rb") as file:
            file.seek(self._position)
            content = file.read()
        *lines, _ = content.split(b"\n")  # the last one may be half-written
        for line in lines:
            self._position += len(line) + 1
        return [dict(json.loads(line)) for line in lines]
