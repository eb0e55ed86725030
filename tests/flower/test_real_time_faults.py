"""Runs in real time in which anything may happen: what counts is the list of arrivals, and what was accepted in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import pytest
import torch
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("flwr")

from fedsash.flower.nodes import wire
from fedsash.network import FedAsync, FedBuff, Scheduler
from fedsash.runs import Callback, Checkpoint, resume
from fedsash.testing.grid import InProcessGrid
from support.flower import grid
from support.real_time import SCHEDULERS, arrivals, assert_same_run, driver, rows, simulated, trained
from support.worlds import data

STEPS, SIZES = 6, (7, 12, 3, 9)

Fate = Literal["slow", "late", "lost", "failed", "nan", "huge", "twice"]
Trips = dict[tuple[int, int], tuple[Tensor, Tensor]]
"""The model that a client was sent for a trip (client, number), and the change that it answered; float64 `[D]`."""


class Move(NamedTuple):
    """A client's node is not there for some looks at the nodes, and comes back, maybe under another id."""

    client: int
    look: int
    looks: int
    renamed: bool


class Kill(NamedTuple):
    """The server's process ends: after a round, or when it has pulled messages so often."""

    where: Literal["round", "pull"]
    number: int


@dataclass
class Drawn:
    """What befalls trips (client, number), when nodes are away, and how each of the server's processes ends."""

    fates: dict[tuple[int, int], Fate] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)


class Fated(InProcessGrid):
    """The grid of one of the server's processes: nodes, faults and the process's end are as drawn."""

    def __init__(self, folder: Path, drawn: Drawn, kill: Kill | None, trips: Trips) -> None:
        plain = grid(folder, data(SIZES), mods=[self.mod])
        super().__init__(plain.app, plain.configs, self.fated)
        self.drawn, self.kill, self.trips = drawn, kill, trips
        self.looks = self.pulls = 0
        self.begun = False
        self.ready = dict[str, int]()
        self.again: list[Any] = []

    def trip(self, message: Any) -> tuple[int, int] | None:
        if message.metadata.message_type != wire.ACTIONS["train"]:
            return None
        return self.configs[message.metadata.dst_node_id]["partition-id"], int(message.metadata.group_id) - 1

    def fated(self, message: Any) -> Any:
        fate = self.drawn.fates.get(trip, "") if (trip := self.trip(message)) else ""
        return fate if fate in ("late", "lost", "failed") else ""

    def mod(self, message: Any, context: Any, call: Any) -> Any:
        reply = call(message, context)
        if (trip := self.trip(message)) is not None:
            delta = wire.unpacked(reply.content[wire.UPLOAD])["delta"]
            self.trips[trip] = wire.unpacked(message.content[wire.MODEL])["w"].double(), delta[0].double()
            factor = {"nan": float("nan"), "huge": 1e12}.get(self.drawn.fates.get(trip, ""))
            if factor is not None:
                reply.content[wire.UPLOAD] = wire.packed({"delta": delta * factor})
        return reply

    def get_node_ids(self) -> list[int]:
        self.looks += self.begun
        away = {move.client for move in self.drawn.moves if move.look <= self.looks < move.look + move.looks}
        for client in {move.client for move in self.drawn.moves if move.renamed and self.looks == move.look}:
            old = next(node for node, config in self.configs.items() if config["partition-id"] == client)
            self.configs[max(self.configs) + 1] = self.configs.pop(old)
        return [node for node, config in self.configs.items() if config["partition-id"] not in away]

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        asked = list(messages)
        pushed = super().push_messages(asked)
        for name, message in zip(pushed, asked, strict=True):
            self.begun |= self.trip(message) is not None
            if self.drawn.fates.get(self.trip(message) or (-1, -1)) == "slow":
                self.ready[name] = self.pulls + 4
        return pushed

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        self.pulls += self.begun
        found = super().pull_messages(name for name in message_ids if self.ready.get(name, 0) <= self.pulls)
        if self.kill == ("pull", self.pulls):
            raise KeyboardInterrupt
        twice = [one for one in found if one.metadata.group_id and self.twice(one)]
        found, self.again = found + twice + self.again, twice
        return found

    def twice(self, reply: Any) -> bool:
        client = self.configs.get(reply.metadata.src_node_id, {"partition-id": -1})["partition-id"]
        return self.drawn.fates.get((client, int(reply.metadata.group_id) - 1)) == "twice"


