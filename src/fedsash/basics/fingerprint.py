"""Fingerprints: everything that determines a run's numbers, as short texts that can be compared."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from numbers import Number
from pathlib import Path, PurePath
from types import CodeType, FunctionType, MethodType
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn

DEEPEST = 8
"""The largest depth of nested values. A deeper value is described by its class only."""
SHALLOW = DEEPEST - 3
"""The depth at which a layer's settings begin: they may hold much that no number depends on."""


def text(value: Any, depth: int = 0) -> str:
    """A value as a text that is the same in every process: settings by their fields, arrays and models by a checksum.

    Equal numbers have equal texts (1 and 1.0). A field whose metadata say `numbers = False` is left out; of one that
    names a file, `file = True`, the file's content counts. A function is
    described by its module and name. A function without a name of its own, such as a lambda, is also described by its
    code and the values that it has captured. Any other object is described by its class and its attributes.
    """
    if depth > DEEPEST:
        return type(value).__qualname__
    inner = partial(text, depth=depth + 1)
    if value is None or isinstance(value, str | bytes | bool | np.bool_):
        return repr(value)
    if isinstance(value, Number):
        plain = value.item() if isinstance(value, np.generic) else value
        return str(int(plain)) if isinstance(plain, float) and plain.is_integer() else str(plain)
    if isinstance(value, torch.dtype | torch.device | range | PurePath):
        return repr(str(value))
    if isinstance(value, np.ndarray) and value.dtype.hasobject:  # its bytes are addresses
        return inner(value.tolist())
    if isinstance(value, Tensor | np.ndarray):
        return _checksum(value)
    if isinstance(value, nn.Module):  # one among a layer's settings may be the model itself
        return _module(value) if depth < SHALLOW else type(value).__qualname__
    if isinstance(value, Mapping):
        return "{" + ", ".join(sorted(f"{inner(key)}: {inner(each)}" for key, each in value.items())) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(inner, value)) + "]"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(inner, value))) + "}"
    if isinstance(value, type):
        return f"{_home(value)}.{value.__qualname__}"
    if callable(value) and (found := _function(value, depth)):
        return found
    given = _fields(value) if is_dataclass(value) else _attributes(value)
    return f"{inner(type(value))}({', '.join(f'{name}={inner(each)}' for name, each in given.items())})"


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """A sentence for each name that both have with different texts. Of settings it has the fields that differ."""
    found = []
    for name in here:
        if there.get(name, here[name]) != here[name]:
            old, new = _unlike(there[name], here[name])
            found.append(f"{name} is {old} there and {new} here")
    return found


def _unlike(old: str, new: str) -> tuple[str, str]:
    """The fields in which two texts of the same settings differ; whole texts of other settings."""
    olds, news = old.split(", "), new.split(", ")
    if len(olds) != len(news) or "(" not in old:
        return old, new
    unlike = [_inside(a, b) for a, b in zip(olds, news, strict=True) if a != b]
    return _closed(", ".join(a for a, _ in unlike)), _closed(", ".join(b for _, b in unlike))


def _inside(a: str, b: str) -> tuple[str, str]:
    """The texts without what both have before the last bracket."""
    (head, _, tail), (other, _, rest) = a.rpartition("("), b.rpartition("(")
    return (tail, rest) if head == other else (a, b)


def _closed(fields: str) -> str:
    """The text without the last brackets that were opened before it."""
    while fields.endswith(")") and fields.count(")") > fields.count("("):
        fields = fields[:-1]
    return fields


def _function(value: Any, depth: int) -> str:
    """The text of a function, a method of an object, or a `partial`; empty for any other value."""
    inner = partial(text, depth=depth + 1)
    if isinstance(value, partial):
        return f"partial({inner(value.func)}, {inner(value.args)}, {inner(value.keywords)})"
    if isinstance(value, MethodType):
        return f"{inner(value.__self__)}.{value.__name__}"
    if not hasattr(value, "__qualname__"):
        return ""
    place = f"{_home(value)}.{value.__qualname__}"
    if not isinstance(value, FunctionType) or "<" not in place:
        return place
    captured = [cell.cell_contents for cell in value.__closure__ or ()]
    defaults = f"{inner(value.__defaults__)} {inner(value.__kwdefaults__)}"
    return f"{place} {_code(value.__code__):08x} {defaults} {inner(captured)}"


def _fields(value: Any) -> dict[str, Any]:
    """The fields of settings that determine numbers."""
    known = {f: getattr(value, f.name) for f in fields(value) if f.metadata.get("numbers", True)}
    return {f.name: _content(each) if f.metadata.get("file") else each for f, each in known.items()}


def _content(path: Any) -> Any:
    """The bytes of a file as an array; the value itself if it names no file that can be read."""
    try:
        return np.frombuffer(Path(path).read_bytes(), dtype=np.uint8) if isinstance(path, str) and path else path
    except OSError:
        return path


def _attributes(value: Any) -> dict[str, Any]:
    """An object's attributes, also those in slots."""
    slots = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ()) if hasattr(value, name)]
    return {name: getattr(value, name) for name in slots} | getattr(value, "__dict__", {})


def _home(value: Any) -> str:
    """The module of a class, function or method. A script has the name under which it is imported elsewhere."""
    module = getattr(value, "__module__", None) or value.__objclass__.__module__  # a method that is written in C
    if module != "__main__":
        return str(module)
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    return spec.name if spec else Path(file).stem if file else "__main__"


def _code(code: CodeType) -> int:
    """The checksum of a function's code, independent of its position in the file."""
    constants = [str(_code(each)) if isinstance(each, CodeType) else text(each) for each in code.co_consts]
    return crc32(code.co_code + repr((constants, code.co_names)).encode())


def _module(module: nn.Module) -> str:
    """The text of a model: a checksum over its layers with their settings and all numbers, with what is frozen and
    which layers are in another mode than the whole, such as dropout that drops nothing."""
    settings = [(name, type(layer).__qualname__, _settings(layer)) for name, layer in module.named_modules()]
    frozen = [name for name, parameter in module.named_parameters() if not parameter.requires_grad]
    resting = [name for name, layer in module.named_modules() if module.training and not layer.training]
    value = crc32(repr((settings, frozen, resting) if resting else (settings, frozen)).encode())
    kept = module.state_dict()  # beside tensors it may hold anything (`get_extra_state`)
    for name, each in kept.items():
        value = crc32(f"{name} {text(each)}".encode(), value)
    count = sum(each.numel() for each in kept.values() if isinstance(each, Tensor))
    return f"{type(module).__qualname__} of {count} numbers, {value:08x}"


def _settings(layer: nn.Module) -> list[tuple[str, str]]:
    """The attributes of a layer that are its author's, and neither PyTorch's own nor of an unknown kind."""
    own = {name: value for name, value in vars(layer).items() if name != "training" and not name.startswith("_")}
    kinds = (int, float, str, tuple, list, dict, set)
    known = {k: v for k, v in own.items() if isinstance(v, kinds) or callable(v) or is_dataclass(v)}
    return sorted((name, text(value, SHALLOW)) for name, value in known.items())


def _checksum(array: Tensor | np.ndarray[Any, Any]) -> str:
    if isinstance(array, Tensor):
        data = array.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    else:
        data = np.ascontiguousarray(array).tobytes()
    return f"{array.dtype} {list(array.shape)} {crc32(data):08x}"
