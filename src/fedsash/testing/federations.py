"""Identities that every federation must keep, with any combination of parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ..engines import Engine
from ..runs import checkpoints
from ..server.state import State
from .equality import close, expect, identical, in_one_sentence
from .worlds import VECTORISED, WORKERS, after, small_federation

ROUNDS = 4
HALF = 2


def check_federation(tolerance: float = 1e-13, **settings: Any) -> None:
    """Check that the small federation keeps its identities with these `settings` of a `Federation`, over four rounds.

    - Every number of the state is finite.
    - Worker processes give bitwise the same state as this process.
    - Stacked clients give the same numbers as one client at a time, within `tolerance` (float64).
    - A run that is saved after half of the rounds and resumed ends bitwise with the state of a run without a stop.

    Raises `AssertionError` that names the identity. Workers are forked, so the settings need not be picklable;
    where PyTorch sees a GPU they are spawned, and the settings must be.
    """
    check_named(settings, tolerance, settings)


def check_named(named: Mapping[str, Any], tolerance: float, settings: dict[str, Any]) -> None:
    """`check_federation` with `settings`, of which the sentence of a failure has only those that are `named`."""
    subject = ", ".join(f"{name} = {value}" for name, value in named.items())
    with in_one_sentence(subject):
        state = after(small_federation(**settings), ROUNDS)
        expect(finite(state), subject, "every number of the state must be finite")
        of_workers = _state_by(WORKERS, settings)
        expect(identical(state, of_workers), subject, "worker processes must give bitwise the state of one process")
        of_stacked = _state_by(VECTORISED, settings)
        is_close = close(state, of_stacked, tolerance)
        expect(is_close, subject, "stacked clients must give the numbers of one at a time")
        is_same = identical(state, _state_of_resumed(settings))
        expect(is_same, subject, "a run that is saved and resumed must give bitwise the state of the whole run")


def finite(state: State) -> bool:
    """Whether every number of a state is finite."""
    return all(bool(torch.isfinite(tensor).all()) for _, tensor in state.tensors())


def _state_by(engine: Engine, settings: dict[str, Any]) -> State:
    """The state after all rounds by another engine."""
    return after(small_federation(**settings | {"engine": engine}), ROUNDS)


def _state_of_resumed(settings: dict[str, Any]) -> State:
    """The state of a run that was saved after half of its rounds, and resumed by another federation."""
    with TemporaryDirectory() as folder:
        saved = checkpoints.save(after(small_federation(**settings), HALF), Path(folder))
        federation = small_federation(**settings)
        state = checkpoints.load(saved, federation.start())
        return after(federation, ROUNDS - HALF, state)
