"""The loss and error at the points of a section. An interrupted survey can continue."""

from __future__ import annotations

import io
import time
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor, nn

from ....basics.arrays import Floats
from ....basics.files import replace_file
from ....basics.layout import Layout
from ....data.federated import FederatedData
from ....data.samples import Samples
from ....evaluation import Goal, Scorer
from ....settings.errors import RunError, check
from ..study import OnProgress, unseen
from .sections import Section

SAVING = 1.0
"""The time between two saves of a survey's numbers, in seconds."""


@dataclass(frozen=True, eq=False)
class Relief:
    """Mean `loss` and `error` (see `Criterion.error`) at the points of a section, each of the grid's shape.

    The first `done` points have been evaluated (the last index varies fastest); the others are NaN. `axes` and `places`
    are those of the section. `mark` is a checksum of the models and samples that the numbers belong to.
    """

    axes: tuple[Floats, ...]
    places: Floats
    loss: Floats
    error: Floats
    done: int
    mark: int

    def save(self, file: Path) -> None:
        """Write everything into an `.npz` file, completely or not at all."""
        content = io.BytesIO()
        arrays: dict[str, Any] = {name: value for name, value in vars(self).items() if name != "axes"}
        arrays |= {f"axis{i}": axis for i, axis in enumerate(self.axes)}
        np.savez(content, **arrays)
        replace_file(file, content.getvalue())

    @classmethod
    def load(cls, file: Path) -> Relief:
        """What `save` wrote. Raises `RunError` if the file is damaged."""
        try:
            with np.load(file) as found:
                axes = tuple(found[name] for name in sorted(found) if name.startswith("axis"))
                return cls(axes, found["places"], found["loss"], found["error"], int(found["done"]), int(found["mark"]))
        except (OSError, ValueError, KeyError, EOFError, TypeError, BadZipFile) as error:
            raise RunError(f"{file} is damaged: remove it, and the study begins anew") from error


class Landscape:
    """Evaluates the points of sections on `samples` of the federated `data`: its test set, or some that train.

    `layout` is that of the models. `goal` has the loss and the metric that decides. `batch` samples pass through the
    model at once. Module, samples and sections must be on one device. The numbers at a point are equal to those of an
    evaluation of its model. Points are evaluated one by one, because stacked models would need grouped convolutions,
    which are slower.
    """

    def __init__(
        self,
        module: nn.Module,
        layout: Layout,
        data: FederatedData,
        samples: Samples,
        goal: Goal,
        batch: int = 500,
    ) -> None:
        self._scorer = Scorer(module, layout, goal, data.problem, batch)
        self._samples = samples
        self._criterion = goal.criterion
        self._layout = layout

    def at(self, w: Tensor) -> tuple[float, float]:
        """Mean loss and error of the model `w` `[D]`. Variances below 0, as beyond a section's models, count as 0."""
        w = torch.where(self._layout.mask("running_var", w.device), w.clamp(min=0), w)
        found = self._scorer.values(w, self._samples)
        return found["loss"], self._criterion.error_of(found[self._criterion.name])

    def over(self, section: Section, file: Path | None = None, progress: OnProgress = unseen) -> Relief:
        """Mean loss and error at every point of a section.

        With a `file`, the numbers so far are saved every second, and at the end or on any interruption. The next call
        continues from them, with the same bytes as without an interruption. `progress(done, points)` is called after
        every point.

        Raises `ValueError` if the file holds other models, another grid or other samples.
        """
        relief = self._begun(section, file)
        saved = time.monotonic()
        loss = relief.loss.ravel()
        error = relief.error.ravel()  # views: writing to them fills the relief
        try:
            for done in range(relief.done, loss.size):
                found = self.at(section.point(*map(int, np.unravel_index(done, section.shape))))
                (loss[done], error[done]), relief = found, replace(relief, done=done + 1)
                if file is not None and time.monotonic() > saved + SAVING:
                    relief.save(file)
                    saved = time.monotonic()
                progress(done + 1, loss.size)
        finally:
            if file is not None:
                relief.save(file)
        return relief

    def _begun(self, section: Section, file: Path | None) -> Relief:
        """The numbers of a section so far."""
        mark = _checksum(section.vectors, self._samples.y, *map(torch.from_numpy, (section.places, *section.axes)))
        if file is None or not file.exists():
            loss, error = (np.full(section.shape, np.nan) for _ in range(2))
            return Relief(section.axes, section.places, loss, error, 0, mark)
        relief = Relief.load(file)
        right = "holds other models, another grid or other samples: give another file, or remove this one"
        check(relief.mark == mark, "Landscape.over: file", str(file), right)
        return relief


def _checksum(*tensors: Tensor) -> int:
    value = 0
    for tensor in tensors:
        value = zlib.crc32(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data, value)
    return value
