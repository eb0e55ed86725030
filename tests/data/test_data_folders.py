"""Folders of images as people have them: names of splits, endings, 16 bits, and lists that are corrected later."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from fedsash import SettingError
from fedsash.data import FederatedData, Images, Inputs, Samples, Texts
from fedsash.data.sources.formats import parquet
from fedsash.errors import DataError

Image = pytest.importorskip("PIL.Image", reason="fedsash[data] is not installed")
pd = pytest.importorskip("pandas")


def pictures(folder: Path, names: Iterable[str], form: str = "PNG", value: int = 0) -> None:
    folder.mkdir(parents=True)
    for name in names:
        Image.fromarray(np.full((4, 4), value, np.uint8)).save(folder / name, form)


def split(folder: Path, name: str, count: int) -> None:
    for value, label in enumerate(("cat", "dog")):
        pictures(folder / name / label, (f"{i}.png" for i in range(count)), value=value)


@pytest.mark.parametrize(
    "train, test", [("train", "test"), ("Train", "Test"), ("training", "testing"), ("train", "TEST")]
)
@pytest.mark.usefixtures("cache")
def test_no_image_of_the_test_folder_is_trained_on(train: str, test: str, tmp_path: Path) -> None:
    split(tmp_path / "d", train, 4)
    split(tmp_path / "d", test, 2)
    source = Images(str(tmp_path / "d")).load()
    assert (len(source.train), source.test and len(source.test), source.domain_names) == (8, 4, ())


@pytest.mark.usefixtures("cache")
def test_a_test_folder_without_one_for_training_is_refused(tmp_path: Path) -> None:
    split(tmp_path / "d", "mine", 4)
    split(tmp_path / "d", "test", 2)
    with pytest.raises(SettingError, match=r"holds no folder train beside test: set train_split to that of the"):
        Images(str(tmp_path / "d")).load()
    assert len(Images(str(tmp_path / "d"), train_split="mine").load().train) == 8


@pytest.mark.usefixtures("cache")
def test_every_kind_of_image_that_can_be_decoded_is_found(tmp_path: Path) -> None:
    kinds = {"png": "PNG", "webp": "WEBP", "bmp": "BMP", "tif": "TIFF", "jpg": "JPEG"}
    for ending, form in kinds.items():
        pictures(tmp_path / "d" / ending, [f"{i}.{ending}" for i in range(5)], form)
    source = Images(str(tmp_path / "d"), channels=1, test=0.0).load()
    assert tuple(source.label_names) == tuple(sorted(kinds)) and len(source.train) == 25


@pytest.mark.usefixtures("cache")
def test_what_is_hidden_is_no_class_and_no_image(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    split(tmp_path / ".kept" / "d", "train", 4)
    folder = tmp_path / ".kept" / "d" / "train"
    for hidden in (".ipynb_checkpoints", "__MACOSX", "cat/.ipynb_checkpoints", ".thumbnails/cat"):
        pictures(folder / hidden, ["0.png"])
    (folder / "cat" / "._0.png").write_bytes(b"Mac OS X")
    (folder / "cat" / "labels.txt").write_text("0.png cat")
    for source in (Images(str(folder), test=0.0).load(), Images(str(folder.parent), test=0.0).load()):
        assert (len(source.train), source.label_names, source.domain_names) == (8, ("cat", "dog"), ())
    assert caplog.messages == []


@pytest.mark.usefixtures("cache")
def test_linked_folders_are_classes_and_domains_and_a_link_upwards_is_not_followed(tmp_path: Path) -> None:
    split(tmp_path / "disk", "dog", 4)
    split(tmp_path / "d", "bird", 4)
    (tmp_path / "d" / "dog").symlink_to(tmp_path / "disk" / "dog")
    (tmp_path / "d" / "bird" / "up").symlink_to(tmp_path / "d")
    assert Images(str(tmp_path / "d"), test=0.0).load().domain_names == ("bird", "dog")
    (tmp_path / "one").mkdir()
    for label in ("cat", "dog"):
        (tmp_path / "one" / label).symlink_to(tmp_path / "d" / "dog" / label)
    assert Images(str(tmp_path / "one"), test=0.0).load().label_names == ("cat", "dog")
    (tmp_path / "one" / "elk").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"elk is a link to .*nowhere, which is not there: mend the link, or delete it"):
        Images(str(tmp_path / "one")).load()
    (tmp_path / "linked").mkdir()
    (tmp_path / "files").mkdir()
    pd.DataFrame().to_parquet(tmp_path / "files" / "train.parquet")
    (tmp_path / "linked" / "data").symlink_to(tmp_path / "files")
    assert parquet.files(tmp_path / "linked", ["train"])["train"] == [tmp_path / "linked" / "data" / "train.parquet"]


@pytest.mark.usefixtures("cache")
def test_images_that_can_not_be_read_are_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    split(tmp_path, "train", 4)
    for i in range(3):
        (tmp_path / "train" / "cat" / f"IMG_{i}.HEIC").write_bytes(b"ftypheic")
    (tmp_path / "train" / "dog" / "x.avif").write_bytes(b"ftypavif")
    assert len(Images(str(tmp_path), test=0.0).load().train) == 8
    line = "such images can't be read and are left out: 1 .avif, 3 .heic; save them as PNG or JPEG"
    assert caplog.messages == [f"{tmp_path / 'train'}: {line}"]


@pytest.mark.usefixtures("cache")
def test_16_bits_are_scaled_to_8_and_more_are_refused(tmp_path: Path) -> None:
    ramp = np.linspace(0, 65535, 16).reshape(4, 4).astype(np.uint16)
    for label in ("a", "b"):
        (tmp_path / "d" / label).mkdir(parents=True)
        for i in range(3):
            Image.fromarray(ramp).save(tmp_path / "d" / label / f"{i}.png")
    source = Images(str(tmp_path / "d"), test=0.0).load()
    np.testing.assert_array_equal(torch.as_tensor(source.train.x[0:1]).reshape(4, 4), ramp >> 8)
    Image.fromarray(ramp.astype(np.float32)).save(tmp_path / "d" / "a" / "0.tif")
    with pytest.raises(DataError, match=r"its pixels are floating-point numbers: scale them to 0 to 255"):
        Images(str(tmp_path / "d"), size=4).load()


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("decode", ["once", "batches"])
@pytest.mark.parametrize("highest", [255, 4095])
def test_16_bits_of_which_only_the_lower_ones_are_used_are_refused(
    tmp_path: Path, highest: int, decode: Literal["once", "batches"]
) -> None:
    for label in ("a", "b"):
        (tmp_path / label).mkdir(parents=True)
        for i in range(3):
            Image.fromarray(np.full((4, 4), highest - i, np.uint16)).save(tmp_path / label / f"{i}.png")
    images = Images(str(tmp_path), test=0.0, decode=decode)
    with pytest.raises(DataError, match=rf"its images of 16 bits use only 0 to {highest:,}, .*: scale them to 0"):
        images.load()
    Image.fromarray(np.full((4, 4), 65535, np.uint16)).save(tmp_path / "b" / "2.png")
    assert len(images.load().train) == 6, "one image shows that the others are dark"


def deep_png(file: Path, value: int, kind: int) -> None:
    """An image of 16 bits, which Pillow does not write in colours: without alpha (kind 2), or opaque (kind 6)."""
    row = np.full((4, {2: 3, 6: 4}[kind]), value, ">u2")
    row[:, 3:] = 65535
    content = b"\x89PNG\r\n\x1a\n"
    header = struct.pack(">IIBBBBB", 4, 4, 16, kind, 0, 0, 0)
    for name, data in ((b"IHDR", header), (b"IDAT", zlib.compress((b"\0" + row.tobytes()) * 4)), (b"IEND", b"")):
        content += struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    file.write_bytes(content)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("kind", [2, 6])
def test_colours_of_16_bits_are_images_of_16_bits_wherever_they_stand(tmp_path: Path, kind: int) -> None:
    split(tmp_path, "train", 3)
    deep_png(tmp_path / "train" / "dog" / "1.png", 3000, kind)
    images = Images(str(tmp_path), channels=3, test=0.0)
    with pytest.raises(DataError, match=r"its images of 16 bits use only 0 to 3,071, which would be nearly black"):
        images.load()
    deep_png(tmp_path / "train" / "dog" / "1.png", 4096, kind)
    assert int(torch.as_tensor(images.load().train.x[4:5]).max()) == 16  # type: ignore[arg-type]


@pytest.mark.usefixtures("cache")
def test_a_list_of_classes_that_is_corrected_is_read_again(tmp_path: Path) -> None:
    split(tmp_path / "d", "train", 3)
    pictures(tmp_path / "d" / "val" / "images", ["0.png", "1.png"])
    listed = tmp_path / "d" / "val" / "val_annotations.txt"

    def labels() -> list[int]:
        test = Images(str(tmp_path / "d"), test_split="val").load().test
        assert test is not None
        return test.y.tolist()

    listed.write_text("0.png cat\n1.png dog\n")
    assert labels() == [0, 1]
    listed.write_text("0.png dog \n1.png cat \n")
    assert labels() == [1, 0]


def test_words_of_held_out_texts_are_unknown() -> None:
    rows = [f"film{i} {'good' if i % 2 else 'bad'}" for i in range(20)]
    frame = pd.DataFrame({"text": rows, "label": [i % 2 for i in range(20)]})
    source = Texts(label="label", tokenizer="words", length=2).of(frame)
    assert source.test is not None and isinstance(source.test.x, torch.Tensor)
    assert source.test.x[:, 0].tolist() == [1] * 4 and 1 not in source.train.x[:, 0]  # type: ignore[operator]


def test_several_inputs_are_images_or_no_bytes() -> None:
    grey = np.zeros((4, 8, 8), np.uint8)
    y = np.zeros(4, np.int64)
    data = FederatedData.from_arrays({"one": grey, "two": np.ones((4, 3))}, y, [range(4)])
    assert isinstance(data.train.x, Inputs) and data.train.x.shape["one"] == (4, 8, 8, 1)
    assert [tuple(x.shape) for x in data.transform.prepare(data.train.x.tensors).values()] == [(4, 1, 8, 8), (4, 3)]
    with pytest.raises(SettingError, match="uint8 data must be images"):
        Samples(Inputs({"mask": torch.zeros(4, 5, dtype=torch.uint8)}), torch.zeros(4, dtype=torch.int64))


def test_held_out_samples_are_not_lost_by_holding_out_more() -> None:
    data = FederatedData.from_arrays(np.ones((10, 2), np.float32), np.zeros(10, np.int64), [range(10)]).hold_out(0.2, 0)
    assert data.hold_out(0.0, 0) is data
    with pytest.raises(SettingError, match=r"evaluation\.held_out = 0\.5: must be 0: some samples are held out"):
        data.hold_out(0.5, 0)


def test_rows_with_more_fields_than_names_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,label\n1,2,0\n3,4,1\n")
    from fedsash.data import Table

    with pytest.raises(DataError, match="its rows have more fields than its first line has names: name every column"):
        Table(str(tmp_path / "t.csv")).load()
