"""FedAsync, FedBuff and FedWindow over nodes in real time: a list of what happened, and runs that follow from it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr")

from fedsash.client.messages import RoundReport
from fedsash.flower.nodes import wire
from fedsash.network import CapacityWindow, ConstantWindow, FedAsync, FedBuff, FedWindow
from fedsash.network.driver import MODEL
from fedsash.network.schedulers import Scheduler
from fedsash.runs import Callback, Checkpoint, resume, run
from fedsash.runs.checkpoints import FORMAT
from fedsash.settings.errors import RunError, SettingError
from fedsash.testing.grid import InProcessGrid
from fedsash.vector import saved
from support.by_default import by_default, full, some
from support.flower import grid
from support.real_time import (
    CLOCK,
    SCHEDULERS,
    STEPS,
    Reports,
    arrivals,
    assert_same_run,
    driver,
    on_own_clock,
    rows,
    trained,
)
from support.worlds import SIZES


@pytest.fixture(autouse=True, scope="module")
def own_clock() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        on_own_clock(patch)
        yield


@pytest.fixture(scope="module")
def recorded(own_clock: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of FedBuff over nodes, to be read alone."""
    folder = tmp_path_factory.mktemp("recorded")
    trained(driver(FedBuff(3), paced(folder / "nodes")), folder / "a")
    return folder / "a"


