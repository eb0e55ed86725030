"""What a federation refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedsash.averages import EMA, Window
from fedsash.errors import ModelError
from fedsash.lab.cli import main
from fedsash.methods.sampling import Uniform
from fedsash.server.federation import Broadcast
from support.experiments import file_with
from support.worlds import federation, mlp


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"broadcast": Broadcast("ima")}, "Broadcast.average = 'ima': must be an average; there is none"),
        ({"averages": {"model": EMA(0.9)}}, "averages = 'model'"),
        ({"averages": {"a/b": EMA(0.9)}}, "averages = 'a/b'"),
        ({"sampling": Uniform(7)}, "Uniform.count = 7: must be at most the number of clients, 6"),
        ({"device": "cuda:99"}, "device = 'cuda:99'"),
        ({"averages": {"a": Window(2, part=("nowhere",))}}, "nowhere"),
        ({"seed": -1}, "Federation.seed = -1"),
        ({"model": nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))}, "fedsash.models.group_norm"),
    ],
)
def test_what_cannot_be_is_refused_with_one_line(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as error:
        federation(**settings)
    assert words in str(error.value) and "\n" not in str(error.value)


def spoilt(name: str, value: float) -> nn.Module:
    """A model that has this value at two places of a parameter or buffer."""
    model = mlp()
    model.register_buffer("mask", torch.zeros(4))
    model.register_parameter("fixed", nn.Parameter(torch.zeros(4), requires_grad=False))
    with torch.no_grad():
        dict([*model.named_parameters(), *model.named_buffers()])[name].view(-1)[1:3] = value
    return model


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("0.weight", float("nan"), "not finite"),
        ("3.bias", float("-inf"), "not finite"),
        ("mask", float("nan"), "NaN"),
        ("fixed", float("nan"), "NaN"),
    ],
)
def test_a_model_that_begins_without_numbers_is_refused_by_the_name_of_its_tensor(
    name: str, value: float, what: str
) -> None:
    with pytest.raises(ModelError, match=rf"^{name} has 2 values that are {what}: "):
        federation(model=spoilt(name, value))


@pytest.mark.parametrize("name", ["mask", "fixed"])
def test_a_mask_may_be_infinite(name: str) -> None:
    federation(model=spoilt(name, float("-inf")))


def infinite(features: int) -> nn.Module:
    model = nn.Linear(features, 10)
    nn.init.constant_(model.bias, float("inf"))
    return model


def test_a_file_with_such_a_model_is_refused_in_a_line_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = file_with(f'[model]\nname = "{__name__}:infinite"\nfeatures = 64\n', tmp_path)
    assert main(["run", str(file), "--out", str(tmp_path / "out"), "--own-code"]) == 2
    line = f"fedsash: {file}: model: bias has 10 values that are not finite: training must begin from finite values\n"
    assert capsys.readouterr().err == line and not (tmp_path / "out").exists()
