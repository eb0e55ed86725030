"""Studies of a finished run: their models, their identities, the commands, and what they refuse."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsash.lab.analysis.clients import client_models
from fedsash.lab.cli import main
from fedsash.lab.records import Records
from fedsash.lab.studies import Opened, open_run
from fedsash.lab.studies.decompositions import decomposition
from fedsash.lab.studies.flatness import flatness
from fedsash.lab.studies.landscapes import View, landscape
from fedsash.lab.studies.opened import spaced
from fedsash.lab.studies.windows import window

ROUNDS, SAVED = 6, [1, 3, 5, 6]
EXPERIMENT = """
rounds = 6
[partition]
name = "own_split:Even"
[local]
batch = 20
[sampling]
count = 3
[averages.w]
name = "window"
size = 3
[averages.wide]
name = "window"
size = 50
[averages.ema]
name = "ema"
decay = 0.5
[averages.late]
name = "window"
size = 2
start = 6
[evaluation]
every = 1
[checkpoint]
keep = [1, 3]
[engine]
kind = "sequential"
workers = 1
compile = false
memory_format = "contiguous"
threads = 1
"""
OWN_SPLIT = """
import numpy as np
from dataclasses import dataclass

@dataclass(frozen=True)
class Even:
    "Client i holds every fifth sample from i on, whatever the seed."
    def __call__(self, labels, seed):
        return [np.arange(i, len(labels), 5) for i in range(5)]
"""


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """For models this small more threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Three runs that differ in their seed, and share out their data in the same way."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "own_split.py").write_text(OWN_SPLIT)
    (folder / "experiment.toml").write_text(EXPERIMENT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(folder), *sys.path])
        for seed in range(3):
            arguments = [folder / "experiment.toml", "--out", folder / f"r{seed}", "--seed", seed, "--no-progress"]
            assert fedsash("run", *arguments, "--set", "checkpoint.keep=[1, 3, 5]") == 0
        yield [folder / f"r{seed}" for seed in range(3)]


@pytest.fixture
def run(runs: list[Path], tmp_path: Path) -> Path:
    """A copy of the first run."""
    return Path(shutil.copytree(runs[0], tmp_path / "run", ignore=shutil.ignore_patterns("analyses")))


@pytest.fixture(scope="module")
def opened(runs: list[Path]) -> Opened:
    """The first run, opened."""
    return open_run(runs[0])


def fedsash(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def analysis(run: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "analyses" / f"{name}.json").read_text())
    return found


def recorded(run: Path, model: str, round: int) -> tuple[float, float]:
    """Loss and error of the run's own metrics."""
    (row,) = (r for r in Records(run).load() if (r["model"], r["round"], r["split"]) == (model, round, "test"))
    return row["loss"], 1 - row["accuracy"]


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert fedsash(*arguments) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1
    return error


# --- models -------------------------------------------------------------------------------------------------------


def test_the_places_of_models_on_a_line_have_the_numbers_that_the_run_recorded(opened: Opened) -> None:
    found = landscape(opened, ["model", "w@3"], "x", View(points=5))
    assert found["kind"] == "line" and found["beta"] == [-0.5, 0, 0.5, 1, 1.5]
    for name, place, at in (("model", 3, ("model", 6)), ("w@3", 1, ("w", 3))):
        expected = pytest.approx(recorded(opened.folder, *at), rel=1e-6)
        assert (found["loss"][place], found["error"][place]) == expected
        assert tuple(found["at_models"][name].values()) == expected


def test_the_places_of_models_in_a_plane_have_the_numbers_that_the_run_recorded(opened: Opened) -> None:
    found = landscape(opened, ["round:3", "wide", "ema"], "x", View(points=3))
    for name, at in {"round:3": ("model", 3), "wide": ("wide", 6), "ema": ("ema", 6)}.items():
        assert tuple(found["at_models"][name].values()) == pytest.approx(recorded(opened.folder, *at), rel=1e-6)
    assert found["mean"] == pytest.approx(np.mean(list(found["models"].values()), axis=0))


