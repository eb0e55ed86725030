"""Fingerprints: everything that determines a run's numbers, as short texts that can be compared."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
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
    if isinstance(value, np.bool_ | np.str_ | np.bytes_):  # their texts differ between versions of NumPy
        value = value.item()
    if value is None or isinstance(value, str | bytes | bool):
        return repr(value)
    if isinstance(value, Number):
        return _number(value)
    if isinstance(value, torch.dtype | torch.device | range | PurePath):
        return repr(str(value))
    if isinstance(value, np.ndarray) and value.dtype.hasobject:  # its bytes are addresses
        return inner(value.tolist())
    if isinstance(value, Tensor | np.ndarray):
        return _checksum(value)
    if isinstance(value, nn.Module):  # one among a layer's settings may be the model itself
        return _module(value) if depth < SHALLOW else type(value).__qualname__
    if isinstance(value, Mapping):
        pairs = [f"{inner(key)}: {inner(entry)}" for key, entry in value.items()]
        return "{" + ", ".join(sorted(pairs)) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(inner, value)) + "]"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(inner, value))) + "}"
    if isinstance(value, type):
        return _name(value)
    if callable(value):
        function = _function(value, depth)
        if function:
            return function
    attributes = _fields(value) if is_dataclass(value) else _attributes(value)
    pairs = [f"{name}={inner(attribute)}" for name, attribute in attributes.items()]
    return f"{inner(type(value))}({', '.join(pairs)})"


def fingerprint(named: Mapping[str, Any]) -> dict[str, str]:
    """The texts of several values by their names, and which defaults are left out of them.

    Whatever is compared after it was saved is a fingerprint: of runs, trackers, averaged strategies, nodes, trials and
    networks.
    """
    texts = {"defaults": str(DEFAULTS)}
    for name, value in named.items():
        texts[name] = text(value)
    return texts


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """A sentence for each name that both have with different texts. Of settings it has the fields that differ."""
    sentences = []
    for name, new in here.items():
        old = there.get(name, new)
        if old == new:
            continue
        if name == "defaults":
            sentences.append(OTHER_DEFAULTS)
            continue
        old_fields, new_fields = unlike(old, new)
        sentences.append(f"{name} is {old_fields} there and {new_fields} here")
    return sentences


def unlike(old: str, new: str) -> tuple[str, str]:
    """The fields in which two texts of the same settings differ; whole texts of other settings."""
    differing = list(_differing_fields("", old, new))
    if not differing or differing[0][0] == "":  # no field has a name: the settings themselves are others
        return old, new
    before = ", ".join(_field_in_words(name, value) for name, value, _ in differing)
    after = ", ".join(_field_in_words(name, value) for name, _, value in differing)
    return before, after


def _field_in_words(name: str, value: str | None) -> str:
    """A field in words; None is the value that is left out."""
    if value is None:
        return f"{name} at its default"
    return f"{name}={value}"


def _differing_fields(path: str, old: str | None, new: str | None) -> Iterator[tuple[str, str | None, str | None]]:
    """The path of each field that differs, such as `"optimiser.lr"`, with both values.

    `path` is that of the two values themselves, empty at first. It is also what is given for values that are not both
    settings of the same class.
    """
    settings_before = _settings_in(old)
    settings_after = _settings_in(new)
    if settings_before is None or settings_after is None:
        yield path, old, new
        return
    class_before, before = settings_before
    class_after, after = settings_after
    if class_before != class_after:
        yield path, old, new
        return
    names = list(after)
    names += [name for name in before if name not in after]
    for name in names:
        if before.get(name) != after.get(name):
            inner_path = f"{path}.{name}" if path else name
            yield from _differing_fields(inner_path, before.get(name), after.get(name))


def _settings_in(whole: str | None) -> tuple[str, dict[str, str]] | None:
    """The class and the fields in a text of settings; None for any other text, and for none."""
    if whole is None:
        return None
    match = re.fullmatch(r"([\w.]+)\((.*)\)", whole, re.DOTALL)
    if match is None:
        return None
    class_name, inside = match.groups()
    fields_by_name = {}
    for part in _parts(inside):
        name, equals, value = part.partition("=")
        if not (equals and name.isidentifier()):
            return None
        fields_by_name[name] = value
    return class_name, fields_by_name


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
    last = listed[begin:].strip()
    if last:
        yield last


def _number(value: Any) -> str:
    """The text of a number, which is the same for a whole number of any type: 1, 1.0, `np.float32(1)`."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


def _function(value: Any, depth: int) -> str:
    """The text of a function, a method of an object, or a `partial`; empty for any other value."""
    inner = partial(text, depth=depth + 1)
    if isinstance(value, partial):
        return f"partial({inner(value.func)}, {inner(value.args)}, {inner(value.keywords)})"
    if isinstance(value, MethodType):
        return f"{inner(value.__self__)}.{value.__name__}"
    if not hasattr(value, "__qualname__"):
        return ""
    name = _name(value)
    if not isinstance(value, FunctionType) or "<" not in name:  # as in "<lambda>" and "make.<locals>.rule"
        return name
    defaults = f"{inner(value.__defaults__)} {inner(value.__kwdefaults__)}"
    return f"{name} {_code(value.__code__):08x} {defaults} {inner(list(captured(value).values()))}"


