"""A grid of Flower in this process: messages reach a real ClientApp at once, with faults as drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Literal

Fault = Literal["", "lost", "late", "failed"]
"""A message is answered; never reaches its node; is answered after the deadline; ends in an error."""


class InProcessGrid:
    """A grid whose nodes are in this process: `configs` has the configuration of each node by its id.

    A message is answered when it is pushed. `fault(message)` says what befalls it; a late answer is never heard, though
    its node has trained. Messages and answers are copies of their bytes, as on the wire. A node's `Context.state` stays
    as long as the grid.
    """

    def __init__(
        self,
        app: Any,
        configs: Mapping[int, Mapping[str, Any]],
        fault: Callable[[Any], Fault] = lambda message: "",
    ) -> None:
        identify()
        self.app = app
        self.configs = dict(configs)
        self.fault = fault
        self._ids = count(1)
        self._answers = dict[str, Any]()
        self._states = dict[int, Any]()
        self.run = None

    def get_node_ids(self) -> list[int]:
        """The nodes that are there."""
        return list(self.configs)

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        """Let the nodes answer; returns the ids of the messages."""
        return [self._pushed(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        """The answers that are there."""
        return [self._answers.pop(number) for number in message_ids if number in self._answers]

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        """The answers of all nodes that answer."""
        return self.pull_messages(self.push_messages(messages))

    def _pushed(self, message: Any) -> str:
        from flwr.app import Context, Error, Message, RecordDict

        node = message.metadata.dst_node_id
        number = str(next(self._ids))
        message.metadata.__dict__.update(_run_id=1, _src_node_id=1, _message_id=number)
        fault = self.fault(message) if node in self.configs else "lost"
        if fault == "lost":
            return number
        state = self._states.setdefault(node, RecordDict())
        context = Context(1, node, dict(self.configs[node]), state, {})
        try:
            if fault == "failed":
                raise RuntimeError("the node has failed")
            answer = self.app(message, context)
        except Exception as error:  # as Flower's own process of a ClientApp does
            answer = Message(Error(2, f"{type(error)}:<'{error}'>"), reply_to=message)
        if fault != "late":
            self._answers[number] = answer
        return number


def identify() -> None:
    """Flower's newer releases make messages inside a run only: say that this process is one."""
    with suppress(ImportError):
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.run_id = 1
        TaskIdentity.task_id = 1
        TaskIdentity.node_id = 1
