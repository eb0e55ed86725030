"""The title of a figure says what was trained: networks, data, rounds and seeds, whatever the paper had."""

from __future__ import annotations

import pytest

from fedsash.lab.papers import load
from fedsash.lab.papers.figures import trained


@pytest.mark.parametrize(
    ("name", "scale", "title"),
    [
        ("ima-figure-2", "full", "cifar_cnn on CIFAR10; 400 rounds, 1 seed"),
        ("ima-figure-2", "small", "cifar_cnn on CIFAR10; 80 rounds, 3 seeds"),
        ("ima-figure-2", "tiny", "mlp on Digits; 12 rounds, 1 seed"),
        ("ima-figure-1", "full", "3 networks or data sets; 400 and 200 rounds, 1 seed"),
        ("wima-figure-3", "small", "lenet5 on CIFAR10; 1,000 rounds, 3 seeds"),
        ("fedwindow-figure-4", "tiny", "mlp on Digits; 3 and 15 rounds, 1 seed"),
    ],
)
def test_what_was_trained_in_words(name: str, scale: str, title: str) -> None:
    assert trained(load(name).plan(scale).runs) == title


@pytest.mark.parametrize(
    "name", ["wima-table-2", "wima-figure-2", "wima-figure-3", "fedwindow-figure-4", "fedswa-table-3"]
)
def test_no_figure_has_data_or_a_network_in_its_own_title(name: str) -> None:
    for figure in load(name).figures:
        assert not any(word in figure.title for word in ("CIFAR", "LeNet", "ResNet", "MNIST"))
