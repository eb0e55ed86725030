"""The papers' data sets by name: from whatever form people have, what must be in them, and what the papers do to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsash.data import (
    CIFAR10,
    CIFAR100,
    DATASETS,
    FEMNIST,
    IID,
    MNIST,
    PACS,
    DigitFive,
    Domains,
    FashionMNIST,
    Landmarks,
    TinyImageNet,
    Users,
)
from fedsash.data.source import Source
from fedsash.data.sources import published
from fedsash.data.sources.images import load
from fedsash.data.sources.published import CATALOGUE, DIGIT_FIVE, PublishedImages
from support.forms import (
    classes,
    pixels,
    png,
    prepared,
    write,
    write_cifar10,
    write_cifar100,
    write_fedbn,
    write_idx,
    write_landmarks,
    write_leaf,
)
from support.parquets import write as write_parquet
from support.places import offline

pytestmark = pytest.mark.usefixtures("cache")


# One form or another.


@pytest.mark.parametrize("make", [MNIST, FashionMNIST])
def test_idx_and_parquet_of_the_same_images_are_the_same_data(tmp_path: Path, make: type[PublishedImages]) -> None:
    x, y = write_idx(tmp_path / "idx", n=20, gz=True)
    for split in ("train", "test"):
        file = tmp_path / "hub" / "data" / f"{split}-00000-of-00001.parquet"
        write_parquet(file, x[..., None], [str(i) for i in range(10)], label=y.tolist())
    a = make(str(tmp_path / "idx")).load()
    b = make(str(tmp_path / "hub")).load()
    assert a.test is not None and b.test is not None
    assert torch.equal(a.train.x, b.train.x) and torch.equal(a.test.x, b.test.x)
    assert torch.equal(a.train.y, b.train.y)
    assert a.classes == b.classes == 10
    torch.testing.assert_close(prepared(a), torch.from_numpy(x / 255.0).float()[:, None])


def test_cifar10_from_pickles_and_parquet_is_the_same_data(tmp_path: Path) -> None:
    x, y = write_cifar10(tmp_path / "pickles")
    names = [f"class {i}" for i in range(10)]
    write_parquet(tmp_path / "hub" / "train.parquet", x[:10], names, image="img", label=y[:10])
    write_parquet(tmp_path / "hub" / "test.parquet", x[10:], names, image="img", label=y[10:])
    a = CIFAR10(str(tmp_path / "pickles")).load()
    b = CIFAR10(str(tmp_path / "hub")).load()
    assert a.test is not None and b.test is not None
    assert torch.equal(a.train.x, b.train.x) and torch.equal(a.test.x, b.test.x)
    assert torch.equal(a.train.y, b.train.y) and torch.equal(a.test.y, b.test.y)
    assert a.label_names == b.label_names == tuple(names)
    assert a.transform.augments and not CIFAR10(str(tmp_path / "hub"), augment=False).load().transform.augments


@pytest.mark.parametrize("form", ["pickles", "parquet"])
def test_cifar100_learns_fine_or_coarse_labels_and_knows_the_other(tmp_path: Path, form: str) -> None:
    x = write_cifar100(tmp_path / "pickles")
    for split in ("train", "test"):
        columns: dict[str, Any] = {"fine_label": list(range(100)), "coarse_label": [i // 5 for i in range(100)]}
        write_parquet(tmp_path / "parquet" / f"{split}.parquet", x, image="img", **columns)
    fine = CIFAR100(str(tmp_path / form)).load()
    coarse = CIFAR100(str(tmp_path / form), labels="coarse").load()
    assert (fine.classes, coarse.classes) == (100, 20)
    assert fine.train.coarse is not None and coarse.train.coarse is not None
    assert fine.train.y.tolist() == list(range(100))
    assert torch.equal(fine.train.coarse, fine.train.y // 5)
    assert torch.equal(coarse.train.y, fine.train.coarse)
    assert torch.equal(coarse.train.coarse, fine.train.coarse)
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_femnist_has_its_writers_and_one_minus_the_stored_pixels(tmp_path: Path) -> None:
    write_leaf(tmp_path)
    source = FEMNIST(str(tmp_path)).load()
    assert source.classes == 62 and source.label_names[9:12] == ("9", "A", "B") and source.label_names[61] == "z"
    first = torch.from_numpy(pixels(3, 28, 28, 1, seed=0))
    assert torch.equal(source.train.x[:3], 255 - first)
    torch.testing.assert_close(prepared(source)[:3, 0], 1 - first[..., 0] / 255)
    assert source.train.user is not None and source.train.user.tolist() == [0] * 3 + [1] * 4 + [2] * 3 + [3] * 4
    assert Users()(source.train.user.numpy(), 0)[2].tolist() == [7, 8, 9]


def test_femnist_from_the_hub_holds_out_a_share_of_each_writer(tmp_path: Path) -> None:
    writers = ["f0001_41"] * 20 + ["f0000_14"] * 10 + ["f3999_00"] * 3
    columns: dict[str, Any] = {"writer_id": writers, "hsf_id": [0] * 33, "character": [i % 62 for i in range(33)]}
    write_parquet(tmp_path / "train.parquet", pixels(33, 28, 28, 1), **columns)
    source = FEMNIST(str(tmp_path), test=0.2).load()
    assert source.test is not None and source.train.user is not None and source.test.user is not None
    assert source.test.user.bincount().tolist() == [2, 4, 1]
    assert source.train.user.bincount().tolist() == [8, 16, 2]


def test_landmarks_has_its_photographers_and_squares(tmp_path: Path) -> None:
    write_landmarks(tmp_path)
    source = Landmarks(str(tmp_path), size=8).load()
    assert source.test is not None and source.train.user is not None
    assert source.train.user.tolist() == [0, 0, 1, 1]
    assert (source.train.x.shape, source.test.x.shape) == ((4, 8, 8, 3), (2, 8, 8, 3))
    assert torch.equal(source.train.x[0], torch.from_numpy(pixels(1, 8, 12, 3)[0, :, 2:10]))
    assert source.classes == 4


def write_digit_five(folder: Path) -> None:
    write_idx(folder / "MNIST" / "raw", n=30)
    x = pixels(20, 32, 32, 3)
    y = [i % 10 for i in range(20)]
    for split in ("train", "test"):
        write_parquet(folder / "SVHN" / f"{split}.parquet", x, label=y)
        classes(folder / "synth-digits" / split, n=1, names=tuple("0123456789"))
    write_fedbn(folder / "usps", shape=(16, 16))
    write_fedbn(folder / "MNIST_M", shape=(28, 28, 3))
    (folder / "synth-digits").rename(folder / "Synth_Digits")


def test_digit_five_puts_five_domains_in_any_form_into_one_shape(tmp_path: Path) -> None:
    write_digit_five(tmp_path)
    source = DigitFive(str(tmp_path), count=25).load()
    assert source.test is not None and source.train.domain is not None and source.test.domain is not None
    assert source.domain_names == DIGIT_FIVE
    assert source.train.x.shape == (25 + 20 + 25 + 10 + 25, 28, 28, 3)
    assert source.train.domain.bincount().tolist() == [25, 20, 25, 10, 25]
    assert source.test.domain.bincount().tolist() == [30, 20, 5, 10, 5]
    mnist = source.train.x[source.train.domain == 0]
    assert (mnist == mnist[..., :1]).all()
    assert [float(prepared(source).min()), float(prepared(source).max())] == pytest.approx([-1, 1])
    clients = Domains(2, IID(2))(source.train.domain.numpy(), source.train.y.numpy(), 0)
    assert len(clients) == 10


def test_a_domain_whose_classes_have_other_names_is_refused(tmp_path: Path) -> None:
    """In their order "10" comes before "2": each digit would get the number of another one."""
    write_digit_five(tmp_path)
    (tmp_path / "Synth_Digits").rename(tmp_path / "old")
    for split in ("train", "test"):
        classes(tmp_path / "Synth_Digits" / split, n=1, names=tuple(map(str, range(1, 11))))
    line = r"path: synthdigits = '1, 10, 2, .*: its classes must be called as those of mnist"
    with pytest.raises(ValueError, match=line):
        DigitFive(str(tmp_path)).load()


def test_what_digit_five_draws_depends_on_the_seed_and_keeps_the_order(tmp_path: Path) -> None:
    write_digit_five(tmp_path)
    whole = DigitFive(str(tmp_path)).load().train
    a, b, c = (DigitFive(str(tmp_path), count=7).load(seed).train for seed in (1, 1, 2))
    assert torch.equal(a.x, b.x) and not torch.equal(a.x, c.x)
    rows = {image.numpy().tobytes(): i for i, image in enumerate(whole.x)}
    places = [rows[image.numpy().tobytes()] for image in a.x]
    assert places == sorted(places) and len(set(places)) == 35


PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
PACS_DOMAINS = ("art_painting", "cartoon", "photo", "sketch")


def test_pacs_from_folders_holds_out_a_share_of_each_domain(tmp_path: Path) -> None:
    for domain in PACS_DOMAINS:
        classes(tmp_path / domain, n=3, names=PACS_CLASSES)
    source = PACS(str(tmp_path), size=14, test=0.2).load()
    assert source.test is not None and source.test.domain is not None
    assert source.domain_names == PACS_DOMAINS and source.label_names == PACS_CLASSES
    assert source.train.x.shape[1:] == (14, 14, 3)
    assert source.test.domain.bincount().tolist() == [4] * 4


def write_tiny_imagenet(folder: Path) -> None:
    names = [f"n{i:08d}" for i in range(200)]
    for i, name in enumerate(names):
        png(folder / "train" / name / "images" / f"{name}_0.JPEG", pixels(1, 4, 4, 3, seed=i)[0])
        png(folder / "val" / "images" / f"val_{i}.JPEG", pixels(1, 4, 4, 1, seed=i)[0])
    lines = "".join(f"val_{i}.JPEG\t{name}\t0\t0\t3\t3\n" for i, name in enumerate(reversed(names)))
    write(folder / "val" / "val_annotations.txt", lines.encode())


def test_tiny_imagenet_is_rgb_and_tests_on_its_validation_images(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    source = TinyImageNet(str(tmp_path), size=4).load()
    assert source.test is not None
    assert (source.train.x.shape, source.test.x.shape) == ((200, 4, 4, 3), (200, 4, 4, 3))
    assert source.classes == 200
    assert sorted(source.test.y.tolist()) == source.train.y.tolist() == list(range(200))
    assert TinyImageNet(str(tmp_path), size=6).load().train.x.shape == (200, 6, 6, 3)


# What is wrong.


def parquet(at: Path, shape: tuple[int, ...], **columns: Any) -> str:
    write_parquet(at / "train.parquet", pixels(len(next(iter(columns.values()))), *shape), **columns)
    write_parquet(at / "test.parquet", pixels(len(next(iter(columns.values()))), *shape), **columns)
    return str(at)


def fewer_domains(at: Path) -> str:
    for domain in PACS_DOMAINS[:3]:
        classes(at / domain, n=1, names=PACS_CLASSES)
    return str(at)


def one_image(at: Path) -> str:
    png(at / "train" / "n1" / "a.png", pixels(1, 4, 4, 3)[0])
    return str(at)


REFUSED: dict[str, Callable[[Path], PublishedImages]] = {
    r"height and width of images = \(28, 28\): must be \(32, 32\)": lambda at: CIFAR10(
        parquet(at, (28, 28, 3), label=[0])
    ),
    r"labels of train, row 1 = 10: must be 0 to 9": lambda at: MNIST(parquet(at, (28, 28, 1), label=[0, 10])),
    r"labels of train, row 0 = -1: must be 0 to 9": lambda at: MNIST(parquet(at, (28, 28, 1), label=[-1, 0])),
    r"number of different labels = 3: must be 10": lambda at: MNIST(parquet(at, (28, 28, 1), label=["a", "b", "c"])),
    r"coarse labels of train, row 0 = 20: must be 0 to 19": lambda at: CIFAR100(
        parquet(at, (32, 32, 3), fine_label=[0], coarse_label=[20])
    ),
    r"label = 'fine_label': there is no such column in .*, only image, label": lambda at: CIFAR100(
        parquet(at, (32, 32, 3), label=[0])
    ),
    r"number of different domains = 3: must be 4": lambda at: PACS(fewer_domains(at)),
    r"test_split = 'valid': there is no such split in": lambda at: TinyImageNet(one_image(at)),
    r"must hold a folder for each of mnist, svhn, .*; there is none for mnist": lambda at: DigitFive(str(at)),
    r"path = '': the hub has no such set: fetch the five data sets .* and set path": lambda at: DigitFive(),
    r"path = '': the hub has no such set: fetch Landmarks-User-160k's .* and set path": lambda at: Landmarks(),
    r"path = './nowhere': there is no such folder": lambda at: CIFAR10("./nowhere"),
    r"CIFAR100.labels = 'both': must be 'fine' or 'coarse'": lambda at: CIFAR100(labels="both"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_not_the_named_data_set_is_refused_in_one_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(ValueError, match=line) as caught:
        REFUSED[line](tmp_path).load()
    assert "\n" not in str(caught.value)


def test_another_number_of_images_than_published_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_idx(tmp_path)
    with caplog.at_level(logging.WARNING):
        MNIST(str(tmp_path)).load()
    assert "mnist: 6 training and 6 test images, where the published data have 60000 and 10000" in caplog.text


def test_without_a_network_each_name_says_what_to_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline as the hub's library knows it."""
    offline(monkeypatch)
    for name, hub in [(name, known.hub) for name, known in CATALOGUE.items() if known.hub]:
        with pytest.raises(ValueError) as refused:
            DATASETS[name]().load()
        line = str(refused.value)
        assert "\n" not in line
        assert line.startswith(f"path = {hub!r}: is no folder here, and the hub did not give it (")
        assert f"hf download {hub} --repo-type dataset --local-dir FOLDER" in line


def test_a_domain_without_test_images_moves_no_other_domains_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose users have so few images each that none is held out."""
    write_digit_five(tmp_path)

    def loaded(folder: str, *settings: Any) -> Source:
        source = load(folder, *settings)
        if folder.endswith("Synth_Digits"):
            return replace(source, test=None)
        return source

    monkeypatch.setattr(published, "load", loaded)
    source = DigitFive(str(tmp_path)).load()
    assert source.test is not None and source.test.domain is not None
    assert source.test.domain.bincount().tolist() == [30, 20, 5, 0, 5]
