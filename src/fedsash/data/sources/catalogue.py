"""A table of the papers' image data sets, with one entry for each data set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from string import ascii_lowercase, ascii_uppercase, digits

from ..transform import Transform
from .formats.pixels import Look
from .images import ReadingSettings

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
        "ylecun/mnist", ReadingSettings(look=Look(1), counts={"y": 10}, shape=(28, 28)), (60_000, 10_000)
    ),
    "fashion_mnist": DatasetInfo(
        "zalando-datasets/fashion_mnist",
        ReadingSettings(look=Look(1), counts={"y": 10}, shape=(28, 28), names=FASHION),
        (60_000, 10_000),
    ),
    "cifar10": DatasetInfo(
        "uoft-cs/cifar10",
        ReadingSettings(
            look=Look(3),
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
            look=Look(3),
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
            look=Look(1, negative=True),
            counts={"y": 62},
            shape=(28, 28),
            names=tuple(digits + ascii_uppercase + ascii_lowercase),
        ),
    ),
    "landmarks": DatasetInfo(
        "",
        ReadingSettings(
            columns={"y": "class", "user": "user_id"}, look=Look(3), transform=replace(IMAGENET, flip=True)
        ),
        (164_172, 19_526),
        "the hub has no such set: fetch Landmarks-User-160k's federated_train.csv and test.csv and the images of "
        "Google Landmarks v2 that they list, and set path to the folder with the lists and images/",
    ),
    "digit_five": DatasetInfo(
        "",
        ReadingSettings(look=Look(3, 28), transform=Transform((0.5,) * 3, (0.5,) * 3), counts={"y": 10}, decode="once"),
        fetch="the hub has no such set: fetch the five data sets (or FedBN's files) and set path to a folder with one "
        f"folder for each of {', '.join(DIGIT_FIVE)}",
    ),
    "pacs": DatasetInfo(
        "flwrlabs/pacs",
        ReadingSettings(look=Look(3, zoom=256 / 224), transform=IMAGENET, counts={"y": 7, "domain": 4}),
        (9991, 0),
    ),
    "tiny_imagenet": DatasetInfo(
        "zh-plus/tiny-imagenet",
        ReadingSettings(
            look=Look(3), test_split="valid", transform=replace(IMAGENET, crop=4, flip=True), counts={"y": 200}
        ),
        (100_000, 10_000),
    ),
}
