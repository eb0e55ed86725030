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
    if holds:
        return
    sentence = f"{subject}: {identity}"
    if isinstance(holds, Comparison):
        sentence += f" ({holds})"
    raise AssertionError(sentence)


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
        if not self.differences:
            return "no difference"
        listed = "; ".join(self.differences[:3])
        others = len(self.differences) - 3
        if others <= 0:
            return listed
        return f"{listed}; and {others} more"


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
    """The values in an object called `name` that have no members themselves, each by its path."""
    if isinstance(thing, State):
        thing = thing.gathered()
    if isinstance(thing, Tensor):
        yield name, thing.detach().cpu().clone()
    elif isinstance(thing, np.ndarray):
        yield name, torch.from_numpy(thing.copy())
    elif isinstance(thing, Path):
        for file in _files(thing):
            yield _join(name, str(file.relative_to(thing))), file.read_bytes()
    elif isinstance(thing, Mapping | list | tuple) or is_dataclass(thing):
        for key, value in _members(thing):
            if key not in NOT_COMPARED:
                yield from _leaves(value, _join(name, key))
    else:
        yield name, thing


def _members(thing: Any) -> Iterator[tuple[str, Any]]:
    """The entries of a collection, or the fields of a dataclass, by name."""
    if isinstance(thing, Mapping):
        for key, value in thing.items():
            yield str(key), value
    elif isinstance(thing, list | tuple):
        for number, value in enumerate(thing):
            yield str(number), value
    else:
        for field in fields(thing):
            yield field.name, getattr(thing, field.name)


def _join(name: str, key: str) -> str:
    return f"{name}/{key}" if name else key


def _files(folder: Path) -> list[Path]:
    """The files of a run's folder that must be the same for a stopped and resumed run as for one without a stop."""
    from ..vector.saved import place, saved_rounds

    files = [folder / "metrics.jsonl"]
    models = folder / "models"
    if models.is_dir():
        files += sorted(models.iterdir())
    states = folder / "state"
    rounds = saved_rounds(states) if states.is_dir() else []
    if rounds:
        files += sorted(place(states, rounds[-1]).glob("*.safetensors"))
    return files


def _parsed(values: Record) -> Record:
    """The record with the numbers in files as entries of their own."""
    from safetensors.torch import load

    numbers: Record = {}
    for name, value in values.items():
        if isinstance(value, bytes) and name.endswith(".safetensors"):
            for key, tensor in load(value).items():
                numbers[_join(name, key)] = tensor
        elif isinstance(value, bytes) and name.endswith(".jsonl"):
            lines = [json.loads(line) for line in value.splitlines()]
            numbers.update(_leaves(lines, name))
        else:
            numbers[name] = value
    return numbers


def _compare(a: Record, b: Record, tolerance: float | None) -> Comparison:
    """The differences of two records; with the tolerance None they must be identical."""
    differences = [f"{name}: only one has it" for name in sorted(a.keys() ^ b.keys())]
    for name, value in a.items():
        if name in b:
            difference = _difference(value, b[name], tolerance)
            if difference:
                differences.append(f"{name}: {difference}")
    return Comparison(tuple(differences))


def _difference(a: Any, b: Any, tolerance: float | None) -> str:
    """The difference of two values in words, empty if they agree. With the tolerance None they must be identical."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return _difference_of_tensors(a, b, tolerance)
    if isinstance(a, bytes) and isinstance(b, bytes):
        return "" if a == b else "other bytes"
    are_numbers = isinstance(a, int | float) and isinstance(b, int | float)
    if tolerance is None or not are_numbers:
        return "" if repr(a) == repr(b) else f"{a!r} and {b!r}"
    is_close = a == b or (isnan(a) and isnan(b)) or abs(a - b) <= tolerance
    return "" if is_close else f"{abs(a - b):.3g} apart"


def _difference_of_tensors(a: Tensor, b: Tensor, tolerance: float | None) -> str:
    """The difference of two tensors in words, empty if they agree."""
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
    """The bytes of a tensor's values, which tell 0 from -0, and are equal for the same NaN."""
    flat = tensor.contiguous().reshape(-1)
    if not len(flat):  # PyTorch views no empty tensor as bytes
        return flat.new_empty(0, dtype=torch.uint8)
    return flat.view(torch.uint8)
