"""The rounds for which a process of a sweep chooses its engine: those of all its runs that take such steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedsash.client.messages import Executor
from fedsash.engines import LocalEngine
from fedsash.engines.training import ClientWork
from fedsash.lab.sweeps import execute, parse, plan
from fedsash.lab.sweeps.scheduling import rounds_alike
from support.sweeps import BASE, sweep


def of_runs(axes: dict[str, Any], processes: int = 1) -> list[int]:
    """The rounds, of each run."""
    return [*rounds_alike(plan(sweep(axes).runs).segments, processes).values()]


@pytest.mark.parametrize(
    "axes",
    [
        {"seed": [0, 1, 2, 3]},
        {"local.lr": [0.1, 0.2, 0.3, 0.4]},
        {"server.lr": [0.5, 1.0], "aggregation": [{"name": "mean"}, {"name": "fednova"}]},
        {"evaluation.every": [1, 2], "partition_seed": [0, 1]},
    ],
)
def test_runs_with_the_same_steps_count_together(axes: dict[str, Any]) -> None:
    assert of_runs(axes) == [24] * 4
    assert of_runs(axes, 2) == [12] * 4
    assert of_runs(axes, 9) == [6] * 4, "a run counts as a whole"


def test_runs_with_other_steps_count_by_themselves() -> None:
    assert of_runs({"seed": [0, 1], "local.batch": [5, 10]}) == [12] * 4
    assert of_runs({"model.hidden": [[8], [4]]}) == [6, 6]
    assert of_runs({"method": [{"name": "fedavg"}, {"name": "scaffold"}]}) == [6, 6]
    assert of_runs({"rounds": [3, 6]}) == [9, 9]


def test_rounds_that_runs_share_count_once() -> None:
    ima: dict[str, Any] = {"off": {}, "on": {"broadcast": {"average": "ima", "start": 3}}}
    assert set(of_runs({"seed": [0, 1], "ima": ima})) == {2 * (3 + 3 + 3)}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[LocalEngine, int | None]]:
    """The engines that were opened, and for how many rounds."""
    engines: list[tuple[LocalEngine, int | None]] = []
    whole = LocalEngine.open

    def recorded(engine: LocalEngine, work: ClientWork, rounds: int | None = None) -> tuple[Executor, list[str]]:
        engines.append((engine, rounds))
        return whole(engine, work, rounds)

    monkeypatch.setattr(LocalEngine, "open", recorded)
    return engines


def test_engines_are_opened_for_these_rounds(tmp_path: Path, opened: list[tuple[LocalEngine, int | None]]) -> None:
    assert not execute(sweep({"seed": [0, 1, 2]}), tmp_path, jobs=1, progress=False).failed
    assert [rounds for _, rounds in opened] == [18] * 3


def test_a_process_chooses_an_engine_once_for_the_same_steps(
    tmp_path: Path, opened: list[tuple[LocalEngine, int | None]]
) -> None:
    base = BASE | {"engine": {"kind": "auto", "workers": 1, "compile": False}}
    axes = {"seed": [0, 1]}
    assert not execute(parse({"base": base, "axes": axes}, Path()), tmp_path, jobs=1, progress=False).failed
    assert [engine.resolved for engine, _ in opened] == [False, True]
    first, second = (json.loads((run / "engine.json").read_text()) for run in (tmp_path / "runs").iterdir())
    assert first == second
