"""What type checkers see of the package: examples, the forms that settings take, the spaces of vectors, and errors."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import pytest

from fedsash.lab.config import Experiment
from fedsash.methods.sampling import FixedClients
from fedsash.network import ClientWindow, FedWindow
from fedsash.runs.callbacks import Track
from fedsash.server.broadcast import Broadcast
from fedsash.server.federation import Federation
from fedsash.settings.checks import is_settings, short_form
from fedsash.settings.setting import Setting, hints_of
from support.places import ROOT

RIGHT = """
from dataclasses import dataclass, fields, replace

from torch import nn

import fedsash as fs
from fedsash import data, network, tasks
from fedsash.runs.callbacks import ExportBest, Track
from fedsash.runs import Checkpoint


@dataclass(frozen=True)
class Mine(fs.Window):
    more: int = 3


def federations(model: nn.Module, clients: fs.FederatedData) -> None:
    f = fs.Federation(model, clients, broadcast="ima", personal="classifier", buffers="local")
    fs.Federation(model, clients, broadcast=fs.Broadcast("ima"), personal=fs.Personal("all"))
    fs.Federation(model, clients, broadcast=None, personal=["body", "head"])
    start: int | str = f.broadcast.start if f.broadcast is not None else 0
    part: str | tuple[str, ...] = f.personal.part
    fs.run(f, 3)
    fs.run(replace(f, broadcast="ema"), 3)
    print(start, part)


fs.Experiment(broadcast="ima", personal="classifier", track="wandb", buffers="average")
tracked: Track = fs.Experiment(track=Track()).track
network.FedWindow(window=4, order=[2, 0, 1])
network.FedWindow(window=network.AIMDWindow(delay=3), order="shuffled")
window: network.ClientWindow = network.FedWindow().window

samplings = fs.sampling.FixedClients(rounds=[[0, 1], (2,)])
drawn: tuple[tuple[int, ...], ...] = replace(samplings, rounds=[[3]]).rounds
fields(samplings)
fs.schedules.Chained([fs.schedules.Warmup(3), fs.schedules.Constant()])
fs.Window(4, part=["head"])
fs.EMA(0.9, part=("head",))
Mine(4, part=["head"], buffers="latest")
fs.Broadcast(["ima", "ema"], start="auto")
fs.Personal(["head"], alone=1)
fs.LocalTraining(lr=1, epochs=[1, 3])
fs.LocalTraining(steps=(1, 3))
Checkpoint(keep=[1, 2])
ExportBest(models=["ima"])
data.Transform(mean=[1, 2], std=[0.5, 1])
data.Images("images.zip", mean=[0.5], std=[1])
data.Table("table.csv", label=["x", "y"], features=["z"])
tasks.Classification(weights=[1, 2.5])
"""

WRONG = """
from torch import nn

import fedsash as fs
from fedsash import network


def federations(model: nn.Module, clients: fs.FederatedData) -> None:
    fs.Federation(model, clients, broadcast=3)
    fs.Federation(model, clients, personal=3)
    fs.Federation(model, clients, buffers="locally")


fs.Experiment(track=3)
network.FedWindow(window="four")
fs.sampling.FixedClients(rounds=3)
fs.sampling.FixedClients()
fs.Broadcast()
fs.Window(4, part=3)
"""
"""Each line of a call is an error."""

SPACES = """
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

import fedsash as fs
from fedsash.methods import Aggregation
from fedsash.vector.layout import Layout
from fedsash.vector.sharing import Sharing
from fedsash.vector.spaces import CommonPart, WholeModel
from fedsash.client.store import StateRows
from fedsash.client.messages import Reply, Request
from fedsash.methods import Effort, LocalRun, RoundMean
from fedsash.methods.sampling import Sampling
from fedsash.server.round import ServerRound
from fedsash.methods.server_optimisers import Server
from fedsash.server.state import State

Vectors = dict[str, Tensor]


