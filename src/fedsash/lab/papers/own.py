"""Reproductions in a Python file of one's own."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from ...settings.errors import FedsashError, SettingError, one_line, shortened
from ..config import ConfigError
from .pick import hint
from .reproduction import Reproduction

MODULE = "own_reproductions"
"""What the file's module is called."""


def own(file: Path, name: str, known: Sequence[Reproduction]) -> Reproduction:
    """The reproduction that a Python file has under a name, or its only one without a name.

    The file is run, as Python would run it: whoever names it allows it. What is among the `known` ones is not the
    file's own. Raises `ConfigError` for an error in the file, and `SettingError` if there is no such reproduction.
    """
    if not file.is_file():
        raise SettingError("", "reproduction", str(file), "there is no such file")
    every = {key: value for key, value in vars(_run(file)).items() if isinstance(value, Reproduction)}
    found = {key: value for key, value in every.items() if not any(value is one for one in known)}
    if name and name in every:
        return every[name]
    if not found:
        raise SettingError("", "reproduction", str(file), "defines no Reproduction of its own at its top level")
    if name:
        raise SettingError("", "reproduction", f"{file}:{name}", f"there is no such name; {hint(name, list(found))}")
    if len(found) > 1:
        places = " or ".join(f"{file}:{key}" for key in found)
        raise SettingError("", "reproduction", str(file), f"defines several: must be {places}")
    return next(iter(found.values()))


def _run(file: Path) -> ModuleType:
    """The file's module."""
    spec = spec_from_file_location(MODULE, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[MODULE] = module_from_spec(spec)
    with _found_beside(file):
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # its class depends on that code
            raise ConfigError(shortened(_told(error, file), 300), file=str(file)) from error
    return module


@contextmanager
def _found_beside(file: Path) -> Iterator[None]:
    """In the `with` block modules beside the file are found, after all others."""
    folder = str(file.resolve().parent)
    added = folder not in sys.path
    if added:
        sys.path.append(folder)
    try:
        yield
    finally:
        if added and folder in sys.path:
            sys.path.remove(folder)


def _told(error: Exception, file: Path) -> str:
    """An error in the file with its line, and with its class unless it is for users."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    what = error.msg if isinstance(error, SyntaxError) else one_line(error)
    kind = "" if isinstance(error, FedsashError) else f"{type(error).__name__}: "
    return f"line {line}: {kind}{what}" if line else f"{kind}{what}"
