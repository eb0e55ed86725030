"""Runs that every kind of average observes, and what must not differ between two of them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedsash import EMA, SWA, Checkpoint, Evaluation, Federation, Window, resume, run
from fedsash.averages import Average
from fedsash.evaluation import Score
from fedsash.runs import Callback, LiveRun
from fedsash.tasks import Classification
from fedsash.testing import small_data
from fedsash.vector.saved import saved_rounds
from support.worlds import federation

EVERY = Evaluation(every=1, last=1, best_on="test")
AVERAGES: dict[str, Average] = {
    "window": Window(3, storage="disk"),
    "lawa": Window(2, every=2, storage="host"),
    "classifier": Window(2, part="classifier"),
    "ema": EMA(0.6),
    "zero": EMA(0.9, start="zero"),
    "swa": SWA(2, cycle=2),
}


def observed(**settings: Any) -> Federation:
    """A federation with every kind of average, evaluated after every round."""
    return federation(**{"averages": AVERAGES, "evaluation": EVERY} | settings)


def start(world: Federation, rounds: int, out: Path, every: int = 50, **settings: Any) -> Any:
    return run(world, rounds, out=out, checkpoint=Checkpoint(every), progress=False, **settings)


def go_on(world: Federation, rounds: int, out: Path, every: int = 50, **settings: Any) -> Any:
    return resume(world, rounds, out, checkpoint=Checkpoint(every), progress=False, **settings)


def final(folder: Path) -> dict[str, bytes]:
    """The bytes in which a run that was stopped must not differ from one that was not."""
    last = folder / "state" / f"{saved_rounds(folder / 'state')[-1]:08d}"
    files = [*(folder / "models").iterdir(), *last.glob("*.safetensors"), folder / "metrics.jsonl"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


class Crash(Exception):
    """What stops a run at a chosen round without any of its own doing."""


class Evaluated(Callback):
    """Calls a function of `(round, metrics)` after every evaluation."""

    def __init__(self, heard: Callable[[int, list[Score]], object]) -> None:
        self.heard = heard

    def evaluation(self, run: LiveRun, metrics: list[Score]) -> None:
        self.heard(run.round, metrics)


def crash_at(round: int) -> Evaluated:
    def crash(now: int, metrics: list[Score]) -> None:
        if now == round:
            raise Crash

    return Evaluated(crash)


def failing(
    owner: type, name: str, at: int, when: str, patch: pytest.MonkeyPatch, error: BaseException | None = None
) -> None:
    """Let a method raise in its call number `at`, before or after its work."""
    work: Callable[..., Any] = getattr(owner, name)
    calls = count(1)

    def fail(*given: Any, **named: Any) -> Any:
        now = next(calls) == at
        if now and when == "before":
            raise error or Crash()
        result = work(*given, **named)
        if now:
            raise error or Crash()
        return result

    patch.setattr(owner, name, fail)


PRESS = {"at": 0, "taken": 0}
"""In which local step somebody presses Ctrl-C, and how many were taken."""


def pressing(output: Tensor, y: Tensor) -> Tensor:
    """The cross-entropy, in whose given local step somebody presses Ctrl-C."""
    if torch.is_grad_enabled():
        PRESS["taken"] += 1
        if PRESS["taken"] == PRESS["at"]:
            os.kill(os.getpid(), signal.SIGINT)
    return F.cross_entropy(output, y, reduction="none")


def interrupting(world_of: Callable[..., Federation], step: int, **settings: Any) -> Federation:
    """A federation in whose given local step somebody presses Ctrl-C; in none, if it is 0."""
    PRESS["at"] = 0
    classified = replace(small_data(), task=Classification())  # a loss alone does not say what is right
    world = world_of(loss=pressing, **{"data": classified} | settings)
    PRESS.update(at=step, taken=0)  # the loss has been tried out by now
    return world
