"""Damage to data of any form is one line that says what is wrong."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsash.data import Images
from support.forms import WRITERS, idx, leaf, pixels, png, python2, python3, rows, user_data, write, write_idx

pytestmark = pytest.mark.usefixtures("cache")

Damage = dict[str, Callable[[], object]]
"""What spoils good data, under the line that says so."""

TRAIN_X = "train-images-idx3-ubyte"
TRAIN_Y = "train-labels-idx1-ubyte"


def damaged_idx(folder: Path) -> Damage:
    x = pixels(6, 28, 28)
    y = np.arange(6, dtype=np.uint8)
    whole = idx(0x803, x)
    return {
        "size = 4715: must be 4720 bytes, for 6 x 28 x 28": lambda: write(folder / TRAIN_X, whole[:-5]),
        "size = 'more': must be 4720 bytes": lambda: write(folder / TRAIN_X, whole + b"x"),
        "size = 10: must be at least the 16 bytes of a header": lambda: write(folder / TRAIN_X, whole[:10]),
        "magic number = '0x00000801': must be 0x00000803": lambda: write(folder / TRAIN_X, idx(0x801, x)),
        "magic number = '0x00000000': must be 0x00000803": lambda: write(folder / TRAIN_X, b""),
        "number of labels = 5: must be 6, as many as there are": lambda: write(folder / TRAIN_Y, idx(0x801, y[:5])),
        "must hold train-labels-idx1-ubyte, plain or .gz": lambda: (folder / TRAIN_Y).unlink(),
        "is in several folders; choose one of": lambda: write_idx(folder / "again"),
        "can't be read: ": lambda: (
            write(folder / f"{TRAIN_X}.gz", gzip.compress(whole)[:-20]) and (folder / TRAIN_X).unlink()
        ),
    }


def damaged_cifar(folder: Path) -> Damage:
    x = pixels(12, 32, 32, 3)
    y = list(range(12))
    file = folder / "data_batch_2"
    good = {"labels": y[2:4], "data": rows(x[2:4])}
    return {
        "data_batch_2 can't be read: ": lambda: write(file, python2(good)[:-500]),
        "data_batch_2 is missing": file.unlink,
        "number of labels = 1: must be 2, the number of images": lambda: write(file, python2(good | {"labels": [1]})),
        "data = (2, 784): must be an array of 3072 numbers": lambda: write(
            file, python2(good | {"data": pixels(2, 784)})
        ),
        "keys = ['data']: must have the keys data and labels": lambda: write(file, python2({"data": rows(x[:1])})),
        "data_batch_2 = 'list': must be a dictionary": lambda: write(file, python2([1, 2])),
        "y = 'float64 [2]': must be whole numbers": lambda: write(file, python3(good | {"labels": [0.5, 1.0]})),
        "labels of train, row 2 = 10: must be 0 to 9": lambda: write(file, python2(good | {"labels": [10, 1]})),
    }


def damaged_leaf(folder: Path) -> Damage:
    file = folder / "train" / "all_data_0_niid_0_0.json"
    good = {"a": user_data(2), "b": user_data(3)}

    def user(**changes: Any) -> Callable[[], object]:
        return lambda: write(file, leaf({"a": good["a"] | changes}, num_samples=[2]))

    return {
        "can't be read: Expecting": lambda: write(file, leaf(good)[:2000] + b","),
        "can't be read: Unterminated string": lambda: write(file, leaf(good)[:4]),
        "'list': must have the keys users, num_samples and user_data": lambda: write(file, b"[]"),
        "num_samples = 1: must be one for each of 2 users": lambda: write(file, leaf(good, num_samples=[2])),
        "users = '2 names': must all differ; 1 do": lambda: write(
            file, leaf(good, users=["a", "a"], num_samples=[2, 2])
        ),
        "user c = []: must have x and y": lambda: write(file, leaf(good, users=["a", "c"])),
        "user a: number of y = 1: must be 2": user(y=[1]),
        "user a: x = [2, 3]: must be the pixels of square images": user(x=[[0.1] * 3] * 2),
        "user a: x: must have the same number of values for each image": user(x=[[0.1] * 4, [0.1] * 9]),
        "user a: x = 'a pixel out of range': must be numbers from 0 to 1": user(x=[[2.0] * 4] * 2),
        "user a: y = 0.5: must be whole numbers": user(y=[0.5, 1]),
        "train = 'train': images differ in size": user(x=[[0.5] * 4] * 2),
    }


def damaged_folders(folder: Path) -> Damage:
    listed = folder / "test" / "test_annotations.txt"
    return {
        "deep.png': must lie in": lambda: png(folder / "train/a/b/c/deep.png", pixels(1, 8, 8, 3)[0]),
        "9.png: size = (9, 9): must be (8, 8), as in row 0": lambda: png(
            folder / "train/dog/9.png", pixels(1, 9, 9, 3)[0]
        ),
        "3.png: the image can't be decoded": lambda: write(
            folder / "train/dog/3.png", (folder / "train/dog/3.png").read_bytes()[:-30]
        ),
        "0.png: the image can't be decoded": lambda: write(folder / "train/cat/0.png", b""),
        "'9.png': must have a line for every image": lambda: [
            png(folder / "test/images/9.png", pixels(1, 8, 8, 3)[0]),
            write(listed, b""),
        ],
        "'8.png': there are no such images": lambda: [
            png(folder / "test/images/9.png", pixels(1, 8, 8, 3)[0]),
            write(listed, b"9.png cat\n8.png dog\n"),
        ],
        "line = [2]: must be the name of an image and its class": lambda: [
            png(folder / "test/images/9.png", pixels(1, 8, 8, 3)[0]),
            write(listed, b"9.png cat\n8.png\n"),
        ],
    }


def damaged_landmarks(folder: Path) -> Damage:
    file = folder / "federated_train.csv"
    return {
        "row 1 = ['0', 'aaaaaaaa']: must have 3 values": lambda: write(file, b"user_id,image_id,class\n0,aaaaaaaa"),
        "class = 'x': must be a whole number": lambda: write(file, b"user_id,image_id,class\n0,aaaaaaaa,x"),
        "must list at least one image": lambda: write(file, b"user_id,image_id,class\n"),
        "image_id = 'nothing': there is no images/nothing.jpg": lambda: write(
            file, b"user_id,image_id,class\n0,nothing,3"
        ),
        "image_id = 'bbbbbbbb': there is no ": (folder / "images" / "bbbbbbbb.jpg").unlink,
        "must hold one list for train, not": lambda: write(folder / "mini_train.csv", b"user_id,image_id,class\n"),
    }


DAMAGE = {
    "idx": damaged_idx,
    "pickles": damaged_cifar,
    "leaf": damaged_leaf,
    "listed": damaged_landmarks,
    "folders": damaged_folders,
}


@pytest.mark.parametrize(("name", "line"), [(name, line) for name in DAMAGE for line in DAMAGE[name](Path())])
def test_damage_is_one_line_that_says_what_is_wrong(tmp_path: Path, name: str, line: str) -> None:
    WRITERS[name](tmp_path)
    size = 8 if name == "listed" else None
    Images(str(tmp_path), size=size).load()
    DAMAGE[name](tmp_path)[line]()
    with pytest.raises(ValueError) as caught:
        Images(str(tmp_path), size=size).load()
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
