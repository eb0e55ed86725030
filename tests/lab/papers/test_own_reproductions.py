"""A reproduction of one's own, in a Python file, and a column of one's own in a paper's table."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedsash.lab.cli import main
from fedsash.lab.papers import load
from fedsash.lab.papers.pick import Pick
from fedsash.lab.papers.reproduce import Order, reproduce
from fedsash.lab.papers.reproduction import Scale
from fedsash.lab.papers.tables import Table
from fedsash.runs.records import Records
from fedsash.settings.errors import SettingError
from support.by_default import rotated, some
from support.places import DOCS, ROOT
from support.reproduced import reproduction
from support.sweeps import trains_into, wait_for

OWN = """\
from fedsash.lab.papers.reproduction import Reproduction
from fedsash.lab.papers.tables import Table

MINE = Reproduction(
    name="mine",
    title="two rates",
    paper="mine",
    shows="accuracy on the digits by rate",
    base={
        "rounds": ROUNDS,
        "model": {"name": "mlp", "hidden": [8]},
        "partition": {"clients": 10},
        "evaluation": {"every": 1, "last": 1},
        "engine": {"kind": "sequential", "workers": 1, "compile": False, "memory_format": "contiguous"},
    },
    axes={"seed": [0], "rate": {"slow": {"local": {"lr": 0.01}}, "fast": {"local": {"lr": 0.1}}}},
    tables=[Table(rows="rate", columns="seed", printed={"slow": ["50.0"]})],
)
"""


def written(folder: Path, text: str, rounds: int = 2) -> str:
    file = folder / "mine.py"
    file.write_text(text.replace("ROUNDS", str(rounds)))
    return str(file)


# --- a file of one's own ---------------------------------------------------------------------------------------------


def test_a_python_file_is_reproduced_as_a_papers_table_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = written(tmp_path, OWN), tmp_path / "out"
    assert main(["list", "reproductions", file]) == 0
    assert "full: 2 runs, 4 rounds asked" in capsys.readouterr().out
    assert main(["reproduce", file, "--only", "rate=slow", "--out", str(out), "--no-progress"]) == 0
    table = json.loads((out / "tables" / "mine.json").read_text())
    assert [row[:2] for row in table["rows"]] == [["slow", kind] for kind in ("paper", "here", "difference")]
    assert table["command"] == f"fedsash reproduce {file} --scale full --only rate=slow"


def test_of_several_reproductions_in_a_file_the_name_says_which(tmp_path: Path) -> None:
    """Those of the library, which the file imports, are not its own; what it makes of them is."""
    more = (
        "from fedsash.lab.papers.wima import TABLE_5\n"
        'OTHER = TABLE_5.added("data", "CIFAR-10 a=1", {"partition": {"alpha": 1.0}})\n'
    )
    file = written(tmp_path, OWN + more)
    assert load(f"{file}:OTHER").labels["data"][-1] == "CIFAR-10 a=1"
    assert load(f"{file}:MINE").name == "mine"
    assert load(f"{file}:TABLE_5").name == "wima-table-5"
    with pytest.raises(SettingError, match=r"mine\.py': defines several: must be .*mine\.py:MINE or .*mine\.py:OTHER"):
        load(file)
    assert load(written(tmp_path, OWN)).name == "mine"


def test_a_file_may_import_what_is_beside_it_and_define_dataclasses(tmp_path: Path) -> None:
    (tmp_path / "beside_mine.py").write_text("HOW_LONG = 3\n")
    head = (
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from beside_mine import HOW_LONG\n"
        "@dataclass(frozen=True)\n"
        "class Rate:\n"
        "    of: float = 0.1\n"
    )
    given = load(written(tmp_path, head + OWN.replace("ROUNDS", "HOW_LONG")))
    assert given.plan().runs[0].experiment.rounds == 3
    assert str(tmp_path) not in sys.path


FAULTY = dict(
    [
        ("", "mine.py': defines no Reproduction of its own at its top level"),
        ("from fedsash.lab.papers.wima import TABLE_5", "defines no Reproduction of its own at its top level"),
        ("import fedsash\n\nrates = rate", "mine.py: line 3: NameError: name 'rate' is not defined"),
        ("x = (1\n", "mine.py: line 1: SyntaxError: '(' was never closed"),
        ("import nothing_at_all", "mine.py: line 1: ModuleNotFoundError: No module named 'nothing_at_all'"),
        ("def f():\n    return {}['a']\nf()", "mine.py: line 2: KeyError: 'a'"),
        (OWN.replace('"rate", columns', '"rates", columns'), "line 4: mine.rows = 'rates': there is no such axis"),
        (OWN.replace('name="mine",', ""), "TypeError: Reproduction.__init__() missing 1 required positional"),
        (OWN.replace('"lr": 0.1', '"lrr": 0.1'), "seed=0,fast: unknown key local.lrr; did you mean local.lr?"),
    ]
)
"""The contents of files with an error, and some of the line that names it."""


@pytest.mark.parametrize("text, command", rotated(FAULTY, [["reproduce"], ["list", "reproductions"]]))
def test_a_file_with_an_error_is_one_line(
    text: str, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = FAULTY[text]
    assert main([*command, written(tmp_path, text)]) == 2
    said = capsys.readouterr().err
    assert line in said and said.count("\n") == 1


def test_a_file_or_a_name_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", str(tmp_path / "nowhere.py")]) == 2
    assert "nowhere.py': there is no such file" in capsys.readouterr().err
    assert main(["reproduce", f"{written(tmp_path, OWN)}:MIEN"]) == 2
    assert "mine.py:MIEN': there is no such name; did you mean MINE?" in capsys.readouterr().err


@pytest.mark.slow
def test_a_reproduction_that_was_killed_ends_with_the_same_table(tmp_path: Path) -> None:
    file = written(tmp_path, OWN, rounds=60)
    words = [sys.executable, "-m", "fedsash", "reproduce", file, "--jobs", "1", "--no-progress"]

    def started(out: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*words, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    out, whole = tmp_path / "out", tmp_path / "whole"
    process = started(out)
    wait_for(lambda: any(len(Records(folder).load().rows()) > 5 for folder in (out / "runs").glob("*")))
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    wait_for(lambda: not trains_into(out))
    assert not (out / "runs" / "fast" / "summary.json").exists()
    assert started(out).wait() == 0 and started(whole).wait() == 0
    for name in ("mine.json", "mine.md"):
        assert (out / "tables" / name).read_bytes() == (whole / "tables" / name).read_bytes()


def of_the_page() -> str:
    """The file that the page shows."""
    page = (DOCS / "how-to" / "own-table.md").read_text()
    (shown,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return str(shown)


def test_the_table_of_the_examples_is_a_reproduction() -> None:
    given = load(str(ROOT / "examples" / "own" / "table.py"))
    assert [given.plan(scale, ["seed=0"]).runs for scale in ("full", "tiny")]


ADDED = {
    "COLUMN": ("method", "FedProx 1.0", ["row=FMNIST #C=2"]),
    "ROW": ("row", "FMNIST a=1", ["method=FedAvg"]),
    "SCHEME": ("scheme", "faster", ["method=FedAvg"]),
}
"""What the page adds to a paper's table: its axis, its label, and which of the other runs to train."""


