"""What goes into a model: one tensor, or several by position or by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from ..settings.errors import check

ModelInput: TypeAlias = Tensor | dict[str, Tensor]
"""What a model takes for a batch: a tensor, or tensors by name. The names "0", "1", ... stand for positions."""


class Inputs:
    """n samples of which each has several tensors, `[n, ...]` each, that go to the model together.

    A dict is passed by name, such as `model(input_ids=..., attention_mask=...)`. A list or tuple is passed by position.
    Indexing returns a `ModelInput`; `only` returns `Inputs`. Raises `SettingError` if the lengths differ.
    """

    ndim = 0  # no images

    def __init__(self, tensors: Mapping[str, Tensor] | Iterable[Tensor]) -> None:
        if isinstance(tensors, Mapping):
            self.tensors: dict[str, Tensor] = dict(tensors)
        else:
            self.tensors = {str(i): tensor for i, tensor in enumerate(tensors)}
        check(len(self.tensors) > 0, "Inputs", self.tensors, "must hold at least one tensor")
        lengths = {name: len(tensor) for name, tensor in self.tensors.items()}
        check(len(set(lengths.values())) == 1, "Inputs", lengths, "must have one row for each sample in every tensor")

    @property
    def first(self) -> Tensor:
        """The first of the tensors."""
        return next(iter(self.tensors.values()))

    @property
    def shape(self) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor by name."""
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.first.device

    def __len__(self) -> int:
        return len(self.first)

    def each(self, change: Callable[[Tensor], Tensor]) -> Inputs:
        """The inputs with every tensor changed."""
        return Inputs({name: change(tensor) for name, tensor in self.tensors.items()})

    def to(self, device: torch.device | str) -> Inputs:
        """The same inputs on `device`."""
        return self.each(lambda tensor: tensor.to(device))

    def only(self, index: Tensor) -> Inputs:
        """The samples at `index` (int64 or bool), in that order."""
        return self.each(lambda tensor: tensor[index])

    def __getitem__(self, index: Tensor | slice) -> ModelInput:
        return self.each(lambda tensor: tensor[index]).tensors

    def index_select(self, dim: int, index: Tensor) -> ModelInput:
        """The samples at `index` `[b]`; `dim` is 0."""
        return self.each(lambda tensor: tensor.index_select(0, index)).tensors

    def split(self, size: int) -> Iterable[ModelInput]:
        """All samples in batches of `size`."""
        for start in range(0, len(self), size):
            yield self[start : start + size]


def each(x: ModelInput, change: Callable[[Tensor], Tensor]) -> ModelInput:
    """The input with every tensor changed."""
    if isinstance(x, Tensor):
        return change(x)
    return {name: change(tensor) for name, tensor in x.items()}


def arguments(x: ModelInput) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """The positional and the named arguments with which a model is called."""
    if isinstance(x, Tensor):
        return (x,), {}
    if "0" in x:  # tensors by position
        return tuple(x.values()), {}
    return (), x


def call(module: nn.Module, x: ModelInput) -> Any:
    """All that the model returns for an input."""
    if isinstance(x, Tensor):
        return module(x)
    positional, named = arguments(x)
    return module(*positional, **named)
