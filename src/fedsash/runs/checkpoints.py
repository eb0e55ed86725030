"""The state of a run on disk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from ..server.state import State, files_of
from ..system.paths import inside
from ..vector import saved
from ..vector.arrays import Ints
from ..vector.saved import StateError
from ..vector.spaces import ClientState, ExecutorMemory
from .tally import Best, Tally

FORMAT = 7
NO_RUN = Tally()
"""The tally of a state that a user's own loop has made, without a run."""


def save(
    state: State,
    folder: Path,
    keep: tuple[int, ...] = (),
    *,
    tally: Tally = NO_RUN,
    fingerprint: Mapping[str, str] = MappingProxyType({}),
    sizes: Sequence[int] | Ints = (),
) -> Path:
    """Save the state as `folder/<round>`. Keep this state, the one before it, and those of the rounds in `keep`.

    With it are saved the run's `tally`, the `fingerprint` of all settings that determine its numbers, and the clients'
    numbers of samples, `sizes` `[N]`. Raises `RunError` for a state that a later round has used up.

    Each past model, and the client state of each client that has taken part, has a file of its own, which is linked if
    it has not changed. `saved.save` says what a kill or a full disk leaves.
    """
    state.check_usable()
    tensors = {name: tensor for name, tensor in state.tensors() if not name.startswith("client_state/")}
    tensors["sizes"] = torch.tensor(sizes, dtype=torch.int64)
    for name, tensor in state.executor.items():
        tensors[f"executor/{name}"] = tensor
    best_models = {}
    for name, best in tally.best.items():
        tensors[f"best/{name}"] = best.w
        best_models[name] = {"value": best.value, "by": best.by, "round": best.round}
    past_models = {}
    for name, past in state.past.items():
        past_models[name] = {"owner": past.trajectory.owner, "files": files_of(past)}
    facts = {
        "format": FORMAT,
        "round": state.round,
        "forked": tally.forked,
        "samples": tally.samples,
        "seconds": tally.seconds,
        "training_seconds": tally.training_seconds,
        "lineage": state.clients.lineage,
        "records": tally.records,
        "fingerprint": dict(fingerprint),
        "evaluation_due": tally.evaluation_due,
        "choice": state.choice and state.choice.saved(),
        "best": best_models,
        "tensors": _kinds(state),
        "past": past_models,
    }
    own_files = {**dict(state.models()), **state.clients.saved()}
    path = saved.save(folder, state.round, tensors, own_files, facts, keep)
    state.clients.note_saved(lambda file: ClientState(saved.tensors(path / file)))
    return path


Begin = Callable[[State, Collection[str]], None]
"""Lets averages of these names begin at the model of a state."""


def load(path: Path, state: State, begin: Begin = lambda state, names: None) -> State:
    """The state alone of `load_run`."""
    return load_run(path, state, begin)[0]


