"""The registry of data sets: scikit-learn's digits, own images, the papers' data sets, and plays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch

from ..settings.errors import library
from ..settings.limits import Fraction
from ..settings.typed import typed
from .images import Images
from .npy import NpyFiles
from .published import (
    CIFAR10,
    CIFAR100,
    FEMNIST,
    MNIST,
    PACS,
    DigitFive,
    FashionMNIST,
    Landmarks,
    PublishedImages,
    TinyImageNet,
)
from .samples import Samples
from .source import Source, hold_out
from .table import Table
from .text import Shakespeare
from .texts import Texts
from .transform import Transform


@dataclass(frozen=True)
@typed
class Digits:
    """scikit-learn's 1,797 handwritten digits of 8x8 pixels; needs no download.

    Features are float32 `[n, 64]` in [0, 1]; with `images` they are raw images, uint8 `[n, 8, 8, 1]`. The share `test`
    of the samples becomes the test set.

    Raises `SettingError` unless 0 <= `test` < 1, and `LibraryError` without scikit-learn.
    """

    test: Fraction = 0.2
    images: bool = False

    def load(self, seed: int = 0) -> Source:
        """The digits; `seed` decides which of them become the test set."""
        with library("scikit-learn", "these data", "scikit-learn"):
            from sklearn.datasets import load_digits
        pixels, labels = load_digits(return_X_y=True)  # whole numbers from 0 to 16
        x = torch.from_numpy(pixels.astype(np.float32) / 16)
        if self.images:
            x = (x * 255).round().to(torch.uint8).view(-1, 8, 8, 1)
        samples = Samples(x, torch.from_numpy(labels.astype(np.int64)))
        train, test = hold_out(samples, self.test, seed)
        return Source(train, test, 10, Transform(), tuple("0123456789"))


_Own: TypeAlias = type[Images] | type[NpyFiles] | type[Table] | type[Texts]
_Data: TypeAlias = _Own | type[Digits] | type[PublishedImages] | type[Shakespeare]

DATASETS: dict[str, _Data] = {
    "digits": Digits,
    "images": Images,
    "npy": NpyFiles,
    "table": Table,
    "texts": Texts,
    "mnist": MNIST,
    "fashion_mnist": FashionMNIST,
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
    "femnist": FEMNIST,
    "landmarks": Landmarks,
    "digit_five": DigitFive,
    "pacs": PACS,
    "tiny_imagenet": TinyImageNet,
    "shakespeare": Shakespeare,
}
