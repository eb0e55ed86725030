"""`fedsash average`: windows and EMAs of a finished run are those that it would have observed."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from fedsash.averages import profiles
from fedsash.averages.sum_files import place
from fedsash.evaluation import Score
from fedsash.lab.cli import main
from fedsash.lab.config import ConfigError, parse
from fedsash.lab.studies.afterwards import Afterwards, Judged, best_of, best_window, listed
from fedsash.lab.studies.averages import AveragesStudy, _tie
from fedsash.lab.studies.opened import OpenRun, open_run
from fedsash.runs import RunningSums
from fedsash.runs.records import Records
from fedsash.runs.running_sums import FOLDER
from support.histories import ACCURACY
from support.studies import ENGINE, refused

EXPERIMENT = f"""
rounds = 8
[partition]
name = "iid"
clients = 6
[local]
batch = 50
[sampling]
count = 3
[averages.w4]
name = "window"
size = 4
[averages.all]
name = "window"
size = 50
[averages.ema]
name = "ema"
decay = 0.6
[evaluation]
every = 1
held_out = 0.2
[trajectory]
every = 2
{ENGINE}"""


def trained(folder: Path, name: str, *settings: str) -> Path:
    file = folder / "experiment.toml"
    file.write_text(EXPERIMENT)
    changes = [word for setting in settings for word in ("--set", setting)]
    assert main(["run", str(file), "--out", str(folder / name), "--no-progress", *changes]) == 0
    return folder / name


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs"), "a")


@pytest.fixture(scope="module")
def fine(tmp_path_factory: pytest.TempPathFactory) -> OpenRun:
    """The same run with the sum of every round."""
    return open_run(trained(tmp_path_factory.mktemp("runs"), "fine", "trajectory.every=1"))


@pytest.fixture(scope="module")
def opened(run: Path) -> OpenRun:
    return open_run(run)


def recorded(run: Path, model: str, round: int, split: str = "test") -> tuple[float, float]:
    """Accuracy and loss of the run's own metrics."""
    (row,) = (r for r in Records(run).load().rows() if (r["model"], r["round"], r["split"]) == (model, round, split))
    return row["accuracy"], row["loss"]


# --- one average --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("round", [4, 6, 8])
def test_a_window_has_the_numbers_that_the_run_recorded(round: int, opened: OpenRun) -> None:
    trail = Afterwards(opened, round)
    for name, size in {"w4": 4, "all": round}.items():
        judged = trail.judge(trail.window(size))
        assert (judged.metrics["accuracy"], judged.metrics.loss) == recorded(opened.folder, name, round)
        assert judged.held_out is not None
        assert (judged.held_out["accuracy"], judged.held_out.loss) == recorded(opened.folder, name, round, "held_out")


def test_the_command_writes_the_window_that_the_run_left(run: Path, tmp_path: Path) -> None:
    assert main(["average", str(run), "--window", "4", "--out", str(tmp_path / "w.safetensors")]) == 0
    written, left = load_file(tmp_path / "w.safetensors"), load_file(run / "models" / "w4.safetensors")
    assert written.keys() == left.keys() and all(torch.equal(written[name], left[name]) for name in left)


def test_with_the_sum_of_every_round_an_ema_is_that_of_the_run(fine: OpenRun) -> None:
    ((w, error),) = Afterwards(fine).weighted([profiles.ema(0.6, 8)])
    left = fine.model("ema")
    assert error < 1e-15
    torch.testing.assert_close(w, left, rtol=0, atol=1e-7)


def test_an_ema_from_blocks_is_off_by_no_more_than_its_profile_says(fine: OpenRun, opened: OpenRun) -> None:
    ((w, error),) = Afterwards(opened).weighted([profiles.ema(0.6, 8)])
    trail, pairs = Afterwards(fine), ((1, 2), (3, 4), (5, 6), (7, 8))
    ones = {round: Afterwards(fine, round).window(1).double() for round in range(1, 9)}
    width = max(float(torch.linalg.vector_norm(ones[a] - ones[b])) for a, b in pairs)
    ((real, _),) = trail.weighted([profiles.ema(0.6, 8)])
    assert 0 < float(torch.linalg.vector_norm((w - real).double())) <= error * width + 1e-6