class Paced(InProcessGrid):
    """Answers to a request to train take their time: each node has its own pace."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.ready = dict[str, float]()
        self.most = 0

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        asked = list(messages)
        pushed = super().push_messages(asked)
        for name, message in zip(pushed, asked, strict=True):
            if message.metadata.message_type == wire.ACTIONS["train"]:
                client = self.configs.get(message.metadata.dst_node_id, {"partition-id": 0})["partition-id"]
                self.ready[name] = CLOCK.now() + 0.002 + 0.003 * (client % 4)
        self.most = max(self.most, len(self.ready))
        return pushed

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        now = CLOCK.now()
        asked = [name for name in message_ids if self.ready.get(name, now) <= now]
        for name in asked:
            self.ready.pop(name, None)
        return super().pull_messages(asked)


def paced(folder: Path, **more: Any) -> Paced:
    plain = grid(folder, **more)
    return Paced(plain.app, plain.configs, plain.fault)


@pytest.mark.parametrize("name", some(SCHEDULERS, "adaptive"))
def test_a_replay_of_the_arrivals_in_a_simulation_gives_the_bytes_of_the_run_on_nodes(
    name: str, tmp_path: Path
) -> None:
    found = trained(driver(SCHEDULERS[name], paced(tmp_path / "nodes")), tmp_path / "a")
    assert found.state.round == STEPS and torch.isfinite(found.state.w).all()
    trained(driver(SCHEDULERS[name], replay=tmp_path / "a"), tmp_path / "b")
    assert_same_run(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("name", some(["fedasync", "fedbuff", "ring", "pipelined"], "ring"))
def test_a_killed_server_goes_on_and_names_the_uploads_that_were_in_flight(name: str, tmp_path: Path) -> None:
    """The whole run, with its stops, is again one record that can be replayed."""
    scheduler, nodes, out = SCHEDULERS[name], tmp_path / "nodes", tmp_path / "a"
    with pytest.raises(KeyboardInterrupt):
        trained(driver(scheduler, paced(nodes)), out, callbacks=[Reports(3)])
    with pytest.raises(KeyboardInterrupt):
        resume(driver(scheduler, paced(nodes)), STEPS, out, progress=False, callbacks=[Reports(6)])
    reports = Reports()
    found = resume(driver(scheduler, paced(nodes)), STEPS, out, progress=False, callbacks=[reports])
    assert found.state.round == STEPS
    lost = {client: why for report in reports.seen for client, why in report.missing.items()}
    assert bool(lost) == (name != "ring") and set(lost.values()) <= {"lost: the server was stopped"}
    guards = [row for row in rows(out) if row["split"] == "guard"]
    assert {client for row in guards for client in row["missing"]} >= {str(client) for client in lost}
    trained(driver(scheduler, replay=out), tmp_path / "b")
    assert_same_run(out, tmp_path / "b")


@pytest.mark.parametrize("scheduler", [full(FedAsync()), FedBuff(3)], ids=["fedasync", "fedbuff"])
def test_a_run_saves_no_model_of_trips_that_a_kill_would_lose(scheduler: Scheduler, tmp_path: Path) -> None:
    """Neither of those in flight, nor of those that were lost: after a step these schedulers need the newest alone."""

    class Looks(Reports):
        def round(self, run: Any, report: RoundReport) -> None:
            _, vectors = saved.read(saved.place(run.folder / "state", report.round), FORMAT)
            assert "executor/step" in vectors
            assert not [name for name in vectors if name.startswith(f"executor/{MODEL}")]
            super().round(run, report)

    begun = driver(scheduler, paced(tmp_path / "nodes"))
    with pytest.raises(KeyboardInterrupt):
        run(begun, STEPS, out=tmp_path / "a", progress=False, checkpoint=Checkpoint(every=1), callbacks=[Looks(4)])
    looks = Looks()
    resume(driver(scheduler, paced(tmp_path / "nodes")), STEPS, tmp_path / "a", progress=False, callbacks=[looks])
    assert [report.round for report in looks.seen] == list(range(5, STEPS + 1))


def test_a_replay_that_is_stopped_goes_on(recorded: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        trained(driver(FedBuff(3), replay=recorded), tmp_path, callbacks=[Reports(4)])
    resume(driver(FedBuff(3), replay=recorded), STEPS, tmp_path, progress=False)
    assert_same_run(recorded, tmp_path)


def test_a_record_that_has_changed_is_refused(recorded: Path, tmp_path: Path) -> None:
    shutil.copytree(recorded, tmp_path / "a")
    with pytest.raises(KeyboardInterrupt):
        trained(driver(FedBuff(3), replay=tmp_path / "a"), tmp_path / "b", callbacks=[Reports(4)])
    file = tmp_path / "a" / "timeline.json"
    table = json.loads(file.read_text())
    table["arrivals"][0][3] += 1  # the version from which the trip started
    file.write_text(json.dumps(table))
    with pytest.raises(RunError, match="the saved state is not of a replay of"):
        resume(driver(FedBuff(3), replay=tmp_path / "a"), STEPS, tmp_path / "b", progress=False)
    with pytest.raises(RunError, match="the record of arrivals is of another run"):
        run(driver(FedBuff(3), replay=tmp_path / "a"), STEPS, progress=False)


def test_a_replay_ends_with_the_record(recorded: Path) -> None:
    again = run(driver(FedBuff(3), replay=recorded), STEPS + 5, progress=False)
    assert again.state.round == STEPS and again.summary["ended_early"] == "the record that is replayed is over"


@pytest.mark.parametrize(
    "fault, name",
    by_default(
        (pytest.param(*pair) for pair in product(["lost", "failed"], ["fedasync", "fedbuff", "ring", "pipelined"])),
        lambda fault, name: (fault, name) == ("lost", "ring"),
    ),
)
def test_who_does_not_answer_is_named_and_the_scheduler_goes_on(fault: Any, name: str, tmp_path: Path) -> None:
    nodes = paced(tmp_path / "nodes")
    nodes.fault = faulty(nodes, 2, fault)
    reports = Reports()
    steps = 4 * STEPS if fault == "lost" and name != "ring" else STEPS  # only a ring waits for the client that is lost
    trained(driver(SCHEDULERS[name], nodes, deadline=0.02), tmp_path / "a", steps, callbacks=[reports])
    missing = {client: why for report in reports.seen for client, why in report.missing.items()}
    assert set(missing) == {2}
    assert ("late: no answer within 0.02 s" if fault == "lost" else "the node has failed") in missing[2]
    trained(driver(SCHEDULERS[name], replay=tmp_path / "a"), tmp_path / "b", steps)
    assert_same_run(tmp_path / "a", tmp_path / "b")


def test_a_message_that_can_not_be_sent_is_named_and_the_client_is_asked_again(tmp_path: Path) -> None:
    class Refusing(Paced):
        def push_messages(self, messages: Iterable[Any]) -> list[Any]:
            asked = list(messages)
            first = [one.metadata.message_type == "train" and one.metadata.group_id == "1" for one in asked]
            return [
                None if refused else super(Refusing, self).push_messages([one])[0]
                for one, refused in zip(asked, first, strict=True)
            ]

    plain, reports = grid(tmp_path / "nodes"), Reports()
    trained(driver(FedAsync(), Refusing(plain.app, plain.configs)), tmp_path / "a", callbacks=[reports])
    first = reports.seen[0]
    assert set(first.missing) | set(first.clients.tolist()) == set(range(len(SIZES))) and len(first.clients) == 1
    assert set(reports.seen[0].missing.values()) == {"lost: the message could not be sent"}
    assert not any(report.missing for report in reports.seen[1:])


def test_a_client_whose_node_leaves_in_its_training_is_missing_at_once(tmp_path: Path) -> None:
    nodes, reports = paced(tmp_path / "nodes"), Reports()
    nodes.fault = faulty(nodes, 3, "lost")

    class Leaves(Callback):
        def round(self, run: Any, report: RoundReport) -> None:
            nodes.configs.pop(100 - 7 * 3, None)

    trained(driver(FedAsync(), nodes, deadline=100.0), tmp_path / "a", 30, callbacks=[Leaves(), reports])
    assert [report.missing for report in reports.seen if report.missing] == [{3: "lost: its node has left"}]


def faulty(nodes: InProcessGrid, client: int, fault: Any) -> Any:
    """The fault of a client's answers to requests to train."""

    def found(message: Any) -> Any:
        own = nodes.configs[message.metadata.dst_node_id]["partition-id"] == client
        return fault if own and message.metadata.message_type == wire.ACTIONS["train"] else ""

    return found


