"""The state of a federation: all that its training must remember between two rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from torch import Tensor

from ..averages.trajectory import Past
from ..client.store import ClientStore, ClientTicket
from ..settings.errors import RunError
from ..vector.arrays import Vectors
from ..vector.shown import Shown
from ..vector.spaces import AggregationMemory, ClientRows, ExecutorMemory, OptimiserState, ServerState, WholeModel
from ..vector.vector_files import VectorFile
from .broadcast import Choice


@dataclass(repr=False)
class State(Shown):
    """The state after `round` finished rounds; a round takes one state to the next, and needs nothing else.

    - `w` `[D]`: the global model of the server; `optimiser`: the state of the server optimiser;
    - `server_state`: the method's server state; `clients`: what clients remember (see `ClientStore`), of which
      `client_state` `[N, ...]` are the rows, and `last` int64 `[N]` the versions;
    - `aggregation`: what the aggregation remembers, such as a clip norm that adapts;
    - `averages`: the state of each average; `past`: the models that averages need again, each kept once (see
      `Trajectory`); `choice`: the decision of an adaptive broadcast;
    - `executor`: the vectors that the executor must remember between two rounds.

    `spent` says that the next round has begun to change the tensors in place, so that they are no longer those of this
    round. What a run tells of itself, such as its times and its best models, is in its `Tally`.
    """

    round: int
    w: WholeModel
    optimiser: OptimiserState
    server_state: ServerState
    clients: ClientStore
    averages: dict[str, Vectors]
    past: dict[str, Past] = field(default_factory=dict)
    choice: Choice | None = None
    aggregation: AggregationMemory = field(default_factory=lambda: AggregationMemory({}))
    executor: ExecutorMemory = field(default_factory=lambda: ExecutorMemory({}), repr=False)
    spent: bool = field(default=False, init=False, repr=False)

    @property
    def client_state(self) -> ClientRows:
        """The client state `[N, ...]` of all N clients, empty if they keep it themselves."""
        return self.clients.rows

    @property
    def last(self) -> Tensor:
        """The version of each client's state, int64 `[N]`: the round after which it was last accepted, 0 if never."""
        return self.clients.last

    def check_usable(self) -> None:
        """Raise `RunError` if a later round has used the state up: its averages and client state are no longer its."""
        if self.spent:
            raise RunError(
                f"the state after {self.round} rounds was used up by the round after it, which changed its averages "
                "and client state in place: go on from the state that this round returned, or from copy.deepcopy(state)"
            )

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor with a path-like name, except the models of past rounds and the executor's vectors."""
        yield "w", self.w
        for group in ("optimiser", "server_state", "aggregation", "client_state"):
            for name, value in getattr(self, group).items():
                yield f"{group}/{name}", value
        if len(self.last):
            yield "last", self.last
        for average, vectors in self.averages.items():
            for name, value in vectors.items():
                yield f"averages/{average}/{name}", value

    def models(self) -> Iterator[tuple[str, Vectors | VectorFile]]:
        """The models of past rounds with the names of their files. A model that two averages share has one."""
        for past in self.past.values():
            for round, file in files_of(past).items():
                yield file, past.part(round)

    def everybody(self, name: str) -> ClientTicket:
        """With what all clients find one vector `[N, ...]` of their state; of rows at the server not a copy."""
        self.check_usable()
        return self.clients.everybody(name)

    def gathered(self) -> State:
        """The same state with the client state of all clients in this process."""
        here = self.clients.gathered()
        if here is self.clients:
            return self
        state = replace(self, clients=here)
        state.spent = self.spent
        return state


def files_of(past: Past) -> dict[int, str]:
    """The file names of the models that an average needs, by their rounds; a shared model has a single file."""
    return {round: f"past-{past.trajectory.name}-{round:08d}.safetensors" for round in sorted(past)}
