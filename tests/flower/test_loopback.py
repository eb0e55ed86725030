"""Real processes that fail: nodes and servers that are killed, and a bad node. The example's test has others."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("flwr")

from fedsash.flower import RealTime
from fedsash.flower.real_time.arrivals import read
from fedsash.lab.config import load
from fedsash.network import Asynchronous, FedBuff
from fedsash.runs import run
from support.faults import run_of
from support.loopback import after, files, served, simulated, started, wait
from support.observing import rows

IN_REAL_TIME: dict[str, Any] = {"method": {"name": "fedavg"}, "scheduler": {"name": "fedbuff", "size": 2}}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_node_killed_in_mid_round_is_missing_by_name_and_comes_back(tmp_path: Path) -> None:
    experiment, data = files(tmp_path, rounds=6)
    out = tmp_path / "there"
    with started(tmp_path, data) as flower:
        process = flower.serve(experiment, out, 2, "--deadline", "15")
        wait(lambda: after(out, 1), flower)
        flower.kill("node1")
        time.sleep(1)
        flower.node(1, data, "--insecure")
        assert process.wait(280) == 0, flower.logs()
    missing = {row["round"] - 1: row["missing"] for row in rows(out) if row["split"] == "guard"}
    assert missing and all(set(who) == {"1"} for who in missing.values()) and len(missing) < 5
    assert_run_of(experiment, out, 6, lambda t, client: not (client == 1 and t in missing))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_server_killed_in_mid_round_goes_on_with_the_bytes_of_an_undisturbed_run(tmp_path: Path) -> None:
    experiment, data = files(tmp_path, rounds=4)
    out = tmp_path / "there"
    with started(tmp_path, data) as flower:
        process = flower.serve(experiment, out, 2, "--deadline", "60")
        wait(lambda: after(out, 2), flower)
        flower.kill_server()
        assert process.wait(180) == 2, flower.logs()
        assert "the same command goes on" in flower.logs()
        assert served(flower, experiment, out) == 0, flower.logs()
    simulated(experiment, tmp_path / "here")
    assert rows(out) == rows(tmp_path / "here")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_node_whose_uploads_are_not_finite_is_refused_in_every_round(tmp_path: Path) -> None:
    experiment, data = files(tmp_path, method={"name": "fedavg"})
    lines = [
        ",".join([*(f"x{i}" for i in range(64)), "label"]),
        *[",".join(["3e38"] * 64 + [str(i)]) for i in range(10)],
    ]
    (tmp_path / "bad.csv").write_text("\n".join(lines))
    bad = tmp_path / "bad.toml"
    bad.write_text(f'[data]\nname = "table"\npath = "{tmp_path / "bad.csv"}"\ntest = 0.0\n')
    out = tmp_path / "there"
    with started(tmp_path, data, bad) as flower:
        assert served(flower, experiment, out) == 0, flower.logs()
    assert [row["refused"] for row in rows(out) if row["split"] == "guard"] == [[1], [1]]
    assert_run_of(experiment, out, 2, lambda t, client: client == 0)


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_replay_of_a_run_of_five_nodes_in_real_time_gives_its_bytes(tmp_path: Path) -> None:
    experiment, data = files(tmp_path, 5, rounds=4, **IN_REAL_TIME)
    with started(tmp_path, data, nodes=5) as flower:
        assert served(flower, experiment, tmp_path / "there", "--limit", "4", clients=5) == 0, flower.logs()
    assert_replayed(experiment, tmp_path / "there", 4, limit=4)


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_server_killed_in_real_time_goes_on_and_a_replay_gives_the_bytes_of_the_whole_run(tmp_path: Path) -> None:
    experiment, data = files(tmp_path, 3, rounds=5, **IN_REAL_TIME)
    out = tmp_path / "there"
    with started(tmp_path, data, nodes=3) as flower:
        process = flower.serve(experiment, out, 3)
        wait(lambda: after(out, 2), flower)
        flower.kill_server()
        assert process.wait(180) == 2, flower.logs()
        assert "the same command goes on" in flower.logs()
        assert served(flower, experiment, out, clients=3) == 0, flower.logs()
    in_flight = [client for _, client, _, _, why in read(out) if why == "lost: the server was stopped"]
    named = [client for row in rows(out) if row["split"] == "guard" for client in row["missing"]]
    assert in_flight and sorted(named) == sorted(map(str, in_flight))
    assert_replayed(experiment, out, 5)


def assert_replayed(experiment: Path, out: Path, rounds: int, limit: int | None = None) -> None:
    """A replay of a run in real time in the simulation has its bytes, record and metrics."""
    here = out.with_name("here")
    again = Asynchronous(load(experiment).federation(), RealTime(limit, out), FedBuff(2))
    run(again, rounds, out=here, progress=False)
    assert rows(out) == rows(here) and read(out) == read(here)
    assert_same_models(out, here)


def assert_same_models(one: Path, other: Path) -> None:
    for model in ("model", "w"):
        first, second = (folder / "models" / f"{model}.safetensors" for folder in (one, other))
        assert first.read_bytes() == second.read_bytes()


def assert_run_of(experiment: Path, out: Path, rounds: int, accepted: Callable[[int, int], bool]) -> None:
    """The model of the run is that of the simulation in which only those train whose uploads were accepted."""
    world = load(experiment).federation()
    views = world.layout.views(run_of(world, accepted, rounds).w)
    for name, value in load_file(out / "models" / "model.safetensors").items():
        torch.testing.assert_close(value, views[name], rtol=0, atol=1e-6)
