"""Every form, written as its makers write it: what is read is what was written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedsash.data.sources.formats import FORMATS
from fedsash.data.sources.formats.pixels import AS_STORED, Decoder, decode
from support.by_default import rotated
from support.forms import WRITERS, classes, pixels, png, table, write, write_idx, write_landmarks, write_leaf


@pytest.mark.parametrize("gz, place, dot", rotated([False, True], [".", "MNIST/raw"], ["-", "."]))
def test_idx_files_give_what_was_written(tmp_path: Path, gz: bool, place: str, dot: str) -> None:
    x, y = write_idx(tmp_path / place, gz=gz, dot=dot)
    splits = table(tmp_path)
    assert list(splits.parts) == ["train", "test"]
    for part in splits.parts.values():
        assert np.array_equal(part.images, x[..., None])
        assert np.array_equal(part.columns["y"], y)


def test_leafs_json_gives_pixels_labels_and_users(tmp_path: Path) -> None:
    write_leaf(tmp_path / "data")
    splits = table(tmp_path)
    for part in splits.parts.values():
        seeds = [(0, 3), (1, 4), (10, 3), (11, 4)]
        assert np.array_equal(part.images, np.concatenate([pixels(n, 28, 28, 1, seed=s) for s, n in seeds]))
        assert part.columns["y"].tolist() == [s + i for s, n in seeds for i in range(n)]
        assert part.columns["user"].tolist() == [f"f{k:04d}_00" for k, n in enumerate([3, 4, 3, 4]) for _ in range(n)]


def test_leafs_json_before_its_split_is_training_data(tmp_path: Path) -> None:
    write_leaf(tmp_path, split=False)
    assert list(table(tmp_path).parts) == ["train"]


def test_a_folder_a_class_below_each_split(tmp_path: Path) -> None:
    train = classes(tmp_path / "train")
    test = classes(tmp_path / "test", seed=1)
    splits = table(tmp_path)
    assert splits.parts["train"].columns["y"].tolist() == ["cat", "cat", "dog", "dog"]
    x = decode({split: Decoder(part, AS_STORED) for split, part in splits.parts.items()})
    assert np.array_equal(x["train"], np.stack(train))
    assert np.array_equal(x["test"], np.stack(test))


def test_a_folder_a_domain_and_in_it_one_a_class(tmp_path: Path) -> None:
    for domain in ("photo", "sketch"):
        classes(tmp_path / domain)
    splits = table(tmp_path)
    assert list(splits.parts) == ["train"]
    assert splits.parts["train"].columns["domain"].tolist() == ["photo"] * 4 + ["sketch"] * 4
    assert splits.parts["train"].columns["y"].tolist() == ["cat", "cat", "dog", "dog"] * 2


def write_tiny(folder: Path) -> dict[str, str]:
    """Tiny-ImageNet: a folder `images` a class, and a list for the validation images."""
    for i, wnid in enumerate(("n01443537", "n01629819")):
        for k in range(2):
            png(folder / "train" / wnid / "images" / f"{wnid}_{k}.JPEG", pixels(1, 64, 64, 3, seed=i)[0])
        write(folder / "train" / wnid / f"{wnid}_boxes.txt", b"n01443537_0.JPEG\t0\t10\t63\t58\n")
    labels = {f"val_{i}.JPEG": wnid for i, wnid in enumerate(["n01629819", "n01443537", "n01629819"])}
    for name in labels:
        png(folder / "val" / "images" / name, pixels(1, 64, 64, 1)[0])
    lines = "".join(f"{name}\t{wnid}\t0\t32\t44\t62\n" for name, wnid in labels.items())
    write(folder / "val" / "val_annotations.txt", lines.encode())
    png(folder / "test" / "images" / "test_0.JPEG", pixels(1, 64, 64, 3)[0])
    return labels


def test_tiny_imagenets_validation_images_have_their_labels_in_a_list(tmp_path: Path) -> None:
    labels = write_tiny(tmp_path)
    splits = table(tmp_path, "valid")
    assert splits.parts["train"].columns["y"].tolist() == ["n01443537"] * 2 + ["n01629819"] * 2
    assert splits.parts["valid"].columns["y"].tolist() == list(labels.values())
    assert [file.name for file in splits.parts["valid"].images] == list(labels)  # type: ignore[union-attr]


@pytest.mark.parametrize("layout", ["images/{0}.jpg", "train/{1}/{2}/{3}/{0}.jpg", "{0}.jpg"])
def test_lists_of_landmarks_give_users_and_the_places_of_their_images(tmp_path: Path, layout: str) -> None:
    names = write_landmarks(tmp_path, layout)
    splits = table(tmp_path)
    train = splits.parts["train"]
    test = splits.parts["test"]
    assert train.columns["user"].tolist() == ["0", "0", "1", "1"]
    assert (train.columns["y"].tolist(), test.columns["y"].tolist()) == ([0, 1, 2, 3], [0, 3])
    assert [file.stem for file in [*train.images, *test.images]] == names  # type: ignore[union-attr]


@pytest.mark.parametrize("name", WRITERS)
def test_a_form_is_known_by_its_files(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path)
    first = next(form for form in FORMATS.values() if form.matches(tmp_path))
    assert first is FORMATS[name]
