"""Names of a package that are imported when they are first asked for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path


class LazyNames:
    """The names that a package's stub, `__init__.pyi`, imports: the only list of them, which type checkers read too.

    `from .averages import EMA as EMA` makes `EMA` a public name, which lives in the module `averages`;
    `from . import data as data` makes the module itself one. Nothing is imported before `load`.
    """

    def __init__(self, package: str, file: str) -> None:
        self._package = package
        self._homes = dict(_imported(Path(file).with_suffix(".pyi")))

    @property
    def public(self) -> list[str]:
        """What `from package import *` gives: every name that is not a module of the package."""
        return sorted(name for name, module in self._homes.items() if module)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._homes))

    def load(self, name: str) -> object:
        """What the name stands for; raises `AttributeError`, with a name that is close, if there is no such name."""
        if name not in self._homes:
            raise AttributeError(f"module {self._package!r} has no attribute {name!r}{self._hint(name)}", name=name)
        home = self._homes[name]
        module = import_module(f".{home or name}", self._package)
        return getattr(module, name) if home else module

    def _hint(self, name: str) -> str:
        from difflib import get_close_matches

        close = [] if name.startswith("_") else get_close_matches(name, self._homes, n=1)
        return "".join(f"; did you mean {match}?" for match in close)


def _imported(stub: Path) -> Iterator[tuple[str, str]]:
    """Each name that a stub imports and its module, which is empty where the name is a module itself."""
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            yield from ((alias.asname or alias.name, node.module or "") for alias in node.names)
