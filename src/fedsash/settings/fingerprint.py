"""Fingerprints: everything that determines a run's numbers, as short texts that can be compared."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import partial
from inspect import get_annotations
from numbers import Number
from pathlib import Path, PurePath
from types import CodeType, FunctionType, MethodType
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn

from .setting import default_of

DEEPEST = 8
"""The largest depth of nested values. A deeper value is described by its class only."""
DEFAULTS = 1
"""The number of the table of defaults: it is raised whenever a setting gets another default, since those are left out.

The table is in `tests/settings/defaults.json`, and a test compares it with the code.
"""
OTHER_DEFAULTS = "it is of a fedsash with other defaults: go on with that one, or begin anew"
LIBRARY = __name__.partition(".")[0]
SHALLOW = DEEPEST - 3
"""The depth at which a layer's settings begin: they may hold much that no number depends on."""


def text(value: Any, depth: int = 0) -> str:
    """A value as a text that is the same in every process: settings by their fields, arrays and models by a checksum.

    Equal numbers have equal texts (1 and 1.0). The library's classes and functions have their qualified name, which is
    unique, others their module, too. So the library's may move, and get new fields with a default: of its settings, a
    field at its default is left out. So are fields that follow from others (`init=False`), and those whose metadata say
    `numbers = False`. Of a field that names a file, `file = True`, the file's content counts. A function without a name
    of its own, such as a lambda, is also described by its code and the values that it has captured. Any other object is
    described by its class and its attributes.
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
        return _name(value)
    if callable(value) and (found := _function(value, depth)):
        return found
    given = _fields(value) if is_dataclass(value) else _attributes(value)
    return f"{inner(type(value))}({', '.join(f'{name}={inner(each)}' for name, each in given.items())})"


def fingerprint(named: Mapping[str, Any]) -> dict[str, str]:
    """The texts of several values by their names, and which defaults are left out of them.

    Whatever is compared after it was saved is a fingerprint: of runs, trackers, averaged strategies, nodes, trials and
    networks.
    """
    return {"defaults": str(DEFAULTS)} | {name: text(value) for name, value in named.items()}


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """A sentence for each name that both have with different texts. Of settings it has the fields that differ."""
    sentences = []
    for name in here:
        if there.get(name, here[name]) != here[name]:
            if name == "defaults":
                sentences.append(OTHER_DEFAULTS)
                continue
            old, new = unlike(there[name], here[name])
            sentences.append(f"{name} is {old} there and {new} here")
    return sentences


def unlike(old: str, new: str) -> tuple[str, str]:
    """The fields in which two texts of the same settings differ; whole texts of other settings."""
    differing = list(_differing("", old, new))
    if not differing or differing[0][0] == "":
        return old, new
    before = ", ".join(_said(name, value) for name, value, _ in differing)
    after = ", ".join(_said(name, value) for name, _, value in differing)
    return before, after


def _said(name: str, value: str | None) -> str:
    """A field in words; None is the value that is left out."""
    return f"{name} at its default" if value is None else f"{name}={value}"


def _differing(name: str, old: str | None, new: str | None) -> Iterator[tuple[str, str | None, str | None]]:
    """The name of each field that differs, such as `"optimiser.lr"`, with both values; those of settings in `name`."""
    settings_of_old = None if old is None else _settings_in(old)
    settings_of_new = None if new is None else _settings_in(new)
    if settings_of_old is None or settings_of_new is None or settings_of_old[0] != settings_of_new[0]:
        yield name, old, new
        return
    before = settings_of_old[1]
    after = settings_of_new[1]
    for field in [*after, *(each for each in before if each not in after)]:
        if before.get(field) != after.get(field):
            yield from _differing(f"{name}.{field}".lstrip("."), before.get(field), after.get(field))


def _settings_in(whole: str) -> tuple[str, dict[str, str]] | None:
    """The class and the fields in a text of settings; None for any other text."""
    opened = re.fullmatch(r"([\w.]+)\((.*)\)", whole, re.DOTALL)
    if opened is None:
        return None
    fields_by_name = {}
    for part in _parts(opened[2]):
        name, equals, value = part.partition("=")
        if not (equals and name.isidentifier()):
            return None
        fields_by_name[name] = value
    return opened[1], fields_by_name


def _parts(listed: str) -> Iterator[str]:
    """The parts of a text between commas that stand in no bracket and in no quotes."""
    begin = 0
    depth = 0
    quote = ""
    index = 0
    while index < len(listed):
        letter = listed[index]
        if quote:
            if letter == "\\":
                index += 1
            elif letter == quote:
                quote = ""
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and depth == 0:
            yield listed[begin:index].strip()
            begin = index + 1
        index += 1
    if listed[begin:].strip():
        yield listed[begin:].strip()


def _function(value: Any, depth: int) -> str:
    """The text of a function, a method of an object, or a `partial`; empty for any other value."""
    inner = partial(text, depth=depth + 1)
    if isinstance(value, partial):
        return f"partial({inner(value.func)}, {inner(value.args)}, {inner(value.keywords)})"
    if isinstance(value, MethodType):
        return f"{inner(value.__self__)}.{value.__name__}"
    if not hasattr(value, "__qualname__"):
        return ""
    place = _name(value)
    if not isinstance(value, FunctionType) or "<" not in place:
        return place
    captured = [cell.cell_contents for cell in value.__closure__ or ()]
    defaults = f"{inner(value.__defaults__)} {inner(value.__kwdefaults__)}"
    return f"{place} {_code(value.__code__):08x} {defaults} {inner(captured)}"


def _fields(value: Any) -> dict[str, Any]:
    """The fields of settings that determine numbers and do not have the library's default, by name."""
    known = {}
    for field in sorted(fields(value), key=lambda each: each.name):
        if not field.init or not field.metadata.get("numbers", True):
            continue
        held = getattr(value, field.name)
        if field.metadata.get("file"):
            held = _content(held)
        if not _is_default(field, type(value), held):
            known[field.name] = held
    return known


def _is_default(field: Field[Any], cls: type, value: Any) -> bool:
    """Whether a value is the default that the library gives a field. One's own defaults may change without a word."""
    declares = next((each for each in cls.__mro__ if field.name in get_annotations(each)), cls)
    if not _is_ours(declares):
        return False
    default = default_of(field)
    return default is not MISSING and text(default) == text(value)


def _content(path: Any) -> Any:
    """The bytes of a file as an array; the value itself if it names no file that can be read."""
    if not isinstance(path, str) or not path:
        return path
    try:
        content = Path(path).read_bytes()
    except OSError:
        return path
    return np.frombuffer(content, dtype=np.uint8)


def _attributes(value: Any) -> dict[str, Any]:
    """An object's attributes, also those in slots."""
    known = {}
    for cls in type(value).__mro__:
        for name in getattr(cls, "__slots__", ()):
            if hasattr(value, name):
                known[name] = getattr(value, name)
    return known | getattr(value, "__dict__", {})


def _name(value: Any) -> str:
    """The name of a class or function: the qualified one, and of those that are not the library's, their module."""
    return value.__qualname__ if _is_ours(value) else f"{_home(value)}.{value.__qualname__}"


def _is_ours(value: Any) -> bool:
    """Whether a class or function is one of this library."""
    return _home(value).partition(".")[0] == LIBRARY


def _home(value: Any) -> str:
    """The module of a class, function or method. A script has the name under which it is imported elsewhere."""
    module = getattr(value, "__module__", None) or value.__objclass__.__module__  # a method that is written in C
    if module != "__main__":
        return str(module)
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    if spec:
        return str(spec.name)
    return Path(file).stem if file else "__main__"


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
