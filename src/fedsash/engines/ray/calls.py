"""The call of an actor for one piece of a round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...client.messages import Answer, PartialSum, Request
from ...client.store import ClientTicket, StateHandles
from ...vector.arrays import Ints, Objects
from .held import Held, InCluster
from .packing import Packed, copied, packed, unpacked


@dataclass(frozen=True, eq=False)
class PieceCall:
    """Piece `number` of a request, with the clients at these `places`; `everybody` is in the cluster what all get.

    The state of its clients goes along. If the cluster has it, only references do, and come back.
    """

    request: Request
    everybody: Any
    number: int
    places: Ints
    held: Held

    def make(self, actor: Any) -> list[Any]:
        """Call the actor: the references of the answer, and of what comes with it."""
        ticket = self._ticket
        if not isinstance(ticket, StateHandles):
            return [actor.answer.remote(self.everybody, self.number, packed(ticket.own))]
        states = self.held.refs(ticket.handles)
        answer = actor.answer.options(num_returns=1 + len(self.places))
        made: list[Any] = answer.remote(self.everybody, self.number, packed({}), *states)
        return made

    def mend(self) -> None:
        """Replace what was lost of the arguments."""
        ticket = self._ticket
        if isinstance(ticket, StateHandles):
            self.held.mend(ticket.handles)

    def opened(self, answer: Packed, made: list[Any]) -> list[Answer]:
        """The answers of the clients, with handles on their new state. Raises an exception of their training."""
        found = unpacked(copied(answer))
        if isinstance(found, Exception):
            raise found
        if not isinstance(self.request.clients, StateHandles) or self.request.job != "train":
            return list(found)
        handles: Objects = np.empty(len(made), dtype=object)
        clients = self.request.ids[self.places].tolist()
        handles[:] = [InCluster(client=client, ref=ref) for client, ref in zip(clients, made, strict=True)]
        return [replace(one, handles=handles[_places(one) - self.places[0]]) for one in found]

    @property
    def _ticket(self) -> ClientTicket:
        """With what the clients of the piece find their state."""
        return self.request.clients.only(self.places)


def _places(answer: Answer) -> Ints:
    """The places of the clients whose state an answer has."""
    return answer.accepted if isinstance(answer, PartialSum) else answer.places
