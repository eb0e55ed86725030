"""Training the runs of a sweep, here or on a cluster. A stopped sweep can continue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ...runs.folder import RunFolder
from ...runs.progress import Progress
from ...settings.errors import RunError, check_count, library
from ...settings.fingerprint import differences
from ...system.files import flat
from ...system.paths import check_folder
from ..config import ConfigError, Experiment, load_run
from ..config.experiment import changes_numbers
from ..config.words import shown
from . import index
from .axes import Sweep
from .foreman import Foreman, SweepReport, done, is_done
from .machines import Here, Machines
from .plan import Leg, Plan, plan


def execute(
    sweep: Sweep, out: Path | str, jobs: int | None = None, progress: bool = True, cluster: str | None = None
) -> SweepReport:
    """Train the runs of a sweep into `out/runs`. Rounds that runs share are trained once, into `out/shared`.

    Finished runs are not trained again, and stopped runs continue. `jobs` is the number of runs that are trained at the
    same time, each on its share of the cores. By default it is the number of cores, or 1 on a GPU. If a run fails, it
    is reported with all runs that continue it, and the other runs go on. After Ctrl-C every run finishes its round and
    saves its state. `out/sweep.json` lists the runs, and `out/logs` holds their output. Several processes may train
    other runs into the same folder; one waits for legs that another one trains at the moment. Runs that have had fewer
    rounds go on.

    With `cluster`, the address of a Ray cluster, or "local" for one that is started here, the runs are trained on all
    of its machines, each on one core. A run whose process or machine dies goes on in another one.

    Raises `ConfigError` if `out` holds another sweep, or a run of another experiment, or if the sweep does not fit the
    cluster; `SettingError` if the cluster can't be reached, and `LibraryError` without Ray.
    """
    check_count("jobs", jobs)
    out = Path(out)
    legs = planned(sweep, out)
    check_place(out, legs.legs)
    index.write(out, sweep, {})
    left = len(done(legs.legs, out)) < len(legs.legs)
    machines = _machines(legs, out, jobs, cluster if left else None)
    with Progress(legs.to_train, progress) as bar:
        executed = Foreman(out, legs, machines, bar).work()
    index.write(out, sweep, executed.failed)
    return executed


def planned(sweep: Sweep, out: Path) -> Plan:
    """The legs that train a sweep into `out`.

    A run that has begun there without the rounds that it would share goes on by itself: if it had fewer rounds, and
    shared others, or if the shared ones are lost or not trained yet.
    """
    whole = plan(sweep.runs)
    begun = [leg for leg in whole.legs if not leg.shared and leg.parent and RunFolder(out / leg.folder).begun]
    parents = {leg.parent for leg in begun if leg.parent}
    lost = {parent for parent in parents if not is_done(parent, out)}
    apart = {leg for leg in begun if leg.parent in lost}
    names = {leg.runs[0] for leg in apart}
    legs = [replace(leg, first=0, parent=None) if leg in apart else leg for leg in whole.legs]
    left = [replace(leg, runs=tuple(name for name in leg.runs if name not in names or not leg.shared)) for leg in legs]
    return replace(whole, legs=[leg for leg in left if leg.runs])


def _machines(legs: Plan, out: Path, jobs: int | None, cluster: str | None) -> Machines:
    """Where the legs are trained."""
    if cluster is None:
        return Here(legs.legs, out, jobs)
    with library("ray", "a sweep over a cluster", "fedsash[cluster]"):
        from .on_ray import OnRay
    return OnRay(legs.legs, out, jobs, cluster)


def check_place(out: Path, legs: Iterable[Leg]) -> None:
    """Raise `RunError` if `out` is no folder for a sweep, and `ConfigError` if a leg's folder holds another one."""
    check_folder(out)
    if RunFolder(out).begun:
        raise RunError(f"{out} holds a run, and no sweep: choose another folder with --out")
    for leg in legs:
        check_same(leg.experiment, out / leg.folder, longer=True)


def check_same(experiment: Experiment, folder: Path, *, strictly: bool = True, longer: bool = False) -> None:
    """Raise `ConfigError`, which names what differs, if the folder holds another experiment.

    The engine may differ but for its precision, and, unless it is taken `strictly`, what changes no numbers. It may
    have more rounds than the folder's if it is `longer`, unless callbacks have seen the end of those.
    """
    if not (folder / "config.toml").exists():
        return
    there = load_run(folder)
    there = replace(there, engine=replace(experiment.engine, precision=there.engine.precision))
    if longer and there.rounds < experiment.rounds and not there.callbacks:
        there = replace(there, rounds=experiment.rounds)
    here, other = (
        {key: shown(value) for key, value in flat(own.table()) if strictly or changes_numbers(key)}
        for own in (experiment, there)
    )
    if there != experiment and (strictly or here != other):
        what = "; ".join(differences(here, other)) or "other keys"
        raise ConfigError(
            f"{folder} holds a run of another experiment: {what}. Choose another folder, or remove this one"
        )
