"""Readers of checkpoints: each gives named tensors, whose numbers stay in the file until they are asked for."""

from __future__ import annotations

import argparse
import json
import mmap
import operator
import pickle
import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PosixPath
from typing import Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.serialization import safe_globals

from ...settings.errors import ModelError, RunError, one_line, some
from ...system.paths import inside, plain_file
from ...vector.exact_means import TYPES as AVERAGED
from ...vector.pieces import Pieces

SAFETENSORS = (".safetensors",)
PICKLED = (".pt", ".pth", ".pth.tar", ".bin", ".ckpt")
INDICES = (".safetensors.index.json", ".bin.index.json")
"""How the names of files end that say in which shard each tensor lies."""

ENDINGS = (*SAFETENSORS, *PICKLED)
"""The endings of files that can be read."""

_METADATA = "__metadata__"
"""Where the header of a file of safetensors says what is no tensor."""

TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "C64": torch.complex64,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "U16": torch.uint16,
    "U32": torch.uint32,
    "U64": torch.uint64,
    "BOOL": torch.bool,
}
"""PyTorch's types by the names that safetensors gives them."""

STEPS = ("global_step", "step", "iteration")
"""Where a file of PyTorch says how many steps its model has been trained."""

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
"""A word in a name: `GradScaler` and `grad_scaler` have two."""

OPTIMISING = re.compile(r"optim(i[sz]er)?s?|(lr)?sched(uler)?s?|rngs?|random")
"""Words for what is never a model, though it may have tensors under names."""

TRAINING = re.compile(r"generators?|(grad|amp|loss)?scalers?|loops|callbacks")
"""Words for what a training remembers beside its model, unless it has the tensors of one: a GAN has a generator."""

CONFIGURATION = re.compile(r"hyper|hparams|config|cfg|args|options")
"""Words for what builds the model: it stays with it, also if tensors such as the weights of classes are in it."""

_NUMPY = "numpy.core.multiarray", "numpy._core.multiarray"  # before NumPy 2, and since
_SCALAR = np.float64(0).__reduce__()[0]
_ARRAY = np.zeros(0).__reduce__()[0]

INERT: list[Any] = [argparse.Namespace, PosixPath, np.ndarray, np.dtype]
"""Classes that trainings leave beside a model, such as their arguments and scores, and that run nothing when read."""

INERT += [(_SCALAR, f"{module}.scalar") for module in _NUMPY]
INERT += [(_ARRAY, f"{module}._reconstruct") for module in _NUMPY]
INERT += [type(np.dtype(code)) for code in "?bhilqBHILQefdFD"]

QUANTISED = re.compile(r"(^|\.)(qweight|qzeros|absmax|quant_map|SCB|weight_packed|weight_scale|weight_scale_inv)$")
"""Names of tensors that stand beside weights which are codes, and not numbers."""

NO_INTEGERS = re.compile(r"((^|\.)weight|_blocks|_scales|W_q)$")
"""Names of tensors that are codes if they are integers."""


NOTHING = "has no floating-point tensor to average"
"""What is said of a checkpoint whose mean would be the newest model itself."""


class Checkpoint(Protocol):
    """A model: in a file, in shards with an index, in a folder, or as a state dictionary, which `path` names."""

    path: Path

    @property
    def names(self) -> list[str]:
        """The tensors' names, in the order in which they are saved."""

    @property
    def step(self) -> int | None:
        """The number of training steps that is saved with it."""

    @property
    def left_out(self) -> list[str]:
        """What is saved beside the model."""

    def form(self, name: str) -> Tensor:
        """A tensor of the same type and shape; it may have no numbers (`device="meta"`)."""

    def tensor(self, name: str) -> Tensor:
        """A tensor, mapped into memory where the file allows it."""

    def flat(self, name: str) -> Flat:
        """The numbers of a tensor, flat; a complex one has two for each of its entries."""


class Flat(Protocol):
    """Numbers in a file, `[d]`: a flat tensor, or something that puts a piece together when it is asked for."""

    def numel(self) -> int: ...

    def __getitem__(self, entries: slice) -> Tensor: ...


