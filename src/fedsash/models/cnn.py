"""Plain convolutional networks: two of the IMA paper (Zhou et al.), one of FedSAM, and LeNet-5.

All but LeNet-5 differ in their width and their last features only. Channels and image size are those of the data. With
the papers' images the numbers of parameters are those of the papers. `SettingError` for images that are too small.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

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
    channels, *sides = image("lenet5", shape, smallest=12)
    padding = 2 if min(sides) < 32 else 0
    height, breadth = (((side + 2 * padding - 4) // 2 - 4) // 2 for side in sides)
    features = nn.Sequential(
        *(nn.Conv2d(channels, 6, 5, padding=padding), *max_of_relu(2)),
        *(nn.Conv2d(6, 16, 5), *max_of_relu(2)),
        nn.Flatten(),
        *(nn.Linear(16 * height * breadth, 120), nn.ReLU()),
        *(nn.Linear(120, 84), nn.ReLU()),
    )
    return network(features, nn.Linear(84, classes))


def _cnn(model: str, shape: Sequence[int], classes: int, width: int, feature: int) -> nn.Module:
    channels, *sides = image(model, shape, smallest=16)
    height, breadth = (((side - 4) // 2 - 4) // 2 for side in sides)
    features = nn.Sequential(
        *(nn.Conv2d(channels, width, 5), *max_of_relu(2)),
        *(nn.Conv2d(width, width, 5), *max_of_relu(2)),
        nn.Flatten(),
        *(nn.Linear(width * height * breadth, 384), nn.ReLU()),
        *(nn.Linear(384, feature), nn.ReLU()),
    )
    return network(features, nn.Linear(feature, classes))
