"""python -m torture [--scale full|short] [--only KIND] [--case N] [--seed S] [--out FOLDER]
python -m torture bottle [--seed N] [--cases N | --minutes M]

Each kind does its cases and counts what must not be: wrong results that were accepted, tracebacks, hangs, crashes,
files left behind, refusals that take long or say nothing. It writes OUT/figures-SCALE.json and, at full scale, the
rows of these kinds in docs/design/reliability.md. The exit code is 1 if there is any finding.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from .frame import HEADINGS, Bench, Figures, Kind, carry_out, markdown, row
from .server import Server

KINDS = (
    *("kills", "file_operations", "damage", "sharing", "full_disk", "endurance", "settings", "data_files", "pages"),
    "bottle",
)
PAGE = Path(__file__).parents[1] / "docs" / "design" / "reliability.md"
BEGIN = "<!-- figures -->\n"
END = "<!-- end of figures -->"


def main() -> int:
    """Do the kinds that were asked for, one after another."""
    if sys.argv[1:2] == ["bottle"]:
        from .bottle.seeds import main as play

        return play(sys.argv[2:])
    given = _arguments()
    out: Path = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    server = Server()
    try:
        for name in given.only or KINDS:
            figures = run(name, given.scale, given.seed, out, server, given.case)
            if given.case is None:
                keep(out / f"figures-{given.scale}.json", name, figures)
            for found in figures.findings:
                print(f"\n{found['sort']}: {found['what']}\n  again: {found['again']}\n{found['output']}")
    finally:
        server.close()
    if given.case is not None:
        return int(bool(figures.findings))
    kinds = {name: Figures(**kept) for name, kept in read(out / f"figures-{given.scale}.json").items()}
    show(kinds)
    if given.scale == "full":
        rows = [row(name, kinds[name]) for name in given.only or KINDS]
        PAGE.write_text(with_rows(PAGE.read_text(), rows))
    return int(any(kinds[name].findings for name in given.only or KINDS))


def run(name: str, scale: str, seed: int, out: Path, server: Server, case: int | None = None) -> Figures:
    """Do the cases of one kind, with a progress bar."""
    from rich.progress import Progress

    kind = cast(Kind, import_module(f"torture.{name}"))
    size = kind.SIZES[scale]
    with Progress() as bar:
        task = bar.add_task(name, total=size)
        return carry_out(
            kind, Bench(name, out / name, seed, server, scale), size, case, lambda n: bar.update(task, completed=n)
        )


def read(file: Path) -> dict[str, Any]:
    """The figures of all kinds so far."""
    return dict(json.loads(file.read_text())) if file.exists() else {}


def keep(file: Path, name: str, figures: Figures) -> None:
    """Add the figures of a kind to those of the other kinds."""
    file.write_text(json.dumps(read(file) | {name: asdict(figures)}, indent=1))


def with_rows(page: str, rows: Sequence[Sequence[str]]) -> str:
    """The page on reliability with these rows in its table, each in place of its kind's; rows of other kinds stay."""
    before, rest = page.split(BEGIN)
    table, after = rest.split(END)
    by_kind: dict[str, Sequence[str]] = {}
    for line in table.splitlines()[2:]:
        known = line.strip("| ").split(" | ")
        by_kind[known[0]] = known
    for cells in rows:
        by_kind[cells[0]] = cells
    ordered = [by_kind[name] for name in KINDS if name in by_kind]
    return f"{before}{BEGIN}{markdown(ordered)}\n{END}{after}"


def show(kinds: dict[str, Figures]) -> None:
    """Print the table."""
    import rich
    from rich.table import Table

    table = Table("kind", "cases", *HEADINGS, "slowest refusal", "time")
    for name, figures in kinds.items():
        table.add_row(*row(name, figures))
    rich.print(table)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m torture", usage=__doc__)
    parser.add_argument("--scale", choices=("full", "short"), default="full")
    parser.add_argument("--only", action="append", choices=KINDS)
    parser.add_argument("--case", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/torture"))
    given = parser.parse_args()
    if given.case is not None and len(given.only or ()) != 1:
        parser.error("--case needs --only KIND")
    return given


if __name__ == "__main__":
    sys.exit(main())
