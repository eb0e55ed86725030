"""Imports in code that no test runs: pages, benchmarks, examples."""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.util import find_spec

import pytest

import fedsash


def check_import(node: ast.ImportFrom | ast.Import) -> None:
    """Import what an import of fedsash names, or skip the test if that needs a library that is not installed."""
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    for name in (name for name in names if name.partition(".")[0] == "fedsash"):
        try:
            module = import_module(name)
        except fedsash.errors.LibraryError as error:
            pytest.skip(str(error))
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("fedsash"):
                raise
            pytest.skip(str(error))
        if isinstance(node, ast.ImportFrom):
            asked = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            lacking = [other for other in asked if not hasattr(module, "__path__") or not find_spec(f"{name}.{other}")]
            assert not lacking, f"{name} has no {', '.join(lacking)}"
