"""A small valid data set in each form that fedsash reads, for the campaign to spoil."""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

Write = Callable[[Path], None]
Spoil = Callable[[Path], object]

MIB = 2**20
CANARY = "called"
"""The file that exists if code in the data was run. Data are read with their folder's parent as the working folder."""


def pixels(n: int, *shape: int) -> Any:
    """Random images `[n, *shape]`, always the same."""
    import numpy as np

    return np.random.default_rng(len(shape)).integers(0, 256, (n, *shape), dtype=np.uint8)


def write(file: Path, content: bytes) -> Path:
    """Write a file, with its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def encoded(image: Any, kind: str = "PNG") -> bytes:
    """An image file."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind)
    return buffer.getvalue()


def idx(array: Any) -> bytes:
    """An idx file of unsigned bytes."""
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + bytes(array.tobytes())


def write_idx(folder: Path, gz: bool = False) -> None:
    """The four files of MNIST, with 12 images each."""
    x = pixels(12, 8, 8)
    y = pixels(12) % 3
    for prefix in ("train", "t10k"):
        for name, array in (("images-idx3", x), ("labels-idx1", y)):
            content = idx(array)
            ending, content = (".gz", gzip.compress(content, mtime=0)) if gz else ("", content)
            write(folder / f"{prefix}-{name}-ubyte{ending}", content)


def write_cifar(folder: Path, protocol: int = 2) -> None:
    """CIFAR-10's files, with 2 images each."""
    names = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
    for k, name in enumerate(names):
        content = {b"data": pixels(12, 3072)[2 * k : 2 * k + 2], b"labels": [k % 3, 1], b"filenames": [b"a", b"b"]}
        write(folder / name, pickle.dumps(content, protocol))
    write(folder / "batches.meta", pickle.dumps({b"label_names": [b"one", b"two", b"three"]}, protocol))


def write_fedbn(folder: Path) -> None:
    """FedBN's files of one domain."""
    for k in range(11):
        content = pixels(4, 28, 28), pixels(4, 1).astype("int64") % 3
        write(folder / (f"train_part{k}.pkl" if k < 10 else "test.pkl"), pickle.dumps(content, 4))


def write_leaf(folder: Path) -> None:
    """LEAF's JSON of images."""
    for split in ("train", "test"):
        users = {name: {"x": (pixels(3, 16) / 255).tolist(), "y": [0, 1, 2]} for name in ("ann", "bob")}
        content = {"users": [*users], "num_samples": [3, 3], "user_data": users}
        write(folder / split / "all_data.json", json.dumps(content).encode())


