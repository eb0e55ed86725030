"""Nodes that are late, lost, broken, hostile or started again, and a server that is set back: what counts is what was
accepted."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("flwr")
from google.protobuf.message import DecodeError

from fedsash.averages import Window
from fedsash.client.messages import RoundReport
from fedsash.client.store import StateVersions
from fedsash.flower.nodes import wire
from fedsash.flower.nodes.versions import Versions
from fedsash.methods import FedDyn, FedMoSWA, Method, Mime, Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.server.federation import Federation
from fedsash.server.state import State
from fedsash.testing.grid import InProcessGrid
from fedsash.vector.arrays import Vectors
from support.by_default import full, some
from support.faults import run_of
from support.flower import grid, here, there
from support.worlds import SIZES, data

METHODS: dict[str, Method] = {"scaffold": Scaffold(), "feddyn": FedDyn(0.3), "fedmoswa": FedMoSWA(0.2, 1.3, 0.4)}

Change = Callable[[Tensor], Tensor]

UPLOADS: dict[str, Change] = {
    "nan": lambda delta: delta * float("nan"),
    "huge": lambda delta: delta * 1e12,
    "short": lambda delta: delta[:, :-1],
    "wide": lambda delta: delta.repeat(1, 1000),
    "other type": lambda delta: delta.float(),
    "scalar": lambda delta: delta.sum(),
}
"""What becomes of an upload at a hostile node."""

WHYS = {
    "lost": "late: no answer within",
    "late": "late: no answer within",
    "failed": "the node has failed",
    "short": "delta is float64",
    "wide": "delta is float64",
    "other type": "delta is float32",
    "scalar": r"delta is float64 \[\]",
}

Faults = dict[tuple[int, int], str]
"""What befalls a client in a round (from 0)."""


class Faulty:
    """A grid whose nodes have the faults of a table."""

    def __init__(self, folder: Path, faults: Faults) -> None:
        self.faults = faults
        self.grid: InProcessGrid = grid(folder, mods=[self.mod], fault=self.fault)

    def of(self, message: Any) -> str:
        if message.metadata.message_type != wire.ACTIONS["train"]:
            return ""
        client = self.grid.configs[message.metadata.dst_node_id]["partition-id"]
        return self.faults.get((int(message.metadata.group_id) - 1, client), "")

    def fault(self, message: Any) -> Any:
        fault = self.of(message)
        return fault if fault in ("lost", "late", "failed") else ""

    def mod(self, message: Any, context: Any, call: Any) -> Any:
        reply = call(message, context)
        if (change := UPLOADS.get(self.of(message))) is not None:
            upload = wire.unpacked(reply.content[wire.UPLOAD])
            reply.content[wire.UPLOAD] = wire.packed(upload | {"delta": change(upload["delta"])})
        return reply

    def restart(self, client: int) -> None:
        """The client's node comes back with another id."""
        old = next(node for node, config in self.grid.configs.items() if config["partition-id"] == client)
        self.grid.configs[max(self.grid.configs) + 1] = self.grid.configs.pop(old)


def world_of(faulty: Faulty, method: Method, **waiting: Any) -> Federation:
    return there(faulty.grid, here(method=method, averages={"w": Window(3)}), **waiting)


def assert_is_run_of(state: State, method: Method, faults: Faults, rounds: int, folder: Path, minimum: int = 1) -> None:
    """The state is that of the simulation of those accepted, and so is what the nodes would go on from."""
    simulated = here(method=method, averages={"w": Window(3)})
    expected = run_of(simulated, lambda t, client: (t, client) not in faults, rounds, minimum)
    torch.testing.assert_close(state.w, expected.w, rtol=0, atol=1e-12)
    assert state.averages["w"]["rounds"].tolist() == expected.averages["w"]["rounds"].tolist()
    assert state.last.tolist() == expected.last.tolist()
    for name, value in expected.server_state.items():
        torch.testing.assert_close(state.server_state[name], value, rtol=0, atol=1e-12)
    kept = kept_by_nodes(simulated, state, folder)
    for name, rows in expected.client_state.items():
        torch.testing.assert_close(kept[name], rows, rtol=0, atol=1e-12)


def kept_by_nodes(world: Federation, state: State, folder: Path) -> Vectors:
    """The state of all clients by the versions that the server names, `[N, ...]`."""
    first = world.start()
    start = {name: rows[0] for name, rows in first.client_state.items()}
    everybody = world.ask(first, ids=np.arange(len(SIZES)))
    named = StateVersions(last=state.last.numpy(), lineage=state.clients.lineage)
    _, found, _ = Versions(folder).read(replace(everybody, clients=named), start)
    return found.rows


faults = st.dictionaries(
    st.tuples(st.integers(0, 5), st.integers(0, len(SIZES) - 1)),
    st.sampled_from(["lost", "late", "failed", *UPLOADS]),
    max_size=14,
)


