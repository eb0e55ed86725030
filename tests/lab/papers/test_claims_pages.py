"""The pages that are made from claims and ledger are what the script gives today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from site_build.claims import CLAIMS_PAGE, PAGES, on_table, rewritten, with_claims

from fedsash.lab.papers import CLAIMS, claims, ima
from fedsash.lab.papers.ledger import Ledger, Row, find
from support.places import ROOT

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]\d+)?")


@pytest.mark.full
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_what_the_script_gives(path: Path) -> None:
    """Up to the rounding of numbers that are calculated, which differs by machine."""
    there = path.read_text()
    made = rewritten(there)
    assert NUMBER.sub("#", made) == NUMBER.sub("#", there), "run python -m site_build.claims"
    values = [list(map(float, NUMBER.findall(text))) for text in (made, there)]
    assert values[0] == pytest.approx(values[1], rel=0.01, abs=1e-6)


@pytest.mark.full
def test_every_claim_of_the_list_stands_on_the_page_once() -> None:
    """49 of tier A, 110 of tier B, 100 of tier C, of which those that nobody tests are named in a sentence alone."""
    page = with_claims(CLAIMS_PAGE.read_text())
    left_out = re.search(r"^Left out are [^:]*:([^.]*)\.", page, flags=re.MULTILINE)
    assert left_out is not None
    names = re.findall(r"[A-Z]\d+", left_out[1])
    tiers = {"A": 0, "B": 0, "C": len(names)}
    for part in re.split(r"^### ", page, flags=re.MULTILINE)[1:]:
        tier = re.match(r".*\(([ABC])\)$", part.partition("\n")[0])
        found = re.findall(r"^(?:\||-) ([A-Z]\d+)(?: \||:)", part.partition("\n## ")[0], flags=re.MULTILINE)
        assert tier is not None
        tiers[tier[1]] += len(found)
        names += found
    assert tiers == {"A": 49, "B": 110, "C": 100}
    assert len(set(names)) == len(names)


def test_every_paper_has_its_part() -> None:
    page = CLAIMS_PAGE.read_text()
    for paper in CLAIMS:
        assert f"<!-- claims: {paper} -->" in page


@pytest.mark.full
@pytest.mark.parametrize("paper", CLAIMS)
def test_the_page_of_a_paper_has_each_headline_claim_with_print_s_verdict(paper: str) -> None:
    page = (CLAIMS_PAGE.parent / f"{paper.lower()}.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if re.match(r"\| [A-Z]\d+[:,]", line)]
    for claim in claims()[paper].values():
        if claim.tier == "A":
            (row,) = [row for row in rows if claim.name in re.split(r"[:,] ?", row[0])]
            finding = claim.in_print()
            if finding is not None and finding.holds is not None:
                assert re.search(rf"\b{finding.verdict}\b", row[1]), claim.name


@pytest.mark.parametrize("name", ["E16", "F16", "F17", "F19"])
def test_claims_whose_numbers_are_made_of_a_table_s_read_the_ledger(name: str) -> None:
    finding = on_table(claims()["IMA"][name], Ledger(ROOT / "results"))
    assert finding is not None
    assert "FedAvg" in finding.words or name == "F17", finding.words


@pytest.mark.full
def test_numbers_that_were_not_run_keep_a_claim_about_a_table_open(tmp_path: Path) -> None:
    """FedProx's two numbers alone, with three seeds and the share that is claimed, are no yes about two methods."""
    claim = claims()["IMA"]["F6"]
    ledger = Ledger(tmp_path)
    assert on_table(claim, ledger) is None
    for start, rounds in (("150", 200), ("FMA", 400)):
        (cell,) = find(ima.TABLE_2, f"FedProx / {start} / rounds")
        values = {str(seed): float(rounds) for seed in range(3)}
        ledger.enter(cell, Row(values, cell.settings[0].words))
    finding = on_table(claim, ledger)
    assert finding is not None
    assert finding.holds is None
    assert finding.words.endswith("2 of 4 numbers were not run")
