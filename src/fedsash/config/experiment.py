"""An experiment file, checked, and the federation that it describes. An empty file is an experiment, on digits."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from ..aggregation import Mean
from ..averages import Average, check_names
from ..checks import check, one_line
from ..data import Digits, Dirichlet, FederatedData, Source
from ..engines import Engine
from ..evaluation import Evaluation
from ..federation import Federation
from ..feed import Feed
from ..layout import Layout
from ..local import Client
from ..methods import FedAvg, Method
from ..runs import Checkpoint
from ..sampling import Sampling, Uniform
from ..servers import SGD, Server
from . import tables
from .errors import ConfigError, located, prefixed
from .model import Model


class Dataset(Protocol):
    """Anything with samples to load."""

    def load(self, seed: int = 0) -> Source: ...


Partition = Callable[[NDArray[Any], int], list[NDArray[Any]]]
"""`partition(labels, seed)`: each client's indices."""


@dataclass(frozen=True)
class Recording:
    """What a run writes beside its own records: with `tensorboard`, event files in its folder."""

    tensorboard: bool = False


@dataclass(frozen=True)
class Experiment:
    """All that an experiment file says, with every default; its tables are the objects that they describe.

    Raises `ValueError` where the parts contradict each other; `federation` finds what only the data can tell.
    """

    seed: int = 0
    rounds: int = 300
    device: str = "auto"
    feed: Feed | None = None
    data: Dataset = field(default_factory=Digits)
    partition: Partition = field(default_factory=lambda: Dirichlet(clients=100, alpha=0.1))
    model: Model = field(default_factory=Model)
    client: Client = field(default_factory=Client)
    method: Method = field(default_factory=FedAvg)
    aggregation: Mean = field(default_factory=Mean)
    server: Server = field(default_factory=SGD)
    sampling: Sampling = field(default_factory=lambda: Uniform(10))
    averages: Mapping[str, Average] = field(default_factory=dict)
    evaluation: Evaluation = field(default_factory=Evaluation)
    engine: Engine = field(default_factory=Engine)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    records: Recording = field(default_factory=Recording)

    def __post_init__(self) -> None:
        check(self.rounds >= 1, "rounds", self.rounds, "must be at least 1")
        check(self.seed >= 0, "seed", self.seed, "must not be negative")
        check_names(self.averages)
        if self.feed is not None:
            with located("feed"):
                self.feed.fits(self.averages, self.evaluation.held_out)

    def federated_data(self) -> FederatedData:
        """The data, shared out over the clients."""
        with located("data"):
            source = self.data.load()
        with located("partition"):
            return source.partition(self.partition, self.seed)

    def federation(self) -> Federation:
        """The federation to train; `ConfigError` where its parts do not fit together."""
        data = self.federated_data()
        model = self.model.build(data, self.seed)
        for name, average in self.averages.items():
            with located(f"averages.{name}"):
                Layout(model).ranges(average.part)
        with located("sampling"):
            self.sampling.clients(0, data.sizes, self.seed)
        with located(""):
            return Federation(
                model,
                data,
                method=self.method,
                client=self.client,
                aggregation=self.aggregation,
                server=self.server,
                averages=self.averages,
                feed=self.feed,
                sampling=self.sampling,
                evaluation=self.evaluation,
                engine=self.engine,
                seed=self.seed,
                device=self.device,
            )

    def table(self) -> dict[str, Any]:
        """The experiment as the content of a file, complete: `parse` makes an equal experiment of it."""
        table: dict[str, Any] = tables.plain(self)
        return table


def load(path: str | Path, overrides: Iterable[str] = ()) -> Experiment:
    """The experiment in a TOML file, after `overrides` such as `"client.lr=0.05"`, in order.

    An override's value is written as in TOML; what is not TOML is a string. Raises `ConfigError`.
    """
    with prefixed(path):
        table = _read(Path(path))
        for override in overrides:
            _put(table, override)
        return parse(table)


def parse(table: Mapping[str, Any]) -> Experiment:
    """The experiment that the content of a file describes. Raises `ConfigError`."""
    experiment: Experiment = tables.build(Experiment, table, "", Experiment())
    return experiment


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError("there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"can't be read: {one_line(error)}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"is not TOML: {error}") from error


def _put(table: dict[str, Any], override: str) -> None:
    """Put `"key.key=value"` into a table, in place."""
    name, equals, text = override.partition("=")
    if not equals or not re.fullmatch(r"\s*[\w-]+(\.[\w-]+)*\s*", name):
        raise ConfigError(f"--set {override}: must be KEY=VALUE, such as client.lr=0.05")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    *path, key = name.strip().split(".")
    for step in path:
        inner = table.get(step, {})
        if step == "feed" and isinstance(inner, str):
            inner = {"average": inner}
        table[step] = inner if isinstance(inner, dict) else {}
        table = table[step]
    table[key] = value
