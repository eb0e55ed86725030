"""Landscapes of a run: their identities, and that an interrupted one goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from fedsash.lab.cli import main
from fedsash.lab.studies.landscape import LandscapeStudy
from fedsash.lab.studies.opened import OpenRun, open_run
from fedsash.runs.pictures import Points
from support.studies import OWN_SPLIT, analysis, fedsash, recorded, refused


def test_the_places_of_models_on_a_line_have_the_numbers_that_the_run_recorded(opened: OpenRun) -> None:
    found = LandscapeStudy(("model", "w@3"), points=5).write([opened], "x")
    assert found["kind"] == "line" and found["beta"] == [-0.5, 0, 0.5, 1, 1.5]
    for name, place, at in (("model", 3, ("model", 6)), ("w@3", 1, ("w", 3))):
        expected = pytest.approx(recorded(opened.folder, *at), rel=1e-6)
        assert (found["loss"][place], found["error"][place]) == expected
        assert tuple(found["at_models"][name].values()) == expected


def test_the_places_of_models_in_a_plane_have_the_numbers_that_the_run_recorded(opened: OpenRun) -> None:
    found = LandscapeStudy(("round:3", "wide", "ema"), points=3).write([opened], "x")
    for name, at in {"round:3": ("model", 3), "wide": ("wide", 6), "ema": ("ema", 6)}.items():
        assert tuple(found["at_models"][name].values()) == pytest.approx(recorded(opened.folder, *at), rel=1e-6)
    assert found["mean"] == pytest.approx(np.mean(list(found["models"].values()), axis=0))


def test_further_models_are_projected_into_the_plane_and_have_their_own_numbers(
    opened: OpenRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mean of the three is none of the run's models, and is not called one."""
    found = LandscapeStudy(("round:1", "round:3", "wide", "ema", "model"), points=3).write([opened], "x")
    assert list(found["models"]) == ["round:1", "round:3", "wide"] and list(found["projected"]) == ["ema", "model"]
    for name, at in {"ema": ("ema", 6), "model": ("model", 6)}.items():
        assert tuple(found["at_models"][name].values()) == pytest.approx(recorded(opened.folder, *at), rel=1e-6)
        assert found["projected"][name]["distance"] > 0
    words = [row[0] for row in LandscapeStudy.table(found)]
    assert words[4] == f"ema, {found['projected']['ema']['distance']:.3g} away" and "mean of the three" in words
    marks = [layer for layer in LandscapeStudy.picture(found).panels[0].layers if isinstance(layer, Points)]
    assert [list(points.names) for points in marks] == [
        ["round:1", "round:3", "wide"], ["mean of the three"], ["ema", "model"],
    ]  # fmt: skip


def test_a_row_of_a_planes_numbers_is_the_line_through_its_first_two_models(opened: OpenRun) -> None:
    """A row has one y; along y = 0, where they lie, x/||u|| is the line's 1 - beta."""
    names = ("round:1", "round:6", "wide")
    plane, along = (LandscapeStudy(names[:n], points=8).write([opened], "x") for n in (3, 2))
    assert plane["y"][1] == 0
    length = plane["models"]["round:6"][0]
    line = np.interp(1 - np.array(plane["x"]) / length, along["beta"], along["loss"])
    np.testing.assert_allclose(plane["loss"][1], line, rtol=0.1)
    assert np.shape(plane["loss"]) == (len(plane["y"]), len(plane["x"]))


def test_the_centre_of_a_surface_is_its_model_and_runs_share_the_directions(run: Path, opened: OpenRun) -> None:
    assert fedsash("landscape", run, opened.folder, "--models", "w", "--points", 3) == 0
    a, b = (analysis(folder, "surface_w_points-3") for folder in (run, opened.folder))
    assert (a["loss"][1][1], a["error"][1][1]) == pytest.approx(recorded(run, "w", 6), rel=1e-6)
    assert a["loss"] == b["loss"] and a["model"] == "w"
    other = LandscapeStudy(("w",), points=3, seed=1).write([opened], "x")
    assert other["loss"][1][1] == a["loss"][1][1] and other["loss"][0][0] != a["loss"][0][0]


@pytest.mark.pictures
def test_a_model_whose_loss_is_not_finite_is_drawn_without_it(run: Path, opened: OpenRun, tmp_path: Path) -> None:
    sound = load_file(run / "models" / "model.safetensors")
    save_file({name: 1e30 * of for name, of in sound.items()}, tmp_path / "big.safetensors")
    models = f"model,{tmp_path / 'big.safetensors'}"
    assert fedsash("landscape", run, "--models", models, "--points", 3, "--name", "big") == 0
    found = analysis(run, "big")
    assert [at["loss"] is None for at in found["at_models"].values()] == [False, True]
    assert (run / "analyses" / "big.png").exists()


def test_an_interrupted_landscape_goes_on_to_the_same_bytes(run: Path) -> None:
    def interrupt(done: int, points: int) -> None:
        calls.append(done)
        if done == 4:
            raise KeyboardInterrupt

    calls: list[int] = []
    worlds, study = [open_run(run)], LandscapeStudy(("model", "w", "round:1"), points=3)
    study.write(worlds, "x")
    whole = (run / "analyses" / "x.json").read_bytes()
    (run / "analyses" / "x.json").unlink()
    with pytest.raises(KeyboardInterrupt):
        study.write(worlds, "x", progress=interrupt)
    assert [path.name for path in (run / "analyses").iterdir()] == ["x.npz"]
    study.write(worlds, "x", progress=lambda done, _: calls.append(done))
    assert (run / "analyses" / "x.json").read_bytes() == whole and calls == list(range(1, 10))
    assert [path.name for path in (run / "analyses").iterdir()] == ["x.json"]


@pytest.mark.parametrize("content", [b"garbage", b"", b"PK\x03\x04"])
def test_a_damaged_draft_is_one_line_that_names_it(run: Path, content: bytes, capsys: Any) -> None:
    (run / "analyses").mkdir()
    (run / "analyses" / "x.npz").write_bytes(content)
    said = refused(capsys, "landscape", run, "--models", "model,w", "--points", 3, "--name", "x")
    assert "x.npz is damaged: remove it, and the study begins anew" in said


@pytest.mark.slow
def test_ctrl_c_leaves_what_the_same_command_goes_on_from(run: Path) -> None:
    command = ["landscape", str(run), "--models", "model,w,ema", "--points", "77", "--samples", "50", "--name", "x"]
    command.append("--own-code")  # the run is a copy
    process = subprocess.Popen(
        [sys.executable, "-m", "fedsash", *command], stderr=subprocess.PIPE, text=True, cwd=runs_module(run)
    )
    while not (run / "analyses" / "x.npz").exists():
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate()
    assert process.returncode == 130 and error == "stopped; the same command continues from here\n"
    assert main(command) == 0 and not (run / "analyses" / "x.npz").exists()


def runs_module(run: Path) -> Path:
    """A folder with the module of the runs' partition."""
    (run.parent / "own_split.py").write_text(OWN_SPLIT)
    return run.parent
