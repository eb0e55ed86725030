"""What the process of a served run tells the command that follows it: lines of JSON in a file that both know."""

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


class Teller(Callback):
    """Tells of a run's rounds with each model's last value, of warnings in the log, and how the run ended.

    If nobody follows the run any more, its folder is gone, and nothing is told.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._values = dict[str, str]()
        logging.getLogger("fedsash").addHandler(_Notes(self))

    def tell(self, news: Mapping[str, Any]) -> None:
        """Write one line."""
        with suppress(FileNotFoundError), self._file.open("a") as file:
            file.write(json.dumps(news) + "\n")

    def begin(self, run: LiveRun) -> None:
        self.tell({"round": run.round, "values": {}})

    def evaluation(self, run: LiveRun, scores: list[Score]) -> None:
        criterion = run.federation.goal.criterion
        models = run.curves().models
        self._values = {name: criterion.text(own[run.round]) for name, own in models.items() if run.round in own}

    def round(self, run: LiveRun, report: RoundReport) -> None:
        self.tell({"round": run.round, "values": self._values})

    def ended(self, code: int, line: str) -> None:
        """The process ends with this exit code; `line` says what was wrong."""
        self.tell({"code": code, "line": line})


class _Notes(logging.Handler):
    def __init__(self, teller: Teller) -> None:
        super().__init__(logging.WARNING)
        self._teller = teller

    def emit(self, record: logging.LogRecord) -> None:
        self._teller.tell({"note": record.getMessage()})


class Listener:
    """Reads what was told since the last look."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._read = 0

    def news(self) -> list[dict[str, Any]]:
        """The new lines: a `note`, a `round` with `values`, or at the end a `code` with a `line`."""
        if not self._file.exists():
            return []
        with self._file.open("rb") as file:
            file.seek(self._read)
            lines = file.read().split(b"\n")[:-1]  # the last one may be half-written
        self._read += sum(len(line) + 1 for line in lines)
        return [dict(json.loads(line)) for line in lines]
