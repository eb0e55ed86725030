"""BatchNorm keeps statistics of the data beside the parameters; a model that is one vector has no place for them."""

from __future__ import annotations

import copy

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.instancenorm import _InstanceNorm

from ..checks import check


def batch_norms(module: nn.Module) -> list[str]:
    """The names of the layers that keep, or depend on, statistics over samples.

    These are BatchNorm layers of every kind, and InstanceNorm layers that track running statistics. A module that is
    itself such a layer is named by its type.
    """
    return [name or type(layer).__name__ for name, layer in module.named_modules() if _is_batch_norm(layer)]


def group_norm(module: nn.Module, groups: int = 2) -> nn.Module:
    """A copy of `module` with GroupNorm in place of every layer that `batch_norms` names; `module` stays as it is.

    `groups` is 2 in IMA. Affine values, eps, dtype and device are kept, the running statistics go; a layer used
    twice stays one layer. InstanceNorm with running statistics gets one group a channel, which is InstanceNorm
    without them.
    Raises `ValueError`, naming the layer, where its channels are not a multiple of `groups`.
    """
    check(groups > 0, "group_norm.groups", groups, "must be at least 1")
    model = nn.ModuleList([copy.deepcopy(module)])  # so that the root has a parent, too
    converted: dict[nn.Module, nn.GroupNorm] = {}
    for name, layer in list(model.named_modules(remove_duplicate=False)):
        if _is_batch_norm(layer):
            if layer not in converted:
                converted[layer] = _convert(layer, name.removeprefix("0").removeprefix("."), groups)
            model.set_submodule(name, converted[layer])
    return model[0]


def _is_batch_norm(layer: nn.Module) -> bool:
    return isinstance(layer, _BatchNorm) or (isinstance(layer, _InstanceNorm) and layer.track_running_stats)


def _convert(layer: _NormBase, name: str, groups: int) -> nn.GroupNorm:
    channels = layer.num_features
    if isinstance(layer, _InstanceNorm):
        groups = channels
    field = f"group_norm: channels of layer {name or type(layer).__name__!r}"
    check(channels % groups == 0, field, channels, f"must be a multiple of groups = {groups}")
    norm = nn.GroupNorm(groups, channels, layer.eps, affine=False)
    norm.affine, norm.weight, norm.bias = layer.affine, layer.weight, layer.bias
    return norm.train(layer.training)
