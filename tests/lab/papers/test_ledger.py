"""The ledger: rows are found, entered, merged and judged; a file that is damaged or forged deceives nobody."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedsash.basics.errors import FedsashError
from fedsash.lab.papers.ledger import Cell, Ledger, Row, cells, find, merge
from fedsash.lab.papers.wima import REPRODUCTIONS, TABLE_2, TABLE_5


def cell(name: str = "CIFAR-10 a=0 / all") -> Cell:
    return find(TABLE_5, name)[0]


def row(values: dict[str, float], **settings: str) -> Row:
    return Row(values, cell().settings[0] | settings, source="a test")


def test_all_printed_numbers_are_cells() -> None:
    assert len(cells(TABLE_2)) == 2 * 63 + 10
    assert len({each.file for each in cells(TABLE_2)}) == len(cells(TABLE_2))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("FedAvg / CIFAR-10 a=0 / WiMA", 1),
        ("fedavg/CIFAR-10 alpha=0/wima", 1),
        ("FedAvg / CIFAR-10 a=0", 2),
    ],
)
def test_a_cell_is_found_by_its_name(name: str, found: int) -> None:
    assert len(find(TABLE_2, name)) == found


def test_an_unknown_cell_is_one_line_that_says_what_there_is() -> None:
    with pytest.raises(FedsashError, match="did you mean FedAvg / CIFAR-10 a=0 / WiMA"):
        find(TABLE_2, "FedAvg / CIFAR-10 a=0 / WiMaa")


def test_seeds_of_one_setting_come_together_and_other_settings_stand_apart(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert ledger.rows(cell()) == []
    assert not ledger.enter(cell(), row({"0": 59.0}))
    assert not ledger.enter(cell(), row({"1": 60.0}))
    assert not ledger.enter(cell(), row({"0": 40.0}, rounds="200"))
    first, second = ledger.rows(cell())
    assert first.values == {"0": 59.0, "1": 60.0}
    assert first.printed_setting(cell())
    assert second.differences(cell()) == ["rounds = 200 (print: 10000)"]


def test_another_value_of_a_seed_does_not_replace_the_first(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.enter(cell(), row({"0": 59.0}))
    assert "seed 0 is there with another value" in ledger.enter(cell(), row({"0": 61.0}))
    assert ledger.rows(cell())[0].values == {"0": 59.0}


def test_only_rows_at_the_printed_setting_are_the_papers_numbers(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.enter(cell(), row({"0": 40.0, "1": 41.0}, rounds="200"))
    assert not ledger.numbers(TABLE_5)
    ledger.enter(cell(), row({"0": 59.0}))
    numbers = ledger.numbers(TABLE_5)
    assert list(numbers) == [("CIFAR-10 a=0", "all", "")]
    assert numbers["CIFAR-10 a=0", "all", ""].values == (59.0,)


def test_a_foreign_row_is_merged_as_what_its_settings_are(tmp_path: Path) -> None:
    theirs, ours = Ledger(tmp_path / "theirs"), Ledger(tmp_path / "ours")
    theirs.enter(cell(), row({"3": 59.5}))
    theirs.enter(cell(), row({"3": 45.0}, **{"local.lr": "0.01"}))
    lines = merge(theirs.folder, ours, REPRODUCTIONS)
    assert lines == [
        "CIFAR-10 a=0 / all: 59.50 from one seed, at the printed setting",
        "CIFAR-10 a=0 / all: 45.00 from one seed, ours: local.lr = 0.01 (print: 0.1)",
    ]
    assert len(ours.rows(cell())) == 2


def test_a_row_that_leaves_settings_out_is_not_taken_for_the_printed_setting() -> None:
    forged = Row({"0": 99.0}, {})
    assert not forged.printed_setting(cell())
    lacking = dict(cell().settings[0])
    del lacking["rounds"]
    assert Row({"0": 1.0}, lacking).differences(cell()) == ["rounds is left out (print: 10000)"]


def test_an_option_that_came_later_makes_no_old_row_another_setting() -> None:
    older = dict(cell().settings[0])
    del older["local.drop_last"]
    assert Row({"0": 1.0}, older).printed_setting(cell())


@pytest.mark.parametrize(
    "content",
    [
        "no JSON",
        "[]",
        json.dumps({"format": 2, "rows": []}),
        json.dumps({"format": 1}),
        json.dumps({"format": 1, "rows": [{"values": {}, "settings": {}}]}),
        json.dumps({"format": 1, "rows": [{"values": {"0": "59"}, "settings": {}}]}),
        json.dumps({"format": 1, "rows": [{"values": {"0": 1e999}, "settings": {}}]}),
        json.dumps({"format": 1, "rows": [{"values": {"0": True}, "settings": {}}]}),
        json.dumps({"format": 1, "rows": ["x"]}),
    ],
)
def test_a_damaged_file_is_left_out_with_a_line(tmp_path: Path, content: str) -> None:
    file = tmp_path / "theirs" / cell().file
    file.parent.mkdir(parents=True)
    file.write_text(content)
    (line,) = merge(tmp_path / "theirs", Ledger(tmp_path / "ours"), REPRODUCTIONS)
    assert line.startswith(f"{file}: left out: ")
    assert not (tmp_path / "ours").exists()


def test_a_cell_that_no_paper_has_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "wima-table-5").mkdir()
    (tmp_path / "wima-table-5" / "mine.json").write_text(json.dumps({"format": 1, "rows": []}))
    (line,) = merge(tmp_path, Ledger(tmp_path / "ours"), REPRODUCTIONS)
    assert "no paper has such a cell" in line


def test_bfloat16_is_a_row_of_its_own(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.enter(cell(), row({"0": 59.0}))
    ledger.enter(cell(), replace(row({"0": 58.9}), precision="bfloat16"))
    assert [each.precision for each in ledger.rows(cell())] == ["full", "bfloat16"]
    assert all(each.printed_setting(cell()) for each in ledger.rows(cell()))
