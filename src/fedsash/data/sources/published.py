"""The papers' data sets by name: one class with few options for each, over one table."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits
from typing import ClassVar, Literal

import numpy as np
import torch

from ...settings.errors import check, library
from ...settings.limits import Count, Fraction, Gigabytes
from ...vector.randomness import Purpose, generator
from ..samples import Samples
from ..source import NamedDataset, Source, hold_out
from ..transform import Transform
from .formats.memory import UNPACKED
from .formats.pixels import PixelFormat
from .images import Decode, ReadingSettings, load

log = logging.getLogger("fedsash")
_CHOSEN = 2  # makes this draw independent of the partition's draws and of the test set's

IMAGENET = Transform((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
DIGIT_FIVE = ("mnist", "svhn", "usps", "synthdigits", "mnistm")


@dataclass(frozen=True)
class DatasetInfo:
    """Facts about a data set: its name on the hub, how it is read, and the sizes of its training and test sets.

    `fetch` tells the user what to download if the data set is not on the hub.
    """

    hub: str
    settings: ReadingSettings
    sizes: tuple[int, int] | None = None
    fetch: str = ""


CATALOGUE = {
    "mnist": DatasetInfo(
        "ylecun/mnist", ReadingSettings(pixel_format=PixelFormat(1), counts={"y": 10}, shape=(28, 28)), (60_000, 10_000)
    ),
    "fashion_mnist": DatasetInfo(
        "zalando-datasets/fashion_mnist",
        ReadingSettings(pixel_format=PixelFormat(1), counts={"y": 10}, shape=(28, 28), names=FASHION),
        (60_000, 10_000),
    ),
    "cifar10": DatasetInfo(
        "uoft-cs/cifar10",
        ReadingSettings(
            pixel_format=PixelFormat(3),
            transform=Transform((0.491, 0.482, 0.447), (0.247, 0.243, 0.262), crop=4, flip=True),
            counts={"y": 10},
            shape=(32, 32),
        ),
        (50_000, 10_000),
    ),
    "cifar100": DatasetInfo(
        "uoft-cs/cifar100",
        ReadingSettings(
            columns={"y": "fine_label", "coarse": "coarse_label"},
            pixel_format=PixelFormat(3),
            transform=Transform((0.507, 0.487, 0.441), (0.267, 0.256, 0.276), crop=4, flip=True),
            counts={"y": 100, "coarse": 20},
            shape=(32, 32),
        ),
        (50_000, 10_000),
    ),
    "femnist": DatasetInfo(
        "flwrlabs/femnist",
        ReadingSettings(
            columns={"y": "character", "user": "writer_id"},
            pixel_format=PixelFormat(1, negative=True),
            counts={"y": 62},
            shape=(28, 28),
            names=tuple(digits + ascii_uppercase + ascii_lowercase),
        ),
    ),
    "landmarks": DatasetInfo(
        "",
        ReadingSettings(
            columns={"y": "class", "user": "user_id"},
            pixel_format=PixelFormat(3),
            transform=replace(IMAGENET, flip=True),
        ),
        (164_172, 19_526),
        "the hub has no such set: fetch Landmarks-User-160k's federated_train.csv and test.csv and the images of "
        "Google Landmarks v2 that they list, and set path to the folder with the lists and images/",
    ),
    "digit_five": DatasetInfo(
        "",
        ReadingSettings(
            pixel_format=PixelFormat(3, 28),
            transform=Transform((0.5,) * 3, (0.5,) * 3),
            counts={"y": 10},
            decode="once",
        ),
        fetch="the hub has no such set: fetch the five data sets (or FedBN's files) and set path to a folder with one "
        f"folder for each of {', '.join(DIGIT_FIVE)}",
    ),
    "pacs": DatasetInfo(
        "flwrlabs/pacs",
        ReadingSettings(pixel_format=PixelFormat(3, zoom=256 / 224), transform=IMAGENET, counts={"y": 7, "domain": 4}),
        (9991, 0),
    ),
    "tiny_imagenet": DatasetInfo(
        "zh-plus/tiny-imagenet",
        ReadingSettings(
            pixel_format=PixelFormat(3),
            test_split="valid",
            transform=replace(IMAGENET, crop=4, flip=True),
            counts={"y": 200},
        ),
        (100_000, 10_000),
    ),
}


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
        with library("scikit-learn", "these data", "fedsash[lab]"):
            from sklearn.datasets import load_digits
        pixels, labels = load_digits(return_X_y=True)  # whole numbers from 0 to 16
        x = torch.from_numpy(pixels.astype(np.float32) / 16)
        if self.images:
            x = (x * 255).round().to(torch.uint8).view(-1, 8, 8, 1)
        samples = Samples(x, torch.from_numpy(labels.astype(np.int64)))
        train, test = hold_out(samples, self.test, seed)
        return Source(train, test, 10, Transform(), tuple("0123456789"))


@dataclass(frozen=True)
class PublishedImages(NamedDataset):
    """A published data set."""

    path: str = ""
    """a folder with it, in any form; left out: it is fetched from the hub"""
    unpacked: Gigabytes = field(default=UNPACKED, kw_only=True)
    """how many GB of memory a packed file may take, as of `Images`"""
    name: ClassVar[str]

    @property
    def settings(self) -> ReadingSettings:
        """How it is read, and how its images are changed."""
        return replace(CATALOGUE[self.name].settings, unpacked=self.unpacked)

    def load(self, seed: int = 0) -> Source:
        """The samples. Without a test split, `seed` decides which of them become the test set."""
        info = CATALOGUE[self.name]
        path = self.path or info.hub
        check(path != "", "path", self.path, info.fetch)
        source = load(path, self.settings, seed)
        train_size = len(source.train)
        test_size = 0
        if source.test is not None:
            test_size = len(source.test)
        if info.sizes not in (None, (train_size, test_size), (train_size + test_size, 0)):
            line = "%s: %s training and %s test images, where the published data have %s and %s"
            log.warning(line, self.name, train_size, test_size, *info.sizes)
        return source


@dataclass(frozen=True)
class MNIST(PublishedImages, name="mnist"):
    """MNIST: 60,000 + 10,000 grey digits of 28x28 (LeCun et al. 1998), values in [0, 1] (FedWindow)."""

    path: str = ""
    """a folder with its idx files, plain or `.gz`, or in the hub's form; left out: it is fetched from the hub"""
    name = "mnist"


