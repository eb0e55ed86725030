"""Federated learning on Flower (`pip install "fedsash[flower]"`).

What users import is listed in `__init__.pyi`, and Flower is imported with the first of these names.
"""

from ..system.lazy import LazyNames

_names = LazyNames(__name__, __file__)

__all__ = _names.public


def __getattr__(name: str) -> object:
    """Import a public name."""
    found = globals()[name] = _names.load(name)
    return found


def __dir__() -> list[str]:
    return [*_names]
