"""The table of a run says what its summary says."""

from __future__ import annotations

import io
import math
import re
import sys
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

import fedsash.runs
from fedsash.evaluation import Evaluation
from fedsash.runs import terminal
from fedsash.runs.summaries import summarise
from fedsash.runs.table import table
from fedsash.tasks import Criterion
from support.histories import ACCURACY, NO_TEST, RMSE, SIX, history, history_of


def printed(summary: dict[str, Any], width: int = 80, **console: Any) -> str:
    file = io.StringIO()
    terminal.console(file=file, width=width, **console).print(table(summary))
    return file.getvalue()


def cells(text: str, name: str) -> list[str]:
    line = next(line for line in reversed(text.splitlines()) if line.startswith(name))
    return re.split(r" {2,}", line.strip())


def test_the_table_says_what_the_summary_says() -> None:
    evaluation = Evaluation(last=2, target=0.8)
    models = history({"model": [0.2, 0.6, 0.4], "window20": [0.3, 0.8, 0.8]})
    text = printed(summarise(history_of(models), evaluation, ACCURACY))
    assert cells(text, "model ") == ["model", "40.0 %", "50.0 ± 10.0 %", "60.0 % (20)", "-", "-"]
    assert cells(text, "window20") == ["window20", "80.0 %", "80.0 ± 0.0 %", "80.0 % (20)", "20", "+30.0 points"]
    assert "(last 2)" in text and "to 80 %" in text and "chosen on test" in text and "accuracy" not in text


def test_the_head_counts_the_evaluations_that_there_were() -> None:
    summary = summarise(history_of(history({"model": [0.2, 0.6, 0.4]})), Evaluation(last=10), ACCURACY)
    assert summary["averaged"] == 3 and "(last 3)" in printed(summary)


def test_what_is_not_known_is_a_dash() -> None:
    text = printed(summarise(history_of(history({"w": [math.nan]})), Evaluation(), ACCURACY))
    assert cells(text, "w ") == ["w", "-", "-", "-", "-", "-"]


def test_six_models_fit_into_a_plain_log_of_80_columns() -> None:
    models: dict[str, list[float | None]] = {name: [accuracy] * 1000 for name, accuracy in SIX.items()}
    evaluation = Evaluation(last=100)
    text = printed(summarise(history_of(history(models)), evaluation, ACCURACY))
    assert "\x1b" not in text and "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert all(cells(text, f"{name} ")[0] == name for name in SIX)
    assert len({line.rindex("%") for line in text.splitlines() if "±" in line and "0." in line}) == 1, "not aligned"


def test_a_long_name_is_folded_and_a_name_is_no_markup() -> None:
    name = "[red]the mean of the last hundred models[/red]"
    text = printed(summarise(history_of(history({name: [0.5]})), Evaluation(), ACCURACY))
    assert "[red]" in text and "50.0 ± 0.0 %" in text and "…" not in text


def test_the_best_mean_is_bold() -> None:
    models = history({"model": [0.5], "a": [0.7], "b": [0.6]})
    text = printed(summarise(history_of(models), Evaluation(), ACCURACY), force_terminal=True)
    bold = [line for line in text.splitlines() if "\x1b[1m" in line and "%" in line and "points" in line]
    assert len(bold) == 1 and "70.0 %" in bold[0]
    text = printed(summarise(history_of(history(LOW, metric="rmse")), Evaluation(), RMSE), force_terminal=True)
    bold = [line for line in text.splitlines() if "\x1b[1m" in line and "w20" in line]
    assert len(bold) == 1 and "1.25" in bold[0]


def test_without_evaluations_the_table_says_so() -> None:
    text = " ".join(printed(summarise(history_of(NO_TEST), Evaluation(), ACCURACY)).split())
    assert "no evaluation: none is due yet, or there is no test set, and evaluation.held_out is 0" in text


def test_the_table_says_what_held_out_data_chose_and_since_when_a_run_is_stuck() -> None:
    summary = summarise(history_of(history({"model": [0.5], "a": [0.7]})), Evaluation(), ACCURACY)
    text = printed(summary | {"chosen": "[a]", "stuck": {"round": 7, "why": "overflow"}})
    assert "the best on held-out data: [a]" in text
    assert "stuck since round 7: overflow" in " ".join(text.split())
    assert "stuck" not in printed(summary | {"stuck": None})


LOW: dict[str, list[float | None]] = {"model": [2.5, 1500.0], "w20": [1.25, 1.25]}


def test_what_should_be_low_is_shown_as_it_is_and_the_table_says_what_it_is() -> None:
    evaluation = Evaluation(last=1)
    text = printed(summarise(history_of(history(LOW, metric="rmse")), evaluation, replace(RMSE, target=0.0625)))
    assert cells(text, "model ") == ["model", "1500", "1500 ± 0", "2.5 (10)", "-", "-"]
    assert cells(text, "w20") == ["w20", "1.25", "1.25 ± 0", "1.25 (10)", "-", "+1499"]
    assert "%" not in text and "points" not in text
    assert "rmse on the test set; lower is better" in text and "to 0.0625" in text


def test_without_a_target_its_column_names_none() -> None:
    assert "to target" in printed(summarise(history_of(history(LOW, metric="rmse")), Evaluation(), RMSE)).replace(
        "\n", " "
    )


def test_a_target_has_all_its_digits() -> None:
    text = printed(summarise(history_of(history({"model": [0.9]})), Evaluation(), Criterion(target=0.9275)))
    assert "to 92.75 %" in text


def test_the_heads_say_on_which_data_the_best_round_was_chosen() -> None:
    rows = history({"model": [0.5, 0.6]}) + history({"model": [0.5, 0.4]}, split="held_out")
    text = printed(summarise(history_of(rows), Evaluation(), ACCURACY))
    assert "chosen on held-out" in text and cells(text, "model")[3] == "50.0 % (10)"
    text = printed(summarise(history_of(rows), Evaluation(best_on="test"), ACCURACY))
    assert "chosen on test" in text and cells(text, "model")[3] == "60.0 % (20)"


def test_without_a_test_set_the_table_is_that_of_held_out_data() -> None:
    text = printed(
        summarise(history_of(history({"model": [0.5], "w": [0.75]}, split="held_out")), Evaluation(), ACCURACY)
    )
    assert "accuracy on held-out data; higher is better" in text and "the best on held-out data: w" in text


def test_heavy_libraries_are_imported_where_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """They can't be imported while the room of runs is imported anew."""
    monkeypatch.setattr(fedsash, "runs", fedsash.runs)
    for name in [name for name in sys.modules if name.startswith("fedsash.runs")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("matplotlib", "plotly", "rich.live", "rich.table"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("table", "progress", "pictures.paper", "pictures.page"):
        import_module(f"fedsash.runs.{name}")


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_on_a_narrow_terminal_no_name_and_no_number_is_lost(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    long = "the_average_of_the_last_hundred"
    rows = history({"model": [0.5], "window20": [0.625], long: [0.75]}, metric="accuracy")
    terminal.show(table(summarise(history_of(rows), Evaluation(), ACCURACY)))
    shown = capsys.readouterr().out
    assert "…" not in shown and "window20 " in shown
    assert all(number in shown for number in ("50.0 %", "62.5 %", "75.0 %", "+12.5 points", "+25.0 points"))
    assert (long in shown) == (columns > 80) and long[:24] in shown
