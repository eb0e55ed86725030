"""A run: rounds one after another, with its records, its saved states and its end, in a folder of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .driver import Driver
from .result import BestRound, ModelResult, Result, UnknownModelError
from .running_sums import NEVER, RunningSums
from .session import Session
from .settings import USUAL, Callback, Checkpoint, Fork, Watch

__all__ = [
    "BestRound",
    "Callback",
    "Checkpoint",
    "Driver",
    "Fork",
    "ModelResult",
    "Result",
    "RunningSums",
    "UnknownModelError",
    "Watch",
    "resume",
    "run",
]


def run(
    federation: Driver,
    rounds: int,
    *,
    out: Path | str | None = None,
    checkpoint: Checkpoint = USUAL,
    progress: bool | Watch = True,
    callbacks: Sequence[Callback] = (),
    config: Mapping[str, Any] | None = None,
    fork: Fork | None = None,
    until: int | None = None,
    trajectory: RunningSums = NEVER,
) -> Result:
    """Train for `rounds` rounds and evaluate on the way.

    With `out` the run keeps a folder: `config.toml` (if `config` is given), `engine.json` (the engine as resolved),
    `partition.json`, `metrics.jsonl`, `summary.json`, `curves.png`, `models/` and `state/`; it can be resumed from
    there. `fork` starts from a state of another run. With `until` the run stops after that round as it would on Ctrl-C.
    With `trajectory` it keeps running sums of its models, in `trajectory/`; they change nothing else.
    `progress` shows a bar, or is told the number of every finished round.

    Raises `ValueError` if `out` holds a run already, or if the fork's state is missing, damaged or does not fit.
    """
    session = Session(federation, rounds, out, checkpoint, progress, callbacks, config, until, trajectory)
    return session.train(session.begin(fork))


def resume(
    federation: Driver,
    rounds: int,
    out: Path | str,
    *,
    checkpoint: Checkpoint = USUAL,
    progress: bool | Watch = True,
    callbacks: Sequence[Callback] = (),
    config: Mapping[str, Any] | None = None,
    until: int | None = None,
    trajectory: RunningSums = NEVER,
) -> Result:
    """Go on with the run in `out` from its newest readable state until `rounds` rounds are done.

    The models are bitwise those of a run that was never stopped; what the federation's engine leaves open is as the run
    began. `rounds` may differ from before, but evaluations of what were to be the last rounds stay in the metrics.

    Raises `ValueError` if `out` holds no run, if all its states are damaged, or if they are of another experiment.
    """
    session = Session(federation, rounds, out, checkpoint, progress, callbacks, config, until, trajectory)
    return session.train(session.reopen())