@dataclass(frozen=True)
class MyMethod(fs.extend.Method):
    def server_state(self, w: Tensor, layout: Layout) -> dict[str, Tensor]:
        return {"h": torch.zeros_like(w)}

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        return {"c": torch.zeros_like(w)}

    def send(self, w: Tensor, server_state: Vectors, round: int) -> tuple[Tensor, Vectors]:
        return w + server_state["h"], {}

    def upload(self, local: LocalRun) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        return {"delta": local.w - local.sent}, {"c": local.client_state["c"] + local.delta}

    def server_update(self, received: RoundMean) -> tuple[Tensor, dict[str, Tensor]]:
        update, state = super().server_update(received)
        return update + received.mean["delta"], {"h": state["h"] + received.sent}


@dataclass(frozen=True)
class MyServer(Server):
    def init(self, w: Tensor) -> dict[str, Tensor]:
        return {"v": torch.zeros_like(w)}

    def step(self, sent: Tensor, delta: Tensor, state: Vectors) -> tuple[Tensor, Vectors]:
        return sent + delta, {"v": state["v"] + delta}


@dataclass(frozen=True)
class MyRule(Aggregation):
    def init(self, sampling: Sampling, clients: int) -> Vectors:
        return {"clip": torch.ones(())}

    def derive(self, upload: Vectors, effort: Effort, memory: Vectors) -> Vectors:
        return super().derive(upload, effort, memory) | {"sign": upload["delta"].sign() * memory["clip"]}

    def release(
        self, mean: Vectors, *, clients: int, memory: Vectors, like: Tensor, round: int, seed: int
    ) -> tuple[Vectors, Vectors]:
        return mean, {"clip": 2 * memory["clip"]}

    def update(self, mean: Vectors, updates: list[Tensor]) -> Tensor:
        return 0.5 * super().update(mean, updates)


def vectors(f: fs.Federation, w: Tensor, memory: Vectors) -> None:
    MyMethod().send(w, memory, 0)
    MyServer().step(w, w, memory)
    MyRule().update(memory, [])
    models: dict[str, Tensor] = f.models(f.start())
    f.judge(w + models["model"], 0, "mine")


def one_round(half: ServerRound, server: Server, state: State, request: Request, reply: Reply) -> None:
    sharing, rule, method = half.sharing, half.aggregation, half.method
    job: Literal["train"] = "train"
    ids, upload = request.ids, reply.upload
    common = sharing.common_of(request.sent)
    change = sharing.model_change(CommonPart(upload["delta"]), upload)

    server.step(common, sharing.common_of(change), state.optimiser)
    server.step(request.sent, sharing.common_of(change), state.optimiser)  # wrong
    server.step(common, change, state.optimiser)  # wrong
    server.step(common, sharing.common_of(change), state.server_state)  # wrong
    server.init(state.w)  # wrong

    sharing.with_common(common, state.w)
    sharing.with_common(state.w, state.w)  # wrong
    sharing.with_common(common, common)  # wrong
    sharing.common_of(common)  # wrong
    sharing.model_change(change, upload)  # wrong
    sharing.model_change(common, reply.client_state)  # wrong
    sharing.with_own(common, common)  # wrong

    method.send(common, state.server_state, 0)
    method.send(state.w, state.server_state, 0)  # wrong
    method.send(common, request.server_state, 0)  # wrong
    method.client_state(state.w)  # wrong
    method.server_state(state.w, sharing.common)  # wrong

    rule.release(upload, clients=1, memory=state.aggregation, like=common, round=0, seed=0)
    rule.release(upload, clients=1, memory=state.optimiser, like=common, round=0, seed=0)  # wrong
    rule.release(upload, clients=1, memory=state.aggregation, like=state.w, round=0, seed=0)  # wrong

    Request(job=job, round=0, ids=ids, sent=state.w, server_state=request.server_state)
    Request(job=job, round=0, ids=ids, sent=common, server_state=request.server_state)  # wrong
    Request(job=job, round=0, ids=ids, sent=state.w, server_state=state.server_state)  # wrong
    StateRows(reply.client_state)
    StateRows(state.client_state)  # wrong
    StateRows(upload)  # wrong

    state.clients.accept(ids, [(ids, reply.client_state)], 1)
    state.clients.accept(ids, [(ids, upload)], 1)  # wrong
    state.w = WholeModel(state.w + change)
    state.w = common  # wrong
    state.w = state.w + change  # wrong
    state.optimiser = state.server_state  # wrong
    state.executor = state.aggregation  # wrong
