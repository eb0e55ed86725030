"""The page of runs that other metrics than the accuracy decide: which one, in which unit, on which samples."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fedsash.evaluation import Curves, Evaluation
from fedsash.lab.cli import main
from fedsash.lab.report.collect import collect
from fedsash.lab.report.comparison import Row
from fedsash.lab.report.page import document
from fedsash.lab.report.page.markup import MISSING
from fedsash.lab.report.page.tables import over_seeds
from fedsash.runs.records import Records
from fedsash.runs.summaries import GOAL, goal_content, summarise
from fedsash.tasks import Criterion
from support.histories import ACCURACY, RMSE, history, history_of
from support.json_files import write_json
from support.pages import HOSTILE, Outline, figure, put, specs, traced, written

FALLING: dict[str, list[float | None]] = {"model": [4.0, 2.0, 3.0], "w": [4.0, 1.5, 1.25]}
CONFIG = "rounds = 3\n[evaluation]\nlast = 2\n"


def page(*folders: Path) -> str:
    return document(collect(list(folders)), "")


def ended(folder: Path, criterion: Criterion = ACCURACY) -> None:
    """Write the summary of a run that has ended."""
    rows = Records(folder).load().rows()
    write_json(
        folder / "summary.json",
        summarise(history_of(rows), Evaluation(), criterion) | {"rounds": rows[-1]["round"]},
    )


def headings(text: str) -> list[str]:
    return re.findall(r'<h3 id="figure-\d+-title">(.*?)</h3>', text)


def test_a_number_that_should_be_low_is_shown_as_it_is(tmp_path: Path) -> None:
    text = page(written(tmp_path / "a", FALLING, CONFIG, Criterion("rmse", "lower", share=False, target=2.0)))
    found, cells = figure(text, "Rmse over the rounds"), Outline(text).cells
    assert traced(found, "a", "w")["y"] == [4.0, 1.5, 1.25]
    row = cells[cells.index("w") : cells.index("w") + 8]
    assert row == ["w", "1.25", "1.375 ± 0.125 (best)", "1.25", "3", "+1.125", "2", "2"]
    assert "Rmse on the test set. Mean and standard deviation" in text and "percentage points" not in text
    assert "per cent" not in text and "accuracy" not in text.lower().replace("accuracy of", "")


def test_a_run_without_a_target_has_none(tmp_path: Path) -> None:
    cells = Outline(page(written(tmp_path / "a", FALLING, CONFIG, RMSE))).cells
    assert cells[cells.index("w") : cells.index("w") + 8][-2:] == [MISSING, MISSING]


def test_held_out_data_stand_in_for_a_test_set_and_the_page_says_so(tmp_path: Path) -> None:
    text = page(written(tmp_path / "a", {"model": [0.25, 0.75]}, CONFIG, split="held_out"))
    assert "Accuracy on held-out data in per cent" in text and "best round was chosen on held-out data" in text
    assert traced(figure(text, "Accuracy over the rounds"), "a", "model")["y"] == [25.0, 75.0]


def test_the_page_says_on_what_the_best_round_was_chosen(tmp_path: Path) -> None:
    folder = written(tmp_path / "a", {"model": [0.25, 0.75, 0.5]}, CONFIG)
    Records(folder).append(history_of(history({"model": [0.5, 0.6, 0.9]}, every=1, split="held_out")))
    text = page(folder)
    cells = Outline(text).cells
    assert "best round was chosen on held-out data" in text
    assert cells[cells.index("model", 1) :][3:5] == ["50.00", "3"]
    write_json(folder / GOAL, goal_content(ACCURACY, Evaluation(last=2, best_on="test")))
    text = page(folder)
    cells = Outline(text).cells
    assert "best round was chosen on the test set" in text and cells[cells.index("model", 1) :][3:5] == ["75.00", "2"]


def test_runs_that_different_metrics_decide_have_pictures_and_tables_of_their_own(tmp_path: Path) -> None:
    runs = [
        written(tmp_path / "share", {"model": [0.25, 0.75]}),
        written(tmp_path / "low", FALLING, criterion=RMSE),
        written(tmp_path / "low2", FALLING, criterion=RMSE),
    ]
    text = page(*runs)
    assert headings(text) == ["Accuracy over the rounds", "Rmse over the rounds"]
    assert "Accuracy on the test set in per cent" in text and "Rmse on the test set. " in text
    found = figure(text, "Rmse over the rounds")
    assert traced(found, "low, every model", "w")["y"] == [4.0, 1.5, 1.25]
    assert not [view for view in found["views"] if "share" in view["label"]]
    assert len(specs(text)) == 2


def test_seeds_that_different_metrics_decide_are_not_compared_and_the_page_says_why(tmp_path: Path) -> None:
    for seed, criterion in enumerate((ACCURACY, RMSE)):
        folder = written(tmp_path / "runs" / f"s{seed}", {"model": [0.5]}, f"seed = {seed}\n", criterion)
        ended(folder, criterion)
    runs = {f"s{seed}": {"seed": str(seed)} for seed in (0, 1)}
    put(tmp_path, "sweep.json", {"title": "t", "axes": {"seed": ["0", "1"]}, "runs": runs, "failed": {}})
    assert "seeds are not compared: s1: rmse on the test set decides" in page(tmp_path)


def test_a_run_of_a_sweep_with_a_damaged_goal_is_left_out(tmp_path: Path) -> None:
    for name in ("good", "bad"):
        written(tmp_path / "runs" / name, {"model": [0.5]})
    (tmp_path / "runs" / "bad" / GOAL).write_text('{"name": "accuracy"}')
    runs: dict[str, dict[str, str]] = {"good": {}, "bad": {}}
    put(tmp_path, "sweep.json", {"title": "s", "axes": {}, "runs": runs, "failed": {}})
    text = page(tmp_path)
    assert re.search(r"run bad is left out: [^<]*goal\.json is damaged", text) and "50.00" in text


def test_a_hostile_name_of_a_metric_is_text(tmp_path: Path) -> None:
    folder = written(tmp_path / "a", {"model": [0.5, 0.25], "w": [0.5, 0.125]}, CONFIG, Criterion(HOSTILE, "lower"))
    text = page(folder)
    assert not {"img"} & set(Outline(text).tags) and "window.hit=1&quot;" in text
    assert main(["report", str(folder), "--out", str(tmp_path / "p.html"), "--figures", str(tmp_path / "f")]) == 0


@pytest.mark.parametrize("value", ["text", [1], True])
def test_a_metric_that_is_no_number_is_one_line(
    value: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    row = {"round": 1, "model": "model", "split": "test", "rmse": value, "loss": 1.0}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    write_json(folder / GOAL, goal_content(RMSE, Evaluation()))
    for command in (["report", str(folder), "--out", str(tmp_path / "p.html")], ["compare", str(folder)]):
        assert main(command) == 2
        out, error = capsys.readouterr()
        assert out == "" and error.count("\n") == 1 and "line 1: rmse = " in error
    assert not (tmp_path / "p.html").exists()


def test_seeds_that_are_not_finished_are_not_among_the_means(tmp_path: Path) -> None:
    for seed in range(3):
        folder = written(tmp_path / "runs" / f"s{seed}", {"model": [0.2 * seed]}, f"seed = {seed}\n")
        if seed < 2:
            ended(folder)
    runs = {f"s{seed}": {"seed": str(seed)} for seed in range(3)}
    put(tmp_path, "sweep.json", {"title": "t", "axes": {"seed": ["0", "1", "2"]}, "runs": runs, "failed": {}})
    text = page(tmp_path)
    assert (
        "10.00 ± 14.14" in Outline(text).cells and "not among the means over seeds: s2, which is not finished" in text
    )
    figures = tmp_path / "figures"
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "p.html"), "--figures", str(figures)]) == 0
    assert sorted(path.stem for path in figures.glob("*.pdf")) == [
        "curves", "s0-curves", "s1-curves", "s2-curves", "seeds",
    ]  # fmt: skip


def test_runs_whose_names_are_alike_for_files_have_pictures_of_their_own(tmp_path: Path) -> None:
    names = ["a.b", "a b", "A-b"]
    for name in names:
        written(tmp_path / "runs" / name, {"model": [0.5, 0.6]})
    put(tmp_path, "sweep.json", {"title": "t", "axes": {}, "runs": {name: {} for name in names}, "failed": {}})
    written(tmp_path / "runs" / "timed", {"model": [0.5]})
    put(tmp_path, "runs/timed/timeline.json", {"intervals": [[0]]})
    put(tmp_path, "sweep.json", {"title": "t", "axes": {}, "runs": {n: {} for n in (*names, "timed")}, "failed": {}})
    figures = tmp_path / "figures"
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "p.html"), "--figures", str(figures)]) == 0
    found = sorted(path.name for path in figures.glob("*.png"))
    assert found == ["A-b-curves-2.png", "a-b-curves.png", "a.b-curves.png", "curves.png", "timed-curves.png"]


def test_the_precision_of_the_steps_is_a_setting_in_which_runs_differ(tmp_path: Path) -> None:
    for name in ("full", "bfloat16"):
        written(tmp_path / name, {"model": [0.5]}, f'[engine]\nprecision = "{name}"\nworkers = {len(name)}\n')
    text = page(tmp_path / "full", tmp_path / "bfloat16")
    assert "engine.precision" in text and "engine.workers" not in text.partition("Complete settings")[0]


def test_only_models_of_the_same_seeds_can_be_the_best() -> None:
    decided = Curves(ACCURACY, "test", {})
    values: dict[str, dict[int, float | None]] = {"model": {0: 0.4, 1: 0.4}, "w": {0: 0.5, 1: 0.5}, "late": {0: 0.9}}
    cells = Outline(over_seeds([Row({}, name, of, decided) for name, of in values.items()])).cells
    assert [cell for cell in cells if "(best)" in cell] == ["50.00 ± 0.00 (best)"]
