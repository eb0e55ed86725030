"""BatchNorm and its kin: which layers keep statistics of the data, and which of them are frozen."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import nn

from ..settings.errors import check
from .private_torch import Norm, is_batch_norm

STATISTIC_NAMES = ("running_mean", "running_var", "num_batches_tracked")
"""PyTorch's names of BatchNorm's statistics."""


def is_statistic(name: str) -> bool:
    """Whether a tensor's name in a state dictionary is that of one of BatchNorm's statistics."""
    return name.rpartition(".")[2] in STATISTIC_NAMES


def batch_norms(module: nn.Module) -> list[str]:
    """The names of the layers that keep, or depend on, statistics over samples (see `is_batch_norm`).

    If the module itself is such a layer, its name is its class.
    """
    names = []
    for name, layer in module.named_modules():
        if is_batch_norm(layer):
            names.append(name or type(layer).__name__)
    return names


def tracking(module: nn.Module) -> dict[str, Norm]:
    """The layers, by their names, whose running statistics training moves: those that are not frozen.

    A layer is frozen if it is in eval mode while the module itself is in train mode. A layer with
    `track_running_stats = False` has no running statistics.
    """
    frozen = _frozen(module)
    return {name: layer for name, layer in norms_of(module).items() if name not in frozen}


def norms_of(module: nn.Module) -> dict[str, Norm]:
    """The layers that have running statistics, by their names; some may be frozen (see `tracking`)."""
    norms = {}
    for name, layer in module.named_modules():
        if isinstance(layer, Norm) and layer.running_mean is not None:
            norms[name] = layer
    return norms


def mixes_samples(module: nn.Module) -> bool:
    """Whether training computes statistics over the samples of a batch, so that a sample's output depends on others."""
    frozen = _frozen(module)
    return any(is_batch_norm(layer) and name not in frozen for name, layer in module.named_modules())


def for_training(module: nn.Module) -> nn.Module:
    """A copy of the module in train mode. What is in eval mode, while the module itself is not, stays in it."""
    copied = copy.deepcopy(module)
    begin_training(copied)
    return copied


def begin_training(module: nn.Module) -> None:
    """Put the module into train mode by its own `train`, which may keep some layers in eval mode.

    Layers that are in eval mode in a module in train mode stay so, too.
    """
    frozen: list[nn.Module] = []
    if module.training:
        frozen = [layer for layer in module.modules() if not layer.training]
    module.train()
    for layer in frozen:
        layer.training = False


Inputs = TypeVar("Inputs")


@torch.no_grad()
def re_estimate(
    module: nn.Module, layers: Iterable[str], batches: Iterable[Inputs], forward: Callable[[nn.Module, Inputs], object]
) -> None:
    """Replace the running statistics of some layers by their means over batches, as `swa_utils.update_bn` of PyTorch.

    `layers` are names, `forward(module, batch)` passes a batch through the module. All other layers are in eval mode
    meanwhile: there is no dropout. Raises `SettingError` if there is no batch.
    """
    norms: list[Norm] = [module.get_submodule(name) for name in layers]  # type: ignore[misc]
    modes_before = [(layer, layer.training) for layer in module.modules()]
    momenta_before = [layer.momentum for layer in norms]
    hooks = [layer.register_forward_pre_hook(_PlainMean()) for layer in norms]
    count = 0
    try:
        module.eval()
        for layer in norms:
            layer.reset_running_stats()
            layer.train()
        for batch in batches:
            forward(module, batch)
            count += 1
    finally:
        for layer, momentum, hook in zip(norms, momenta_before, hooks, strict=True):
            hook.remove()
            layer.momentum = momentum
        for submodule, is_training in modes_before:
            submodule.training = is_training
    requirement = "must be at least one; a loader or a list can be read again, an iterator can not"
    check(count > 0, "batches", count, requirement)


class _PlainMean:
    """Lets a layer's statistics be their plain mean over its forward passes. PyTorch's `momentum = None` does it, too,
    but not for InstanceNorm, whose statistics it leaves as they are."""

    def __init__(self) -> None:
        self._passes = 0

    def __call__(self, layer: Norm, inputs: object) -> None:
        self._passes += 1
        layer.momentum = 1 / self._passes


def _frozen(module: nn.Module) -> set[str]:
    """The names of the frozen norm layers; none if the whole module is in eval mode."""
    if not module.training:
        return set()
    return {name for name, layer in module.named_modules() if isinstance(layer, Norm) and not layer.training}
