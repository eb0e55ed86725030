"""A client that starts slowly keeps its token, in the state of Flower's own SuperNode."""

from __future__ import annotations

import sys
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr")

from fedsash.lab.served.supernode import START, STATES, keep_tokens


def test_a_token_lasts_longer_until_a_process_begins_and_then_as_long_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module: Any = pytest.importorskip(STATES[0], reason="this version of Flower has none")
    if not hasattr(module, "HEARTBEAT_PATIENCE"):
        pytest.skip("this version of Flower counts in another way")
    before = module.HEARTBEAT_PATIENCE * module.HEARTBEAT_DEFAULT_INTERVAL
    for name in ("HEARTBEAT_PATIENCE", "HEARTBEAT_DEFAULT_INTERVAL"):
        monkeypatch.setattr(module, name, getattr(module, name))  # so that it is as before in the end
    keep_tokens(STATES[0])
    from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

    state: Any = InMemoryNodeState(SimpleNamespace())  # type: ignore[arg-type]
    task = state.create_task("clientapp", 1)
    assert state.claim_task(task) and state.activate_task(task)
    assert state.acknowledge_task_heartbeat(task)
    record = state.task_token_store[task]
    left = record.active_until - module.now()
    assert timedelta(seconds=before - 5) < left <= timedelta(seconds=before)
    other = state.create_task("clientapp", 1)
    assert state.claim_task(other)
    left = state.task_token_store[other].active_until - module.now()
    assert timedelta(seconds=START - 5) < left <= timedelta(seconds=START)


def test_versions_of_flower_that_count_in_another_way_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_tokens("no.such.module")
    other = ModuleType("other")
    monkeypatch.setitem(sys.modules, "other", other)
    keep_tokens("other")
    assert not hasattr(other, "HEARTBEAT_PATIENCE")
