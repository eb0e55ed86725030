"""The models of a training in their order, from files or as state dictionaries, by the names of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...settings.errors import ModelError, check
from ...vector.wrapped import plain
from .formats import NOTHING, Checkpoint, check_numbers, flat_numbers, is_finite
from .merge import matched, plain_name
from .order import files_of, in_order, named_alone, unsaid

Say = Callable[[str], None]
"""Called with a line for people."""


@dataclass
class StateDict:
    """A state dictionary, called `path`, as a checkpoint."""

    path: Path
    tensors: Mapping[str, Tensor]
    step: int | None = None
    left_out: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, state: object) -> StateDict:
        """What a name stands for. Raises `ModelError` unless it is a state dictionary."""
        if not isinstance(state, Mapping):
            raise ModelError(f"{name} is a {type(state).__name__}, and must be a state dictionary")
        return cls(Path(name), {key: value for key, value in state.items() if isinstance(value, Tensor)})

    @property
    def names(self) -> list[str]:
        return list(self.tensors)

    def form(self, name: str) -> Tensor:
        return self.tensor(name)

    def tensor(self, name: str) -> Tensor:
        return self.tensors[name].detach()

    def flat(self, name: str) -> Tensor:
        return flat_numbers(self.tensor(name))


@dataclass(frozen=True)
class States:
    """Models from the oldest to the newest. Their `count` is None if nobody knows it before they are read.

    `files` tells those in files apart from others: path, size and time of each; None of state dictionaries.
    """

    checkpoints: Iterable[Checkpoint]
    count: int | None
    files: list[list[Any]] | None

    @classmethod
    def of(cls, source: object, key: str, say: Say) -> States:
        """Those in a folder, in files (see `merge_checkpoints`), or in an iterable of state dictionaries."""
        if isinstance(source, str | Path):
            return cls._in_files([source], key, say)
        requirement = "must be a folder, a list of paths, state dictionaries or a Tracker"
        check(isinstance(source, Iterable) and not isinstance(source, Mapping), "source", source, requirement)
        assert isinstance(source, Iterable)
        if isinstance(source, Sequence) and source and all(isinstance(item, str | Path) for item in source):
            return cls._in_files(source, key, say)
        if isinstance(source, Sequence):
            _check_separate(source)
        count = len(source) if isinstance(source, Sized) else None
        return cls(_numbered(source), count, None)

    @classmethod
    def _in_files(cls, paths: Sequence[str | Path], key: str, say: Say) -> States:
        sources = [Path(path) for path in paths]
        ordered = in_order(files_of(sources, say), key, say, named_alone(sources))
        checkpoints = [entry.checkpoint for entry in ordered]
        identity = []
        for checkpoint in checkpoints:
            check_numbers(checkpoint)
            status = checkpoint.path.stat()
            identity.append([str(checkpoint.path), status.st_size, status.st_mtime_ns])
        return cls(checkpoints, len(checkpoints), identity)


def _check_separate(states: Sequence[object]) -> None:
    """Raise `ModelError` if two state dictionaries are the same tensors, as those of one module without copies are."""
    memory_of_first: dict[tuple[int, ...], int] = {}
    for i, state in enumerate(states, 1):
        if not isinstance(state, Mapping):
            continue
        memory = tuple(value.data_ptr() for value in state.values() if isinstance(value, Tensor))
        first = memory_of_first.setdefault(memory, i)
        if any(memory) and first != i:
            raise ModelError(
                f"state dictionary {i} is the same tensors as {first}, so they are one model: keep copies, such as "
                "{name: tensor.clone() for name, tensor in module.state_dict().items()}"
            )


def _numbered(states: Iterable[object]) -> Iterator[Checkpoint]:
    for i, state in enumerate(states, 1):
        yield StateDict.of(f"state dictionary {i}", state)


class AveragedTensors:
    """Which tensors of a module are averaged, and where they lie in a vector `[d]`: by name, from start to stop.

    These are those with floating-point numbers. Of others (numbers of batches), and of a buffer that is not finite in
    the first model (a mask), each average has that of its newest model. A tied tensor counts once, as its last name.
    """

    def __init__(self, module: nn.Module, live: Mapping[str, Tensor]) -> None:
        tensors = {name: live[name] for name in plain(module.state_dict()) if name in live}
        for name, tensor in tensors.items():
            if tensor.is_meta:
                raise ModelError(f"{name} of the module is on the device meta, which holds no values")
        self._module = StateDict(Path("the module"), tensors)
        self._names = set({id(tensor): name for name, tensor in tensors.items()}.values())
        self._tied = _tied(tensors)
        self.types: dict[str, torch.dtype] = {}
        self.places: dict[str, tuple[int, int]] = {}
        self.size = 0

    def model(self, checkpoint: Checkpoint, say: Say) -> Callable[[str], Tensor]:
        """The tensors of a model by the module's names. The first model says of which types they are.

        Raises `ModelError`, which names the model and the tensor, if they do not fit the module or the first model.
        """
        first = not self.types
        tensor_of = self._matched(checkpoint, say if first else unsaid)
        for name, in_module in self._module.tensors.items():
            tensor = tensor_of(name)
            self._check(checkpoint, name, tensor, in_module)
            if not first:
                continue
            self.types[name] = tensor.dtype
            if name in self._names and _is_averaged(tensor, in_module):
                self.places[name] = (self.size, self.size + tensor.numel())
                self.size += tensor.numel()
        if not self.size:
            raise ModelError(f"{checkpoint.path} {NOTHING}")
        return tensor_of

    def _matched(self, checkpoint: Checkpoint, say: Say) -> Callable[[str], Tensor]:
        """A checkpoint's tensors by the module's names. Some formats have a tied tensor under one of its names only."""
        written = {plain_name(name) for name in checkpoint.names}
        name_of: dict[str, str] = {}
        for name in self._module.tensors:
            others = [other for other in self._tied.get(name, ()) if plain_name(other) in written]
            if plain_name(name) not in written and others:
                name_of[name] = others[0]
        module = {name: tensor for name, tensor in self._module.tensors.items() if name not in name_of}
        tensor_of = matched(checkpoint, StateDict(self._module.path, module), say)
        return lambda name: tensor_of(name_of.get(name, name))

    def pieces(self, checkpoint: Checkpoint, tensor_of: Callable[[str], Tensor]) -> list[tuple[Tensor, int, int]]:
        """The averaged tensors of a model, each flat and with its place. Raises `ModelError` if one is not finite."""
        pieces = []
        for name, (start, stop) in self.places.items():
            flat = tensor_of(name).reshape(-1).cpu()
            if not is_finite(flat):
                raise ModelError(f"{checkpoint.path}: {name} is not finite: leave this model out")
            pieces.append((flat, start, stop))
        return pieces

    def others(self, tensor_of: Callable[[str], Tensor]) -> dict[str, Tensor]:
        """Copies of the tensors of a model that are not averaged, by name."""
        names = [name for name in self._names if name not in self.places]
        return {name: tensor_of(name).cpu().clone() for name in sorted(names)}

    @property
    def shapes(self) -> dict[str, list[int]]:
        """The shapes of the module's tensors."""
        return {name: list(tensor.shape) for name, tensor in self._module.tensors.items()}

    def _check(self, checkpoint: Checkpoint, name: str, tensor: Tensor, in_module: Tensor) -> None:
        if tensor.shape != in_module.shape:
            shapes = f"{list(tensor.shape)}, and {list(in_module.shape)} in the module"
            raise ModelError(f"{checkpoint.path}: {name} has the shape {shapes}")
        if tensor.is_floating_point() != in_module.is_floating_point() or tensor.is_complex():
            raise ModelError(f"{checkpoint.path}: {name} is {tensor.dtype}, and {in_module.dtype} in the module")
        before = self.types.get(name, tensor.dtype)
        if tensor.dtype != before:
            raise ModelError(f"{checkpoint.path}: {name} is {tensor.dtype}, and {before} in the model before")


def _tied(tensors: Mapping[str, Tensor]) -> dict[str, list[str]]:
    """All names of each tensor that has several, by each of them."""
    names_of: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        names_of.setdefault(id(tensor), []).append(name)
    tied: dict[str, list[str]] = {}
    for names in names_of.values():
        if len(names) > 1:
            tied |= dict.fromkeys(names, names)
    return tied


def _is_averaged(tensor: Tensor, in_module: Tensor) -> bool:
    """Whether a tensor of the first model is averaged, from that of the module."""
    if not tensor.is_floating_point():
        return False
    return isinstance(in_module, nn.Parameter) or is_finite(tensor.reshape(-1))