def test_an_upload_that_is_not_finite_is_refused_by_name_and_enters_no_model(tmp_path: Path) -> None:
    def mod(message: Any, context: Any, call: Any) -> Any:
        reply = call(message, context)
        if message.metadata.message_type == wire.ACTIONS["train"] and context.node_config["partition-id"] == 1:
            upload = wire.unpacked(reply.content[wire.UPLOAD])
            reply.content[wire.UPLOAD] = wire.packed({"delta": upload["delta"] * float("nan")})
        return reply

    reports = Reports()
    found = trained(driver(FedBuff(2), paced(tmp_path / "nodes", mods=[mod])), tmp_path / "a", callbacks=[reports])
    assert {client for report in reports.seen for client in report.refused} == {1}
    assert all(bool(torch.isfinite(w).all()) for w in found.federation.models(found.state).values())
    trained(driver(FedBuff(2), replay=tmp_path / "a"), tmp_path / "b")
    assert_same_run(tmp_path / "a", tmp_path / "b")


def test_a_node_that_leaves_is_not_asked_and_one_that_comes_back_under_another_id_is(tmp_path: Path) -> None:
    nodes = paced(tmp_path / "nodes")
    gone = next(node for node, config in nodes.configs.items() if config["partition-id"] == 3)

    class Comes(Reports):
        def round(self, run: Any, report: RoundReport) -> None:
            super().round(run, report)
            if report.round == 1:
                self.config = nodes.configs.pop(gone)
            if report.round == 12:
                nodes.configs[999] = self.config

    trained(driver(FedAsync(), nodes), tmp_path / "a", steps=25, callbacks=[Comes()])
    happened = [(client, why) for _, client, number, _, why in arrivals(tmp_path / "a") if number < 0]
    assert happened == [(3, "away"), (3, "back")]
    trained(driver(FedAsync(), replay=tmp_path / "a"), tmp_path / "b", steps=25)
    assert_same_run(tmp_path / "a", tmp_path / "b")


def test_a_client_that_fails_again_and_again_is_asked_less_and_less(tmp_path: Path) -> None:
    """Without its rests it would be asked at each look, with the model, and end the run after 1,000 trips."""
    asked: list[float] = []

    def fault(message: Any) -> str:
        trains = message.metadata.message_type == wire.ACTIONS["train"]
        if not trains or nodes.configs[message.metadata.dst_node_id]["partition-id"] != 0:
            return ""
        asked.append(CLOCK.now())
        return "failed"

    nodes = paced(tmp_path / "nodes", fault=fault)
    trained(driver(FedBuff(2), nodes, roll_call=0.1, poll=0.001), tmp_path / "a", steps=60)
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert pauses[0] < 0.005 and 0.033 < pauses[-1] < 0.045  # a third of a roll call, and the time of an answer
    trained(driver(FedBuff(2), replay=tmp_path / "a"), tmp_path / "b", steps=60)
    assert_same_run(tmp_path / "a", tmp_path / "b")


