"""Federated learning whose heart is averaging global models over rounds.

What users import is listed in `__init__.pyi`, once: a name's module is imported when the name is first asked for.
"""

from .system.lazy import LazyNames

_names = LazyNames(__name__, __file__)

__all__ = _names.public


def __getattr__(name: str) -> object:
    """Import a public name: `import fedsash` and `fedsash --help` need not wait for PyTorch."""
    if name == "__version__":
        from .system.machine import own_version

        found: object = own_version()
    else:
        found = _names.load(name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return ["__version__", *_names]
