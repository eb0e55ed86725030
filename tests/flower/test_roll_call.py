"""The roll call: every client has one node, and who is missing, false or absurd is named."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from fedsash.client.messages import Request
from fedsash.engines import LocalEngine
from fedsash.flower import Waiting, client_app
from fedsash.flower.nodes import wire
from fedsash.methods import Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.network import OnNetwork
from fedsash.server.federation import Federation
from fedsash.settings.errors import RunError, SettingError
from fedsash.testing.grid import InProcessGrid
from fedsash.vector.saved import versions
from support.flower import assert_same, grid, here, lying, there
from support.worlds import SEQUENTIAL, SIZES, data, mlp

NONE = "no node that can be used has come for the clients 3 within .* s; the last reason: "


def world_of(nodes: InProcessGrid, **settings: Any) -> Federation:
    return there(nodes, here(method=Scaffold(), sampling=Uniform(6), **settings), roll_call=0.02)


def test_a_node_that_answers_twice_is_counted_once(tmp_path: Path) -> None:
    class Twice(InProcessGrid):
        def pull_messages(self, message_ids: Any) -> list[Any]:
            return 2 * super().pull_messages(message_ids)

    plain = grid(tmp_path)
    world = world_of(Twice(plain.app, plain.configs))
    assert world.sizes.tolist() == list(SIZES)
    with world:
        assert not world.round(world.start())[1].missing


def test_a_node_that_leaves_before_the_run_begins_loses_its_clients(tmp_path: Path) -> None:
    """It has the wrong file, and is started again with the right one while the node of client 5 is still awaited."""
    whole, (first, again, last) = data(SIZES), (100, 101, 100 - 7 * 5)
    wrong = replace(whole, clients=[index[:-1] if len(index) > 1 else index for index in whole.clients])
    looks = count()

    class Changing(InProcessGrid):
        def get_node_ids(self) -> list[int]:
            look = next(looks)
            away = {again if look < 3 else first} | ({last} if look < 8 else set())
            return [node for node in super().get_node_ids() if node not in away]

    app = client_app(lambda c: wrong if c.node_id == first else whole, model=mlp(), engine=SEQUENTIAL, folder=tmp_path)
    nodes = Changing(app, grid(tmp_path).configs | {again: {"partition-id": 0}})
    assert there(nodes, here(), roll_call=5.0).sizes.tolist() == list(SIZES)


def test_clients_without_a_node_are_named(tmp_path: Path) -> None:
    nodes = grid(tmp_path)
    for client in (2, 5):
        del nodes.configs[100 - 7 * client]
    with pytest.raises(RunError, match=r"no node has come for the clients 2, 5 within 0.02 s"):
        world_of(nodes)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"sizes": [10**12]}, "says that client 3 has 1000000000000 training samples: must be 1 to 10,000,000"),
        ({"sizes": [0]}, "must be 1 to"),
        ({"sizes": [-4]}, "must be 1 to"),
        ({"held": [10**12]}, "client 3 has 1000000000000 held-out samples: must be 0 to 10,000,000"),
        ({"clients": [17]}, "holds client 17, and there are 6, from 0"),
        ({"clients": [3, 3]}, "does not say which clients it holds"),
        ({"clients": "all"}, "does not say which clients it holds"),
        ({"sizes": ["many"]}, "does not say which clients it holds"),
        ({"sizes": [1e400]}, "does not say which clients it holds"),
    ],
)
def test_a_node_that_says_what_can_not_be_is_refused_and_named(
    said: dict[str, Any], why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(RunError, match=NONE + f"node 79 .*{why}"):
        world_of(grid(tmp_path, mods=[lying(3, **said)]))
    assert why in caplog.text


def test_a_second_node_with_the_same_number_is_refused_as_long_as_the_first_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes, asked = grid(tmp_path), []
    nodes.fault = lambda message: asked.append(message.metadata.dst_node_id) or ""
    with world_of(nodes) as world, caplog.at_level(logging.WARNING):
        state, _ = world.round(world.start())
        nodes.configs[999] = {"partition-id": 3}
        asked.clear()
        state, report = world.round(state)
        assert 999 in asked[:1] and 999 not in asked[1:] and not report.missing
        del nodes.configs[100 - 7 * 3]
        asked.clear()
        state, report = world.round(state)
    assert 999 in asked and not report.missing
    assert "node 999 says that it holds client 3, as node 79 does: not asked" in caplog.text


def test_a_node_that_left_is_missing_at_once_and_found_again_under_its_new_id(tmp_path: Path) -> None:
    nodes = grid(tmp_path)
    with world_of(nodes) as world:
        state, _ = world.round(world.start())
        config = nodes.configs.pop(100 - 7 * 3)
        state, report = world.round(state)
        assert report.missing == {3: "away: its node has left"}
        nodes.configs[5] = config
        state, report = world.round(state)
    assert not report.missing and state.last.tolist()[3] == 3


def test_a_round_waits_for_nodes_and_is_not_skipped_while_none_is_there(tmp_path: Path) -> None:
    """The server's connection is down for some seconds: all rounds left would be over in no time."""
    nodes, looks = grid(tmp_path), count()
    with there(nodes, here(sampling=Uniform(6)), roll_call=5.0) as world:
        state = world.start()
        everyone = list(nodes.configs)
        nodes.get_node_ids = lambda: everyone if next(looks) >= 3 else []  # type: ignore[method-assign]
        state, report = world.round(state)
    assert not report.missing and not report.skipped


