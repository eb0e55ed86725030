"""What a federation refuses."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from fedsash.averages import EMA, Window
from fedsash.federation import Broadcast
from fedsash.sampling import Uniform
from support.worlds import (
    federation,
)


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
