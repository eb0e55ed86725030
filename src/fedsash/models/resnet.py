"""Residual networks with GroupNorm, as IMA and WiMA train them, or with BatchNorm.

    c x H x W -> conv 3x3, GN, ReLU -> stages of basic blocks -> global average pool -> linear layers

A basic block is `relu(residual(x) + shortcut(x))` with `residual` = conv 3x3, GN, ReLU, conv 3x3, GN. The first block
of every stage after the first halves height and width and has more channels; its shortcut does the same. No convolution
has a bias. Channels and image size are those of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Annotated, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import Doc

from ..settings.errors import check, check_choice
from .parts import image, network

Shortcut: TypeAlias = Callable[[int, int], nn.Module]


def resnet18_gn(
    shape: Sequence[int],
    classes: int,
    groups: Annotated[int, Doc("how many groups GroupNorm has, which must divide 64; 0: BatchNorm in its place")] = 2,
    variant: Annotated[Literal["ima", "fedswa"], Doc("whose network: that of IMA, or of FedSWA")] = "ima",
) -> nn.Module:
    """ResNet-18 with GroupNorm, CIFAR stem and projection shortcuts (IMA): 11,235,786 parameters for 10 classes.

    11,247,396 for 100 classes. The first convolution has stride 1 and no pooling. The stages have 2-2-2-2 blocks with
    64/128/256/512 channels. Shortcuts are conv 1x1, GN (option B of He et al. 2016). At the end fc 512 -> 128 ->
    classes, without a ReLU between. Initial convolutions are Kaiming normal (fan out); linear layers have PyTorch's
    default initialisation.

    `variant = "fedswa"` has fc 512 -> classes instead (Liu et al. 2025): 11,220,132 parameters for 100 classes, all
    with PyTorch's default initialisation. Raises `SettingError` for other `groups` or another variant.
    """
    channels, _, _ = image("resnet18_gn", shape, smallest=1)
    _check_groups("resnet18_gn", groups, 64)
    check_choice("resnet18_gn.variant", variant, "ima", "fedswa")
    trunk = _trunk(channels, (64, 128, 256, 512), 2, groups, partial(_project, groups=groups))
    if variant == "fedswa":
        return network(trunk, nn.Linear(512, classes))
    features = nn.Sequential(trunk, nn.Linear(512, 128))
    for layer in features.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return network(features, nn.Linear(128, classes))


def resnet20_gn(
    shape: Sequence[int],
    classes: int,
    groups: Annotated[int, Doc("how many groups GroupNorm has, which must divide 16; 0: BatchNorm in its place")] = 2,
) -> nn.Module:
    """ResNet-20 with GroupNorm and shortcuts without parameters (WiMA): 269,722 parameters for 10 classes.

    275,572 for 100 classes. The stages have 3-3-3 blocks with 16/32/64 channels and option-A shortcuts. WiMA states
    neither the number of groups nor the initial values. Here they are those of GHBM, code of the same research group:
    `groups = 2`, convolutions and the linear layer Kaiming normal (fan in, gain sqrt 2), biases as in PyTorch. Raises
    `SettingError` for other `groups`.
    """
    channels, _, _ = image("resnet20_gn", shape, smallest=1)
    _check_groups("resnet20_gn", groups, 16)
    features = _trunk(channels, (16, 32, 64), 3, groups, Subsample)
    model = network(features, nn.Linear(64, classes))
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
    return model


class Block(nn.Module):
    """Basic block: `relu(residual(x) + shortcut(x))`."""

    def __init__(self, channels: int, width: int, stride: int, groups: int, shortcut: nn.Module) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *(_conv(channels, width, stride), _norm(groups, width), nn.ReLU()),
            *(_conv(width, width, 1), _norm(groups, width)),
        )
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.residual(x) + self.shortcut(x))


class Subsample(nn.Module):
    """Option-A shortcut (He et al. 2016): every other pixel, with zero channels added up to `width`, half each side."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        before = (width - channels) // 2
        self.pad = (0, 0, 0, 0, before, width - channels - before)

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[..., ::2, ::2], self.pad)


def _project(channels: int, width: int, groups: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, width, 1, stride=2, bias=False), _norm(groups, width))


def _check_groups(name: str, groups: int, width: int) -> None:
    divides = groups > 0 and width % groups == 0
    requirement = f"must divide {width}, the smallest width, or be 0 for BatchNorm"
    check(groups == 0 or divides, f"{name}.groups", groups, requirement)


def _norm(groups: int, width: int) -> nn.Module:
    if groups == 0:
        return nn.BatchNorm2d(width)
    return nn.GroupNorm(groups, width)


def _conv(channels: int, width: int, stride: int) -> nn.Module:
    return nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)


def _trunk(channels: int, widths: tuple[int, ...], blocks: int, groups: int, shortcut: Shortcut) -> nn.Module:
    """From images to pooled features `[B, widths[-1]]`: the first convolution, then `blocks` blocks for each width."""
    first = widths[0]
    layers: list[nn.Module] = [_conv(channels, first, 1), _norm(groups, first), nn.ReLU()]
    for before, width in pairwise((first, *widths)):
        if width == before:  # only in the first stage, whose width the first convolution has
            layers.append(Block(width, width, 1, groups, nn.Identity()))
        else:
            layers.append(Block(before, width, 2, groups, shortcut(before, width)))
        for _ in range(blocks - 1):
            layers.append(Block(width, width, 1, groups, nn.Identity()))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
