"""The commands that pages and helps show: the command line takes each of them, with its settings."""

from __future__ import annotations

import io
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fedsash.lab import sweeps
from fedsash.lab.cli import main, parser
from fedsash.lab.config import load
from fedsash.lab.config.files import read
from support.each import check_each
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
    for command in commands.values():
        command.fill()
    return {name: each.epilog or "" for name, each in {"fedsash": of_all, **commands}.items()}


PAGES = {str(page.relative_to(ROOT)): page.read_text() for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]}
LARGEST = Path("examples/findings/zoo.toml")
"""A sweep of so many runs that reading them takes seconds."""


def _shown() -> list[tuple[str, str]]:
    """All commands that are shown, each with the name of its page."""
    return [(name, line) for name, text in (PAGES | _helps()).items() for line in _commands(text)]


class NewLabels:
    """Leaves out each run of a sweep whose labels have all been in earlier ones."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()

    def __call__(self, labels: Mapping[str, str], table: dict[str, Any]) -> dict[str, Any] | None:
        new = labels.items() - self.seen
        self.seen |= new
        return table if new else None


@cache
def _read(file: Path, sweep: bool, only: tuple[str, ...], overrides: tuple[str, ...], own_code: bool) -> None:
    if not sweep:
        load(file, overrides, own_code)
    elif file == LARGEST:
        sweeps.parse(read(file), file.parent, only, overrides, own_code, NewLabels())
    else:
        sweeps.load(file, only, overrides, own_code)


def test_a_command_that_is_shown_is_taken_with_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the largest sweep, as many runs as have each label once."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "stderr", said := io.StringIO())  # where the parser tells why it refuses a command
    known = parser()

    def check(shown: tuple[str, str]) -> None:
        said.truncate(said.seek(0))
        try:
            given = known.parse_args(shlex.split(shown[1].replace(SEED, "1"), comments=True)[1:])
        except SystemExit:
            raise AssertionError(said.getvalue()) from None
        if hasattr(given, "sweep") and given.sweep.exists():
            _read(given.sweep, True, tuple(given.only), tuple(given.set), given.own_code)
        elif isinstance(file := getattr(given, "experiment", None), Path) and file.exists():
            _read(file, False, (), tuple(given.set), given.own_code)

    check_each(check, _shown(), ": ".join)


@pytest.mark.full
def test_every_run_of_the_largest_sweep_can_be_read() -> None:
    assert len(sweeps.load(ROOT / LARGEST).runs) > 1000


@pytest.mark.slow
def test_the_commands_of_the_page_on_studies_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for those on runs that the page does not make."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", "examples")
    for line in _commands(PAGES["docs/studies/index.md"]):
        if not re.search(r"runs/[abc]\b", line):
            for seed in range(1, 5) if SEED in line else [0]:
                assert main(shlex.split(line.replace(SEED, str(seed)))[1:]) == 0, line
