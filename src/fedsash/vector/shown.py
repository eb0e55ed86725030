"""How objects with tensors are shown at a prompt and in a notebook: by a few facts, never by tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from html import escape
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..settings.errors import shortened, some

LONGEST = 60
"""At most so many characters of a value are shown."""


class Shown:
    """An object that is shown by its `facts`: on one line, and in a notebook as a small table.

    A dataclass that extends it must set `repr=False`; otherwise the dataclass generates its own line.
    """

    def facts(self) -> Mapping[str, object]:
        """The facts about the object by name: by default the fields of a dataclass without those with `repr=False`."""
        shown: Any = self
        return {field.name: getattr(self, field.name) for field in fields(shown) if field.repr}

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={text}" for name, text in self._shown_facts())
        return f"{type(self).__name__}({facts})"

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, [], self._shown_facts())

    def _shown_facts(self) -> list[tuple[str, str]]:
        """Each fact as text, without facts that are None or empty."""
        shown = []
        for name, value in self.facts().items():
            if not _is_empty(value):
                shown.append((name, fact(value)))
        return shown


def fact(value: object) -> str:
    """A short text of a value: a tensor's type and shape, a module's size, the number of items in a long list."""
    match value:
        case Tensor() | np.ndarray():
            text = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
        case nn.Module():
            text = f"{type(value).__name__} of {_parameters(value)}"
        case Mapping():
            text = f"[{some(value)}]"
        case list() | tuple() if len(value) > 6:
            text = f"{len(value):,} items"
        case list() | tuple():
            text = f"[{some(map(fact, value))}]"
        case str():
            text = value
        case float():
            text = f"{value:.4g}"
        case _ if type(value).__repr__ is object.__repr__:  # which shows an address
            text = type(value).__name__
        case _:
            text = repr(value)
    return shortened(" ".join(text.split()), LONGEST)


def html_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A small table as HTML. The first column holds the names of the rows."""
    lines = []
    if heads:
        cells = "".join(f"<th>{escape(text)}</th>" for text in heads)
        lines.append(f"<tr>{cells}</tr>")
    for name, *values in rows:
        cells = "".join(f"<td>{escape(text)}</td>" for text in values)
        lines.append(f"<tr><th>{escape(name)}</th>{cells}</tr>")
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"


def text_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a small table. The first column is aligned left, the others right."""
    first_width, *widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = []
    for name, *values in (heads, *rows):
        cells = [name.ljust(first_width)]
        for value, width in zip(values, widths, strict=True):
            cells.append(value.rjust(width))
        lines.append("  ".join(cells))
    return lines


def _parameters(module: nn.Module) -> str:
    """How many parameters a module has, and how many of them are frozen."""
    size = 0
    frozen = 0
    for parameter in module.parameters():
        size += parameter.numel()
        if not parameter.requires_grad:
            frozen += parameter.numel()
    if frozen:
        return f"{size:,} parameters, {frozen:,} of them frozen"
    return f"{size:,} parameters"


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, Collection) and len(value) == 0)
