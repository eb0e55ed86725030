"""New running statistics of BatchNorm for averages of models."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from ..data.encoded import split
from ..data.federated import FederatedData
from ..data.inputs import ModelInput, call
from ..data.samples import Samples
from ..settings.errors import check
from ..vector.arrays import Vectors
from ..vector.layout import Layout
from ..vector.norms import re_estimate
from .settings import Evaluation


class Calibration:
    """Gives the averages called `names` the running statistics of some training samples (`evaluation.calibration`).

    The samples are evenly spaced over those of all clients, and not augmented. BatchNorm has no variance over one
    sample, so batches have at least two; one that is left over is left out. Without such averages, and for a model
    without statistics, it changes nothing.

    Raises `SettingError` if the samples are not in this process, or if there is only one.
    """

    def __init__(
        self,
        module: nn.Module,
        layout: Layout,
        data: FederatedData | None,
        evaluation: Evaluation,
        names: Collection[str],
    ) -> None:
        self._module = copy.deepcopy(module)
        self._layout = layout
        self._data = data
        self._evaluation = evaluation
        self._names = frozenset(names) if layout.norms else frozenset()
        if not self._names:
            return
        place = f"averages.{min(self._names)}.buffers"
        requirement = "must be 'average' or 'latest': the clients' samples are not in this process"
        check(data is not None, place, "re-estimate", requirement)
        requirement = "must be at least 2, and so must all training samples: BatchNorm has no variance over one"
        check(self._count > 1, "evaluation.calibration", evaluation.calibration, requirement)

    def values(self, averages: Vectors) -> Vectors:
        """The averages `[D]`, some of them with new statistics."""
        values: Vectors = {}
        for name, w in averages.items():
            values[name] = self._re_estimated(w) if name in self._names else w
        return values

    def _re_estimated(self, w: Tensor) -> Tensor:
        """The model `w` `[D]` with the statistics of the samples."""
        self._layout.load(self._module, w)
        re_estimate(self._module, self._layout.norms, self._inputs(), call)
        return self._layout.flatten(self._module)

    def _inputs(self) -> Iterator[ModelInput]:
        assert self._data is not None
        for x in split(self._samples.x, self._batch):
            yield self._data.transform.inputs(x, self._layout.dtype)

    @property
    def _batch(self) -> int:
        return max(self._evaluation.batch, 2)

    @property
    def _count(self) -> int:
        assert self._data is not None
        return min(self._evaluation.calibration, int(self._data.sizes.sum()))

    @cached_property
    def _samples(self) -> Samples:
        assert self._data is not None
        members = np.sort(np.concatenate(self._data.clients))
        count = self._count
        if count % self._batch == 1:  # the last batch would have one sample
            count -= 1
        index = torch.from_numpy(members[np.arange(count) * len(members) // count])
        return self._data.train[index.to(self._data.train.y.device)]
