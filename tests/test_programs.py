"""Programs that no test runs: what benchmarks, examples and the campaign import is there."""

from __future__ import annotations

import ast
from pathlib import Path

from support.each import check_each
from support.imports import check_import
from support.places import ROOT

PROGRAMS = sorted(path for room in ("benchmarks", "examples", "torture") for path in (ROOT / room).rglob("*.py"))


def check_imports(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom | ast.Import):
            check_import(node)


def test_what_a_program_imports_of_fedsash_is_there() -> None:
    check_each(check_imports, PROGRAMS, lambda path: str(path.relative_to(ROOT)))
