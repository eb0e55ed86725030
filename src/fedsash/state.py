"""All that a run must remember between two rounds, and how it lies on disk."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from .methods import Vectors

FORMAT = 1
STATE_FILE = "state.safetensors"
CLOCK = ("samples", "seconds", "training_seconds")


class StateError(ValueError):
    """A saved state that is damaged, or that does not fit the experiment."""


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
    seen, `best` the best model of each name. `samples` counts the samples trained on, `seconds` the time taken,
    `training_seconds` that of the rounds alone. Nothing else is kept anywhere.
    """

    round: int
    w: Tensor
    server: Vectors
    shared: Vectors
    mine: Vectors
    averages: dict[str, Vectors]
    best: dict[str, Best] = field(default_factory=dict)
    samples: int = 0
    seconds: float = 0.0
    training_seconds: float = 0.0

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor of the state but the best models, by a path-like name."""
        yield "w", self.w
        for group in ("server", "shared", "mine"):
            for name, value in getattr(self, group).items():
                yield f"{group}/{name}", value
        for average, vectors in self.averages.items():
            for name, value in vectors.items():
                yield f"averages/{average}/{name}", value


def save(state: State, folder: Path, keep: tuple[int, ...] = ()) -> Path:
    """Save the state as `folder/<round>`, whole or not at all; keep it, the one before, and the rounds in `keep`.

    The models in a window lie in a file each, which is linked, not written again, as long as the window holds them.
    Each file's checksum is in `state.json`. Raises `OSError` (a full disk, say) with everything as it was.
    """
    final = folder / f"{state.round:08d}"
    before = saved_rounds(folder)
    writing = folder / f".{final.name}.tmp"
    shutil.rmtree(writing, ignore_errors=True)
    writing.mkdir(parents=True)
    try:
        _write(state, writing, folder / f"{before[-1]:08d}" if before else None)
        shutil.rmtree(final, ignore_errors=True)
        os.replace(writing, final)
    except BaseException:
        shutil.rmtree(writing, ignore_errors=True)
        raise
    for round in [r for r in saved_rounds(folder) if r not in keep][:-2]:
        shutil.rmtree(folder / f"{round:08d}", ignore_errors=True)
    return final


def load(path: Path, state: State) -> State:
    """Fill `state`, the start of the same experiment, with the state saved at `path`; averages it lacks stay empty.

    Raises `StateError` if a file is missing or damaged, or if the saved tensors are not those of the experiment.
    """
    manifest, saved = _read(path)
    for name, tensor in state.tensors():
        kind, average, *_ = (*name.split("/"), "")
        if kind == "averages" and average not in manifest["averages"]:
            continue
        if name.endswith("/models") and kind == "averages":
            _fill_ring(tensor, path, average, manifest["averages"][average])
            continue
        found = saved.get(name)
        if found is None or found.shape != tensor.shape or found.dtype != tensor.dtype:
            had = "is missing" if found is None else f"is {found.dtype} {list(found.shape)}"
            raise StateError(f"{path}: {name} {had}; this experiment needs {tensor.dtype} {list(tensor.shape)}")
        tensor.copy_(found)
    state.round = manifest["round"]
    for name in CLOCK:
        setattr(state, name, manifest["clock"][name])
    state.best = {
        name: Best(best["accuracy"], best["round"], saved[f"best/{name}"].to(state.w.device))
        for name, best in manifest["best"].items()
    }
    return state


def load_newest(folder: Path, start: State) -> tuple[State, list[str]]:
    """The newest undamaged state of a run, and a line for each damaged one; the start if there is none."""
    notes: list[str] = []
    for round in reversed(saved_rounds(folder)):
        try:
            return load(folder / f"{round:08d}", start), notes
        except DamagedError as error:
            notes.append(f"{error}; using the state before it")
    return start, notes


class DamagedError(StateError):
    """A saved state whose files are not what was written."""


def saved_rounds(folder: Path) -> list[int]:
    """The rounds whose states are saved, ascending."""
    return sorted(int(p.name) for p in folder.glob("[0-9]*") if p.name.isdigit() and p.is_dir())


def _write(state: State, writing: Path, before: Path | None) -> None:
    from safetensors.torch import save_file

    small: Vectors = {f"best/{name}": best.w for name, best in state.best.items()}
    sums: dict[str, int] = {}
    linked = _links(before)
    for name, tensor in state.tensors():
        if not (name.startswith("averages/") and name.endswith("/models")):
            small[name] = tensor
            continue
        average = name.split("/")[1]
        for slot, round in enumerate(state.averages[average]["rounds"].tolist()):
            if round >= 0:
                file = _model_file(average, round)
                if before and file in linked:
                    os.link(before / file, writing / file)
                    sums[file] = linked[file]
                else:
                    save_file({"w": tensor[slot].detach().cpu().contiguous()}, writing / file)
                    sums[file] = _checksum(writing / file)
    save_file({name: t.detach().cpu().contiguous() for name, t in small.items()}, writing / STATE_FILE)
    sums[STATE_FILE] = _checksum(writing / STATE_FILE)
    manifest = {
        "format": FORMAT,
        "round": state.round,
        "averages": {name: _rounds(vectors) for name, vectors in state.averages.items()},
        "best": {name: {"accuracy": best.accuracy, "round": best.round} for name, best in state.best.items()},
        "clock": {name: getattr(state, name) for name in CLOCK},
        "files": sums,
    }
    (writing / "state.json").write_text(json.dumps(manifest, indent=1))


def _links(before: Path | None) -> dict[str, int]:
    """The files of the state before that a new state may link, with their checksums."""
    try:
        return dict(_manifest(before)["files"]) if before else {}
    except StateError:
        return {}


def _rounds(vectors: Vectors) -> list[int]:
    """The rounds of the models in a window, slot by slot; empty for other averages."""
    return [int(r) for r in vectors["rounds"].tolist()] if "models" in vectors else []


def _read(path: Path) -> tuple[dict[str, Any], Vectors]:
    """The manifest of a saved state and its tensors but for the windows' models; every file is checked."""
    from safetensors.torch import load_file

    manifest = _manifest(path)
    for file, expected in manifest["files"].items():
        if not (path / file).is_file() or _checksum(path / file) != expected:
            raise DamagedError(f"{path / file} is missing or damaged")
    return manifest, load_file(path / STATE_FILE)


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((path / "state.json").read_text())
        if manifest["format"] != FORMAT:
            raise StateError(f"{path}: written in format {manifest['format']}, this version of fedsash reads {FORMAT}")
        if not {"round", "averages", "best", "clock", "files"} <= manifest.keys():
            raise KeyError
        return manifest
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, StateError):
            raise
        raise DamagedError(f"{path / 'state.json'} is missing or damaged") from None


def _checksum(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            value = zlib.crc32(chunk, value)
    return value


def _fill_ring(ring: Tensor, path: Path, average: str, rounds: list[int]) -> None:
    from safetensors.torch import load_file

    if len(rounds) != len(ring):
        raise StateError(f"{path}: averages.{average} holds {len(rounds)} models, this experiment's {len(ring)}")
    for slot, round in enumerate(rounds):
        if round >= 0:
            ring[slot].copy_(load_file(path / _model_file(average, round))["w"])


def _model_file(average: str, round: int) -> str:
    return f"{average}-{round:08d}.safetensors"
