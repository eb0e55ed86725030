"""Client state that is not finite: whoever keeps it, its client is refused, and nothing of it remains."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

pytest.importorskip("flwr")

from fedsash.client.messages import Missing, Reply, Request
from fedsash.client.store import StateVersions
from fedsash.flower.nodes import wire
from fedsash.flower.nodes.versions import Versions
from fedsash.methods import LocalRun, Scaffold, Upload
from fedsash.server.state import State
from fedsash.vector.arrays import Vectors
from fedsash.vector.spaces import ClientState, Download, WholeModel
from support.by_default import full
from support.faults import run_of
from support.flower import assert_same, grid, here, there
from support.worlds import SIZES, data

BAD = 2
ROUNDS = 4


@dataclass(frozen=True)
class Overflowing(Scaffold):
    """SCAFFOLD, but that one client's new state overflows."""

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        upload, own = super().upload(local)
        return upload, {"c": torch.where(local.size == SIZES[BAD], torch.inf, own["c"])}


@pytest.mark.parametrize("remember", [True, full(False)], ids=["at nodes", "travels"])
def test_a_client_whose_state_overflows_is_refused_as_in_the_simulation(remember: bool, tmp_path: Path) -> None:
    simulated, nodes = here(method=Overflowing()), grid(tmp_path)
    own = f"{__name__}:Overflowing"
    nodes.configs = {node: {**config, "own-code": own} for node, config in nodes.configs.items()}
    refused = []
    with there(nodes, simulated, remember) as world, simulated:
        state, expected = world.start(), simulated.start()
        for _ in range(ROUNDS):
            state, report = world.round(state)
            expected, right = simulated.round(expected)
            assert report.refused == right.refused and not report.missing
            refused += report.refused
    assert set(refused) == {BAD} and not expected.last[BAD]
    assert_same(state, expected)
    assert_run_without_it(expected)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda c: c * float("nan"), "refused"),
        full(lambda c: c + float("inf"), "refused"),
        full(lambda c: c.fill_(1e300), "refused"),
        full(lambda c: c[:, :-1], "missing"),
        (lambda c: c.repeat(1, 1000), "missing"),
        full(lambda c: c.float(), "missing"),
    ],
    ids=["nan", "infinite", "absurd", "short", "long", "type"],
)
def test_state_that_can_not_be_right_does_not_enter_the_servers(
    change: Callable[[Tensor], Tensor], named: str, tmp_path: Path
) -> None:
    def mod(message: Any, context: Any, call: Any) -> Any:
        reply = call(message, context)
        if message.metadata.message_type == wire.ACTIONS["train"] and context.node_config["partition-id"] == BAD:
            own = wire.unpacked(reply.content[wire.CLIENTS])
            reply.content[wire.CLIENTS] = wire.packed({"c": change(own["c"])})
        return reply

    named_in = []
    with there(grid(tmp_path, mods=[mod]), here(method=Scaffold()), remember=False) as world:
        state = world.start()
        for _ in range(ROUNDS):
            state, report = world.round(state)
            named_in += getattr(report, named)
    assert set(named_in) == {BAD}
    assert_run_without_it(state)


def test_a_nodes_own_version_that_is_not_finite_is_missing_by_name(tmp_path: Path) -> None:
    with there(grid(tmp_path), here(method=Scaffold())) as world:
        state, _ = world.round(world.start())
        for file in tmp_path.rglob("*.safetensors"):
            save_file({name: value * float("nan") for name, value in load_file(file).items()}, file)
        ids = np.flatnonzero(state.last.numpy())[:1]
        (answer,) = world.executor.work(world.ask(state, ids=ids))
    assert isinstance(answer, Missing)
    assert f"client {ids[0]} has a state of round 1 that is not finite" in answer.why


def test_a_client_without_its_state_is_missing_alone_and_its_neighbours_on_the_node_answer(tmp_path: Path) -> None:
    """One node has all clients, and the state of one of them is gone, or damaged."""
    nodes = grid(tmp_path, samples=replace(data(), numbers=np.arange(len(SIZES))))
    nodes.configs = {1: {}}
    with there(nodes, here(method=Scaffold())) as world:
        state = world.start()
        for _ in range(ROUNDS):
            state, _ = world.round(state)
        ids = np.flatnonzero(state.last.numpy())
        gone, damaged = ids[:2].tolist()
        shutil.rmtree(next(tmp_path.glob(f"*/{gone}")))
        for file in tmp_path.glob(f"*/{damaged}/*"):
            file.write_bytes(b"damaged")
        answers = list(world.executor.work(world.ask(state, ids=ids)))
    missing = {
        int(ids[place]): answer.why for answer in answers if isinstance(answer, Missing) for place in answer.places
    }
    assert missing.keys() == {gone, damaged}
    assert all(f"client {client} has no state of round" in why for client, why in missing.items())
    replied = [int(ids[place]) for answer in answers if isinstance(answer, Reply) for place in answer.places]
    assert replied == [client for client in ids.tolist() if client not in missing]


