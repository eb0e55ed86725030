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
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__[1:]):
        found |= meanings(base)
    return found | _of_source(cls)


def _of_source(cls: type) -> dict[str, str]:
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):  # typed into an interpreter, or built in
        return {}
    if source[0].isspace():  # a class in a function; `textwrap.dedent` would fail at a comment that is not indented
        source = f"if True:\n{source}"
    definitions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
    if not definitions:
        return {}
    statements = definitions[0].body
    found = {}
    for field, below in pairwise(statements):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            found[field.target.id] = " ".join(below.value.value.split())
    return found


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
        names = [field.name for field in fields(owner) if field.init]
        lines = [f"- `{name}`: {known[name]}" for name in names if name in known]
        if not lines:
            return self.docstring
        listed = "\n".join(lines)
        return f"{inspect.cleandoc(self.docstring)}\n\n{listed}"