def test_several_emas_in_one_pass_are_those_of_one_each(opened: OpenRun) -> None:
    trail = Afterwards(opened)
    many = [profiles.power(0.01 * k, 8) for k in range(1, 20)]
    for profile, (w, error) in zip(many, trail.weighted(many), strict=True):
        ((alone, same),) = trail.weighted([profile])
        assert torch.equal(w, alone) and error == same


# --- all averages, and the choice among windows -------------------------------------------------------------------


def test_all_averages_are_judged_and_the_choice_is_that_of_held_out_data(opened: OpenRun) -> None:
    ticks: list[tuple[int, int]] = []
    found = AveragesStudy(at=6).write([opened], "x", progress=lambda *tick: ticks.append(tick))
    assert found["sizes"] == [2, 4, 6] and ticks == [(i, 6) for i in range(1, 7)]
    assert found["model"] == recorded(opened.folder, "model", 6)[0]
    for i, size in enumerate(found["sizes"]):
        judged = Afterwards(opened, 6).judge(Afterwards(opened, 6).window(size))
        assert (found["windows"]["value"][i], found["windows"]["loss"][i]) == (
            judged.metrics["accuracy"],
            judged.metrics.loss,
        )
        assert found["emas"]["decay"][i] == pytest.approx((size - 1) / (size + 1))
    held_out = found["windows"]["held_out"]
    assert held_out[found["sizes"].index(found["chosen"])] == max(held_out)
    assert best_window(Afterwards(opened, 6))[0] == found["chosen"]


def test_the_command_draws_and_tells_all_averages(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["average", str(run)]) == 0
    out = capsys.readouterr().out
    found: dict[str, Any] = json.loads((run / "analyses" / "averages.json").read_text())
    assert found["command"] == f"fedsash average {run}" and found["round"] == found["models"] == 8
    assert {path.name for path in (run / "analyses").glob("averages*")} == {
        f"averages.{ending}" for ending in ("json", "png", "pdf")
    }
    assert re.search(rf"^{found['chosen']} \(chosen\)", out, re.M) and "a: averages after round 8" in out