def test_a_row_of_a_planes_numbers_is_the_line_through_its_first_two_models(opened: Opened) -> None:
    """A row has one y; along y = 0, where they lie, x/||u|| is the line's 1 - beta."""
    names = ["round:1", "round:6", "wide"]
    plane, along = (landscape(opened, names[:n], "x", View(points=8)) for n in (3, 2))
    assert plane["y"][1] == 0
    length = plane["models"]["round:6"][0]
    line = np.interp(1 - np.array(plane["x"]) / length, along["beta"], along["loss"])
    np.testing.assert_allclose(plane["loss"][1], line, rtol=0.1)
    assert np.shape(plane["loss"]) == (len(plane["y"]), len(plane["x"]))


def test_the_centre_of_a_surface_is_its_model_and_runs_share_the_directions(run: Path, opened: Opened) -> None:
    assert fedsash("landscape", run, opened.folder, "--models", "w", "--points", 3) == 0
    a, b = (analysis(folder, "surface_w") for folder in (run, opened.folder))
    assert (a["loss"][1][1], a["error"][1][1]) == pytest.approx(recorded(run, "w", 6), rel=1e-6)
    assert a["loss"] == b["loss"] and a["model"] == "w"
    other = landscape(opened, ["w"], "x", View(points=3, seed=1))
    assert other["loss"][1][1] == a["loss"][1][1] and other["loss"][0][0] != a["loss"][0][0]


def test_models_have_their_names(opened: Opened) -> None:
    assert opened.rounds == SAVED
    same = (("model", "round:6"), ("model", "model@6"), ("w", "w@6"), ("ema", "ema@6"), ("late", "late@6"))
    assert all(torch.equal(opened.model(a), opened.model(b)) for a, b in same)
    assert torch.equal(opened.model(str(opened.folder / "models" / "w.safetensors")), opened.model("w"))
    assert torch.equal(opened.model("w-best"), opened.state(6).best["w"].w)
    assert not torch.equal(opened.model("round:5"), opened.model("round:6"))


def test_the_mean_of_the_clients_at_which_a_round_arrives_is_the_next_model(opened: Opened) -> None:
    clients = client_models(opened.federation, opened.state(5))
    w = torch.stack([opened.model(f"client:{k}@5") for k in clients.ids])
    assert torch.equal(w, clients.w)
    torch.testing.assert_close(clients.p.float() @ w, opened.model("round:6"))


def test_samples_that_are_evenly_spaced_are_all_if_all_are_wanted() -> None:
    assert spaced(7, 7).tolist() == list(range(7))
    assert spaced(10, 4).tolist() == [0, 2, 5, 7]


# --- decompositions, flatness and windows -------------------------------------------------------------------------


def test_the_squared_error_is_bias_plus_variance_plus_covariance(runs: list[Path]) -> None:
    assert fedsash("decompose", *runs, "--rounds", "3,5", "--name", "three") == 0
    found = analysis(runs[0], "three")
    assert found["runs"] == 3 and found["rounds"] == [3, 5]
    parts = np.array([found[name] for name in ("bias", "variance", "covariance")])
    np.testing.assert_allclose(parts.sum(0), found["squared_error"], rtol=1e-12)
    assert min(found["variance"]) > 0
    assert all(a > b > 0 for a, b in zip(found["locality_max"], found["locality_mean"], strict=True))
    assert all(0 < cka < 1 for cka in found["cka"])


def test_a_run_alone_has_bias_alone_and_beside_itself_neither_variance_nor_covariance(opened: Opened) -> None:
    alone, twice = (decomposition([opened] * n, "x", samples=100) for n in (1, 2))
    assert alone["rounds"] == SAVED
    assert alone["squared_error"] == pytest.approx(alone["bias"], rel=1e-12)
    assert alone["variance"] == alone["covariance"] == [None] * len(SAVED)
    assert twice["squared_error"] == pytest.approx(alone["squared_error"], rel=1e-12)
    assert twice["variance"] == twice["covariance"] == [0] * len(SAVED)


