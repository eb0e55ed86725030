from __future__ import annotations

import io
import itertools
import math
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from fedsash.evaluation import Evaluation
from fedsash.records import summarise
from fedsash.report import Progress, curves, table
from fedsash.report.curves import _own, spread
from fedsash.report.progress import shorten

no_deadline = settings(deadline=None)
SIX = {"model": 0.712, "window5": 0.803, "window20": 0.811, "window100": 0.799, "ema": 0.805, "swa": 0.798}


def history(models: dict[str, list[float | None]], every: int = 10) -> list[dict[str, Any]]:
    return [
        {"round": every * (i + 1), "model": name, "split": "test", "accuracy": accuracy, "loss": 1.0}
        for name, values in models.items()
        for i, accuracy in enumerate(values)
    ]


NO_TEST: list[dict[str, Any]] = [
    {"round": 1, "model": "model", "split": "guard", "refused": [1]},
    {"round": 10, "model": "model", "split": "clients", "accuracy": 0.5, "loss": 1.0},
]


# The table


def printed(summary: dict[str, Any], evaluation: Evaluation | None = None, width: int = 80, **console: Any) -> str:
    file = io.StringIO()
    Console(file=file, width=width, **console).print(table(summary, evaluation))
    return file.getvalue()


def cells(text: str, name: str) -> list[str]:
    line = next(line for line in reversed(text.splitlines()) if line.startswith(name))
    return re.split(r" {2,}", line.strip())


def test_the_table_says_what_the_summary_says() -> None:
    evaluation = Evaluation(last=2, target=0.8)
    models = history({"model": [0.2, 0.6, 0.4], "window20": [0.3, 0.8, 0.8]})
    text = printed({"models": summarise(models, evaluation), "rounds": 30}, evaluation)
    assert cells(text, "model ") == ["model", "40.0 %", "50.0 ± 10.0 %", "60.0 % (20)", "-", "-"]
    assert cells(text, "window20") == ["window20", "80.0 %", "80.0 ± 0.0 %", "80.0 % (20)", "20", "+30.0 points"]
    assert "(last 2)" in text and "to 80.0 %" in text


def test_what_is_not_known_is_a_dash() -> None:
    text = printed({"models": summarise(history({"w": [math.nan]}), Evaluation())})
    assert cells(text, "w ") == ["w", "-", "-", "-", "-", "-"]


def test_six_models_fit_into_a_plain_log_of_80_columns() -> None:
    models: dict[str, list[float | None]] = {name: [accuracy] * 1000 for name, accuracy in SIX.items()}
    evaluation = Evaluation(last=100)
    text = printed({"models": summarise(history(models), evaluation)}, evaluation)
    assert "\x1b" not in text and "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert all(cells(text, f"{name} ")[0] == name for name in SIX)
    assert len({line.rindex("%") for line in text.splitlines() if "±" in line and "0." in line}) == 1, "not aligned"


def test_a_long_name_is_folded_and_a_name_is_no_markup() -> None:
    name = "[red]the mean of the last hundred models[/red]"
    text = printed({"models": summarise(history({name: [0.5]}), Evaluation())})
    assert "[red]" in text and "50.0 ± 0.0 %" in text and "…" not in text


def test_the_highest_mean_is_bold() -> None:
    models = history({"model": [0.5], "a": [0.7], "b": [0.6]})
    text = printed({"models": summarise(models, Evaluation())}, force_terminal=True)
    bold = [line for line in text.splitlines() if "\x1b[1m" in line and "%" in line and "points" in line]
    assert len(bold) == 1 and "70.0 %" in bold[0]


def test_without_evaluations_the_table_says_so() -> None:
    assert "no evaluation on a test set" in printed({"models": summarise(NO_TEST, Evaluation())})


def test_the_table_says_what_held_out_data_chose_and_where_a_run_diverged() -> None:
    models = summarise(history({"model": [0.5], "a": [0.7]}), Evaluation())
    text = printed({"models": models, "chosen": "[a]", "diverged": {"round": 7, "why": "overflow"}})
    assert "the best on held-out data: [a]" in text
    assert "diverged in round 7: overflow; the model has not moved since" in " ".join(text.split())
    assert "diverged" not in printed({"models": models, "chosen": None, "diverged": None})


# The picture


