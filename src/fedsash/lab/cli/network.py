"""`fedsash network`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ...runs import terminal
from .common import (
    Commands,
    add_json,
    add_out,
    add_progress,
    add_set,
    add_stop_after,
    answer,
    check_out,
    finished,
    new_folder,
    stopped,
)

if TYPE_CHECKING:
    from ...runs import Result
    from ..config import NetworkExperiment
    from ..timing import TimeStudy


def add(commands: Commands) -> None:
    """Add the command."""
    network = commands.add_parser(
        "network", help="train on a simulated network: time, congestion, failures", epilog=NETWORK
    )
    network.add_argument("experiment", type=Path, help="experiment file (TOML) with the tables network and scheduler")
    add_out(network)
    add_set(network)
    add_stop_after(network)
    add_progress(network)
    add_json(network)
    network.set_defaults(command=_network)


def _network(given: argparse.Namespace) -> int:
    from ..config import ConfigError, NetworkExperiment, load

    experiment = load(given.experiment, given.set, given.own_code)
    if not isinstance(experiment, NetworkExperiment):
        raise ConfigError(
            "this experiment has neither [network] nor [scheduler]: start it with fedsash run",
            file=str(given.experiment),
        )
    with new_folder(given):
        check_out(given.out, new=True)
        go = experiment.study if experiment.stateless else experiment.run
        return simulate(given, experiment, given.experiment, go)


def simulate(
    given: argparse.Namespace, experiment: NetworkExperiment, file: Path, go: Callable[..., Result | TimeStudy]
) -> int:
    """Run or resume an experiment on a network, and print its results."""
    from ...runs.table import tables
    from ..config.errors import prefixed

    with prefixed(file):
        result = go(given.out, progress=given.progress)
    answer(given, result)
    if result.interrupted:
        return stopped(given, result.signal)
    if experiment.network.learning:
        for shown in tables(result.summary):
            terminal.show(shown)
    terminal.say("\n".join(_lines(result)))
    return finished(result.summary)


def _lines(result: Result | TimeStudy) -> list[str]:
    """The network's results, one per line."""
    from ...runs.summaries import metric_of

    summary, network = result.summary, result.summary["network"]
    lines = [
        f"{summary['rounds']} rounds of {summary['clients']} clients in {network['time']:,.1f} simulated seconds",
        f"{network['trips']:,} client trips, {network['arrived']:,} arrived, staleness {network['staleness']:.2f}",
        f"{network['failed_uploads']:,} failed uploads, waiting {network['waiting']:.3g} s a trip",
        f"link in use {100 * network['link_use']:.0f} %",
    ]
    if summary["ended_early"] and not summary["models"]:  # else it stands below the table
        lines.append(f"ended early: {summary['ended_early']}")
    criterion = metric_of(summary)
    for model, when in summary["target"].items():
        at = "" if criterion.target is None else criterion.plain(criterion.target)
        lines.append(f"{model} at {at}: {when['trips']:,} trips, {when['time']:,.1f} s")
    return ["", *lines, "", f"metrics, time line and pictures: {result.folder}"]


NETWORK = """\
examples:
  fedsash network fedwindow.toml                        into runs/fedwindow, or runs/fedwindow-2 if that is there
  fedsash network fedwindow.toml --out runs/w4 --set scheduler.window=4
  fedsash network fedwindow.toml --out runs/async --set 'scheduler={name="fedasync"}'

The folder will hold the files of any run, timeline.json, and three pictures: who trains, uploads and waits
(timeline.png), the use of the link and the size of the client window (link.png), the metric against time and client
trips (progress.png). After Ctrl-C the round is finished and the state is saved; fedsash resume continues.
"""
