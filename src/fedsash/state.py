"""All that a run must remember between two rounds, and how it lies on disk."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from .methods import Vectors

FORMAT = 1
TENSORS, MANIFEST = "state.safetensors", "state.json"
NUMBERS = ("round", "forked", "samples", "seconds", "training_seconds")


class StateError(ValueError):
    """A saved state that can't be used here."""


class UnreadableError(StateError):
    """A saved state whose files are not what was written, or were written in another format."""


@dataclass
class Best:
    """The best model of one name so far: its test accuracy, its round, and the model."""

    accuracy: float
    round: int
    w: Tensor


@dataclass
class State:
    """The state of a run after `round` finished rounds; a round takes one state to the next.

    `w` `[D]` is the global model as the server has it, `server` what the server optimiser remembers, `shared` what the
    method remembers at the server and `mine` at each of the N clients (`[N, ...]`), `averages` what each average has
    seen, `best` the best model of each name. `forked` is the round at which the run left another one, None if it did
    not. `samples` counts the samples trained on, `seconds` the time that rounds and evaluations took, of which
    `training_seconds` in rounds. Nothing else is kept anywhere.
    """

    round: int
    w: Tensor
    server: Vectors
    shared: Vectors
    mine: Vectors
    averages: dict[str, Vectors]
    best: dict[str, Best] = field(default_factory=dict)
    forked: int | None = None
    samples: int = 0
    seconds: float = 0.0
    training_seconds: float = 0.0

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor by a path-like name, but for the best models and the single models in windows."""
        yield "w", self.w
        for group in ("server", "shared", "mine"):
            for name, value in getattr(self, group).items():
                yield f"{group}/{name}", value
        for average, vectors in self.averages.items():
            for name, value in vectors.items():
                if name != "models":
                    yield f"averages/{average}/{name}", value

    def windows(self) -> Iterator[tuple[str, Vectors]]:
        """The averages that keep single models: `models` `[size, d]`, and in `rounds` `[size]` whose they are."""
        return ((name, vectors) for name, vectors in self.averages.items() if "models" in vectors)


def save(state: State, folder: Path, keep: tuple[int, ...] = ()) -> Path:
    """Save the state as `folder/<round>`; keep it, the one before, and those of the rounds in `keep`.

    The models in a window lie in a file each, which is linked, not written again, as long as the window holds them:
    the newest state in `folder` must be an earlier one of the same run (see `cut`). A process that is killed leaves the
    new state whole or not at all; a machine that crashes may leave it damaged, which `load` finds by the checksums in
    `state.json`. Raises `OSError` (a full disk, say) with everything as it was.
    """
    before = place(folder, max(saved_rounds(folder), default=0))
    final = place(folder, state.round)
    writing = folder / f".{final.name}.tmp"
    _clear(folder)
    try:
        writing.mkdir(parents=True)
        _write(state, writing, before)
        shutil.rmtree(final, ignore_errors=True)
        writing.rename(final)
    except BaseException:
        shutil.rmtree(writing, ignore_errors=True)
        raise
    for round in saved_rounds(folder)[:-2]:
        if round not in keep:
            shutil.rmtree(place(folder, round), ignore_errors=True)
    return final


def load(path: Path, state: State) -> State:
    """Fill `state`, the start of the same experiment, with the state saved at `path`.

    Averages that the saved state does not have stay empty, and those that only it has are left out: they may differ
    between a run and its fork. Raises `StateError` if other tensors are not those of the experiment,
    `UnreadableError` if a file is missing or damaged; then `state` is as it was.
    """
    manifest, saved = _read(path)
    common = state.averages.keys() & {name.split("/")[1] for name in saved if name.startswith("averages/")}
    ours = {name: tensor for name, tensor in state.tensors() if _belongs(name, common)}
    theirs = {name: tensor for name, tensor in saved.items() if _belongs(name, common)}
    for name in ours | theirs:
        here, there = _kind(ours.get(name)), _kind(theirs.get(name))
        if here != there:
            raise StateError(f"{path} is of another experiment: {name} is {there} there and {here} here")
    for name, tensor in ours.items():
        tensor.copy_(theirs[name])
    for average, vectors in state.windows():
        for slot, round in enumerate(vectors["rounds"].tolist()):
            if round >= 0:  # an average that was not saved is empty
                vectors["models"][slot].copy_(_tensors(path / _model_file(average, round))["w"])
    for name in NUMBERS:
        setattr(state, name, manifest[name])
    state.best = {
        name: Best(best["accuracy"], best["round"], saved[f"best/{name}"].to(state.w.device, copy=True))
        for name, best in manifest["best"].items()
        if name == "model" or name in state.averages
    }
    return state


def load_newest(folder: Path, start: State) -> tuple[State, list[str]]:
    """The newest readable state of a run, the start if none was saved; and a line for each one that is unreadable.

    Raises `StateError` if all are unreadable, or if the newest readable one is of another experiment.
    """
    notes: list[str] = []
    for round in reversed(saved_rounds(folder)):
        try:
            return load(place(folder, round), start), [f"{note}; using the state before it" for note in notes]
        except UnreadableError as error:
            notes.append(str(error))
    if notes:
        raise StateError(f"there is no usable state: {'; '.join(notes)}")
    return start, []


def cut(folder: Path, round: int) -> None:
    """Drop the states after `round`, and what was half written."""
    _clear(folder)
    for later in saved_rounds(folder):
        if later > round:
            shutil.rmtree(place(folder, later))


def saved_rounds(folder: Path) -> list[int]:
    """The rounds whose states are saved, ascending."""
    return sorted(int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit() and len(path.name) >= 8)


def place(folder: Path, round: int) -> Path:
    """Where the state after `round` is saved."""
    return folder / f"{round:08d}"


def _clear(folder: Path) -> None:
    """Drop what a killed process had half written."""
    for path in folder.glob(".*.tmp"):
        shutil.rmtree(path)


def _write(state: State, writing: Path, before: Path) -> None:
    """Write all files of a state; the models in windows that the state `before` has as well become links."""
    try:
        known: dict[str, int] = _manifest(before)["files"]
    except StateError:
        known = {}
    files: dict[str, int] = {}
    for average, vectors in state.windows():
        for model, round in zip(vectors["models"], vectors["rounds"].tolist(), strict=True):
            file = _model_file(average, round)
            if round >= 0 and file in known and _link(before / file, writing / file):
                files[file] = known[file]
            elif round >= 0:
                files[file] = _write_tensors({"w": model}, writing / file)
    best = {f"best/{name}": best.w for name, best in state.best.items()}
    files[TENSORS] = _write_tensors(dict(state.tensors()) | best, writing / TENSORS)
    manifest = {
        "format": FORMAT,
        **{name: getattr(state, name) for name in NUMBERS},
        "best": {name: {"accuracy": best.accuracy, "round": best.round} for name, best in state.best.items()},
        "files": files,
    }
    (writing / MANIFEST).write_text(json.dumps(manifest | {"checksum": _own_checksum(manifest)}, indent=1))


def _write_tensors(tensors: Vectors, path: Path) -> int:
    """Write tensors into a file; its checksum."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(f"{path} can't be written: {error}") from error
    path.chmod(path.parent.stat().st_mode & 0o666)  # safetensors lets the owner only read what it writes
    return _checksum(path)


def _link(source: Path, target: Path) -> bool:
    """Give a file a second name; False where the file is gone, or its file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        return False
    return True


def _read(path: Path) -> tuple[dict[str, Any], Vectors]:
    """The manifest of a saved state, and its tensors but for the single models; every file is checked."""
    manifest = _manifest(path)
    for file, expected in manifest["files"].items():
        if not (path / file).is_file() or _checksum(path / file) != expected:
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


def _own_checksum(manifest: dict[str, Any]) -> int:
    """The checksum of the manifest itself, which must stay the same in all formats."""
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


def _belongs(name: str, averages: Set[str]) -> bool:
    """Whether a tensor has to be the same in both states: not the best models, and of the averages only `averages`."""
    group, *rest = name.split("/")
    return rest[0] in averages if group == "averages" else group != "best"


def _kind(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"


def _model_file(average: str, round: int) -> str:
    return f"{average}-{round:08d}.safetensors"
