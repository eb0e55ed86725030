"""What runs in Flower's processes: an experiment file served to nodes, and a node with its own data."""

from __future__ import annotations

import copy
import json
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from ...data.federated import FederatedData
from ...data.source import Source
from ...flower import FlowerClients, NamedModel, RealTime, Waiting, client_app
from ...flower.nodes.on_grid import PRECISION
from ...methods.sampling import Uniform
from ...network import Asynchronous, Scheduler, Synchronous
from ...runs import Callback, Driver, Fork, Result, resume, run
from ...runs.folder import RunFolder
from ...runs.interrupts import StoppedError
from ...server.federation import Federation
from ...settings.errors import FedsashError, check, one_line
from ...settings.resolve import Allowed
from ...system.lock import locked
from ..config import ConfigError, Experiment, NetworkExperiment, load, parse
from ..config.errors import located
from ..config.files import read
from .news import ProgressWriter

PYPROJECT: Mapping[str, Any] = {
    "project": {"name": "fedsash-served", "version": "1.0.0", "description": "An experiment", "license": ""},
    "tool": {
        "flwr": {"app": {"publisher": "fedsash", "components": {"serverapp": "app:server", "clientapp": "app:client"}}}
    },
}
"""Flower's description of the app that is sent to the nodes."""

APP = """\
from fedsash.lab.served.apps import node_app, server_app

server = server_app()
client = node_app()
"""
"""The code of that app: the server and each node have fedsash themselves, and nothing else is sent."""

UNUSED = ("partition", "engine", "network")
"""Tables of an experiment that a run over nodes does not use: clients, engines and links are what they are."""
STOPPED = "Flower has stopped the server's process, as it does if the SuperLink has died; the same command goes on"
"""The last line of a run that a signal has stopped. The signal comes from Flower: nothing else stops this process."""


def write_app(
    folder: Path,
    experiment: Experiment,
    out: Path,
    count: int,
    waiting: Waiting,
    limit: int | None,
    fork: Fork | None = None,
) -> None:
    """Write the app that serves an experiment to `count` clients into a folder, for `flwr run`.

    `limit` is that of `RealTime`, and `fork` the state with which the run begins. Raises `SettingError` for a precision
    that nodes would not have, for a limit without an asynchronous scheduler, for a simulated deadline, and for a
    minimum that no round can reach, and `ConfigError` if a round asks more clients than there are.
    """
    scheduler = _scheduler(experiment)
    precision = experiment.engine.precision
    check(precision == "full", "engine.precision", precision, PRECISION)
    if isinstance(scheduler, Synchronous):
        check(limit is None, "--limit", limit, "needs an asynchronous scheduler: leave it out")
        requirement = "is for simulated rounds; real ones wait as long as --deadline says: leave it out"
        check(scheduler.deadline is None, "scheduler.deadline", scheduler.deadline, requirement)
    selected = count
    if isinstance(experiment.sampling, Uniform):  # others depend on the nodes' samples
        with located("sampling"):
            selected = experiment.sampling.asked(count)
    requirement = f"must be at most {selected}, the clients that a round asks"
    check(waiting.minimum <= selected, "--minimum", waiting.minimum, requirement)
    config = {
        "experiment": json.dumps(experiment.table()),
        "out": str(out.absolute()),
        "news": str(folder.absolute()),
        "clients": count,
        "waiting": json.dumps(vars(waiting)),
        "limit": limit or 0,
        "fork": "",
    }
    if fork is not None:
        config["fork"] = json.dumps({"folder": str(Path(fork.folder).absolute()), "round": fork.round})
    table: dict[str, Any] = copy.deepcopy(dict(PYPROJECT))
    table["project"]["dependencies"] = ["fedsash[flower]"]
    table["tool"]["flwr"]["app"]["config"] = config
    (folder / "pyproject.toml").write_text(tomli_w.dumps(table))
    (folder / "app.py").write_text(APP)


def server_app() -> Any:
    """The `ServerApp` that runs or resumes the experiment that its configuration holds, and says how it ended."""
    from flwr.serverapp import ServerApp

    def main(grid: Any, context: Any) -> None:
        config = context.run_config
        code = 1
        line = ""
        progress = ProgressWriter(Path(config["news"]))
        try:
            result = serve(grid, config, [progress])
            code = 2 if result.interrupted else 0  # a signal after the last round has stopped nothing
            line = STOPPED if result.interrupted else ""
        except (FedsashError, OSError) as error:
            code = 2
            line = one_line(error)
            raise
        except StoppedError:
            code = 2
            line = STOPPED
            raise
        except BaseException:
            line = traceback.format_exc()
            raise
        finally:
            progress.ended(code, line)

    app = ServerApp()
    app.main()(main)
    return app