class Killed(Callback):
    """The process ends after a round."""

    def __init__(self, kill: Kill | None) -> None:
        self.kill = kill

    def round(self, run: Any, report: Any) -> None:
        if self.kill == ("round", report.round):
            raise KeyboardInterrupt


def served(name: str, limit: int | None, broadcast: str | None, drawn: Drawn, folder: Path) -> tuple[Any, Trips]:
    """The run of all the server's processes, one after another, and what its nodes were sent and have answered."""
    trips: Trips = {}
    how = {"progress": False, "checkpoint": Checkpoint(every=2)}
    for kill in (*drawn.kills, None):
        nodes = Fated(folder / "nodes", drawn, kill, trips)
        world = simulated(data=data(SIZES), broadcast=broadcast)
        how["callbacks"] = [Killed(kill)]
        try:
            here = driver(SCHEDULERS[name], nodes, limit, world=world, deadline=0.03, roll_call=0.1)
            if (folder / "a" / "metrics.jsonl").exists():
                return resume(here, STEPS, folder / "a", **how), trips
            return trained(here, folder / "a", STEPS, **{"callbacks": how["callbacks"]}), trips
        except KeyboardInterrupt:
            continue
    raise AssertionError("the last process is not killed")


fates = st.dictionaries(
    st.tuples(st.integers(0, len(SIZES) - 1), st.integers(0, 5)),
    st.sampled_from(["slow", "late", "lost", "failed", "nan", "huge", "twice"]),
    max_size=12,
)
moves = st.builds(Move, st.integers(0, len(SIZES) - 1), st.integers(1, 25), st.integers(0, 30), st.booleans())
kills = st.builds(Kill, st.sampled_from(["round", "pull"]), st.integers(1, 8))
drawn = st.builds(Drawn, fates, st.lists(moves, max_size=4), st.lists(kills, max_size=2))


NOTHING_CAME: dict[str, Any] = {"name": "slide", "limit": None, "broadcast": None}
NOTHING_CAME["drawn"] = Drawn(
    {(2, 0): "failed", (3, 0): "failed", (0, 1): "slow", (1, 1): "slow"}, kills=[Kill("pull", 4)]
)
"""The server is killed after it has sent a model on which nothing came: it needs it again."""


