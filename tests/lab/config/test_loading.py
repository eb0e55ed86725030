"""How far the reader of an experiment file has to go: the functions that it passes through, and their files."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import fedsash
from fedsash.lab.config import load

NINE_LINES = """\
rounds = 20
data.name = "digits"
partition = { name = "dirichlet", alpha = 0.5 }
[local]
lr = 0.05
[method]
name = "scaffold"
[averages]
window20 = { name = "window", size = 20 }
"""
MOST_FUNCTIONS, MOST_FILES = 35, 14
"""Before settings were described as data it was 82 and 31."""


def passed_through(file: Path) -> tuple[set[str], set[str]]:
    """The functions of fedsash that reading a file calls the second time, and their files. Parts of functions
    (comprehensions, lambdas) are not counted by themselves."""
    home = str(Path(fedsash.__file__).parent)
    functions, files = set[str](), set[str]()

    def look(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(home) and not code.co_name.startswith("<"):
            functions.add(f"{code.co_filename}:{code.co_qualname}")
            files.add(code.co_filename)

    load(file)
    sys.setprofile(look)
    try:
        load(file)
    finally:
        sys.setprofile(None)
    return functions, files


def test_reading_nine_lines_passes_through_few_functions(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(NINE_LINES)
    functions, files = passed_through(file)
    assert len(functions) <= MOST_FUNCTIONS, sorted(functions)
    assert len(files) <= MOST_FILES, sorted(files)
