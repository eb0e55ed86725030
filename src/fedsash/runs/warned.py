"""What a run warns of: settings without an effect, labels that are hardly learned, averages without a model, what
privacy does not cover, and noise that is drawn twice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from ..averages import Average
from ..client import SGD
from ..server.broadcast import Broadcast
from ..server.federation import Federation
from ..server.state import State
from ..tasks import Binary, Classification, Regression
from ..vector.saved import saved_rounds
from .forks import Fork
from .running_sums import RunningSums
from .settings import Checkpoint

FEW = 4
"""The fewest samples that a class has on average."""
STEEP = 2.0
"""The largest product of the labels' size and the learning rate: beyond it networks may diverge."""
KNOWN = (Classification, Binary, Regression)
"""The tasks that learn nothing from labels that are all the same; others may not need them."""


class Averaging(Protocol):
    """A federation, or an experiment before its federation is made."""

    @property
    def averages(self) -> Mapping[str, Average]: ...

    @property
    def broadcast(self) -> Broadcast | None: ...


def beyond(
    settings: Averaging, checkpoint: Checkpoint, trajectory: RunningSums, rounds: int, state: State | None = None
) -> Iterator[str]:
    """A line for each average, broadcast, kept state and running sum that `rounds` rounds do not reach; of a fork or a
    run that goes on, those after its `state`.

    The run may be resumed with more rounds.
    """
    first = 1 if state is None else state.round + 1
    rounds_left = range(first, rounds + 1)
    for name, average in settings.averages.items():
        start = getattr(average, "start", 0)
        if isinstance(start, int) and start > rounds:
            yield f"averages.{name}.start = {start}: this run ends after {rounds} rounds, so it stays the model"
            continue
        begun = state is not None and average.count(state.averages[name]) > 0
        if rounds_left and not begun and not any(map(average.observes, rounds_left)):
            yield f"averages.{name}: observes none of the rounds {first} to {rounds}, so it stays the model"
    if settings.broadcast is not None:
        yield from _broadcast_notes(settings.broadcast, settings.averages, rounds)
    later = [round for round in checkpoint.keep if round > rounds]
    if later:
        yield f"checkpoint.keep = {later}: this run ends after {rounds} rounds, so these states are not saved"
    if trajectory.every > rounds:
        yield f"trajectory.every = {trajectory.every}: this run ends after {rounds} rounds, so no sum is saved"


def rate_notes(local: Any, scheduler: Any, rounds: int) -> Iterator[str]:
    """A line if a schedule of the `local` training starts after the last of `rounds` rounds, and one for rates of 0.

    With a `scheduler` that counts each client's trainings nobody knows how many there will be.
    """
    if getattr(scheduler, "schedule_counts", "steps") == "steps":
        zero = sum(local.scheduled(round)[0] == 0 for round in range(rounds))
        if zero:
            yield f"local.lr is 0 in {zero:,} of {rounds:,} rounds: nothing is learned in them"
        for schedule in (local.schedule, *getattr(local.schedule, "schedules", ())):
            start = getattr(schedule, "start", 0)
            if isinstance(start, int) and start >= rounds:
                name = type(schedule).__name__
                yield f"local.schedule: {name} starts at {start}, after the {rounds} rounds of this run"


def _broadcast_notes(broadcast: Broadcast, averages: Mapping[str, Average], rounds: int) -> Iterator[str]:
    """A line if no client receives an average, and one for each average that leaves out rounds whose model it replaces.

    With the order "after", the model of the last round is sent to no client.
    """
    last = rounds - 1 if broadcast.order == "after" else rounds
    if isinstance(broadcast.start, int) and broadcast.start > last:
        yield f"broadcast.start = {broadcast.start}: this run ends after {rounds} rounds, so clients receive the model"
        return
    sent = {name: averages[name] for name in broadcast.averages if name in averages}
    if not any(any(map(average.observes, range(1, last + 1))) for average in sent.values()):
        names = " or ".join(broadcast.averages)
        yield f"broadcast: {names} observes no round up to {last}, so clients receive the model"
    begin = broadcast.start if isinstance(broadcast.start, int) else 1
    for name, average in sent.items():
        observed = [round for round in range(begin, last + 1) if average.observes(round)]
        if not observed:
            continue
        first = observed[0]
        left_out = last + 1 - first - len(observed)
        if left_out:
            yield (
                f"broadcast: {name} leaves out {left_out} of the rounds {first} to {last}: what clients learn in them "
                "is lost, since the next clients receive the same average"
            )


