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
        self._names = frozenset(names if self._layout.norms else ())
        place = f"averages.{min(self._names, default='')}.buffers"
        right = "must be 'average' or 'latest': the clients' samples are not in this process"
        check(not self._names or data is not None, place, "re-estimate", right)
        right = "must be at least 2, and so must all training samples: BatchNorm has no variance over one"
        check(not self._names or self._count > 1, "evaluation.calibration", evaluation.calibration, right)

    def values(self, averages: Vectors) -> Vectors:
        """The averages `[D]`, some of them with new statistics."""
        return {name: self._renewed(w) if name in self._names else w for name, w in averages.items()}

    def _renewed(self, w: Tensor) -> Tensor:
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
        count = self._count - (self._count % self._batch == 1)
        index = torch.from_numpy(members[np.arange(count) * len(members) // count])
        return self._data.train[index.to(self._data.train.y.device)]
