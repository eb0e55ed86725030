"""What type checkers see of the package: examples, the forms that settings take, and those that they refuse."""

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

from fedsash.broadcast import Broadcast
from fedsash.federation import Federation
from fedsash.lab.config import Experiment
from fedsash.network import ClientWindow, FedWindow
from fedsash.runs.callbacks import Track
from fedsash.sampling import FixedClients
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

samplings = fs.FixedClients(rounds=[[0, 1], (2,)])
drawn: tuple[tuple[int, ...], ...] = replace(samplings, rounds=[[3]]).rounds
fields(samplings)
fs.Chained([fs.Warmup(3), fs.Constant()])
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
fs.FixedClients(rounds=3)
fs.FixedClients()
fs.Broadcast()
fs.Window(4, part=3)
"""
"""Each line of a call is an error."""

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
def test_a_checker_takes_the_examples_and_all_short_forms_and_no_wrong_ones(
    errors_from: Callable[[list[Path]], set[Place]], tmp_path: Path
) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    files = [*sorted((ROOT / "examples").glob("*.py")), tmp_path / "right.py", tmp_path / "wrong.py"]
    calls = {i for i, line in enumerate(WRONG.splitlines(), 1) if line.lstrip().startswith(("fs.", "network."))}
    assert errors_from(files) == {("wrong.py", i) for i in calls}


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