def doubtful(federation: Federation) -> Iterator[str]:
    """A line if all training labels are the same, if there are hardly more samples than classes, or if numbers are so
    large that the squared error sends a network astray."""
    data = federation.clients.data
    task = federation.goal.task
    if data is None or type(task) not in KNOWN or federation.goal.loss != task.loss_of:
        return
    y = data.train.y
    if y.dim() == 1 and len(y) > 1 and bool((y == y[0]).all()):
        yield "every training label is the same: there is nothing to learn"
    elif isinstance(task, Classification) and not data.label_names and len(y) < FEW * data.classes:
        classes = len(set(y.tolist()))
        if len(y) < FEW * classes:
            samples = f"{len(y):,} training samples have {classes:,} classes"
            yield f"{samples}: for numbers as labels name the task regression"
    elif isinstance(task, Regression) and task.error == "squared":
        yield from _steep(federation, y)


def _steep(federation: Federation, y: Tensor) -> Iterator[str]:
    """A line if the labels `y` `[n, ...]` are too large for the learning rate of a network with hidden layers."""
    local = federation.local
    deep = sum(p.requires_grad and p.dim() > 1 for p in federation.model.parameters()) > 1
    if not deep or not isinstance(local.optimiser, SGD) or local.clip is not None:
        return
    targets = y.reshape(len(y), -1)
    size = torch.linalg.vector_norm(targets, dim=0, dtype=torch.float64) / len(y) ** 0.5
    if local.lr * float(size.max()) > STEEP:
        worst = targets[:, size.argmax()].double()
        labels = f"{_rounded(worst.mean())} ± {_rounded(worst.std(correction=0))}"
        yield (
            f"labels of {labels} may make the model diverge: scale them to about 1, or lower local.lr = {local.lr:g}"
        )


def _rounded(number: Tensor) -> str:
    """A number with three digits, and commas between thousands."""
    rounded = float(f"{float(number):.3g}")
    return f"{rounded:,g}"


def uncounted(federation: Federation, state: State, forked: int | None) -> Iterator[str]:
    """A line for each average that observes rounds of this run and has no model in it, so that it stays the model.

    The run was `forked` after this round; None: it is no fork.
    """
    own_rounds = range((forked or 0) + 1, state.round + 1)
    why = "no round gave a finite model, or `take` does not count it in `seen`"
    for name, average in federation.averages.items():
        if any(map(average.observes, own_rounds)) and not average.count(state.averages[name]):
            yield f"averages.{name}: no model is in it after round {state.round}, so it stays the model: {why}"


def unprotected(federation: Federation, state: State) -> Iterator[str]:
    """A line for each setting of a private run by which something of the clients' own samples is used without noise."""
    if federation.privacy(state) is None:
        return
    uncovered = "its scores come from the clients' own samples without noise, so epsilon does not cover them"
    if federation.evaluation.clients:
        yield f"evaluation.clients = true: {uncovered}"
    if federation.evaluation.client_test:
        yield f"evaluation.client_test = true: {uncovered}"
    if federation.clients.held:
        yield f"evaluation.held_out = {federation.evaluation.held_out:g}: {uncovered}"
    data = federation.clients.data
    if data is not None and data.feature_scales:
        scales = "its means and deviations come from the clients' own samples without noise"
        yield f"data.standardise = true: {scales}, so epsilon does not cover them"


def drawn_again(federation: Federation, state: State, fork: Fork, there: Mapping[str, str]) -> Iterator[str]:
    """A line if a private fork, which begins with a state, draws noise that its source may have drawn in later rounds.

    The source's fingerprint is `there`.
    """
    privacy = federation.privacy(state)
    if privacy is None or math.isinf(privacy.epsilon) or there["seed"] != federation.fingerprint["seed"]:
        return
    if max(saved_rounds(Path(fork.folder) / "state")) > fork.round:
        yield (
            f"the fork draws the noise of {fork.folder}'s later rounds again: whoever sees models of both can subtract "
            "it. Give the fork another seed"
        )
