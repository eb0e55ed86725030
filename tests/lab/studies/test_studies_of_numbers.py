"""Studies of a run that learns numbers: the RMSE decides, and less is better."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsash.evaluation import Score
from fedsash.lab.studies.afterwards import Judged, best_of
from fedsash.lab.studies.averages import AveragesStudy
from fedsash.lab.studies.coverage import CoverageStudy
from fedsash.lab.studies.landscape import LandscapeStudy
from fedsash.lab.studies.opened import OpenRun, open_run
from fedsash.runs.records import Records
from fedsash.tasks import Criterion
from support.histories import ACCURACY, RMSE
from support.studies import fedsash, refused

EXPERIMENT = """
rounds = 6
[task]
name = "regression"
[partition]
name = "iid"
clients = 5
[model]
name = "mlp"
hidden = [8]
[local]
lr = 0.01
batch = 20
epochs = 1
[sampling]
count = 3
[averages]
w4 = { name = "window", size = 4 }
[evaluation]
every = 1
last = 2
held_out = 0.2
target = 3.0
[trajectory]
every = 2
[engine]
kind = "sequential"
workers = 1
threads = 1
compile = false
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("numbers")
    (folder / "experiment.toml").write_text(EXPERIMENT)
    assert fedsash("run", folder / "experiment.toml", "--out", folder / "a", "--no-progress") == 0
    return folder / "a"


@pytest.fixture(scope="module")
def opened(run: Path) -> OpenRun:
    return open_run(run)


def recorded(run: Path, model: str, split: str = "test", round: int = 6) -> dict[str, Any]:
    rows = Records(run).load().rows()
    (row,) = (r for r in rows if (r["model"], r["round"], r["split"]) == (model, round, split))
    return row


def test_the_command_shows_numbers_like_the_labels(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedsash("resume", run, "--no-progress") == 0
    out = capsys.readouterr().out
    assert "rmse on the test set; lower is better" in out and "to 3" in out
    assert f"{recorded(run, 'w4')['rmse']:.4g}" in out and "%" not in out


def test_all_windows_are_judged_by_the_metric_and_the_lowest_on_held_out_data_is_chosen(opened: OpenRun) -> None:
    found = AveragesStudy().write([opened], "x")
    assert found["metric"] == {"name": "rmse", "better": "lower", "share": False, "target": 3.0}
    windows = found["windows"]
    assert found["model"] == recorded(opened.folder, "model")["rmse"]
    four = found["sizes"].index(4)
    assert windows["value"][four] == recorded(opened.folder, "w4")["rmse"]
    assert windows["held_out"][four] == recorded(opened.folder, "w4", "held_out")["rmse"]
    assert windows["held_out"][found["sizes"].index(found["chosen"])] == min(windows["held_out"])
    panel = AveragesStudy.picture(found).panels[0]
    assert panel.y.label == "rmse (test)" and panel.name == "rmse"


def test_one_average_has_all_metrics(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedsash("average", run, "--window", 4) == 0
    found = recorded(run, "w4")
    _, heads, *lines = capsys.readouterr().out.splitlines()
    assert heads.split() == ["the", "test", "set", "held-out", "data"]
    on_test = {}
    for line in lines:
        name, value, _ = line.split()
        on_test[name] = value
    assert on_test == {name: f"{found[name]:.4g}" for name in ("rmse", "mae", "r2", "loss")}


def test_the_landscape_is_that_of_the_metric_itself(run: Path, opened: OpenRun, capsys: Any) -> None:
    found = LandscapeStudy(("model", "w4"), points=3).write([opened], "x")
    row = recorded(run, "w4")
    assert found["at_models"]["w4"] == pytest.approx({"loss": row["loss"], "error": row["rmse"]}, rel=1e-6)
    heads = next(iter(LandscapeStudy.table(found)))
    assert heads == ["on the line", "loss", "rmse"]
    assert [panel.y.label for panel in LandscapeStudy.picture(found).panels] == ["loss", "rmse"]
    assert fedsash("landscape", run, "--models", "w4", "--points", 3) == 0
    assert "%" not in capsys.readouterr().out


def test_coverage_has_no_distance_of_labels_that_are_numbers(opened: OpenRun) -> None:
    found = CoverageStudy().measure([opened])
    assert found["distance"] is None and len(CoverageStudy.picture(found).panels) == 2
    assert [row[-2:] for row in list(CoverageStudy.table(found))[1:]] == [["-", "-"]] * len(found["sizes"])


def test_where_more_is_better_the_error_is_the_negative_number_or_what_a_share_lacks() -> None:
    r2 = Criterion("r2", "higher", share=False, target=None)
    assert (r2.error, r2.error_of(0.75)) == ("-r2", -0.75)
    assert (ACCURACY.error, ACCURACY.error_of(0.75)) == ("error", 0.25)
    assert (RMSE.error, RMSE.error_of(0.75)) == ("rmse", 0.75)


def test_of_a_landscape_that_the_loss_decides_the_loss_is_drawn_once(run: Path, tmp_path: Path) -> None:
    file = run.parent / "experiment.toml"
    arguments = ("--out", tmp_path / "b", "--no-progress", "--set", "evaluation.metric=loss", "--set", "rounds=1")
    assert fedsash("run", file, *arguments) == 0
    found = LandscapeStudy(("model",), points=3).write([open_run(tmp_path / "b")], "x")
    assert found["metric"]["name"] == "loss" and found["loss"] == found["error"]
    quantities = {panel.name.partition(",")[0] for panel in LandscapeStudy.picture(found).panels}
    assert quantities == {"loss"}


def judged(rmse: float, loss: float = 1.0) -> Judged:
    metrics = Score(round=1, model="average", split="held_out", loss=loss, values={"rmse": rmse})
    return Judged(torch.zeros(1), replace(metrics, split="test"), metrics, 0.0)


def test_the_lowest_window_is_chosen_equal_ones_by_their_loss_and_never_one_without_a_number() -> None:
    assert best_of({2: judged(3.0), 4: judged(1.0), 6: judged(2.0)}, RMSE) == 4
    assert best_of({2: judged(1.0, 0.5), 4: judged(1.0, 0.25)}, RMSE) == 4
    for order in ((2, 4, 6), (4, 2, 6), (6, 4, 2)):
        windows = {2: judged(float("nan")), 4: judged(2.0), 6: judged(3.0)}
        assert best_of({size: windows[size] for size in order}, RMSE) == 4


def test_without_a_test_set_averages_are_judged_on_held_out_data_and_without_these_one_line_says_so(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--no-progress", "--set", "data.test=0", "--set", "rounds=2")
    assert fedsash("run", run.parent / "experiment.toml", *arguments, "--out", tmp_path / "b") == 0
    assert "rmse on held-out data; lower is better" in capsys.readouterr().out
    assert fedsash("average", tmp_path / "b", "--window", 2) == 0
    assert fedsash("average", tmp_path / "b") == 0
    assert "loss" in capsys.readouterr().out
    more = ("--set", "evaluation.held_out=0")
    assert fedsash("run", run.parent / "experiment.toml", *arguments, *more, "--out", tmp_path / "c") == 0
    line = "has no test set, held-out data or clients' tests to judge an average on"
    assert line in refused(capsys, "average", tmp_path / "c", "--window", 2)
