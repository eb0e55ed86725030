"""Weights & Biases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...evaluation import Score
from ...federation import Federation
from ...settings.errors import RunError, library, one_line
from .. import Callback, LiveRun, Result
from .rows import Rows, by_round
from .wandb_files import logged_steps


@dataclass
class WandB(Callback, name="wandb"):
    """Sends all recorded numbers and the settings to Weights & Biases; with `WANDB_MODE=offline` to a folder.

    A number is called `MODEL/SPLIT/METRIC`, such as `wima/test/accuracy`, and its step is the round. The files of
    W&B lie in the run's folder, if there is one. A resumed run goes on in the same run of W&B, with the rounds that W&B
    does not have. Entity, key and address come from W&B's own settings: `wandb login`, `WANDB_ENTITY` and so on.
    """

    project: str = "fedsash"
    """the project of W&B in which the run lies"""
    run_name: str = ""
    """the run's name there; empty: that of its folder"""

    _rows: Rows = field(default_factory=Rows, init=False, repr=False, compare=False)
    _logged: set[int] = field(default_factory=set, init=False, repr=False, compare=False)
    _run: Any = field(default=None, init=False, repr=False, compare=False)

    def fits(self, federation: Federation) -> None:
        with library("wandb", "Weights & Biases", "fedsash[wandb]"):
            import wandb
        if wandb.setup().settings.mode not in ("offline", "dryrun", "disabled"):
            with _refused("; without one, set WANDB_MODE=offline"):
                wandb.login(verify=False)  # asks for the key if there is none

    def begin(self, run: LiveRun) -> None:
        import wandb

        name = self.run_name or (run.folder.resolve().name if run.folder else None)
        how: dict[str, Any] = {"id": run.id, "resume": "allow", "reinit": "create_new", "dir": run.folder}
        how["settings"] = wandb.Settings(quiet=True)
        self._logged = logged_steps(run.folder, run.id) if run.folder else set()
        with _refused():
            self._run = wandb.init(project=self.project, name=name, config=dict(run.config), **how)
        if run.resumed:
            self._run.config.update(dict(run.config), allow_val_change=True)  # such as more rounds
        self._rows = Rows()
        self._send(run)

    def evaluation(self, run: LiveRun, scores: list[Score]) -> None:
        self._send(run)

    def end(self, run: LiveRun, result: Result | None) -> None:
        self._send(run)
        self._run.finish(exit_code=int(result is None))

    def _send(self, run: LiveRun) -> None:
        for index, values in by_round(self._rows.new(run)):
            if index >= self._run.starting_step and index not in self._logged:
                self._run.log(values, step=index, commit=True)  # without it W&B keeps a step back until the next one


@contextmanager
def _refused(right: str = "") -> Iterator[None]:
    """Turn an error of W&B into one line."""
    import wandb

    try:
        yield
    except wandb.Error as error:
        raise RunError(f"Weights & Biases: {one_line(error)}{right}") from error