def test_the_command_says_what_one_average_comes_to(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accuracy, loss = recorded(run, "w4", 6)
    held_out_accuracy, held_out_loss = recorded(run, "w4", 6, "held_out")
    assert main(["average", str(run), "--window", "4", "--at", "6"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["the", "test", "set", "held-out", "data"],
        ["accuracy", f"{100 * accuracy:.2f}", "%", f"{100 * held_out_accuracy:.2f}", "%"],
        ["loss", f"{loss:.4g}", f"{held_out_loss:.4g}"],
    ]
    assert main(["average", str(run), "--window", "8"]) == 0
    assert "the window of 8 models, all there are up to round 8" in capsys.readouterr().out
    assert main(["average", str(run), "--window", "auto"]) == 0
    assert "models, the best on held-out data, " in capsys.readouterr().out
    for option, value in (("--ema", "0.6"), ("--power", "0.1")):
        assert main(["average", str(run), option, value]) == 0
        assert "of the weight lies on other models of the same block" in capsys.readouterr().out


def test_the_loss_that_decided_among_equal_windows_is_shown() -> None:
    """The windows of 2, 4 and 6 are equally good, that of 8 is worse."""
    test = Score(round=8, model="average", split="test", loss=0.5, values={"accuracy": 0.75})
    windows = {}
    for size, accuracy, loss in ((2, 0.5, 0.75), (4, 0.5, 0.25), (6, 0.5, 0.5), (8, 0.25, 0.125)):
        values = {"accuracy": accuracy}
        held_out = Score(round=8, model="average", split="held_out", loss=loss, values=values)
        windows[size] = Judged(torch.zeros(1), test, held_out)
    chosen = best_of(windows, ACCURACY)
    assert chosen == 4
    assert _tie(windows, chosen, ACCURACY) == (
        "3 windows are equally good on held-out data; the loss there decided: 0.25 with 4 models, 0.5 with 6"
    )
    assert _tie({8: windows[8], 4: windows[4]}, 4, ACCURACY) == ""


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, line",
    [
        (["--window", 3], "--window = 3: after round 8 a window can have 2, 4, 6, 8 models: it begins where a sum is"),
        (["--window", 4, "--at", 2], "--window = 4: after round 2 a window can have 2 models"),
        (["--window", 0], "--window = 0: after round 8"),
        (["--window", 50], "--window = 50: after round 8"),
        (["--at", 5], "--at = 5: there are sums of the rounds 2, 4, 6, 8"),
        (["--ema", 1.5], "--ema = 1.5: must be at least 0 and below 1"),
        (["--power", 0.5], "--power = 0.5: must be above 0 and at most 0.2887"),
        (["--out", "x.safetensors"], "--out = 'x.safetensors': needs window, ema or power"),
        (["--window", 4, "--ema", 0.5], "--ema = 0.5: can't be asked for together with window"),
    ],
)
def test_what_can_not_be_had_is_refused(
    run: Path, capsys: pytest.CaptureFixture[str], options: list[object], line: str
) -> None:
    assert line in refused(capsys, "average", run, *options)


def test_a_run_without_sums_or_held_out_data_says_what_to_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    none = trained(tmp_path, "none", "trajectory.every=0", "rounds=1")
    assert "Trained again with it and the same seed, it makes the same models" in refused(capsys, "average", none)
    all_train = trained(tmp_path, "all", "evaluation.held_out=0", "rounds=2")
    assert "evaluation.held_out = 0.1, say: the test set is not for choosing" in refused(
        capsys, "average", all_train, "--window", "auto"
    )
    assert AveragesStudy().write([open_run(all_train)], "x")["chosen"] is None


def test_a_damaged_sum_is_refused_and_without_it_the_others_still_do(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "a"))
    damaged = place(copy / FOLDER, 4)
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    assert f"{damaged} is missing or damaged" in refused(capsys, "average", copy, "--window", 4)
    assert main(["average", str(copy), "--window", "6"]) == 0
    damaged.unlink()
    assert "a window can have 2, 6, 8 models" in refused(capsys, "average", copy, "--window", 4)


def test_many_numbers_are_told_by_their_first_and_last() -> None:
    assert listed([10, 20, 30]) == "10, 20, 30" and listed(range(10, 310, 10)) == "10, 20, ..., 300"
    assert listed([1, 2, 3, 4, 6]) == "1, 2, 3, 4, 6"


def test_a_simulated_run_keeps_none() -> None:
    with pytest.raises(ConfigError, match=r"^trajectory: a simulated run keeps no running sums; leave it out$"):
        parse({"network": {}, "trajectory": {"every": 10}})
    assert parse({"trajectory": {"every": 10}}).trajectory == RunningSums(10)


def test_a_window_is_scored_with_the_part_that_clients_keep(tmp_path: Path) -> None:
    opened = open_run(trained(tmp_path, "run", 'personal="classifier"'))
    trail = Afterwards(opened)
    (recorded,) = (
        row
        for row in Records(opened.folder).load().rows()
        if (row["round"], row["model"], row["split"]) == (8, "w4", "held_out")
    )
    found = trail.judge(trail.window(4))
    assert found.metrics.split == "held_out" and found.metrics.row() == recorded | {"model": "average"}
    study = AveragesStudy().measure([opened])
    assert study["split"] == "held_out" and AveragesStudy.picture(study).panels[0].y.label == "accuracy (held_out, %)"
    with pytest.raises(ValueError, match="no state of round 2"):
        Afterwards(opened, 2).judge(trail.window(4))
