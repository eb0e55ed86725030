"""An experiment on a simulated network: a file with the usual tables, and `[network]` and `[scheduler]`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...methods.sampling import Sampling
from ...network.driver import Asynchronous
from ...network.learning import EVERYBODY, Timing
from ...network.rounds import OnNetwork
from ...network.schedulers import Scheduler, Synchronous
from ...network.settings import Network
from ...runs import Driver
from ...runs.callbacks import Track
from ...settings.errors import ConfigError
from ..timing import TimeStudy, simulate
from .errors import located
from .experiment import Experiment
from .registries import REGISTRIES

SENT = {"send", "probe", "upload", "server_state"}
"""The hooks of a method by which messages may have more vectors than the model."""


@dataclass(frozen=True)
class NetworkExperiment(Experiment):
    """An experiment on a simulated network: what is trained, and two tables more."""

    sampling: Sampling = EVERYBODY
    network: Network = Network()
    """the link of the server, and the clients' speeds and links"""
    scheduler: Scheduler = Synchronous()
    """who trains when, and when the server moves"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.scheduler, Synchronous) and self.sampling != EVERYBODY:
            name = REGISTRIES["schedulers"].name_of(self.scheduler)
            raise ConfigError(f"sampling: the scheduler {name} says itself who trains; leave it out", "sampling")
        if self.trajectory.every:
            raise ConfigError("trajectory: a simulated run keeps no running sums; leave it out", "trajectory")
        if not self.stateless:
            return
        for key, in_use in (("callbacks", bool(self.callbacks)), ("track", self.track != Track())):
            if in_use:
                raise ConfigError(f"{key}: a study of time evaluates no models; leave it out", key)
        if not SENT.isdisjoint(self.method.overridden):
            name = REGISTRIES["methods"].name_of(self.method)
            why = "a study of time has messages of one model each way; leave it out, or set network.learning = true"
            raise ConfigError(f"method: {name} may send more vectors than the model: {why}", "method")

    @property
    def alone(self) -> bool:
        return True

    @property
    def stateless(self) -> bool:
        return not self.network.learning

    def driver(self) -> Driver:
        """The driver of the run. Raises `ConfigError` if the parts do not fit together."""
        federation = self.federation()
        with located(""):
            if isinstance(self.scheduler, Synchronous):
                return replace(federation, data=OnNetwork(federation.clients, self.network, self.scheduler))
            return Asynchronous(federation, self.network, self.scheduler)

    def table(self) -> dict[str, Any]:
        """The experiment as the complete content of a file. `parse` makes an equal experiment from it."""
        table = super().table()
        if not isinstance(self.scheduler, Synchronous):
            del table["sampling"]
        return table

    def study(
        self,
        out: Path | str | None = None,
        *,
        progress: bool = False,
        stepped: Callable[[int], object] | None = None,
        again: bool = False,
    ) -> TimeStudy:
        """Simulate the time only, without models: an experiment with `network.learning = false`. See `simulate`."""
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
            stepped=stepped,
            config=self.table(),
            again=again,
        )
