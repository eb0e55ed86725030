"""The title of the page, and the line below it."""

from __future__ import annotations

from collections.abc import Sequence

from ....methods import METHODS
from ....network.schedulers import SCHEDULERS
from ..collect import CollectedRun, Collection

FEW = 3
"""So many runs are named in the title."""


def title(found: Collection) -> str:
    """The titles of the sweeps, and the names of runs of no sweep; without a sweep also what the runs are."""
    sweeps = [sweep.title for sweep in found.sweeps]
    folders = [sweep.folder for sweep in found.sweeps]
    names = [run.name for run in found.runs if not any(map(run.folder.is_relative_to, folders))]
    if len(names) > FEW:
        names = [f"{len(names)} runs"]
    if sweeps:
        return _listed(sweeps + names)
    return ": ".join(filter(None, [_trained(found.runs), _listed(names)]))


def subtitle(found: Collection) -> str:
    """How many runs there are, of how many rounds, and how many of them are not finished or failed."""
    runs = found.runs
    rounds = sorted({run.rounds for run in found.runs})
    span = f" of {' to '.join(map(str, dict.fromkeys([rounds[0], rounds[-1]])))} rounds" if rounds else ""
    failed = sum(len(sweep.failed) for sweep in found.sweeps)
    unfinished = sum(not run.finished for run in runs)
    parts = [f"{len(runs)} run{'' if len(runs) == 1 else 's'}{span}"]
    parts += [f"{unfinished} not finished"] if unfinished else []
    parts += [f"{failed} failed"] if failed else []
    return ", ".join(parts)


def _trained(runs: Sequence[CollectedRun]) -> str:
    """Method and data of the runs, such as "FedAvg on digits"; empty if they differ, or nobody knows them."""
    methods = {_method(run) for run in runs}
    data = {_name(run, "data") for run in runs}
    method, of = (found.pop() if len(found) == 1 else "" for found in (methods, data))
    return " on ".join(filter(None, [method, of]))


def _method(run: CollectedRun) -> str:
    """On a network the scheduler, unless it makes rounds of the method."""
    scheduler = _name(run, "scheduler")
    method = _name(run, "method")
    known: type | None = METHODS.get(method) if scheduler in ("", "synchronous") else SCHEDULERS.get(scheduler)
    return known.__name__ if known else method


def _name(run: CollectedRun, key: str) -> str:
    table = run.config.get(key)
    return str(table.get("name", "")) if isinstance(table, dict) else ""


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
