"""Partitioners of the library flwr-datasets."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...settings.errors import DataError, check, library, one_line
from ...settings.limits import Count
from ...vector.arrays import Ints
from ...vector.randomness import Purpose, generator
from .common import NamedPartition, check_samples


@dataclass(frozen=True)
class Flwr(NamedPartition, name="flwr"):
    """Any partitioner of flwr-datasets by its class name, e.g. `PathologicalPartitioner`.

    If it has the arguments `num_partitions`, `partition_by` and `seed`, they are set; the samples are partitioned by
    the label. It gets the samples in a random order, because some partitioners do not shuffle and have no seed.

    Raises `SettingError` if there is no such partitioner or it does not make `clients` parts, `DataError` if it refuses
    its options or the data, and `LibraryError` without flwr-datasets.
    """

    clients: Count
    """how many parts there must be"""
    partitioner: str
    """the name of its class"""
    options: Mapping[str, Any] = field(default_factory=dict)
    """its other arguments"""

    def __call__(self, labels: Ints, seed: int) -> list[Ints]:
        """Each client's indices into `labels`, sorted."""
        check_samples("Flwr", self.clients, len(labels))
        make = self._class()
        import datasets

        rng = generator(seed, Purpose.PARTITION)
        order = rng.permutation(len(labels))
        arguments = {"num_partitions": self.clients, "partition_by": "label", "seed": int(rng.integers(2**31))}
        parameters = inspect.signature(make).parameters
        options = {name: value for name, value in arguments.items() if name in parameters}
        options |= self.options
        try:
            dataset = datasets.Dataset.from_dict({"label": labels[order], "index": order})
            parts = _parts(make(**options), dataset)
        except Exception as error:  # each partitioner raises its own errors
            raise DataError(f"Flwr: {self.partitioner} with {dict(self.options)} failed: {one_line(error)}") from error
        check(len(parts) == self.clients, "Flwr.clients", self.clients, f"{self.partitioner} makes {len(parts)} parts")
        return parts

    def _class(self) -> Any:
        """The partitioner's class. Raises `SettingError` for an unknown name."""
        with library("flwr-datasets", "these data", "fedsash[partitions]"):
            from flwr_datasets import partitioner
        names = [name for name in partitioner.__all__ if name != "Partitioner"]
        requirement = f"flwr-datasets has no such partitioner, only {', '.join(names)}"
        check(self.partitioner in names, "Flwr.partitioner", self.partitioner, requirement)
        return getattr(partitioner, self.partitioner)


def _parts(partitioner: Any, dataset: Any) -> list[Ints]:
    """The sorted `index` column of each part that a partitioner makes of a data set."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns before each new attempt, and raises an error in the end
        partitioner.dataset = dataset
        parts = []
        for i in range(partitioner.num_partitions):
            index = partitioner.load_partition(i)["index"]
            parts.append(np.sort(np.array(index, dtype=np.int64)))
    return parts
