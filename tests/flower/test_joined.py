"""A client joins a served run, or leaves it: another run goes on from its state, as a simulation does."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from fedsash.flower import Waiting
from fedsash.lab.config import load
from fedsash.lab.served.apps import node_app, serve, write_app
from fedsash.runs import Fork, run
from fedsash.settings.errors import RunError
from fedsash.testing.grid import InProcessGrid
from support.loopback import content
from support.observing import rows

WAITING = Waiting(poll=0.01)


def experiment(folder: Path, clients: int, rounds: int, method: str) -> Path:
    """The file of an experiment, which is also that of its nodes' data."""
    file = folder / f"{clients}.toml"
    partition = {"name": "iid", "clients": clients}
    file.write_text(content(partition=partition, method={"name": method}, rounds=rounds))
    return file


def config_of(app: Path) -> dict[str, Any]:
    """The configuration of an app that the command has written."""
    table: dict[str, Any] = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    return table


def served(folder: Path, clients: int, rounds: int, method: str = "fedavg", fork: Fork | None = None) -> Path:
    """Serve an experiment to so many nodes in this process, by the app that the command writes; its folder."""
    file = experiment(folder, clients, rounds, method)
    out = folder / f"there{clients}"
    app = folder / f"app{clients}"
    app.mkdir()
    write_app(app, load(file), out, clients, WAITING, None, fork)
    own = {"data": str(file), "state": str(folder / "state"), "own-code": ""}
    nodes = {7 + number: {"partition-id": number} | own for number in range(clients)}
    serve(InProcessGrid(node_app(), nodes), config_of(app))
    return out


@pytest.mark.full
@pytest.mark.parametrize("clients", [3, 1], ids=["joins", "leaves"])
def test_a_run_with_another_client_goes_on_as_in_a_simulation(clients: int, tmp_path: Path) -> None:
    there = served(tmp_path, 2, 2)
    forked = served(tmp_path, clients, 4, fork=Fork(there, 2))
    here = tmp_path / "here"
    for count, rounds, fork in ((2, 2, None), (clients, 4, Fork(here / "2", 2))):
        found = load(experiment(tmp_path, count, rounds, "fedavg"))
        driver = found.driver()
        run(driver, rounds, out=here / str(count), fork=fork, progress=False, **found.settings(driver))
    assert rows(forked) == rows(here / str(clients)) and rows(forked)[-1]["round"] == 4
    for model in ("model", "w"):
        one, other = (folder / "models" / f"{model}.safetensors" for folder in (forked, here / str(clients)))
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.full
def test_a_client_can_not_join_where_each_remembers_something(tmp_path: Path) -> None:
    there = served(tmp_path, 2, 1, method="scaffold")
    with pytest.raises(RunError, match=r"there2 has 2 clients, and here are 3: with Scaffold"):
        served(tmp_path, 3, 2, method="scaffold", fork=Fork(there, 1))


def test_the_app_of_a_fork_names_the_state_by_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = experiment(tmp_path, 2, 2, "fedavg")
    write_app(tmp_path, load(file), tmp_path / "out", 2, WAITING, None, Fork("runs/f", 60))
    assert json.loads(config_of(tmp_path)["fork"]) == {"folder": str(tmp_path / "runs" / "f"), "round": 60}
