"""Reproductions: that the printed numbers are the papers', which agree with themselves where they can."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsash.lab.papers.printed import PrintedNumber, read_cell
from fedsash.lab.papers.tables import BoundTable
from support.reproduced import load

COUNTS = {"wima-table-2": [11 * 7, 5 * 2], "wima-table-3": [2 * 2], "wima-table-5": [4 * 3]}
COUNTS |= {"ima-table-1": [12 * 8], "ima-table-2": [6 * 5], "ima-table-3": [8 * 5], "fedswa-table-3": [10 * 3, 10 * 3]}


def printed(name: str, number: int = 0) -> BoundTable:
    return load(name).bound_tables[number]


def values(table: BoundTable, cell: int) -> dict[tuple[str, str], float | None]:
    return {
        (row, column): cells[i][cell].value
        for row, cells in table.published.items()
        for i, column in enumerate(table.columns)
    }


@pytest.mark.parametrize("name, counts", COUNTS.items())
def test_a_printed_table_has_all_its_cells(name: str, counts: list[int]) -> None:
    for table, count in zip(load(name).bound_tables, counts, strict=False):
        assert sum(map(len, table.published.values())) == count
        assert all(len(cell) == len(table.table.cells) for cells in table.published.values() for cell in cells)


def test_ima_table_3_has_table_1s_numbers_for_the_exponential_scheme() -> None:
    first, third = values(printed("ima-table-1"), 1), values(printed("ima-table-3"), 0)
    methods = list(printed("ima-table-3").rows)
    assert len(methods) == 8
    for method in methods:
        assert third[method, "Exp"] == first["CIFAR-10 CNN a=0.1", method]


def test_imas_speed_ups_are_the_quotients_of_its_rounds() -> None:
    table = printed("ima-table-2")
    rounds, ratios = values(table, 0), values(table, 1)
    for (method, start), ratio in ratios.items():
        own, base = rounds[method, start], rounds[method, "FMA"]
        assert own and base and ratio == pytest.approx(base / own, abs=0.0101)


def test_wimas_window_of_100_agrees_between_tables_2_and_4() -> None:
    second, fourth = values(printed("wima-table-2"), 1), values(printed("wima-table-2", 1), 0)
    assert second["FedAvg", "CIFAR-100 a=0"] == fourth["W = 100", "CIFAR-100"]
    assert second["FedAvg", "CIFAR-10 a=0"] == pytest.approx(fourth["W = 100", "CIFAR-10"], abs=0.0101)


def test_suspicious_numbers_carry_their_doubt() -> None:
    """75 % of the trend breaks at W = 50; PAM is an inference; Shakespeare is lost; FedDyn diverged."""
    fourth, second = printed("wima-table-2", 1), printed("wima-table-2")
    assert fourth.published["W = 50"][1][0] == PrintedNumber("22.75 ?", 22.75, doubt=True)
    columns = list(second.columns)
    assert all(cells[columns.index("CIFAR-100 PAM")][0].doubt for cells in second.published.values())
    assert all(
        cells[columns.index("Shakespeare")][0] == PrintedNumber("?", doubt=True) for cells in second.published.values()
    )
    assert second.published["FedDyn"][0][0] == PrintedNumber("N/A")


def test_rounds_that_were_not_reached_are_beyond_the_last() -> None:
    for table, rounds in zip(load("fedswa-table-3").bound_tables, (1000, 400), strict=True):
        for cells in table.published.values():
            for accuracy, found in cells:
                assert accuracy.std is not None
                assert found.value == rounds if found.beyond else found.value is not None and found.value < rounds


@given(st.decimals(0, 100, places=2), st.sampled_from(["", " ?"]), st.sampled_from(["", " ±0.3"]))
def test_a_printed_number_is_read_back(value: Any, doubt: str, std: str) -> None:
    found = PrintedNumber.read(f"{value}{std}{doubt}")
    assert found.value == float(value) and found.doubt == bool(doubt) and found.std == (0.3 if std else None)


@pytest.mark.parametrize("text", ["", "about 80", "80.", "-", "80 (81)", "+80"])
def test_what_is_no_printed_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be such as"):
        PrintedNumber.read(text)


def test_a_cell_must_have_its_form() -> None:
    assert [number.value for number in read_cell("80.1 (82)", "{} ({})", 2)] == [80.1, 82]
    with pytest.raises(ValueError, match="must have the form"):
        read_cell("80.1", "{} ({})", 2)
    with pytest.raises(ValueError, match="must have the form"):
        read_cell("80.1 (82)", "{} ({})", 3)
