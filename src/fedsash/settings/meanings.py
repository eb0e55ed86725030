"""What settings mean: the docstrings below the fields of their classes, as written in the source."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from functools import cache
from itertools import pairwise
from typing import Any


@cache
def meanings(cls: type) -> dict[str, str]:
    """The meaning of each field of a class that has one, by name, each on one line; a base's where it has none.

    A field's meaning is the docstring below it. It is empty for a class without source.
    """
    known: dict[str, str] = {}
    for base in reversed(cls.__mro__[1:]):
        known.update(meanings(base))
    known.update(_meanings_in_source(cls))
    return known


def _meanings_in_source(cls: type) -> dict[str, str]:
    """The docstrings below a class's own fields, by the fields' names."""
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):  # typed into an interpreter, or built in
        return {}
    if source[0].isspace():  # a class in a function; `textwrap.dedent` would fail at a comment that is not indented
        source = f"if True:\n{source}"
    definitions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
    if not definitions:
        return {}
    known = {}
    for statement, below in pairwise(definitions[0].body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if not isinstance(below, ast.Expr) or not isinstance(below.value, ast.Constant):
            continue
        docstring = below.value.value
        if isinstance(docstring, str):
            known[statement.target.id] = " ".join(docstring.split())
    return known


class Documentation:
    """The docstring of a class of settings, with the meanings of its fields, for `help()` and notebooks.

    They are read from the source when somebody asks. As Python's own docstrings it is an attribute of the class, which
    `type` asks for its value.
    """

    def __init__(self, docstring: str) -> None:
        self.docstring = docstring

    def __get__(self, instance: object, owner: Any) -> str:
        if "__match_args__" not in vars(owner):  # `dataclass`, which makes that, only asks whether there is a docstring
            return self.docstring
        known = meanings(owner)
        lines = []
        for field in fields(owner):
            if field.init and field.name in known:
                lines.append(f"- `{field.name}`: {known[field.name]}")
        if not lines:
            return self.docstring
        listed = "\n".join(lines)
        return f"{inspect.cleandoc(self.docstring)}\n\n{listed}"
