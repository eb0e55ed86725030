"""The broadcast: from some round on, clients receive an average in place of the global model (IMA)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

from ..averages import Average, Observers
from ..averages.observers import AverageStates
from ..evaluation import Decision, Goal, Score
from ..methods.server_optimisers import Server, ServerSGD
from ..settings.errors import SettingError, check
from ..settings.limits import Count
from ..settings.setting import Accepts, Setting, dataclass
from ..tasks import Criterion
from ..vector.spaces import WholeModel


@dataclass(frozen=True)
class Broadcast(Setting):
    """Sends an average to the clients instead of the model (IMA).

    From `start` on, `average` takes the model's place. The clients of the next round are the first to receive it.
    IMA's t_s, a 0-based index in its code, is `start - 1`. The clients of round t_s still receive the model, and IMA's
    smaller steps begin in that round (`Mild` with `start = t_s`).

    `order` says where the average acts:

    - `"after"` the server optimiser (IMA's eq. 5): it is an average of global models and is sent in their place;
    - `"before"` the server optimiser: it is an average of the clients' means. The server optimiser gets its difference
      from the model as the update, and clients receive the model. With the plain server step they receive the same as
      with "after"; but what is recorded as the model is then that average, and the other averages observe it;
    - `"code"`, as in IMA's published code with FedAdam and FedYogi: like `"before"`, but the step that makes the model
      after `start` rounds uses empty moments. Later steps continue with the moments from before that step. With a
      `start` below the window's size, the code waits until the window is full, and here the shorter one is sent.

    (With `"before"` and `"code"`, the clients' mean stays in the average even if the server's step is not finite and
    the round is skipped.)

    With `start = "auto"`, and with several names in `average`, an evaluation on held-out samples decides
    (`evaluation.held_out`), every `evaluation.every` rounds. Both need the order `"after"`. They are ours; IMA names
    them as future work.
    """

    average: Accepts[str | tuple[str, ...], list[str]]
    """the average that is sent; of several names, the one that was best in the last evaluation (the first of equal
    ones)"""

    start: Count | Literal["auto"] = 1
    """a number r: from the model after r finished rounds on; "auto": once the average was better than the model in
    `patience` evaluations in a row"""

    order: Literal["after", "before", "code"] = "after"
    """where the average acts, after or before the server optimiser, or as in IMA's code"""

    patience: Count = 3
    """how many evaluations in a row must favour the average before "auto" begins"""

    def __post_init__(self) -> None:
        check(len(self.averages) > 0, "Broadcast.average", self.average, "must name at least one average")
        if self.start != "auto":
            default_patience = type(self).patience
            requirement = 'has an effect with start = "auto" alone'
            check(self.patience == default_patience, "Broadcast.patience", self.patience, requirement)
        if self.adaptive:
            requirement = "an adaptive broadcast must be 'after'"
            check(self.order == "after", "Broadcast.order", self.order, requirement)

    @classmethod
    def of(cls, average: str) -> Broadcast:
        """The broadcast that `broadcast = "NAME"` means in an experiment file."""
        return cls(average)

    @property
    def averages(self) -> tuple[str, ...]:
        """The names of the averages that may be sent to the clients."""
        if isinstance(self.average, str):
            return (self.average,)
        return self.average

    @property
    def apart(self) -> tuple[str, ...]:
        """The names of the averages that act before the server optimiser; they observe other vectors than the rest."""
        if self.order == "after":
            return ()
        return self.averages

    def of_means(self, server: Server) -> tuple[str, ...]:
        """The names of the averages of clients' means that are not the models which this `server` makes of them."""
        if server == ServerSGD():
            return ()
        return self.apart

    @property
    def adaptive(self) -> bool:
        """Whether an evaluation on held-out samples decides about the start or the average."""
        return self.start == "auto" or len(self.averages) > 1

    def first(self) -> Choice:
        """The choice before the first evaluation."""
        if self.start == "auto":
            return Choice(self, self.averages[0], None)
        return Choice(self, self.averages[0], self.start)

    def fits(self, averages: Mapping[str, Average], held_out: bool) -> None:
        """Raise `ValueError` if it names an unknown average, or needs held-out samples that it can't use.

        Scores of an average with statistics of its own must not decide: clients receive the model's.
        """
        names = ", ".join(averages) or "none, add one to averages"
        for name in self.averages:
            check(name in averages, "Broadcast.average", name, f"must be an average; there is {names}")
            if self.adaptive:
                requirement = (
                    "an adaptive broadcast compares what clients receive, and they receive the model's statistics"
                )
                buffers = averages[name].buffers
                check(buffers != "re-estimate", f"averages.{name}.buffers", buffers, requirement)
        if self.adaptive and not held_out:
            field = "average"
            if self.start == "auto":
                field = "start"
            requirement = "needs held-out samples: set evaluation.held_out, for example to 0.1"
            raise SettingError("Broadcast", field, getattr(self, field), requirement)


@dataclass(frozen=True)
class Choice:
    """The decision of a broadcast: which `average` is sent, and from the model after `start` rounds on (None: not yet).

    `better` counts the last successive evaluations in which the best average was better than the model.
    """

    broadcast: Broadcast
    average: str
    start: int | None
    better: int = 0

    def after(self, round: int, values: Mapping[str, float], criterion: Criterion) -> Choice:
        """The choice after an evaluation on held-out samples, after `round` finished rounds.

        `values` maps the names of models and averages to their values of the `criterion`.
        """
        averages = {name: values.get(name, math.nan) for name in self.broadcast.averages}
        best = criterion.best(averages) or self.broadcast.averages[0]
        better = 0
        if criterion.wins(averages[best], values["model"]):
            better = self.better + 1
        start = self.start
        if start is None and better >= self.broadcast.patience:
            start = round
        return replace(self, average=best, start=start, better=better)

    def sends(self, round: int) -> bool:
        """Whether the average takes the place of the model after `round` finished rounds."""
        return self.start is not None and round >= self.start

    def saved(self) -> dict[str, Any]:
        """The choice as a dictionary for JSON."""
        saved: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return saved

    def loaded(self, saved: Mapping[str, Any] | None) -> Choice:
        """The saved choice if it belongs to the same broadcast, else this one."""
        if saved is None or saved["broadcast"] != self.saved()["broadcast"]:
            return self
        fields = dict(saved)
        fields["broadcast"] = self.broadcast
        return Choice(**fields)

    def heard(self, scores: Sequence[Score], criterion: Criterion) -> tuple[Choice, list[Decision]]:
        """The choice after an evaluation, and a record of the decision.

        If no client answered, the choice is unchanged and there is no record.
        """
        held_out = {score.model: score for score in scores if score.split == "held_out"}
        if "model" not in held_out:
            return self, []
        values = {name: score[criterion.name] for name, score in held_out.items()}
        model = held_out["model"]
        choice = self.after(model.round, values, criterion)
        chosen = held_out.get(choice.average, model)
        compared = {"model": values["model"]}
        if choice.average in values:
            compared[choice.average] = values[choice.average]
        decision = Decision(
            round=chosen.round,
            average=choice.average,
            start=choice.start,
            better=choice.better,
            held_out=compared,
            loss=chosen.loss,
            values=chosen.values,
        )
        return choice, [decision]


def settings_with(
    broadcast: Broadcast | None, averages: Mapping[str, Average], server: Server, every: int, goal: Goal
) -> dict[str, Any]:
    """The settings besides the broadcast's own on which the numbers of a run with or without it depend, by name.

    An adaptive broadcast depends on the evaluations, `every` so many rounds, and on the metric that decides. What an
    average observes depends on the broadcast's order, unless the server takes the clients' mean as its model.
    """
    of_means: tuple[str, ...] = ()
    sendable: tuple[str, ...] = ()
    adaptive = False
    if broadcast is not None:
        of_means = broadcast.of_means(server)
        sendable = broadcast.averages
        adaptive = broadcast.adaptive
    settings: dict[str, Any] = {}
    for name in averages:
        observed = "global models"
        if name in of_means:
            observed = "clients' means"
        settings[f"observed.{name}"] = observed
    settings["averages"] = {name: averages[name] for name in sendable}
    settings["evaluation.every"] = None
    settings["evaluation.metric"] = None
    if adaptive:
        settings["evaluation.every"] = every
        settings["evaluation.metric"] = goal.deciding
    return settings


class Broadcaster:
    """Applies a broadcast to the averages of a run."""

    def __init__(self, broadcast: Broadcast, observers: Observers) -> None:
        self._broadcast = broadcast
        self._observers = observers

    def sent(self, states: AverageStates, w: WholeModel, round: int, choice: Choice | None) -> WholeModel:
        """The vector `[D]` that clients receive after `round` finished rounds: the model `w` `[D]`, or an average."""
        if self._broadcast.order != "after":
            return w
        choice = choice or self._broadcast.first()
        if not choice.sends(round):
            return w
        return WholeModel(self._observers.value(states, choice.average, w))

    def change(self, states: AverageStates, sent: WholeModel, change: WholeModel, round: int) -> WholeModel:
        """The change `[D]` of the model that the server optimiser gets after `round` finished rounds.

        If the broadcast acts before the server optimiser, it is the average minus `sent` `[D]`, where the average has
        seen the clients' mean. Else it is the clients' mean `change` itself.
        """
        if self._broadcast.order == "after":
            return change
        choice = self._broadcast.first()
        mean = sent + change
        self._observers.observe(states, mean, round + 1, apart=choice.average)
        if not choice.sends(round + 1):
            return change
        return WholeModel(self._observers.value(states, choice.average, mean) - sent)

    def steps_apart(self, round: int) -> bool:
        """Whether the server optimiser makes this step from a new state, and forgets it: once, in FedIMA's code."""
        return self._broadcast.order == "code" and round + 1 == self._broadcast.first().start
