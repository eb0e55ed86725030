"""A task and a metric of one's own, taken from their pages."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedsash as fs
from fedsash.lab.config import parse
from fedsash.tasks import Metric, Scored
from fedsash.vector.arrays import Floats
from support.by_default import some
from support.places import HOW_TO
from support.problems import TABLE, N, Y, judged, output, world

PAGES = "".join((HOW_TO / name).read_text() for name in ("losses.md", "metrics.md"))
SNIPPETS = re.findall(r"^`mine.py`:\n\n```python\n(.*?)^```$", PAGES, re.MULTILINE | re.DOTALL)


def of_the_page(name: str) -> Any:
    """An object of a class whose code a page shows."""
    names: dict[str, Any] = {"__name__": __name__}
    for snippet in SNIPPETS:
        exec(compile(snippet, "docs/how-to", "exec"), names)
    return names[name]()


def ordinal() -> Any:
    return of_the_page("Ordinal")


def test_the_metric_of_the_page_is_the_share_that_is_near() -> None:
    y = torch.tensor([1.0, 2.0, 3.0, 9.0])
    scored = Scored(output=y, predicted=y + torch.tensor([0.5, -1.0, 4.0, 0.0]), y=y, counted=y, losses=y)
    near = of_the_page("Within")
    assert float(near.value(near.sums(scored).sum(0).double().numpy())) == 0.75


@dataclass(frozen=True)
class Distance(fs.tasks.Task):
    """Labels that are numbers, and nothing about the width of a model."""

    labels = "numbers"

    def answer(self, output: Any, y: Tensor) -> Tensor:
        return super().answer(output, y).reshape(y.shape)

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return (output - y).abs()


@pytest.mark.parametrize("task", some(["Ordinal", "Distance"], "Distance"))
def test_a_file_names_a_task_whose_model_has_one_output(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mine", mine := ModuleType("mine"))
    vars(mine).update(Ordinal=type(ordinal()), Distance=Distance)
    with parse({"task": {"name": f"mine:{task}"}}, own_code=True).federation() as f:
        assert [p.shape[0] for p in f.module.parameters()][-1] == 1
        state, report = f.round(f.start())
        assert not report.skipped and state.round == 1


def test_the_task_of_the_page_is_trained_and_scored_as_it_says() -> None:
    f = world(nn.Linear(4, 1), TABLE, Y, task=ordinal())
    state = f.start()
    y = torch.from_numpy(Y)
    said = output(f, state.w, torch.from_numpy(TABLE).float())[:, 0]
    (before,) = f.evaluate(state)
    assert f.goal.criterion.name == "off_by" and f.goal.criterion.better == "lower"
    assert before["off_by"] == pytest.approx(float((said.round() - y).abs().mean()), rel=1e-6)
    assert before.loss == pytest.approx(float((said - y).square().mean()), rel=1e-6)
    assert judged(f, rounds=5).loss < before.loss


@dataclass(frozen=True)
class Farthest(Metric):
    """The largest part of the labels that a class has: its value is not linear in its sums."""

    def sums(self, scored: Scored) -> Tensor:
        return nn.functional.one_hot(scored.predicted, 3)

    def value(self, sums: Floats) -> Floats:
        return np.asarray(sums.max(-1) / sums.sum(-1))


def test_a_metric_of_ones_own_is_computed_from_its_sums() -> None:
    f = world(nn.Linear(4, 3), TABLE, Y, metrics={"largest": Farthest()})
    state = f.start()
    said = output(f, state.w, torch.from_numpy(TABLE).float()).argmax(1)
    assert f.evaluate(state)[0]["largest"] == np.bincount(said, minlength=3).max() / N
    assert f.goal.criterion.name == "largest" and f.goal.criterion.better == "higher"
