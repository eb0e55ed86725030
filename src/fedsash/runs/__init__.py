"""A run: one training of an experiment, with its records and saved states in its own folder.

The names are listed in `__init__.pyi`. A name's module is imported when the name is first asked for: who only reads the
files of runs, or prints, does not wait for PyTorch.
"""

from ..system.lazy import LazyNames

_names = LazyNames(__name__, __file__)

__all__ = _names.public


def __getattr__(name: str) -> object:
    found = _names.load(name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*_names]
