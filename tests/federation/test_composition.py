"""Every method with every aggregation, server optimiser, broadcast and engine, and through a saved state."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsash.executors import LocalEngine
from fedsash.lab import checkpoints
from fedsash.local import LocalTraining
from fedsash.state import State
from support.choices import AGGREGATIONS, AVERAGES, BROADCASTS, METHODS, SERVERS
from support.worlds import VECTORISED, WORKERS, after, federation

CLIENT = LocalTraining(lr=0.1, batch=5, epochs=2, momentum=0.5, weight_decay=0.01)
ADAPTIVE = ("adagrad", "adam", "yogi")


def settings(method: str = "fedavg", server: str = "sgd", broadcast: str = "none", aggregation: str = "mean") -> Any:
    return {
        "method": METHODS[method],
        "server": SERVERS[server],
        "broadcast": BROADCASTS[broadcast],
        "aggregation": AGGREGATIONS[aggregation],
        "averages": AVERAGES,
        "local": CLIENT,
    }


def check_engines_and_resume(chosen: Any, tolerance: float, folder: Path) -> None:
    """Finite; engines agree; the state after two rounds, saved, loaded and trained on, is that of four, bitwise."""
    one = after(federation(**chosen), 4)
    assert all(torch.isfinite(tensor).all() for _, tensor in one.tensors())
    assert same(one, after(federation(**chosen, engine=WORKERS), 4))
    for (name, a), (_, b) in zip(
        one.tensors(), after(federation(**chosen, engine=VECTORISED), 4).tensors(), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance, msg=lambda m, name=name: f"{name}: {m}")
    place = checkpoints.save(after(federation(**chosen), 2), folder)
    again = federation(**chosen)
    assert same(one, after(again, 2, checkpoints.load(place, again.start())))


@pytest.mark.parametrize("broadcast", ["none", "after"])
@pytest.mark.parametrize("server", ["sgd", "momentum", "adam", "yogi"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_with_every_server_and_broadcast(method: str, server: str, broadcast: str, tmp_path: Path) -> None:
    # Adaptive servers divide by tiny moments, which blows rounding up; the others keep it where it was.
    check_engines_and_resume(settings(method, server, broadcast), 1e-10 if server in ADAPTIVE else 1e-13, tmp_path)


@pytest.mark.parametrize("broadcast", BROADCASTS)
@pytest.mark.parametrize("server", SERVERS)
def test_every_broadcast_with_every_server(server: str, broadcast: str, tmp_path: Path) -> None:
    check_engines_and_resume(
        settings("scaffold-II", server, broadcast), 1e-11 if server in ADAPTIVE else 1e-13, tmp_path
    )


def with_aggregation(method: str, aggregation: str) -> Any:
    """Slow, unless the rule is one of the two main ones, or the method one with much to remember."""
    main = aggregation in ("fednova", "fedgma") or method in ("scaffold-II", "feddyn", "fedfa")
    return pytest.param(method, aggregation, marks=() if main else pytest.mark.slow)


@pytest.mark.parametrize(
    "method, aggregation", list(itertools.starmap(with_aggregation, itertools.product(METHODS, AGGREGATIONS)))
)
def test_every_method_with_every_aggregation(method: str, aggregation: str, tmp_path: Path) -> None:
    check_engines_and_resume(settings(method, "momentum", "ema", aggregation), 1e-13, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("method, workers", [*((method, 1) for method in METHODS), ("scaffold-II", 2)])
def test_compiled_steps_agree(method: str, workers: int) -> None:
    engine = LocalEngine("vectorised", workers, 3, True, "contiguous", 1)
    compiled = after(federation(**settings(method), engine=engine), 4)
    for (name, a), (_, b) in zip(after(federation(**settings(method)), 4).tensors(), compiled.tensors(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12, msg=lambda m, name=name: f"{name}: {m}")


def same(a: State, b: State) -> bool:
    """Whether two states are the same bytes."""
    return all(n == m and torch.equal(x, y) for (n, x), (m, y) in zip(a.tensors(), b.tensors(), strict=True))
