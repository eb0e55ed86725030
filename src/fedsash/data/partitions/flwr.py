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
        ours = {"num_partitions": self.clients, "partition_by": "label", "seed": int(rng.integers(2**31))}
        known = inspect.signature(make).parameters
        options = {name: value for name, value in ours.items() if name in known} | dict(self.options)
        try:
            parts = _parts(make(**options), datasets.Dataset.from_dict({"label": labels[order], "index": order}))
        except Exception as error:  # each partitioner raises its own errors
            raise DataError(f"Flwr: {self.partitioner} with {dict(self.options)} failed: {one_line(error)}") from error
        check(len(parts) == self.clients, "Flwr.clients", self.clients, f"{self.partitioner} makes {len(parts)} parts")
        return parts

    def _class(self) -> Any:
        with library("flwr-datasets", "these data", "fedsash[partitions]"):
            from flwr_datasets import partitioner
        names = [name for name in partitioner.__all__ if name != "Partitioner"]
        right = f"flwr-datasets has no such partitioner, only {', '.join(names)}"
        check(self.partitioner in names, "Flwr.partitioner", self.partitioner, right)
        return getattr(partitioner, self.partitioner)


def _parts(partitioner: Any, dataset: Any) -> list[Ints]:
    """The sorted `index` column of each part that a partitioner makes of a data set."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns before each new attempt, and raises an error in the end
        partitioner.dataset = dataset
        parts = [partitioner.load_partition(i)["index"] for i in range(partitioner.num_partitions)]
    return [np.sort(np.array(part, dtype=np.int64)) for part in parts]
