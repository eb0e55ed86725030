"""The state of a run on disk: saved completely or not at all, checked when read. Unchanged parts share their files."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Mapping, Set
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..basics.arrays import Vectors
from ..basics.errors import RunError
from ..basics.paths import inside
from ..state import Best, State, files_of

FORMAT = 6
TENSORS, MANIFEST = "state.safetensors", "state.json"
NUMBERS = (
    *("round", "forked", "samples", "seconds", "training_seconds", "lineage", "records", "fingerprint"),
    "evaluation_due",
)


class StateError(RunError):
    """A saved state that can't be used for this experiment."""


class UnreadableError(StateError):
    """A saved state whose files are damaged or in another format."""


def save(state: State, folder: Path, keep: tuple[int, ...] = ()) -> Path:
    """Save the state as `folder/<round>`. Keep this state, the one before it, and those of the rounds in `keep`.

    Each past model, and the client state of each client that has taken part, has a file of its own. If it has not
    changed since the newest state in `folder`, its file is linked instead of written again. So that newest state must
    be an earlier one of the same run (see `cut`).

    If the process is killed, the new state is complete or absent. If the machine crashes, the state may be damaged;
    `load` detects this by the checksums in `state.json`. Raises `OSError`, for example if the disk is full, and leaves
    everything as it was.
    """
    before = place(folder, max(saved_rounds(folder), default=0))
    final = place(folder, state.round)
    writing = folder / f".{final.name}.tmp"
    _clear(folder)
    try:
        writing.mkdir(parents=True)
        _write(state, writing, before)
        if final.exists():
            _remove(final)
        writing.rename(final)
    except BaseException:
        shutil.rmtree(writing, ignore_errors=True)
        raise
    prune(folder, keep)
    return final


def load(path: Path, state: State) -> State:
    """Fill `state`, the start of the same experiment, with the state saved at `path`.

    Clients that have not taken part keep their client state of the start. The averages may differ, because a fork may
    have other averages than its source. Averages that only `state` has stay empty. Averages that only the saved state
    has are ignored, with the past models that only they need.

    Raises `StateError` if another tensor does not fit the experiment, and `UnreadableError` if a file is missing or
    damaged. In both cases `state` is unchanged.
    """
    manifest, saved = _read(path)
    here, there = _kinds(state), manifest["tensors"]
    common = state.averages.keys() & {name.split("/")[1] for name in there if name.startswith("averages/")}
    for name in here | there:
        kinds = there.get(name, "missing"), here.get(name, "missing")
        if kinds[0] != kinds[1] and _belongs(name, common):
            raise StateError(f"{path} is of another experiment: {name} is {kinds[0]} there and {kinds[1]} here")
    for name, tensor in state.tensors():
        if name in saved:
            tensor.copy_(saved[name])
    _load_past(path, state, {name: kept for name, kept in manifest["past"].items() if name in common})
    for file, views in state.memories():
        for name, tensor in _tensors(path / file).items():
            views[name].copy_(tensor)
    for name in NUMBERS:
        setattr(state, name, manifest[name])
    state.records, state.lineage = tuple(manifest["records"]), tuple(map(tuple, manifest["lineage"]))
    state.executor = {name.removeprefix("executor/"): saved[name] for name in saved if name.startswith("executor/")}
    state.choice = state.choice and state.choice.loaded(manifest["choice"])
    state.best = {
        name: Best(best["value"], best["by"], best["round"], saved[f"best/{name}"].to(state.w.device, copy=True))
        for name, best in manifest["best"].items()
        if name == "model" or name in state.averages
    }
    return state


def load_newest(folder: Path, start: State) -> tuple[State, list[str]]:
    """The newest readable state of a run, or the start if none was saved, and lines about it.

    A line names each unreadable state. Another one says if other versions of the libraries have saved the state.

    Raises `StateError` if all saved states are unreadable, or if the newest readable one is of another experiment.
    """
    notes: list[str] = []
    for round in reversed(saved_rounds(folder)):
        try:
            state = load(place(folder, round), start)
            return state, [*(f"{note}; using the state before it" for note in notes), *_news(place(folder, round))]
        except UnreadableError as error:
            notes.append(str(error))
    if notes:
        raise StateError(f"there is no usable state: {'; '.join(notes)}")
    return start, []


def cut(folder: Path, round: int) -> None:
    """Remove the states after `round`, and states that were not written completely."""
    _clear(folder)
    for later in saved_rounds(folder):
        if later > round:
            _remove(place(folder, later))


def prune(folder: Path, keep: tuple[int, ...] = ()) -> None:
    """Remove all states but the last two and those of the rounds in `keep`."""
    for round in saved_rounds(folder)[:-2]:
        if round not in keep:
            with suppress(OSError):  # one state too many does no harm
                _remove(place(folder, round))


def saved_rounds(folder: Path) -> list[int]:
    """The rounds whose states are saved, ascending."""
    return sorted(int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit() and len(path.name) >= 8)


def fingerprint(path: Path) -> dict[str, str]:
    """What determines the numbers of the state saved at `path`. Raises `UnreadableError` if its manifest is damaged."""
    found: dict[str, str] = _manifest(path)["fingerprint"]
    return found


def place(folder: Path, round: int) -> Path:
    """The folder of the state after `round`."""
    return folder / f"{round:08d}"


