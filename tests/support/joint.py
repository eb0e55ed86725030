"""Runs that are trained jointly, in small worlds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fedsash.executors.joint import Shape
from fedsash.federation import Federation
from fedsash.joint_rounds import JointRounds, kind, trainer_of
from fedsash.local import LocalTraining
from fedsash.state import Made, State
from support.worlds import SIZES, VECTORISED, data, federation, mlp

ALL_AT_ONCE = replace(VECTORISED, block=len(SIZES))
LOCAL = {"batch": 5}


def differing(run: int, local: dict[str, Any] | None = None, **settings: Any) -> Federation:
    """The small federation of a run, which has a seed, a partition, a rate and initial weights of its own."""
    sizes = (*SIZES[run:], *SIZES[:run])
    own: dict[str, Any] = {
        "seed": 3 + run,
        "model": mlp(seed=run),
        "data": data(sizes),
        "local": LocalTraining(**{"lr": 0.1 / (1 + run), "batch": 5, "epochs": 1 + run % 2} | (local or {})),
        "engine": ALL_AT_ONCE,
    }
    return federation(**own | settings)


def shape_of(worlds: Sequence[Federation]) -> Shape:
    return Shape.of([trainer_of(world) for world in worlds], len(SIZES))


def opened(make: Callable[[int], Federation], runs: int = 3) -> list[Federation]:
    """The federations of some runs, at work. They are of one kind."""
    worlds = [make(run) for run in range(runs)]
    for world in worlds:
        world.prepare()
    kinds = {kind(world) for world in worlds}
    assert len(kinds) == 1 and kinds != {""}
    return worlds


def jointly(
    make: Callable[[int], Federation], rounds: int = 3, runs: int = 3, compiled: bool = False, at_once: int = 0
) -> list[State]:
    """The states of some runs after so many joint rounds, with the steps of `at_once` runs at once, 0 for all."""
    worlds = opened(make, runs)
    shape = replace(shape_of(worlds), at_once=at_once)
    if compiled:
        shape = shape.compiled([trainer_of(world) for world in worlds])
    joint, states = JointRounds(worlds, shape, range(runs)), dict(enumerate(world.start() for world in worlds))
    for _ in range(rounds):
        states = {run: state_of(made) for run, made in joint.made(states)}
    return [states[run] for run in range(runs)]


def state_of(made: Made | Exception) -> State:
    assert isinstance(made, Made), made
    return made.state