def serve(grid: Any, config: Mapping[str, Any], callbacks: Sequence[Callback] = ()) -> Result:
    """Run the experiment over the nodes of a grid, or go on with its run; `callbacks` come after its own."""
    table = json.loads(config["experiment"])
    experiment = parse(table, own_code=True)  # the command that started the server has checked it
    out = Path(config["out"])
    waiting = Waiting(**json.loads(config["waiting"]))
    with locked(out):  # a second server must not wait for nodes
        federation = over_nodes(experiment, grid, int(config["clients"]), waiting)
    driver = in_real_time(experiment, federation, int(config["limit"]) or None)
    settings = experiment.settings(driver)
    settings["callbacks"] += callbacks
    settings["config"] = {name: table for name, table in settings["config"].items() if name not in UNUSED}
    if RunFolder(out).begun:
        return resume(driver, experiment.rounds, out, progress=False, **settings)
    fork = None
    if config["fork"]:
        fork = Fork(**json.loads(config["fork"]))
    return run(driver, experiment.rounds, out=out, progress=False, fork=fork, **settings)


def over_nodes(experiment: Experiment, grid: Any, count: int, waiting: Waiting) -> Federation:
    """The federation of an experiment whose `count` clients are on the nodes of a grid.

    Of the experiment's data the server uses the test set, and the form of the samples. Its partition is not used: the
    nodes hold what they hold. Raises `RunError` if a client has no node in time, and `ConfigError`.
    """
    source = experiment.source()
    whole = everything_of_one(source)
    module = experiment.model.build(whole, experiment.seed)
    named = NamedModel(
        experiment.model.name,
        experiment.model.options,
        shape=whole.input_shape,
        outputs=whole.outputs,
        seed=experiment.seed,
    )
    with located(""):
        clients = FlowerClients(
            grid,
            whole.problem,
            count,
            named,
            evaluation=experiment.evaluation,
            seed=experiment.seed,
            waiting=waiting,
        )
    return experiment.around(module, clients)


def in_real_time(experiment: Experiment, federation: Federation, limit: int | None) -> Driver:
    """The driver of an experiment over nodes: its scheduler in real time, or the federation for synchronous rounds.

    The links and the clients of its simulated network are not used.
    """
    scheduler = _scheduler(experiment)
    if isinstance(scheduler, Synchronous):
        return federation
    return Asynchronous(federation, RealTime(limit), scheduler)


def _scheduler(experiment: Experiment) -> Scheduler:
    """The scheduler that the experiment names; rounds if it names none."""
    if isinstance(experiment, NetworkExperiment):
        return experiment.scheduler
    return Synchronous()


def node_app() -> Any:
    """The `ClientApp` of a node whose configuration names the file of its data, as `fedsash flower node` writes it."""

    def data(context: Any) -> FederatedData:
        config = context.node_config
        own_code = str(config["own-code"]).split()
        return data_of(Path(str(config["data"])), int(config["partition-id"]), own_code)

    return client_app(data)


def data_of(file: Path, number: int, own_code: Allowed = False) -> FederatedData:
    """The data for a node of client `number`, from a file with `[data]`, and perhaps `[transform]` and `[partition]`.

    The file may name code of one's own as far as `own_code` allows it. Without a partition all training samples are
    this client's. With one, the file is that of a simulation, and the data are those of all its clients. Raises
    `ConfigError`.
    """
    check(number >= 0, "--number", number, "must be the number of this node's client, from 0")
    experiment = load(file, own_code=own_code)
    if "partition" not in read(file):
        return replace(everything_of_one(experiment.source()), numbers=np.array([number], dtype=np.int64))
    data = experiment.federated_data()
    if not 0 <= number < len(data.clients):
        raise ConfigError(
            f"partition: makes {len(data.clients)} clients, and this node is number {number}", file=str(file)
        )
    return data


def everything_of_one(source: Source) -> FederatedData:
    """All samples of a source as those of a single client."""
    return FederatedData(**vars(source), clients=[np.arange(len(source.train))])