def _remove(path: Path) -> None:
    """Remove a state. It is renamed first: a killed process leaves it whole, or nothing that counts as saved."""
    going = path.with_name(f".{path.name}.old.tmp")
    try:
        path.rename(going)
        shutil.rmtree(going)
    except BaseException:  # such as Ctrl-C
        shutil.rmtree(going, ignore_errors=True)
        raise


def _clear(folder: Path) -> None:
    """Remove what a killed process has left of states that it was writing or removing."""
    for path in folder.glob(".*.tmp"):
        shutil.rmtree(path)


def _write(state: State, writing: Path, before: Path) -> None:
    """Write all files of a state. The parts that the state `before` also has become links."""
    try:
        known: dict[str, int] = _manifest(before)["files"]
    except StateError:
        known = {}
    files: dict[str, int] = {}
    for file, views in (dict(state.models()) | dict(state.memories())).items():
        linked = file in known and _link(before / file, writing / file)
        files[file] = known[file] if linked else _write_tensors(views, writing / file)
    whole = {name: tensor for name, tensor in state.tensors() if not name.startswith("client_state/")}
    whole |= {"sizes": state.sizes} | {f"executor/{name}": tensor for name, tensor in state.executor.items()}
    best = {f"best/{name}": best.w for name, best in state.best.items()}
    files[TENSORS] = _write_tensors(whole | best, writing / TENSORS)
    manifest = {
        "format": FORMAT,
        "versions": _versions(),
        **{name: getattr(state, name) for name in NUMBERS},
        "choice": state.choice and state.choice.saved(),
        "best": {name: {"value": best.value, "by": best.by, "round": best.round} for name, best in state.best.items()},
        "tensors": _kinds(state),
        "past": {name: {"owner": past.trajectory.owner, "files": files_of(past)} for name, past in state.past.items()},
        "files": files,
    }
    (writing / MANIFEST).write_text(json.dumps(manifest | {"checksum": _own_checksum(manifest)}, indent=1))


def _write_tensors(tensors: Vectors, path: Path) -> int:
    """Write tensors into a file and return its checksum."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(f"{path} can't be written: {error}") from error
    path.chmod(path.parent.stat().st_mode & 0o666)  # safetensors creates files that only their owner can read
    return _checksum(path)


def _link(source: Path, target: Path) -> bool:
    """Make a hard link. False if the file is gone or its file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        return False
    return True


def _read(path: Path) -> tuple[dict[str, Any], Vectors]:
    """The manifest of a saved state, and its tensors without the linked parts. Every file is checked."""
    manifest = _manifest(path)
    for file, expected in manifest["files"].items():
        if not inside(path, file).is_file() or _checksum(path / file) != expected:
            raise UnreadableError(f"{path / file} is missing or damaged")
    return manifest, _tensors(path / TENSORS)


def _manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(file.read_text())
        checksum, format = manifest.pop("checksum"), manifest["format"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UnreadableError(f"{file} is missing or damaged") from None
    if checksum != _own_checksum(manifest):
        raise UnreadableError(f"{file} is damaged")
    if format != FORMAT:
        raise UnreadableError(f"{path} is in format {format}, and this version of fedsash reads {FORMAT}")
    return manifest


def _versions() -> str:
    """The libraries that determine the last digits of a number."""
    return f"fedsash {version('fedsash')} and torch {torch.__version__}"


def _news(path: Path) -> list[str]:
    before, now = _manifest(path).get("versions"), _versions()
    return [] if before in (None, now) else [f"{path} was saved by {before}, and goes on with {now}"]


def _own_checksum(manifest: dict[str, Any]) -> int:
    """The checksum of the manifest itself. It must be computed in the same way in all formats."""
    return zlib.crc32(json.dumps(manifest).encode())


def _checksum(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            value = zlib.crc32(chunk, value)
    return value


def _tensors(path: Path) -> Vectors:
    from safetensors.torch import load_file

    tensors: Vectors = load_file(path)
    return tensors


def _load_past(path: Path, state: State, saved: Mapping[str, Any]) -> None:
    """Fill the past models that the averages in `saved` need. Each file is read once."""
    for name in saved:
        state.past[name].clear()
    for name, kept in saved.items():
        past = state.past[name]
        if kept["owner"] and not past.trajectory.owner:  # the saved average has models of its own: keep them apart
            past = state.past[name] = past.trajectory.apart(kept["owner"]).share()
        files = {int(round): inside(path, file) for round, file in kept["files"].items()}
        past.fill(files, partial(_model, files))


def _model(files: Mapping[int, Path], round: int) -> Tensor:
    return _tensors(files[round])["w"]


def _belongs(name: str, averages: Set[str]) -> bool:
    """Whether a tensor must exist in both states. Of the averages, this holds only for those in `averages`."""
    group, *rest = name.split("/")
    return group != "averages" or rest[0] in averages


def _kinds(state: State) -> dict[str, str]:
    """The type and shape of every tensor, and the part of the model that each past tensor belongs to."""
    tensors = {name: f"{tensor.dtype} {list(tensor.shape)}" for name, tensor in state.tensors()}
    return tensors | {f"averages/{name}": f"models of {past.trajectory.part}" for name, past in state.past.items()}
