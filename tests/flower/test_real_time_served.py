"""Experiment files with a scheduler, served to nodes in real time."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

pytest.importorskip("flwr")

from fedsash.flower import RealTime, Waiting
from fedsash.flower.nodes.wire import ROLL_CALL
from fedsash.lab.cli import main
from fedsash.lab.config import load
from fedsash.lab.report.collect import collect
from fedsash.lab.report.page import document
from fedsash.lab.served.apps import node_app, serve
from fedsash.network import Asynchronous
from fedsash.runs import run
from fedsash.system.lock import InUseError, check_free
from fedsash.testing.grid import InProcessGrid
from support.loopback import content

FEDBUFF: dict[str, Any] = {"name": "fedbuff", "size": 2}


def served(folder: Path, limit: int = 0, **tables: Any) -> Path:
    """Serve an experiment to three nodes in this process; returns its file."""
    experiment, data = folder / "experiment.toml", folder / "mine.toml"
    partition = {"name": "iid", "clients": 3}
    experiment.write_text(content(partition=partition, method={"name": "fedavg"}, rounds=4, **tables))
    data.write_text('seed = 5\n[data]\nname = "digits"\n[partition]\nname = "iid"\nclients = 3\n')
    own = {"data": str(data), "state": str(folder / "state"), "own-code": ""}
    grid = InProcessGrid(node_app(), {7 + number: {"partition-id": number} | own for number in range(3)})
    config = {
        "experiment": json.dumps(load(experiment).table()),
        "out": str(folder / "out"),
        "clients": 3,
        "waiting": json.dumps(vars(Waiting(poll=0.01))),
        "limit": limit,
        "fork": "",
    }
    serve(grid, config)
    return experiment


def test_the_scheduler_of_an_experiment_file_moves_the_server_in_real_time(tmp_path: Path) -> None:
    """Its simulated network is not used. A replay in the simulation of the file gives the bytes."""
    experiment = served(tmp_path, 2, scheduler=FEDBUFF, network={"link": {"rate": 1.0}})
    found: Any = load(experiment)
    again = Asynchronous(found.federation(), RealTime(2, tmp_path / "out"), found.scheduler)
    run(again, 4, out=tmp_path / "again", progress=False)
    for model in ("model", "w"):
        one, other = (tmp_path / name / "models" / f"{model}.safetensors" for name in ("out", "again"))
        assert one.read_bytes() == other.read_bytes() and load_file(one)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["network"]["arrived"] >= 8 and "link_use" not in summary["network"]


def test_a_run_in_real_time_is_on_the_page_of_a_report(tmp_path: Path) -> None:
    served(tmp_path, scheduler=FEDBUFF)
    page = document(collect([tmp_path / "out"]), "fedsash report")
    assert "Who does what when" in page and "left out" not in page
    assert f"fedsash flower serve {tmp_path / 'out' / 'config.toml'} --out AGAIN --clients N --superlink NAME" in page
    assert not {"partition", "network"} & tomllib.loads((tmp_path / "out" / "config.toml").read_text()).keys()


def test_resume_says_that_the_clients_are_on_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    served(tmp_path)
    assert main(["resume", str(tmp_path / "out"), "--rounds", "6"]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and "holds a run over nodes: go on with the fedsash flower serve that began it" in line


def test_a_folder_is_held_while_its_run_waits_for_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a second server is refused at once, by the name of the first, before any node is asked."""
    asked, first = [], InProcessGrid.push_messages

    def pushed(grid: InProcessGrid, messages: Any) -> Any:
        with pytest.raises(InUseError, match="in use by"):
            check_free(tmp_path / "out")
        asked.extend(messages := list(messages))
        return first(grid, messages)

    monkeypatch.setattr(InProcessGrid, "push_messages", pushed)
    served(tmp_path)
    assert asked[0].metadata.message_type == ROLL_CALL