def write_listed(folder: Path) -> None:
    """The lists and images of Landmarks."""
    for split in ("federated_train", "test"):
        rows = [["user_id", "image_id", "class"], *([str(k // 2), f"{split}{k}", str(k % 2)] for k in range(4))]
        text = io.StringIO()
        csv.writer(text).writerows(rows)
        write(folder / f"{split}.csv", text.getvalue().encode())
        for k in range(4):
            write(folder / "images" / f"{split}{k}.jpg", encoded(pixels(4, 8, 8, 3)[k], "JPEG"))


def write_folders(folder: Path, kind: str = "PNG") -> None:
    """A folder of images for each class. Pillow looks at what is in a file, and not at its name."""
    for split in ("train", "test"):
        for k in range(4):
            write(folder / split / "ab"[k % 2] / f"{k}.png", encoded(pixels(4, 8, 8, 3)[k], kind))


def write_annotated(folder: Path) -> None:
    """Tiny-ImageNet's form: a split with a list of classes."""
    write_folders(folder)
    for k in range(4):
        (folder / "test" / "ab"[k % 2] / f"{k}.png").rename(folder / "test" / f"{k}.png")
    lines = [f"{k}.png\t{'ab'[k % 2]}\t0\t0\n" for k in range(4)]
    write(folder / "test" / "val_annotations.txt", "".join(lines).encode())


def write_parquet(folder: Path, compression: str = "zstd") -> None:
    """The hub's form, with images, labels, domains and the labels' names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    features = {"image": {"_type": "Image"}, "label": {"names": ["a", "b"], "_type": "ClassLabel"}}
    about = {"huggingface": json.dumps({"info": {"features": features}})}
    for split in ("train", "test"):
        rows = [{"bytes": encoded(image), "path": f"{k}.png"} for k, image in enumerate(pixels(6, 8, 8, 3))]
        table = pa.table({"image": rows, "label": [0, 1] * 3, "domain": ["x", "y", "z"] * 2})
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.replace_schema_metadata(about), folder / f"{split}.parquet", compression=compression)


def write_play(folder: Path) -> None:
    """Plain text."""
    lines = [f"ROLE {k % 3}:\nwords of speech {k}\nand more of them.\n\n" for k in range(30)]
    write(folder / "play.txt", "".join(lines).encode())


def write_speeches(folder: Path) -> None:
    """LEAF's JSON of text."""
    text = "It was the best of times, it was the worst of times. " * 4
    pieces = [text[k : k + 80] for k in range(100)]
    users = {name: {"x": pieces, "y": [text[k + 80] for k in range(100)]} for name in ("ann", "bob")}
    content = {"users": [*users], "num_samples": [100, 100], "user_data": users}
    write(folder / "all_data" / "all_data.json", json.dumps(content).encode())


FORMS: dict[str, Write] = {
    "idx": write_idx,
    "idx_gz": lambda folder: write_idx(folder, gz=True),
    "cifar_0": lambda folder: write_cifar(folder, 0),
    "cifar_2": write_cifar,
    "cifar_5": lambda folder: write_cifar(folder, 5),
    "fedbn": write_fedbn,
    "leaf": write_leaf,
    "listed": write_listed,
    "png": write_folders,
    "jpeg": lambda folder: write_folders(folder, "JPEG"),
    "gif": lambda folder: write_folders(folder, "GIF"),
    "bmp": lambda folder: write_folders(folder, "BMP"),
    "tiff": lambda folder: write_folders(folder, "TIFF"),
    "webp": lambda folder: write_folders(folder, "WEBP"),
    "annotated": write_annotated,
    "parquet": write_parquet,
    "parquet_snappy": lambda folder: write_parquet(folder, "snappy"),
    "play": write_play,
    "speeches": write_speeches,
}
CHECKED = ("idx_gz", "png")
"""Forms with a checksum over all of their content: another result than the original's must not come out of them."""
SWAPPED = "another file in place"
"""The damage that no checksum notices, since each file is whole."""
TEXTS = ("play", "speeches")


def files(folder: Path) -> list[Path]:
    """The files of a data set, in one order everywhere."""
    return sorted(file for file in folder.rglob("*") if not file.is_dir())


def damage(folder: Path, chance: Random) -> str:
    """Spoil one file of a data set, and say how."""
    all_of_them = files(folder)
    file = chance.choice(all_of_them)
    content = file.read_bytes()
    name, changed = chance.choice(sorted(DAMAGES.items()))
    other = chance.choice(all_of_them).read_bytes()
    write(file, bytes(changed(bytearray(content), chance, other)))
    return f"{name} of {file.relative_to(folder)}"


def _cut(content: bytearray, chance: Random, other: bytes) -> bytes | bytearray:
    return content[
        : chance.choice([0, 1, 4, 8, 16, len(content) - 8, len(content) - 1, chance.randrange(len(content))])
    ]


def _flip(content: bytearray, chance: Random, other: bytes) -> bytes | bytearray:
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return content


def _header(content: bytearray, chance: Random, other: bytes) -> bytes | bytearray:
    place = chance.randrange(min(64, len(content)))
    size = chance.choice([1, 2, 4, 8])
    content[place : place + size] = chance.choice([b"\0", b"\xff", b"\x7f", b"\x80"]) * size
    return content


def _footer(content: bytearray, chance: Random, other: bytes) -> bytes | bytearray:
    place = len(content) - chance.randrange(1, min(512, len(content)) + 1)
    size = chance.choice([1, 2, 4, 8])
    content[place : place + size] = chance.choice([b"\0", b"\xff", b"\x7f", b"\x80"]) * size
    return content


def _extreme(content: bytearray, chance: Random, other: bytes) -> bytes | bytearray:
    place = chance.randrange(len(content))
    size = chance.choice([1, 2, 4, 8])
    content[place : place + size] = chance.choice([b"\0", b"\xff", b"\x7f", b"\x80"]) * size
    return content


def _noise(content: bytearray, chance: Random, other: bytes) -> bytes | bytearray:
    place = chance.randrange(len(content))
    content[place : place + 64] = chance.randbytes(64)
    return content


def _hole(content: bytearray, chance: Random, other: bytes) -> bytes | bytearray:
    place = chance.randrange(len(content))
    del content[place : place + chance.choice([1, 2, 4, 512])]
    return content


def _repeat(content: bytearray, chance: Random, other: bytes) -> bytes | bytearray:
    place = chance.randrange(len(content))
    return content[:place] + content[max(0, place - 64) :]


DAMAGES: dict[str, Callable[[bytearray, Random, bytes], bytes | bytearray]] = {
    "a part": _cut,
    "a flipped bit": _flip,
    "an extreme value in the header": _header,
    "an extreme value at the end": _footer,
    "an extreme value": _extreme,
    "noise": _noise,
    "a hole": _hole,
    "a repetition": _repeat,
    SWAPPED: lambda content, chance, other: other,
    "something behind the end": lambda content, chance, other: content + other[:100],
}
