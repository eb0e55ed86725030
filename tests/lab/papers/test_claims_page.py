"""The pages that are made from claims and ledger are what the script gives today."""

from __future__ import annotations

import re

import pytest
from benchmarks.claims_page import PAGES, rewritten

from fedsash.lab.papers import CLAIMS

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]\d+)?")


def page(end: str) -> str:
    (found,) = [path for path in PAGES if path.name == end]
    return found.read_text()


@pytest.mark.full
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_what_the_script_gives(path: object) -> None:
    """Up to the rounding of numbers that are calculated, which differs by machine."""
    there = page(path.name)  # type: ignore[attr-defined]
    made = rewritten(there)
    assert NUMBER.sub("#", made) == NUMBER.sub("#", there), "run python -m benchmarks.claims_page"
    values = [list(map(float, NUMBER.findall(text))) for text in (made, there)]
    assert values[0] == pytest.approx(values[1], rel=0.01, abs=1e-6)


def test_every_claim_of_the_list_stands_on_the_page_once() -> None:
    """49 of tier A, 110 of tier B, 100 of tier C."""
    tiers = {"A": 0, "B": 0, "C": 0}
    names = []
    for part in re.split(r"^### ", page("claims.md"), flags=re.MULTILINE)[1:]:
        tier = re.match(r".*\(([ABC])\)$", part.partition("\n")[0])
        found = re.findall(r"^\| ([A-Z]\d+) \|", part.partition("\n## ")[0], flags=re.MULTILINE)
        assert tier is not None
        tiers[tier[1]] += len(found)
        names += found
    assert tiers == {"A": 49, "B": 110, "C": 100}
    assert len(set(names)) == len(names)


def test_every_paper_has_its_part() -> None:
    assert [f"<!-- made: {paper} -->" in page("claims.md") for paper in CLAIMS] == [True] * len(CLAIMS)
