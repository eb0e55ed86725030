"""Digits, and images from a folder or from the hub: what is read, what is held out, what is kept in the cache."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedsash.data import DATASETS, IID, Digits, Images
from fedsash.data.source import hold_out
from fedsash.data.sources.formats import find, parquet
from fedsash.data.sources.images import ReadingSettings, _content
from fedsash.data.sources.published import CATALOGUE
from support.parquets import pixels, write

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten training and four test images of two classes."""
    write(tmp_path / "d" / "train.parquet", pixels(10), ["cat", "dog"], label=[0, 1] * 5)
    write(tmp_path / "d" / "test.parquet", pixels(4, seed=1), ["cat", "dog"], label=[1, 1, 0, 0])
    return tmp_path / "d"


# Digits.


def test_digits_are_shared_out_like_any_source() -> None:
    source = Digits().load()
    assert source.test is not None
    assert (source.train.x.shape, len(source.test)) == ((1438, 64), 359)
    assert source.train.x.dtype == torch.float32
    assert (source.train.x.min(), source.train.x.max()) == (0, 1)
    assert source.label_names == tuple("0123456789")
    data = source.partition(IID(10), seed=3)
    assert data.sizes.sum() == 1438
    assert data.classes == 10


def test_digits_as_images_hold_the_same_pixels() -> None:
    flat = Digits().load()
    images = Digits(images=True).load()
    assert images.train.x.shape == (1438, 8, 8, 1)
    prepared = images.transform.prepare(images.train.x).reshape(-1, 64)
    torch.testing.assert_close(prepared, flat.train.x, rtol=0, atol=0.5 / 255 + 1e-6)


def test_what_is_held_out_depends_on_the_seed_alone() -> None:
    a = Digits().load()
    b = Digits().load(0)
    c = Digits().load(1)
    assert a.test is not None and b.test is not None and c.test is not None
    assert torch.equal(a.test.x, b.test.x)
    assert not torch.equal(a.test.x, c.test.x)
    assert Digits(test=0).load().test is None


def test_digits_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r'scikit-learn is needed for these data: pip install "fedsash\[lab\]"'):
        Digits().load()


# Images from a folder.


def test_a_folder_gives_its_images_labels_and_names(folder: Path) -> None:
    source = Images(str(folder), mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2), crop=1, flip=True).load()
    assert source.test is not None
    assert np.array_equal(source.train.x.numpy(), pixels(10))
    assert np.array_equal(source.test.x.numpy(), pixels(4, seed=1))
    assert source.train.y.tolist() == [0, 1] * 5
    assert source.test.y.tolist() == [1, 1, 0, 0]
    assert (source.classes, source.label_names, source.domain_names) == (2, ("cat", "dog"), ())
    assert source.transform.augments
    assert source.partition(IID(5)).transform is source.transform


def test_the_hubs_own_file_names_are_read_in_order(tmp_path: Path) -> None:
    for part in range(3):
        write(tmp_path / "data" / f"train-{part:05d}-of-00003.parquet", pixels(4, seed=part), label=[part] * 4)
    write(tmp_path / "data" / "test-00000-of-00001.parquet", pixels(1), label=[2])
    source = Images(str(tmp_path)).load()
    assert source.train.y.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert np.array_equal(source.train.x.numpy()[4:8], pixels(4, seed=1))
    assert source.label_names == ("0", "1", "2")


def test_other_columns_splits_and_words_as_labels(tmp_path: Path) -> None:
    columns = {"fine_label": ["rose", "apple"], "coarse_label": [1, 0]}
    write(tmp_path / "train.parquet", pixels(2), image="img", **columns)
    write(tmp_path / "valid.parquet", pixels(2), image="img", **columns)
    source = Images(str(tmp_path), label="fine_label", test_split="valid").load()
    assert source.test is not None
    assert source.label_names == ("apple", "rose")
    assert source.train.y.tolist() == source.test.y.tolist() == [1, 0]


def test_grey_images_and_images_as_plain_bytes(tmp_path: Path) -> None:
    write(tmp_path / "train.parquet", pixels(3, 6, 5, 1), raw=True, label=[0, 1, 0])
    source = Images(str(tmp_path), test=0).load()
    assert np.array_equal(source.train.x.numpy(), pixels(3, 6, 5, 1))
    assert source.test is None


@pytest.mark.parametrize("side", [6, 70])  # one thread, and several
def test_channels_converts_mixed_images(tmp_path: Path, side: int) -> None:
    grey = pixels(1, side, side, 1)[0]
    colour = pixels(1, side, side, 3)[0]
    images = [colour, grey] * 300
    write(tmp_path / "train.parquet", images, label=[0] * 600)
    x = Images(str(tmp_path), channels=3, test=0).load().train.x.numpy()
    assert np.array_equal(x[598:], np.stack([colour, np.repeat(grey, 3, axis=2)]))
    assert Images(str(tmp_path), channels=1, test=0).load().train.x.shape == (600, side, side, 1)
    with pytest.raises(ValueError, match="row 1: mode = 'L': row 0 is RGB: set channels to 1 or 3 to convert them all"):
        Images(str(tmp_path)).load()


