"""Identities of averages, and trajectories of models that they observe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..averages import Average, Observer, Observers
from ..server.broadcast import Broadcast
from ..vector.arrays import Vectors
from .equality import expect, identical, in_one_sentence, record
from .federations import check_federation
from .worlds import after, small_federation


def trajectory(rounds: int, d: int = 7, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Models `w_0 ... w_rounds` `[rounds + 1, d]`: a random walk."""
    steps = torch.randn(rounds + 1, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (steps * 0.01).cumsum(0).to(dtype)


class Alone:
    """One average, or one of a slice, that observes a trajectory without a federation. `folder` holds rows on disk."""

    def __init__(self, average: Average | Observer, w: Tensor, folder: Path | None = None) -> None:
        observer = average if isinstance(average, Observer) else Observer(average, [(0, len(w))])
        self._observers = Observers({"it": observer})
        self.averages, self.past = self._observers.init(w, folder)

    @property
    def state(self) -> Vectors:
        """The state of the average."""
        return self.averages["it"]

    @property
    def held(self) -> Mapping[int, Tensor]:
        """The past models that it needs, by their rounds."""
        return self.past.get("it", {})

    @property
    def count(self) -> int:
        """The number of models in the average."""
        return self._observers.count(self, "it")

    def observe(self, w: Tensor, round: int) -> Alone:
        """Offer it the model `w` `[d]` of `round`. Returns itself."""
        self._observers.observe(self, w, round)
        return self

    def value(self, w: Tensor) -> Tensor:
        """Its value `[d]` when `w` is the current model."""
        return self._observers.value(self, "it", w)

    def retract(self, round: int) -> Alone:
        """Remove the model of `round`. Returns itself."""
        self._observers.retract(self, "it", round)
        return self


def follow(average: Average | Observer, models: Tensor, folder: Path | None = None) -> Alone:
    """The average after all rounds of a trajectory `[rounds + 1, d]`. The first model is not observed."""
    alone = Alone(average, models[0], folder)
    for round, w in enumerate(models[1:], start=1):
        alone.observe(w, round)
    return alone


ROUNDS = 12


def check_average(average: Average, **settings: Any) -> None:
    """Check that an average keeps the identities of every average in `AVERAGES`.

    - Before it has observed a model, its value is the current model, bitwise. `w_0` is never observed.
    - Its state holds tensors, and each observed model is counted once in `seen`.
    - It is a mean: each coordinate lies between the smallest and the largest of the models so far. Of an average that
      `extrapolates`, instead: its weights sum to 1, so models that are all moved move it as far.
    - Its value has the shape and type of the model, in float64, float32 and bfloat16.
    - It keeps copies and returns copies: later changes of a model or of a value do not change it.
    - It asks only for models that it has observed, and for no more than it says in `retention`.
    - Two averages that observe the same models are bitwise equal.
    - Observing changes nothing: the training is bitwise that without it.
    - As an average of the classifier only, it does not change the rest of the model.
    - It keeps the identities of `check_federation`, both when it only observes and when it is broadcast.

    `settings` are those of a `Federation`. Raises `AssertionError` that names the identity.
    """
    with in_one_sentence(average):
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            _check_values(average, trajectory(ROUNDS, dtype=dtype))
        if average.extrapolates:
            _check_moved(average, trajectory(ROUNDS))
        _check_copies(average)
        _check_past(average)
        _check_training(average, settings)
        for broadcast in (None, Broadcast("it", 2)):
            parts: dict[str, Any] = {"averages": {"it": average}, "broadcast": broadcast}
            check_federation(**parts | settings)


def _check_values(average: Average, models: Tensor) -> None:
    """Check state, counts and values over a trajectory `[rounds + 1, d]` of one type."""
    for name, tensor in average.init(models[0]).items():
        is_tensor = isinstance(tensor, Tensor)
        expect(is_tensor, average, f"each value of its state must be a tensor, not {name} = {tensor!r}")
    alone = Alone(average, models[0])
    expect(not average.observes(0), average, "the model before the first round must not be observed")
    tolerance = 8 * torch.finfo(_type_of_past_models(average, models)).eps
    for round, w in enumerate(models[1:], start=1):
        count_before = alone.count
        if count_before == 0:
            is_model = identical(alone.value(w), w)
            expect(is_model, average, "before it has observed a model, its value must be the current model")
        alone.observe(w, round)
        _check_count(average, alone.count, round, count_before)
        value = average.value(alone.state, w, alone.held)
        has_form_of_model = value.shape == w.shape and value.dtype == w.dtype
        expect(has_form_of_model, average, f"its value must have the model's shape and type {w.dtype}")
        if average.extrapolates:
            continue
        models_so_far = models[: round + 1].double()
        low = models_so_far.amin(0) - tolerance
        high = models_so_far.amax(0) + tolerance
        is_within = bool(((value.double() >= low) & (value.double() <= high)).all())
        message = f"it must be a mean: after round {round} a coordinate is outside the range of the models so far"
        expect(is_within, average, message)
    is_repeated = identical(follow(average, models).state, alone.state)
    expect(is_repeated, average, "two averages that observe the same models must be bitwise equal")


def _check_moved(average: Average, models: Tensor) -> None:
    """Check that weights of either sign sum to 1: all models `[rounds + 1, d]` moved by 1 move the value by 1."""
    here = Alone(average, models[0])
    there = Alone(average, models[0] + 1)
    tolerance = 64 * torch.finfo(_type_of_past_models(average, models)).eps
    for round, w in enumerate(models[1:], start=1):
        value = here.observe(w, round).value(w)
        moved = there.observe(w + 1, round).value(w + 1)
        is_as_far = bool(((moved - value - 1).abs() <= tolerance).all())
        message = f"its weights must sum to 1: after round {round}, models that are moved by 1 do not move it by 1"
        expect(is_as_far, average, message)


def _type_of_past_models(average: Average, models: Tensor) -> torch.dtype:
    """The type in which an average keeps past models, which rounds its value; else that of the models."""
    retention = average.retention()
    if retention is None or retention.kept_as == "model":
        return models.dtype
    dtype: torch.dtype = getattr(torch, retention.kept_as)
    return dtype


def _check_count(average: Average, count: int, round: int, count_before: int) -> None:
    """Check the count after the model of `round`; a class that overrides `count` may count in another way."""
    is_observed = average.observes(round)
    if is_observed:
        expect(count > 0, average, f"`seen` must count the models: after round {round} it is {count}")
    if type(average).count is Average.count:
        is_counted_once = count <= count_before + is_observed
        message = (
            f"`seen` must count each observed model once: after round {round} it is {count} and was {count_before}"
        )
        expect(is_counted_once, average, message)


def _check_copies(average: Average) -> None:
    """Check that neither the models that it sees nor the values that it returns are its own memory."""
    models = trajectory(ROUNDS)
    overwritten = trajectory(ROUNDS)
    expected = follow(average, models).value(models[-1])
    w = overwritten[-1].clone()
    alone = follow(average, overwritten)
    overwritten.zero_()
    expect(identical(alone.value(w), expected), average, "it must keep copies of the models that it is given")
    alone.value(w).fill_(7.0)
    expect(identical(alone.value(w), expected), average, "it must return copies, which may be changed")


def _check_past(average: Average) -> None:
    """Check that it needs only models that it has observed, and as few as it says."""
    models = trajectory(ROUNDS)
    alone = Alone(average, models[0])
    retention = average.retention()
    most = 0 if retention is None else retention.size
    observed = set()
    for round, w in enumerate(models[1:], start=1):
        alone.observe(w, round)
        if average.observes(round):
            observed.add(round)
        needed = set(average.needs(alone.state))
        unknown = sorted(needed - observed)
        expect(not unknown, average, f"it needs the models of {unknown}, which it has not observed")
        message = f"it needs {len(needed)} models, and `retention` says at most {most}"
        expect(len(needed) <= most, average, message)


def _check_training(average: Average, settings: dict[str, Any]) -> None:
    """Check that observing changes nothing, also of a part of the model only."""
    training = after(small_federation(**settings), 4)
    observed = after(small_federation(**settings | {"averages": {"it": average}}), 4)
    for name in ("w", "optimiser", "server_state", "client_state"):
        is_same = identical({name: getattr(training, name)}, {name: getattr(observed, name)})
        expect(is_same, average, "observing must change nothing in the training")
    of_classifier = replace(average, part="classifier")
    federation = small_federation(**settings | {"averages": {"it": of_classifier}})
    state = after(federation, 4)
    value = federation.models(state).get("it", state.w)
    outside = torch.ones(len(state.w), dtype=torch.bool)
    for start, stop in federation.layout.ranges("classifier"):
        outside[start:stop] = False
    is_unchanged = identical(value[outside], state.w[outside])
    expect(is_unchanged, average, "an average of the classifier must not change the rest of the model")
    state_before = record(state)
    federation.models(state)
    expect(identical(state, state_before), average, "asking for its value must change nothing")
