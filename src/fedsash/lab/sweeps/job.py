"""A process that trains legs of a sweep: a line of JSON on standard input says what to train, one on standard output
tells every round, and how it ended.

The process ends when nobody reads what it tells, so that a sweep that was killed leaves nobody at work.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ...basics.errors import FedsashError, one_line
from ...executors import Engine, LocalEngine
from .. import runs
from ..config import Experiment, NetworkExperiment, parse
from ..records import TensorBoard
from ..runs import Fork


def main() -> None:
    """Train one leg after another: `experiment`, `folder`, `fork` (folder, round, names) or null, `until`, `cores`."""
    for line in sys.stdin:
        job = json.loads(line)
        _keep_to(job["cores"])
        try:
            experiment, folder = parse(job["experiment"]), Path(job["folder"])
            if isinstance(experiment, NetworkExperiment):
                ended = simulate(experiment, folder)
            else:
                ended = train(experiment, folder, job["fork"], job["until"])
        except (FedsashError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            tell({"reached": None, "error": one_line(error)})
        else:
            tell(ended)


def simulate(experiment: NetworkExperiment, folder: Path) -> dict[str, Any]:
    """Begin or resume the run in `folder`, and what it came to; one whose time was over has reached its end."""
    go = experiment.resume if (folder / "metrics.jsonl").exists() else experiment.run
    with _boards(experiment, folder) as boards:
        result = go(folder, progress=lambda round: tell({"round": round}), callbacks=boards)
    reached = result.summary["rounds"] if result.interrupted else experiment.rounds
    return {"reached": reached, "models": result.summary["models"]}


def train(experiment: Experiment, folder: Path, fork: Mapping[str, Any] | None, until: int) -> dict[str, Any]:
    """Begin or resume the run in `folder`, up to the round `until`, and what it came to."""
    origin = None if fork is None else Fork(**fork)
    experiment = replace(experiment, engine=_engine(experiment.engine, origin))
    federation, begun = experiment.federation(), (folder / "metrics.jsonl").exists()
    with _boards(experiment, folder) as boards:
        settings: dict[str, Any] = {
            "checkpoint": experiment.checkpoint,
            "trajectory": experiment.trajectory,
            "progress": lambda round: tell({"round": round}),
            "callbacks": boards,
            "config": experiment.table(),
            "until": until,
        }
        if begun:
            result = runs.resume(federation, experiment.rounds, folder, **settings)
        else:
            result = runs.run(federation, experiment.rounds, out=folder, fork=origin, **settings)
    return {"reached": result.state.round, "models": result.summary["models"]}


@contextmanager
def _boards(experiment: Experiment, folder: Path) -> Iterator[list[TensorBoard]]:
    """The callbacks that the experiment asks for."""
    if not experiment.records.tensorboard:
        yield []
        return
    with closing(TensorBoard(folder / "tensorboard")) as board:
        yield [board]


def tell(message: Mapping[str, Any]) -> None:
    """Tell the sweep."""
    print(json.dumps(message), flush=True)


def _engine(engine: Engine, origin: Fork | None) -> Engine:
    """The engine of the leg before, so that its numbers go on, in no more processes than there are cores here.

    With one thread a process, since the number of threads could change the numbers, which that of processes can't.
    """
    if not isinstance(engine, LocalEngine):
        return engine
    engine = replace(engine, threads=1) if engine.threads == "auto" else engine
    if origin is None or engine.resolved:
        return engine
    began = LocalEngine(**json.loads((Path(origin.folder) / "engine.json").read_text()))
    return replace(began, workers=min(int(began.workers), torch.get_num_threads())) if began.resolved else engine


def _keep_to(cores: list[int]) -> None:
    """Stay on these cores."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(len(cores))


if __name__ == "__main__":
    main()
