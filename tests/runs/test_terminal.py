"""What files say reaches the terminal as text: it obeys no control character, and rich takes no markup from it."""

from __future__ import annotations

import io
import json
import logging
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsash.evaluation import Evaluation
from fedsash.lab.cli import main
from fedsash.runs import terminal
from fedsash.runs.summaries import GOAL, goal_content
from fedsash.runs.table import empty_table
from fedsash.system.files import write_table
from fedsash.tasks import Criterion

HOSTILE = "a\x1b]0;title\x07\x1b[2J\rb\x9bc\u202edef\u2066\u200b\x7f[red]x[/red][link=http://x]:+1:"
SHOWN = "a\\x1b]0;title\\x07\\x1b[2J\\rb\\x9bc\\u202edef\\u2066\\u200b\\x7f[red]x[/red][link=http://x]:+1:"


@given(st.text(st.characters(codec=None), max_size=20))
def test_nothing_that_a_terminal_obeys_is_left_and_the_rest_is_as_it_was(text: str) -> None:
    shown = terminal.visible(text)
    assert all(unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown if c != "\n")
    shown.encode()
    if all(c.isprintable() or c == "\n" for c in text):
        assert shown == text


def test_other_languages_stay_as_they_are() -> None:
    text = "Fenêtre 窓 окно παράθυρο ± · …\nلیست"
    assert terminal.visible(text) == text


def test_lines_and_errors_are_shown_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.say(HOSTILE)
    terminal.complain(f"fedsash: {HOSTILE}\nsecond")
    out, error = capsys.readouterr()
    assert (out, error) == (f"{SHOWN}\n", f"fedsash: {SHOWN} second\n")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("columns", "longest"), [("72", 72), ("200", 100)])
def test_prose_is_broken_on_a_terminal_and_nowhere_else(
    columns: str, longest: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "  rounds 12 (full scale: 300)" + " and so on" * 30
    terminal.say_prose(line)
    assert capsys.readouterr().out == f"{line}\n"
    stream = Terminal()
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("COLUMNS", columns)
    terminal.say_prose(line)
    lines = stream.getvalue().splitlines()
    assert longest - 10 < max(map(len, lines)) <= longest
    assert all(each.startswith("  ") for each in lines)
    assert " ".join(stream.getvalue().split()) == line.strip()


@pytest.mark.parametrize("colours", [False, True])
def test_tables_are_too_and_stay_aligned(colours: bool) -> None:
    table, file = empty_table(), io.StringIO()
    for head in (HOSTILE, "number"):
        table.add_column(head, no_wrap=True)
    table.add_row(HOSTILE, "1")
    table.caption = HOSTILE
    terminal.console(file=file, width=300, force_terminal=colours, color_system=None).print(table)
    text = file.getvalue()
    assert text.count(SHOWN) == 3
    head, _, row, *_ = text.splitlines()
    assert head.index("number") == row.index("1", len(SHOWN))
    if not colours:
        assert not {c for c in text if not c.isprintable()} - {"\n"}


def test_warnings_of_the_log_are_too(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show_warnings()
    assert logging.lastResort is not None
    logging.lastResort.handle(logging.makeLogRecord({"msg": "average %s", "args": (HOSTILE,)}))
    assert capsys.readouterr().err == f"average {SHOWN}\n"


def test_commands_show_what_a_strangers_folder_says_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An average, a run, an axis, a title and a reason; and an error that repeats a key of the file."""
    run = tmp_path / "runs" / "x"
    run.mkdir(parents=True)
    row = {"round": 1, "model": HOSTILE, "split": "test", "accuracy": 0.5, "loss": 1.0}
    (run / "metrics.jsonl").write_text(json.dumps({**row, "model": "model"}) + "\n" + json.dumps(row) + "\n")
    write_table(run / GOAL, goal_content(Criterion(), Evaluation()))
    runs = {"x": {HOSTILE: HOSTILE}, HOSTILE: {HOSTILE: "y"}}
    sweep = {"title": HOSTILE, "axes": {HOSTILE: [HOSTILE]}, "runs": runs, "failed": {HOSTILE: HOSTILE}}
    (tmp_path / "sweep.json").write_text(json.dumps(sweep))
    assert main(["compare", str(tmp_path)]) == 0
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    (tmp_path / "e.toml").write_text('"a\\u001b]0;x\\u0007" = 3\nmethod.name = "\\u001b[2J"\n')
    assert main(["partition", str(tmp_path / "e.toml")]) == 2
    assert main(["partition", HOSTILE]) == 2
    with pytest.raises(SystemExit):
        main(["partition", "x", f"--{HOSTILE}"])
    for text in capsys.readouterr():
        assert not {c for c in text if not c.isprintable()} - {"\n"} and "\\x1b" in text


def test_a_name_in_a_sweep_can_not_lead_out_of_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "metrics.jsonl").write_text("")
    (tmp_path / "sweep").mkdir()
    for name in ("../../secret", str(tmp_path / "secret"), "x/../../../secret", "x\0y"):
        content = {"title": "", "axes": {"a": ["1"]}, "runs": {name: {"a": "1"}}, "failed": {}}
        (tmp_path / "sweep" / "sweep.json").write_text(json.dumps(content))
        assert main(["compare", str(tmp_path / "sweep")]) == 2
        assert "which is not in this folder" in capsys.readouterr().err
