"""A check of many things as one test, which says of each thing what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def check_each(check: Callable[[Any], object], things: Iterable[Any], name: Callable[[Any], str] = str) -> None:
    """Check all things; one that cannot be checked here, because it skips, is passed over.

    Raises `AssertionError` with a line for each that fails, which begins with its name; also if there is no thing.
    """
    __tracebackhide__ = True
    all_things = list(things)
    assert all_things, "there is nothing to check"
    lines = []
    for thing in all_things:
        try:
            check(thing)
        except pytest.skip.Exception:
            continue
        except (Exception, SystemExit, pytest.fail.Exception) as error:
            lines.append(f"{name(thing)}: {type(error).__name__}: {error}".rstrip().replace("\n", "\n    "))
    if lines:
        raise AssertionError("\n".join(lines))
