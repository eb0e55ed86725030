"""The pages that teach: what they quote is in the code, and what they show works."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from fedsash.lab.cli import main
from fedsash.lab.config import parse
from support.places import DOCS, ROOT

CITED = [page for page in sorted((DOCS / "papers").glob("*.md")) if "## The equation" in page.read_text()]
TAUGHT = [*sorted((DOCS / "concepts").glob("*.md")), DOCS / "how-to" / "resume.md"]
LONG = [pytest.param(DOCS / "five-minutes.md", marks=pytest.mark.slow)]
QUOTED = re.compile(r"`(src/[\w/]+\.py)`(.*?)(?=`src/|\Z)", re.DOTALL)


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", CITED, ids=lambda page: page.name)
def test_the_code_that_a_paper_s_page_quotes_is_in_the_file_that_it_names(page: Path) -> None:
    quotes = [(file, block) for file, text in QUOTED.findall(page.read_text()) for block in _blocks(text, "python")]
    assert quotes
    assert [file for file, block in quotes if block not in (ROOT / file).read_text()] == []


@pytest.mark.parametrize("page", TAUGHT, ids=lambda page: page.name)
def test_the_tables_of_a_page_are_read_as_an_experiment(page: Path) -> None:
    for block in _blocks(page.read_text(), "toml"):
        parse(tomllib.loads(block))


@pytest.mark.parametrize("page", [*TAUGHT, *LONG], ids=lambda page: page.name)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in _blocks(page.read_text(), "python"):
        exec(compile(block.replace("rounds=150", "rounds=2"), page.name, "exec"), {})


@pytest.mark.slow
def test_the_sweep_that_asks_whether_a_federation_helps_trains_on_a_table_of_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{'Bern' if i % 3 else 'Chur'},{40 + i},{120 + i % 7},{i % 2}" for i in range(60)]
    Path("patients.csv").write_text("\n".join(["hospital,age,pressure,disease", *rows]))
    (sweep,) = [block for block in _blocks((DOCS / "how-to" / "data.md").read_text(), "toml") if "[axes]" in block]
    Path("helps.toml").write_text(sweep.replace("rounds = 30", "rounds = 1").replace("[0, 1, 2]", "[0]"))
    assert main(["sweep", "helps.toml", "--out", "helps", "--jobs", "1"]) == 0
    assert main(["compare", "helps", "--against", "way=alone", "--of", "client_test/worst_client"]) == 0
    assert len(list(Path("helps").rglob("clients.json"))) == 2
