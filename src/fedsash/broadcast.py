"""Which model the clients receive: the global model, or one of its averages (IMA), from a round given or found."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from torch import Tensor

from .averages import Observers
from .averages.observers import AverageStates
from .basics.arrays import Vectors
from .basics.errors import SettingError, check
from .basics.typed import typed
from .evaluation import Metrics
from .servers import Server


@dataclass(frozen=True)
@typed
class Broadcast:
    """Sends an average to the clients instead of the model (IMA).

    `start = r` means: from the model after r finished rounds on, `average` takes the model's place, first in what the
    clients of the next round receive. IMA's t_s, a 0-based index in its code, is `start - 1`: clients of that round
    still receive the model, with which IMA's milder steps begin (`Mild` with `start = t_s`). `order`:

    - `"after"` the server optimiser, IMA's eq. 5: the average is of global models and is sent in their place;
    - `"before"` it: the average is of the clients' means, and its distance from the model is the update that the server
      optimiser gets; clients receive the model. With the plain server step both are the same;
    - `"code"`, as in IMA's published code with FedAdam and FedYogi: before it, and the step that makes the model after
      `start` rounds begins with empty moments; then the server optimiser goes on with those that it had before.

    (With the last two, the clients' mean stays in the average even where the server's step overflows and the round is
    skipped.)

    Two things may be left to the data, on samples held out from the clients (`evaluation.held_out`); both act every
    `evaluation.every` rounds, only in the order `"after"`, and are ours (IMA names them as future work):

    - `start = "auto"`: the broadcast begins once the average has been more accurate than the model in `patience`
      evaluations in a row;
    - several names in `average`: of these, the most accurate one in the last evaluation is sent (on a tie the first).
    """

    average: str | tuple[str, ...]
    start: int | Literal["auto"] = 1
    order: Literal["after", "before", "code"] = "after"
    patience: int = 3

    def __post_init__(self) -> None:
        check(self.start == "auto" or self.start >= 1, "Broadcast.start", self.start, 'must be 1 or more, or "auto"')
        check(len(self.averages) > 0, "Broadcast.average", self.average, "must name at least one average")
        check(self.patience >= 1, "Broadcast.patience", self.patience, "must be at least 1")
        check(
            self.order == "after" or not self.adaptive,
            "Broadcast.order",
            self.order,
            "an adaptive broadcast must be 'after'",
        )

    @classmethod
    def of(cls, average: str) -> Broadcast:
        """What `broadcast = "ima"` stands for."""
        return cls(average)

    @property
    def averages(self) -> tuple[str, ...]:
        """The names of the averages that may be sent to the clients."""
        return (self.average,) if isinstance(self.average, str) else self.average

    @property
    def apart(self) -> tuple[str, ...]:
        """Those of them that act before the server optimiser, and so observe other vectors than all the rest."""
        return () if self.order == "after" else self.averages

    @property
    def adaptive(self) -> bool:
        """Whether held-out data decide on something."""
        return self.start == "auto" or len(self.averages) > 1

    def first(self) -> Choice:
        """The choice before the first evaluation."""
        return Choice(self, self.averages[0], None if self.start == "auto" else self.start)

    def fits(self, averages: Iterable[str], held_out: bool) -> None:
        """Raise `ValueError` if it names an average that there is not, or needs held-out data that there are not."""
        known = list(averages)
        for name in self.averages:
            there = ", ".join(known) or "none, add one to averages"
            check(name in known, "Broadcast.average", name, f"must be an average; there is {there}")
        if self.adaptive and not held_out:
            field = "start" if self.start == "auto" else "average"
            right = "to be chosen it needs held-out data: set evaluation.held_out to 0.1, say"
            raise SettingError("Broadcast", field, getattr(self, field), right)


@dataclass(frozen=True)
class Choice:
    """What a broadcast has decided: the average, after how many rounds it takes the model's place (None: not yet), and
    in how many evaluations in a row it has been better than the model."""

    broadcast: Broadcast
    average: str
    start: int | None
    better: int = 0

    def after(self, round: int, accuracy: Mapping[str, float]) -> Choice:
        """The choice after an evaluation on held-out data, when `round` rounds are done."""
        best = max(self.broadcast.averages, key=lambda name: accuracy.get(name, -1.0))
        better = self.better + 1 if accuracy.get(best, -1.0) > accuracy["model"] else 0
        begins = self.start is None and better >= self.broadcast.patience
        return replace(self, average=best, start=round if begins else self.start, better=better)

    def sends(self, round: int) -> bool:
        """Whether the average has the place of the model after `round` finished rounds."""
        return self.start is not None and round >= self.start

    def saved(self) -> dict[str, Any]:
        """The choice as JSON has it."""
        saved: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return saved

    def loaded(self, saved: Mapping[str, Any] | None) -> Choice:
        """A saved choice, if it is of the same broadcast; else this one."""
        if saved is None or saved["broadcast"] != self.saved()["broadcast"]:
            return self
        return Choice(**{**saved, "broadcast": self.broadcast})

    def heard(self, metrics: Sequence[Metrics]) -> tuple[Choice, list[Metrics]]:
        """The choice after an evaluation, and a record of what it rests on; where nobody has answered it stays."""
        held_out = {m.model: m for m in metrics if m.split == "held_out"}
        if "model" not in held_out:
            return self, []
        accuracy = {name: m.accuracy for name, m in held_out.items()}
        choice = self.after(held_out["model"].round, accuracy)
        chosen = held_out.get(choice.average, held_out["model"])
        compared = {name: accuracy[name] for name in ("model", choice.average) if name in accuracy}
        more = {"better": choice.better, "start": choice.start, "held_out": compared}
        return choice, [replace(chosen, model=choice.average, split="broadcast", more=more)]


class Broadcaster:
    """A broadcast at work on the averages of a run; without one, clients receive the model."""

    def __init__(self, broadcast: Broadcast | None, observers: Observers) -> None:
        self._broadcast, self._observers = broadcast, observers

    def sent(self, states: AverageStates, w: Tensor, round: int, choice: Choice | None) -> Tensor:
        """What takes the place of the model `w` `[D]` after `round` finished rounds, in what clients receive next."""
        if self._broadcast is None or self._broadcast.order != "after":
            return w
        choice = choice or self._broadcast.first()
        return self._observers.value(states, choice.average, w) if choice.sends(round) else w

    def step(
        self, server: Server, memory: Vectors, states: AverageStates, sent: Tensor, delta: Tensor, round: int
    ) -> tuple[Tensor, Vectors]:
        """The server optimiser's step after `round` finished rounds from the update `delta` `[D]`, and its memory.

        With a broadcast before it, the update is the distance of the average from what was sent.
        """
        broadcast = self._broadcast
        if broadcast is None or broadcast.order == "after":
            return server.step(sent, delta, memory)
        choice = broadcast.first()
        self._observers.observe_apart(choice.average, states, sent + delta, round + 1)
        if not choice.sends(round + 1):
            return server.step(sent, delta, memory)
        mean = self._observers.value(states, choice.average, sent + delta) - sent
        if broadcast.order == "code" and round + 1 == choice.start:
            return server.step(sent, mean, server.init(sent))[0], memory
        return server.step(sent, mean, memory)
