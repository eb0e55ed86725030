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


def from_file(file: Path, name: str, known: Sequence[Reproduction]) -> Reproduction:
    """The reproduction that a Python file has under a name, or its only one without a name.

    The file is run, as Python would run it: whoever names it allows it. What is among the `known` ones is not the
    file's own. Raises `ConfigError` for an error in the file, and `SettingError` if there is no such reproduction.
    """
    if not file.is_file():
        raise SettingError("", "reproduction", str(file), "there is no such file")
    reproductions = {}
    defined = {}
    for key, value in vars(_run(file)).items():
        if isinstance(value, Reproduction):
            reproductions[key] = value
            imported = any(value is one for one in known)
            if not imported:
                defined[key] = value
    if name and name in reproductions:
        return reproductions[name]
    if not defined:
        raise SettingError("", "reproduction", str(file), "defines no Reproduction of its own at its top level")
    if name:
        raise SettingError("", "reproduction", f"{file}:{name}", f"there is no such name; {hint(name, list(defined))}")
    if len(defined) > 1:
        places = " or ".join(f"{file}:{key}" for key in defined)
        raise SettingError("", "reproduction", str(file), f"defines several: must be {places}")
    return next(iter(defined.values()))


def _run(file: Path) -> ModuleType:
    """The file's module."""
    spec = spec_from_file_location(MODULE, file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[MODULE] = module
    with _importing_beside(file):
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # its class depends on that code
            raise ConfigError(shortened(_message(error, file), 300), file=str(file)) from error
    return module


@contextmanager
def _importing_beside(file: Path) -> Iterator[None]:
    """In the `with` block modules beside the file can be imported, after all others of that name."""
    folder = str(file.resolve().parent)
    added = folder not in sys.path
    if added:
        sys.path.append(folder)
    try:
        yield
    finally:
        if added and folder in sys.path:
            sys.path.remove(folder)


def _message(error: Exception, file: Path) -> str:
    """An error in the file with its line, and with its class unless it is for users."""
    if isinstance(error, SyntaxError):
        line = error.lineno
        message = error.msg
    else:
        line = None
        message = one_line(error)
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == str(file):
                line = frame.lineno  # the last one is nearest to the error
    if not isinstance(error, FedsashError):
        message = f"{type(error).__name__}: {message}"
    return f"line {line}: {message}" if line else message
