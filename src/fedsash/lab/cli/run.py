"""`fedsash run`, `fedsash resume` and `fedsash network`: one experiment is trained."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from ...runs import terminal
from ...system.paths import check_folder
from .arguments import Parser, add_options
from .common import RUNS, check_out, exit_code, load_experiment, report_stop

if TYPE_CHECKING:  # a command imports the heavy modules that it needs itself, so that --help is fast
    from rich.table import Table

    from ...runs import Result
    from ..config import Experiment
    from ..timing import TimeStudy


def add_run(parser: Parser) -> None:
    """Add the arguments of `fedsash run`."""
    parser.epilog = RUN
    parser.set_defaults(command=_run)
    line = "experiment file (TOML); an empty file trains on digits"
    parser.add_argument("experiment", type=Path, nargs="?", help=line)
    add_options(parser, "--out", "--set", "--own-code", "--federation")
    parser.add_argument("--seed", type=int, help="the same as --set seed=SEED")
    parser.add_argument("--rounds", type=int, help="the same as --set rounds=ROUNDS")
    add_options(parser, "--fork", "--stop-after", "--no-progress", "--json")


def add_resume(parser: Parser) -> None:
    """Add the arguments of `fedsash resume`."""
    parser.epilog = RESUME
    parser.set_defaults(command=_resume)
    parser.add_argument("out", type=Path, metavar="run", help="the run's folder")
    parser.add_argument("--rounds", type=int, help="train until this round (counted from the run's beginning)")
    add_options(parser, "--set", "--own-code", "--federation", "--stop-after", "--no-progress", "--json")


def add_network(parser: Parser) -> None:
    """Add the arguments of `fedsash network`."""
    parser.epilog = NETWORK
    parser.set_defaults(command=_network)
    parser.add_argument("experiment", type=Path, help="experiment file (TOML) with the tables network and scheduler")
    add_options(parser, "--out", "--set", "--own-code", "--stop-after", "--no-progress", "--json")


def _run(args: Namespace) -> int:
    from ... import runs
    from ..config import ConfigError, NetworkExperiment

    overrides = []
    if args.seed is not None:
        overrides.append(f"seed={args.seed}")
    if args.rounds is not None:
        overrides.append(f"rounds={args.rounds}")
    experiment = load_experiment(args, overrides)
    if isinstance(experiment, NetworkExperiment):
        reason = "this experiment has [network] or [scheduler]: start it with fedsash network"
        raise ConfigError(reason, file=str(args.experiment))
    fork = None if args.fork is None else runs.Fork(*args.fork)
    with _new_folder(args):
        check_out(args.out, new=True)
        return _train(args, experiment, args.experiment or args.federation, partial(runs.run, fork=fork))


def _resume(args: Namespace) -> int:
    from ... import runs
    from ...runs.folder import RunFolder
    from ..config import ConfigError, OwnExperiment, load_run

    check_out(args.out, new=False)
    overrides = list(args.set)
    if args.rounds is not None:
        overrides.append(f"rounds={args.rounds}")
    file = args.out / "config.toml"
    experiment = load_run(args.out, overrides, args.own_code, args.federation)
    if not isinstance(experiment, OwnExperiment):
        RunFolder(args.out).check_here()
    if experiment.stateless:
        return _study(args, experiment, file, again=True)
    try:
        return _train(args, experiment, file, runs.resume)
    except ConfigError as error:
        if error.key == "data.path":
            command = shlex.join(["fedsash", "resume", str(args.out), "--set", "data.path=NEW"])
            error.add_note(f"if the data moved: {command}")
        raise


def _network(args: Namespace) -> int:
    from ... import runs
    from ..config import ConfigError, NetworkExperiment, load

    experiment = load(args.experiment, args.set, args.own_code)
    if not isinstance(experiment, NetworkExperiment):
        reason = "this experiment has neither [network] nor [scheduler]: start it with fedsash run"
        raise ConfigError(reason, file=str(args.experiment))
    with _new_folder(args):
        check_out(args.out, new=True)
        if experiment.stateless:
            return _study(args, experiment, args.experiment)
        return _train(args, experiment, args.experiment, runs.run)


@contextmanager
def _new_folder(args: Namespace) -> Iterator[None]:
    """Give a command without `--out` a new folder, called after its experiment, and say which.

    It is `runs/NAME`, or `runs/NAME-2` and so on if that is there. It is made at once, so that commands that begin at
    the same time have different ones. If nothing was written into it, it is removed again.
    """
    if args.out is not None:
        yield
        return
    if args.experiment is not None:
        out = _make_folder(args.experiment.stem)
    else:
        out = _make_folder(args.federation.replace(":", "-").replace(".", "-"))
    args.out = out
    if args.progress:
        terminal.say(f"folder: {out}")
    try:
        yield
    finally:
        with suppress(OSError):  # it is not empty
            out.rmdir()


def _make_folder(name: str) -> Path:
    """Make the first folder of that name, or of one with a number, that is not there yet."""
    check_folder(RUNS)  # else a link to nothing looks like a name that is taken, and so does every other name
    for number in count(1):
        folder = RUNS / name
        if number > 1:
            folder = RUNS / f"{name}-{number}"
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            break
    return folder


def _train(args: Namespace, experiment: Experiment, file: Path | str, train: Callable[..., Result]) -> int:
    """Train an experiment, and print its results: the tables of its models, and what became of its network."""
    from ...runs.table import tables
    from ..config import NetworkExperiment
    from ..config.errors import prefixed

    with prefixed(file):
        driver = experiment.driver()
        settings = experiment.settings(driver)
    result = train(driver, experiment.rounds, out=args.out, progress=args.progress, **settings)
    if isinstance(experiment, NetworkExperiment):
        lines = _network_lines(result)
    else:
        pictures = " and the picture of the curves" if (args.out / "curves.png").exists() else ""
        lines = [f"metrics, models{pictures}: {result.folder}"]
    return _end(args, result, tables(result.summary), lines)


def _study(args: Namespace, experiment: Experiment, file: Path, again: bool = False) -> int:
    """Simulate the time of a network without models, and print what it took."""
    from ..config import NetworkExperiment
    from ..config.errors import prefixed

    assert isinstance(experiment, NetworkExperiment)
    with prefixed(file):
        study = experiment.study(args.out, progress=args.progress, again=again)
    return _end(args, study, [], _network_lines(study))


def _end(args: Namespace, result: Result | TimeStudy, tables: Iterable[Table], lines: Iterable[str]) -> int:
    """Print the tables of a run, and the lines that describe it, unless a signal has stopped it.

    Returns the exit code. With --json the answer is the run's summary, where it is, and whether rounds are left.
    """
    args.answer = {"folder": str(result.folder), "interrupted": result.interrupted, **result.summary}
    if result.interrupted:
        return report_stop(args, result.signal)
    for place, table in enumerate(tables):
        if place > 0 or args.progress:
            terminal.say()
        terminal.show(table)
    terminal.say()
    for line in lines:
        terminal.say(line)
    return exit_code(result.summary)


def _network_lines(result: Result | TimeStudy) -> list[str]:
    """The network's results, one per line."""
    from ...runs.summaries import metric_of

    summary = result.summary
    network = summary["network"]
    lines = [
        f"{summary['rounds']} rounds of {summary['clients']} clients in {network['time']:,.1f} simulated seconds",
        f"{network['trips']:,} client trips, {network['arrived']:,} arrived, staleness {network['staleness']:.2f}",
        f"{network['failed_uploads']:,} failed uploads, waiting {network['waiting']:.3g} s a trip",
        f"link in use {100 * network['link_use']:.0f} %",
    ]
    if summary["ended_early"] and not summary["models"]:  # else it stands below the table
        lines.append(f"ended early: {summary['ended_early']}")
    criterion = metric_of(summary)
    target = "" if criterion.target is None else criterion.plain(criterion.target)
    for model, cost in summary["target"].items():
        lines.append(f"{model} at {target}: {cost['trips']:,} trips, {cost['time']:,.1f} s")
    return [*lines, "", f"metrics, time line and pictures: {result.folder}"]