@dataclass(frozen=True)
class FashionMNIST(PublishedImages, name="fashion_mnist"):
    """Fashion-MNIST: 60,000 + 10,000 grey images of 28x28, 10 classes (Xiao et al. 2017), values in [0, 1] (IMA)."""

    path: str = ""
    """a folder with its idx files, plain or `.gz`, or in the hub's form; left out: it is fetched from the hub"""
    name = "fashion_mnist"


@dataclass(frozen=True)
class CIFAR10(PublishedImages, name="cifar10"):
    """CIFAR-10: 50,000 + 10,000 colour images of 32x32, 10 classes (Krizhevsky 2009; IMA, WiMA, FedWindow).

    Normalised as in IMA.
    """

    path: str = ""
    """a folder with its pickles (`data_batch_1` to `test_batch`), or in the hub's form; left out: it is fetched from
    the hub"""
    augment: bool = True
    """whether clients train on random crops (with a border of 4 pixels) and mirrored images, as in WiMA; IMA does not
    augment"""
    name = "cifar10"

    @property
    def settings(self) -> ReadingSettings:
        return _plain_unless(self.augment, super().settings)


@dataclass(frozen=True)
class CIFAR100(PublishedImages, name="cifar100"):
    """CIFAR-100: 50,000 + 10,000 colour images of 32x32, 100 classes in 20 groups (Krizhevsky 2009; WiMA, IMA, FedSWA).

    Normalised by its own mean and standard deviation.
    """

    path: str = ""
    """a folder with its pickles (`train`, `test`, `meta`), or in the hub's form; left out: it is fetched from the
    hub"""
    labels: Literal["fine", "coarse"] = "fine"
    """which labels are learned: `"fine"`, the 100 classes, or `"coarse"`, the 20 groups"""
    augment: bool = True
    """whether clients train on random crops (with a border of 4 pixels) and mirrored images"""
    name = "cifar100"

    @property
    def settings(self) -> ReadingSettings:
        return replace(_plain_unless(self.augment, super().settings), labels=self.labels)