"""
"""The lines marked as wrong are errors, no others: those of one's own code have plain tensors."""

Place = tuple[str, int]
"""The name of a file, and the number of a line."""


def from_mypy(files: list[Path]) -> set[Place]:
    untyped = ["--allow-subclassing-any", "--allow-untyped-calls", "--no-warn-return-any"]  # of libraries
    lines = said("mypy", "--output", "json", *untyped, *map(str, files)).splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return {(Path(one["file"]).name, one["line"]) for one in found if one["severity"] == "error"}


def from_pyright(files: list[Path]) -> set[Place]:
    options = ["--outputjson", "--pythonpath", sys.executable]
    found = json.loads(said("pyright", *options, *map(str, files)))["generalDiagnostics"]
    return {(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in found}


def said(checker: str, *arguments: str) -> str:
    """What a checker prints; it ends with 1 if it finds errors."""
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed")
    done = subprocess.run([sys.executable, "-m", checker, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.mark.full  # each checker reads PyTorch
@pytest.mark.timeout(600)
@pytest.mark.parametrize("errors_from", [from_mypy, from_pyright])
def test_a_checker_takes_the_examples_all_short_forms_and_plain_vectors_and_no_wrong_ones(
    errors_from: Callable[[list[Path]], set[Place]], tmp_path: Path
) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "spaces.py").write_text(SPACES)
    ours = [file for file in sorted((ROOT / "examples").rglob("*.py")) if "flower" not in file.parts]
    files = [*ours, *sorted(tmp_path.glob("*.py"))]
    calls = {i for i, line in enumerate(WRONG.splitlines(), 1) if line.lstrip().startswith(("fs.", "network."))}
    marked = {i for i, line in enumerate(SPACES.splitlines(), 1) if line.endswith("# wrong")}
    assert errors_from(files) == {("wrong.py", i) for i in calls} | {("spaces.py", i) for i in marked}


def settings(base: type[Setting] = Setting) -> Iterator[type[Setting]]:
    """Every class of settings of the package."""
    for cls in base.__subclasses__():
        if cls.__module__.startswith("fedsash."):
            yield from (cls, *settings(cls))


def in_other_forms(kind: Any) -> bool:
    """Whether a list or a short form may stand in place of a value of this type."""
    if get_origin(kind) in (Union, UnionType):
        return any(map(in_other_forms, get_args(kind)))
    return get_origin(kind) is tuple or (is_settings(kind) and short_form(kind) is not None)


def test_each_field_that_takes_another_form_tells_type_checkers() -> None:
    taken = {
        (cls.__name__, field.name): str(field.type)
        for cls in settings()
        if is_dataclass(cls)
        for field in fields(cls)
        if field.init and in_other_forms(hints_of(cls)[field.name])
    }
    assert {("Federation", "broadcast"), ("FedWindow", "window"), ("FixedClients", "rounds")} <= set(taken)
    assert [place for place, kind in taken.items() if not kind.startswith("Accepts[")] == []


def test_at_run_time_a_field_is_of_its_own_type_alone() -> None:
    assert hints_of(Federation)["broadcast"] == Broadcast | None and Federation.broadcast is None
    assert hints_of(Experiment)["track"] is Track and Experiment().track == Track()
    assert hints_of(FedWindow)["window"] is ClientWindow
    assert hints_of(FixedClients)["rounds"] == tuple[tuple[int, ...], ...]
    assert not hasattr(FixedClients, "rounds")