@pytest.mark.parametrize("name", some(ADDED, "ROW", "SCHEME"))
def test_the_labels_that_the_page_adds_are_those_of_runs(name: str, tmp_path: Path) -> None:
    axis, label, _ = ADDED[name]
    mine = load(f"{written(tmp_path, of_the_page())}:{name}")
    for scale in ("full", "tiny"):
        assert mine.plan(scale, [f"{axis}={label}", "seed=0"]).runs


@pytest.mark.full
@pytest.mark.parametrize("name", ADDED)
def test_the_labels_that_the_page_adds_are_trained(name: str, tmp_path: Path) -> None:
    """At tiny, on the digits: the number of the added label stands in the paper's table."""
    axis, label, others = ADDED[name]
    mine = load(f"{written(tmp_path, of_the_page())}:{name}")
    table = reproduce(Order(mine, "tiny", [f"{axis}={label}", *others]), tmp_path / "out", progress=False).tables[0]
    measured = [number["measured"] for number in table["numbers"] if label in (number["row"], number["column"])]
    assert any(each is not None for each in measured)


# --- a column of one's own -------------------------------------------------------------------------------------------


def test_a_label_of_ones_own_is_a_further_row_that_runs_fill(tmp_path: Path) -> None:
    """Here A, the row that the paper prints, and C; the scale lists labels, and C is among them."""
    given = reproduction(scales={"tiny": Scale(only={"method": ["A"]}, changes=lambda run: [{"rounds": 2}])})
    mine = given.added("method", "C", {"method": {"name": "fedprox", "mu": 1.0}})
    (table,) = reproduce(Order(mine, "tiny", ["seed=0"]), tmp_path, progress=False).tables
    assert [row[:2] for row in table["rows"]] == [
        *(["A", kind] for kind in ("paper", "here", "difference")),
        ["C", "here"],
    ]
    assert all(float(cell) > 0 for cell in table["rows"][-1][2:])
    assert given.labels["method"] == ["A", "B"], "the reproduction itself is as it was"