def whole_number(value: Any) -> int | None:
    """A step as somebody has saved it: an integer of any kind, a tensor of one, or 500.0, as pandas writes it."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    try:
        return operator.index(value)
    except TypeError:
        return None


def says_training(name: str) -> bool:
    """Whether a name is that of what a training remembers beside its model, such as `lr_schedulers`."""
    return says_optimising(name) or _has_word(name, TRAINING)


def says_optimising(name: str) -> bool:
    """Whether what has this name is never a model."""
    return _has_word(name, OPTIMISING)


def _has_word(name: str, words: re.Pattern[str]) -> bool:
    return any(words.fullmatch(word.lower()) for word in WORD.findall(name))


def has_mean(tensor: Tensor) -> bool:
    """Whether a tensor is averaged: one of integers is not."""
    return tensor.is_floating_point() or tensor.is_complex()


def flat_numbers(tensor: Tensor) -> Tensor:
    """The numbers of a tensor, flat; a complex one has two for each of its entries."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.reshape(-1)


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one type and shape, and the same bits."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    bits = [flat_numbers(tensor).contiguous().view(torch.uint8) for tensor in (one, other)]
    return torch.equal(*bits)


def is_finite(flat: Tensor) -> bool:
    """Whether all of some floating-point numbers `[d]` are finite."""
    if flat.itemsize < 2:  # PyTorch adds no numbers of 8 bits
        flat = flat.to(torch.float32)
    return Pieces([flat]).finite()


@dataclass(frozen=True)
class _Place:
    """Where a tensor lies: from byte `start` on, counted from the beginning of the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    count: int


@dataclass
class SafetensorsFile:
    """A file of safetensors: the length of its header in 8 bytes, the header in JSON, and the tensors' bytes."""

    path: Path
    header: bytes = field(init=False, repr=False)
    left_out: list[str] = field(init=False, default_factory=list)
    step: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Read the header. Raises `RunError` if safetensors itself refuses the file."""
        plain_file(self.path)
        try:
            with safe_open(self.path, framework="pt"):
                pass
        except SafetensorError as error:
            raise RunError(f"{self.path} is no whole file of safetensors: {one_line(error)}") from None
        with self.path.open("rb") as file:
            size = file.read(8)
            self.header = size + file.read(int.from_bytes(size, "little"))

    @cached_property
    def places(self) -> dict[str, _Place]:
        """Where each tensor lies, in the order of the file."""
        described = json.loads(self.header[8:])
        described.pop(_METADATA, None)
        places = {}
        for name, entry in sorted(described.items(), key=lambda item: item[1]["data_offsets"]):
            dtype = TYPES.get(entry["dtype"])
            if dtype is None:
                raise ModelError(f"{self.path}: {name} is of the type {entry['dtype']}, which has no mean")
            start, end = entry["data_offsets"]
            count = (end - start) // dtype.itemsize
            places[name] = _Place(dtype, tuple(entry["shape"]), len(self.header) + start, count)
        return places

    @property
    def metadata(self) -> dict[str, str] | None:
        """What the file says beside its tensors."""
        metadata: dict[str, str] | None = json.loads(self.header[8:]).get(_METADATA)
        return metadata

    @cached_property
    def _mapped(self) -> mmap.mmap:
        with self.path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    @property
    def names(self) -> list[str]:
        return list(self.places)

    def form(self, name: str) -> Tensor:
        place = self.places[name]
        return torch.empty(place.shape, dtype=place.dtype, device="meta")

    def tensor(self, name: str) -> Tensor:
        place = self.places[name]
        if not place.count:
            return torch.empty(place.shape, dtype=place.dtype)
        flat = torch.frombuffer(self._mapped, dtype=place.dtype, count=place.count, offset=place.start)
        return flat.view(place.shape)

    def flat(self, name: str) -> Flat:
        return flat_numbers(self.tensor(name))


@dataclass
class PickledFile:
    """A file of `torch.save`: a state dictionary, or a dictionary in which one lies under `key`.

    It is read without running anything that it names (`weights_only=True`).
    """

    path: Path
    key: str = ""
    content: dict[str, Any] = field(init=False, repr=False)
    left_out: list[str] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        """Raises `RunError` if the file is damaged, and `ModelError` if it does not hold a state dictionary."""
        content = _loaded(plain_file(self.path))
        if not isinstance(content, dict):
            raise ModelError(f"{self.path} holds a {type(content).__name__}, and must hold a state dictionary")
        self.content = content
        if not self.key and not _is_state(content):
            self.key = self._only_key()
        if self.key:
            if not _is_state(content.get(self.key)):
                known = some(self._keys()) or "none"
                raise ModelError(f"{self.path} has no state dictionary {self.key!r}; it has {known}")
            self.left_out = [name for name in content if name != self.key and self._leaves_out(name)]

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in self._state.items() if isinstance(value, Tensor)}

    @property
    def _state(self) -> Any:
        """The state dictionary, as it was saved."""
        if self.key:
            return self.content[self.key]
        return self.content

    @property
    def names(self) -> list[str]:
        return list(self._tensors)

    @property
    def step(self) -> int | None:
        if not self.key:
            return None
        for name in STEPS:
            step = whole_number(self.content.get(name))
            if step is not None:
                return step
        return None

    def tensor(self, name: str) -> Tensor:
        return self._tensors[name].detach()

    def form(self, name: str) -> Tensor:
        return self.tensor(name)

    def flat(self, name: str) -> Flat:
        return flat_numbers(self.tensor(name))

    def filled(self, means: Mapping[str, Tensor]) -> dict[str, Any]:
        """The file's content with other tensors in the state dictionary, and without what is left out."""
        new: dict[str, Any] = copy(self._state)  # with the versions of its modules, `_metadata`
        for name, mean in means.items():
            old = new[name]
            if isinstance(old, nn.Parameter):
                mean = nn.Parameter(mean, requires_grad=old.requires_grad)
            new[name] = mean
        if not self.key:
            return new
        content = {name: value for name, value in self.content.items() if name not in self.left_out}
        content[self.key] = new
        return content

    def _keys(self) -> list[str]:
        """The keys of the models' state dictionaries."""
        return [str(name) for name, value in self.content.items() if _is_model(str(name), value)]

    def _only_key(self) -> str:
        """The key of the only state dictionary in the file."""
        keys = self._keys()
        if not keys:
            raise ModelError(f"{self.path} holds no state dictionary; its keys: {some(self.content) or 'none'}")
        if len(keys) > 1:
            raise ModelError(f"{self.path} holds several state dictionaries: choose one of {some(keys)} by its key")
        return keys[0]

    def _leaves_out(self, name: str) -> bool:
        """Whether an entry belongs to the training, or has another model in it."""
        value = self.content[name]
        if says_training(str(name)) or _is_state(value):
            return True
        return _holds_state(value) and not _has_word(str(name), CONFIGURATION)