@dataclass(frozen=True)
class FEMNIST(PublishedImages, name="femnist"):
    """FEMNIST: about 800,000 digits and letters of 28x28, 62 classes, by writer (Caldas et al. 2018; FedJAX, WiMA).

    Values are in [0, 1], with ink 1 and paper 0 as in FedJAX; the files store the opposite.
    """

    path: str = ""
    """a folder with LEAF's JSON files (`train/` and `test/`, or `all_data_*.json`), or in the hub's form; left out: it
    is fetched from the hub"""
    test: Fraction = 0.1
    """the share of each writer's samples that becomes the test set, if there is no test split"""
    name = "femnist"

    @property
    def settings(self) -> ReadingSettings:
        return replace(super().settings, test=self.test)


@dataclass(frozen=True)
class Landmarks(PublishedImages, name="landmarks"):
    """Landmarks-User-160k: 164,172 photographs by 1,262 users, 2,028 classes (Hsu et al. 2020; WiMA).

    Normalised as for ImageNet.
    """

    path: str = ""
    """a folder with the lists `federated_train.csv` and `test.csv` (columns `user_id`, `image_id`, `class`) and the
    images, as `images/ID.jpg` or as in the unpacked Google Landmarks v2. Or it is a folder of Parquet files with the
    columns `image`, `class` and `user_id`. It must be given: the hub has no such set"""
    size: Count = 224
    """the height and width in pixels to which the middle square of each image is scaled; the paper does not state its
    input size"""
    augment: bool = True
    """whether clients also train on mirrored images"""
    decode: Decode = field(default="auto", kw_only=True)
    """when images are decoded, as of `Images`"""
    name = "landmarks"

    @property
    def settings(self) -> ReadingSettings:
        return _plain_unless(self.augment, _large(super().settings, self.size, self.decode))


@dataclass(frozen=True)
class DigitFive(PublishedImages, name="digit_five"):
    """Digit-Five: 28x28 RGB digits of five domains, MNIST, SVHN, USPS, SynthDigits and MNIST-M (FedBN; IMA).

    Normalised by mean and standard deviation 0.5. If a domain has no test split, a tenth of it becomes the test set.
    """

    path: str = ""
    """a folder with one folder for each domain: `mnist`, `svhn`, `usps`, `synthdigits` and `mnist_m` (capitals, `-` and
    `_` do not matter). Each may have any form, also that of FedBN's own files. It must be given: the hub has no such
    set"""
    count: Count = 7438
    """how many training images of each domain are drawn at most, by default as many as in FedBN's files"""
    name = "digit_five"

    def load(self, seed: int = 0) -> Source:
        """The five domains, one after another. `seed` decides which samples are drawn for training and for the test."""
        check(self.path != "", "path", self.path, CATALOGUE[self.name].fetch)
        sources = [load(str(folder), self.settings, seed) for folder in self._folders()]
        names = sources[0].label_names
        for domain, source in zip(DIGIT_FIVE, sources, strict=True):
            requirement = f"its classes must be called as those of {DIGIT_FIVE[0]}: {', '.join(names)}"
            check(source.label_names == names, f"path: {domain}", ", ".join(source.label_names), requirement)
        train = {}
        tests = {}
        for number, source in enumerate(sources):
            train[number] = self._drawn(source.train, seed, number)
            if source.test is not None:
                tests[number] = source.test
        test = None
        if tests:
            test = _joined(tests)
        return replace(sources[0], train=_joined(train), test=test, domain_names=DIGIT_FIVE)

    def _folders(self) -> Iterator[Path]:
        root = Path(self.path).expanduser()
        check(root.is_dir(), "path", self.path, "there is no such folder")
        subfolders = {}
        for subfolder in root.iterdir():
            if subfolder.is_dir():
                subfolders[re.sub("[-_]", "", subfolder.name.lower())] = subfolder
        for domain in DIGIT_FIVE:
            requirement = f"must hold a folder for each of {', '.join(DIGIT_FIVE)}; there is none for {domain}"
            check(domain in subfolders, "path", self.path, requirement)
            yield subfolders[domain]

    def _drawn(self, samples: Samples, seed: int, domain: int) -> Samples:
        """At most `count` of a domain's samples, drawn by the seed, in the order of the samples."""
        if len(samples) <= self.count:
            return samples
        order = generator(seed, Purpose.PARTITION, _CHOSEN, domain).permutation(len(samples))[: self.count]
        order.sort()
        return samples[torch.from_numpy(order)]


