"""A process that trains legs of a sweep.

It reads a line of JSON from standard input for each leg. It writes a line of JSON to standard output after every round
and at the end of a leg. The process ends if nobody reads its output, so no process survives a killed sweep.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ...basics.errors import FedsashError, one_line
from ...basics.lock import POLL, InUseError
from ...exchange import RoundReport
from ...executors import Engine, LocalEngine
from .. import runs
from ..config import Experiment, NetworkExperiment, parse
from ..runs import Callback, Fork, LiveRun, Result
from ..runs.folder import RunFolder, with_engine
from ..runs.timing import TimeStudy


def main() -> None:
    """Train one leg after another: `experiment`, `folder`, `fork` (folder, round, names) or null, `until`, `cores`.

    The experiments may name code of one's own. They come from the sweep itself, which has been allowed to use it.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it comes from the sweep, which may ignore it itself
    for line in sys.stdin:
        job = json.loads(line)
        _keep_to(job["cores"])
        try:
            experiment, folder = parse(job["experiment"], own_code=True), Path(job["folder"])
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


class Tell(Callback):
    """Tells the sweep the number of every finished round."""

    def round(self, run: LiveRun, report: RoundReport) -> None:
        tell({"round": run.round})


def simulate(experiment: NetworkExperiment, folder: Path) -> dict[str, Any]:
    """Begin or resume the run in `folder` and return its result. It is finished if its simulated time is over."""

    def go() -> Result | TimeStudy:
        begun = RunFolder(folder).begun
        if experiment.stateless:
            return experiment.study(folder, stepped=lambda round: tell({"round": round}), again=begun)
        return (experiment.resume if begun else experiment.run)(folder, callbacks=[Tell()])

    return _told(experiment.rounds, _when_free(go))


def train(experiment: Experiment, folder: Path, fork: Mapping[str, Any] | None, until: int) -> dict[str, Any]:
    """Begin or resume the run in `folder` up to the round `until`, and return its result."""
    origin = None if fork is None else Fork(**fork)
    experiment = replace(experiment, engine=_engine(experiment.engine, origin))
    driver = experiment.driver()
    settings = experiment.settings(driver)
    settings |= {"callbacks": [*settings["callbacks"], Tell()], "progress": False, "until": until}

    def go() -> Result:
        if RunFolder(folder).begun:
            return runs.resume(driver, experiment.rounds, folder, **settings)
        return runs.run(driver, experiment.rounds, out=folder, fork=origin, **settings)

    return _told(until, _when_free(go))


def _told(last: int, result: Result | TimeStudy) -> dict[str, Any]:
    """The end of a leg. A run that has ended early has reached its `last` round, too: nothing is left to train."""
    reached = last if result.summary["ended_early"] else result.summary["rounds"]
    why = signal.Signals(result.signal).name if result.signal else ""
    shown = {key: result.summary[key] for key in ("metric", "models", "rounds", "ended_early")}
    return {"reached": reached, "summary": shown, "error": f"stopped by {why}" if why else ""}


def _when_free(go: Callable[[], Any]) -> Any:
    """Train a leg. If another sweep trains it at the moment, wait until that one has finished or stopped."""
    told = False
    while True:
        try:
            return go()
        except InUseError as error:
            if not told:
                tell({"note": f"waiting: {one_line(error)}"})
            told = True
            time.sleep(POLL)


def tell(message: Mapping[str, Any]) -> None:
    """Tell the sweep."""
    print(json.dumps(message), flush=True)


def _engine(engine: Engine, origin: Fork | None) -> Engine:
    """The engine of the leg before, so that the numbers stay the same, with at most as many processes as cores.

    Each process has one thread: the number of threads could change the numbers, the number of processes cannot.
    """
    if not isinstance(engine, LocalEngine):
        return engine
    engine = replace(engine, threads=1) if engine.threads == "auto" else engine
    if origin is None or engine.resolved:
        return engine
    began = with_engine(Path(origin.folder), LocalEngine(pieces=engine.pieces).settled)
    assert isinstance(began, LocalEngine)
    return replace(began, workers=min(int(began.workers), torch.get_num_threads())) if began.resolved else engine


def _keep_to(cores: list[int]) -> None:
    """Use only these cores."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(len(cores))


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {one_line(error)}", file=sys.stderr)  # the sweep shows the last line
        sys.exit(1)
