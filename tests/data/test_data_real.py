"""Real data sets from a folder have the shapes, labels, means and domains that they are known for."""

from __future__ import annotations

import time

import pytest
import torch

from fedsash.data import Images
from support.places import real

pytest.importorskip("pyarrow", reason="fedsash[data] is not installed")
pytest.importorskip("PIL", reason="fedsash[data] is not installed")

pytestmark = pytest.mark.usefixtures("cache")


@pytest.mark.slow
def test_cifar10() -> None:
    path = real("cifar10")
    start = time.perf_counter()
    source = Images(path).load()
    first = time.perf_counter() - start
    assert source.test is not None
    assert (source.train.x.shape, source.test.x.shape) == ((50_000, 32, 32, 3), (10_000, 32, 32, 3))
    assert source.train.y.bincount().tolist() == [5000] * 10
    assert source.test.y.bincount().tolist() == [1000] * 10
    assert source.label_names[0] == "airplane"
    mean = source.transform.prepare(source.train.x).mean(dim=(0, 2, 3)).tolist()
    assert mean == pytest.approx([0.4914, 0.4822, 0.4465], abs=2e-3)
    start = time.perf_counter()
    again = Images(path).load()
    assert time.perf_counter() - start < min(first / 4, 1)
    assert torch.equal(again.train.x, source.train.x)


def test_mnist_is_grey() -> None:
    source = Images(real("mnist10k")).load()
    assert source.test is not None
    assert (source.train.x.shape, source.test.x.shape) == ((8000, 28, 28, 1), (2000, 28, 28, 1))
    assert source.label_names == tuple("0123456789")


@pytest.mark.slow
def test_pacs_has_four_domains() -> None:
    source = Images(real("pacs")).load()
    assert source.test is not None and source.test.domain is not None and source.train.domain is not None
    assert source.domain_names == ("art_painting", "cartoon", "photo", "sketch")
    assert len(source.train) + len(source.test) == 9991
    test_shares = source.test.domain.bincount() / (source.test.domain.bincount() + source.train.domain.bincount())
    assert test_shares.tolist() == pytest.approx([0.1] * 4, abs=1e-3)
    assert source.classes == 7
