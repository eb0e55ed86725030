"""What holds tensors is shown by a few facts: on a line at a prompt, as a small table in a notebook."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsash import Evaluation, FederatedData, Tracker, Window
from fedsash.methods import Scaffold
from fedsash.runs.tally import Tally
from fedsash.vector.shown import LONGEST, Shown, fact, html_table, text_table
from support.worlds import after, best, federation


@dataclass(repr=False)
class Thing(Shown):
    weight: Any
    nothing: None = None
    secret: str = field(default="hidden", repr=False)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.zeros(3, 4), "float32 [3, 4]"),
        (np.zeros((2, 0), dtype=np.int64), "int64 [2, 0]"),
        (nn.Linear(3, 2), "Linear of 8 parameters"),
        (
            nn.ParameterList([nn.Linear(3, 2).weight.requires_grad_(False)]),
            "ParameterList of 6 parameters, 6 of them frozen",
        ),
        ({"a": torch.zeros(9), "b": 1}, "[a, b]"),
        ([torch.zeros(9)] * 1000, "1,000 items"),
        ((torch.zeros(9), 1), "[float32 [9], 1]"),
        (0.123456789, "0.1235"),
        (object(), "object"),
        ("two\nlines", "two lines"),
    ],
)
def test_a_value_is_a_part_of_a_line(value: object, text: str) -> None:
    assert fact(value) == text


def test_no_value_is_longer_than_its_part_of_the_line() -> None:
    names = {f"a rather long name, number {n}": n for n in range(99)}
    for value in ("x" * 999, names, [f"{name}" for name in names][:6], Thing("y" * 999)):
        assert len(fact(value)) == LONGEST


def test_facts_are_the_fields_that_say_something() -> None:
    assert repr(Thing(torch.zeros(2))) == "Thing(weight=float32 [2])"
    assert Thing(1)._repr_html_() == "<table><caption>Thing</caption><tr><th>weight</th><td>1</td></tr></table>"


def test_a_tables_cells_are_in_line_and_in_html_they_are_only_text() -> None:
    assert text_table(["model", "best"], [["w", "91.0 %"], ["window5", "-"]]) == [
        "model      best",
        "w        91.0 %",
        "window5       -",
    ]
    assert "&lt;b&gt;" in html_table("<b>", ["a", "b"], [["<b>", "1"]])


def test_nothing_that_users_meet_prints_a_tensor_whatever_its_size() -> None:
    clients = [np.arange(n, 1000 + n) for n in range(300)]
    big = FederatedData.from_arrays(np.zeros((2000, 300), np.float32), np.arange(2000) % 1000, clients)
    averages = {f"w{size}": Window(size) for size in range(1, 30)}
    chosen = Evaluation(best_on="test")
    world = federation(method=Scaffold(), averages=averages, evaluation=chosen)
    with world:
        state = after(world, 3)
        request = world.ask(state)
        (metrics, *_) = world.evaluate(state)
        replies = list(world.executor.work(request))
        things = [
            big,
            big.train,
            big.problem,
            world,
            state,
            best(world, state)["model"],
            Tally(),
            request,
            *replies,
            metrics,
        ]
        for thing in [*things, Tracker(Window(9), world.model)]:
            for shown in (repr(thing), thing._repr_html_()):
                assert "tensor(" not in shown and "array(" not in shown and " at 0x" not in shown
            assert "\n" not in repr(thing) and len(repr(thing)) < 900, repr(thing)
    assert repr(big).startswith("FederatedData(clients=300 with 1,000 samples, train=Samples(x=float32 [2000, 300]")
