"""`fedsash run` and `fedsash resume`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...runs import terminal
from ...settings.errors import shortened
from .common import (
    Commands,
    add_federation,
    add_json,
    add_out,
    add_progress,
    add_set,
    add_stop_after,
    answer,
    check_out,
    finished,
    load_given,
    new_folder,
    stopped,
)
from .network import simulate

if TYPE_CHECKING:  # a command imports the heavy modules that it needs itself, so that --help is fast
    from ...runs import Result
    from ..config import Experiment


def add(commands: Commands) -> None:
    """Add the commands."""
    run = commands.add_parser("run", help="train the experiment in a file", epilog=RUN)
    line = "experiment file (TOML); an empty file trains on digits"
    run.add_argument("experiment", type=Path, nargs="?", help=line)
    add_out(run)
    add_set(run)
    add_federation(run)
    run.add_argument("--seed", type=int, help="the same as --set seed=SEED")
    run.add_argument("--rounds", type=int, help="the same as --set rounds=ROUNDS")
    run.add_argument("--fork", type=_fork, metavar="RUN@ROUND", help="start from the state that RUN saved after ROUND")
    run.set_defaults(command=_run)

    resume = commands.add_parser("resume", help="continue a run", epilog=RESUME)
    resume.add_argument("out", type=Path, metavar="run", help="the run's folder")
    resume.add_argument("--rounds", type=int, help="train until this round (counted from the run's beginning)")
    add_set(resume)
    add_federation(resume)
    resume.set_defaults(command=_resume)
    for command in (run, resume):
        add_stop_after(command)
        add_progress(command)
        add_json(command)


def _run(given: argparse.Namespace) -> int:
    from ... import runs
    from ..config import ConfigError, NetworkExperiment

    numbers = {"seed": given.seed, "rounds": given.rounds}
    overrides = [f"{key}={number}" for key, number in numbers.items() if number is not None]
    experiment = load_given(given, overrides)
    if isinstance(experiment, NetworkExperiment):
        raise ConfigError(
            "this experiment has [network] or [scheduler]: start it with fedsash network", file=str(given.experiment)
        )
    file = given.experiment or given.federation
    with new_folder(given):
        check_out(given.out, new=True)
        return _train(given, experiment, file, partial(runs.run, fork=given.fork and runs.Fork(*given.fork)))


def _resume(given: argparse.Namespace) -> int:
    from ... import runs
    from ...runs.folder import RunFolder
    from ..config import NetworkExperiment, OwnExperiment, load_run

    check_out(given.out, new=False)
    overrides = [] if given.rounds is None else [f"rounds={given.rounds}"]
    file = given.out / "config.toml"
    experiment = load_run(given.out, [*given.set, *overrides], given.own_code, given.federation)
    if not isinstance(experiment, OwnExperiment):
        RunFolder(given.out).check_here()
    if isinstance(experiment, NetworkExperiment):
        go = partial(experiment.study, again=True) if experiment.stateless else experiment.resume
        return simulate(given, experiment, file, go)
    return _train(given, experiment, file, runs.resume)


def _train(given: argparse.Namespace, experiment: Experiment, file: Path | str, train: Callable[..., Result]) -> int:
    """Train an experiment and print its results."""
    from ...runs.table import tables
    from ..config.errors import prefixed

    with prefixed(file):
        driver = experiment.driver()
        settings = experiment.settings(driver)
    result = train(driver, experiment.rounds, out=given.out, progress=given.progress, **settings)
    answer(given, result)
    if result.interrupted:
        return stopped(given, result.signal)
    for shown in tables(result.summary):
        terminal.say()
        terminal.show(shown)
    pictures = " and the picture of the curves" if (given.out / "curves.png").exists() else ""
    terminal.say(f"\nmetrics, models{pictures}: {result.folder}")
    return finished(result.summary)


def _fork(text: str) -> tuple[Path, int]:
    folder, _, round = text.rpartition("@")
    if not folder or not round.isdecimal() or len(round) > 18:
        raise argparse.ArgumentTypeError(f"{shortened(text)!r} must be RUN@ROUND, such as runs/a@300")
    return Path(folder), int(round)


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
  fedsash resume runs/mine --federation mine:build                a run made in Python: its function, once

A run over a Ray cluster goes on over one; docs/how-to/cluster.md says how it goes on without.
SIGTERM (a queue) and SIGHUP (a closed terminal) stop a run as Ctrl-C does: the round is finished and the state saved.
A job script for SLURM, which kills a job that is still there some seconds after SIGTERM:
  #SBATCH --signal=TERM@300             five minutes, so that a round can be finished
  if [ -f runs/a/metrics.jsonl ]; then srun fedsash resume runs/a
  else srun fedsash run experiment.toml --out runs/a; fi
  [ $? = 143 ] && scontrol requeue $SLURM_JOB_ID
"""
