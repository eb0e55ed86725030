"""The table [transform]: it takes the place of the data's own transform."""

from __future__ import annotations

from typing import Any

import pytest

from fedsash.data import Transform
from fedsash.lab.config import ConfigError, parse
from support.own import Noise
from support.worlds import after, identical

SMALL: dict[str, Any] = {
    "data": {"name": "digits"},
    "partition": {"name": "iid", "clients": 20},
    "model": {"name": "mlp", "hidden": [4]},
    "local": {"epochs": 1},
    "engine": {"kind": "sequential", "workers": 1, "threads": 1, "compile": False},
}
OWN = {"name": "support.own:Noise", "size": 0.5}


def test_a_registered_transform_crops_digits_as_images() -> None:
    table = {**SMALL, "data": {"name": "digits", "images": True}}
    moved = {**table, "transform": {"name": "images", "crop": 1, "flip": True}}
    assert parse(moved).federated_data().transform == Transform(crop=1, flip=True)
    assert parse(table).federated_data().transform == Transform()


def test_a_transform_of_ones_own_is_named_by_its_place_and_changes_the_training() -> None:
    experiment = parse({**SMALL, "transform": OWN}, own_code=True)
    assert experiment.transform == Noise(size=0.5)
    assert parse(experiment.table(), own_code=True) == experiment and experiment.table()["transform"] == OWN | {
        "mean": [],
        "std": [],
        "crop": 0,
        "flip": False,
    }
    own, plain = (parse(table, own_code=True).federation() for table in ({**SMALL, "transform": OWN}, SMALL))
    assert not identical(after(own, 1), after(plain, 1))


WRONG: dict[str, dict[str, Any]] = {
    "transform.crop = 1: acts on uint8 images, and the data are torch.float32": {"name": "images", "crop": 1},
    "unknown key transform.size": {"name": "images", "size": 1},
    'transform.name = "image": must be one of images, or .*; did you mean images': {"name": "image"},
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_transform_is_refused_in_one_line(line: str) -> None:
    with pytest.raises(ConfigError, match=line) as caught:
        parse({**SMALL, "transform": WRONG[line]}).federated_data()
    assert "\n" not in str(caught.value)
