"""An experiment file, checked, and the federation that it describes. An empty file is an experiment, on digits."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from ...averages import Average, Observer, check_names
from ...client import LocalTraining
from ...data import Digits, Dirichlet, FederatedData, Transform
from ...data.partitions.common import Partition, assigned, fields_of
from ...data.source import Dataset, Source
from ...engines import Engine, LocalEngine
from ...engines.clients import Clients
from ...evaluation import Evaluation
from ...methods import Aggregation, FedAvg, Method, WeightedMean
from ...methods.sampling import Sampling, Uniform
from ...methods.server_optimisers import Server, ServerSGD
from ...runs import Callback, Checkpoint, Driver, RunningSums
from ...runs.callbacks import Track
from ...server.broadcast import Broadcast
from ...server.federation import Federation
from ...settings.errors import ConfigError, check
from ...settings.limits import Count, Seed
from ...settings.resolve import resolve
from ...settings.setting import Accepts, Setting, default
from ...tasks import Metric, OnlyLoss, Task
from ...vector.layout import Layout, ModelSlice
from ...vector.sharing import Buffers, Personal
from . import tables
from .errors import located
from .model import Model

log = logging.getLogger("fedsash")


CARRIED_OUT = ("device", "engine", "checkpoint", "trajectory", "track")
"""The tables that say how a run is carried out, and not what it computes; but the engine's precision does."""


def changes_numbers(key: str) -> bool:
    """Whether a setting, by its dotted key, can change the numbers of a round by more than rounding."""
    if key == "engine.precision":
        return True
    if key == "data.path" or key.endswith(".storage"):
        return False
    table = key.partition(".")[0]
    return table not in (*CARRIED_OUT, "callbacks")


@dataclass(frozen=True)
class Experiment(Setting):
    """An experiment file as an object, with every default. Its tables are objects, too.

    Raises `ConfigError` or `SettingError` if settings contradict each other. `federation` raises errors that depend on
    the data.
    """

    seed: Seed = 0
    """all random draws of the training depend on it. What is drawn from data once, such as a test set of theirs, is the
    same for all seeds"""
    partition_seed: Seed | None = None
    """the partition depends on it in place of `seed`, so runs can differ in `seed` and have the same clients"""
    rounds: Count = 300
    """how many rounds are trained"""
    device: str = "auto"
    """where models are trained and evaluated: cpu, cuda, mps, or auto, which takes a GPU if there is one"""
    broadcast: Accepts[Broadcast | None, str] = default(None)
    """the average that clients receive in place of the model (IMA), by its name in `averages`"""
    data: Dataset = Digits()
    """the samples"""
    transform: Transform | None = None
    """how samples are normalised and augmented, in place of what the data set does itself"""
    task: Task | None = None
    """what is learned, in place of what the data say"""
    partition: Partition = Dirichlet(clients=100, alpha=0.1)
    """the rule that gives each client its samples"""
    model: Model = Model()
    """the network that is trained"""
    local: LocalTraining = LocalTraining()
    """what a client does in a round"""
    method: Method = FedAvg()
    """the federated algorithm, as a change of FedAvg"""
    aggregation: Aggregation = WeightedMean()
    """how the clients' updates become one"""
    server: Server = ServerSGD()
    """how that update moves the model"""
    sampling: Sampling = Uniform()
    """which clients take part in a round"""
    averages: Mapping[str, Average] = field(default_factory=dict)
    """means of the models of several rounds, each under a name of your own; they change nothing"""
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    """more numbers in evaluations, each under a name of your own"""
    evaluation: Evaluation = Evaluation()
    """when and on what the model and all averages are evaluated"""
    engine: Engine = LocalEngine()
    """how the work is done on this machine, or on a cluster"""
    buffers: Buffers = "refuse"
    """what becomes of the running statistics of BatchNorm: refuse, average, local or local_norm"""
    personal: Accepts[Personal, ModelSlice | list[str]] = default(Personal())
    """the part of the model that stays with each client"""
    checkpoint: Checkpoint = Checkpoint()
    """when the state is saved"""
    trajectory: RunningSums = RunningSums()
    """whether sums of models are kept, for any average after the run"""
    callbacks: Mapping[str, Callback] = field(default_factory=dict)
    """what is called during a run and may stop it, each under a name of your own"""
    track: Accepts[Track, str] = default(Track())
    """where the numbers of a run also go: TensorBoard, W&B, MLflow, Trackio"""

    def __post_init__(self) -> None:
        check_names(self.averages)
        if self.broadcast is not None:
            with located("broadcast"):
                self.broadcast.fits(self.averages, self.evaluation.held_out > 0)
                for error in self.aggregation.refuses_broadcast(self.broadcast):
                    raise error

    @property
    def alone(self) -> bool:
        """Whether it shares no rounds with other runs of a sweep: a callback may stop it, others not."""
        return bool(self.callbacks)

    @property
    def stateless(self) -> bool:
        """Whether its runs save no states. This holds for a study of time on a network, which has no models."""
        return False

    def source(self) -> Source:
        """The samples before they belong to clients, with the task and the transform."""
        with located("data"):
            source = self.data.load()
        if self.task is not None:
            with located("task"):
                source = source.learning(self.task)
        if self.transform is not None:
            with located("transform"):
                self.transform.fits(source.train.x, source.train.y)
                source = replace(source, transform=self.transform)
        return source

    def federated_data(self) -> FederatedData:
        """The data after the partition over the clients."""
        return self.divided(self.source())

    def divided(self, source: Source) -> FederatedData:
        """The samples of `source`, divided over the clients."""
        if source.train.user is not None and "user" not in fields_of(self.partition):
            log.warning("the data name each sample's user, and this partition does not use it: partition.name = users")
        seed = self.seed if self.partition_seed is None else self.partition_seed
        with located("partition"):
            clients = assigned(self.partition, source.train, seed)
        with located("data"):
            return source.of(clients, self.partition, seed)

    def federation(self) -> Federation:
        """The federation to train. Raises `ConfigError` if its parts do not fit together."""
        data = self.federated_data()
        if isinstance(data.problem.task, OnlyLoss):
            labels = f"labels of {data.train.y.dtype} {list(data.train.y.shape)} are not one class for each sample"
            raise ConfigError(f'task.name is missing: {labels}: name a task, such as task.name = "regression"', "task")
        return self.around(self.model.build(data, self.seed), data)

    def around(self, model: nn.Module, data: FederatedData | Clients) -> Federation:
        """The federation that trains this model at these clients. Raises `ConfigError` as `federation` does."""
        with located(""):
            layout = Layout(model)
        with located("personal"):
            personal_names = layout.members(self.personal.part) if self.personal.part else set()
        for name, average in self.averages.items():
            with located(f"averages.{name}"):
                Observer.of(average, layout, personal_names)
        with located("sampling"):
            self.sampling.clients(0, data.sizes, self.seed)
        with located(""):
            return Federation(
                model,
                data,
                method=self.method,
                local=self.local,
                aggregation=self.aggregation,
                server=self.server,
                averages=self.averages,
                broadcast=self.broadcast,
                sampling=self.sampling,
                metrics=self.metrics,
                evaluation=self.evaluation,
                engine=self.engine,
                buffers=self.buffers,
                personal=self.personal,
                seed=self.seed,
                device=self.device,
            )

    def driver(self) -> Driver:
        """What makes the rounds: the federation. Raises `ConfigError` if its parts do not fit together."""
        return self.federation()

    def settings(self, driver: Driver) -> dict[str, Any]:
        """The arguments of `run` and `resume` beside the driver: checkpoint, running sums, callbacks, config.

        Raises `ConfigError` for a callback that does not fit the driver.
        """
        callbacks = {f"callbacks.{name}": callback for name, callback in self.callbacks.items()}
        callbacks |= {f"track.{name}": callback for name, callback in self.track.chosen().items()}
        for place, callback in callbacks.items():
            with located(place):
                callback.fits(driver.federation)
        return {
            "checkpoint": self.checkpoint,
            "trajectory": self.trajectory,
            "callbacks": list(callbacks.values()),
            "config": self.table(),
        }

    def table(self) -> dict[str, Any]:
        """The experiment as the complete content of a file. `parse` makes an equal experiment from it."""
        table: dict[str, Any] = tables.plain(self)
        return table


