"""The page that compares averagers: its tables, its adapter, and a reproduction of each failure."""

from __future__ import annotations

import ast
import re

import pytest
from benchmarks.averagers.speed import seconds_of_updates, speed_table

from fedsash.testing.tracking import PROPERTIES
from support.places import DOCS, ROOT

PAGE = (DOCS / "reference" / "averagers.md").read_text()
REPRODUCTIONS = ROOT / "benchmarks" / "averagers" / "reproductions"

FILES_OF = {
    "torch": "torch",
    "timm": "timm",
    "ema-pytorch": "ema_pytorch",
    "Lightning": "lightning",
    "TRL": "trl",
    "diffusers": "diffusers",
    "ultralytics": "ultralytics",
}
"""How the reproductions of a library begin."""


def rows(begin: str) -> list[list[str]]:
    """The cells of the first table after `begin`."""
    table = PAGE.split(begin)[1].split("\n|", 1)[1].split("\n\n")[0]
    lines = [line.strip("|").split("|") for line in table.splitlines()]
    return [[cell.strip() for cell in line] for line in lines]


def test_both_tables_have_every_property_in_its_order() -> None:
    properties = list(PROPERTIES)
    assert [row[0] for row in rows("## What is right")[2:]] == properties
    assert [row[0] for row in rows("<!-- results -->")[2:]] == properties


def test_each_failure_on_the_page_has_a_short_reproduction_and_no_other_has_one() -> None:
    heads, _, *results = rows("<!-- results -->")
    wanted: set[str] = set()
    for row in results:
        for head, cell in zip(heads[1:], row[1:], strict=True):
            if cell.strip("*") in ("no", "error"):
                name = re.sub(r"[ -]", "_", row[0].lower())
                wanted.add(f"{FILES_OF[head.split()[0]]}_{name}.py")
            else:
                assert cell in ("yes", "caller", "-")
    scripts = {path.name for path in REPRODUCTIONS.glob("[a-z]*.py")}
    assert scripts == wanted
    for path in REPRODUCTIONS.glob("[a-z]*.py"):
        text = path.read_text()
        docstring = ast.get_docstring(ast.parse(text))
        assert docstring is not None and "\n\nRight: " in docstring
        statements = [line for line in text.split('"""\n', 1)[1].splitlines() if line]
        assert len(statements) <= 23, path.name


def test_the_tracker_on_the_page_is_right_throughout() -> None:
    heads, _, *results = rows("<!-- results -->")
    assert heads[-1].startswith("fs.Tracker")
    assert {row[-1] for row in results} == {"yes"}


def test_the_adapter_on_the_page_passes() -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    exec(compile(block, "averagers.md", "exec"), {})


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("torch_a_step_that_is_not_finite", "entries that are not finite, 14 updates later: 1 (right: 0)\n"),
        ("torch_a_module_that_grew", "the model has ['layer', 'head']\nand its average ['layer']\n"),
    ],
)
def test_reproductions_of_torch_show_what_the_page_says(
    name: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (REPRODUCTIONS / f"{name}.py").read_text()
    exec(compile(text, name, "exec"), {})
    assert capsys.readouterr().out == printed


def test_an_update_is_timed_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.averagers import speed

    torch_and_own = {name: adapter for name, adapter in speed.TIMED.items() if name.startswith(("torch", "fs."))}
    monkeypatch.setattr(speed, "TIMED", torch_and_own)
    monkeypatch.setattr(speed, "SIZES", {60_000: 2})
    assert set(seconds_of_updates(60_000, 2)) == set(torch_and_own)
    lines = speed_table().splitlines()
    assert len(lines) == 2 + len(torch_and_own) and lines[2].startswith("| torch AveragedModel | 1.00 (")
