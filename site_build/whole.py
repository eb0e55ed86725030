"""The page of `examples/loops/whole.py`: the equations of its docstrings, each above the lines that compute it."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

from .markdown import block

FILE = Path("examples") / "loops" / "whole.py"
TITLE = "# The whole in plain PyTorch"


def page(root: Path) -> str:
    """The page, which has every line of the file: prose, equations and code, in its order."""
    text = (root / FILE).read_text()
    lines = text.splitlines()
    about, *nodes = ast.parse(text).body
    parts = [TITLE, _prose(lines, about)]
    last = about.end_lineno
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            parts.append(_code(lines[last : node.lineno - 1]))
            parts += _section(lines, node)
            last = node.end_lineno
    parts.append(_code(lines[last:]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(lines: list[str], node: ast.FunctionDef | ast.ClassDef) -> list[str]:
    """What a function or a class says of itself, its equations, and its code."""
    docstring = node.body[0]
    head = lines[node.lineno - 1 : docstring.lineno - 1]
    body = lines[docstring.end_lineno : node.end_lineno]
    while not body[0]:
        del body[0]
    return [f"## {node.name}", _prose(lines, docstring), _code(head + body)]


def _prose(lines: list[str], docstring: ast.stmt) -> str:
    """A docstring as Markdown; its equations, which are indented further, are blocks."""
    indent = docstring.col_offset
    text = "\n".join(line[indent:] for line in lines[docstring.lineno - 1 : docstring.end_lineno])
    parts = []
    for part in text.replace('"""', "").split("\n\n"):
        part = part.rstrip()
        if part.startswith("    "):
            part = block(dedent(part))
        parts.append(part)
    return "\n\n".join(parts)


def _code(lines: list[str]) -> str:
    """Lines of Python as a block, without empty ones around them; "" if there are no others."""
    code = "\n".join(lines).strip("\n")
    return f"```python\n{code}\n```" if code else ""
