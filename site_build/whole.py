"""The page of `examples/whole.py`: the equations of its docstrings, each above the lines that compute it."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

from .markdown import block

FILE = Path("examples") / "whole.py"
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
    return "\n\n".join(filter(None, parts)) + "\n"


def _section(lines: list[str], node: ast.FunctionDef | ast.ClassDef) -> list[str]:
    """What a function or a class says of itself, its equations, and its code."""
    said = node.body[0]
    head = _code(lines[node.lineno - 1 : said.lineno - 1])
    body = lines[said.end_lineno : node.end_lineno]
    while not body[0]:
        del body[0]
    return [f"## {node.name}", _prose(lines, said), head.removesuffix("```") + "\n".join([*body, "```"])]


def _prose(lines: list[str], said: ast.stmt) -> str:
    """A docstring as Markdown; its equations, which are indented further, are blocks."""
    parts = []
    for part in "\n".join(line[said.col_offset :] for line in lines[said.lineno - 1 : said.end_lineno]).split("\n\n"):
        text = part.replace('"""', "").rstrip()
        parts.append(block(dedent(text)) if text.startswith("    ") else text)
    return "\n\n".join(parts)


def _code(lines: list[str]) -> str:
    code = "\n".join(lines).strip("\n")
    return f"```python\n{code}\n```" if code else ""
