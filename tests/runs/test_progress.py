"""Progress: a bar that fits its terminal, a line now and then in a log, and next to no time."""

from __future__ import annotations

import io
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from fedsash.runs.progress import Progress
from support.by_default import some
from support.histories import ACCURACY, SIX


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
    values = {name: ACCURACY.text(accuracy) for name, accuracy in SIX.items()}
    for t in range(first, rounds + 1):
        progress.update(t, values if t % 10 == 0 else None)


@dataclass
class Clock:
    """One that goes on when a test says so."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("fedsash.runs.progress.time", SimpleNamespace(monotonic=clock))
    return clock


def test_a_log_gets_one_line_of_a_short_run(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    with Progress(3000, True) as progress:
        train(progress, 3000)
    out, err = capsys.readouterr()
    assert err == "" and out.count("\n") == 1 and "\x1b" not in out
    assert out.startswith("round 3000/3000  0:0") and "model 71.2 %  window5 80.3 %  window20 81.1 %" in out


def test_a_log_gets_a_line_in_ten_seconds_and_one_at_the_end(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    with Progress(10**6, True) as progress:
        for t in range(1, 411):
            clock.now += 0.125
            progress.update(t, {"model": "0.5"})
    lines = capsys.readouterr().out.splitlines()
    assert [int(re.findall(r"\d+", line)[0]) for line in lines] == [80, 160, 240, 320, 400, 410]
    assert all("left" in line and "/s" in line and "model 0.5" in line for line in lines)


def test_nothing_is_said_twice_or_of_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Progress(10, True):
        pass
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("fedsash.runs.progress.LINE", 0.0)
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


@pytest.mark.parametrize("columns", some([10, 30, 60, 80, 120, 200], 30, 80))
def test_the_bar_fits_the_terminal_and_names_stay_whole(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, columns) as screen, Progress(10_000, True) as progress:
        train(progress, 10_000)
    lines = screen.lines()
    assert max(map(len, lines)) <= columns
    if columns >= 60:
        begin = max(i for i, line in enumerate(lines) if "10000/10000" in line)
        assert "━" in lines[begin]
        shown = " ".join(lines[begin + 1 :])
        assert [f"{name} {ACCURACY.text(of)}" in shown for name, of in SIX.items()] == [True] * 6


def test_of_many_values_the_bar_shows_some_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, 60) as screen, Progress(10, True) as progress:
        progress.update(10, {f"average{i}": "50.0 %" for i in range(40)})
    lines = screen.lines()
    begin = max(i for i, line in enumerate(lines) if "10/10" in line)
    assert len(lines) - begin == 5 and lines[-1] == "..."


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_an_evaluation_is_counted_in_the_place_of_the_pace(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, columns) as screen, Progress(10, True) as progress:
        progress.update(0)
        with progress.evaluation() as each:
            for done, _ in enumerate(each(["model", "window5", "ema"])):
                while not any(f"{done}/3" in line for line in screen.lines()):
                    time.sleep(0.01)  # a thread draws
        progress.update(1)
    lines = screen.lines()
    assert max(map(len, lines)) <= columns
    assert any(re.search(r" 0/10 .* evaluating 2/3", line) for line in lines)
    assert " 1/10" in lines[-1] and "evaluating" not in lines[-1]


def test_a_line_above_the_bar_is_broken_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/a/path/that/is/longer/than/a/line" * 4
    with terminal(monkeypatch, 60) as screen, Progress(100, True) as progress:
        train(progress, 50)
        progress.say("engine: one client at a time on 1 thread, contiguous: about 2.1 ms for each round")
        progress.say(f"written: {path}")
        print("printed")
        train(progress, 100, 51)
    lines = screen.lines()
    first = lines.index("engine: one client at a time on 1 thread, contiguous: about")
    assert lines[first + 1] == "  2.1 ms for each round"
    assert any(path in line for line in lines), "a path is broken by the terminal, not by us"
    assert first < lines.index("printed") and any("100/100" in line for line in lines[-3:])


def test_without_colours_nothing_is_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as screen:
        monkeypatch.setenv("NO_COLOR", "1")
        with Progress(100, True) as progress:
            train(progress, 100)
    assert "100/100" in screen.getvalue() and not re.search(r"\x1b\[[0-9;]*3[0-9](;[0-9;]*)?m", screen.getvalue())


def test_an_error_ends_the_bar_and_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as screen, pytest.raises(KeyboardInterrupt), Progress(100, True) as progress:
        train(progress, 7)
        raise KeyboardInterrupt
    assert any("7/100" in line for line in screen.lines()[-3:])
    assert screen.getvalue().rindex("\x1b[?25h") > screen.getvalue().rindex("\x1b[?25l"), "the cursor is hidden"


def test_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, kind="dumb") as screen, Progress(100, True) as progress:
        train(progress, 100)
    assert "\x1b" not in screen.getvalue() and screen.getvalue().count("\n") == 1


def test_a_resumed_run_is_as_fast_as_its_own_rounds(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    with Progress(400, True) as progress:
        for t in range(300, 400):
            progress.update(t)
            clock.now += 0.25
    pace = re.search(r"([\d.]+)/s", capsys.readouterr().out)
    assert pace is not None and float(pace[1]) == 4


def test_slow_rounds_have_a_time_each(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    with Progress(7202, True) as progress:
        progress.update(0, {"model": math.nan})
        progress.update(1)
        clock.now += 1.125
        progress.update(2)
    assert "0:01, 2:15:00 left  1.1 s each  model nan" in capsys.readouterr().out


def test_the_first_round_says_nothing_of_the_pace_since_it_waits_for_the_choice_of_the_engine(
    capsys: pytest.CaptureFixture[str], clock: Clock
) -> None:
    with Progress(156) as progress:
        progress.update(0)
        clock.now += 11
        progress.update(1)
        assert progress.time == "0:11" and progress.pace == ""
        clock.now += 0.25
        progress.update(2)
        assert progress.time == "0:11, 0:38 left" and progress.pace == "4.0/s"
    capsys.readouterr()


def test_the_bar_says_the_time_left_that_follows_from_its_pace(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    with terminal(monkeypatch) as screen, Progress(10) as progress:
        progress.update(0)
        for t in range(1, 11):
            clock.now += 1.25
            progress.update(t)
            if t == 4:
                while not any("4/10" in line for line in screen.lines()):
                    time.sleep(0.01)  # a thread draws
    lines = screen.lines()
    assert any(re.search(r" 4/10 .* 0:05, 0:08 left 1\.2 s each", line) for line in lines)
    assert not any("left" in line for line in lines if " 0/10" in line or "10/10" in line)


def needed(work: Callable[[], object]) -> float:
    """The processor time of some work, in seconds."""
    began = time.process_time()
    work()
    return time.process_time() - began


def test_an_update_costs_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not much more than to write a few numbers as text."""
    with terminal(monkeypatch), Progress(10**6, True) as progress:
        train(progress, 1000)
        seconds = needed(lambda: train(progress, 21_000, 1001))
    dumped = {"round": 1, "values": {name: 0.5 for name in SIX}}
    assert seconds < 5 * needed(lambda: [json.dumps(dumped) for _ in range(20_000)]), (
        "dearer than to write a few numbers"
    )
