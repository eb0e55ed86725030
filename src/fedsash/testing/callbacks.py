"""Identities of callbacks."""

from __future__ import annotations

import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..averages import Window
from ..evaluation import Evaluation
from ..methods import Scaffold
from ..methods.server_optimisers import ServerSGD
from ..runs import Callback, Result, resume, run
from .equality import expect, identical, in_one_sentence
from .worlds import small_federation

ROUNDS = 6
HALF = 3


def check_callback(callback: Callback, **settings: Any) -> None:
    """Check that a callback keeps the identities of every callback in `CALLBACKS`, over six rounds.

    - It only observes: up to the round in which it stops the run, models, states and metrics are bitwise those of a run
      without it.
    - A run that is interrupted after three rounds and resumed, with another copy of the callback, ends bitwise as the
      run without a stop, in the same round and for the same reason.

    The small federation has the average `w`, a method and a server that remember something, is evaluated after every
    round, and has held-out samples. `settings` are more settings of a `Federation`. Raises `AssertionError` that names
    the identity.
    """
    with in_one_sentence(type(callback).__name__), TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        plain = Path(folder) / "plain"
        stopped = Path(folder) / "stopped"
        # A copy for each run: nothing that one remembers helps another.
        for_whole, for_first_half, for_second_half = _copies(callback)
        result = _run(whole, [for_whole], settings)
        result_of_plain = _run(plain, [], settings, until=result.state.round)
        is_same = identical(whole, plain) and result.summary["models"] == result_of_plain.summary["models"]
        expect(is_same, callback, "it must only observe: the run must be the same without it")
        _run(stopped, [for_first_half], settings, until=HALF)
        result_of_resumed = _resume(stopped, for_second_half, settings)
        is_same = _outcome(result) == _outcome(result_of_resumed) and identical(whole, stopped)
        expect(is_same, callback, "a resumed run must end as the one without a stop")


def _copies(callback: Callback) -> list[Callback]:
    with in_one_sentence(type(callback).__name__, "it must be possible to copy it"):
        return [copy.deepcopy(callback) for _ in range(3)]


def _outcome(result: Result) -> dict[str, Any]:
    """What the summary says of the training, and not of its time."""
    return {name: result.summary[name] for name in ("ended_early", "models")}


def _federation(settings: dict[str, Any]) -> Any:
    defaults: dict[str, Any] = {
        "method": Scaffold(),
        "server": ServerSGD(lr=0.5, momentum=0.9),
        "averages": {"w": Window(2)},
        "evaluation": Evaluation(every=1, last=1, held_out=0.3),
    }
    return small_federation(**defaults | settings)


def _run(out: Path, callbacks: list[Callback], settings: dict[str, Any], until: int | None = None) -> Result:
    return run(_federation(settings), ROUNDS, out=out, progress=False, callbacks=callbacks, until=until)


def _resume(out: Path, callback: Callback, settings: dict[str, Any]) -> Result:
    return resume(_federation(settings), ROUNDS, out, progress=False, callbacks=[callback])
