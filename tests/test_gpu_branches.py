"""Clients as branches of one graph: what they train, and the table of the measurement.

Without a GPU the branches run one after another. `make test-gpu` runs them as graphs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks import gpu_branches
from benchmarks.branches import BranchEngine
from torch import nn

from fedsash import SGD, FederatedData, Personal
from fedsash.client import LocalTraining
from fedsash.methods import FedAvg, Method, Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.testing import check_executor, close
from support.by_default import full, rotated
from support.worlds import SEQUENTIAL, SIZES, after, federation

WAYS = ["one client at a time", "branches", "stacked"]


def images(norm: nn.Module, **settings: Any) -> Any:
    """A federation of unequal clients with images of two channels, and convolutions in float64."""
    rng = np.random.default_rng(0)
    n = sum(SIZES)
    clients = np.split(np.arange(n), np.cumsum(SIZES)[:-1])
    data = FederatedData.from_arrays(rng.normal(size=(n, 2, 4, 4)), rng.integers(0, 3, n), clients, classes=3)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), norm, nn.ReLU(), nn.Conv2d(4, 4, 1), nn.Flatten(), nn.Linear(16, 3))
    local = LocalTraining(lr=0.1, batch=5, epochs=2, optimiser=SGD(momentum=0.9, weight_decay=0.01))
    defaults: dict[str, Any] = {"model": model.double(), "data": data, "local": local, "sampling": Uniform(6)}
    return federation(**defaults | settings)


@pytest.mark.parametrize("method, window", rotated([FedAvg(), Scaffold()], [1, 3]))
def test_branches_train_as_one_client_at_a_time(method: Method, window: int, device: str) -> None:
    """With momentum and weight decay, with control variates, in unequal numbers of steps, with padded batches."""
    expected = after(images(nn.GroupNorm(2, 4), method=method, engine=SEQUENTIAL), 2)
    branches = images(nn.GroupNorm(2, 4), method=method, engine=BranchEngine(window=window), device=device)
    assert close(after(branches, 2).w.cpu(), expected.w, 1e-12)


def test_the_memory_format_of_branches_changes_their_rounding_alone(device: str) -> None:
    settings: dict[str, Any] = {"method": Scaffold(), "device": device}
    turned = after(images(nn.GroupNorm(2, 4), engine=BranchEngine(), **settings), 2)
    plain = after(images(nn.GroupNorm(2, 4), engine=BranchEngine(channels_last=False), **settings), 2)
    assert close(turned.w, plain.w, 1e-12)


def test_fewer_branches_than_clients_train_one_after_another(device: str) -> None:
    settings: dict[str, Any] = {"method": Scaffold(), "device": device}
    whole = after(images(nn.GroupNorm(2, 4), engine=BranchEngine(), **settings), 2)
    parts = after(images(nn.GroupNorm(2, 4), engine=BranchEngine(block=4), **settings), 2)
    assert close(parts.w, whole.w, 1e-12)


def test_branches_count_the_statistics_of_real_samples_alone(device: str) -> None:
    """The smallest client has one sample: its statistics, over some pixels, are defined nevertheless."""
    expected = after(images(nn.BatchNorm2d(4), engine=SEQUENTIAL, buffers="average"), 2)
    branches = images(nn.BatchNorm2d(4), engine=BranchEngine(window=3), buffers="average", device=device)
    assert close(after(branches, 2).w.cpu(), expected.w, 1e-12)


@pytest.mark.parametrize("engine", [full(BranchEngine()), BranchEngine(block=3, window=2)])
def test_branches_keep_the_contract_of_executors(engine: BranchEngine) -> None:
    check_executor(engine)


@pytest.mark.slow
@pytest.mark.parametrize("compile", ["loss", "step"])
def test_compiled_branches_train_as_one_client_at_a_time(compile: Any, device: str) -> None:
    expected = after(images(nn.GroupNorm(2, 4), method=Scaffold(), engine=SEQUENTIAL), 2)
    branches = images(nn.GroupNorm(2, 4), method=Scaffold(), engine=BranchEngine(compile=compile), device=device)
    assert close(after(branches, 2).w.cpu(), expected.w, 1e-12)


def test_what_branches_cannot_do_is_refused_in_a_line() -> None:
    personal = federation(engine=BranchEngine(), personal=Personal("classifier"))
    with pytest.raises(ValueError, match=r"^BranchEngine = .*no parameter stays with the clients$"), personal:
        personal.prepare()
    statistics = images(nn.BatchNorm2d(4), engine=BranchEngine(compile="loss"), buffers="average")
    with pytest.raises(ValueError, match=r"^BranchEngine\.compile = 'loss': can't compile a model with"), statistics:
        statistics.prepare()


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_every_row_says_how_far_a_way_is_from_one_client_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    gpu_branches.main(["--tiny", "--cases", "W1", "--device", "cpu", "--ways", *WAYS])
    _, _, *rows, verdict, _ = capsys.readouterr().out.splitlines()
    measured = [cells(row) for row in rows]
    assert [row[:3] for row in measured] == [["W1", p, way] for p in ("bfloat16", "full") for way in WAYS]
    assert all(float(row[7]) < 1e-12 for row in measured if row[1] == "full")
    assert verdict.startswith("bfloat16: branches are 1.15 times as fast as stacked clients in 0 cases")


def test_a_table_that_is_cut_off_has_the_rows_that_were_measured() -> None:
    """The time is over after two rows."""
    times: Iterator[float] = iter([3.0, 3.0, 2.0, 0.0, 0.0])
    rows = list(gpu_branches.rows(["W1"], WAYS, device="cpu", tiny=True, left=lambda: next(times)))
    assert [cells(row)[2] for row in rows[:2]] == ["one client at a time", "branches"]
    assert rows[2] == "the time is over before W1 in full precision"
    assert len(rows) == 5


def test_a_way_that_fails_says_why_and_the_others_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(BranchEngine, "open", fails)
    rows = list(gpu_branches.rows(["W1"], WAYS, device="cpu", tiny=True, left=lambda: 1.0))
    assert rows[1] == "| W1 | bfloat16 | branches | RuntimeError: out of memory |"
    assert cells(rows[2])[2] == "stacked"
