"""The roll call asks again: nodes whose answers fail, and nodes that come back."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from fedsash.flower.nodes import wire
from fedsash.methods.sampling import Uniform
from fedsash.settings.errors import RunError
from fedsash.system.host import Clock, host
from fedsash.testing.grid import InProcessGrid
from support.flower import grid, here, lying, there
from support.worlds import SIZES

NONE = "no node that can be used has come for the clients 3 within .* s; the last reason: "


def test_a_node_whose_first_answers_are_errors_is_asked_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes, failed = grid(tmp_path), []

    def fault(message: Any) -> str:
        at_first = message.metadata.dst_node_id == 100 - 7 * 3 and len(failed) < 2
        failed.extend([message] if at_first else [])
        return "failed" if at_first else ""

    nodes.fault = fault
    with caplog.at_level(logging.WARNING):
        roll_call = there(nodes, here(sampling=Uniform(6)), roll_call=5.0, poll=0.01).clients.roll_call  # type: ignore[attr-defined]
    assert not roll_call.roster.missing and len(failed) == 2
    assert "node 79" in caplog.text and "asked again" in caplog.text and "not asked" not in caplog.text


def test_a_node_that_is_none_of_fedsash_is_named_with_what_its_answer_lacks(tmp_path: Path) -> None:
    def mod(message: Any, context: Any, call: Any) -> Any:
        reply = call(message, context)
        if context.node_config["partition-id"] == 3:
            del reply.content[wire.REPLY]
        return reply

    with pytest.raises(RunError, match=NONE + "node 79 failed: its answer has no record 'reply'"):
        there(grid(tmp_path, mods=[mod]), here(), roll_call=0.05, poll=0.01)


def test_a_node_that_only_answers_with_errors_is_not_asked_for_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes, failed = grid(tmp_path), []

    def fault(message: Any) -> str:
        fails = message.metadata.dst_node_id == 100 - 7 * 3
        failed.extend([message] if fails else [])
        return "failed" if fails else ""

    nodes.fault = fault
    with caplog.at_level(logging.WARNING), pytest.raises(RunError, match=NONE + "node 79 .*the node has failed"):
        there(nodes, here(sampling=Uniform(6)), roll_call=0.5, poll=0.01)
    assert len(failed) == 3 and "not asked any more" in caplog.text


@pytest.mark.parametrize("wrong", ["failed", "another number", "silent"])
def test_a_node_that_comes_back_under_its_own_id_is_asked_again(wrong: str, tmp_path: Path) -> None:
    """Its disk was not mounted, it had the wrong number, or it ended without an answer; a key gives it its old id."""
    node, looks, says = 100 - 7 * 3, count(), lying(3, clients=[2])

    class Repaired(InProcessGrid):
        look = 0

        def get_node_ids(self) -> list[int]:
            self.look = next(looks)
            return [each for each in super().get_node_ids() if each != node or self.look not in (4, 5)]

    def mod(message: Any, context: Any, call: Any) -> Any:
        broken = nodes.look < 4 and context.node_config["partition-id"] == 3
        if broken and wrong == "failed":
            raise RuntimeError("its disk is not mounted")
        return says(message, context, call) if broken else call(message, context)

    plain = grid(tmp_path, mods=[mod])
    nodes = Repaired(plain.app, plain.configs)
    if wrong == "silent":
        nodes.fault = lambda message: "lost" if nodes.look < 4 and message.metadata.dst_node_id == node else ""
    assert there(nodes, here(), roll_call=5.0, poll=0.01).sizes.tolist() == list(SIZES)


@pytest.mark.parametrize("lost", [1, 2])
def test_a_node_that_was_started_again_before_it_answered_is_asked_again(lost: int, tmp_path: Path) -> None:
    """A key gives it its old id: it seems to have been there all the time, and Flower waits for its answer, too."""
    nodes, asked = grid(tmp_path), []

    def fault(message: Any) -> str:
        if message.metadata.dst_node_id != 100 - 7 * 3:
            return ""
        asked.append(message)
        return "lost" if len(asked) <= lost else ""

    nodes.fault = fault
    assert there(nodes, here(), roll_call=1.5, poll=0.01).sizes.tolist() == list(SIZES)
    assert len(asked) == lost + 1


def test_a_node_that_answers_late_is_asked_again_and_counted_once(tmp_path: Path) -> None:
    late = 100 - 7 * 3
    asked: list[Any] = []

    class Slow(InProcessGrid):
        """The answers of one node come together, once it was asked twice."""

        def pull_messages(self, message_ids: Any) -> list[Any]:
            held_back = {message.metadata.message_id for message in asked} if len(asked) < 2 else set()
            return super().pull_messages([name for name in message_ids if name not in held_back])

    plain = grid(tmp_path)
    nodes = Slow(plain.app, plain.configs)
    nodes.fault = lambda message: asked.append(message) or "" if message.metadata.dst_node_id == late else ""
    assert there(nodes, here(), roll_call=1.5, poll=0.01).sizes.tolist() == list(SIZES)
    assert len(asked) == 2


@pytest.mark.parametrize("order", [1, -1])
def test_errors_to_questions_that_were_asked_again_are_no_tries(
    order: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Flower lets questions expire one by one while a node is at other work: it would be refused for ever."""
    busy = 100 - 7 * 3
    with there(grid(tmp_path), here(sampling=Uniform(6)), roll_call=0.3, poll=0.01) as world:
        roll_call = world.clients.roll_call  # type: ignore[attr-defined]
        nodes = roll_call.grid
        nodes.configs[999] = nodes.configs.pop(busy)
        asked: list[Any] = []
        nodes.fault = lambda message: asked.append(message) or "failed" if message.metadata.dst_node_id == 999 else ""
        nodes.pull_messages, pull = lambda ids: [], nodes.pull_messages
        with clock_ahead() as clock:
            for _ in range(4):
                roll_call.look()
                clock.offset += roll_call.waiting.lifetime / 2
        assert len(asked) == 4
        nodes.pull_messages = lambda ids: pull(ids)[::order]
        with caplog.at_level(logging.WARNING):
            roll_call.look()
        assert "node 999" in caplog.text and "asked again" in caplog.text
        assert not roll_call.roster.knows(999)


