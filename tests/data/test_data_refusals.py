"""Images that can't be read, and settings that can't be, are refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsash.data import Images
from support.parquets import Image, encoded, pixels, write

pytestmark = pytest.mark.usefixtures("cache")


def refusals(at: Path) -> dict[str, Callable[[], Images]]:
    def images(name: str, rows: Any, **settings: Any) -> Images:
        write(at / name / "train.parquet", rows, label=[0] * len(rows))
        return Images(str(at / name), **settings)

    def with_file(name: str, file: str, content: bytes) -> Images:
        (at / name).mkdir()
        (at / name / file).write_bytes(content)
        return Images(str(at / name))

    def missing_label() -> Images:
        write(at / "label" / "train.parquet", pixels(1), label=[None])
        return Images(str(at / "label"))

    def two_folders() -> Images:
        write(at / "two" / "b" / "train.parquet", pixels(1), label=[0])
        return images("two/a", pixels(1)) and Images(str(at / "two"))

    def folder(**settings: Any) -> Images:
        (at / "folder" / "train" / "cat").mkdir(parents=True)
        (at / "folder" / "train" / "cat" / "1.png").write_bytes(encoded(pixels(1)[0]))
        return Images(str(at / "folder"), **settings)

    small = [pixels(1)[0], pixels(1, 4, 5, 3)[0]]
    palette = [Image.fromarray(pixels(1)[0]).quantize(4)]
    return {
        r"path = './nowhere': there is no such folder": lambda: Images("./nowhere"),
        r"path = 'a/b/c': there is no such folder": lambda: Images("a/b/c"),
        r"it holds no data that can be read": lambda: with_file("none", "readme.txt", b""),
        r"must hold train.parquet; there is other.parquet": lambda: with_file("other", "other.parquet", b""),
        r"train.parquet can't be read": lambda: with_file("bad", "train.parquet", b"no parquet"),
        r"train is in several folders; choose one of \['a', 'b'\]": two_folders,
        r"image = 'image': there is no such column in .*, only x, label": lambda: _x(at),
        r"label = 'y': there is no such column in .*, only image, label": lambda: images(
            "column", pixels(1), label="y"
        ),
        r"domain = 'd': there is no such column": lambda: images("domain", pixels(1), domain="d"),
        r"label = 'kind': the files in .* have no named columns; leave it out": lambda: folder(label="kind"),
        r"user = 'owner': the files in .* have no named columns": lambda: folder(user="owner"),
        r"test_split = 'valid': there is no such split": lambda: images("split", pixels(1), test_split="valid"),
        r"Images.test_split = 'train': must not be train_split": lambda: Images("x", test_split="train"),
        r"row 1: size = \(5, 4\): must be \(5, 6\), as in row 0; set size to scale them all to one size": lambda: (
            images("size", small)
        ),
        r"'image' of train = 'P': images must be grey \(L\) or RGB: set channels": lambda: images("mode", palette),
        r"row 1: the image can't be decoded": lambda: images("broken", [encoded(pixels(1)[0]), b"not a picture"]),
        r"column 'label' of train = None: has missing values": missing_label,
        r"Transform.std = \(\): must have as many numbers as mean": lambda: Images("x", mean=(0.5,)),
    }


def _x(at: Path) -> Images:
    write(at / "x" / "train.parquet", pixels(1), image="x", label=[0])
    return Images(str(at / "x"))


@pytest.mark.parametrize("line", refusals(Path()))
def test_what_can_not_be_read_is_refused_in_one_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(ValueError, match=line) as caught:
        refusals(tmp_path)[line]().load()
    assert "\n" not in str(caught.value)
