"""The pages that teach: what they quote is in the code, and what they show works."""

from __future__ import annotations

import ast
import re
import tomllib
from operator import attrgetter, itemgetter
from pathlib import Path

import pytest

import fedsash
from fedsash.lab.cli import main
from fedsash.lab.config import parse
from support.each import check_each
from support.imports import check_import
from support.places import DOCS, ROOT

CITED = [page for page in sorted((DOCS / "papers").glob("*.md")) if "## The equation" in page.read_text()]
QUOTED = re.compile(r"`(src/[\w/]+\.py)`(.*?)(?=`src/|\Z)", re.DOTALL)


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def _all_blocks(language: str) -> list[tuple[str, str]]:
    """The blocks of all pages, each after the name of its page and its number there."""
    pages = {str(page.relative_to(DOCS)): page.read_text() for page in sorted(DOCS.rglob("*.md"))}
    return [(f"{page} {i}", block) for page, text in pages.items() for i, block in enumerate(_blocks(text, language))]


def _is_of_an_experiment(block: str) -> bool:
    """Whether a block is no sweep and no setting of Flower, and names no code of the reader's own."""
    names_own_code = '"mine:' in block or '"examples.own.mine:' in block
    return not names_own_code and not {"base", "superlink"} & tomllib.loads(block).keys()


@pytest.mark.parametrize("page", CITED, ids=lambda page: page.name)
def test_the_code_that_a_paper_s_page_quotes_is_in_the_file_that_it_names(page: Path) -> None:
    quotes = [(file, block) for file, text in QUOTED.findall(page.read_text()) for block in _blocks(text, "python")]
    assert quotes
    assert [file for file, block in quotes if block not in (ROOT / file).read_text()] == []


def _check_table(named: tuple[str, str]) -> None:
    table = tomllib.loads(named[1])
    if _is_of_an_experiment(named[1]):
        parse(table)


def test_the_tables_of_a_page_are_read_as_an_experiment() -> None:
    check_each(_check_table, _all_blocks("toml"), itemgetter(0))


def _is_whole(block: str) -> bool:
    """Whether a block is no piece of a function."""
    return not block.startswith(" ")


def _check_names(named: tuple[str, str]) -> None:
    for node in ast.walk(ast.parse(named[1])):
        if isinstance(node, ast.ImportFrom | ast.Import):
            check_import(node)
        elif isinstance(node, ast.Attribute) and re.fullmatch(r"(fs|fedsash)(\.\w+)+", path := ast.unparse(node)):
            attrgetter(path.partition(".")[2])(fedsash)


def test_the_names_in_a_page_s_python_exist() -> None:
    whole = [named for named in _all_blocks("python") if _is_whole(named[1])]
    check_each(_check_names, whole, itemgetter(0))


@pytest.mark.parametrize(
    "page", [DOCS / "concepts" / "federation.md", pytest.param(DOCS / "five-minutes.md", marks=pytest.mark.slow)]
)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = _blocks(page.read_text(), "python")
    assert blocks
    for block in blocks:
        exec(compile(block.replace("rounds=150", "rounds=2"), page.name, "exec"), {})


@pytest.mark.slow
def test_the_sweep_that_asks_whether_a_federation_helps_trains_on_a_table_of_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{'Bern' if i % 3 else 'Chur'},{40 + i},{120 + i % 7},{i % 2}" for i in range(60)]
    Path("patients.csv").write_text("\n".join(["hospital,age,pressure,disease", *rows]))
    (sweep,) = _blocks((DOCS / "how-to" / "federation-helps.md").read_text(), "toml")
    Path("helps.toml").write_text(sweep.replace("rounds = 30", "rounds = 1").replace("[0, 1, 2]", "[0]"))
    assert main(["sweep", "helps.toml", "--out", "helps", "--jobs", "1"]) == 0
    assert main(["compare", "helps", "--against", "way=alone", "--of", "client_test/worst_client"]) == 0
    assert len(list(Path("helps").rglob("clients.json"))) == 2