@dataclass(frozen=True)
class PACS(PublishedImages, name="pacs"):
    """PACS: 9,991 images of 7 classes in 4 domains: photo, art painting, cartoon, sketch (Li et al. 2017; IMA).

    Normalised as for ImageNet.
    """

    path: str = ""
    """a folder with one folder for each domain and in it one for each class, or in the hub's form; left out: it is
    fetched from the hub"""
    size: Count = 224
    """the height and width of images in pixels: the shorter side is scaled to `256 / 224 * size`, and the middle
    `size x size` pixels are used"""
    test: Fraction = 0.1
    """the share of each domain that becomes the test set"""
    decode: Decode = field(default="auto", kw_only=True)
    """when images are decoded, as of `Images`"""
    name = "pacs"

    @property
    def settings(self) -> ReadingSettings:
        return replace(_large(super().settings, self.size, self.decode), test=self.test)


@dataclass(frozen=True)
class TinyImageNet(PublishedImages, name="tiny_imagenet"):
    """Tiny-ImageNet: 100,000 + 10,000 colour images of 64x64, 200 classes (Le and Yang 2015; FedSWA).

    Its validation images are the test set. Normalised as for ImageNet.
    """

    path: str = ""
    """the unpacked folder `tiny-imagenet-200`, or one in the hub's form; left out: it is fetched from the hub"""
    size: Count = 64
    """the height and width in pixels to which images are scaled (a vision transformer needs 224)"""
    augment: bool = True
    """whether clients train on random crops (with a border of 4 pixels) and mirrored images"""
    decode: Decode = field(default="auto", kw_only=True)
    """when images are decoded, as of `Images`"""
    name = "tiny_imagenet"

    @property
    def settings(self) -> ReadingSettings:
        return _plain_unless(self.augment, _large(super().settings, self.size, self.decode))


def _large(settings: ReadingSettings, size: int, decode: Decode) -> ReadingSettings:
    """The settings for images that are decoded to `size x size` pixels, at the time that `decode` says."""
    return replace(settings, pixel_format=replace(settings.pixel_format, size=size), decode=decode)


def _plain_unless(augment: bool, settings: ReadingSettings) -> ReadingSettings:
    """The settings, without crops and mirrored images unless `augment` asks for them."""
    if augment:
        return settings
    return replace(settings, transform=replace(settings.transform, crop=0, flip=False))


def _joined(parts: Mapping[int, Samples]) -> Samples:
    """Samples of several domains, by the number of each domain."""
    pixels = []
    labels = []
    domains = []
    for domain, part in parts.items():
        assert isinstance(part.x, torch.Tensor)  # images of Digit-Five are always decoded at once
        pixels.append(part.x)
        labels.append(part.y)
        domains.append(torch.full((len(part),), domain))
    return Samples(torch.cat(pixels), torch.cat(labels), torch.cat(domains))