def test_without_a_test_split_a_share_of_each_domain_is_held_out(tmp_path: Path) -> None:
    domain = ["sketch"] * 20 + ["photo"] * 50
    write(tmp_path / "train.parquet", pixels(70), label=[0, 1] * 35, domain=domain)
    source = Images(str(tmp_path), test=0.1).load(seed=5)
    assert source.test is not None and source.test.domain is not None and source.train.domain is not None
    assert source.domain_names == ("photo", "sketch")
    assert source.test.domain.bincount().tolist() == [5, 2]
    assert source.train.domain.bincount().tolist() == [45, 18]
    both = torch.cat([source.train.x, source.test.x]).flatten(1)
    assert len(both.unique(dim=0)) == 70
    again = Images(str(tmp_path), test=0.1).load(seed=5)
    other = Images(str(tmp_path), test=0.1).load(seed=6)
    assert again.test is not None and other.test is not None
    assert torch.equal(again.test.x, source.test.x)
    assert not torch.equal(other.test.x, source.test.x)


def test_hold_out_keeps_the_order_of_samples() -> None:
    train, test = hold_out(Digits(test=0).load().train, 0.3, seed=2)
    assert test is not None
    whole = [tuple(row) for row in Digits(test=0).load().train.x.tolist()]
    for part in (train, test):
        places = [whole.index(tuple(row)) for row in part.x[:100].tolist()]
        assert places == sorted(places)


def test_images_say_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r'pyarrow is needed for these data: pip install "fedsash\[data\]"'):
        Images(str(folder)).load()


# The cache.


def kept(cache: Path) -> list[Path]:
    return sorted(cache.glob("*.safetensors"))


def test_images_are_decoded_once(folder: Path, cache: Path) -> None:
    first = Images(str(folder)).load()
    [file] = kept(cache)
    stamp = file.stat().st_mtime_ns
    second = Images(str(folder), crop=2).load()
    assert torch.equal(first.train.x, second.train.x)
    assert (second.label_names, second.classes) == (first.label_names, first.classes)
    assert [f.stat().st_mtime_ns for f in kept(cache)] == [stamp]
    assert [f.name for f in cache.iterdir()] == [file.name]


def test_a_changed_file_or_other_columns_are_decoded_anew(folder: Path, cache: Path) -> None:
    Images(str(folder)).load()
    write(folder / "train.parquet", pixels(10, seed=9), ["cat", "dog"], label=[0, 1] * 5)
    assert np.array_equal(Images(str(folder)).load().train.x.numpy(), pixels(10, seed=9))
    Images(str(folder), channels=1).load()
    assert len(kept(cache)) == 3


def flip_a_bit(file: Path, place: float) -> None:
    data = bytearray(file.read_bytes())
    data[int(place * len(data))] ^= 4
    file.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: flip_a_bit(file, 0.95),
        lambda file: flip_a_bit(file, 0.6),
        lambda file: flip_a_bit(file, 0.01),
        lambda file: file.write_bytes(file.read_bytes()[:-50]),
        lambda file: file.write_bytes(b""),
    ],
)
def test_a_damaged_cache_is_noticed_and_made_again(
    folder: Path, cache: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], object]
) -> None:
    Images(str(folder)).load()
    [file] = kept(cache)
    whole = file.read_bytes()
    damage(file)
    with caplog.at_level(logging.WARNING):
        source = Images(str(folder)).load()
    assert "is damaged" in caplog.text
    assert np.array_equal(source.train.x.numpy(), pixels(10))
    assert file.read_bytes() == whole


def test_a_cache_that_can_not_be_written_is_no_error(
    folder: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache.write_text("a file where the folder should be")
    assert len(Images(str(folder)).load().train) == 10
    assert "can't be kept" in caplog.text


# The hub's library reads the same.


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], dict[str, list[Path]]]]:
    datasets = pytest.importorskip("datasets", reason="fedsash[data] is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub")
    yield lambda folder: parquet.hub(str(folder), ["train", "test"])


def test_the_hub_and_a_folder_give_the_same_tensors(
    tmp_path: Path, hub: Callable[[Path], dict[str, list[Path]]]
) -> None:
    """`datasets` prepares a folder just as it prepares what it fetched from the hub."""
    path = tmp_path / "d"
    for split, n in (("train", 7), ("test", 3)):
        write(
            path / f"{split}.parquet",
            pixels(n),
            ["a", "b"],
            label=[n % 2] * n,
            domain=["x", "y", "x"] + ["y"] * (n - 3),
        )
    fetched = hub(path)
    assert {file.suffix for files in fetched.values() for file in files} == {".arrow"}
    local = find(str(path), ["train", "test"])
    assert parquet.present(fetched) == parquet.present(local.files) == ["image", "label", "domain"]
    ours, info = _content(local, ReadingSettings())
    theirs, their_info = _content(replace(local, files=fetched), ReadingSettings())
    assert info == their_info == {"y": ["a", "b"], "domain": ["x", "y"]}
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


# All of them.


def test_every_source_has_a_name_and_says_what_it_is() -> None:
    assert {"digits", "images", "npy", "table", "texts", "shakespeare", *CATALOGUE} == set(DATASETS)
    assert all((source.__doc__ or "").splitlines()[0].endswith(".") for source in DATASETS.values())


@pytest.mark.full
def test_importing_the_data_room_imports_no_heavy_library() -> None:
    heavy = ["datasets", "pyarrow", "sklearn", "matplotlib", "rich", "PIL", "flwr_datasets"]
    code = f"import sys, fedsash.data, fedsash.runs.partition; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
