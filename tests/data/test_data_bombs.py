"""Small files that would take gigabytes are refused before they do, and the limit can be raised."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsash.data import Images, Samples, Shakespeare
from fedsash.data.encoded import EncodedImages
from fedsash.data.sources.formats.pixels import Decoder, PixelFormat
from fedsash.data.sources.formats.splits import ImageSplit
from support.by_default import rotated
from support.forms import WRITERS, classes, leaf, pixels, png, python2, rows, user_data, write, write_cifar10, write_idx
from support.parquets import pa, pq
from support.parquets import write as write_parquet

pytestmark = pytest.mark.usefixtures("cache")

MIB = 2**20


def packed(count: int) -> bytes:
    return gzip.compress(bytes(MIB)) * count


def bombs(folder: Path) -> dict[str, Callable[[], object]]:
    """What spoils a folder with idx files or images, by the line that refuses it."""

    def idx(*shape: int, size: int = 1) -> None:
        (folder / "train-images-idx3-ubyte").unlink(missing_ok=True)
        header = gzip.compress(struct.pack(">4I", 0x803, *shape))
        write(folder / "train-images-idx3-ubyte.gz", header + packed(size))

    def image(header: bytes, body: bytes = b"") -> None:
        write(folder / "train" / "a" / "0.png", header + body)

    def dimensions(width: int, height: int) -> bytes:
        content = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        return b"\x89PNG\r\n\x1a\n\0\0\0\r" + content + struct.pack(">I", zlib.crc32(content)) + b"\0\0\0\1IDATx"

    return {
        "ubyte.gz: size in memory = '0.8 GB': from 8": lambda: idx(1000, 1000, 800, size=800),
        "ubyte.gz: size = 'more': must be 64 bytes": lambda: idx(3, 4, 4, size=100),
        "ubyte.gz: size in memory = '79228162458924105728.0 GB'": lambda: idx(*[2**32 - 1] * 3),
        "0.png: size in memory = '0.7 GB': from 42 bytes it may be at most 0.5 GB; set unpacked = 0.7": lambda: image(
            dimensions(13_000, 13_000)
        ),
        "0.png: size in memory = '18446744056.5 GB'": lambda: image(dimensions(2**31 - 1, 2**31 - 1)),
        "0.png: size in memory = '14.4 GB'": lambda: image(b"P6 60000 60000 255\n"),
        "0.png: the image can't be decoded (it is none of JPEG, PNG": lambda: image(b"%!PS-Adobe-3.0 EPSF-3.0\n"),
    }


@pytest.mark.parametrize("line", bombs(Path()))
def test_a_bomb_is_refused_by_its_header(tmp_path: Path, line: str) -> None:
    write_idx(tmp_path) if "ubyte" in line else classes(tmp_path / "train")
    bombs(tmp_path)[line]()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError) as caught:
            Images(str(tmp_path), decode="once").load()
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    assert line in str(caught.value)


def test_the_limit_can_be_raised(tmp_path: Path) -> None:
    header = gzip.compress(struct.pack(">4I", 0x803, 6, 4096, 4096))
    write_idx(tmp_path, gz=True)
    write(tmp_path / "train-images-idx3-ubyte.gz", header + gzip.compress(bytes(MIB)) * 96)
    with pytest.raises(ValueError, match=r"size in memory = '0.1 GB': from .* at most 0.1 GB; set unpacked"):
        Images(str(tmp_path), unpacked=0.1).load()
    with pytest.raises(ValueError, match="training samples'"):  # all of it was read, and the test images are smaller
        Images(str(tmp_path), unpacked=0.101).load().partition(lambda y, seed: [np.arange(len(y))])


def test_what_does_not_grow_by_more_than_twenty_is_no_bomb(tmp_path: Path) -> None:
    """So photographs of any size are read."""
    noise = pixels(1, 64, 64, 3)[0]
    png(tmp_path / "train" / "a" / "0.png", noise)
    assert len(Images(str(tmp_path), unpacked=1e-9, test=0).load().train) == 1
    png(tmp_path / "train" / "a" / "0.png", np.zeros_like(noise))
    with pytest.raises(ValueError, match="size in memory"):
        Images(str(tmp_path), unpacked=1e-9, test=0).load()


def test_a_thin_image_that_is_scaled_to_gigabytes_is_refused(tmp_path: Path) -> None:
    png(tmp_path / "train" / "a" / "0.png", pixels(1, 1, 9000, 3)[0])
    with pytest.raises(ValueError, match=r"0\.png, scaled: size in memory = '0.6 GB'"):
        Images(str(tmp_path), size=224, test=0).load()


def test_a_batch_that_does_not_fit_is_refused() -> None:
    part = ImageSplit([np.zeros((1, 1, 3), dtype=np.uint8)] * 4000, {}, "train")
    x = EncodedImages(Decoder(part, PixelFormat(3, 1)))
    vars(x.decoder)["shape"] = (100_000, 100_000, 3)
    with pytest.raises(ValueError, match=r"a batch of 4000 images .*: size in memory = '120000.0 GB'"):
        x[:]


# Parquet.


@pytest.mark.parametrize("column", ["image", "label"])
def test_a_value_that_stands_once_for_many_rows_is_not_unpacked_for_all(tmp_path: Path, column: str) -> None:
    n = 50_000
    long = MIB
    values: dict[str, Any] = {
        "image": pa.array([bytes(long)]),
        "label": pa.array(["x" * (long if column == "label" else 1)]),
    }
    table = {name: pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), one) for name, one in values.items()}
    pq.write_table(pa.table(table), tmp_path / "train.parquet", compression="zstd", store_schema=False)
    before = pa.total_allocated_bytes()
    with pytest.raises(ValueError, match=r"train\.parquet: size in memory = '0.1 GB': from .* at most 0.04 GB"):
        Images(str(tmp_path), test=0, unpacked=0.04).load()
    assert pa.total_allocated_bytes() - before < 0.2e9


@pytest.mark.parametrize(
    ("label", "line"),
    [
        ([0.5, 1.0], "column 'label' of train = 'double': must hold whole numbers or words"),
        ([[1], [2]], "'list<element: int64>': must hold whole numbers or words"),
    ],
)
def test_labels_are_whole_numbers_or_words(tmp_path: Path, label: list[Any], line: str) -> None:
    write_parquet(tmp_path / "train.parquet", pixels(2), label=label)
    with pytest.raises(ValueError) as caught:
        Images(str(tmp_path), test=0).load()
    assert line in str(caught.value)


def test_labels_of_all_splits_are_of_one_kind(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train.parquet", pixels(2), label=[0, 1])
    write_parquet(tmp_path / "test.parquet", pixels(2), label=["a", "b"])
    with pytest.raises(ValueError, match=r"labels = .*: must be numbers in all of them, or words in all"):
        Images(str(tmp_path)).load()


@pytest.mark.parametrize("about", ["[" * 100_000, '["info"]', '{"info": {"features": {"label": {"names": 3}}}}'])
def test_damaged_metadata_are_one_line(tmp_path: Path, about: str) -> None:
    table = pa.table({"image": [b"x"], "label": [0]}).replace_schema_metadata({"huggingface": about})
    pq.write_table(table, tmp_path / "train.parquet")
    with pytest.raises(ValueError, match=r"train\.parquet can't be read: "):
        Images(str(tmp_path)).load()


# Pickles.


def nested(levels: int) -> bytes:
    inner = nested(levels - 1) if levels > 1 else b"]q\x00"
    return b"](" + inner + (b"h" + bytes([levels - 1])) * 9 + b"eq" + bytes([levels])


def labels(opcodes: bytes) -> bytes:
    data = python2({"data": rows(pixels(2, 32, 32, 3))})
    return data[:-2] + b"U\x06labels" + opcodes + b"u."


TEXTS = b"\x80\x02](c_codecs\nencode\nq\x00X" + struct.pack("<I", MIB) + b"x" * MIB + b"q\x01U\x06latin1q\x02\x86R"
CRAFTED = {
    "a memo of 32 GB": (b"\x80\x02]r\xff\xff\xff\xff.", "= 'list': must be a dictionary"),
    "labels of ten to the power of thirty": (labels(nested(30)), "y = 'object [1]': must be whole numbers"),
    "a key a hundred thousand tuples deep": (
        b"\x80\x02})" + b"\x85" * 10**5 + b"Ns.",
        "a key of a dictionary must be a word",
    ),
    "a text of 1 MB five thousand times": (TEXTS + b"h\x00h\x01h\x02\x86R" * 5000 + b"e.", "= 'list': must be"),
    "a text of an exabyte": (b"\x80\x04\x8e" + struct.pack("<Q", 2**60) + b".", "can't be read: "),
    "a state for a function": (
        b"c_codecs\nencode\nN}S'__doc__'\nNs\x86b.",
        "a state is given to what has none",
    ),
    "an opcode that calls": (
        b"(S'x'\nios\nsystem\n.",
        "opcode b'i' is none that arrays, lists, strings and numbers need",
    ),
    "an extension": (b"\x80\x02\x82\x01.", "opcode b'\\x82' is none that"),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_pickle_takes_no_memory_and_no_time(tmp_path: Path, name: str) -> None:
    content, line = CRAFTED[name]
    write_cifar10(tmp_path)
    write(tmp_path / "data_batch_3", content)
    with pytest.raises(ValueError) as caught:
        Images(str(tmp_path)).load()
    assert line in str(caught.value)


def test_names_that_are_no_words_are_refused(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    write(tmp_path / "batches.meta", b"\x80\x02}(U\x0blabel_names" + nested(30) + b"u.")
    with pytest.raises(ValueError, match=r"batches\.meta: names of labels = 'list': must be a list of words"):
        Images(str(tmp_path)).load()
    write(tmp_path / "batches.meta", pickle.dumps({"label_names": 3}))
    with pytest.raises(ValueError, match=r"batches\.meta: names of labels = 'int': must be a list of words"):
        Images(str(tmp_path)).load()


# JSON, lists, text.


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"[" * 100_000, "can't be read: "),
        (b"9" * 5000, "can't be read: "),
        (b'{"users": 1, "num_samples": 1, "user_data": 1}', "must be a list, a list and a dictionary"),
        (b'{"users": [], "num_samples": [], "user_data": {}}', "train = 'train': must hold at least one user"),
        (leaf({"a": user_data(2)}, users=[[1]]), "users = [1]: must be words"),
        (leaf({"a": user_data(2) | {"x": [{}, {}]}}), "x: must have the same number of values for each image"),
        (leaf({"a": user_data(2) | {"y": [2**63, 0]}}), "y = 9223372036854775808: must be whole numbers below 2^63"),
        (leaf({"a": user_data(2) | {"y": [[0], [1]]}}), "y = [0]: must be whole numbers below 2^63"),
        (json.dumps({"users": ["a"], "num_samples": [1], "user_data": {"a": 1}}).encode(), "must be a dictionary"),
    ],
)
def test_json_of_another_shape_is_one_line(tmp_path: Path, content: bytes, line: str) -> None:
    write(tmp_path / "train" / "all_data.json", content)
    with pytest.raises(ValueError) as caught:
        Images(str(tmp_path)).load()
    assert line in str(caught.value) and str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ("0,../../secret,1", "image_id = '../../secret': must be the name of an image, and no path"),
        ("0,/etc/passwd,1", "image_id = '/etc/passwd': must be the name of an image, and no path"),
        ("0,aaaaaaaa," + "9" * 19, "must be a whole number of at most 18 digits"),
        ("0,aaaaaaaa," + "9" * 200_000, "can't be read: field larger than field limit"),
    ],
)
def test_a_list_leads_nowhere_else(tmp_path: Path, row: str, line: str) -> None:
    WRITERS["listed"](tmp_path)
    write(tmp_path / "federated_train.csv", f"user_id,image_id,class\n{row}\n".encode())
    with pytest.raises(ValueError) as caught:
        Images(str(tmp_path), size=8).load()
    assert line in str(caught.value)


def test_a_list_of_classes_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    WRITERS["folders"](tmp_path)
    png(tmp_path / "test/images/9.png", pixels(1, 8, 8, 3)[0])
    write(tmp_path / "test/val_annotations.txt", b"\xff\xfe a\n")
    with pytest.raises(ValueError, match=r"val_annotations\.txt can't be read: 'utf-8' codec"):
        Images(str(tmp_path)).load()


def test_a_speech_of_many_paragraphs_takes_time_in_proportion(tmp_path: Path) -> None:
    file = write(tmp_path / "play.txt", b"A:\nfirst  " + b"\n\n  b " * 200_000)
    assert len(Shakespeare(str(file)).load().train) > 10_000


def test_a_speech_keeps_its_paragraphs(tmp_path: Path) -> None:
    from fedsash.data.sources.plays import _play

    assert _play("p", "A:\n one \n\n  two \n \nthree\n\nB:\n x ") == {"p: A": ["one\n\n  two\n\nthree"], "p: B": [" x"]}


# What is no file.


@pytest.mark.parametrize("form, kind", rotated(WRITERS, ["pipe", "device", "folder", "nothing", "terabyte"]))
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, form: str, kind: str) -> None:
    folder = tmp_path / "data"
    WRITERS[form](folder)
    file = next(file for file in sorted(folder.rglob("*")) if file.is_file() and file.name != "batches.meta")
    file.unlink()
    makes: dict[str, Callable[[Path], object]] = {
        "pipe": os.mkfifo,
        "device": lambda file: file.symlink_to("/dev/zero"),
        "folder": Path.mkdir,
        "nothing": lambda file: file.symlink_to(tmp_path / "nothing"),
        "terabyte": lambda file: (file.touch(), os.truncate(file, 2**40)),
    }
    makes[kind](file)
    with pytest.raises(ValueError) as caught:
        Images(str(folder), size=8).load()
    assert str(caught.value).isprintable()


def test_samples_hold_numbers() -> None:
    with pytest.raises(ValueError, match=r"^Samples\.x = \(3, 0, 4, 1\): a sample must hold at least one number$"):
        Samples(torch.zeros(3, 0, 4, 1), torch.zeros(3, dtype=torch.int64))
