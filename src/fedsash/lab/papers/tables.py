"""A paper's table: the printed numbers, the measured numbers, and their differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from ...settings.errors import check
from .numbers import Key, Numbers
from .pick import ANY, SPEED_UPS, AxisLabels, Pick, Picks, by_label, check_axis
from .printed import PrintedNumber, read_cell
from .results import Measurement, Results

START = Pick(model="model", statistic="last_mean")
DIMS = ("row", "column", "cell")


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
        printed = self.published
        measured = self.measured.value
        if printed.value is None or printed.beyond or measured is None:
            return None
        return measured - printed.value

    def record(self) -> dict[str, Any]:
        """The number as plain data for JSON."""
        measured = self.measured
        return {
            "row": self.row,
            "column": self.column,
            "cell": self.cell,
            "published": self.published.text,
            "doubtful": self.published.doubt,
            "measured": measured.value,
            "std": measured.std,
            "runs": measured.runs,
            "difference": self.difference,
            "why": measured.why,
            "chosen": measured.chosen,
        }


@dataclass(frozen=True)
class Table:
    """A table of a reproduction. Each row, column and cell has a pick; the three combined select a number.

    - `name`: the name of its files; by default that of the reproduction
    - `rows`, `columns`: an axis, a list of axes, or picks by label
    - `cells`: the numbers in one cell, and `form`: how the paper prints them, such as `"{} ({})"`
    - `printed`: what the paper prints: for each row its cells, in the order of the columns. A row that is not in it is
      ours
    - `against`: the runs over which speed-ups are counted: a speed-up is their number of rounds divided by that of the
      cell's own runs
    - `best_over`: an axis, a grid of settings: each number is that of the label which is best at it, of those that its
      pick selects
    """

    rows: Picks
    columns: Picks
    printed: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    name: str = ""
    title: str = ""
    where: Pick = ANY
    cells: Mapping[str, Pick] = field(default_factory=lambda: {"": ANY})
    form: str = "{}"
    against: Pick = ANY
    best_over: str = ""

    def bound(self, axes: AxisLabels, name: str, title: str) -> BoundTable:
        """The table over the axes of its reproduction. Raises `SettingError` for what they don't have."""
        place = self.name or name
        rows = by_label(self.rows, axes, f"{place}.rows")
        columns = by_label(self.columns, axes, f"{place}.columns")
        for pick in (self.where, self.against, *self.cells.values()):
            pick.check(axes, place)
        if self.best_over:
            check_axis(self.best_over, axes, f"{place}.best_over")
        for row in self.printed:
            check(row in rows, f"{place}.printed", row, f"must be one of the rows {', '.join(rows)}")
        numbers = {row: self._printed(row, len(columns), place) for row in rows}
        return BoundTable(self, place, self.title or title, rows, columns, numbers)

    def extended(self, axis: str, label: str) -> Table:
        """The table with a row or a column for one more label, if it lists labels of the axis by their own names."""

        def with_label(picks: Picks) -> Picks:
            if not isinstance(picks, Mapping):
                return picks  # an axis or several: the new label is among theirs by itself
            for name, pick in picks.items():
                if pick != Pick({axis: (name,)}):
                    return picks
            return {**picks, label: Pick({axis: (label,)})}

        return replace(self, rows=with_label(self.rows), columns=with_label(self.columns))

    def _printed(self, row: str, columns: int, place: str) -> tuple[tuple[PrintedNumber, ...], ...]:
        """The numbers that the paper prints in a row; of a column that a reader has added, none."""
        cells = list(self.printed.get(row, ()))
        check(len(cells) <= columns, f"{place}.printed", row, f"has {len(cells)} cells for {columns} columns")
        cells += ["?"] * (columns - len(cells))
        return tuple(read_cell(cell, self.form, len(self.cells)) for cell in cells)


