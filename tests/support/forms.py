"""Every form of data, written as its makers write it, byte for byte."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedsash.data.sources.formats import find
from fedsash.data.sources.formats.splits import ImageSplits

Image = pytest.importorskip("PIL.Image", reason="fedsash[data] is not installed")

Pixels = NDArray[np.uint8]


def pixels(n: int, *shape: int, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (n, *(shape or (6, 5, 3))), dtype=np.uint8)


def prepared(source: Any) -> torch.Tensor:
    """What a model sees, `[n, channels, H, W]`."""
    return source.transform.prepare(source.train.x)


def table(folder: Path, test: str = "test") -> ImageSplits:
    return find(str(folder), ["train", test]).read({})


def write(file: Path, content: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


# idx, as the page of MNIST describes it.


def idx(magic: int, array: Pixels) -> bytes:
    return struct.pack(f">{1 + array.ndim}I", magic, *array.shape) + array.tobytes()


def write_idx(folder: Path, n: int = 6, gz: bool = False, dot: str = "-") -> tuple[Pixels, Pixels]:
    x, y = pixels(n, 28, 28), np.arange(n, dtype=np.uint8) % 10
    for prefix in ("train", "t10k"):
        for kind, magic, array in (("images", 0x803, x), ("labels", 0x801, y)):
            name = f"{prefix}-{kind}{dot}idx{array.ndim}-ubyte" + (".gz" if gz else "")
            content = idx(magic, array)
            write(folder / name, gzip.compress(content) if gz else content)
    return x, y


# CIFAR, as Python 2 pickled it.


def old(value: Any) -> bytes:
    """The opcodes of a value by Python 2's cPickle with protocol 2, without its memo."""
    if isinstance(value, dict):
        return b"}(" + b"".join(old(key) + old(inner) for key, inner in value.items()) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(old, value)) + b"e"
    if isinstance(value, str):
        return b"U" + bytes([len(value)]) + value.encode()
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    assert isinstance(value, np.ndarray)
    raw = value.tobytes()
    shape = b"(" + b"".join(map(old, value.shape)) + b"t"
    kind = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    begun = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
    return begun + b"(K\x01" + shape + kind + b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"


def python2(value: Any) -> bytes:
    return b"\x80\x02" + old(value) + b"."


def python3(value: Any) -> bytes:
    """The same with bytes as keys, as whoever has unpickled the files pickles them again."""
    return pickle.dumps({key.encode(): inner for key, inner in value.items()}, protocol=4)


def rows(x: Pixels) -> Pixels:
    """Images as CIFAR has them: all red values, then all green, then all blue."""
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)).reshape(len(x), -1)


def write_cifar10(folder: Path, dump: Callable[[Any], bytes] = python2) -> tuple[Pixels, list[int]]:
    x, y = pixels(12, 32, 32, 3), [i % 10 for i in range(12)]
    names = [f"data_batch_{i}" for i in range(1, 6)]
    for k, name in enumerate(names):
        part = slice(2 * k, 2 * k + 2)
        batch = {"batch_label": name, "labels": y[part], "data": rows(x[part]), "filenames": ["a.png", "b.png"]}
        write(folder / name, dump(batch))
    write(folder / "test_batch", dump({"batch_label": "test", "labels": y[10:], "data": rows(x[10:])}))
    write(folder / "batches.meta", dump({"num_cases_per_batch": 2, "label_names": [f"class {i}" for i in range(10)]}))
    return x, y


def write_cifar100(folder: Path) -> Pixels:
    x = pixels(100, 32, 32, 3)
    fine, coarse = list(range(100)), [i // 5 for i in range(100)]
    for name in ("train", "test"):
        write(folder / name, python2({"data": rows(x), "fine_labels": fine, "coarse_labels": coarse}))
    names = {"fine_label_names": [f"fine {i}" for i in fine], "coarse_label_names": [f"coarse {i}" for i in range(20)]}
    write(folder / "meta", python2(names))
    return x


def write_fedbn(folder: Path, n: int = 5, shape: tuple[int, ...] = (28, 28)) -> Pixels:
    """FedBN's files of one domain: ten parts and a test file, each a pair of arrays."""
    x = pixels(11 * n, *shape)
    y = np.arange(11 * n)[:, None] % 10
    for k in range(11):
        part = slice(k * n, (k + 1) * n)
        name = f"partitions/train_part{k}.pkl" if k < 10 else "test.pkl"
        write(folder / name, pickle.dumps((x[part], y[part])))
    return x


# LEAF.


def user_data(n: int, side: int = 28, seed: int = 0) -> dict[str, Any]:
    x = pixels(n, side, side, seed=seed) / 255
    return {"x": x.reshape(n, -1).tolist(), "y": [(seed + i) % 62 for i in range(n)]}


def leaf(data: dict[str, dict[str, Any]], **changes: Any) -> bytes:
    counts = [len(samples["y"]) for samples in data.values()]
    return json.dumps({"users": list(data), "num_samples": counts, "user_data": data} | changes).encode()


def write_leaf(folder: Path, split: bool = True) -> None:
    for k, part in enumerate(("train", "test") if split else ("", "")):
        for j in range(2):
            users = {f"f{2 * j + i:04d}_00": user_data(3 + i, seed=10 * j + i) for i in range(2)}
            write(folder / part / f"all_data_{j}_niid_0_{k}.json", leaf(users))


# Folders of images.


def png(file: Path, image: Pixels) -> Path:
    buffer = io.BytesIO()
    Image.fromarray(image.squeeze()).save(buffer, "PNG")
    return write(file, buffer.getvalue())


def classes(folder: Path, n: int = 2, names: tuple[str, ...] = ("cat", "dog"), seed: int = 0) -> list[Pixels]:
    images = list(pixels(n * len(names), 8, 8, 3, seed=seed))
    for i, image in enumerate(images):
        png(folder / names[i // n] / f"{i}.png", image)
    return images


# Landmarks.


def write_landmarks(folder: Path, layout: str = "images/{0}.jpg") -> list[str]:
    names = [f"{i:x}" * 8 for i in range(10, 16)]
    for i, name in enumerate(names):
        png(folder / layout.format(name, *name[:3]), pixels(1, 8 + i, 12, 3, seed=i)[0])
    train = "".join(f"{i // 2},{name},{i}\n" for i, name in enumerate(names[:4]))
    write(folder / "federated_train.csv", b"user_id,image_id,class\n" + train.encode())
    write(folder / "test.csv", b"image_id,class\n" + f"{names[4]},0\n{names[5]},3\n".encode())
    return names


# Whatever the form.

WRITERS: dict[str, Callable[[Path], object]] = {
    "idx": write_idx,
    "pickles": write_cifar10,
    "leaf": write_leaf,
    "listed": write_landmarks,
    "folders": lambda folder: classes(folder / "train"),
}
