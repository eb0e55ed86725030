"""The federation of plain PyTorch in `examples/loops/whole.py` trains what `Federation` trains, from the same draws."""

from __future__ import annotations

import ast
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import numpy as np
import pytest
import torch
from site_build import whole as page

import fedsash as fs
from fedsash.averages import Window
from fedsash.client import LocalTraining
from fedsash.client.plan import Batches
from fedsash.methods import FedAvg, Scaffold
from fedsash.methods.schedules import Mild
from support.by_default import some
from support.places import ROOT
from support.worlds import federation

FILE = ROOT / "examples" / "loops" / "whole.py"
ROUNDS = 7
SIZE = 3
T_S = 3
ETA = 0.1
RATES = {"decay": 0.9, "late": 0.7}


def example() -> Any:
    spec = spec_from_file_location("example_whole", FILE)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def same_draws(f: fs.Federation) -> list[dict[int, list[Any]]]:
    """The clients of each round, and the batches of their steps, as the library draws them."""
    data = f.training_data
    batching = f.local.batching
    batches = Batches(batching, data.clients, seed=f.seed, like=torch.empty(0, dtype=torch.float64))
    rounds = []
    for t in range(ROUNDS):
        drawn: dict[int, list[Any]] = {}
        for i in f.sampling.clients(t, data.sizes, f.seed):
            plan = batches.plan(t, np.array([i]), batching.workload(data.sizes[[i]], f.local.epochs))
            cut = [plan.index[k, 0, : plan.count[k, 0]] for k in range(int(plan.steps[0]))]
            drawn[int(i)] = [(data.train.x[z], data.train.y[z]) for z in cut]
        rounds.append(drawn)
    return rounds


@pytest.mark.parametrize("feeds_back", [False, True], ids=["observes", "feeds back"])
@pytest.mark.parametrize("name", some(["fedavg", "scaffold"], "scaffold"))
def test_the_plain_file_trains_the_models_and_windows_of_the_library(name: str, feeds_back: bool) -> None:
    local = LocalTraining(lr=ETA, batch=5, epochs=2)
    broadcast = None
    t_s = None
    if feeds_back:
        mild = Mild(start=T_S, decay=RATES["decay"], late_decay=RATES["late"])
        local = LocalTraining(lr=ETA, batch=5, epochs=2, schedule=mild)
        broadcast = fs.Broadcast("w", start=T_S + 1)
        t_s = T_S
    method = Scaffold() if name == "scaffold" else FedAvg()
    f = federation(method=method, local=local, averages={"w": Window(SIZE)}, broadcast=broadcast)

    whole = example()
    w = f.start().w
    update = whole.Scaffold(len(f.sizes), w) if name == "scaffold" else whole.FedAvg(f.sizes.tolist())
    models, windows = whole.train(
        f.module,
        w,
        same_draws(f),
        update,
        lambda t: whole.mild(ETA, t, T_S, **RATES) if feeds_back else ETA,
        W=SIZE,
        t_s=t_s,
    )

    f = federation(method=method, local=local, averages={"w": Window(SIZE)}, broadcast=broadcast)
    with f:
        state = f.start()
        for t in range(ROUNDS):
            state, _ = f.round(state)
            torch.testing.assert_close(models[t], state.w, rtol=0, atol=1e-13)
            torch.testing.assert_close(windows[t], f.models(state)["w"], rtol=0, atol=1e-13)
    if name == "scaffold":
        torch.testing.assert_close(update.c, state.server_state["c"], rtol=0, atol=1e-13)
        torch.testing.assert_close(update.c_i, state.client_state["c"], rtol=0, atol=1e-13)
    assert (models[-1] - w).norm() > 0.1
    assert (models[-1] - windows[-1]).norm() > 1e-3


def test_the_plain_file_learns() -> None:
    shares = example().main(T=10)
    assert len(shares) == 6
    assert min(shares.values()) > 0.3  # of ten classes


def test_the_plain_file_imports_pytorch_alone() -> None:
    imported = set()
    for node in ast.walk(ast.parse(FILE.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).partition(".")[0])
    assert imported == {"__future__", "collections", "torch"}


def test_the_page_has_every_line_of_the_file_once() -> None:
    in_file = [line.strip().strip('"') for line in FILE.read_text().splitlines()]
    on_page = [line.strip().strip('"') for line in page.page(ROOT).splitlines() if not line.startswith(("#", "```"))]
    assert sorted(filter(None, on_page)) == sorted(filter(None, in_file))