@dataclass(frozen=True)
class BoundTable:
    """A table with the picks of its rows and columns, and the numbers that the paper prints."""

    table: Table
    name: str
    title: str
    rows: Mapping[str, Pick]
    columns: Mapping[str, Pick]
    published: Mapping[str, tuple[tuple[PrintedNumber, ...], ...]] = field(repr=False)

    @property
    def picks(self) -> Iterator[Pick]:
        """What its numbers select."""
        for row, column, cell in product(self.rows, self.columns, self.table.cells):
            yield self.pick(row, column, cell)

    def pick(self, row: str, column: str, cell: str) -> Pick:
        """What selects the runs of one number."""
        return START | self.table.where | self.rows[row] | self.columns[column] | self.table.cells[cell]

    @property
    def picks_on_networks(self) -> list[Pick]:
        """Those of its picks whose runs need a network."""
        picks = []
        for pick in self.picks:
            if pick.on_network:
                picks += [pick, pick | self.table.against]
        return picks

    def printed(self) -> Numbers:
        """The numbers that the paper prints, by row, column and cell. Those that it has not are left out.

        Of a target that was not reached it is the number of rounds without it: 1000 for 1000+.
        """
        values: dict[Key, float] = {}
        for row, column, cell, number in self.places():
            if number.value is not None:
                values[row, column, cell] = number.value
        return Numbers.exact(DIMS, values)

    def deviations(self) -> Numbers:
        """The deviations that the paper prints beside its numbers."""
        values: dict[Key, float] = {}
        for row, column, cell, number in self.places():
            if number.std is not None:
                values[row, column, cell] = number.std
        return Numbers.exact(DIMS, values)

    def numbers(self, results: Results) -> Iterator[Number]:
        """All numbers of the table, row by row."""
        for row, column, cell, number in self.places():
            measured = self.measured(self.pick(row, column, cell), results)
            yield Number(row, column, cell, number, measured)

    def places(self) -> Iterator[tuple[str, str, str, PrintedNumber]]:
        """Each number that a paper could print, with its row, column and cell."""
        for row, cells in self.published.items():
            for column, numbers in zip(self.columns, cells, strict=True):
                for cell, number in zip(self.table.cells, numbers, strict=True):
                    yield row, column, cell, number

    def measured(self, pick: Pick, results: Results) -> Measurement:
        """The measured number of a pick: for a speed-up the quotient of two, over all seeds and in each of them.

        A speed-up is `unreached` in a seed in which one of the two did not reach the target, or neither.
        """
        if pick.statistic not in SPEED_UPS:
            return results.best(pick, self.table.best_over)
        count = Pick(statistic=SPEED_UPS[pick.statistic])
        own = results.best(pick | count, self.table.best_over)
        base = results.best(pick | self.table.against | count, self.table.best_over)
        ratio = None
        if own.value and base.value:
            ratio = base.value / own.value
        ratios = {}
        for seed, rounds in own.reached.items():
            if seed in base.reached:
                ratios[seed] = base.reached[seed] / rounds
        unreached = {}
        own_seeds = {*own.reached, *own.unreached}
        base_seeds = {*base.reached, *base.unreached}
        for seed, rounds in {**base.unreached, **own.unreached}.items():
            if seed in own_seeds & base_seeds:
                unreached[seed] = rounds
        return Measurement(
            ratio,
            runs=own.runs,
            why=own.why or base.why,
            requested=own.requested and base.requested,
            chosen=own.chosen,
            values={} if unreached else ratios,
            reached=ratios,
            unreached=unreached,
        )

    def filled(self, results: Results) -> dict[str, Any]:
        """The table with the measured numbers, in the paper's layout.

        Each row of the paper gives up to three rows: published, measured, and the difference if there is one. Rows and
        columns are left out if none of their runs was asked for. `missing` says why numbers are missing, `chosen` what
        they are the best of."""
        numbers = list(self.numbers(results))
        requested = [number for number in numbers if number.measured.requested]
        requested_columns = {number.column for number in requested}
        columns = [column for column in self.columns if column in requested_columns]
        cells: dict[tuple[str, str], list[Number]] = {}
        for number in numbers:
            cells.setdefault((number.row, number.column), []).append(number)
        lines: list[list[str]] = []
        for row in dict.fromkeys(number.row for number in requested):
            lines += self._lines(row, [cells[row, column] for column in columns])
        return {
            "title": self.title,
            "columns": ["", "", *columns],
            "rows": lines,
            "numbers": [number.record() for number in numbers],
            "missing": _missing(requested),
            "chosen": self._chosen(requested, results),
        }

    def _lines(self, row: str, cells: Sequence[Sequence[Number]]) -> Iterator[list[str]]:
        """The lines of one row of the paper: published, measured, and the difference, each with its cells' texts."""
        published = []
        here = []
        differences = []
        for cell in cells:
            published.append([number.published.text for number in cell])
            here.append([str(number.measured) for number in cell])
            differences.append([_signed(number) for number in cell])
        if _says_more(published, than="?"):
            yield [row, "paper", *map(self._joined, published)]
        yield [row, "here", *map(self._joined, here)]
        if _says_more(differences, than="-"):
            yield [row, "difference", *map(self._joined, differences)]

    def _chosen(self, numbers: list[Number], results: Results) -> list[str]:
        """The grid that numbers are the best of, and what was chosen from it."""
        names: dict[str, list[str]] = {}
        for number in numbers:
            if number.measured.chosen:
                name = ", ".join(label for label in (number.row, number.column, number.cell) if label)
                names.setdefault(number.measured.chosen, []).append(name)
        if not names:
            return []
        axis = self.table.best_over
        where = START | self.table.where
        grid = [label for label in results.sweep.axes[axis] if results.runs(where | Pick({axis: (label,)}))]
        lines = [f"The best over {axis} ({', '.join(grid)}), for each number by itself."]
        for label, places in names.items():
            lines.append(f"{label} was best for {'; '.join(places)}")
        return lines

    def _joined(self, texts: list[str]) -> str:
        """The text of a cell. If all its numbers have the same word, the word is written once."""
        if len(set(texts)) == 1 and texts[0] in ("N/A", "?", "-", "not run"):
            return texts[0]
        first, *rest = self.table.form.split("{}")
        return first + "".join(number + after for number, after in zip(texts, rest, strict=True))


def _signed(number: Number) -> str:
    """The difference to the paper with its sign; "-" if there is none."""
    if number.difference is None:
        return "-"
    return f"{number.difference:+.{number.measured.digits}f}"


def _says_more(cells: Sequence[Sequence[str]], than: str) -> bool:
    """Whether a text in one of the cells is another than this one."""
    return any(text != than for cell in cells for text in cell)


def _missing(numbers: list[Number]) -> list[str]:
    """Why numbers are missing or come from fewer runs. One line for each reason, with its rows."""
    rows: dict[str, dict[str, None]] = {}
    for number in numbers:
        if number.measured.why:
            rows.setdefault(number.measured.why, {})[number.row] = None
    return [f"{', '.join(names)}: {why}" for why, names in rows.items()]
