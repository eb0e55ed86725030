"""Folders of one's own images: validation splits, saved data sets of Hugging Face, and paths that lead nowhere."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsash.data import FederatedData, Images
from fedsash.data.sources.formats import parquet
from fedsash.settings.errors import FedsashError
from fedsash.system.paths import similar
from support.by_default import rotated
from support.forms import pixels
from support.libraries import Library
from support.parquets import Image, write

datasets = Library("datasets")
pytestmark = pytest.mark.usefixtures("cache")

CLASSES = ("cat", "dog")


def folder(at: Path, split: str, n: int) -> None:
    for i, image in enumerate(pixels(n)):
        file = at / split / CLASSES[i % 2] / f"{split}{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)


def packed(at: Path, split: str, n: int) -> None:
    write(at / f"{split}.parquet", pixels(n), list(CLASSES), label=[i % 2 for i in range(n)])


FORMS = pytest.mark.parametrize("form", [folder, packed])
VALIDATION = pytest.mark.parametrize("form, name", rotated([folder, packed], ["val", "valid", "validation"]))


@VALIDATION
def test_a_validation_split_is_the_test_set_where_there_is_none_and_this_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, form: Any, name: str
) -> None:
    form(tmp_path, "train", 8)
    form(tmp_path, name, 3)
    source = Images(str(tmp_path)).load()
    assert source.test is not None and (len(source.train), len(source.test)) == (8, 3)
    assert caplog.messages == [f"{tmp_path}: it has no split 'test', so its validation split is the test set"]


@VALIDATION
def test_a_validation_split_beside_a_test_split_is_not_used_and_this_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, form: Any, name: str
) -> None:
    for split, n in (("train", 8), (name, 3), ("test", 4)):
        form(tmp_path, split, n)
    source = Images(str(tmp_path)).load()
    assert source.test is not None and (len(source.train), len(source.test)) == (8, 4)
    assert caplog.messages == [f"{tmp_path}: its validation split is not used: there is a test split"]


@FORMS
def test_a_split_that_is_asked_for_is_used_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, form: Any
) -> None:
    for split, n in (("train", 8), ("val", 3), ("test", 4)):
        form(tmp_path, split, n)
    source = Images(str(tmp_path), test_split="val").load()
    assert source.test is not None and len(source.test) == 3 and caplog.messages == []


def hugging(n: int) -> Any:
    features = {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=list(CLASSES)),
        "who": datasets.Value("string"),
    }
    rows = {"image": [Image.fromarray(one) for one in pixels(n)], "label": [i % 2 for i in range(n)]}
    return datasets.Dataset.from_dict(rows | {"who": [f"u{i % 3}" for i in range(n)]}, datasets.Features(features))


def test_a_saved_data_set_its_splits_and_the_one_in_memory_hold_the_same_images(tmp_path: Path) -> None:
    train = hugging(7)
    test = hugging(3)
    train.save_to_disk(tmp_path / "one", num_shards=2)
    datasets.DatasetDict(train=train, test=test).save_to_disk(tmp_path / "both")
    one = Images(str(tmp_path / "one"), user="who", test=0).load()
    both = Images(str(tmp_path / "both"), user="who").load()
    memory = FederatedData.from_datasets(train, users="who", test=test)
    columns = FederatedData.from_arrays(train["image"], train["label"], users=train["who"])
    for source in (one, both, memory, columns):
        assert torch.equal(source.train.x, torch.from_numpy(pixels(7)))  # type: ignore[arg-type]
        assert source.train.y.tolist() == [0, 1, 0, 1, 0, 1, 0] and source.train.user is not None
        assert source.train.user.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert one.label_names == both.label_names == CLASSES
    assert both.test is not None and memory.test is not None and one.test is None
    assert torch.equal(both.test.x, memory.test.x)  # type: ignore[arg-type]


def test_a_damaged_saved_data_set_is_refused_in_one_line(tmp_path: Path) -> None:
    hugging(4).save_to_disk(tmp_path)
    for file in tmp_path.glob("*.arrow"):
        file.write_bytes(b"no arrow")
    with pytest.raises(FedsashError, match=r"arrow can't be read") as caught:
        Images(str(tmp_path)).load()
    assert "\n" not in str(caught.value)


def test_splits_that_lack_one_for_training_are_named(tmp_path: Path) -> None:
    datasets.DatasetDict(a=hugging(4), b=hugging(4)).save_to_disk(tmp_path)
    with pytest.raises(FedsashError, match="must hold the split train; there is a, b"):
        Images(str(tmp_path)).load()


# Paths that lead nowhere.

NOWHERE = {
    "data/cifra10": "did you mean data/cifar10?",
    "./dta/cifar10": "did you mean data?",
    "DATA": "",
    "cifar10": "(on the hub, names have the form owner/name)",
    "a/b/c": "there is no such folder",
}


@pytest.mark.parametrize("path", NOWHERE)
def test_a_misspelt_path_is_refused_at_once_and_the_hub_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    def asked(*given: object) -> None:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(parquet, "check_hub", asked)
    (tmp_path / "data" / "cifar10").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FedsashError, match="there is no such folder") as caught:
        Images(path).load()
    assert NOWHERE[path] in str(caught.value) and "\n" not in str(caught.value)


def test_a_hub_that_can_not_be_reached_is_asked_once(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr("huggingface_hub.hf_api.constants.ENDPOINT", "http://127.0.0.1:1")

    def slept(seconds: float) -> None:
        raise AssertionError(f"waits {seconds} s, to ask again")

    monkeypatch.setattr("time.sleep", slept)
    with caplog.at_level(logging.WARNING), pytest.raises(FedsashError, match="the hub did not give it") as caught:
        Images("nobody/nothing-of-this-name").load()
    assert caplog.messages == []
    assert "hf download nobody/nothing-of-this-name" in str(caught.value) and "\n" not in str(caught.value)


def test_a_similar_name_is_found_in_any_letter_case(tmp_path: Path) -> None:
    (tmp_path / "Scans").mkdir()
    assert similar(tmp_path / "scnas") == similar(tmp_path / "SCANS" / "x") == f"; did you mean {tmp_path / 'Scans'}?"
    assert similar(tmp_path / "quite another") == "" == similar("/no/such/place")