@pytest.mark.slow
@settings(max_examples=25)
@given(
    name=st.sampled_from(sorted(METHODS)),
    faults=faults,
    restarts=st.dictionaries(st.integers(0, 5), st.integers(0, len(SIZES) - 1), max_size=3),
    minimum=st.integers(1, 3),
    back=st.integers(0, 4),
    gone_on=st.integers(0, 3),
)
def test_whatever_happens_the_run_is_that_of_those_accepted(
    name: str, faults: Faults, restarts: dict[int, int], minimum: int, back: int, gone_on: int
) -> None:
    """The server is set back by `gone_on` rounds to round `back`; by then the nodes have newer versions."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        faulty = Faulty(folder, faults)
        with world_of(faulty, METHODS[name], minimum=minimum) as world:
            state: Any = world.start()
            for _ in range(back):
                state, _ = world.round(state)
            saved = copy.deepcopy(state)
            for _ in range(gone_on):
                state, _ = world.round(state)
            state = saved
            while state.round < 6:
                if state.round in restarts:
                    faulty.restart(restarts[state.round])
                state, _ = world.round(state)
        assert_is_run_of(state, METHODS[name], faults, 6, folder, minimum)


@pytest.mark.parametrize("fault", some(WHYS, "late", "failed", "other type"))
def test_who_can_not_be_used_is_named_with_the_reason(fault: str, tmp_path: Path) -> None:
    with world_of(Faulty(tmp_path, {(0, client): fault for client in range(0, 6, 2)}), Scaffold()) as world:
        _, report = world.round(world.start())
    named = set(report.clients.tolist()) & {0, 2, 4}
    assert set(report.missing) == named and not report.skipped
    for why in report.missing.values():
        assert re.search(WHYS[fault], why), why


@pytest.mark.parametrize("fault", ["nan", "huge"])
def test_the_guard_refuses_what_is_not_finite_or_too_long(fault: str, tmp_path: Path) -> None:
    with world_of(Faulty(tmp_path, {(0, client): fault for client in range(6)}), Scaffold()) as world:
        state, report = world.round(world.start())
    assert sorted(report.refused) == sorted(report.clients.tolist()) and "not finite" in report.skipped
    assert (state.averages["w"]["rounds"] < 0).all()


def test_a_reason_is_one_line_that_is_not_too_long_whatever_a_node_says(tmp_path: Path) -> None:
    def mod(message: Any, context: Any, call: Any) -> Any:
        reply = call(message, context)
        if message.metadata.message_type == wire.ACTIONS["train"]:
            upload = wire.unpacked(reply.content[wire.UPLOAD])
            reply.content[wire.UPLOAD] = wire.packed(upload | {"no\nname" * 10_000: torch.zeros(1)})
        return reply

    with there(grid(tmp_path, mods=[mod]), here()) as world:
        _, report = world.round(world.start())
    assert len(report.missing) == 4
    assert all(why.startswith("sent ") and len(why) <= 320 and "\n" not in why for why in report.missing.values())


@pytest.mark.parametrize("rounds", [5, full(50)])
def test_twenty_nodes_of_which_five_are_bad_leave_no_trace(rounds: int, tmp_path: Path) -> None:
    sizes = tuple(range(3, 23))
    bad = dict(zip((1, 4, 9, 13, 19), ("nan", "huge", "short", "late", "failed"), strict=True))
    faults = {(t, client): what for t in range(rounds) for client, what in bad.items()}
    faulty = Faulty(tmp_path, faults)
    faulty.grid = grid(tmp_path, data(sizes), mods=[faulty.mod], fault=faulty.fault)
    simulated = here(method=Scaffold(), averages={"w": Window(5)}, data=data(sizes), sampling=Uniform(10))
    reports: list[RoundReport] = []
    with there(faulty.grid, simulated) as world:
        state = world.start()
        for _ in range(rounds):
            state, report = world.round(state)
            reports.append(report)
            assert all(bool(torch.isfinite(w).all()) for w in world.models(state).values())
    assert {client for one in reports for client in (*one.refused, *one.missing)} == set(bad)
    expected = run_of(simulated, lambda t, client: client not in bad, rounds)
    torch.testing.assert_close(state.w, expected.w, rtol=0, atol=1e-11)
    for (_, model), (_, right) in zip(state.models(), expected.models(), strict=True):
        torch.testing.assert_close(model["w"], right["w"], rtol=0, atol=1e-11)
    torch.testing.assert_close(state.server_state["c"], expected.client_state["c"].mean(0), rtol=0, atol=1e-12)


def test_who_misses_the_probe_is_not_asked_to_train(tmp_path: Path) -> None:
    faulty = Faulty(tmp_path, {})
    asked: list[tuple[str, int]] = []

    def fault(message: Any) -> Any:
        client = faulty.grid.configs[message.metadata.dst_node_id]["partition-id"]
        asked.append((message.metadata.message_type, client))
        return "late" if asked[-1] == ("train.probe", first) else ""

    with world_of(faulty, Mime(0.5)) as world:
        first = int(world.ask(world.start()).ids[0])
        faulty.grid.fault = fault
        _, report = world.round(world.start())
    assert set(report.missing) == {first} and ("train", first) not in asked and len(asked) == 4 + 3


def test_no_state_is_kept_that_no_saved_state_needs(tmp_path: Path) -> None:
    """With `oldest` rounds the server may be set back to: each client keeps what counted then, and what is newer."""
    with world_of(Faulty(tmp_path, {}), Scaffold()) as world:
        state = world.start()
        state.clients.lineage = ((0, "one"),)
        accepted: dict[int, list[int]] = {client: [0] for client in range(len(SIZES))}
        for _ in range(12):
            state.clients.oldest = max(state.round - 3, 0)
            state, report = world.round(state)
            for client in report.clients.tolist():
                accepted[client].append(state.round)
    for client, rounds in accepted.items():
        found = sorted(int(file.name[:8]) for file in (tmp_path / "one" / str(client)).glob("*.safetensors"))
        needed = [r for r in rounds if r > 8 or r == max(v for v in rounds if v <= 8)]
        assert set(found) >= set(needed) - {0}
        assert len(found) <= len([r for r in rounds if r > 5]) + 2


@pytest.mark.parametrize("run", some(["../../etc", "a/b", "", "..", "x" * 65], "../../etc"))
def test_the_id_of_a_run_can_not_lead_out_of_the_folder(run: str, tmp_path: Path) -> None:
    with world_of(Faulty(tmp_path / "inside", {}), Scaffold()) as world:
        state = world.start()
        state.clients.lineage = ((0, run),)
        world.round(state)
    assert {path.name for path in tmp_path.iterdir()} <= {"inside"}
    named = {path.name for path in (tmp_path / "inside").iterdir()} if (tmp_path / "inside").exists() else set()
    assert named == ({"run"} if run == "" else set())


class Drops(InProcessGrid):
    """Leaves out the ids of messages that it could not store, as Flower's grid in memory does."""

    def push_messages(self, messages: Any) -> list[str]:
        ids = super().push_messages(messages)
        return [sent for sent, message in zip(ids, messages, strict=True) if message.metadata.dst_node_id != 100 - 7]


