"""Averages of the global models of successive rounds. They observe the training and never change it.

The names are listed in `__init__.pyi`. A name's module is imported when the name is first asked for.
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