def test_sharpness_grows_with_the_distance_and_eigenvalues_fall(runs: list[Path], opened: Opened) -> None:
    options = ["--eigenvalues", 2, "--rho", "0.001,0.01", "--samples", 50, "--name", "flat"]
    assert fedsash("flatness", runs[0], "--models", "model", *options) == 0
    found = analysis(runs[0], "flat")
    assert found["samples"] == 50 and found["split"] == "train" and list(found["models"]) == ["model"]
    (first, second), rises = found["models"]["model"]["eigenvalues"], found["models"]["model"]["sharpness"]
    assert first >= second and 0 < rises["0.001"] < rises["0.01"]
    ticks: list[tuple[int, int]] = []
    flatness(opened, ["model"], "x", samples=50, eigenvalues=1, progress=lambda *tick: ticks.append(tick))
    assert ticks == sorted(ticks) and ticks[-1] == (100, 100)


@pytest.mark.parametrize("average, size", [("w", 3), ("wide", 6), ("late", 1)])
def test_a_windows_weights_are_those_of_wimas_equation_6(opened: Opened, average: str, size: int) -> None:
    """(t + 1 - tau)/W within the window and 1 before it, W the models that there are; clients share them out."""
    found = window(opened, average, "x")
    assert found["round"] == ROUNDS and found["rounds"] == list(range(1, ROUNDS + 1))
    closed = [min((ROUNDS + 1 - tau) / size, 1) for tau in found["rounds"]]
    assert found["weights"] == pytest.approx(closed, rel=1e-15)
    assert found["distance_rounds"] == list(range(ROUNDS - size + 1, ROUNDS + 1))
    assert sum(found["weights"]) == pytest.approx(np.mean(found["distance_rounds"]))
    assert sum(found["clients"]) == pytest.approx(sum(found["weights"]))


def test_the_window_command_writes_what_the_study_finds(opened: Opened) -> None:
    assert fedsash("window", opened.folder, "--average", "w", "--round", 3) == 0
    command, found = "fedsash window", window(opened, "w", "x", 3)
    written = analysis(opened.folder, "window_w")
    assert written.pop("command").startswith(command)
    assert written == {key: value for key, value in found.items() if key != "command"}


# --- interruptions ------------------------------------------------------------------------------------------------


def test_an_interrupted_landscape_goes_on_to_the_same_bytes(run: Path) -> None:
    def interrupt(done: int, points: int) -> None:
        calls.append(done)
        if done == 4:
            raise KeyboardInterrupt

    calls: list[int] = []
    world, models, view = open_run(run), ["model", "w", "round:1"], View(points=3)
    landscape(world, models, "x", view)
    whole = (run / "analyses" / "x.json").read_bytes()
    (run / "analyses" / "x.json").unlink()
    with pytest.raises(KeyboardInterrupt):
        landscape(world, models, "x", view, progress=interrupt)
    assert [path.name for path in (run / "analyses").iterdir()] == ["x.npz"]
    landscape(world, models, "x", view, progress=lambda done, _: calls.append(done))
    assert (run / "analyses" / "x.json").read_bytes() == whole and calls == list(range(1, 10))
    assert [path.name for path in (run / "analyses").iterdir()] == ["x.json"]


@pytest.mark.slow
def test_ctrl_c_leaves_what_the_same_command_goes_on_from(run: Path) -> None:
    command = ["landscape", str(run), "--models", "model,w", "--points", "6001", "--samples", "50", "--name", "x"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedsash", *command], stderr=subprocess.PIPE, text=True, cwd=runs_module(run)
    )
    until = time.monotonic() + 60
    while not (run / "analyses" / "x.npz").exists():
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130 and error == "stopped; the same command goes on from here\n"
    assert main(command) == 0 and not (run / "analyses" / "x.npz").exists()


def runs_module(run: Path) -> Path:
    """A folder with the module of the runs' partition."""
    (run.parent / "own_split.py").write_text(OWN_SPLIT)
    return run.parent


# --- the commands, and what they refuse ---------------------------------------------------------------------------