def test_a_message_that_was_not_stored_does_not_move_the_others(tmp_path: Path) -> None:
    samples = data((8,) * 6)
    world = here(data=samples, sampling=Uniform(6))
    models = []
    for kind, why in ((Drops, "lost: the message could not be sent"), (InProcessGrid, "late: ")):
        nodes = grid(tmp_path / kind.__name__, samples)
        with there(nodes, world) as served:
            state = served.start()
            nodes.__class__ = kind
            nodes.fault = lambda message: "lost" if message.metadata.dst_node_id == 100 - 7 else ""
            state, report = served.round(state)
        assert report.missing.keys() == {1} and report.missing[1].startswith(why)
        models.append(state.w)
    assert torch.equal(*models)


@pytest.mark.parametrize("without", some([[False], [True], [0.0], ["0"], [1], [-1]], [-1]), ids=str)
def test_a_node_that_leaves_out_what_it_does_not_hold_is_missing(without: list[Any], tmp_path: Path) -> None:
    def mod(message: Any, context: Any, call: Any) -> Any:
        reply = call(message, context)
        if message.metadata.message_type == wire.ACTIONS["train"] and context.node_config["partition-id"] == 1:
            reply.content[wire.REPLY].update({"without": without, "why": ["x"] * len(without)})
        return reply

    with there(grid(tmp_path, mods=[mod]), here(sampling=Uniform(6))) as world:
        report = world.round(world.start())[1]
    assert list(report.missing) == [1] and "failed: it has no clients at the places" in report.missing[1]


def test_an_answer_that_flower_can_not_read_ends_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Unreadable(InProcessGrid):
        def pull_messages(self, message_ids: Any) -> list[Any]:
            found = super().pull_messages(message_ids)
            if any(message.metadata.message_type == wire.ACTIONS["train"] for message in found):
                raise DecodeError("Error parsing message")
            return found

    plain = grid(tmp_path)
    with there(Unreadable(plain.app, plain.configs), here(sampling=Uniform(2)), deadline=0.05) as world:
        state, report = world.round(world.start())
    assert len(report.missing) == 2 and all("late" in why for why in report.missing.values()) and state.round == 1
    assert "an answer can't be read, and those that came with it are lost: Error parsing message" in caplog.text
