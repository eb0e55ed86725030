"""MobileNetV2 (Sandler et al. 2018) with GroupNorm, which WiMA trains on landmarks."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Annotated

from torch import Tensor, nn
from typing_extensions import Doc

from ..settings.errors import check
from .parts import image, network

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""For each stage: expansion t, channels c, number of blocks n, stride s of its first block (the paper's Table 2)."""


def mobilenet_v2_gn(
    shape: Sequence[int],
    classes: int,
    width: Annotated[
        float, Doc("the factor of all numbers of channels; of that of the last convolution only if it is above 1")
    ] = 1.0,
    groups: Annotated[int, Doc("how many groups GroupNorm has, which must divide 8")] = 2,
    stride: Annotated[int, Doc("the stride of the first convolution: 2, or 1 for small images")] = 2,
) -> nn.Module:
    """MobileNetV2 with GroupNorm (WiMA, Landmarks): 4,821,740 parameters for 2,028 classes, 2,236,682 for 10.

        conv 3x3 32 -> seven stages of inverted residuals -> conv 1x1 1280 -> mean over all positions -> fc classes

    Every convolution is followed by GroupNorm and, except the last one of a residual, by ReLU6. There is no dropout.
    Images may have any size. Numbers of channels are rounded to multiples of 8.

    WiMA states neither the number of groups nor the size of images. The default is two groups, as in its other
    networks. Initial convolutions are Kaiming normal (fan out), the classifier is normal with standard deviation 0.01
    and bias 0. `"timm:mobilenetv2_100"` has weights that were trained on ImageNet. Raises `SettingError` for a bad
    `width`, `groups` or `stride`.
    """
    channels, _, _ = image("mobilenet_v2_gn", shape, smallest=1)
    check(isfinite(width) and width > 0, "mobilenet_v2_gn.width", width, "must be a positive number")
    check(groups > 0 and 8 % groups == 0, "mobilenet_v2_gn.groups", groups, "must divide 8")
    check(stride in (1, 2), "mobilenet_v2_gn.stride", stride, "must be 1 or 2")
    first = _multiple(32 * width)
    last = _multiple(1280 * max(width, 1))
    layers = _convolution(channels, first, 3, groups, stride)
    before = first
    for expansion, unscaled, blocks, stage_stride in STAGES:
        after = _multiple(unscaled * width)
        layers.append(InvertedResidual(before, after, expansion, groups, stage_stride))
        for _ in range(blocks - 1):
            layers.append(InvertedResidual(after, after, expansion, groups, 1))
        before = after
    layers += _convolution(before, last, 1, groups)
    features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = network(features, nn.Linear(last, classes))
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out")
        elif isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.zeros_(layer.bias)
    return model


class InvertedResidual(nn.Module):
    """Expand by conv 1x1, filter each channel by conv 3x3, project by conv 1x1. `x` is added if the shapes agree."""

    def __init__(self, channels: int, width: int, expansion: int, groups: int, stride: int) -> None:
        super().__init__()
        inner = channels * expansion
        layers: list[nn.Module] = []
        if expansion > 1:
            layers += _convolution(channels, inner, 1, groups)
        layers += _convolution(inner, inner, 3, groups, stride, each=inner)
        convolution, norm, _ = _convolution(inner, width, 1, groups)
        layers += [convolution, norm]
        self.residual = nn.Sequential(*layers)
        self.adds = stride == 1 and channels == width

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.residual(x)
        if self.adds:
            return x + y
        return y


def _convolution(channels: int, width: int, side: int, groups: int, stride: int = 1, each: int = 1) -> list[nn.Module]:
    """A convolution, GroupNorm and ReLU6. `each` is the number of groups of channels of the convolution."""
    convolution = nn.Conv2d(channels, width, side, stride, padding=side // 2, groups=each, bias=False)
    return [convolution, nn.GroupNorm(groups, width), nn.ReLU6()]


def _multiple(channels: float) -> int:
    """The nearest multiple of 8; the next larger one if the nearest is below 0.9 * `channels`."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    if nearest < 0.9 * channels:
        return nearest + 8
    return nearest
