"""Averages of the global models of successive rounds. They observe the training and never change it.

The names are listed in `__init__.pyi`. A name's module is imported when the name is first asked for.
"""

from ..system.lazy import LazyNames

__getattr__, __dir__, __all__ = LazyNames(__name__, __file__).hooks()
