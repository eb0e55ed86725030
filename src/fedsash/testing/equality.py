"""Comparisons of states, runs' folders and results, and the sentence of a check that fails."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..server.state import State
from ..settings.errors import one_line


def expect(holds: object, subject: object, identity: str) -> None:
    """Raise `AssertionError` unless `holds`. If that is a `Comparison`, the sentence contains its differences."""
    if not holds:
        found = f" ({holds})" if isinstance(holds, Comparison) else ""
        raise AssertionError(f"{subject}: {identity}{found}")


@contextmanager
def in_one_sentence(subject: object, identity: str = "it must run without an error") -> Iterator[None]:
    """Turn any exception inside into an `AssertionError` with the `subject`, the `identity` and what was raised."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:  # whatever the code of others raises
        raise AssertionError(f"{subject}: {identity} ({type(error).__name__}: {one_line(error)})") from error


NOT_COMPARED = {"seconds", "training_seconds", "lineage", "records", "oldest", "folder"}
"""Names of values that may differ between two runs with the same numbers: times, and the identity of a run."""

Record = dict[str, Any]
"""All values of an object by path-like names: tensors, numbers, texts, and the bytes of files."""


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison. It is true if there is no difference."""

    differences: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        more = len(self.differences) - 3
        return "; ".join(self.differences[:3]) + (f"; and {more} more" if more > 0 else "") or "no difference"


def identical(a: object, b: object) -> Comparison:
    """Whether two objects are bitwise equal: all tensors with type and shape, all numbers, all files.

    An object is a state, the folder of a run, the result of `run` or `evaluate`, a tensor, or a collection of these.
    All of a state is compared: the model, the states of server, method and clients, the averages with the models of
    past rounds that they need. Of a folder the models, the last saved state and the metrics are
    compared. The names in `NOT_COMPARED` are ignored.
    """
    return _compare(record(a), record(b), None)


def equal(a: object, b: object) -> Comparison:
    """Whether two objects hold equal numbers of any type: 0 equals -0, and float32 may equal float64."""
    return close(a, b, 0.0)


def close(a: object, b: object, tolerance: float) -> Comparison:
    """Whether all numbers of two objects differ by at most `tolerance`."""
    return _compare(_parsed(record(a)), _parsed(record(b)), tolerance)


def record(thing: object) -> Record:
    """A copy of all values of an object that are compared. It can be compared in place of the object later."""
    return dict(_leaves(thing, ""))


def _leaves(thing: object, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, State):
        thing = thing.gathered()
    if isinstance(thing, Tensor):
        yield name, thing.detach().cpu().clone()
    elif isinstance(thing, np.ndarray):
        yield name, torch.from_numpy(thing.copy())
    elif isinstance(thing, Path):
        yield from ((_join(name, file), content) for file, content in _files(thing))
    elif isinstance(thing, Mapping | list | tuple) or is_dataclass(thing):
        for key, value in _members(thing):
            if key not in NOT_COMPARED:
                yield from _leaves(value, _join(name, key))
    else:
        yield name, thing


def _members(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, Mapping):
        yield from ((str(key), value) for key, value in thing.items())
    elif isinstance(thing, list | tuple):
        yield from ((str(number), value) for number, value in enumerate(thing))
    else:
        yield from ((field.name, getattr(thing, field.name)) for field in fields(thing))


def _join(name: str, key: str) -> str:
    return f"{name}/{key}" if name else key


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a run's folder that must be the same for a stopped and resumed run as for one without a stop."""
    from ..vector.saved import place, saved_rounds

    models = folder / "models"
    states = folder / "state"
    files = [folder / "metrics.jsonl", *(sorted(models.iterdir()) if models.is_dir() else ())]
    if states.is_dir() and (rounds := saved_rounds(states)):
        files += sorted(place(states, rounds[-1]).glob("*.safetensors"))
    return ((str(file.relative_to(folder)), file.read_bytes()) for file in files)


def _parsed(found: Record) -> Record:
    """The record with the numbers in files as entries of their own."""
    from safetensors.torch import load

    numbers: Record = {}
    for name, value in found.items():
        if isinstance(value, bytes) and name.endswith(".safetensors"):
            numbers |= {_join(name, key): tensor for key, tensor in load(value).items()}
        elif isinstance(value, bytes) and name.endswith(".jsonl"):
            numbers |= dict(_leaves([json.loads(line) for line in value.splitlines()], name))
        else:
            numbers[name] = value
    return numbers


def _compare(a: Record, b: Record, tolerance: float | None) -> Comparison:
    alone = [f"{name}: only one has it" for name in sorted(a.keys() ^ b.keys())]
    both = ((name, _difference(value, b[name], tolerance)) for name, value in a.items() if name in b)
    return Comparison((*alone, *(f"{name}: {found}" for name, found in both if found)))


def _difference(a: Any, b: Any, tolerance: float | None) -> str:
    """The difference of two values in words, empty if they agree. With the tolerance None they must be identical."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return _of_tensors(a, b, tolerance)
    if isinstance(a, bytes) and isinstance(b, bytes):
        return "" if a == b else "other bytes"
    if tolerance is None or not all(isinstance(value, int | float) for value in (a, b)):
        return "" if repr(a) == repr(b) else f"{a!r} and {b!r}"
    near = a == b or (isnan(a) and isnan(b)) or abs(a - b) <= tolerance
    return "" if near else f"{abs(a - b):.3g} apart"


def _of_tensors(a: Tensor, b: Tensor, tolerance: float | None) -> str:
    if a.shape != b.shape:
        return f"of shapes {list(a.shape)} and {list(b.shape)}"
    if tolerance is None and a.dtype != b.dtype:
        return f"of types {a.dtype} and {b.dtype}"
    if tolerance is None and torch.equal(_bytes(a), _bytes(b)):
        return ""
    x = a.double()
    y = b.double()
    if tolerance is not None and torch.isclose(x, y, rtol=0, atol=tolerance, equal_nan=True).all():
        return ""
    return f"up to {float((x - y).abs().max()):.3g} apart"


def _bytes(tensor: Tensor) -> Tensor:
    flat = tensor.contiguous().reshape(-1)
    return flat.view(torch.uint8) if len(flat) else flat.new_empty(0, dtype=torch.uint8)  # torch views no empty one
