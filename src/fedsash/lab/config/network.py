"""An experiment file of a federation on a network: the usual tables, and `[network]` and `[scheduler]`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...network.client_windows import CLIENT_WINDOWS, ClientWindow, ConstantWindow
from ...network.driver import Asynchronous
from ...network.learning import Timing
from ...network.links import Link
from ...network.rounds import OnNetwork
from ...network.schedulers import SCHEDULERS, FedWindow, Scheduler, Synchronous
from ...network.settings import Network
from .. import config, runs
from ..records import Records
from ..runs import Callback, Driver, Watch
from ..runs.timing import Study, simulate
from . import tables
from .errors import ConfigError, located, prefixed
from .files import overridden, read
from .registry import Room

ROOMS = {
    "schedulers": Room("scheduler", SCHEDULERS, Scheduler),
    "windows": Room("scheduler.window", CLIENT_WINDOWS, ClientWindow),
}
EVERYBODY = {"sampling": {"name": "uniform", "fraction": 1.0}}


@dataclass(frozen=True)
class NetworkExperiment(config.Experiment):
    """All that an experiment file on a network says: what is trained, the network, and who trains when."""

    network: Network = field(default_factory=Network)
    scheduler: Scheduler = field(default_factory=Synchronous)

    def run(
        self, out: Path | str | None = None, *, progress: bool | Watch = False, callbacks: Sequence[Callback] = ()
    ) -> runs.Result | Study:
        """Run it as any experiment, or study its time; `ConfigError` where its parts do not fit together."""
        if not self.network.learning:
            return self._study(out, progress)
        settings: dict[str, Any] = {"checkpoint": self.checkpoint, "callbacks": callbacks, "config": self.table()}
        return runs.run(self.driver(), self.rounds, out=out, progress=progress, **settings)

    def resume(
        self, out: Path | str, *, progress: bool | Watch = False, callbacks: Sequence[Callback] = ()
    ) -> runs.Result | Study:
        """Go on with the run in `out`; a study of time begins anew, since its time would have to be replayed."""
        if not self.network.learning:
            Records(out).path.unlink(missing_ok=True)
            return self._study(out, progress)
        settings: dict[str, Any] = {"checkpoint": self.checkpoint, "callbacks": callbacks, "config": self.table()}
        return runs.resume(self.driver(), self.rounds, out, progress=progress, **settings)

    def driver(self) -> Driver:
        """What a session drives; `ConfigError` where the parts do not fit together."""
        federation = self.federation()
        with located(""):
            if isinstance(self.scheduler, Synchronous):
                return replace(federation, data=OnNetwork(federation.clients, self.network, self.scheduler))
            return Asynchronous(federation, self.network, self.scheduler)

    def table(self) -> dict[str, Any]:
        """The content of a file, complete: `parse` makes an equal experiment of it."""
        table = super().table()
        scheduler = {"name": ROOMS["schedulers"].name_of(self.scheduler)} | table["scheduler"]
        if isinstance(self.scheduler, FedWindow):
            window = self.scheduler.window
            scheduler["window"] = {"name": ROOMS["windows"].name_of(window)} | scheduler["window"]
        if not isinstance(self.scheduler, Synchronous):
            del table["sampling"]
        return table | {"scheduler": scheduler}

    def _study(self, out: Path | str | None, progress: bool | Watch) -> Study:
        """A study of its time alone."""
        network = self.network
        assert network.bytes is not None
        return simulate(
            network,
            self.scheduler,
            Timing(network.clients.count, network.bytes, self.sampling, self.seed),
            rounds=self.rounds,
            evaluation=self.evaluation,
            seed=self.seed,
            out=out,
            progress=progress,
            config=self.table(),
        )


def load(path: str | Path, overrides: Iterable[str] = ()) -> NetworkExperiment:
    """The experiment in a TOML file, after `overrides` such as `"scheduler.window=4"`. Raises `ConfigError`."""
    with prefixed(path):
        return parse(read(path), overrides)


def parse(table: Mapping[str, Any], overrides: Iterable[str] = ()) -> NetworkExperiment:
    """The experiment that the content of a file describes. Raises `ConfigError`."""
    for override in overrides:
        table = overridden(table, override)
    rest = dict(table)
    network = _network(rest.pop("network", {}))
    scheduler = _scheduler(rest.pop("scheduler", {}))
    if "sampling" in rest and not isinstance(scheduler, Synchronous):
        name = ROOMS["schedulers"].name_of(scheduler)
        raise ConfigError(f"sampling: the scheduler {name} says itself who trains; leave it out")
    experiment = config.parse(EVERYBODY | rest)
    if experiment.trajectory.every:
        raise ConfigError("trajectory: a simulated run keeps no running sums; leave it out")
    return NetworkExperiment(**vars(experiment), network=network, scheduler=scheduler)


def _network(table: Any) -> Network:
    down = table.get("down") if isinstance(table, Mapping) else None
    rest = table if down is None else {key: value for key, value in table.items() if key != "down"}
    network: Network = tables.build(Network, rest, "network", Network())
    return network if down is None else replace(network, down=tables.build(Link, down, "network.down"))


def _scheduler(table: Any) -> Scheduler:
    make, rest = _chosen(table, ROOMS["schedulers"], "synchronous")
    window = rest.pop("window", None) if make is FedWindow else None
    default = make() if window is None else FedWindow(_window(window))
    scheduler: Scheduler = tables.build(make, rest, "scheduler", default)
    return scheduler


def _window(value: Any) -> ClientWindow:
    """A window rule: a table with a name, or a number, which is a fixed size."""
    if isinstance(value, int) and not isinstance(value, bool):
        with located("scheduler.window"):
            return ConstantWindow(value)
    make, rest = _chosen(value, ROOMS["windows"], "fixed")
    window: ClientWindow = tables.build(make, rest, "scheduler.window")
    return window


def _chosen(table: Any, room: Room, default: str) -> tuple[Any, dict[str, Any]]:
    """The class that a table names, and the rest of the table."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{room.key} = {table!r}: must be a table, [{room.key}]")
    rest = dict(table)
    with located(room.key):
        return room.find(rest.pop("name", default)), rest
