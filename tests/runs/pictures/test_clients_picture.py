"""The picture of each client's result: its order and its colours."""

from __future__ import annotations

import math

from fedsash.runs.pictures.clients import clients
from fedsash.runs.pictures.picture import Bars
from fedsash.runs.pictures.styles import of_bars
from support.histories import ACCURACY, RMSE


def bars(results: list[float | None], criterion: object = ACCURACY) -> tuple[list[str], Bars]:
    """The names from left to right, and the bars."""
    content = {"round": 1, "clients": [*"ABCD"], "splits": {"client_test": {"model": results, "w": [0.5] * 4}}}
    (panel,) = clients(content, criterion).panels  # type: ignore[arg-type]
    (layer,) = panel.layers
    assert isinstance(layer, Bars) and panel.x.ticks is not None
    return list(panel.x.ticks.values()), layer


def test_clients_stand_from_the_worst_to_the_best_and_one_at_0_is_the_worst() -> None:
    names, layer = bars([0.5, 0.0, 0.9, 0.2])
    assert names == [*"BDAC"] and list(layer.heights[0]) == [0.0, 20.0, 50.0, 90.0]
    assert bars([0.5, None, 0.0, math.nan])[0] == [*"BDCA"]
    assert bars([0.5, 0.0, 0.9, 0.2], RMSE)[0] == [*"CADB"]


def test_no_two_bars_side_by_side_have_one_colour() -> None:
    for count in range(1, 30):
        assert len(set(of_bars(count))) == count
