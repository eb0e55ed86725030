"""All that a run must remember between two rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .averages.trajectory import Past
from .basics.arrays import Ints, Vectors
from .basics.shown import Shown
from .broadcast import Choice
from .evaluation import Metrics
from .exchange import Lineage


@dataclass(repr=False)
class Best(Shown):
    """The best model of one name so far: its test accuracy, its round, and the model."""

    accuracy: float
    round: int
    w: Tensor


@dataclass(repr=False)
class State(Shown):
    """The state of a run after `round` finished rounds; a round takes one state to the next.

    What determines the rounds that follow:

    - `w` `[D]`, the global model as the server has it; `optimiser`, what the server optimiser remembers;
      `server_state`, what the method remembers at the server, and `client_state` at each of the N clients (`[N, ...]`;
      empty where they keep it);
    - `last` int64 `[N]`, the number of finished rounds when a client's state was last accepted, 0 = it is as at the
      start. Where they keep it themselves it says which version counts. Empty for a method without client state;
    - `averages`, what each average has seen, and `past`, the models that some of them need again, each kept once for
      all (see `Trajectory`); `choice`, what an adaptive broadcast has decided;
    - `executor`, what those who train must remember between two rounds.

    What is to be known of the run: `best`, the best model of each name; `sizes` int64 `[N]`, the clients' numbers of
    samples; `forked`, the round at which the run left another one, None if it did not; `samples`, how many were
    trained on; `seconds`, the time that rounds and evaluations took, of which `training_seconds` in rounds; `lineage`,
    the ids of its runs; `records`, how many rows it has recorded, and their checksum; `fingerprint`, what determines
    its numbers (see `Federation.fingerprint`). `oldest`, which is not saved, is the earliest round that the run can be
    set back to. Nothing else is kept anywhere.
    """

    round: int
    w: Tensor
    optimiser: Vectors
    server_state: Vectors
    client_state: Vectors
    averages: dict[str, Vectors]
    past: dict[str, Past] = field(default_factory=dict)
    best: dict[str, Best] = field(default_factory=dict)
    forked: int | None = None
    choice: Choice | None = None
    samples: int = 0
    seconds: float = 0.0
    training_seconds: float = 0.0
    last: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    sizes: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    executor: Vectors = field(default_factory=dict, repr=False)
    fingerprint: dict[str, str] = field(default_factory=dict, repr=False)
    lineage: Lineage = field(default=(), repr=False)
    records: tuple[int, int] = field(default=(0, 0), repr=False)
    oldest: int = field(default=0, repr=False)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor by a path-like name, but for the best models and those of past rounds."""
        yield "w", self.w
        for group in ("optimiser", "server_state", "client_state"):
            for name, value in getattr(self, group).items():
                yield f"{group}/{name}", value
        if len(self.last):
            yield "last", self.last
        for average, vectors in self.averages.items():
            for name, value in vectors.items():
                yield f"averages/{average}/{name}", value

    def models(self) -> Iterator[tuple[str, Vectors]]:
        """Views of the models of past rounds, by the names of their files; what two averages need has one name."""
        for past in self.past.values():
            for round, file in files_of(past).items():
                yield file, {"w": past[round]}

    def recall(self, ids: Ints) -> Vectors:
        """The client state `[s, ...]` of the clients `ids` `[s]`, on the model's device."""
        clients = torch.from_numpy(ids)
        return {name: rows[clients].to(self.w.device) for name, rows in self.client_state.items()}

    def remember(self, ids: Ints, client_state: Vectors) -> None:
        """Write the new client state `[b, ...]` of the clients `ids` `[b]`, in place."""
        clients = torch.from_numpy(ids)
        for name, rows in client_state.items():
            kept = self.client_state[name]
            kept[clients] = rows.to(kept.device)

    def memories(self) -> Iterator[tuple[str, Vectors]]:
        """Views of what the clients remember that have taken part, by the names of their files."""
        for client, round in enumerate(self.last.tolist() if self.client_state else ()):
            if round > 0:
                memory = {name: rows[client] for name, rows in self.client_state.items()}
                yield f"client-{client}.{round:08d}.safetensors", memory


def files_of(past: Past) -> dict[int, str]:
    """The file of each model that an average needs; the same for averages that share the vectors of a part."""
    return {round: f"past-{past.trajectory.name}-{round:08d}.safetensors" for round in sorted(past)}


def learned(
    state: State, metrics: Sequence[Metrics], models: Callable[[], Vectors], every: int
) -> tuple[State, list[Metrics]]:
    """The state that has learned from an evaluation of `models`, and what an adaptive broadcast has decided, as a
    record.

    It keeps the best model of each name by accuracy on the test set, the first of equally good ones. An adaptive
    broadcast decides every `every` rounds.
    """
    found = {m.model: m.accuracy for m in metrics if m.split == "test"}
    names = [name for name, value in found.items() if name not in state.best or value > state.best[name].accuracy]
    now = models() if names else {}
    best = {name: Best(found[name], state.round, now[name].clone()) for name in names}
    state = replace(state, best=state.best | best)
    if state.choice is None or state.round % every:
        return state, []
    choice, records = state.choice.heard(metrics)
    return replace(state, choice=choice), records