@pytest.mark.slow
@settings(max_examples=20, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # to shrink takes many minutes
@example(**NOTHING_CAME)
@given(
    name=st.sampled_from(sorted(SCHEDULERS)),
    limit=st.sampled_from([None, 1, 2, 3]),
    broadcast=st.sampled_from([None, "w"]),
    drawn=drawn,
)
def test_whatever_happens_the_run_is_that_of_its_list_and_of_those_accepted_in_it(
    name: str, limit: int | None, broadcast: str | None, drawn: Drawn
) -> None:
    scheduler = SCHEDULERS[name]
    limit = limit if isinstance(scheduler, FedAsync | FedBuff) else None
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        found, trips = served(name, limit, broadcast, drawn, folder)
        record = arrivals(folder / "a")
        assert found.state.round == STEPS or found.summary["ended_early"] == "no node is there any more"
        assert_each_trip_is_in_the_list_once(record)
        assert_windows_hold_the_last_steps(found)
        assert_named(record, rows(folder / "a"))
        assert_counted(record, found, scheduler)
        assert_drawn(record, found)
        if isinstance(scheduler, FedAsync | FedBuff):
            models = by_hand(scheduler, found.federation.start().w.double(), record, trips, broadcast is None)
            assert len(models) == found.state.round + 1
            torch.testing.assert_close(found.state.w, models[-1], rtol=0, atol=1e-12)
            mean = torch.stack(models[1:][-3:] or models).mean(0)
            torch.testing.assert_close(found.federation.models(found.state)["w"], mean, rtol=0, atol=1e-12)
        world = simulated(data=data(SIZES), broadcast=broadcast)
        trained(driver(scheduler, None, limit, folder / "a", world), folder / "b", STEPS)
        assert_same_run(folder / "a", folder / "b")


def assert_each_trip_is_in_the_list_once(record: Sequence[Any]) -> None:
    """In order of time; a client's trips follow one another, and it is back after it was away."""
    assert [one[0] for one in record] == sorted(one[0] for one in record)
    for client in range(len(SIZES)):
        own = [(number, why) for _, i, number, _, why in record if i == client]
        numbers = [number for number, _ in own if number >= 0]
        assert numbers == list(range(len(numbers)))
        presence = [why for number, why in own if number < 0]
        assert presence == ["away", "back"] * (len(presence) // 2) + ["away"] * (len(presence) % 2)


def assert_windows_hold_the_last_steps(found: Any) -> None:
    state, steps = found.state, found.state.round
    held = sorted(state.averages["w"]["rounds"][state.averages["w"]["rounds"] >= 0].tolist())
    assert held[-3:] == [step for step in range(steps + 1) if step > max(steps - 3, 0)] or steps == 0, (held, steps)
    assert all(bool(torch.isfinite(w).all()) for w in found.federation.models(state).values())
    assert all(bool(torch.isfinite(model["w"]).all()) for _, model in state.models())


def assert_named(record: Sequence[Any], rows: Sequence[dict[str, Any]]) -> None:
    """The metrics name whose uploads did not come or were refused, and nobody else."""
    guards = [row for row in rows if row["split"] == "guard"]
    missing = {(int(client), why) for row in guards for client, why in row.get("missing", {}).items()}
    assert missing <= {(client, why) for _, client, number, _, why in record if number >= 0 and why}
    assert {client for row in guards for client in row["refused"]} <= {one[1] for one in record if one[4] == "refused"}


def assert_counted(record: Sequence[Any], found: Any, scheduler: Scheduler) -> None:
    """The summary counts the trips of the list. Clients with trips in flight have been sent a model as well."""
    trips = [why for _, _, number, _, why in record if number >= 0]
    arrived = sum(why in ("", "refused") for why in trips)
    network, size = found.summary["network"], found.state.w.numel() * found.state.w.itemsize
    assert (network["trips"], network["arrived"]) == (len(trips), arrived)
    assert network["failed_uploads"] == len(trips) - arrived and network["bytes_up"] == arrived * size
    if isinstance(scheduler, FedAsync | FedBuff):
        assert 0 <= network["bytes_down"] / size - len(trips) < len(SIZES)


def assert_drawn(record: Sequence[Any], found: Any) -> None:
    """The timeline has an interval for each trip of the list, from its beginning to its time in the list."""
    intervals = json.loads((found.folder / "timeline.json").read_text())["intervals"]
    drawn = [(client, what, round(end, 6)) for client, what, _, end in intervals if what != "wait"]
    trips = [one for one in record if one[2] >= 0]
    ends = [(i, "train" if why in ("", "refused") else "failed", round(time, 6)) for time, i, _, _, why in trips]
    assert sorted(drawn) == sorted(ends)


def by_hand(scheduler: FedAsync | FedBuff, w: Tensor, record: Sequence[Any], trips: Trips, plain: bool) -> list[Tensor]:
    """All global models, from the uploads that were accepted; with a `plain` model clients are sent the newest."""
    models, buffer = [w], list[Tensor]()
    for _, client, number, version, why in record:
        if number < 0 or why:
            continue
        (sent, delta), stale = trips[client, number], len(models) - 1 - version
        if plain:
            torch.testing.assert_close(sent, models[version], rtol=0, atol=1e-12)
        if isinstance(scheduler, FedAsync):
            share = scheduler.alpha * (1 + stale) ** -scheduler.a
            models.append((1 - share) * models[-1] + share * (sent + delta))
            continue
        buffer.append((1 + stale) ** -scheduler.a * delta)
        if len(buffer) == scheduler.size:
            models.append(models[-1] + scheduler.lr * torch.stack(buffer).mean(0))
            buffer.clear()
    return models