def size(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n") and content.endswith(b"IEND\xaeB`\x82")
    return int.from_bytes(content[16:20]), int.from_bytes(content[20:24])


ODD: dict[str, Any] = {
    "nothing": [],
    "no test set": NO_TEST,
    "one evaluation": history({"model": [0.5], "w": [0.6]}),
    "NaN": history({"model": [math.nan, 0.5, None], "w": [None, None, None]}),
    "only NaN": history({"model": [math.nan]}),
    "all wrong": history({"model": [0.0, 0.0]}),
    "all right": history({"model": [1.0, 1.0]}),
    "twenty averages": history({f"window{i}": [0.5 + i / 100, 0.6] for i in range(20)}),
    "names that look like formulas": history({"$x_1": [0.1, 0.2], "a_b$ $": [0.1, 0.2], "": [0.3, 0.3]}),
    "no runs": {},
    "an empty run": {"a": [], "b": history({"model": [0.1, 0.2]})},
    "many runs": {f"run {i}": history({"model": [0.1, 0.2], "w": [0.2]}) for i in range(7)},
}


@pytest.mark.parametrize("name", ODD)
def test_there_is_a_picture_of_everything(name: str, tmp_path: Path) -> None:
    path = tmp_path / "curves.png"
    curves(ODD[name], path, target=0.95, feed_start=15, title="$5 & <b>")
    width, height = size(path)
    assert width > height > 500
    assert [p.name for p in tmp_path.iterdir()] == ["curves.png"]


def test_lines_and_marks_are_named(tmp_path: Path) -> None:
    first = history({"model": [0.1, 0.5, 0.6], "window20": [0.1, 0.6, 0.7]})
    second = history({"model": [0.1, 0.4, 0.65], "ima": [0.1, 0.6, 0.72]})
    curves({"observed": first, "fed": second}, tmp_path / "c.svg", target=0.75, feed_start=20)
    picture = (tmp_path / "c.svg").read_text()
    for text in ("observed: model", "fed: model", "window20", "ima", "target 75 %", "feeding from round 20"):
        assert f"<!-- {text} -->" in picture
    assert "observed: window20" not in picture, "only what several runs have is named with its run"


def test_an_average_begins_where_it_leaves_the_model() -> None:
    model = {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}
    assert _own({1: 0.1, 2: 0.2, 3: 0.35, 4: 0.4}, model) == {2: 0.2, 3: 0.35, 4: 0.4}
    assert _own({1: 0.0, 2: 0.2}, model) == {1: 0.0, 2: 0.2}
    assert _own({4: 0.5}, {}) == {4: 0.5}
    assert _own(model, model) == model, "a window of one model is the model"


def test_the_same_history_is_the_same_picture(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        curves(history({"model": [0.1, 0.5], "w": [0.2, 0.6]}), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_picture_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "curves.nonsense").write_text("old")
    with pytest.raises(ValueError, match="nonsense"):
        curves(history({"model": [0.1]}), tmp_path / "curves.nonsense")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("curves.nonsense", "old")]


@no_deadline
@given(
    values=st.lists(st.floats(0, 1), min_size=1, max_size=12),
    others=st.lists(st.floats(0, 1), min_size=12, max_size=12),
    gap=st.floats(0.001, 0.08),
)
def test_names_are_spread_as_little_as_possible(values: list[float], others: list[float], gap: float) -> None:
    places = spread(values, gap, 0, 1)
    apart = sorted(places)
    assert all(b - a >= gap - 1e-9 for a, b in itertools.pairwise(apart))
    assert apart[0] >= -1e-9 and apart[-1] <= 1 + 1e-9
    order = sorted(range(len(values)), key=values.__getitem__)
    assert [places[i] for i in order] == apart
    room = 1 - (len(values) - 1) * gap
    other = [room * x + i * gap for i, x in enumerate(sorted(others[: len(values)]))]
    distance = sum((places[i] - values[i]) ** 2 for i in order)
    assert distance <= sum((x - values[i]) ** 2 for i, x in zip(order, other, strict=True)) + 1e-9


@given(values=st.lists(st.integers(0, 20), min_size=1, max_size=10, unique=True))
def test_names_that_are_apart_stay(values: list[int]) -> None:
    assert spread(values, 1, 0, 20) == pytest.approx(values)


# The progress


class Terminal(io.StringIO):
    """A terminal that keeps what is sent to it."""

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """Every line it was sent, the bar's redrawings one by one, without control codes."""
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.getvalue())
        return [line for line in re.split(r"[\r\n]+", plain) if line.strip()]


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch, columns: int = 100, kind: str = "xterm") -> Iterator[Terminal]:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_INTERACTIVE", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setenv("COLUMNS", str(columns))
    with redirect_stdout(Terminal()) as screen:
        yield screen
        assert sys.stdout is screen, "the bar did not give stdout back"


def train(progress: Progress, rounds: int, first: int = 1) -> None:
    for t in range(first, rounds + 1):
        progress.update(t, SIX if t % 10 == 0 else None)


def test_a_log_gets_one_line_of_a_short_run(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(3000, True) as progress:
        train(progress, 3000)
    out, err = capsys.readouterr()
    assert err == "" and out.count("\n") == 1 and "\x1b" not in out
    assert out.startswith("round 3000/3000  0:0") and "model 71.2  window5 80.3  window20 81.1" in out


def test_a_log_gets_lines_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsash.report.progress.LINE", 0.1)
    monkeypatch.setattr("fedsash.report.progress.SAMPLE", 0.01)
    began = time.monotonic()
    with Progress(10**9, True) as progress:
        t = 0
        while time.monotonic() - began < 0.5:
            t += 1
            progress.update(t, {"model": 0.5})
    lines = capsys.readouterr().out.splitlines()
    seen = [int(re.findall(r"\d+", line)[0]) for line in lines]
    assert 3 <= len(lines) <= 2 + (time.monotonic() - began) / 0.1
    assert seen == sorted(set(seen)) and seen[-1] == t
    assert all("left" in line and "/s" in line and "model 50.0" in line for line in lines)


def test_nothing_is_said_twice_or_of_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Progress(10, True):
        pass
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("fedsash.report.progress.LINE", 0.0)
    with Progress(10, True) as progress:
        progress.update(10)
    assert capsys.readouterr().out.count("\n") == 1


def test_disabled_is_silent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def use() -> None:
        progress = Progress(100, False)
        progress.say("before")
        with progress:
            train(progress, 100)
            progress.say("within")

    use()
    with terminal(monkeypatch) as screen:
        use()
    assert screen.getvalue() == "" and capsys.readouterr() == ("", "")


def test_lines_are_said_before_within_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(10, True)
    progress.say("[a] before")
    with progress:
        progress.say("within [/b]")
        train(progress, 10)
    progress.say("after")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["[a] before", "within [/b]"] and lines[2].startswith("round 10/10") and lines[3:] == ["after"]


@pytest.mark.parametrize("columns", [10, 30, 60, 80, 100, 200])
def test_the_bar_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, columns) as screen, Progress(10_000, True) as progress:
        train(progress, 10_000)
    bars = screen.lines()
    assert max(map(len, bars)) <= columns
    assert columns == 10 or all("/" in bar for bar in bars), "one line a bar"
    if columns >= 100:
        assert "10000/10000" in bars[-1] and "━" in bars[-1]
        assert re.findall(r"\d+\.\d", bars[-1]) == [f"{100 * accuracy:.1f}" for accuracy in SIX.values()]
    if columns == 200:
        assert all(f"{name} " in bars[-1] for name in SIX)


def test_lines_stand_above_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as screen, Progress(100, True) as progress:
        train(progress, 50)
        progress.say("round 50: left out the uploads of clients [3]" + "." * 100)
        print("printed")
        train(progress, 100, 51)
    lines = screen.lines()
    said, written = (next(i for i, line in enumerate(lines) if start in line) for start in ("clients [3]", "printed"))
    assert len(lines[said]) > 100, "a line is broken by the terminal, not by us"
    assert said < written < len(lines) - 1 and "100/100" in lines[-1]


def test_an_error_ends_the_bar_and_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as screen, pytest.raises(KeyboardInterrupt), Progress(100, True) as progress:
        train(progress, 7)
        raise KeyboardInterrupt
    assert "7/100" in screen.lines()[-1]
    assert screen.getvalue().rindex("\x1b[?25h") > screen.getvalue().rindex("\x1b[?25l"), "the cursor is hidden"


def test_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, kind="dumb") as screen, Progress(100, True) as progress:
        train(progress, 100)
    assert "\x1b" not in screen.getvalue() and screen.getvalue().count("\n") == 1


def test_a_resumed_run_is_as_fast_as_its_own_rounds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsash.report.progress.SAMPLE", 0.0)
    with Progress(400, True) as progress:
        for t in range(300, 306):
            progress.update(t)
            time.sleep(0.02)
    pace = re.search(r"([\d.]+)/s", capsys.readouterr().out)
    assert pace is not None and 1 < float(pace[1]) <= 50


def test_slow_rounds_have_a_time_each(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsash.report.progress.SAMPLE", 0.0)
    with Progress(7202, True) as progress:
        progress.update(1, {"model": math.nan})
        time.sleep(1.05)
        progress.update(2)
    out = capsys.readouterr().out
    assert re.search(r"0:01, 2:\d\d:\d\d left  1\.\d s each  model nan", out)


def test_an_update_costs_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch), Progress(10**6, True) as progress:
        train(progress, 1000)
        began = time.process_time()
        train(progress, 101_000, 1001)
        seconds = time.process_time() - began
    assert seconds / 100_000 < 20e-6


@given(
    names=st.lists(st.from_regex(r"[a-z][a-z _-]{0,8}[0-9]{0,3}", fullmatch=True), max_size=8), room=st.integers(-5, 80)
)
def test_shortened_names_fit_and_keep_their_numbers(names: list[str], room: int) -> None:
    short = shorten(names, room)
    total = sum(map(len, short))
    for name, cut in zip(names, short, strict=True):
        number = re.sub(r".*?([0-9]*)$", r"\1", name)
        assert cut.endswith(number) and cut and cut[0] == name[0]
        assert name.startswith(cut[: len(cut) - len(number)])
    assert total <= room or all(len(cut.rstrip("0123456789")) == 1 for cut in short)
    assert sum(map(len, names)) > room or short == names


def test_windows_are_told_apart_first() -> None:
    assert shorten(list(SIX), 17) == ["mo", "w5", "w20", "w100", "ema", "swa"]


# All of it


def test_heavy_libraries_are_imported_where_they_are_used() -> None:
    code = "import sys, fedsash.report; print({'matplotlib', 'rich.live', 'rich.table'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
