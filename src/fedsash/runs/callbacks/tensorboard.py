"""TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...evaluation import Score
from ...server.federation import Federation
from ...settings.errors import check, library
from .. import Callback, LiveRun, Result
from .rows import numbers


@dataclass
class TensorBoard(Callback, name="tensorboard"):
    """Writes all recorded numbers for TensorBoard, into the folder `tensorboard` of the run.

    Each model is a TensorBoard run of its own, so the curves of all models appear in the same charts: `test/loss`,
    `test/accuracy` and so on. A resumed run overwrites what is there from its first round on. Show it with
    `tensorboard --logdir RUN/tensorboard`.
    """

    _written: int = field(default=0, init=False, repr=False, compare=False)
    _writers: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def fits(self, federation: Federation) -> None:
        with library("tensorboard", "TensorBoard's curves", "fedsash[tensorboard]"):
            import torch.utils.tensorboard  # noqa: F401

    def begin(self, run: LiveRun) -> None:
        check(run.folder is not None, "out", None, "must be a folder: TensorBoard's files lie in it")
        assert run.folder is not None
        self._writers = {}
        known = run.resumed and (run.folder / "tensorboard").exists()
        self._written = len(run.history) if known else 0
        self._write(run)

    def evaluation(self, run: LiveRun, scores: list[Score]) -> None:
        self._write(run)

    def end(self, run: LiveRun, result: Result | None) -> None:
        self._write(run)
        for writer in self._writers.values():
            writer.close()

    def _write(self, run: LiveRun) -> None:
        new = run.history[self._written :]
        self._written = len(run.history)
        for row in new.rows():
            writer = self._writer(run, row)
            for name, value in numbers(row).items():
                writer.add_scalar(f"{row['split']}/{name}", value, row["round"])
        for writer in self._writers.values():
            writer.flush()

    def _writer(self, run: LiveRun, row: Mapping[str, Any]) -> Any:
        from torch.utils.tensorboard import SummaryWriter

        model = row["model"]
        if model not in self._writers:
            assert run.folder is not None
            self._writers[model] = SummaryWriter(str(run.folder / "tensorboard" / model), purge_step=row["round"])
        return self._writers[model]
