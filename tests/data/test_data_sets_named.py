"""The papers' data sets by name: the page, experiment files, and real data."""

from __future__ import annotations

import re
import time

import pytest
import torch

from fedsash.data import (
    CIFAR10,
    DATASETS,
    IID,
    MNIST,
    PACS,
    Domains,
    FashionMNIST,
)
from fedsash.data.sources.published import CATALOGUE, PublishedImages
from support.forms import (
    prepared,
)
from support.places import HOW_TO, real

PAGE = (HOW_TO / "datasets.md").read_text()


# The page and the experiment file.


def test_the_page_has_one_row_for_every_name_with_its_hub_and_its_counts() -> None:
    table = {row.split("|")[1].strip(" `"): row for row in re.findall(r"^\| `\w+` .*\|$", PAGE, re.MULTILINE)}
    assert (
        {name for name, make in DATASETS.items() if issubclass(make, PublishedImages)}
        == CATALOGUE.keys()
        <= table.keys()
    )
    for name, known in CATALOGUE.items():
        assert (f"`{known.hub}`" if known.hub else "none") in table[name]
        assert all(f"{count:,}" in table[name] for count in known.sizes or () if count)
        mean = known.settings.transform.mean
        assert not mean or f"{mean[0]:g}" in table[name] or "ImageNet" in table[name]


# Real data.


@pytest.mark.slow
def test_real_cifar10_is_decoded_in_ten_seconds_and_read_again_in_one(caplog: pytest.LogCaptureFixture) -> None:
    path = real("cifar10")
    start = time.perf_counter()
    source = CIFAR10(path).load()
    first = time.perf_counter()
    again = CIFAR10(path, augment=False).load()
    second = time.perf_counter()
    assert first - start < 20 and second - first < 2  # twice what a machine at rest needs
    assert torch.equal(again.train.x, source.train.x)
    assert source.train.y.bincount().tolist() == [5000] * 10
    whole = prepared(again)
    assert whole.mean((0, 2, 3)).tolist() == pytest.approx([0, 0, 0], abs=0.02)
    assert whole.std((0, 2, 3)).tolist() == pytest.approx([1, 1, 1], abs=0.02)
    assert caplog.text == ""


@pytest.mark.full
def test_real_mnist_and_fashion_mnist_are_grey_images_of_ten_classes() -> None:
    digits = MNIST(real("mnist10k")).load()
    clothes = FashionMNIST(real("fashion_mnist")).load()
    assert (digits.train.x.shape, clothes.train.x.shape) == ((8_000, 28, 28, 1), (60_000, 28, 28, 1))
    assert clothes.test is not None and clothes.test.y.bincount().tolist() == [1000] * 10
    assert clothes.label_names[9] == "Ankle boot"


@pytest.mark.slow
def test_real_pacs_is_shared_out_over_eighty_clients_of_one_domain_each() -> None:
    source = PACS(real("pacs"), size=64).load(seed=1)
    assert source.test is not None and source.test.domain is not None and source.train.domain is not None
    data = source.partition(Domains(20, IID(20)), seed=1)
    assert len(data.clients) == 80
    domains = [source.train.domain[torch.from_numpy(client)].unique().tolist() for client in data.clients]
    assert sorted(k for numbers in domains for k in numbers) == [k for k in range(4) for _ in range(20)]
    share = source.test.domain.bincount() / (source.test.domain.bincount() + source.train.domain.bincount())
    assert share.tolist() == pytest.approx([0.1] * 4, abs=1e-3)
