"""An average that keeps no tensors is named, as is one that has observed rounds and counts none: no table has a row
for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from fedsash import Fork, Window, run
from fedsash.averages import Pieces
from fedsash.vector.arrays import Vectors
from support.observing import go_on, start
from support.own import PlainMean
from support.worlds import federation


@dataclass(frozen=True)
class Uncounted(PlainMean):
    """Forgets to count the models that it takes."""

    def take(self, state: Vectors, w: Pieces, round: int, past: Mapping[int, Tensor]) -> None:
        state["sum"] += w.whole()


def test_a_run_says_which_average_has_no_model_after_rounds_that_it_observes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    averages = {"mine": Uncounted(start=2), "right": PlainMean(), "w": Window(2)}
    start(federation(averages=averages), 1, tmp_path)
    assert caplog.messages == ["averages.mine.start = 2: this run ends after 1 rounds, so it stays the model"]
    caplog.clear()
    go_on(federation(averages=averages), 3, tmp_path)
    why = "no round gave a finite model, or `take` does not count it in `seen`"
    assert caplog.messages == [f"averages.mine: no model is in it after round 3, so it stays the model: {why}"]


def test_a_fork_says_that_no_round_after_it_is_observed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    start(federation(), 3, tmp_path / "source")
    caplog.clear()
    start(federation(averages={"w": Window(2, every=3)}), 5, tmp_path / "fork", fork=Fork(tmp_path / "source", 3))
    assert caplog.messages == ["averages.w: observes none of the rounds 4 to 5, so it stays the model"]


@dataclass(frozen=True)
class Keeper(PlainMean):
    """Keeps the pieces that it is given, or a number, instead of a tensor."""

    number: bool = False

    def take(self, state: Any, w: Pieces, round: int, past: Mapping[int, Tensor]) -> None:
        state["sum"], state["seen"] = (0 if self.number else w), state["seen"] + 1


@pytest.mark.parametrize(
    ("number", "said"), [(False, "is Pieces; of the model keep w.whole().clone()"), (True, "is int")]
)
def test_an_average_that_keeps_no_tensors_is_named(number: bool, said: str) -> None:
    line = f"averages.mine: Keeper.take: state['sum'] must be a tensor, {said}"
    with pytest.raises(TypeError, match=f"^{re.escape(line)}$"):
        run(federation(averages={"mine": Keeper(number=number)}), 2, progress=False)
