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
        """The past models that it needs."""
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
    - It is a mean: each coordinate lies between the smallest and the largest of the models so far.
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
        _check_copies(average)
        _check_past(average)
        _check_training(average, settings)
        for broadcast in (None, Broadcast("it", 2)):
            chosen: dict[str, Any] = {"averages": {"it": average}, "broadcast": broadcast}
            check_federation(**chosen | settings)


def _check_values(average: Average, models: Tensor) -> None:
    no = [f"{name} = {value!r}" for name, value in average.init(models[0]).items() if not isinstance(value, Tensor)]
    expect(not no, average, f"each value of its state must be a tensor, not {', '.join(no)}")
    alone = Alone(average, models[0])
    expect(not average.observes(0), average, "the model before the first round must not be observed")
    keeps = average.retention()
    kept = models.dtype if keeps is None or keeps.kept_as == "model" else getattr(torch, keeps.kept_as)
    slack = 8 * torch.finfo(kept).eps
    for round, w in enumerate(models[1:], start=1):
        if alone.count == 0:
            same = identical(alone.value(w), w)
            expect(same, average, "before it has observed a model, its value must be the current model")
        before = alone.count
        alone.observe(w, round)
        _check_counted(average, alone, round, before)
        value = average.value(alone.state, w, alone.held)
        seen = models[: round + 1].double()
        alike = (value.shape, value.dtype) == (w.shape, w.dtype)
        expect(alike, average, f"its value must have the model's shape and type {w.dtype}")
        low = seen.amin(0) - slack
        high = seen.amax(0) + slack
        within = bool(((value.double() >= low) & (value.double() <= high)).all())
        expect(
            within,
            average,
            f"it must be a mean: after round {round} a coordinate is outside the range of the models so far",
        )
    same = identical(follow(average, models).state, alone.state)
    expect(same, average, "two averages that observe the same models must be bitwise equal")


def _check_counted(average: Average, alone: Alone, round: int, before: int) -> None:
    """Check the count after the model of `round`; who overrides `count` may count in another way."""
    count = alone.count
    observed = average.observes(round)
    expect(count > 0 or not observed, average, f"`seen` must count the models: after round {round} it is {count}")
    more = before + observed
    right = f"`seen` must count each observed model once: after round {round} it is {count} and was {before}"
    expect(count <= more or type(average).count is not Average.count, average, right)


def _check_copies(average: Average) -> None:
    models = trajectory(ROUNDS)
    given = trajectory(ROUNDS)
    expected = follow(average, models).value(models[-1])
    w = given[-1].clone()
    alone = follow(average, given)
    given.zero_()
    expect(identical(alone.value(w), expected), average, "it must keep copies of the models that it is given")
    alone.value(w).fill_(7.0)
    expect(identical(alone.value(w), expected), average, "it must return copies, which may be changed")


def _check_past(average: Average) -> None:
    models = trajectory(ROUNDS)
    alone = Alone(average, models[0])
    retention = average.retention()
    for round, w in enumerate(models[1:], start=1):
        needs = set(average.needs(alone.observe(w, round).state))
        seen = {t for t in range(1, round + 1) if average.observes(t)}
        expect(needs <= seen, average, f"it needs the models of {sorted(needs - seen)}, which it has not observed")
        most = retention.size if retention is not None else 0
        expect(len(needs) <= most, average, f"it needs {len(needs)} models, and `retention` says at most {most}")


def _check_training(average: Average, settings: dict[str, Any]) -> None:
    plain = small_federation(**settings)
    training = after(plain, 4)
    watched = after(small_federation(**settings | {"averages": {"it": average}}), 4)
    names = ("w", "optimiser", "server_state", "client_state")
    one, other = ({name: getattr(state, name) for name in names} for state in (training, watched))
    expect(identical(one, other), average, "observing must change nothing in the training")
    world = small_federation(**settings | {"averages": {"it": replace(average, part="classifier")}})
    state = after(world, 4)
    value = world.models(state).get("it", state.w)
    rest = torch.ones(len(state.w), dtype=torch.bool)
    for start, stop in world.layout.ranges("classifier"):
        rest[start:stop] = False
    same = identical(value[rest], state.w[rest])
    expect(same, average, "an average of the classifier must not change the rest of the model")
    before = record(state)
    world.models(state)
    expect(identical(state, before), average, "asking for its value must change nothing")