def captured(function: FunctionType) -> dict[str, Any]:
    """The variables that a function has captured, by name, without those that are not assigned yet."""
    variables = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):
            variables[name] = cell.cell_contents
    return variables


def _fields(settings: Any) -> dict[str, Any]:
    """The fields of settings that determine numbers and do not have the library's default, by name.

    They are in alphabetical order, so that a class may write its fields in another one.
    """
    known = {}
    for field in sorted(fields(settings), key=lambda field: field.name):
        if not field.init or not field.metadata.get("numbers", True):
            continue
        value = getattr(settings, field.name)
        if field.metadata.get("file"):
            value = _content(value)
        if not _is_default(field, type(settings), value):
            known[field.name] = value
    return known


def _is_default(field: Field[Any], cls: type, value: Any) -> bool:
    """Whether a value is the default that the library gives a field. One's own defaults may change without a word."""
    if not _is_ours(_declaring_class(field, cls)):
        return False
    default = default_of(field)
    return default is not MISSING and text(default) == text(value)


def _declaring_class(field: Field[Any], cls: type) -> type:
    """The class, or the nearest of its bases, that writes down the field."""
    for base in cls.__mro__:
        if field.name in get_annotations(base):
            return base
    return cls


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
        slots = vars(cls).get("__slots__", ())
        if isinstance(slots, str):  # a single one
            slots = (slots,)
        for name in slots:
            if name.startswith("__") and not name.endswith("__"):  # as Python mangles it
                name = f"_{cls.__name__.lstrip('_')}{name}"
            if hasattr(value, name):
                known[name] = getattr(value, name)
    return known | getattr(value, "__dict__", {})


def _name(value: Any) -> str:
    """The name of a class or function: the qualified one, and of those that are not the library's, their module."""
    if _is_ours(value):
        return str(value.__qualname__)
    return f"{_module_name(value)}.{value.__qualname__}"


def _is_ours(value: Any) -> bool:
    """Whether a class or function is one of this library."""
    return _module_name(value).partition(".")[0] == LIBRARY


def _module_name(value: Any) -> str:
    """The module of a class, function or method. A script has the name under which it is imported elsewhere."""
    module = getattr(value, "__module__", None) or value.__objclass__.__module__  # a method that is written in C
    if module != "__main__":
        return str(module)
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    if file:
        return Path(file).stem
    return "__main__"


def _code(code: CodeType) -> int:
    """The checksum of a function's code, independent of its position in the file."""
    constants = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):  # of a function in this one; as a text it has its position
            constants.append(str(_code(constant)))
        else:
            constants.append(text(constant))
    return crc32(code.co_code + repr((constants, code.co_names)).encode())


def _module(module: nn.Module) -> str:
    """The text of a model: a checksum over its layers with their settings and all numbers, with what is frozen and
    which layers are in another mode than the whole, such as dropout that drops nothing."""
    settings = [(name, type(layer).__qualname__, _settings(layer)) for name, layer in module.named_modules()]
    frozen = [name for name, parameter in module.named_parameters() if not parameter.requires_grad]
    structure: tuple[Any, ...] = (settings, frozen)
    in_eval_mode = [name for name, layer in module.named_modules() if module.training and not layer.training]
    if in_eval_mode:
        structure = (settings, frozen, in_eval_mode)
    checksum = crc32(repr(structure).encode())
    count = 0
    for name, value in module.state_dict().items():  # beside tensors it may hold anything (`get_extra_state`)
        checksum = crc32(f"{name} {text(value)}".encode(), checksum)
        if isinstance(value, Tensor):
            count += value.numel()
    return f"{type(module).__qualname__} of {count} numbers, {checksum:08x}"


def _settings(layer: nn.Module) -> list[tuple[str, str]]:
    """The attributes of a layer that are its author's, and neither PyTorch's own nor of an unknown kind."""
    kinds = (int, float, str, tuple, list, dict, set)
    settings = []
    for name, value in vars(layer).items():
        if name == "training" or name.startswith("_"):
            continue
        if isinstance(value, kinds) or callable(value) or is_dataclass(value):
            settings.append((name, text(value, SHALLOW)))
    return sorted(settings)


def _checksum(array: Tensor | np.ndarray[Any, Any]) -> str:
    """The text of an array or a tensor: its type, its shape and the checksum of its bytes."""
    if isinstance(array, Tensor):
        data = array.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    else:
        data = np.ascontiguousarray(array).tobytes()
    return f"{array.dtype} {list(array.shape)} {crc32(data):08x}"
