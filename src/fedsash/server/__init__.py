"""The server half of a round: the federation, its state, one round, the broadcast of averages, the evaluation.

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
