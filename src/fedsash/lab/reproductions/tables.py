"""A paper's table: the published numbers, the measured numbers, and their differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from ...basics.errors import SettingError
from ..config import ConfigError
from ..config.errors import check_known
from ..config.words import shown
from .pick import SPEED_UPS, AxisLabels, Pick, keyed, mapping, several, text
from .published import PrintedNumber, read_cell
from .results import Measurement, Results

KEYS = {
    "name": "the name of its files; by default that of the reproduction",
    "title": "what stands above it",
    "where": "a pick that all its numbers share",
    "rows": "an axis, a list of axes, or a table with a pick for each row",
    "columns": "the same for its columns",
    "cells": "the picks of the numbers in one cell; by default there is one number",
    "form": "how the paper prints the numbers of a cell, such as `{} ({})`",
    "against": "a pick: the runs over which speed-ups are counted",
    "best_over": "an axis, a grid of settings: each number is that of the label which is best at it",
    "published": "what the paper prints: a row's cells, in the order of the columns",
}
"""The keys of a table, and what they mean."""
START = Pick(model="model", statistic="last_mean")


@dataclass(frozen=True)
class Number:
    """One number of a table: its row, column and position in the cell, the printed and the measured number."""

    row: str
    column: str
    cell: str
    published: PrintedNumber
    measured: Measurement

    @property
    def difference(self) -> float | None:
        """Measured minus published. None if one is missing, or if the paper's runs did not reach the target."""
        printed, found = self.published, self.measured.value
        return None if printed.value is None or printed.beyond or found is None else found - printed.value

    def record(self) -> dict[str, Any]:
        """The number as plain data for JSON."""
        measured = self.measured
        return {
            **{"row": self.row, "column": self.column, "cell": self.cell, "published": self.published.text},
            **{"doubtful": self.published.doubt, "measured": measured.value, "std": measured.std},
            **{"runs": measured.runs, "difference": self.difference, "why": measured.why, "chosen": measured.chosen},
        }