def test_without_any_node_the_run_ends_and_goes_on_when_they_are_back(tmp_path: Path) -> None:
    nodes = paced(tmp_path / "nodes")
    configs = dict(nodes.configs)

    class Gone(Callback):
        def round(self, run: Any, report: RoundReport) -> None:
            if report.round == 3:
                nodes.configs.clear()

    ended = trained(driver(FedBuff(2), nodes), tmp_path / "a", callbacks=[Gone()])
    assert 3 <= ended.state.round < STEPS and ended.summary["ended_early"] == "no node is there any more"
    nodes.configs = configs
    assert resume(driver(FedBuff(2), nodes), STEPS, tmp_path / "a", progress=False).state.round == STEPS


def test_without_any_node_the_run_waits_as_long_as_a_roll_call(tmp_path: Path) -> None:
    nodes = paced(tmp_path / "nodes")
    configs, looks = dict(nodes.configs), iter(range(1000))

    class Away(Callback):
        def round(self, run: Any, report: RoundReport) -> None:
            if report.round == 3:
                nodes.get_node_ids = lambda: list(configs if next(looks) > 8 else ())  # type: ignore[method-assign]

    reached = trained(driver(FedBuff(2), nodes, roll_call=10.0), tmp_path / "a", callbacks=[Away()])
    assert reached.state.round == STEPS
    happened = [(client, why) for _, client, number, _, why in arrivals(tmp_path / "a") if number < 0]
    assert sorted(happened) == [(client, why) for client in range(len(SIZES)) for why in ("away", "back")]


@pytest.mark.parametrize("scheduler", [FedAsync(), full(FedBuff(2))], ids=["fedasync", "fedbuff"])
def test_at_most_the_limit_of_clients_train_at_a_time_and_all_get_their_turn(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    nodes = paced(tmp_path / "nodes")
    trained(driver(scheduler, nodes, limit=2), tmp_path / "a")
    assert nodes.most == 2
    assert {client for _, client, *_ in arrivals(tmp_path / "a")} == set(range(len(SIZES)))


def test_fedwindows_window_is_the_limit(tmp_path: Path) -> None:
    nodes = paced(tmp_path / "nodes")
    trained(driver(FedWindow(ConstantWindow(3), pipelined=True), nodes), tmp_path / "a")
    assert nodes.most == 3
    with pytest.raises(SettingError, match="FedWindow's window says how many clients train at a time"):
        driver(FedWindow(ConstantWindow(3)), nodes, limit=2)


def test_what_can_not_be_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="must be FlowerClients, or RealTime replays a run"):
        driver(FedAsync())
    with pytest.raises(SettingError, match="needs a simulated network"):
        run(driver(FedWindow(CapacityWindow()), paced(tmp_path / "nodes")), 2, progress=False)
    for wrong in ("{}", '{"arrivals": [[Infinity, 0, 0, 0, ""]]}'):
        (tmp_path / "timeline.json").write_text(wrong)
        with pytest.raises(RunError, match="has no list of arrivals"):
            run(driver(FedAsync(), replay=tmp_path), 2, progress=False)
    with pytest.raises(SettingError, match=r"Waiting.minimum = 2: is for synchronous rounds"):
        driver(FedAsync(), paced(tmp_path / "nodes"), minimum=2)
    with pytest.raises(SettingError, match=r"RealTime.limit = 1.5: must be an integer"):
        driver(FedAsync(), replay=tmp_path, limit=1.5)
    trained(driver(FedBuff(3), paced(tmp_path / "nodes")), tmp_path / "a")
    with pytest.raises(RunError, match="the record of arrivals is of another run"):
        run(driver(FedWindow(ConstantWindow(2)), replay=tmp_path / "a"), STEPS, progress=False)
    with pytest.raises(RunError, match=r"limit at its default there and limit=3 here"):
        resume(driver(FedBuff(3), paced(tmp_path / "nodes"), limit=3), STEPS + 1, tmp_path / "a", progress=False)