@dataclass
class ShardedCheckpoint:
    """Files of one format and an index, `NAME.safetensors.index.json`, that says in which of them each tensor lies.

    That of files of `torch.save` is `NAME.bin.index.json`.
    """

    path: Path
    index: bytes = field(init=False, repr=False)
    shards: dict[str, SafetensorsFile | PickledFile] = field(init=False, repr=False)
    left_out: list[str] = field(init=False, default_factory=list)
    step: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Raises `RunError` if a shard is missing, or lacks a tensor that the index names or has another one."""
        self.index = plain_file(self.path).read_bytes()
        self.shards = {}
        weight_map = weight_map_of(self.path)
        for name in dict.fromkeys(weight_map.values()):
            self.shards[name] = open_file(shard_of(self.path, name))
        for name, shard in self.shards.items():
            listed = {tensor for tensor, place in weight_map.items() if place == name}
            others = listed.symmetric_difference(shard.names)
            if others:
                raise RunError(f"{self.path} and its shard {name} differ in {some(sorted(others))}")

    @cached_property
    def _shard_of(self) -> dict[str, SafetensorsFile | PickledFile]:
        return {name: shard for shard in self.shards.values() for name in shard.names}

    @property
    def names(self) -> list[str]:
        return list(self._shard_of)

    def form(self, name: str) -> Tensor:
        return self._shard_of[name].form(name)

    def tensor(self, name: str) -> Tensor:
        return self._shard_of[name].tensor(name)

    def flat(self, name: str) -> Flat:
        return self._shard_of[name].flat(name)


def weight_map_of(index: Path) -> dict[str, str]:
    """The name of the shard in which each tensor lies. Raises `RunError` if the index does not say it."""
    try:
        weight_map = json.loads(index.read_bytes())["weight_map"]
    except (ValueError, KeyError, TypeError):
        raise RunError(f"{index} is no index: it must be a JSON object with a weight_map") from None
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise RunError(f"{index}: weight_map must name a file for each tensor")
    return weight_map


def shard_of(index: Path, name: str) -> Path:
    """The path of a shard that the index names. Raises `RunError` if it is not there."""
    path = inside(index.parent, name)
    if not path.is_file():
        raise RunError(f"{index} names the shard {name}, which is not there")
    return path


def open_file(path: Path, key: str = "") -> SafetensorsFile | PickledFile:
    """The reader of a file, by its ending. Raises `RunError` for another ending."""
    if path.name.endswith(SAFETENSORS):
        check_no_key(path, key)
        return SafetensorsFile(path)
    if path.name.endswith(PICKLED):
        return PickledFile(path, key)
    raise RunError(f"{path}: a checkpoint's name ends in {', '.join(ENDINGS)}")


def check_no_key(path: Path, key: str) -> None:
    """Raise `ModelError` if one of several state dictionaries is asked for where there is a single one."""
    if key:
        raise ModelError(f"{path} has no state dictionary {key!r}; it holds a single one, without a key")


def check_numbers(checkpoint: Checkpoint) -> None:
    """Raise `ModelError` if weights of the checkpoint are codes, or of a type of which no mean is made."""
    for name in checkpoint.names:
        tensor = checkpoint.form(name)
        code = QUANTISED.search(name) is not None
        if NO_INTEGERS.search(name) and not has_mean(tensor):
            code = True
        if tensor.is_quantized or code:
            raise ModelError(f"{checkpoint.path} has quantised weights ({name}), whose mean means nothing")
        if tensor.layout != torch.strided:
            raise ModelError(f"{checkpoint.path}: {name} is sparse, and must be a dense tensor")
        if has_mean(tensor) and tensor.dtype.to_real() not in AVERAGED:
            raise ModelError(f"{checkpoint.path}: {name} is of the type {tensor.dtype}, which has no mean")
    config = checkpoint.path.with_name("config.json")
    if config.is_file() and b'"quantization_config"' in config.read_bytes():
        raise ModelError(f"{config} has a quantization_config: the mean of quantised weights means nothing")


def _loaded(path: Path) -> Any:
    """What `torch.load` reads, mapped into memory; a file in the format before PyTorch 1.6 can't be mapped."""
    try:
        mapped = _is_zip(path)
        with safe_globals(INERT):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        refused = re.search(r"GLOBAL (\S+)", str(error)) or re.search(r"Unsupported (?:global|class) (\S+)", str(error))
        if refused is None:
            raise RunError(f"{path} is damaged: {_without_advice(error)[:200]}") from None
        line = f"{path} holds a pickled {refused[1]}, which is code: save its state_dict() with torch.save instead"
        raise ModelError(line) from None
    except Exception as error:  # its class depends on where the damage is
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise RunError(f"{path} is damaged: {one_line(error)[:200]}") from None