@dataclass(frozen=True)
class Table:
    """A table of a reproduction. Each row, column and cell has a pick; the three combined select a number.

    `cells` are the numbers in one cell, and `form` is how the paper prints them, such as `"{} ({})"`. `published` has
    the cells of each row in the order of the columns. A speed-up is the number of rounds of the runs that `against`
    selects, divided by the number of rounds of the cell's own runs. `best_over` is an axis, a grid of settings: each
    number is then that of the label which is best at it, of those that its pick selects.
    """

    name: str
    title: str
    where: Pick
    rows: Mapping[str, Pick]
    columns: Mapping[str, Pick]
    cells: Mapping[str, Pick]
    form: str
    against: Pick
    best_over: str
    published: Mapping[str, tuple[tuple[PrintedNumber, ...], ...]] = field(repr=False)

    @classmethod
    def of(cls, table: Mapping[str, Any], axes: AxisLabels, name: str, place: str) -> Table:
        """The table that a part of a reproduction's file describes. Raises `ConfigError`."""
        keyed(table, KEYS, place)
        parts = {key: several(table.get(key, {}), axes, f"{place}.{key}") for key in ("rows", "columns")}
        cells = several(table.get("cells", {"": {}}), axes, f"{place}.cells")
        form = text(table.get("form", "{}"), f"{place}.form")
        printed = mapping(table.get("published", {}), f"{place}.published")
        published = {row: _printed(row, printed, form, parts["columns"], cells, place) for row in parts["rows"]}
        for row in printed:
            check_known(row, parts["rows"], f"{place}.published: there is no row")
        picks = {key: Pick.of(table.get(key, {}), axes, f"{place}.{key}") for key in ("where", "against")}
        title, own, best_over = (text(table.get(key, ""), f"{place}.{key}") for key in ("title", "name", "best_over"))
        if best_over:
            check_known(best_over, axes, f"{place}.best_over: there is no axis")
        return cls(
            own or name,
            title,
            START | picks["where"],
            **parts,
            cells=cells,
            form=form,
            against=picks["against"],
            best_over=best_over,
            published=published,
        )

    @property
    def picks_on_networks(self) -> list[Pick]:
        """Those of its picks whose runs need a network."""
        found = [pick for *_, pick in self._picks() if pick.on_network]
        return found + [pick | self.against for pick in found if pick.statistic in SPEED_UPS]

    def numbers(self, results: Results) -> Iterator[Number]:
        """Every number, row by row."""
        for row, (i, column), (j, cell), pick in self._picks():
            yield Number(row, column, cell, self.published[row][i][j], self._measured(pick, results))

    def _picks(self) -> Iterator[tuple[str, tuple[int, str], tuple[int, str], Pick]]:
        """The row, the column and the cell of each number, with their places, and what it selects."""
        for row, column, cell in product(self.rows, enumerate(self.columns), enumerate(self.cells)):
            pick = self.where | self.rows[row] | self.columns[column[1]] | self.cells[cell[1]]
            yield row, column, cell, pick

    def _measured(self, pick: Pick, results: Results) -> Measurement:
        if pick.statistic not in SPEED_UPS:
            return results.best(pick, self.best_over)
        count = Pick(statistic=SPEED_UPS[pick.statistic])
        own, base = (results.best(each | count, self.best_over) for each in (pick, pick | self.against))
        ratio = base.value / own.value if own.value and base.value else None
        why, asked = own.why or base.why, own.asked and base.asked
        return Measurement(ratio, runs=own.runs, why=why, asked=asked, chosen=own.chosen)

    def filled(self, results: Results) -> dict[str, Any]:
        """The table with the measured numbers, in the paper's layout.

        Each row of the paper gives up to three rows: published, measured, and the difference if there is one. Rows and
        columns are left out if none of their runs was asked for. `missing` says why numbers are missing, `chosen` what
        they are the best of."""
        numbers = list(self.numbers(results))
        asked = [number for number in numbers if number.measured.asked]
        columns = [column for column in self.columns if any(number.column == column for number in asked)]
        lines: list[list[str]] = []
        for row in dict.fromkeys(number.row for number in asked):
            cells = [[n for n in numbers if (n.row, n.column) == (row, column)] for column in columns]
            printed = [[number.published.text for number in cell] for cell in cells]
            kinds = {"paper": printed} if any(text != "?" for cell in printed for text in cell) else {}
            kinds["here"] = [[str(number.measured) for number in cell] for cell in cells]
            gaps = [[_signed(number) for number in cell] for cell in cells]
            kinds |= {"difference": gaps} if any(text != "-" for cell in gaps for text in cell) else {}
            lines += [[row, kind, *map(self._put, texts)] for kind, texts in kinds.items()]
        return {
            "title": self.title,
            "columns": ["", "", *columns],
            "rows": lines,
            "numbers": [number.record() for number in numbers],
            "missing": _missing(asked),
            "chosen": self._chosen(asked, results),
        }

    def _chosen(self, numbers: list[Number], results: Results) -> list[str]:
        """The grid that numbers are the best of, and what was chosen from it."""
        found: dict[str, list[str]] = {}
        for number in numbers:
            if number.measured.chosen:
                name = ", ".join(filter(None, (number.row, number.column, number.cell)))
                found.setdefault(number.measured.chosen, []).append(name)
        if not found:
            return []
        axis = self.best_over
        grid = [label for label in results.sweep.axes[axis] if results.runs(self.where | Pick({axis: (label,)}))]
        lines = [f"{label} was best for {'; '.join(names)}" for label, names in found.items()]
        return [f"The best over {axis} ({', '.join(grid)}), for each number by itself.", *lines]

    def _put(self, texts: list[str]) -> str:
        """The text of a cell. If all its numbers have the same word, the word is written once."""
        if len(set(texts)) == 1 and texts[0] in ("N/A", "?", "-", "not run"):
            return texts[0]
        first, *rest = self.form.split("{}")
        return first + "".join(number + after for number, after in zip(texts, rest, strict=True))


def _printed(
    row: str, printed: Mapping[str, Any], form: str, columns: Mapping[str, Pick], cells: Mapping[str, Pick], place: str
) -> tuple[tuple[PrintedNumber, ...], ...]:
    """The numbers that the paper prints in a row."""
    given = printed.get(row, ["?"] * len(columns))
    place = f"{place}.published.{shown(row)}"
    if not isinstance(given, list) or len(given) != len(columns):
        raise ConfigError(f"{place} = {shown(given)}: must be a list of {len(columns)} cells, one a column")
    try:
        return tuple(read_cell(text(cell, place), form, len(cells)) for cell in given)
    except SettingError as error:
        raise ConfigError(f"{place}: {error}") from error


def _signed(number: Number) -> str:
    return "-" if number.difference is None else f"{number.difference:+.{number.measured.digits}f}"


def _missing(numbers: list[Number]) -> list[str]:
    """Why numbers are missing or come from fewer runs. One line for each reason, with its rows."""
    rows: dict[str, dict[str, None]] = {}
    for number in numbers:
        if number.measured.why:
            rows.setdefault(number.measured.why, {})[number.row] = None
    return [f"{', '.join(names)}: {why}" for why, names in rows.items()]
