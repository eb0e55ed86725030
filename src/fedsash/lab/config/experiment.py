"""An experiment file, checked, and the federation that it describes. An empty file is an experiment, on digits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...aggregation import Aggregation, WeightedMean
from ...averages import Average, Observer, check_names
from ...basics.errors import check, check_count
from ...basics.layout import Layout
from ...basics.sharing import Buffers, Personal
from ...basics.typed import typed
from ...broadcast import Broadcast
from ...data import Digits, Dirichlet, FederatedData, Transform
from ...data.partitions.common import Partition, assigned
from ...data.source import Dataset
from ...evaluation import Evaluation
from ...executors import Engine, LocalEngine
from ...federation import Federation
from ...local import LocalTraining
from ...methods import FedAvg, Method
from ...sampling import Sampling, Uniform
from ...servers import Server, ServerSGD
from ...tasks import Metric, Task
from ..runs import Checkpoint, RunningSums
from . import tables
from .errors import located
from .model import Model


@dataclass(frozen=True)
@typed
class Recording:
    """What a run writes in addition to its own records. `tensorboard` writes event files into the run's folder."""

    tensorboard: bool = False


@dataclass(frozen=True)
@typed
class Experiment:
    """An experiment file as an object, with every default. Its tables are objects, too.

    All random draws depend on `seed`. With a `partition_seed`, the partition depends on that seed instead, so runs with
    different seeds can have the same clients.

    Raises `ValueError` if settings contradict each other. `federation` raises errors that depend on the data.
    """

    seed: int = 0
    partition_seed: int | None = None
    rounds: int = 300
    device: str = "auto"
    broadcast: Broadcast | None = None
    data: Dataset = field(default_factory=Digits)
    transform: Transform | None = None
    task: Task | None = None
    partition: Partition = field(default_factory=lambda: Dirichlet(clients=100, alpha=0.1))
    model: Model = field(default_factory=Model)
    local: LocalTraining = field(default_factory=LocalTraining)
    method: Method = field(default_factory=FedAvg)
    aggregation: Aggregation = field(default_factory=WeightedMean)
    server: Server = field(default_factory=ServerSGD)
    sampling: Sampling = field(default_factory=lambda: Uniform(10))
    averages: Mapping[str, Average] = field(default_factory=dict)
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    evaluation: Evaluation = field(default_factory=Evaluation)
    engine: Engine = field(default_factory=LocalEngine)
    buffers: Buffers = "refuse"
    personal: Personal = field(default_factory=Personal)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    trajectory: RunningSums = field(default_factory=RunningSums)
    records: Recording = field(default_factory=Recording)

    def __post_init__(self) -> None:
        check_count("rounds", self.rounds)
        for name in ("seed", "partition_seed"):
            check((getattr(self, name) or 0) >= 0, name, getattr(self, name), "must not be negative")
        check_names(self.averages)
        if self.broadcast is not None:
            with located("broadcast"):
                self.broadcast.fits(self.averages, self.evaluation.held_out > 0, self.aggregation.private)

    @property
    def simulated(self) -> bool:
        """Whether it runs on a simulated network. Such a run shares no rounds with other runs of a sweep."""
        return False

    @property
    def stateless(self) -> bool:
        """Whether its runs save no states. This holds for a study of time on a network, which has no models."""
        return False

    def federated_data(self) -> FederatedData:
        """The data after the partition over the clients."""
        with located("data"):
            source = self.data.load()
        if self.task is not None:
            with located("task"):
                source = source.learning(self.task)
        if self.transform is not None:
            with located("transform"):
                self.transform.fits(source.train.x, source.train.y)
                source = replace(source, transform=self.transform)
        with located("partition"):
            seed = self.seed if self.partition_seed is None else self.partition_seed
            clients = assigned(self.partition, source.train, seed)
        with located("data"):
            return source.of(clients, self.partition, seed)

    def federation(self) -> Federation:
        """The federation to train. Raises `ConfigError` if its parts do not fit together."""
        data = self.federated_data()
        model = self.model.build(data, self.seed)
        with located(""):
            layout = Layout(model)
        with located("personal"):
            stays = layout.members(self.personal.part) if self.personal.part else set()
        for name, average in self.averages.items():
            with located(f"averages.{name}"):
                Observer.of(average, layout, stays)
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

    def table(self) -> dict[str, Any]:
        """The experiment as the complete content of a file. `parse` makes an equal experiment from it."""
        table: dict[str, Any] = tables.plain(self)
        return table