def _without_advice(error: pickle.UnpicklingError) -> str:
    """What PyTorch says of a pickle, without its advice to read it with `weights_only=False`, which may run code."""
    text = one_line(error).rpartition("WeightsUnpickler error:")[2]
    return text.partition("Check the documentation")[0].strip()


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _is_state(value: object) -> bool:
    """Whether a value is a state dictionary: tensors under names, and perhaps what modules add (`_extra_state`)."""
    if not isinstance(value, Mapping) or not value:
        return False
    named = all(isinstance(name, str) for name in value)
    tensors = [isinstance(item, Tensor) for name, item in value.items() if not str(name).endswith("_extra_state")]
    return named and bool(tensors) and all(tensors)


def _is_model(name: str, value: object) -> bool:
    """Whether a value is the state dictionary of a model; a generator of random numbers has only bytes."""
    if not _is_state(value) or says_optimising(name):
        return False
    assert isinstance(value, Mapping)
    averaged = any(isinstance(tensor, Tensor) and has_mean(tensor) for tensor in value.values())
    return averaged or not says_training(name)


def _holds_state(value: object) -> bool:
    """Whether a value is a state dictionary or a list of a model's tensors, or has one in it at any depth."""
    if isinstance(value, Mapping):
        return _is_state(value) or any(_holds_state(item) for item in value.values())
    if isinstance(value, list | tuple):
        return _is_list_of_tensors(value) or any(_holds_state(item) for item in value)
    return False


def _is_list_of_tensors(value: Sequence[object]) -> bool:
    """Whether a value is what some averagers keep of a model: its tensors without their names, not just numbers."""
    tensors = [item for item in value if isinstance(item, Tensor)]
    return len(tensors) == len(value) and any(tensor.ndim > 0 for tensor in tensors)
