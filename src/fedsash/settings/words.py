"""Types in words, for messages: "a list of integers"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

Named = Callable[[Any, bool], str]
"""`named(kind, many)`: the words for a class, a mapping or a literal's value, in the singular or the plural."""

SIMPLE = {
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    str: ("a string", "strings"),
    bool: ("true or false", "true or false"),
    Any: ("a value", "values"),
}
"""The words of simple types, in the singular and the plural."""


def in_words(kind: Any, named: Named, many: bool = False) -> str:
    """A type in words, such as "a list of integers"; empty if there are none. None is left out of a union."""
    origin = get_origin(kind)
    members = get_args(kind)
    if kind in SIMPLE:
        singular, plural = SIMPLE[kind]
        return plural if many else singular
    if origin is Annotated:
        return in_words(members[0], named, many)
    if origin in (Union, UnionType):
        words = []
        for member in members:
            word = "" if member is NoneType else in_words(member, named, many)
            if word:
                words.append(word)
        return " or ".join(words)
    if origin is Literal:
        return " or ".join(named(choice, many) for choice in members)
    if origin in (tuple, list, Sequence):
        lists = "lists" if many else "a list"
        items = in_words(members[0], named, many=True)
        if origin is tuple and Ellipsis not in members:
            return f"{lists} of {len(members)} {items}"
        return f"{lists} of {items}"
    if origin in (dict, Mapping) or (origin is None and isinstance(kind, type)):
        return named(kind, many)
    return ""


def python_words(kind: Any) -> str:
    """A type in words for somebody who writes Python: "a Window", "a dict of names and averages"."""
    return in_words(kind, _in_python)


def _in_python(kind: Any, many: bool) -> str:
    """The words for a class, a mapping or a literal's value: "a Window", "windows", "'auto'"."""
    if get_origin(kind) in (dict, Mapping):
        dicts = "dicts" if many else "a dict"
        values = in_words(get_args(kind)[1], _in_python, many=True)
        return f"{dicts} of names and {values}"
    if not isinstance(kind, type):
        return repr(kind)
    name = kind.__name__
    if many:
        return f"{name.lower()}s"
    article = "an" if name[0] in "AEIOU" else "a"
    return f"{article} {name}"
