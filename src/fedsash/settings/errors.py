"""Errors for users: one line that names the wrong or missing thing and says what would be right.

The command line prints such an error without a traceback. Any other exception is a bug.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from math import inf
from numbers import Integral
from types import FunctionType


class FedsashError(Exception):
    """An error that the user can correct. It is raised as one of the classes below.

    Its text is one line: names of files and users may hold line feeds, and signs that a terminal obeys.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class SettingError(FedsashError, ValueError):
    """A value is not allowed. The message is `owner.field = value: right`.

    `owner` is the name of a class (`"Window"`) or empty, `field` the name of the value (`"size"`), and `right` says
    what would be right. `kind` is the type that the value should have, if it has another one.
    """

    def __init__(self, owner: str, field: str, value: object, right: str, kind: object = None) -> None:
        super().__init__(owner, field, value, right)  # without the type, which may be of no module
        self.owner = owner
        self.field = field
        self.value = value
        self.right = right
        self.kind = kind

    @classmethod
    def at(cls, place: str, value: object, right: str) -> SettingError:
        """The error of a value at a place: `"Window.size"`, a field of a class, or a name such as `"rounds"`."""
        owner, dot, name = place.partition(".")
        if dot and owner.isidentifier() and owner[0].isupper():
            return cls(owner, name, value, right)
        return cls("", place, value, right)

    def __str__(self) -> str:
        place = f"{self.owner}.{self.field}" if self.owner else self.field
        return printable(f"{place} = {brief(self.value)}: {self.right}")


class ModelError(FedsashError, ValueError):
    """A model can't be trained, or not with these settings, for example because it has no trainable parameters."""


class DataError(FedsashError, ValueError):
    """A data file is missing or damaged, or lacks something that is needed."""


class RunError(FedsashError, ValueError):
    """A run's folder or a file in it is missing, damaged or in use, or does not fit what is asked for."""


class WorkerError(FedsashError, RuntimeError):
    """Worker processes died again and again, for example because memory is short."""


class LibraryError(FedsashError, ImportError):
    """An optional library is missing, or can't be imported."""


def check(condition: bool, place: str, value: object, requirement: str) -> None:
    """Raise `SettingError` unless `condition` holds: `check(size >= 1, "Window.size", size, "must be at least 1")`."""
    if not condition:
        raise SettingError.at(place, value, requirement)


MOST = 10**9
"""The largest number of rounds, clients, steps and so on that a setting takes: no run would ever reach it."""

LONGEST = 100_000
"""The most epochs or steps of a client in one round: its steps are planned before the round begins."""


def check_count(place: str, value: int | None, least: int = 1, most: int = MOST) -> None:
    """Raise `SettingError` unless a number of rounds, clients and so on is whole, at least `least` and at most `most`.

    None is right where a setting takes it.
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    check(value is None or whole, place, value, "must be a whole number")
    check(value is None or value >= least, place, value, f"must be at least {least}")
    check(value is None or value <= most, place, value, f"must be at most {most:,}")


def check_fraction(place: str, value: float | None) -> None:
    """Raise `SettingError` unless a share or a factor is at least 0 and below 1; None is right where it is taken."""
    check(value is None or 0 <= value < 1, place, value, "must be at least 0 and below 1")


def check_positive(place: str, value: float | None, unit: str = "") -> None:
    """Raise `SettingError` unless an amount, of bytes or seconds for example, is above 0 and finite.

    None is right where a setting takes it.
    """
    requirement = "must be positive"
    if unit:
        requirement += f", {unit}"
    check(value is None or 0 < value < inf, place, value, requirement)


def check_choice(place: str, value: str, *known: str) -> None:
    """Raise `SettingError` unless the value is one of the known ones."""
    check(value in known, place, value, f"must be {' or '.join(map(repr, known))}")


class ConfigError(FedsashError, ValueError):
    """An error in an experiment, a sweep or a reproduction, described in one `line`.

    `file` is the file with the error, or empty. `key` is the dotted key that is wrong, or empty.
    """

    def __init__(self, line: str, key: str = "", file: str = "") -> None:
        super().__init__(line, key, file)
        self.line = line
        self.key = key
        self.file = file

    def __str__(self) -> str:
        return f"{self.file}: {self.line}" if self.file else self.line


@contextmanager
def library(name: str, purpose: str, install: str) -> Iterator[None]:
    """Turn a failed import inside into a `LibraryError` that says what to install."""
    try:
        yield
    except (ImportError, RuntimeError) as error:  # RuntimeError: a torchvision that was built for another PyTorch
        needed = f'{name} is needed for {purpose}: pip install "{install}"'
        raise LibraryError(f"{needed} ({one_line(error)})") from error


@contextmanager
def raised_as(make: Callable[[str], FedsashError]) -> Iterator[None]:
    """Turn an exception of other people's code inside into the error that `make` makes of its text.

    An error that is for users already passes.
    """
    try:
        yield
    except FedsashError:
        raise
    except Exception as error:  # its class depends on that code
        raise make(one_line(error)) from error


def brief(value: object) -> str:
    """A value as Python writes it. A class or function is given by its name; over 100 characters are shortened."""
    if isinstance(value, type | FunctionType):
        return value.__name__
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of more than 4,300 digits, or a list in a list in a list ...
        return f"{type(value).__name__}(...)"
    if len(text) <= 100:
        return text
    if isinstance(value, list | tuple):
        items = [brief(item)[:60] for item in value[:3]]
        if len(value) > 3:
            items.append("...")
        listed = ", ".join(items)
        return f"[{listed}]"
    if is_dataclass(value):
        return f"{type(value).__name__}(...)"
    return shortened(text)


def shortened(text: str, most: int = 100) -> str:
    """A text of at most `most` characters; the end of a longer one is replaced by three dots."""
    if len(text) <= most:
        return text
    return f"{text[: most - 3]}..."


def some(items: Iterable[object], most: int = 6) -> str:
    """The items as text. Of many items, only the first `most` and the number of the others."""
    texts = list(map(str, items))
    listed = ", ".join(texts[:most])
    others = len(texts) - most
    if others <= 0:
        return listed
    return f"{listed} and {others:,} more"


def printable(text: str) -> str:
    """The text, with line feeds, escapes and other signs that have no picture as Python writes them."""
    if text.isprintable():
        return text
    signs = []
    for sign in text:
        if not sign.isprintable():
            sign = repr(sign)[1:-1]  # without its quotes
        signs.append(sign)
    return "".join(signs)


def one_line(error: BaseException) -> str:
    """An error's message on one line, or its class if there is no message."""
    return " ".join(str(error).split()) or type(error).__name__
