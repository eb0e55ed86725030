"""The commands that pages and helps show: the command line takes each of them, with its settings."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from fedsash.lab import sweeps
from fedsash.lab.cli import main, parser
from fedsash.lab.config import load
from support.places import DOCS, ROOT

SEED = "$seed"
"""What stands for a number in a shell's loop."""


def _commands(text: str) -> list[str]:
    """The indented lines of a text that call fedsash, without what is said beside them."""
    lines = text.replace("\\\n", " ").splitlines()
    called = [line.strip() for line in lines if re.match(r" +fedsash [a-z]", line)]
    return [re.split(r" {3,}(?=[^-\s'])| > ", line)[0] for line in called]


def _helps() -> dict[str, str]:
    """What the help of each command ends with."""
    of_all = parser()
    (commands,) = (action.choices for action in of_all._actions if isinstance(action.choices, dict))
    return {name: each.epilog or "" for name, each in {"fedsash": of_all, **commands}.items()}


PAGES = {str(page.relative_to(ROOT)): page.read_text() for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]}
SHOWN = [
    pytest.param(line, id=f"{name}: {line}") for name, text in (PAGES | _helps()).items() for line in _commands(text)
]


@pytest.mark.parametrize("line", SHOWN)
def test_a_command_that_is_shown_is_taken_with_its_settings(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    given = parser().parse_args(shlex.split(line.replace(SEED, "1"), comments=True)[1:])
    if hasattr(given, "sweep") and given.sweep.exists():
        sweeps.load(given.sweep, given.only, given.set, given.own_code)
    elif isinstance(file := getattr(given, "experiment", None), Path) and file.exists():
        load(file, given.set, given.own_code)


@pytest.mark.slow
def test_the_commands_of_the_page_on_studies_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for those on runs that the page does not make."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", "examples")
    for line in _commands(PAGES["docs/studies/index.md"]):
        if not re.search(r"runs/[abc]\b", line):
            for seed in range(1, 5) if SEED in line else [0]:
                assert main(shlex.split(line.replace(SEED, str(seed)))[1:]) == 0, line