@pytest.mark.parametrize("minimum, left", [(1, 0), (3, 2)])
def test_a_round_for_which_too_few_clients_are_there_ends_the_run(minimum: int, left: int, tmp_path: Path) -> None:
    nodes = grid(tmp_path)
    with there(nodes, here(sampling=Uniform(6)), roll_call=0.05, minimum=minimum) as world:
        state = world.start()
        for node in list(nodes.configs)[left:]:
            del nodes.configs[node]
        line = f"for 0.05 s the nodes of {left} clients were there, and a round needs {minimum}: resume"
        with pytest.raises(RunError, match=line):
            world.round(state)


def test_a_roll_call_among_rounds_is_not_over_before_the_server_looks_again(tmp_path: Path) -> None:
    """In Flower an answer expires with its question, and the server looks when the next round begins."""
    nodes, lives = grid(tmp_path), []
    nodes.fault = lambda message: (
        lives.append(message.metadata.ttl) or "" if message.metadata.message_type == wire.ROLL_CALL else ""
    )
    with there(nodes, here(sampling=Uniform(6)), deadline=300.0, roll_call=20.0) as world:
        assert {*lives} == {20.0}
        nodes.configs[5] = nodes.configs.pop(100 - 7 * 3)
        world.round(world.start())
    assert lives[-1] > 300.0


def test_a_node_that_left_before_it_said_who_it_is_is_asked_again_when_it_is_back(tmp_path: Path) -> None:
    """Flower answers for it with an error; a node with a key comes back under the same id."""
    nodes = grid(tmp_path)
    world = world_of(nodes)
    config = nodes.configs.pop(100)
    nodes.configs[999], nodes.fault = config, lambda message: "failed"
    roll_call = world.clients.roll_call  # type: ignore[attr-defined]
    nodes.pull_messages, pull = lambda ids: [], nodes.pull_messages  # type: ignore[method-assign]
    assert 999 in roll_call.look()
    del nodes.configs[999]
    nodes.fault, nodes.pull_messages = lambda message: "", pull  # type: ignore[method-assign]
    roll_call.look()
    nodes.configs[999] = config
    roll_call.look()
    assert roll_call.roster.nodes[0] == 999


def test_a_restarted_node_with_other_samples_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = grid(tmp_path)
    with world_of(nodes) as world, caplog.at_level(logging.WARNING):
        nodes.configs.pop(100 - 7 * 3)
        other = client_app(data(tuple(n + 1 for n in SIZES)), model=mlp(), folder=tmp_path)
        first = nodes.app
        nodes.app = lambda message, context: (other if context.node_id == 5 else first)(message, context)
        nodes.configs[5] = {"partition-id": 3}
        _, report = world.round(world.start())
    assert report.missing == {3: "away: its node has left"}
    assert "node 5 holds client 3 with (21, 0, 0) samples instead of (20, 0, 0): not asked" in caplog.text


def test_a_node_that_has_its_id_again_and_other_samples_is_missing_by_name(tmp_path: Path) -> None:
    nodes = grid(tmp_path)
    with world_of(nodes) as world:
        other = client_app(data(tuple(n + 1 for n in SIZES)), model=mlp(), folder=tmp_path)
        first, same = nodes.app, 100 - 7 * 3
        nodes.app = lambda message, context: (other if context.node_id == same else first)(message, context)
        _, report = world.round(world.start())
    assert report.missing == {3: "failed: it has [21] samples instead of [20]"}