@pytest.mark.parametrize(
    "said", [full({"without": [-1], "why": ["x"]}), {"without": [0], "why": []}, full({"without": [9], "why": [""]})]
)
def test_a_node_that_names_other_places_than_its_clients_have_is_missing(said: dict[str, Any], tmp_path: Path) -> None:
    def mod(message: Any, context: Any, call: Any) -> Any:
        reply = call(message, context)
        if message.metadata.message_type == wire.ACTIONS["train"]:
            reply.content[wire.REPLY].update(said)
        return reply

    with there(grid(tmp_path, mods=[mod]), here()) as world:
        _, report = world.round(world.start())
    assert report.missing.keys() == {*report.clients.tolist()}


def assert_run_without_it(state: State) -> None:
    """The state is that of the simulation in which the bad client never trains."""
    expected = dict(run_of(here(method=Scaffold()), lambda t, client: client != BAD, ROUNDS).tensors())
    for name, value in state.tensors():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=1e-12)


def test_a_node_whose_disk_is_full_leaves_nothing_behind_and_its_clients_are_missing_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    with there(grid(tmp_path), here(method=Scaffold())) as world, monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        _, report = world.round(world.start())
    for reason in report.missing.values():
        assert reason.startswith("failed: OSError: [Errno 28] No space left on device: ")
    assert len(report.missing) == len(report.clients)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def asked(round: int, last: int, *sessions: tuple[int, str]) -> Request:
    """A request to client 3, whose state of round `last` counts."""
    return Request(
        job="train",
        round=round,
        ids=np.array([3]),
        sent=WholeModel(torch.zeros(2)),
        server_state=Download({}),
        clients=StateVersions(last=np.array([last]), oldest=0, lineage=sessions),
    )


def test_a_late_request_of_a_server_that_was_killed_changes_no_state_that_counts(tmp_path: Path) -> None:
    """The killed server has asked for round 9; the next session goes on after round 6, and makes rounds 7 to 9 anew.

    Also if the late request was begun before the next session has asked, in another process of the node.
    """
    versions = Versions(tmp_path)
    start = ClientState({"c": torch.zeros(2)})
    first, second = (0, "run"), (6, "run.2")
    late = asked(8, 6, first)
    versions.write(asked(5, 0, first), ClientState({"c": torch.full((1, 2), 6.0)}))
    versions.write(asked(8, 6, first, second), ClientState({"c": torch.full((1, 2), 9.0)}))
    versions.write(late, ClientState({"c": torch.full((1, 2), -1.0)}))
    _, rows, why = versions.read(asked(9, 9, first, second), start)
    assert not why and torch.equal(rows.own["c"], torch.full((1, 2), 9.0))
    _, _, why = versions.read(late, start)
    assert why == {0: "client 3 was asked by a server that has been started again since"}


def test_a_request_that_comes_twice_replaces_no_state_by_one_that_is_not_finite(tmp_path: Path) -> None:
    """The client's samples have broken meanwhile (bottle, seed 10000052)."""
    versions = Versions(tmp_path)
    request = asked(3, 0, (0, "run"))
    versions.write(request, ClientState({"c": torch.ones(1, 2)}))
    versions.write(request, ClientState({"c": torch.full((1, 2), torch.nan)}))
    _, rows, why = versions.read(asked(4, 4, (0, "run")), ClientState({"c": torch.zeros(2)}))
    assert not why and torch.equal(rows.own["c"], torch.ones(1, 2))


def test_a_clients_folder_that_a_killed_process_has_made_is_durable_with_its_first_state(
    synced: list[Path], tmp_path: Path
) -> None:
    """The process was killed before it brought the folder's name to the disk."""
    folder = tmp_path / "run" / "3"
    folder.mkdir(parents=True)
    Versions(tmp_path).write(asked(0, 0, (0, "run")), ClientState({"c": torch.zeros(1, 2)}))
    assert {folder, folder.parent, tmp_path} <= {*synced}


@pytest.mark.parametrize(
    "counts, files", [(lambda round: 0, 1), (lambda round: min(round, 5), 3), (lambda round: round, 4)]
)
def test_versions_that_never_count_do_not_fill_the_disk(
    counts: Callable[[int], int], files: int, tmp_path: Path
) -> None:
    """Of a client that is always late, or late from round 5 on, or never: with saved states of two rounds."""
    versions = Versions(tmp_path)
    for round in range(50):
        request = Request(
            job="train",
            round=round,
            ids=np.array([3]),
            sent=torch.zeros(2),
            server_state={},
            clients=StateVersions(last=np.array([counts(round)]), oldest=max(round - 2, 0), lineage=((0, "run"),)),
        )
        versions.write(request, {"c": torch.zeros(1, 2)})
        assert not versions.read(request, {"c": torch.zeros(2)})[2]
    assert len([*tmp_path.rglob("*.safetensors")]) <= files
