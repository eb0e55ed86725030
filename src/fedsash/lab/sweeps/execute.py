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
from .machines import Here, Machines
from .plan import Plan, Segment, plan
from .scheduling import SegmentScheduler, SweepReport, done, is_done


def execute(
    sweep: Sweep, out: Path | str, jobs: int | None = None, progress: bool = True, cluster: str | None = None
) -> SweepReport:
    """Train the runs of a sweep into `out/runs`. Rounds that runs share are trained once, into `out/shared`.

    Finished runs are not trained again, and stopped runs continue. `jobs` is the number of runs that are trained at the
    same time, each on its share of the cores. By default it is the number of cores, or 1 on a GPU. If a run fails, it
    is reported with all runs that continue it, and the other runs go on. After Ctrl-C every run finishes its round and
    saves its state. `out/sweep.json` lists the runs, and `out/logs` holds their output. Several processes may train
    other runs into the same folder; one waits for segments that another one trains at the moment. Runs that have had
    fewer rounds go on.

    With `cluster`, the address of a Ray cluster, or "local" for one that is started here, the runs are trained on all
    of its machines, each on one core. A run whose process or machine dies goes on in another one.

    Raises `ConfigError` if `out` holds another sweep, or a run of another experiment, or if the sweep does not fit the
    cluster; `SettingError` if the cluster can't be reached, and `LibraryError` without Ray.
    """
    check_count("jobs", jobs)
    out = Path(out)
    plan = planned(sweep, out)
    check_place(out, plan.segments)
    index.write(out, sweep, {})
    if len(done(plan.segments, out)) == len(plan.segments):
        cluster = None  # nothing is left to train: the cluster need not be reached
    machines = _machines(plan, out, jobs, cluster)
    with Progress(plan.to_train, progress) as bar:
        report = SegmentScheduler(out, plan, machines, bar).work()
    index.write(out, sweep, report.failed)
    return report


def planned(sweep: Sweep, out: Path) -> Plan:
    """The segments that train a sweep into `out`.

    A run that has begun there without the rounds that it would share goes on by itself: if it had fewer rounds, and
    shared others, or if the shared ones are lost or not trained yet.
    """
    whole = plan(sweep.runs)
    separate = _separate_runs(whole, out)
    segments = []
    for segment in whole.segments:
        if not segment.shared:
            if segment.runs[0] in separate:
                segment = replace(segment, first=0, parent=None)
            segments.append(segment)
            continue
        runs = tuple(name for name in segment.runs if name not in separate)
        if runs:
            segments.append(replace(segment, runs=runs))
    return replace(whole, segments=segments)


def _separate_runs(whole: Plan, out: Path) -> set[str]:
    """The runs that have begun in `out`, and whose shared rounds are not there."""
    done_before: dict[Segment, bool] = {}  # several runs continue the same segment: its files are read once
    separate = set()
    for segment in whole.segments:
        parent = segment.parent
        if segment.shared or parent is None or not RunFolder(out / segment.folder).begun:
            continue
        if parent not in done_before:
            done_before[parent] = is_done(parent, out)
        if not done_before[parent]:
            separate.add(segment.runs[0])
    return separate


def _machines(plan: Plan, out: Path, jobs: int | None, cluster: str | None) -> Machines:
    """Where the segments are trained."""
    if cluster is None:
        return Here(plan.segments, out, jobs)
    with library("ray", "a sweep over a cluster", "fedsash[cluster]"):
        from .on_ray import OnRay
    return OnRay(plan.segments, out, jobs, cluster)


def check_place(out: Path, segments: Iterable[Segment]) -> None:
    """Raise `RunError` if `out` is no folder for a sweep, and `ConfigError` if a segment's folder holds another one."""
    check_folder(out)
    if RunFolder(out).begun:
        raise RunError(f"{out} holds a run, and no sweep: choose another folder with --out")
    for segment in segments:
        check_same(segment.experiment, out / segment.folder, longer=True)


def check_same(experiment: Experiment, folder: Path, *, strictly: bool = True, longer: bool = False) -> None:
    """Raise `ConfigError`, which names what differs, if the folder holds another experiment.

    The engine may differ but for its precision, and, unless it is taken `strictly`, what changes no numbers. It may
    have more rounds than the folder's if it is `longer`, unless callbacks have seen the end of those.
    """
    if not (folder / "config.toml").exists():
        return
    saved = load_run(folder)
    saved = replace(saved, engine=replace(experiment.engine, precision=saved.engine.precision))
    if longer and saved.rounds < experiment.rounds and not saved.callbacks:
        saved = replace(saved, rounds=experiment.rounds)
    if saved == experiment:
        return
    wanted_settings = _settings(experiment, strictly)
    saved_settings = _settings(saved, strictly)
    if strictly or wanted_settings != saved_settings:
        what = "; ".join(differences(wanted_settings, saved_settings)) or "other keys"
        raise ConfigError(
            f"{folder} holds a run of another experiment: {what}. Choose another folder, or remove this one"
        )


def _settings(experiment: Experiment, strictly: bool) -> dict[str, str]:
    """The settings of an experiment in words; unless it is taken `strictly`, those that change numbers."""
    settings = {}
    for key, value in flat(experiment.table()):
        if strictly or changes_numbers(key):
            settings[key] = shown(value)
    return settings
