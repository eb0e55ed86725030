"""Beginning a run, and going on with one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .callback import Callback
from .driver import Driver
from .folder import RunFolder
from .forks import Fork
from .result import Result
from .running_sums import NEVER, RunningSums
from .session import Session
from .settings import USUAL, Checkpoint


def run(
    federation: Driver,
    rounds: int,
    *,
    out: Path | str | None = None,
    checkpoint: Checkpoint = USUAL,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
    config: Mapping[str, Any] | None = None,
    fork: Fork | None = None,
    until: int | None = None,
    trajectory: RunningSums = NEVER,
) -> Result:
    """Train for `rounds` rounds, with evaluations in between. Returns the models, their numbers and the last state.

    `federation` is a `Federation`, an `Asynchronous` scheduler around one, or another driver. `checkpoint` says when
    the state is saved. With `progress`, the terminal or the notebook shows how far the run is. `config` has the
    settings of an experiment file, which `config.toml` then holds; a run that was made in Python has none.

    With `out` the run keeps a folder: `config.toml` (what is known of the experiment), `engine.json` (the engine as
    resolved), `goal.json` (the metric that decides), `partition.json`, `metrics.jsonl`, `summary.json`, `curves.png`,
    `models/`, `state/`, `files.json`, which has the checksums of the models, and what only some runs have
    (docs/reference/run-folder.md has all). It can be resumed from this folder. `fork` starts from a saved state of
    another run. With `until`, the run stops after that round, as after Ctrl-C. With `trajectory`, it saves running sums
    of its models in `trajectory/`; this does not affect the training.

    `callbacks` are called at the moments of the run, and may stop it (see `Callback`). Ctrl-C, SIGTERM or SIGHUP let
    the run finish its round, save its state and return, with `Result.interrupted`. A second signal raises
    `KeyboardInterrupt` at once. Any exception, such as one of a callback, leaves the last complete state saved, and has
    a note that says how to resume.

    Raises `SettingError` for an argument that it can't have; `RunError` if `out` holds a run already or files of
    others, if another process works in it, or if the fork's state is missing, damaged or does not fit; `OSError` if it
    can't be written.
    """
    session = Session(federation, rounds, out, checkpoint, progress, callbacks, config, until, trajectory)
    return session.run(fork)


def resume(
    federation: Driver,
    rounds: int,
    out: Path | str,
    *,
    checkpoint: Checkpoint | None = None,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
    config: Mapping[str, Any] | None = None,
    until: int | None = None,
    trajectory: RunningSums | None = None,
) -> Result:
    """Go on with the run in `out` from its newest readable state until `rounds` rounds are done.

    The models are bitwise equal to those of a run that was never stopped. Settings that the federation's engine leaves
    open keep the values with which the run began; `checkpoint`, `trajectory` and `config`, where left out, are those of
    its last session. `rounds` may differ from before, but the evaluation after the former last round stays in the
    metrics. `progress`, `callbacks` (those of earlier sessions are forgotten) and `until` are as in `run`.

    Raises `SettingError` for an argument that it can't have; `RunError` if `out` holds no run, if another process works
    in it, if all its states are damaged, or if they are of another experiment; `OSError` if it can't be read or
    written.
    """
    folder = RunFolder(out)
    if checkpoint is None or trajectory is None:
        last_checkpoint, last_trajectory = folder.settings()
        checkpoint = checkpoint or last_checkpoint
        trajectory = trajectory or last_trajectory
    if config is None:
        last_config = folder.config()
        if last_config:
            config = last_config | {"checkpoint": asdict(checkpoint), "trajectory": asdict(trajectory)}
    session = Session(federation, rounds, out, checkpoint, progress, callbacks, config, until, trajectory)
    return session.resume()
