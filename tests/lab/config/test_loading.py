"""How far the reader of an experiment file has to go: the functions that it passes through, and their files."""

from __future__ import annotations

from pathlib import Path

from fedsash.lab.config import load
from support.passed_through import passed_through

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


def test_reading_nine_lines_passes_through_few_functions(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(NINE_LINES)
    load(file)  # fills what is kept for the next file
    functions, files = passed_through(lambda: load(file), lambdas=False)
    assert len(functions) <= MOST_FUNCTIONS, sorted(functions)
    assert len(files) <= MOST_FILES, sorted(files)
