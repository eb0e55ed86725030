"""The bytes of messages to nodes and back, against the table of docs/how-to/what-travels.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from torch import nn

pytest.importorskip("flwr")

from fedsash.flower.nodes import wire
from fedsash.methods import METHODS, Method
from support.by_default import some
from support.flower import grid, here, there
from support.places import HOW_TO

ROWS = re.findall(r"^\| (.*`.*) \| (\d) \| (\d) \|$", (HOW_TO / "what-travels.md").read_text(), re.M)
CLIENTS = 4


def methods(cell: str) -> dict[str, Method]:
    """The methods that the first cell of a row names."""
    options: dict[str, Any] = {"beta": 0.0} if "`beta = 0`" in cell else {}
    return {name: METHODS[name](**options) for name in re.findall(r"`(\w+)`", cell)}


NAMED = [(name, method, int(down), int(up)) for cell, down, up in ROWS for name, method in methods(cell).items()]


SHOWN = ("scaffold", "mime")


def test_every_method_is_in_the_table() -> None:
    assert {name for name, *_ in NAMED} == METHODS.keys()


@pytest.mark.parametrize(("name", "method", "down", "up"), some((pytest.param(*row) for row in NAMED), *SHOWN))
def test_a_round_has_as_many_vectors_for_each_client_as_the_table_says(
    name: str, method: Method, down: int, up: int, tmp_path: Path
) -> None:
    model = nn.Sequential(nn.Linear(4, 2000), nn.Tanh(), nn.Linear(2000, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    sent: list[int] = []
    came: list[int] = []

    def mod(message: Any, context: Any, call: Any) -> Any:
        if wire.REQUEST in message.content and "settings" in (said := message.content[wire.REQUEST]):
            assert len(str(said["settings"])) < 3000
        sent.append(size(message.content))
        reply = call(message, context)
        came.append(size(reply.content))
        return reply

    with there(grid(tmp_path, model=model, mods=[mod]), here(model=model, method=method)) as world:
        _, report = world.round(world.start())
    assert len(report.clients) == CLIENTS and not report.missing
    whole = CLIENTS * world.layout.size * world.layout.dtype.itemsize
    assert [round(sum(each) / whole, 1) for each in (sent, came)] == [down, up]


def size(content: Any) -> int:
    """The bytes of all arrays in a message."""
    records = (content[kind] for kind in (wire.MODEL, wire.SERVER, wire.CLIENTS, wire.UPLOAD) if kind in content)
    return sum(len(array.data) for record in records for array in record.values())