def test_a_command_says_what_it_found_and_where_it_is(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["landscape", str(run), "--models", "model,w", "--points", "3"]
    assert main(given) == 0
    out, place = capsys.readouterr().out, run / "analyses" / "line_model_w"
    assert f"{place}.png" in out and f"{place}.json" in out and "lowest" in out
    assert {path.suffix for path in place.parent.iterdir()} == {".json", ".png", ".pdf"}
    before = Path(f"{place}.json").read_bytes()
    command = analysis(run, "line_model_w")["command"]
    assert command == f"fedsash {' '.join(given)} --split test --samples all --seed 0"
    assert main(command.split()[1:]) == 0 and Path(f"{place}.json").read_bytes() == before


@pytest.mark.parametrize(
    "name, line",
    [
        ("nobody", "models/ has ema, ema-best, late,"),
        ("round:4", "no state of round 4; saved are the rounds: 1, 3, 5, 6 (checkpoint.keep keeps more)"),
        ("nobody@3", "round 3 has model, w, wide, ema; saved are"),
        ("late@3", "round 3 has model, w, wide, ema; saved are"),
        ("client:99@3", "in the round after 3 take part:"),
        ("there.safetensors", "there is no file there.safetensors"),
        ("model,w,ema,wide", "must be one, two or three models"),
        ("model,w@6,w", "plane: height of w3"),
    ],
)
def test_unknown_models_are_refused_with_what_there_is(
    runs: list[Path], capsys: pytest.CaptureFixture[str], name: str, line: str
) -> None:
    assert line in refused(capsys, "landscape", runs[0], "--models", name, "--points", 3)


@pytest.mark.parametrize(
    "options, line",
    [
        (["landscape", "--models", "model", "--samples", 10**6], "--samples = 1000000: must be 1 to"),
        (["landscape", "--models", "model", "--points", 1], "must be at least 2 a direction"),
        (["landscape", "--models", "model", "--name", "../x"], "--name = '../x': must be letters"),
        (["window", "--average", "ema"], "has no window 'ema'; it has w, wide, late"),
        (["window", "--average", "late", "--round", 3], "must hold a model"),
        (["window", "--average", "w", "--round", 2], "no state of round 2"),
        (["decompose", "--rounds", "1,2"], "no state of round 2"),
        (["flatness", "--models", "model", "--rho", "-1"], "must be a positive number"),
    ],
)
def test_what_can_not_be_done_is_refused(
    runs: list[Path], capsys: pytest.CaptureFixture[str], options: list[object], line: str
) -> None:
    assert line in refused(capsys, options[0], runs[0], *options[1:])


def test_damaged_states_and_models_and_empty_folders_are_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = run / "state" / "00000003" / "state.safetensors"
    tensors.unlink()
    line = f"{tensors} is missing or damaged"
    assert line in refused(capsys, "landscape", run, "--models", "round:3")
    assert line in refused(capsys, "decompose", run)
    (run / "models" / "w.safetensors").write_bytes(b"nothing")
    assert "can't be read" in refused(capsys, "landscape", run, "--models", "w")
    shutil.rmtree(run / "models")
    assert "models/ has none" in refused(capsys, "landscape", run, "--models", "model")
    shutil.rmtree(run / "state")
    assert "saved are the rounds: none" in refused(capsys, "window", run, "--average", "w")
    assert "no round of which all runs have a state" in refused(capsys, "decompose", run)
    assert "holds no run" in refused(capsys, "flatness", tmp_path, "--models", "model")


def test_a_model_of_another_architecture_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wider.toml").write_text('rounds = 1\n[model]\nname = "mlp"\nhidden = [5]\n')
    assert fedsash("run", tmp_path / "wider.toml", "--out", tmp_path / "wider", "--no-progress") == 0
    other = tmp_path / "wider" / "models" / "model.safetensors"
    assert "as in the run's model" in refused(capsys, "landscape", run, "--models", other)
    assert "must have the model and the clients of" in refused(capsys, "decompose", run, tmp_path / "wider")
