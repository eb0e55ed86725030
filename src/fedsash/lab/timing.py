"""A study of time: a simulated network without models."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from simpy import Environment

from ..evaluation import Evaluation, History, NetworkLoad
from ..network.chronicle import NetworkChronicle
from ..network.learning import Timing
from ..network.schedulers import Scheduler
from ..network.settings import Network
from ..network.simulated import begin
from ..network.site import Site
from ..runs.drawn import draw_timeline
from ..runs.folder import RunFolder, write_config
from ..runs.progress import Progress
from ..runs.records import Records
from ..runs.summaries import GOAL, goal_content, summarise
from ..settings.errors import check
from ..system import files
from ..system.machine import own_version
from ..tasks import Criterion


@dataclass
class TimeStudy:
    """The result of a study of time: its metrics, its summary, its time line, and its folder if it has one."""

    history: History
    summary: dict[str, Any]
    timeline: dict[str, Any]
    folder: Path | None
    interrupted: bool = False
    signal: int = 0


def simulate(
    network: Network,
    scheduler: Scheduler,
    learner: Timing,
    *,
    rounds: int,
    evaluation: Evaluation | None = None,
    seed: int = 0,
    out: Path | str | None = None,
    progress: bool = False,
    stepped: Callable[[int], object] | None = None,
    config: Mapping[str, Any] | None = None,
    again: bool = False,
) -> TimeStudy:
    """Simulate the time only: run the scheduler for `rounds` steps, or until the network's `seconds` are over.

    A study of time saves no state: to resume it would mean to replay it, which takes as long as a new study. With `out`
    it writes `goal.json`, `config.toml` (if `config` is given), `timeline.json`, `timeline.png`, `link.png`,
    `metrics.jsonl`, and finally `summary.json`. A study that is made `again` replaces the one in `out`. The metrics are
    the network's measures after the steps at which `evaluation` is due. `stepped` is called with the number of every
    step. The result depends on the arguments only.

    Raises `ValueError` if `out` holds a run already, or if another process works in it.
    """
    check(rounds >= 1, "rounds", rounds, "must be at least 1")
    evaluation = evaluation or Evaluation()
    folder = None if out is None else RunFolder(out)
    lock = nullcontext() if folder is None else folder.held()
    with lock:
        if folder is not None:
            if not again:
                folder.check_new()
            folder.clear()
        site = begin(Environment(), network, learner, rounds=rounds, seed=seed)
        process = scheduler.run(site)
        chronicle = NetworkChronicle(site)
        if folder is not None:
            _begin(folder.path, config, evaluation)
        began = time.perf_counter()
        site.env.process(process)
        history = _played(chronicle, rounds, evaluation, progress, stepped)
        seconds = time.perf_counter() - began
        summary = chronicle.summary(History(), Criterion())
        summary |= summarise(History(), evaluation, Criterion())
        summary["rounds"] = chronicle.site.version
        summary["seconds"] = seconds
        summary["versions"] = {"fedsash": own_version(), "simpy": version("simpy")}
        summary["seed"] = seed
        if folder is None:
            return TimeStudy(history, summary, chronicle.timeline(), None)
        study = TimeStudy(history, summary, chronicle.timeline(), folder.path)
        _write(folder.path, study)
        return study


def _played(
    chronicle: NetworkChronicle,
    rounds: int,
    evaluation: Evaluation,
    progress: bool,
    stepped: Callable[[int], object] | None,
) -> History:
    """Let time pass until the run is over; the measures on the way."""
    loads: list[NetworkLoad] = []
    with Progress(rounds, progress) as bar:

        def after(site: Site) -> None:
            if evaluation.due(site.version, rounds):
                loads.append(chronicle.load(site.version))
            bar.update(site.version)
            if stepped is not None:
                stepped(site.version)

        chronicle.site.stepped = after
        chronicle.site.advance(lambda: False)
    return History(loads)


def _begin(folder: Path, config: Mapping[str, Any] | None, evaluation: Evaluation) -> None:
    """Write what is known before the first step: the goal, and the settings."""
    folder.mkdir(parents=True, exist_ok=True)
    files.write_table(folder / GOAL, goal_content(Criterion(), evaluation))
    if config is not None:
        write_config(folder, config)


def _write(folder: Path, study: TimeStudy) -> None:
    """Write the results. The summary comes last: it says to a sweep that nothing is left to do."""
    files.write_table(folder / "timeline.json", study.timeline)
    draw_timeline(folder, study.timeline, study.history, study.history.curves(Criterion()))
    Records(folder).create(study.history)
    files.write_table(folder / "summary.json", study.summary)
