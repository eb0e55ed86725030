"""Optional libraries for tests: a module's tests are skipped without them, and to collect them imports none."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest


class Library:
    """A library, which is imported when something of it is first asked for. Without it the whole module is skipped."""

    def __init__(self, name: str) -> None:
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed", allow_module_level=True)
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest asks all that is in a module for it
            raise AttributeError(name)
        return getattr(import_module(self._name), name)