@pytest.mark.parametrize("config", [{}, {"partition-id": 6}, {"partition-id": -1}, {"partition-id": "one"}])
def test_a_node_that_does_not_know_its_number_is_named(
    config: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = grid(tmp_path)
    nodes.configs[100 - 7 * 3] = config
    with caplog.at_level(logging.WARNING), pytest.raises(RunError, match="for the clients 3 within"):
        world_of(nodes)
    assert "node 79 failed: SettingError: partition-id" in caplog.text


def test_a_node_of_one_client_needs_no_other_number_than_its_partition_id(tmp_path: Path) -> None:
    shards = [data().shard([client]) for client in range(len(SIZES))]
    apps = {n: client_app(shard, model=mlp(), folder=tmp_path) for n, shard in enumerate(shards)}
    nodes = InProcessGrid(None, {n: {"partition-id": n} for n in apps})
    nodes.app = lambda message, context: apps[context.node_id](message, context)
    simulated = here(method=Scaffold())
    with there(nodes, simulated) as world, simulated:
        assert_same(world.round(world.start())[0], simulated.round(simulated.start())[0])


def test_a_node_with_another_model_is_missing_by_name(tmp_path: Path) -> None:
    with world_of(grid(tmp_path, model=mlp(dropout=0.5))) as world:
        _, report = world.round(world.start())
    assert set(report.missing.values()) == {"failed: it trains another model, or with other settings"}


def test_messages_that_can_not_be_pushed_are_named(tmp_path: Path) -> None:
    nodes = grid(tmp_path)
    with world_of(nodes) as world:
        state, push = world.start(), nodes.push_messages
        nodes.push_messages = lambda messages: [None, *push(messages[1:])]  # type: ignore[method-assign,list-item]
        state, report = world.round(state)
        assert [*report.missing.values()] == ["lost: the message could not be sent"]
        nodes.push_messages = lambda messages: []  # type: ignore[method-assign]
        state, report = world.round(state)
    assert len(report.missing) == 6 and report.skipped == "no client answered"


@pytest.mark.parametrize("field", ["deadline", "roll_call", "poll", "minimum", "most"])
def test_waiting_refuses_what_can_not_be(field: str) -> None:
    with pytest.raises(SettingError, match=f"Waiting.{field}"):
        Waiting(**{field: 0})


def test_an_answer_that_lies_there_at_the_deadline_is_in_time(tmp_path: Path) -> None:
    """Nothing was pulled before the deadline, which is over after the push."""
    nodes = grid(tmp_path)
    with there(nodes, here(sampling=Uniform(6)), deadline=1e-9) as world:
        request: Request = world.ask(world.start())
        answers = list(world.executor.work(request))
    assert len(answers) == 6 and not any(hasattr(answer, "why") for answer in answers)


def test_more_uploads_than_there_are_clients_are_never_reached(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"Waiting\.minimum = 7: must be at most the number of clients, 6"):
        there(grid(tmp_path), here(), minimum=7)


def test_the_fewest_uploads_of_a_round_count_behind_a_network_too(tmp_path: Path) -> None:
    """Clients on nodes, of whom a simulated network loses none: a round needs as many uploads as without it."""
    plain = there(grid(tmp_path), here(sampling=Uniform(2)), minimum=3)
    with replace(plain, data=OnNetwork(plain.clients)) as world:
        _, report = world.round(world.start())
    assert report.skipped


def test_a_node_with_another_version_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What PyTorch was built for does not count."""

    def old(message: Any, context: Any, call: Any) -> Any:
        reply = call(message, context)
        number = context.node_config["partition-id"]
        if message.metadata.message_type == wire.ROLL_CALL and number < 2:
            its = "fedsash 0.0.1 and torch 2.0" if number else versions().partition("+")[0] + "+cu999"
            reply.content[wire.REPLY]["versions"] = its
        return reply

    with caplog.at_level(logging.WARNING, logger="fedsash"):
        world_of(grid(tmp_path, mods=[old]))
    (line,) = caplog.messages
    assert f"has fedsash 0.0.1 and torch 2.0, and the server has {versions()}: its numbers may be others" in line


def test_a_precision_that_nodes_would_not_have_is_refused(tmp_path: Path) -> None:
    world = here()
    with pytest.raises(SettingError, match=r"engine\.precision = 'bfloat16': must be full: each node has an engine"):
        there(grid(tmp_path), replace(world, engine=LocalEngine(precision="bfloat16")))