def test_a_label_of_ones_own_is_a_further_column_where_a_table_lists_them() -> None:
    """Under their own names: a table that gives them other names has no name for it."""
    by_name = {each: Pick({"method": (each,)}) for each in ("B", "A")}
    tables = [
        Table(rows="seed", columns=by_name),
        Table(rows="seed", columns={"the first": by_name["A"]}, name="other"),
    ]
    mine = reproduction(tables=tables, figures=[]).added("method", "C", {})
    assert [list(table.columns) for table in mine.bound_tables] == [["B", "A", "C"], ["the first"]]


@pytest.mark.slow
def test_a_method_of_ones_own_is_a_further_column_of_a_papers_table(tmp_path: Path) -> None:
    mine = load("ima-table-1").added("method", "FedProx 1.0", {"method": {"name": "fedprox", "mu": 1.0}})
    order = Order(mine, "tiny", ["method=FedAvg", "method=FedProx 1.0"])
    table = reproduce(order, tmp_path, progress=False).tables[0]
    assert table["columns"][2:] == ["FedAvg", "FedProx 1.0"]
    rows = [row for row in table["rows"] if row[1] == "here"]
    assert rows and all("not run" not in row and "-" not in row for row in rows)
    paper = next(row for row in table["rows"] if row[1] == "paper")
    assert paper[-1] == "?" and paper[-2] != "?"


@pytest.mark.parametrize(
    ("axis", "label", "line"),
    [
        ("methd", "C", "test.axes = 'methd': there is no such axis; did you mean method?"),
        ("seed", "2", "test.axes = 'seed': has values of a key: its labels have no settings"),
        ("method", "A", "test.axes.method = 'A': is there already"),
        ("split", "C", "test.axes = 'split': no table or figure has a row, a column or a line for each of its labels"),
    ],
)
def test_a_label_that_can_not_be_added_is_refused_in_one_line(axis: str, label: str, line: str) -> None:
    given = reproduction(
        axes={"seed": [0, 1], "split": {"IID": {}}, "method": {"A": {}, "B": {}}},
        tables=[Table(rows="method", columns="seed")],
    )
    with pytest.raises(SettingError) as error:
        given.added(axis, label, {})
    assert str(error.value) == line


def test_settings_of_an_added_label_that_no_experiment_takes_name_the_run() -> None:
    with pytest.raises(ValueError, match=r"seed=0,C: unknown key local\.lrr"):
        reproduction().added("method", "C", {"local": {"lrr": 0.1}}).plan()