OWN_KEYS = ("rounds", "built_by", "options", "checkpoint", "trajectory", "callbacks", "track")
"""The keys of such an experiment. The function decides all the others."""


@dataclass(frozen=True)
class OwnExperiment(Experiment):
    """An experiment with `built_by = "package.module:function"`: the function returns the federation.

    Its run shares no rounds with other runs of a sweep.
    """

    built_by: str = ""
    """the function that makes the federation, as package.module:function; empty in the folder of a run that was made in
    Python, since only its author knows the function"""
    options: Mapping[str, Any] = field(default_factory=dict)
    """the arguments of this function"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.built_by:
            make = resolve(self.built_by, field="built_by")
            with located(""):  # while only the code that the user allows can be named
                tables.check_arguments(make, self.options, "options")

    @property
    def alone(self) -> bool:
        return True

    def driver(self) -> Driver:
        """What the function returns: a `Federation`, or another driver of rounds. Raises `ConfigError` for others."""
        if not self.built_by:
            how = "name the function that makes the federation, --federation package.module:function"
            raise ConfigError(f"built_by is empty: the run was made in Python: {how}", "built_by")
        with located(""):
            make = resolve(self.built_by, field="built_by")
            driver: Driver = tables.build(make, self.options, "options")
            is_driver = hasattr(driver, "federation") and hasattr(driver, "round")
            requirement = f"must return a Federation, returned {type(driver).__name__}"
            check(is_driver, "built_by", self.built_by, requirement)
        return driver

    def federation(self) -> Federation:
        driver = self.driver()
        with located(""):
            requirement = f"must return a Federation here, returned {type(driver).__name__}"
            check(isinstance(driver, Federation), "built_by", self.built_by, requirement)
        assert isinstance(driver, Federation)
        return driver

    def federated_data(self) -> FederatedData:
        return self.federation().training_data

    def table(self) -> dict[str, Any]:
        """The experiment as the complete content of a file."""
        table = super().table()
        return {key: table[key] for key in OWN_KEYS}
