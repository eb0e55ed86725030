"""A study of time: a simulated network without models."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from simpy import Environment

from ...basics.errors import check
from ...evaluation import Curves, Evaluation
from ...network.chronicle import NetworkChronicle
from ...network.events import begin, play
from ...network.learning import Timing
from ...network.schedulers import Scheduler
from ...network.settings import Network
from ...network.site import Site
from ...tasks import Criterion
from .. import files
from ..progress import Progress
from ..records import Records
from ..summaries import summarise
from .folder import RunFolder, config_files
from .pictures import draw_timeline


@dataclass
class TimeStudy:
    """The result of a study of time: its metrics, its summary, its time line, and its folder if it has one."""

    history: list[dict[str, Any]]
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
    it writes `config.toml` (if `config` is given), `summary.json`, `timeline.json`, `timeline.png`, `link.png`, and
    finally `metrics.jsonl`. A study that is made `again` replaces the one in `out`. The metrics are the network's
    measures after the steps at which `evaluation` is due. `stepped` is called with the number of every step. The result
    depends on the arguments only.

    Raises `ValueError` if `out` holds a run already, or if another process works in it.
    """
    check(rounds >= 1, "rounds", rounds, "must be at least 1")
    evaluation = evaluation or Evaluation()
    if out is None:
        return _simulate(network, scheduler, learner, rounds, evaluation, seed, None, progress, stepped, config)
    folder = RunFolder(out)
    with folder.held():
        if not again:
            folder.check_new()
        folder.clear()
        return _simulate(network, scheduler, learner, rounds, evaluation, seed, folder.path, progress, stepped, config)


def _simulate(
    network: Network,
    scheduler: Scheduler,
    learner: Timing,
    rounds: int,
    evaluation: Evaluation,
    seed: int,
    folder: Path | None,
    progress: bool,
    stepped: Callable[[int], object] | None,
    config: Mapping[str, Any] | None,
) -> TimeStudy:
    """Simulate, and write into the folder, which is held."""
    site = begin(Environment(), network, learner, rounds=rounds, seed=seed)
    process, chronicle = scheduler.run(site), NetworkChronicle(site)
    history: list[dict[str, Any]] = []
    began = time.perf_counter()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        if config is not None:
            files.write(folder, config_files(folder, config).items())
    with Progress(rounds, progress) as bar:

        def after(site: Site) -> None:
            if evaluation.due(site.version, rounds):
                history.append(chronicle.measures(site.version))
            bar.update(site.version)
            if stepped is not None:
                stepped(site.version)

        site.stepped = after
        play(site, process)
    summary = (
        chronicle.summary([], Criterion())
        | summarise([], evaluation, Criterion())
        | {
            "rounds": site.version,
            "seconds": time.perf_counter() - began,
            "versions": {"fedsash": version("fedsash"), "simpy": version("simpy")},
            "seed": seed,
        }
    )
    if folder is not None:
        found = {"summary.json": summary, "timeline.json": chronicle.timeline()}
        files.write(folder, ((name, files.json_of(content)) for name, content in found.items()))
        draw_timeline(folder, found["timeline.json"], history, Curves.of([], Criterion()))
        Records(folder).create(history)
    return TimeStudy(history, summary, chronicle.timeline(), folder)
