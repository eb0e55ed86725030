"""A run that is stuck goes on to its end, and says since when and why."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from fedsash.client import LocalTraining
from fedsash.evaluation import Evaluation
from fedsash.methods import FedAvg, FedDyn, Method, Mime, Scaffold
from fedsash.runs import run
from support.by_default import some
from support.worlds import federation

EXPLODING: dict[str, Method] = {
    "fedavg": FedAvg(),
    "scaffold": Scaffold(),
    "feddyn": FedDyn(1e-12),
    "mime": Mime(),
}


def exploding(method: str) -> Any:
    """A rate so large that the first uploads are longer than the guard lets pass."""
    return federation(
        method=EXPLODING[method], local=LocalTraining(lr=1e9, batch=5), evaluation=Evaluation(every=2, last=1)
    )


@pytest.mark.parametrize("method", some(EXPLODING, "fedavg", "feddyn"))
def test_it_says_in_which_round_and_why(method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "fedsash"):
        result = run(exploding(method), 6, out=tmp_path, progress=False)
    assert result.state.round == 6
    found = json.loads((tmp_path / "summary.json").read_text())["stuck"]
    assert found == {"round": 1, "why": "every upload was not finite, or longer than 1e+06"}
    said = [record.message for record in caplog.records if "skipped" in record.message]
    assert said == ["round 1: skipped, every upload was not finite, or longer than 1e+06"]


def test_a_run_that_does_not_says_nothing(tmp_path: Path) -> None:
    assert run(federation(), 2, out=tmp_path, progress=False).summary["stuck"] is None
