"""What the Python reference shows of a field that `Accepts` more than its own type: all that may be given."""

from __future__ import annotations

import ast
from typing import Any

from griffe import (
    Attribute,
    Class,
    Expr,
    ExprBinOp,
    ExprCall,
    ExprKeyword,
    ExprName,
    ExprSubscript,
    ExprTuple,
    Extension,
)

HOME = "fedsash.settings.setting"


class Accepted(Extension):
    """Shows `broadcast: Accepts[Broadcast | None, str] = default(None)` as `broadcast: Broadcast | None | str = None`.

    A class with the `dataclass` of that module has a signature as any other.
    """

    def on_class_instance(self, *, cls: Class, **_: Any) -> None:
        for decorator in cls.decorators:
            call = decorator.value
            if isinstance(call, ExprCall) and call.canonical_path == f"{HOME}.dataclass":
                call.function = ExprName("dataclass", parent="dataclasses")

    def on_attribute_instance(self, *, attr: Attribute, **_: Any) -> None:
        kind = attr.annotation
        value = attr.value
        if isinstance(kind, ExprSubscript) and kind.canonical_path == f"{HOME}.Accepts":
            assert isinstance(kind.slice, ExprTuple)
            union, other = kind.slice.elements
            others = (other.left, other.right) if isinstance(other, ExprBinOp) else (other,)
            for each in others:
                union = ExprBinOp(union, "|", each)
            attr.annotation = union
        if isinstance(value, ExprCall) and value.canonical_path == f"{HOME}.default":
            attr.value = _default(value.arguments[0])


def _default(argument: str | Expr) -> str | Expr:
    """The default that the argument of `default(...)` stands for: of `make=Class` an object of that class."""
    if isinstance(argument, ExprKeyword) and isinstance(argument.value, Expr):
        return ExprCall(argument.value, [])
    return argument


def accepted(annotation: str) -> str:
    """The same for an annotation as Python has it: all types that may be given."""
    kind = ast.parse(annotation, mode="eval").body
    if isinstance(kind, ast.Subscript) and ast.unparse(kind.value) == "Accepts":
        assert isinstance(kind.slice, ast.Tuple)
        return " | ".join(map(ast.unparse, kind.slice.elts))
    return annotation
