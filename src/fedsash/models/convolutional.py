"""The papers' convolutional networks without residual connections.

All but LeNet-5 differ in their width and their last features only. Channels and image size are those of the data. With
the papers' images the numbers of parameters are those of the papers. `SettingError` for images that are too small.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Annotated, Literal

from torch import nn
from typing_extensions import Doc

from ..settings.errors import check_choice
from .parts import image, max_of_relu, network


def fmnist_cnn(shape: Sequence[int], classes: int) -> nn.Module:
    """CNN of width 32 (IMA, FashionMNIST): 274,026 parameters at 1x28x28 and 10 classes.

        c x H x W -> conv 5x5, c->32, no padding -> ReLU -> maxpool 2 -> conv 5x5, 32->32 -> ReLU -> maxpool 2
                  -> flatten -> fc 384 -> ReLU -> fc 128 -> ReLU -> fc classes

    PyTorch's default initialisation.

    The paper's Table 4 prints the first convolution twice and no ReLU before the classifier. This is the network of its
    published code.
    """
    return _cnn("fmnist_cnn", shape, classes, width=32, feature=128)


def cifar_cnn(shape: Sequence[int], classes: int) -> nn.Module:
    """CNN of width 64 (IMA, CIFAR-10): 772,682 parameters at 3x32x32 and 10 classes.

        c x H x W -> conv 5x5, c->64, no padding -> ReLU -> maxpool 2 -> conv 5x5, 64->64 -> ReLU -> maxpool 2
                  -> flatten -> fc 384 -> ReLU -> fc 128 -> ReLU -> fc classes

    PyTorch's default initialisation.
    """
    return _cnn("cifar_cnn", shape, classes, width=64, feature=128)


def cifar_lenet(shape: Sequence[int], classes: int) -> nn.Module:
    """CNN of width 64 and feature 192 (FedSAM, FedSWA, CIFAR-10): 797,962 parameters at 3x32x32 and 10 classes.

        c x H x W -> conv 5x5, c->64, no padding -> ReLU -> maxpool 2 -> conv 5x5, 64->64 -> ReLU -> maxpool 2
                  -> flatten -> fc 384 -> ReLU -> fc 192 -> ReLU -> fc classes

    PyTorch's default initialisation.

    Caldarola et al. 2022; FedSWA (Liu et al. 2025) calls it LeNet-5.
    """
    return _cnn("cifar_lenet", shape, classes, width=64, feature=192)


def lenet5(shape: Sequence[int], classes: int) -> nn.Module:
    """LeNet-5 (LeCun et al. 1998; FedWindow) with ReLU and max-pooling: 61,706 parameters at 1x28x28 and 10 classes.

        conv 5x5 6 -> ReLU -> maxpool 2 -> conv 5x5 16 -> ReLU -> maxpool 2 -> flatten
        -> fc 120 -> ReLU -> fc 84 -> ReLU -> fc classes

    Images smaller than 32 pixels are padded by 2 on all sides, as the original pads 28 pixels to 32.
    """
    channels, height, width = image("lenet5", shape, smallest=12)
    padding = 2 if min(height, width) < 32 else 0
    positions = _after_two_convolutions(height + 2 * padding) * _after_two_convolutions(width + 2 * padding)
    features = nn.Sequential(
        *(nn.Conv2d(channels, 6, 5, padding=padding), *max_of_relu(2)),
        *(nn.Conv2d(6, 16, 5), *max_of_relu(2)),
        nn.Flatten(),
        *(nn.Linear(16 * positions, 120), nn.ReLU()),
        *(nn.Linear(120, 84), nn.ReLU()),
    )
    return network(features, nn.Linear(84, classes))


def _cnn(model: str, shape: Sequence[int], classes: int, width: int, feature: int) -> nn.Module:
    """The network of `fmnist_cnn`, with other widths."""
    channels, image_height, image_width = image(model, shape, smallest=16)
    positions = _after_two_convolutions(image_height) * _after_two_convolutions(image_width)
    features = nn.Sequential(
        *(nn.Conv2d(channels, width, 5), *max_of_relu(2)),
        *(nn.Conv2d(width, width, 5), *max_of_relu(2)),
        nn.Flatten(),
        *(nn.Linear(width * positions, 384), nn.ReLU()),
        *(nn.Linear(384, feature), nn.ReLU()),
    )
    return network(features, nn.Linear(feature, classes))


def _after_two_convolutions(side: int) -> int:
    """The side of an image after twice a convolution 5x5 without padding and a pooling."""
    for _ in range(2):
        side = (side - 4) // 2
    return side


def digit_five_cnn(
    shape: Sequence[int],
    classes: int,
    variant: Annotated[
        Literal["code", "paper"], Doc('whose network: that of the published "code", or of the "paper"')
    ] = "code",
) -> nn.Module:
    """CNN with GroupNorm (IMA, Digit-Five): 806,090 parameters at 3x28x28 and 10 classes.

        conv 5x5 64, GN -> ReLU -> maxpool 2 -> conv 5x5 64, GN -> ReLU -> maxpool 2 -> conv 5x5 128, GN -> ReLU
        -> maxpool 2 -> flatten -> fc 384 -> ReLU -> fc 128 (the feature, without a ReLU) -> fc classes

    All convolutions keep the size. GroupNorm has two groups. PyTorch's default initialisation. This is the network of
    the published code. In the paper's Table 4 the first linear layer has 6272 inputs, so there is no third pooling, and
    2048 outputs: `variant = "paper"`, 13,423,434 parameters. Raises `SettingError` for images below 8 pixels or another
    variant.
    """
    channels, height, width = image("digit_five_cnn", shape, smallest=8)
    check_choice("digit_five_cnn.variant", variant, "code", "paper")
    poolings = 3
    hidden = 384
    last_pooling: nn.Module = nn.MaxPool2d(2)
    if variant == "paper":
        poolings = 2
        hidden = 2048
        last_pooling = nn.Identity()
    positions = (height // 2**poolings) * (width // 2**poolings)
    features = nn.Sequential(
        *(*_convolution(channels, 64), nn.MaxPool2d(2)),
        *(*_convolution(64, 64), nn.MaxPool2d(2)),
        *(*_convolution(64, 128), last_pooling),
        nn.Flatten(),
        *(nn.Linear(128 * positions, hidden), nn.ReLU()),
        nn.Linear(hidden, 128),
    )
    return network(features, nn.Linear(128, classes))


def _convolution(channels: int, width: int) -> tuple[nn.Module, ...]:
    """A convolution that keeps the size, GroupNorm and ReLU."""
    return nn.Conv2d(channels, width, 5, padding=2), nn.GroupNorm(2, width), nn.ReLU()


def femnist_cnn(shape: Sequence[int], classes: int) -> nn.Module:
    """CNN with dropout (FedJAX, WiMA, FEMNIST): 1,206,590 parameters at 1x28x28 and 62 classes.

        conv 3x3 32, no padding -> ReLU -> conv 3x3 64, no padding -> ReLU -> maxpool 2 -> dropout 0.25 -> flatten
        -> fc 128 -> ReLU -> dropout 0.5 -> fc classes

    Initial weights are normal with standard deviation 1/sqrt(fan in), truncated at two standard deviations; biases are
    0. FedJAX flattens with the channels last, which matters only if its weights are copied. Raises `SettingError` for
    images below 6 pixels.
    """
    channels, height, width = image("femnist_cnn", shape, smallest=6)
    positions = ((height - 4) // 2) * ((width - 4) // 2)
    features = nn.Sequential(
        *(nn.Conv2d(channels, 32, 3), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3), *max_of_relu(2)),
        *(nn.Dropout(0.25), nn.Flatten()),
        *(nn.Linear(64 * positions, 128), nn.ReLU(), nn.Dropout(0.5)),
    )
    model = network(features, nn.Linear(128, classes))
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            _start(layer)
    return model


def _start(layer: nn.Conv2d | nn.Linear) -> None:
    """Give a layer its initial values: truncated normal weights, and biases 0."""
    std = 1 / sqrt(layer.weight[0].numel())
    nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)


def alexnet_gn(
    shape: Sequence[int],
    classes: int,
    variant: Annotated[
        Literal["code", "paper"], Doc('whose network: that of the published "code", or of the "paper"')
    ] = "code",
) -> nn.Module:
    """AlexNet with GroupNorm and without dropout (IMA, PACS): 12,042,311 parameters for 7 classes.

        conv 11x11/4 64, GN -> ReLU -> maxpool 3/2 -> conv 5x5 192, GN -> ReLU -> maxpool 3/2
        -> conv 3x3 384, GN -> ReLU -> conv 3x3 256, GN -> ReLU -> conv 3x3 256, GN -> ReLU -> maxpool 3/2
        -> average pool to 6x6 -> flatten -> fc 1024 -> ReLU -> fc 128 -> ReLU (the feature) -> fc classes

    Images may have any size from 63 pixels; 224 pixels give 6x6 without the average pool. GroupNorm has 32 groups. This
    is the network of the published code. The paper has two groups and fc 4096 and 512: `variant = "paper"`, 42,326,087
    parameters. PyTorch's default initialisation. Raises `SettingError` for smaller images or another variant.
    """
    channels, _, _ = image("alexnet_gn", shape, smallest=63)
    check_choice("alexnet_gn.variant", variant, "code", "paper")
    groups = 32
    hidden = 1024
    feature = 128
    if variant == "paper":
        groups = 2
        hidden = 4096
        feature = 512
    features = nn.Sequential(
        *(nn.Conv2d(channels, 64, 11, stride=4, padding=2), nn.GroupNorm(groups, 64), nn.ReLU()),
        nn.MaxPool2d(3, stride=2),
        *(nn.Conv2d(64, 192, 5, padding=2), nn.GroupNorm(groups, 192), nn.ReLU()),
        nn.MaxPool2d(3, stride=2),
        *(nn.Conv2d(192, 384, 3, padding=1), nn.GroupNorm(groups, 384), nn.ReLU()),
        *(nn.Conv2d(384, 256, 3, padding=1), nn.GroupNorm(groups, 256), nn.ReLU()),
        *(nn.Conv2d(256, 256, 3, padding=1), nn.GroupNorm(groups, 256), nn.ReLU()),
        nn.MaxPool2d(3, stride=2),
        *(nn.AdaptiveAvgPool2d(6), nn.Flatten()),
        *(nn.Linear(256 * 6 * 6, hidden), nn.ReLU()),
        *(nn.Linear(hidden, feature), nn.ReLU()),
    )
    return network(features, nn.Linear(feature, classes))


STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))
"""The widths of the convolutions (configuration A of Simonyan and Zisserman 2015). Each stage ends with a pooling."""


def vgg11_gn(shape: Sequence[int], classes: int) -> nn.Module:
    """VGG-11 with GroupNorm (IMA): 9,292,938 parameters for 10 classes, 9,304,548 for 100.

    Eight convolutions 3x3 with bias, each followed by GroupNorm with two groups and ReLU. Then fc 512 -> 128 -> classes
    without ReLU or dropout. Images larger than 32 pixels leave several positions; their mean is taken, so the number of
    parameters is the same for all sizes. PyTorch's default initialisation. Raises `SettingError` for images below 32
    pixels.
    """
    channels, _, _ = image("vgg11_gn", shape, smallest=32)
    layers: list[nn.Module] = []
    for stage in STAGES:
        for width in stage:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.GroupNorm(2, width), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 128))
    return network(features, nn.Linear(128, classes))
