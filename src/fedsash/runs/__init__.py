"""A run: one training of an experiment, with its records and saved states in its own folder.

The names are listed in `__init__.pyi`. A name's module is imported when the name is first asked for: who only reads the
files of runs, or prints, does not wait for PyTorch.
"""

from ..system.lazy import LazyNames

__getattr__, __dir__, __all__ = LazyNames(__name__, __file__).hooks()
