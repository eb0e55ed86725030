"""Names of a package that are imported at their first use."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path


class LazyNames:
    """The names that a package's stub, `__init__.pyi`, imports. Type checkers read the same list.

    `from .averages import EMA as EMA` makes `EMA` of the module `averages` a public name. `from . import data as data`
    does so for a module. Nothing is imported before `load`. `homes` has each name's module with its dots, as the import
    names it; empty for a module.
    """

    def __init__(self, package: str, file: str) -> None:
        self._package = package
        self.homes = dict(_imported(Path(file).with_suffix(".pyi")))

    @property
    def public(self) -> list[str]:
        """The names of `from package import *`: all names that are not modules of the package."""
        return sorted(name for name, module in self.homes.items() if module)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.homes))

    def load(self, name: str) -> object:
        """The object or module of this name. Raises `AttributeError`, with a similar name, if there is none."""
        if name not in self.homes:
            raise AttributeError(f"module {self._package!r} has no attribute {name!r}{self._hint(name)}", name=name)
        home = self.homes[name]
        if not home:
            return import_module(f".{name}", self._package)
        return getattr(import_module(home, self._package), name)

    def hooks(self) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
        """The `__getattr__`, the `__dir__` and the `__all__` of the package: a name is looked up once."""

        def get(name: str) -> object:
            value = self.load(name)
            setattr(sys.modules[self._package], name, value)
            return value

        return get, lambda: [*self], self.public

    def _hint(self, name: str) -> str:
        """A name like an unknown one, as the end of an error; empty if there is none."""
        from difflib import get_close_matches

        if name.startswith("_"):  # Python and notebooks ask for such names, and need no hint
            return ""
        close = get_close_matches(name, self.homes, n=1)
        if not close:
            return ""
        return f"; did you mean {close[0]}?"


def _imported(stub: Path) -> Iterator[tuple[str, str]]:
    """Each name that a stub imports, with its module. The module is empty if the name is a module itself."""
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            for alias in node.names:
                home = "." * node.level + node.module if node.module else ""
                yield alias.asname or alias.name, home
