"""Where samples come from: scikit-learn's digits, and images in the Hugging Face form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ..checks import check
from ..randomness import Purpose, generator
from . import reading
from .cache import cached
from .errors import library
from .federated import CLASSIFICATION, FederatedData, Samples
from .partitions.common import by_class
from .tasks import Task
from .transform import Transform

_HELD_OUT = 1  # keeps this draw apart from the partition's own


@dataclass(frozen=True, eq=False)
class Source:
    """Samples before they are shared out; fields as in `FederatedData`."""

    train: Samples
    test: Samples | None
    classes: int
    transform: Transform
    label_names: tuple[str, ...] = ()
    domain_names: tuple[str, ...] = ()
    task: Task = CLASSIFICATION

    def partition(self, rule: Callable[..., list[NDArray[np.int64]]], seed: int = 0) -> FederatedData:
        """Share the training samples out as `rule(labels, seed)` says.

        A rule whose `by` names other fields of the samples is called with these, in that order: `("domain", "y")`.
        Raises `ValueError` if the samples do not have one of them.
        """
        given = []
        for name in getattr(rule, "by", ("y",)):
            numbers = getattr(self.train, name)
            right = f"it shares out by {name}, which these data do not have"
            check(numbers is not None, type(rule).__name__, rule, right)
            given.append(numbers.cpu().numpy())
        return FederatedData(**vars(self), clients=rule(*given, seed))


@dataclass(frozen=True)
class Digits:
    """scikit-learn's 1,797 handwritten digits of 8x8 pixels; needs no download.

    Features are float32 `[n, 64]` in [0, 1], or with `images` raw images, uint8 `[n, 8, 8, 1]`. The share `test` is
    held out. Raises `ValueError` unless `test` is at least 0 and below 1, `ImportError` without scikit-learn.
    """

    test: float = 0.2
    images: bool = False

    def __post_init__(self) -> None:
        check(0 <= self.test < 1, "Digits.test", self.test, "must be at least 0 and below 1")

    def load(self, seed: int = 0) -> Source:
        """The digits; `seed` decides which of them are held out."""
        with library("scikit-learn", "scikit-learn"):
            from sklearn.datasets import load_digits
        pixels, labels = load_digits(return_X_y=True)  # whole numbers from 0 to 16
        x = torch.from_numpy(pixels.astype(np.float32) / 16)
        if self.images:
            x = (x * 255).round().to(torch.uint8).view(-1, 8, 8, 1)
        samples = Samples(x, torch.from_numpy(labels.astype(np.int64)))
        train, test = hold_out(samples, self.test, seed)
        return Source(train, test, 10, Transform(), tuple("0123456789"))


@dataclass(frozen=True)
class Images:
    """Labelled images of one size from a folder of Parquet files or the Hugging Face hub.

    `path` is a folder with `train.parquet` (or `train-00000-of-00002.parquet` and so on) as the hub serves it, or the
    name of a data set on the hub. `image`, `label` and `domain` name the columns; the image's is found by itself where
    it is called `image` or `img`, and a column called `domain` is used where there is one. `channels` (1 or 3) converts
    all images to grey or RGB. The test set is the split `test_split`; without such a split, the share `test` of each
    domain is held out (of all samples, where there are no domains). `mean`, `std`, `crop` and `flip` are `Transform`'s.

    Images are decoded once, and kept as tensors in the user's cache folder (`$FEDSASH_CACHE`).

    Raises `ValueError` for whatever is wrong with the folder, the columns or the images, `ImportError` if a library is
    missing, in one line each.
    """

    path: str
    image: str | None = None
    label: str = "label"
    domain: str | None = None
    channels: Literal[1, 3] | None = None
    train_split: str = "train"
    test_split: str = "test"
    test: float = 0.1
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    crop: int = 0
    flip: bool = False

    def __post_init__(self) -> None:
        check(self.path != "", "Images.path", self.path, "must be a folder or the name of a data set on the hub")
        check(self.channels in (None, 1, 3), "Images.channels", self.channels, "must be 1 (grey) or 3 (RGB)")
        check(self.test_split != self.train_split, "Images.test_split", self.test_split, "must not be train_split")
        check(0 <= self.test < 1, "Images.test", self.test, "must be at least 0 and below 1")
        _ = self.transform

    @property
    def transform(self) -> Transform:
        """What these settings do to an image."""
        return Transform(self.mean, self.std, self.crop, self.flip)

    def load(self, seed: int = 0) -> Source:
        """The images; `seed` decides which of them are held out, where there is no split for it."""
        splits = reading.find(self.path, [self.train_split, self.test_split])
        if self.test_split != "test":
            check(self.test_split in splits, "Images.test_split", self.test_split, "there is no such split")
        chosen = self._columns(reading.columns(splits))
        files = [file for split in splits.values() for file in split]
        how = [list(splits), *chosen, self.channels]
        tensors, info = cached(files, how, lambda: reading.decode(splits, *chosen, self.channels))

        def samples(split: str) -> Samples:
            return Samples(tensors[f"{split}.x"], tensors[f"{split}.y"], tensors.get(f"{split}.domain"))

        train = samples(self.train_split)
        test = samples(self.test_split) if self.test_split in splits else None
        if test is None:
            train, test = hold_out(train, self.test, seed)
        names, domains = tuple(info["y"]), tuple(info.get("domain", ()))
        return Source(train, test, len(names), self.transform, names, domains)

    def _columns(self, present: list[str]) -> tuple[str, str, str | None]:
        """The columns to read: as named, or as they are usually called."""
        image = self.image or next((name for name in ("image", "img") if name in present), "image")
        domain = self.domain or ("domain" if "domain" in present else None)
        for field, column in (("image", image), ("label", self.label), ("domain", domain)):
            right = f"there is no such column in {self.path}, only {', '.join(present)}"
            check(column is None or column in present, f"Images.{field}", column, right)
        return image, self.label, domain


def hold_out(samples: Samples, share: float, seed: int) -> tuple[Samples, Samples | None]:
    """Split off the `share` of each domain (of all samples, where there are none) at random; None for a share of 0.

    A pure function of the samples' order, `share` and `seed`. Both parts keep the samples' order.
    """
    if share == 0:
        return samples, None
    rng = generator(seed, Purpose.PARTITION, _HELD_OUT)
    domain = np.zeros(len(samples)) if samples.domain is None else samples.domain.numpy()
    held = np.zeros(len(samples), dtype=np.bool_)
    for members in by_class(domain, rng):
        held[members[: round(share * len(members))]] = True
    return samples[torch.from_numpy(~held)], samples[torch.from_numpy(held)]


DATASETS: dict[str, type[Digits] | type[Images]] = {"digits": Digits, "images": Images}
