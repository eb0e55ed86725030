"""What a reproduction was trained on: the paper's data and network, or others, which its figures then name."""

from __future__ import annotations

import pytest

from fedsash.lab.reproductions import load
from fedsash.lab.reproductions.reproduce import Order


@pytest.mark.parametrize(
    ("name", "scale", "others"),
    [
        ("ima-figure-1", "full", ""),
        ("ima-figure-1", "small", ""),
        ("ima-figure-1", "tiny", "on Digits"),
        ("wima-figure-3", "small", "lenet5 on CIFAR10"),
    ],
)
def test_data_and_networks_that_are_not_the_papers_are_named(name: str, scale: str, others: str) -> None:
    subjects = Order(load(name), scale).other_subjects
    assert others in subjects
    assert bool(subjects) == bool(others)