RUN = """\
examples:
  fedsash run experiment.toml                           into runs/experiment, or runs/experiment-2 if that is there
  fedsash run experiment.toml --out runs/b --seed 1 --set local.lr=0.05 --set method.name=scaffold
  fedsash run experiment.toml --out runs/c --set 'averages.w50={name="window", size=50}' --set broadcast=w50
  fedsash run experiment.toml --out runs/d --fork runs/a@300 --set broadcast=w50
  fedsash run --federation mine:build --rounds 100 --out runs/e   a federation of your own, made by a function
  fedsash run experiment.toml --set engine.kind=ray     on the machines of a Ray cluster: docs/how-to/cluster.md
  fedsash run experiment.toml --stop-after 9m           where a machine is lent for ten minutes; fedsash resume goes on
  fedsash run experiment.toml --json > result.json      the summary, for a script

A VALUE is written as in TOML; a bare word is a string. The folder will hold config.toml (the complete experiment),
metrics.jsonl, summary.json, curves.png, models/ and state/. After Ctrl-C the round is finished and the state saved.
A fork needs a round whose state is kept: one of the last two saved states, or one in checkpoint.keep.
"""

RESUME = """\
examples:
  fedsash resume runs/a                 after a crash, a kill or Ctrl-C; the result is the same as without a stop
  fedsash resume runs/a --rounds 1000   continue up to round 1000
  fedsash resume runs/a --set callbacks.stop.patience=50          with other callbacks, checkpoints or tracking
  fedsash resume runs/a --set data.path=/new/place                on another machine, or after the data moved
  fedsash resume runs/mine --federation mine:build                a run made in Python: its function, once

A run over a Ray cluster goes on over one; docs/how-to/cluster.md says how it goes on without.
SIGTERM (a queue) and SIGHUP (a closed terminal) stop a run as Ctrl-C does: the round is finished and the state saved.
A job script for SLURM, which kills a job that is still there some seconds after SIGTERM:
  #SBATCH --signal=TERM@300             five minutes, so that a round can be finished
  if [ -f runs/a/metrics.jsonl ]; then srun fedsash resume runs/a
  else srun fedsash run experiment.toml --out runs/a; fi
  [ $? = 143 ] && scontrol requeue $SLURM_JOB_ID
"""

NETWORK = """\
examples:
  fedsash network fedwindow.toml                        into runs/fedwindow, or runs/fedwindow-2 if that is there
  fedsash network fedwindow.toml --out runs/w4 --set scheduler.window=4
  fedsash network fedwindow.toml --out runs/async --set 'scheduler={name="fedasync"}'

The folder will hold the files of any run, timeline.json, and three pictures: who trains, uploads and waits
(timeline.png), the use of the link and the size of the client window (link.png), the metric against time and client
trips (progress.png). After Ctrl-C the round is finished and the state is saved; fedsash resume continues.
"""
