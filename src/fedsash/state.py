"""The state of a run: all that it must remember between two rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .averages.trajectory import Past
from .basics.arrays import Ints, Vectors
from .basics.shown import Shown
from .basics.vector_files import VectorFile
from .broadcast import Choice
from .client_store import ClientStore, ClientTicket, Lineage
from .evaluation import Decision, Evaluation, Score
from .settings.errors import RunError
from .tasks import Criterion


@dataclass(repr=False)
class Best(Shown):
    """The best model of one name so far: its value, `by` which split and metric, its round, its vector `w` `[D]`."""

    value: float
    by: str
    round: int
    w: Tensor


@dataclass(repr=False)
class State(Shown):
    """The state of a run after `round` finished rounds; a round takes one state to the next.

    These fields determine the following rounds:

    - `w` `[D]`: the global model of the server; `optimiser`: the state of the server optimiser;
    - `server_state`: the method's server state; `clients`: what clients remember (see `ClientStore`), of which
      `client_state` `[N, ...]` are the rows, and `last` int64 `[N]` the versions;
    - `aggregation`: what the aggregation remembers, such as a clip norm that adapts;
    - `averages`: the state of each average; `past`: the models that averages need again, each kept once (see
      `Trajectory`); `choice`: the decision of an adaptive broadcast;
    - `executor`: the vectors that the executor must remember between two rounds.

    These fields describe the run:

    - `best`: the best model of each name; `sizes` int64 `[N]`: the clients' numbers of samples;
    - `forked`: the round at which the run was forked from another one, or None;
    - `samples`: how many samples were trained on; `seconds`: the time of all rounds and evaluations;
      `training_seconds`: the time of the rounds alone;
    - `lineage`: the ids of the runs that it consists of; `records`: how many rows it has recorded, and their checksum;
    - `fingerprint`: what determines its numbers (see `Federation.fingerprint`);
    - `evaluation_due`: whether the evaluation after this round is still to be made;
    - `oldest`: the earliest round that the run can be set back to; it is not saved.

    A run keeps nothing else between two rounds. `spent` says that the next round has begun to change the tensors in
    place, so that they are no longer those of this round.
    """

    round: int
    w: Tensor
    optimiser: Vectors
    server_state: Vectors
    clients: ClientStore
    averages: dict[str, Vectors]
    past: dict[str, Past] = field(default_factory=dict)
    best: dict[str, Best] = field(default_factory=dict)
    forked: int | None = None
    choice: Choice | None = None
    samples: int = 0
    seconds: float = 0.0
    training_seconds: float = 0.0
    sizes: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    aggregation: Vectors = field(default_factory=dict)
    executor: Vectors = field(default_factory=dict, repr=False)
    fingerprint: dict[str, str] = field(default_factory=dict, repr=False)
    lineage: Lineage = field(default=(), repr=False)
    records: tuple[int, int] = field(default=(0, 0), repr=False)
    evaluation_due: bool = field(default=False, repr=False)
    oldest: int = field(default=0, repr=False)
    spent: bool = field(default=False, init=False, repr=False)

    @property
    def client_state(self) -> Vectors:
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
        """Every tensor with a path-like name, except the best models and the models of past rounds."""
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

    def recall(self, ids: Ints) -> ClientTicket:
        """With what the clients `ids` `[s]` find their state; of rows at the server a copy on the model's device."""
        return self.clients.recall(ids, self.w.device, self.oldest, self.lineage)

    def everybody(self, name: str) -> ClientTicket:
        """With what all clients find one vector `[N, ...]` of their state; of rows at the server not a copy."""
        return self.clients.everybody(name, self.oldest, self.lineage)

    def gathered(self) -> State:
        """The same state with the client state of all clients in this process."""
        here = self.clients.gathered()
        if here is self.clients:
            return self
        return replace(self, clients=here)


def files_of(past: Past) -> dict[int, str]:
    """The file names of the models that an average needs, by their rounds; a shared model has a single file."""
    return {round: f"past-{past.trajectory.name}-{round:08d}.safetensors" for round in sorted(past)}


def best_by(evaluation: Evaluation, criterion: Criterion) -> str:
    """By what the best model of each name is kept: the split, and the number there."""
    return f"{evaluation.best_on}/{criterion.name}"


def learned(
    state: State,
    scores: Sequence[Score],
    models: Callable[[], Vectors],
    evaluation: Evaluation,
    criterion: Criterion,
) -> tuple[State, list[Decision]]:
    """The state after an evaluation of `models`, and the broadcast's decision.

    The state keeps the best model of each name by the criterion on `evaluation.best_on` (the first of equal ones). An
    adaptive broadcast decides every `evaluation.every` rounds.
    """
    by = best_by(evaluation, criterion)
    values = {score.model: score[criterion.name] for score in scores if score.split == evaluation.best_on}
    best = {name: best for name, best in state.best.items() if best.by == by}  # a fork may choose in another way
    before = {name: of.value for name, of in best.items()}
    names = [name for name, value in values.items() if criterion.wins(value, before.get(name))]
    now = models() if names else {}
    best |= {name: Best(values[name], by, state.round, now[name].clone()) for name in names}
    state = replace(state, best=best)
    if state.choice is None or state.round % evaluation.every:
        return state, []
    choice, decisions = state.choice.heard(scores, criterion)
    return replace(state, choice=choice), decisions