@pytest.mark.parametrize("deadline", [0.01, 600.0])
def test_among_rounds_a_node_is_asked_again_after_a_third_of_a_roll_call(deadline: float, tmp_path: Path) -> None:
    """However long its question lives: a run in real time ends if no node is there for the time of a roll call."""
    with there(grid(tmp_path), here(), roll_call=0.3, deadline=deadline, poll=0.01) as world:
        roll_call = world.clients.roll_call  # type: ignore[attr-defined]
        nodes = roll_call.grid
        nodes.configs[999] = nodes.configs.pop(100 - 7 * 3)
        asked: list[Any] = []
        nodes.fault = lambda message: asked.append(message) or "lost" if message.metadata.dst_node_id == 999 else ""
        with clock_ahead() as clock:
            for seconds in (0.0, 0.05, 0.11):
                clock.offset = seconds
                roll_call.look()
    assert len(asked) == 2


def test_a_node_that_always_fails_after_it_was_asked_again_is_named_with_its_reason(tmp_path: Path) -> None:
    slow = 100 - 7 * 3
    asked: list[Any] = []

    class Slow(InProcessGrid):
        """A node answers a question only once it has the next one."""

        def pull_messages(self, message_ids: Any) -> list[Any]:
            last = asked[-1].metadata.message_id if asked else ""
            return super().pull_messages([name for name in message_ids if name != last])

    plain = grid(tmp_path)
    nodes = Slow(plain.app, plain.configs)
    nodes.fault = lambda message: asked.append(message) or "failed" if message.metadata.dst_node_id == slow else ""
    with pytest.raises(RunError, match=NONE + f"node {slow} failed: .*the node has failed"):
        there(nodes, here(), roll_call=0.3, poll=0.01)


def test_the_tries_of_a_node_that_leaves_are_forgotten(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It has failed twice, is repaired, and fails once more."""
    with there(grid(tmp_path), here(), roll_call=5.0, poll=0.01) as world:
        roll_call = world.clients.roll_call  # type: ignore[attr-defined]
        nodes = roll_call.grid
        nodes.configs[999] = config = nodes.configs.pop(100 - 7 * 3)
        nodes.fault = lambda message: "failed" if message.metadata.dst_node_id == 999 else ""
        with caplog.at_level(logging.WARNING):
            roll_call.look()
            roll_call.look()
            del nodes.configs[999]
            roll_call.look()
            nodes.configs[999] = config
            roll_call.look()
        assert "not asked any more" not in caplog.text
        nodes.fault = lambda message: ""
        roll_call.look()
    assert roll_call.roster.nodes[3] == 999


def test_the_last_reason_is_that_of_the_node_that_has_failed_last(tmp_path: Path) -> None:
    """Each fails three times, the one that failed first last of all."""
    one, other = 100 - 7 * 3, 100 - 7 * 4
    looks = count()

    class Turns(InProcessGrid):
        def get_node_ids(self) -> list[int]:
            hidden = other if next(looks) != 1 else None
            return [node for node in super().get_node_ids() if node != hidden]

    plain = grid(tmp_path)
    nodes = Turns(plain.app, plain.configs)
    nodes.fault = lambda message: "failed" if message.metadata.dst_node_id in (one, other) else ""
    with pytest.raises(RunError, match=f"the last reason: node {one} failed"):
        there(nodes, here(), roll_call=0.3, poll=0.01)


@contextmanager
def clock_ahead() -> Iterator[Later]:
    """A clock that can be put ahead, in place of the host's."""
    host.clock, clock = Later(), host.clock
    try:
        yield host.clock
    finally:
        host.clock = clock


class Later(Clock):
    """A clock that is ahead."""

    offset = 0.0

    def now(self) -> float:
        return super().now() + self.offset
