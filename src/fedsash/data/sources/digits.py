"""scikit-learn's digits, which need no download."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ...settings.errors import library
from ...settings.limits import Fraction
from ..samples import Samples
from ..transform import Transform
from .source import NamedDataset, Source, hold_out


@dataclass(frozen=True)
class Digits(NamedDataset, name="digits"):
    """scikit-learn's 1,797 handwritten digits of 8x8 pixels; needs no download.

    Features are float32 `[n, 64]` in [0, 1].

    Raises `SettingError` unless 0 <= `test` < 1, and `LibraryError` without scikit-learn.
    """

    test: Fraction = 0.2
    """the share of the samples that becomes the test set"""
    images: bool = False
    """whether samples are raw images, uint8 `[n, 8, 8, 1]`, in place of features"""

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
