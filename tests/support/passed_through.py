"""How far a reader has to go to follow a call: the functions of fedsash that it passes through, and their files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import fedsash

HOME = Path(fedsash.__file__).parent
PARTS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
"""Frames that belong to the function in which they are written."""


class Passed(NamedTuple):
    """The functions that a call passed through, as `file:function:line`, and their files, as paths in `src/fedsash`."""

    functions: set[str]
    files: set[str]


def passed_through(call: Callable[[], object], *, lambdas: bool = True) -> Passed:
    """The functions and files of fedsash that a call passes through, in this thread.

    Functions in functions count by themselves, and with `lambdas` those without a name, too; comprehensions never do.
    Methods that dataclasses generate are in no file, and do not count. Whoever wants to know what remains when all
    caches are full makes the same call once before.
    """
    home = f"{HOME}/"
    functions: set[str] = set()
    files: set[str] = set()

    def look(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(home):
            return
        if code.co_name in PARTS or (code.co_name == "<lambda>" and not lambdas):
            return
        file = code.co_filename.removeprefix(home)
        functions.add(f"{file}:{code.co_qualname}:{code.co_firstlineno}")
        files.add(file)

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return Passed(functions, files)