def load_run(path: Path, state: State, begin: Begin = lambda state, names: None) -> tuple[State, Tally]:
    """Fill `state`, the start of the same experiment, with the state saved at `path`; with the tally beside it.

    Clients that have not taken part keep their client state of the start. The averages may differ, because a fork may
    have other averages than its source. Averages that only `state` has `begin` at the saved model. Averages that only
    the saved state has are ignored, with the past models that only they need.

    Raises `StateError` if another tensor does not fit the experiment, and `UnreadableError` if a file is missing or
    damaged. In both cases `state` is unchanged.
    """
    state.check_usable()
    manifest, tensors = saved.read(path, FORMAT)
    kinds = _kinds(state)
    saved_kinds = manifest["tensors"]
    saved_averages = {name.split("/")[1] for name in saved_kinds if name.startswith("averages/")}
    common = state.averages.keys() & saved_averages
    for name in kinds | saved_kinds:
        kind = kinds.get(name, "missing")
        saved_kind = saved_kinds.get(name, "missing")
        if kind != saved_kind and _belongs(name, common):
            raise StateError(f"{path} is of another experiment: {name} is {saved_kind} there and {kind} here")
    for name, tensor in state.tensors():
        if name in tensors:
            tensor.copy_(tensors[name])
    begin(state, state.averages.keys() - common)
    past_models = {name: models for name, models in manifest["past"].items() if name in common}
    _load_past(path, state, past_models)
    state.clients.load(lambda file: ClientState(saved.tensors(path / file)))
    state.round = manifest["round"]
    state.clients.lineage = tuple(map(tuple, manifest["lineage"]))
    executor = ExecutorMemory({})
    for name, tensor in tensors.items():
        if name.startswith("executor/"):
            executor[name.removeprefix("executor/")] = tensor
    state.executor = executor
    state.choice = state.choice and state.choice.loaded(manifest["choice"])
    best_models = {}
    for name, best in manifest["best"].items():
        if name == "model" or name in state.averages:
            w = tensors[f"best/{name}"].to(state.w.device, copy=True)
            best_models[name] = Best(best["value"], best["by"], best["round"], w)
    return state, Tally(
        best=best_models,
        forked=manifest["forked"],
        samples=manifest["samples"],
        seconds=manifest["seconds"],
        training_seconds=manifest["training_seconds"],
        records=tuple(manifest["records"]),
        evaluation_due=manifest["evaluation_due"],
    )


def load_newest(
    folder: Path,
    start: State,
    check: Callable[[Path], None] = lambda path: None,
    begin: Begin = lambda state, names: None,
) -> tuple[State, Tally, list[str]]:
    """The newest readable state of a run and its tally, or the start if none was saved, and lines about it.

    `saved.newest` says which one it is. `check` may refuse the state at a path before it is loaded; `begin` is as in
    `load`. Raises `StateError` if all saved states are unreadable, or if the newest readable one is of another
    experiment.
    """

    def load_checked(path: Path) -> tuple[State, Tally]:
        check(path)
        return load_run(path, start, begin)

    loaded, notes = saved.newest(folder, load_checked)
    if loaded is None:
        return start, NO_RUN, notes
    state, tally = loaded
    return state, tally, notes


def fingerprint(path: Path) -> dict[str, str]:
    """The fingerprint of all settings that determine the numbers of the state saved at `path`.

    Raises `UnreadableError` if its manifest is damaged.
    """
    texts: dict[str, str] = saved.manifest(path, FORMAT)["fingerprint"]
    return texts


def sizes(path: Path) -> Tensor:
    """The clients' numbers of samples, int64 `[N]`, of the state saved at `path`. Raises `UnreadableError`."""
    _, tensors = saved.read(path, FORMAT)
    return tensors["sizes"]


def _load_past(path: Path, state: State, saved_past: Mapping[str, Any]) -> None:
    """Fill the past models of the averages in `saved_past`, the manifest's table of them. Each file is read once."""
    for name in saved_past:
        state.past[name].clear()
    for name, models in saved_past.items():
        past = state.past[name]
        if models["owner"] and not past.trajectory.owner:
            # The saved average has models of its own: they stay apart from those of the common trajectory.
            owner = models["owner"]
            owners = {each.trajectory.owner for each in state.past.values()}
            while owner in owners:  # another average's files have this name
                owner += "+"
            past = past.trajectory.apart(owner).share()
            state.past[name] = past
        files = {int(round): inside(path, file) for round, file in models["files"].items()}
        past.fill(files, files.__getitem__)


def _belongs(name: str, averages: Set[str]) -> bool:
    """Whether a tensor must exist in both states. Of the averages, this holds only for those in `averages`."""
    group, *rest = name.split("/")
    return group != "averages" or rest[0] in averages


def _kinds(state: State) -> dict[str, str]:
    """The type and shape of every tensor, and the part of the model that each past tensor belongs to."""
    kinds = {name: f"{tensor.dtype} {list(tensor.shape)}" for name, tensor in state.tensors()}
    for name, past in state.past.items():
        kinds[f"averages/{name}"] = f"models of {past.trajectory.part}"
    return kinds
