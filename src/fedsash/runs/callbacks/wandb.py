"""Weights & Biases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from ...evaluation import Score
from ...server.federation import Federation
from ...settings.errors import RunError, library, one_line
from .. import Callback, LiveRun, Result
from .rows import by_round, run_name

HEADER = 7
"""The bytes at the beginning of a file of W&B, and before each piece of a record: checksum, length and kind."""
BLOCK = 32768
"""A file is blocks of this length, as LevelDB's log: no header of a piece goes across the end of a block."""
WHOLE = 1
LAST = 4
"""The kinds of pieces with which a record ends."""


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

    _sent: int = field(default=0, init=False, repr=False, compare=False)
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

        name = run_name(self.run_name, run.folder) or None
        how: dict[str, Any] = {"id": run.id, "resume": "allow", "reinit": "create_new", "dir": run.folder}
        how["settings"] = wandb.Settings(quiet=True)
        self._logged = logged_steps(run.folder, run.id) if run.folder else set()
        with _refused():
            self._run = wandb.init(project=self.project, name=name, config=dict(run.config), **how)
        if run.resumed:
            self._run.config.update(dict(run.config), allow_val_change=True)  # such as more rounds
        self._sent = 0
        self._send(run)

    def evaluation(self, run: LiveRun, scores: list[Score]) -> None:
        self._send(run)

    def end(self, run: LiveRun, result: Result | None) -> None:
        self._send(run)
        self._run.finish(exit_code=int(result is None))

    def _send(self, run: LiveRun) -> None:
        new = run.history[self._sent :]
        self._sent = len(run.history)
        for index, values in by_round(new):
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


def logged_steps(folder: Path, id: str) -> set[int]:
    """The steps of the run `id` of W&B in the files of offline sessions below `folder`.

    The library of W&B has no reader of these files.
    """
    from google.protobuf.message import DecodeError

    messages: Any = import_module("wandb.proto.wandb_internal_pb2")
    steps = set()
    for file in sorted((folder / "wandb").glob(f"offline-run-*/run-{id}.wandb")):
        for content in records(file.read_bytes()):
            try:
                record = messages.Record.FromString(content)
            except DecodeError:  # a piece that a kill has left
                continue
            if record.HasField("history"):
                steps.add(int(record.history.step.num))
    return steps


def records(content: bytes) -> Iterator[bytes]:
    """The complete records in the content of a file of W&B."""
    at = HEADER
    record = b""
    while at + HEADER <= len(content):
        left = -at % BLOCK
        if 0 < left < HEADER:
            at += left
            continue
        length = int.from_bytes(content[at + 4 : at + 6], "little")
        kind = content[at + 6]
        end = at + HEADER + length
        if end > len(content):
            return
        record += content[at + HEADER : end]
        at = end
        if kind in (WHOLE, LAST):
            yield record
            record = b""
