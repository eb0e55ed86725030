"""Federated learning on Flower (`pip install "fedsash[flower]"`).

What users import is listed in `__init__.pyi`, and Flower is imported with the first of these names.
"""

from ..system.lazy import LazyNames

__getattr__, __dir__, __all__ = LazyNames(__name__, __file__).hooks()
