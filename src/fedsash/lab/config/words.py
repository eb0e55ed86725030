"""Words for messages: values as in TOML, types, and suggestions for misspelt names."""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from typing import Any, get_origin

from ...settings.errors import shortened
from ...settings.meanings import Documentation
from ...settings.words import in_words

ENDS = r"(?<=\.)(?<!et al\.)\s+(?=[A-Z`])"
"""Where a sentence ends, and the next one begins."""


def summary(make: object) -> str:
    """The first line of a thing's docstring."""
    text = about(make)
    if not text:
        return "(no description)"
    return text.splitlines()[0]


def about(make: object) -> str:
    """The docstring of a thing, without the meanings of its settings, which `help()` shows below it."""
    docstring = vars(make).get("__doc__") if isinstance(make, type) else None
    if isinstance(docstring, Documentation):
        return inspect.cleandoc(docstring.docstring)
    return inspect.getdoc(make) or ""


def describe(kind: Any) -> str:
    """A type in words: "a number", "a list of integers". Of a union, the types that TOML can write."""
    return in_words(kind, _named) or f"of type {getattr(kind, '__name__', kind)}"


def _named(kind: Any, many: bool) -> str:
    """A type that has no words of its own: a class, or a value of a `Literal`."""
    is_type = isinstance(kind, type) or get_origin(kind) is not None
    if not is_type:
        return show(kind)
    return "tables" if many else "a table"


def shown(value: Any) -> str:
    """A value as in an experiment file, on one line; the end of a long one is left out."""
    return shortened(show(value))


def show(value: Any) -> str:
    """A value as in an experiment file, on one line."""
    if isinstance(value, Mapping):
        pairs = [f"{key} = {show(inner)}" for key, inner in value.items() if key]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(show, value)) + "]"
    if value is None or isinstance(value, float) or is_dataclass(value):
        return str(value)
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text.replace("\x7f", "\\u007f")  # TOML has no other control character that JSON leaves as it is


def suggestion(name: str, known: Iterable[str]) -> str:
    """The known name that is similar to `name` (`batch` for `batch_size`, `lr` for `learning_rate`), or ""."""
    words = list(known)
    name = name[:60]  # a comparison of longer texts takes long
    similar = difflib.get_close_matches(name, words, n=1)
    if similar:
        return similar[0]
    initials = "".join(word[:1] for word in name.split("_"))
    if initials in words:
        return initials
    return ""
