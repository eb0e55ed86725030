"""What several networks are built from: normalisation layers and heads."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from ..settings.errors import ModelError, check
from ..vector.private_torch import Norm, is_batch_norm, is_instance_norm


def group_norm(module: nn.Module, groups: int = 2) -> nn.Module:
    """A copy of `module` with GroupNorm in place of every layer that `batch_norms` names. `module` is not changed.

    `groups` is 2 in IMA. Affine values, eps, dtype and device are kept. The running statistics are lost: a model that
    was trained with them must be trained on. A layer that is used twice stays one layer. InstanceNorm with running
    statistics becomes GroupNorm with one group for each channel, which is InstanceNorm without them.

    timm's layers of a norm with its dropout and activation become a sequence of the three.

    Raises `SettingError`, naming the layer, if its channels are not a multiple of `groups`, and `ModelError` if its
    class computes more than PyTorch's.
    """
    check(groups > 0, "group_norm.groups", groups, "must be at least 1")
    model = nn.ModuleList([copy.deepcopy(module)])  # so that the root has a parent, as set_submodule needs
    converted: dict[nn.Module, nn.Module] = {}
    for name, layer in list(model.named_modules(remove_duplicate=False)):
        if not is_batch_norm(layer):
            continue
        if layer not in converted:
            # The name in `module`, without that of its place in the list; the root has none.
            own_name = name.removeprefix("0").removeprefix(".") or type(layer).__name__
            norm = _convert(layer, own_name, groups)
            converted[layer] = _with_rest(layer, norm, own_name)
        model.set_submodule(name, converted[layer])
    return model[0]


# Layers that compute a norm and nothing else.
_FORWARDS = (nn.BatchNorm2d.forward, nn.InstanceNorm2d.forward, nn.SyncBatchNorm.forward)


def _convert(layer: Norm, name: str, groups: int) -> nn.GroupNorm:
    """GroupNorm with the layer's affine parameters themselves."""
    channels = layer.num_features
    if is_instance_norm(layer):
        groups = channels
    place = f"group_norm: channels of layer {name!r}"
    check(channels % groups == 0, place, channels, f"must be a multiple of groups = {groups}")
    norm = nn.GroupNorm(groups, channels, layer.eps, affine=False)
    norm.affine = layer.affine
    norm.weight = layer.weight
    norm.bias = layer.bias
    return norm.train(layer.training)


def _with_rest(layer: nn.Module, norm: nn.GroupNorm, name: str) -> nn.Module:
    """The norm, followed by what else its `layer` computes, if anything."""
    if type(layer).forward in _FORWARDS:
        return norm
    children = dict(layer.named_children())
    if children.keys() != {"drop", "act"}:  # those of timm's BatchNormAct2d
        kind = type(layer).__name__
        raise ModelError(f"layer {name!r} is a {kind}, which may do more than normalise: replace it yourself")
    return nn.Sequential(norm, children["drop"], children["act"])


def network(features: nn.Module, classifier: nn.Module) -> nn.Sequential:
    """A network of two parts, by these names: averages and personal parts may be one of them."""
    return nn.Sequential(OrderedDict(features=features, classifier=classifier))


def max_of_relu(size: int) -> tuple[nn.MaxPool2d, nn.ReLU]:
    """ReLU -> maxpool in the other order: the same numbers and gradients, and ReLU has only a size^2-th to do."""
    return nn.MaxPool2d(size), nn.ReLU()


def image(model: str, shape: Sequence[int], smallest: int) -> tuple[int, int, int]:
    """`shape` as (channels, height, width). Raises `SettingError` if it is not one, or a side is below `smallest`."""
    is_image = len(shape) == 3 and shape[0] > 0 and min(shape[1:]) >= smallest
    requirement = f"must be (channels, height, width) with sides of at least {smallest} pixels"
    check(is_image, f"{model}: shape of one input", tuple(shape), requirement)
    channels, height, width = shape
    return channels, height, width
