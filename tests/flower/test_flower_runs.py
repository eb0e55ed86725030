"""Runs on nodes: their files are those of a simulation, and a killed server goes on as if nothing had happened."""

from __future__ import annotations

import json
import re
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from fedsash.averages import EMA, Window
from fedsash.evaluation import Evaluation
from fedsash.flower import client_app
from fedsash.methods import FedAvg, Method, Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.runs import Callback, Checkpoint, resume, run
from fedsash.server.federation import Federation
from fedsash.settings.errors import RunError
from fedsash.testing.grid import InProcessGrid
from support.by_default import full, rotated
from support.flower import assert_same, grid, here, there
from support.worlds import SIZES, data, mlp

EVERY = Evaluation(every=2, last=1)
ROUNDS = 6


def world_of(nodes: InProcessGrid | None, method: Method, remember: bool = True) -> Federation:
    simulated = here(method=method, averages={"w": Window(3), "ema": EMA(0.5)}, evaluation=EVERY)
    return simulated if nodes is None else there(nodes, simulated, remember)


def trained(world: Federation, out: Path, **how: Any) -> Any:
    return run(world, ROUNDS, out=out, progress=False, checkpoint=Checkpoint(every=2), **how)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


class Killed(Callback):
    """Ends the process, as it were, in the middle of a round."""

    def __init__(self, after: int) -> None:
        self.after = after

    def round(self, run: Any, report: Any) -> None:
        if report.round == self.after:
            raise KeyboardInterrupt


@pytest.mark.parametrize("method", [full(FedAvg()), Scaffold()], ids=str)
def test_the_records_and_models_of_a_run_are_those_of_the_simulation(method: Method, tmp_path: Path) -> None:
    found = trained(world_of(grid(tmp_path / "nodes"), method), tmp_path / "there")
    right = trained(world_of(None, method), tmp_path / "here")
    assert_same(found.state, right.state)
    assert rows(tmp_path / "there") == rows(tmp_path / "here")
    for model in ("model", "w", "ema"):
        one, other = (tmp_path / place / "models" / f"{model}.safetensors" for place in ("there", "here"))
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    "after, state",
    [
        *rotated([1, 4], ["travels", "at nodes"], turns=1),
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in product([3, 5], ["travels", "at nodes"])),
    ],
)
def test_a_server_that_was_killed_goes_on_with_the_bytes_of_an_undisturbed_run(
    after: int, state: str, tmp_path: Path
) -> None:
    """By then its nodes have gone on, have been started again, and have other ids."""
    nodes, remember = grid(tmp_path / "nodes"), state == "at nodes"
    with pytest.raises(KeyboardInterrupt):
        trained(world_of(nodes, Scaffold(), remember), tmp_path / "a", callbacks=[Killed(after)])
    lost = max(
        map(int, (path.name for path in (tmp_path / "a" / "state").iterdir() if path.name.isdecimal())), default=0
    )
    newest = tmp_path / "a" / "state" / f"{lost:08d}"
    if lost % 2:  # the state that an interrupt saves: a kill saves none
        shutil.rmtree(newest)
    started = client_app(data(), model=mlp(), folder=tmp_path / "nodes")
    again = InProcessGrid(started, {500 + client: {"partition-id": client} for client in range(len(SIZES))})
    found = resume(world_of(again, Scaffold(), remember), ROUNDS, tmp_path / "a", progress=False)
    right = trained(world_of(grid(tmp_path / "others"), Scaffold(), remember), tmp_path / "b")
    assert_same(found.state, right.state)
    assert rows(tmp_path / "a") == rows(tmp_path / "b")


def test_each_session_whose_clients_keep_their_state_has_a_number_and_the_run_keeps_its_id(tmp_path: Path) -> None:
    """A session without a round that counts leaves no trace in the lineage, and its number is not given again."""
    ids = []

    class Noting(Callback):
        def begin(self, run: Any) -> None:
            ids.append(run.id)

    def go_on(rounds: int) -> list[tuple[int, str]]:
        world = world_of(grid(tmp_path / "nodes"), Scaffold())
        resumed = resume(world, rounds, tmp_path / "run", progress=False, callbacks=[Noting()])
        return [*resumed.state.clients.lineage]

    first = run(world_of(grid(tmp_path / "nodes"), Scaffold()), 2, out=tmp_path / "run", progress=False)
    ((_, id),) = first.state.clients.lineage
    assert not (tmp_path / "run" / "sessions.json").exists()
    assert go_on(4) == [(0, id), (2, f"{id}.2")]
    assert go_on(4) == [(0, id), (2, f"{id}.2"), (4, f"{id}.3")]
    assert go_on(5) == [(0, id), (2, f"{id}.2"), (4, f"{id}.4")]
    assert ids == [id, id, id]


def test_a_run_does_not_go_on_with_clients_of_other_sizes(tmp_path: Path) -> None:
    trained(world_of(grid(tmp_path / "nodes"), FedAvg()), tmp_path / "a")
    other = grid(tmp_path / "nodes", data((7, 12, 3, 20, 9, 2)))
    with pytest.raises(RunError, match="of another experiment: client 5 has 2 samples instead of 1"):
        resume(world_of(other, FedAvg()), ROUNDS + 2, tmp_path / "a", progress=False)


def told(caplog: pytest.LogCaptureFixture, folder: Path, missing: dict[int, set[int]]) -> list[str]:
    """The beginnings of the lines that a run logs whose clients fail in these rounds."""
    nodes, out = grid(folder / "nodes"), {round: {100 - 7 * each for each in own} for round, own in missing.items()}
    nodes.fault = lambda m: "lost" if m.metadata.dst_node_id in out.get(int(m.metadata.group_id or 0), ()) else ""
    simulated = here(method=FedAvg(), sampling=Uniform(6), evaluation=EVERY)
    run(there(nodes, simulated), len(missing), progress=False)
    return [re.sub(r" \(.*?\)", "", line) for line in caplog.messages if "round" in line]


def test_a_client_that_fails_after_another_one_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = told(caplog, tmp_path, {1: {1}, 2: {1}, 3: {1, 2}, 4: {1, 2}, 5: {1}, 6: set(), 7: {1}})
    one, both = "no answer from client 1", "no answer from client 1, client 2"
    assert lines == [f"round 1: {one}", f"round 3: {both}", f"round 7: {one}"]


def test_clients_that_miss_rounds_by_chance_are_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = told(caplog, tmp_path, {round: {round % 5, (round + 1) % 5} for round in range(1, 9)})
    assert lines == ["round 1: no answer from client 1, client 2"]


def test_who_missed_a_round_and_why_is_recorded(tmp_path: Path) -> None:
    nodes = grid(tmp_path / "nodes")
    nodes.fault = lambda message: "late" if message.metadata.group_id == "3" else ""
    trained(world_of(nodes, FedAvg()), tmp_path / "a")
    (guard,) = [row for row in rows(tmp_path / "a") if row["split"] == "guard"]
    assert guard["round"] == 3 and guard["skipped"] == "no client answered" and len(guard["missing"]) == 4
    assert set(guard["missing"].values()) == {"late: no answer within 0.01 s"}
