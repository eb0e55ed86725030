"""The table of a run says what its summary says, and there is a picture of every history."""

from __future__ import annotations

import io
import itertools
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from fedsash.evaluation import Evaluation
from fedsash.lab.records import summarise
from fedsash.lab.report import curves, table
from fedsash.lab.report.curves import _own, spread
from support.histories import NO_TEST, SIX, history

no_deadline = settings(deadline=None)


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
    curves(ODD[name], path, target=0.95, broadcast_start=15, title="$5 & <b>")
    width, height = size(path)
    assert width > height > 500
    assert [p.name for p in tmp_path.iterdir()] == ["curves.png"]


def test_lines_and_marks_are_named(tmp_path: Path) -> None:
    first = history({"model": [0.1, 0.5, 0.6], "window20": [0.1, 0.6, 0.7]})
    second = history({"model": [0.1, 0.4, 0.65], "ima": [0.1, 0.6, 0.72]})
    curves({"observed": first, "fed": second}, tmp_path / "c.svg", target=0.75, broadcast_start=20)
    picture = (tmp_path / "c.svg").read_text()
    for text in ("observed: model", "fed: model", "window20", "ima", "target 75 %", "broadcasting from round 20"):
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


# All of it


def test_heavy_libraries_are_imported_where_they_are_used() -> None:
    code = "import sys, fedsash.lab.report; print({'matplotlib', 'rich.live', 'rich.table'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
