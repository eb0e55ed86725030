"""A run on a network: a scheduler at work on one site, its records, and its end."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from simpy import Environment

from ..checks import check
from ..evaluation import Evaluation
from ..records import Records, chosen, replace_file, summarise, write_json
from ..report import Progress, curves
from ..report import network as pictures
from .clients import Population
from .learning import Learner, Learning
from .links import Channel
from .schedulers import Scheduler
from .settings import Network
from .site import Site, Steps


@dataclass
class Result:
    """What a run came to: its metrics, its summary, who did what when, and its folder if it has one."""

    history: list[dict[str, Any]]
    summary: dict[str, Any]
    timeline: dict[str, Any]
    folder: Path | None


def begin(
    env: Environment, network: Network, learner: Learner, *, rounds: int, seed: int, up: Channel | None = None
) -> Site:
    """A site with its clients; without `up`, the link at work, it has the network's link to itself."""
    population = Population(network.clients, learner.samples, seed)
    return Site(env, network, population, learner, up or network.link.open(env), rounds)


def simulate(
    network: Network,
    scheduler: Scheduler,
    learner: Learner,
    *,
    rounds: int,
    evaluation: Evaluation | None = None,
    seed: int = 0,
    out: Path | str | None = None,
    progress: bool | Callable[[int], object] = False,
    config: Mapping[str, Any] | None = None,
) -> Result:
    """Let the scheduler work until `rounds` steps of the server are made, or the network's `seconds` are over.

    With `out` the run keeps a folder: `config.toml` (if `config` is given), `metrics.jsonl`, `summary.json`,
    `timeline.json`, `timeline.png`, `link.png`, and if there are models `curves.png`, `accuracy.png` and `models/`.
    `progress` shows a bar, or is told the number of every step. A run is a pure function of its arguments. Raises
    `ValueError` if `out` holds a run already.
    """
    evaluation = evaluation or Evaluation()
    check(rounds >= 1, "rounds", rounds, "must be at least 1")
    folder = None if out is None else Path(out)
    records = None if folder is None else Records(folder)
    if records is not None and records.path.exists():
        raise ValueError(f"{folder} holds a run already: choose another folder")
    site = begin(Environment(), network, learner, rounds=rounds, seed=seed)
    process = scheduler.run(site)
    history: list[dict[str, Any]] = []
    began = time.perf_counter()
    with Progress(rounds, progress is True) as bar:

        def stepped(site: Site) -> None:
            rows = _rows(site, evaluation)
            history.extend(rows)
            if records is not None and rows:
                records.append(rows)
            bar.update(site.version, {row["model"]: row["accuracy"] for row in rows if row["split"] == "test"})
            if callable(progress):
                progress(site.version)

        site.stepped = stepped
        if folder is not None and records is not None:
            _write_beginning(folder, records, config)
        play(site, process)
    summary = _summary(site, history, evaluation, seed, time.perf_counter() - began)
    result = Result(history, summary, site.log.timeline(site), folder)
    _write_end(result, learner, evaluation)
    return result


def play(site: Site, process: Steps) -> None:
    """Let events happen until the run is over; `process` is that of a scheduler, `scheduler.run(site)`."""
    env, network = site.env, site.network
    env.process(process)
    if network.seconds is not None:
        env.timeout(network.seconds).callbacks.append(lambda _: site.end("its time was over"))
    with _few_collections():
        while site.running and env.peek() < math.inf:
            env.step()
    if site.running:
        site.end("no client will ever be there again")


@contextmanager
def _few_collections() -> Iterator[None]:
    """Let the garbage collector look less often: it would spend most of a large run on clients that stay."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _rows(site: Site, evaluation: Evaluation) -> list[dict[str, Any]]:
    """The metrics after a step, if they are due: the network's, and those of the model and its averages."""
    if not evaluation.due(site.version, site.rounds):
        return []
    measures = site.log.measures(site)
    network = {"round": site.version, "model": "model", "split": "network"} | measures
    if site.network.gradients:
        network["gradient_norm"] = site.learner.gradient()
    when = {"time": measures["time"], "trips": measures["trips"]}
    return [network, *(metrics.row() | when for metrics in site.learner.evaluate())]


def _summary(
    site: Site, history: list[dict[str, Any]], evaluation: Evaluation, seed: int, seconds: float
) -> dict[str, Any]:
    return {
        "models": summarise(history, evaluation),
        "chosen": chosen(history, evaluation),
        "target": reached(history, evaluation.target),
        "rounds": site.version,
        "ended_early": site.why,
        "clients": site.size,
        "network": site.log.measures(site),
        "seconds": seconds,
        "versions": {"fedsash": version("fedsash"), "simpy": version("simpy")},
        "seed": seed,
    }


def reached(history: list[dict[str, Any]], target: float) -> dict[str, dict[str, Any]]:
    """By model the round, the time and the client trips of the first evaluation with that accuracy on the test set."""
    found: dict[str, dict[str, Any]] = {}
    for row in history:
        if row["split"] == "test" and row["accuracy"] >= target:
            found.setdefault(row["model"], {key: row[key] for key in ("round", "time", "trips")})
    return found


def _write_beginning(folder: Path, records: Records, config: Mapping[str, Any] | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        import tomli_w

        replace_file(folder / "config.toml", tomli_w.dumps(config).encode())
    records.create([])


def _write_end(result: Result, learner: Learner, evaluation: Evaluation) -> None:
    folder = result.folder
    if folder is None:
        return
    write_json(folder / "summary.json", result.summary)
    write_json(folder / "timeline.json", result.timeline)
    pictures.timeline(result.timeline, folder / "timeline.png")
    pictures.link(result.timeline, folder / "link.png")
    if not isinstance(learner, Learning):
        return
    if any(row["split"] == "test" for row in result.history):
        curves(result.history, folder / "curves.png", target=evaluation.target)
        pictures.accuracy(result.history, folder / "accuracy.png", evaluation.target)
    (folder / "models").mkdir(exist_ok=True)
    for name, w in learner.federation.models(learner.state).items():
        replace_file(folder / "models" / f"{name}.safetensors", learner.federation.export(w))
