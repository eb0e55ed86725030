"""A Flower grid in this process: messages of a strategy are answered by a ClientApp at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

try:  # newer versions read it when a message is made, and the runtime sets it
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
except ImportError:
    pass


class LocalGrid(Grid):  # type: ignore[misc]
    """Nodes with the partition ids 0, 1, ...; an app that raises answers with an error, as on a real node.

    `configs` are more settings of each node.
    """

    def __init__(self, app: ClientApp | Callable[..., Message], nodes: int, configs: Mapping[str, Any] | None = None):
        self.app, self._messages = app, itertools.count(1)
        self.contexts = {
            100 + i: Context(
                run_id=1,
                node_id=100 + i,
                node_config={"partition-id": i, "num-partitions": nodes, **(configs or {})},
                state=RecordDict(),
                run_config={},
            )
            for i in range(nodes)
        }

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        return [self._answer(message) for message in list(messages)]

    def _answer(self, message: Message) -> Message:
        vars(message.metadata).update(_run_id=1, _src_node_id=0, _message_id=str(next(self._messages)))
        try:
            return self.app(message, self.contexts[message.metadata.dst_node_id])
        except Exception as error:
            return Message(Error(code=2, reason=f"{type(error).__name__}: {error}"), reply_to=message)

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def set_run(self, *_: Any) -> None:
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        raise NotImplementedError
