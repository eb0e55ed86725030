"""TensorBoard, W&B, MLflow and Trackio get every number once, also in resumed runs, forks and sweeps."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedsash import Callback, Evaluation, Fork, RunError, SettingError
from fedsash.client.messages import RoundReport
from fedsash.extend import LiveRun
from fedsash.lab.config import ConfigError, parse
from fedsash.runs import MLflow, TensorBoard, Trackio, WandB
from fedsash.runs.callbacks import Track
from fedsash.runs.callbacks.rows import numbers
from fedsash.runs.callbacks.wandb import records
from fedsash.testing import small_federation
from support.observing import go_on, observed, start

Points = dict[str, list[tuple[int, float]]]


def world() -> Any:
    return observed(evaluation=Evaluation(every=1, last=1, held_out=0.2, clients=True))


def expected(rows: list[dict[str, Any]]) -> Points:
    """Every number of some rows under the name `MODEL/SPLIT/METRIC`."""
    found: Points = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, int | float) and name != "round" and math.isfinite(value):
                found.setdefault(f"{row['model']}/{row['split']}/{name}", []).append((row["round"], value))
    return found


def board(folder: Path) -> Points:
    """What TensorBoard shows."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: Points = {}
    for run in (folder / "tensorboard").iterdir():
        events = EventAccumulator(str(run))
        events.Reload()
        for tag in events.Tags()["scalars"]:
            found[f"{run.name}/{tag}"] = [(event.step, event.value) for event in events.Scalars(tag)]
    return found


def alike(found: Points, wanted: Points) -> bool:
    return found.keys() == wanted.keys() and all(
        [step for step, _ in found[name]] == [step for step, _ in points]
        and [value for _, value in found[name]] == pytest.approx([value for _, value in points], rel=1e-6)
        for name, points in wanted.items()
    )


def in_ten_seconds(patch: pytest.MonkeyPatch) -> None:
    """TensorBoard reads files by their names, which have whole seconds and then a number as text."""
    from tensorboard.summary.writer import event_file_writer

    later = SimpleNamespace(**vars(time) | {"time": lambda: time.time() + 10})
    patch.setattr(event_file_writer, "time", later)


def test_the_numbers_of_a_row_are_its_finite_numbers() -> None:
    row = {"round": 3, "model": "w", "split": "test", "loss": 2.0, "f1": None, "classes": [1.0], "auc": math.nan}
    assert numbers(row | {"better": 2, "flag": True}) == {"loss": 2.0, "better": 2.0}


def test_tensorboard_gets_every_number_and_a_resumed_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    start(world(), 5, tmp_path, callbacks=[TensorBoard()], until=3)
    in_ten_seconds(monkeypatch)
    result = go_on(world(), 5, tmp_path, callbacks=[TensorBoard()])
    assert alike(board(tmp_path), expected(result.history.rows()))


def test_tensorboard_that_is_added_later_gets_the_rows_before_it_too(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    start(world(), 5, tmp_path, until=3)
    result = go_on(world(), 5, tmp_path, callbacks=[TensorBoard()])
    assert alike(board(tmp_path), expected(result.history.rows()))


def test_a_fork_begins_with_the_rows_that_it_takes_over(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    start(world(), 5, tmp_path / "a", until=3)
    result = start(world(), 5, tmp_path / "b", fork=Fork(tmp_path / "a", 3), callbacks=[TensorBoard()])
    assert alike(board(tmp_path / "b"), expected(result.history.rows()))


def test_a_run_that_was_killed_replaces_what_it_had_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorBoard hides the points of later rounds that an earlier session has left."""
    pytest.importorskip("tensorboard")

    class Dies(Callback):
        def evaluation(self, run: LiveRun, metrics: object) -> None:
            if run.round == 5:
                raise KeyboardInterrupt

    import shutil

    with pytest.raises(KeyboardInterrupt):
        start(world(), 7, tmp_path, every=2, callbacks=[TensorBoard(), Dies()])
    shutil.rmtree(tmp_path / "state" / "00000005")
    in_ten_seconds(monkeypatch)
    result = go_on(world(), 7, tmp_path, callbacks=[TensorBoard()])
    assert alike(board(tmp_path), expected(result.history.rows()))


@pytest.mark.parametrize("callback", [TensorBoard(), WandB(), MLflow(), Trackio()], ids=lambda it: type(it).__name__)
def test_without_the_library_one_line_says_what_to_install(
    callback: Callback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = type(callback).__name__.lower()
    monkeypatch.setitem(sys.modules, library, None)
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=rf'pip install "fedsash\[{library}\]"'):
        start(world(), 1, tmp_path / "run", callbacks=[callback])


def test_tensorboard_needs_a_folder() -> None:
    from fedsash import run

    pytest.importorskip("tensorboard")
    with pytest.raises(SettingError, match="out = None: must be a folder: TensorBoard"):
        run(small_federation(), 1, progress=False, callbacks=[TensorBoard()])


def test_a_file_switches_them_on_by_table_or_by_a_word() -> None:
    given = parse({"track": {"wandb": {"project": "digits"}, "tensorboard": {}}})
    assert given.track == Track(tensorboard=TensorBoard(), wandb=WandB(project="digits"))
    assert parse(given.table()) == given
    assert parse({"track": "mlflow"}).track == Track(mlflow=MLflow())
    assert parse({"track": {"wandb": {"project": "digits"}}}, ["track=none"]).track == Track()
    with pytest.raises(
        ConfigError, match=r"track.name = 'wand': must be 'tensorboard' or 'wandb' or 'mlflow' or 'trackio' or 'none'"
    ):
        parse({"track": "wand"})
    with pytest.raises(ConfigError, match="a study of time evaluates no models"):
        parse({"network": {"learning": False, "bytes": 10, "clients": {"count": 3}}, "track": "wandb"})


def offline(folder: Path) -> tuple[str, Points]:
    """The id and the numbers that W&B has written without a network."""
    from wandb.proto.wandb_internal_pb2 import Record

    found: Points = {}
    files = sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))
    for content in (content for file in files for content in records(file.read_bytes())):
        record = Record.FromString(content)
        row = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        for name, value in row.items():
            if not name.startswith("_"):
                found.setdefault(name, []).append((record.history.step.num, value))
    (id,) = {file.stem.removeprefix("run-") for file in files}
    return id, found


def test_wandb_gets_every_number_and_a_resumed_run_goes_on_in_the_same_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    start(world(), 5, tmp_path, callbacks=[WandB()], until=3)
    result = go_on(world(), 5, tmp_path, callbacks=[WandB()])
    id, found = offline(tmp_path)
    assert id == result.state.clients.lineage[-1][1] and alike(found, expected(result.history.rows()))


KILLED = """
import os, sys
from pathlib import Path
from fedsash import Callback, Evaluation
from fedsash.runs import MLflow, Trackio, WandB
from support.observing import go_on, observed, start

class Dies(Callback):
    def evaluation(self, run, metrics):
        if run.round == int(sys.argv[3]):
            os.kill(os.getpid(), 9)

folder = Path(sys.argv[1])
trackers = {"wandb": WandB(), "mlflow": MLflow(uri=f"sqlite:///{folder.parent / 'store.db'}"), "trackio": Trackio()}
world = observed(evaluation=Evaluation(every=1, last=1, held_out=0.2, clients=True))
go = go_on if (folder / "state").exists() else start
go(world, 20, folder, every=4, callbacks=[trackers[sys.argv[2]], Dies()])
"""


@pytest.mark.full
@pytest.mark.parametrize("kind", ["wandb", "mlflow", "trackio"])
def test_after_kills_a_tracker_has_each_number_once(kind: str, tmp_path: Path) -> None:
    pytest.importorskip(kind)
    environment = os.environ | {"WANDB_MODE": "offline", "TRACKIO_DIR": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    folder = tmp_path / "run"
    for last in ("6", "15", "none"):
        call = [sys.executable, "-c", KILLED, str(folder), kind, last.replace("none", "0")]
        done = subprocess.run(call, env=environment, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == (0 if last == "none" else -9), done.stderr
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    if kind == "wandb":
        _, found = offline(folder)
    elif kind == "mlflow":
        found = of_mlflow(tmp_path / "store.db")
    else:
        found = of_trackio(tmp_path / "fedsash.db")
    assert alike(found, expected(rows))


def of_mlflow(store: Path) -> Points:
    """What MLflow has of the one run in a data base."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{store}")
    (run,) = client.search_runs([client.get_experiment_by_name("fedsash").experiment_id])
    histories = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    return {name: [(point.step, point.value) for point in history] for name, history in histories.items()}


def of_trackio(store: Path) -> Points:
    """What Trackio has of the one run in a project's data base."""
    found: Points = {}
    with closing(sqlite3.connect(store)) as base:
        runs = base.execute("SELECT DISTINCT run_id, run_name FROM metrics").fetchall()
        rows = base.execute("SELECT step, metrics FROM metrics ORDER BY id").fetchall()
    assert len(runs) == 1
    for step, values in rows:
        for name, value in json.loads(values).items():
            found.setdefault(name, []).append((step, value))
    return found


@pytest.fixture
def trackio_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of Trackio's; the library reads the variable only where it is imported."""
    folder = tmp_path / "trackio"
    monkeypatch.setenv("TRACKIO_DIR", str(folder))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("trackio")
    monkeypatch.setattr("trackio.utils.TRACKIO_DIR", folder)
    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", folder)
    return folder


def test_trackio_gets_every_number_and_a_resumed_run_goes_on_in_the_same_one(
    tmp_path: Path, trackio_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import trackio

    mine = trackio.init("mine", embed=False)
    capsys.readouterr()
    config = {"local": {"lr": 0.1}}
    start(world(), 5, tmp_path / "run", callbacks=[Trackio("digits")], until=3, config=config)
    result = go_on(world(), 5, tmp_path / "run", callbacks=[Trackio("digits")], config=config)
    assert "rackio" not in capsys.readouterr().out
    assert alike(of_trackio(trackio_folder / "digits.db"), expected(result.history.rows()))
    (run,) = trackio.Api().runs("digits")
    assert run.name == f"run {result.state.clients.lineage[-1][1]}"
    assert run.config["local"] == {"lr": 0.1}
    trackio.log({"loss": 1.0})  # into the caller's own run, which is still open
    mine.finish()
    assert [found.name for found in trackio.Api().runs("mine")] == [mine.name]


def test_a_project_that_trackio_refuses_is_said_in_one_line(tmp_path: Path, trackio_folder: Path) -> None:
    with pytest.raises(RunError, match=r"^Trackio: Project name 'a_system' is not allowed"):
        start(world(), 2, tmp_path / "run", callbacks=[Trackio("a_system")])


def test_wandb_asks_for_its_key_before_anything_is_written(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    code = (
        "from fedsash import WandB, run\n"
        "from fedsash.testing import small_federation\n"
        "try: run(small_federation(), 1, out='run', callbacks=[WandB()])\n"
        "except ValueError as error: print(error)"
    )
    given = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    given |= {"HOME": str(tmp_path), "NETRC": str(tmp_path / "none"), "PYTHONPATH": os.pathsep.join(sys.path)}
    how: Any = {"env": given, "cwd": tmp_path, "stdin": subprocess.DEVNULL, "text": True, "check": True}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, **how)
    assert done.stdout.startswith("Weights & Biases: No API key") and done.stdout.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["file", "sqlite"])
def test_mlflow_gets_every_number_and_a_resumed_run_goes_on_in_the_same_one(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    if kind == "sqlite":
        pytest.importorskip("sqlalchemy")
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "store").as_uri() if kind == "file" else f"sqlite:///{tmp_path / 'store.db'}"
    track, config = MLflow(experiment="digits", uri=uri), {"local": {"lr": 0.1}}
    start(world(), 5, tmp_path / "run", callbacks=[track], until=3, config=config)
    client = MlflowClient(uri)
    place = client.get_experiment_by_name("digits").experiment_id
    assert [run.info.status for run in client.search_runs([place])] == ["KILLED"]
    result = go_on(world(), 5, tmp_path / "run", callbacks=[track], config=config)
    (run,) = client.search_runs([place])
    names = expected(result.history.rows())
    points = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    assert alike({name: [(p.step, p.value) for p in of] for name, of in points.items()}, names)
    assert (run.info.status, run.info.run_name, run.data.params) == ("FINISHED", "run", {"local.lr": "0.1"})


def test_a_training_goes_on_while_mlflow_fails_and_its_numbers_follow(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    from mlflow import MlflowClient

    store = tmp_path / "store.db"
    uri = f"sqlite:///{store}?timeout=0.1"

    class Busy(Callback):
        """Another program locks the data base from round 2 to round 3."""

        def round(self, run: LiveRun, report: RoundReport) -> None:
            if run.round == 1:
                self.other = sqlite3.connect(store)
                self.other.execute("BEGIN EXCLUSIVE")
            if run.round == 3:
                self.other.close()

    result = start(world(), 5, tmp_path / "run", callbacks=[Busy(), MLflow(uri=uri)])
    assert "MLflow did not take the numbers, they are sent later: " in caplog.text
    client = MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("fedsash").experiment_id])
    points = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    assert alike(
        {name: [(p.step, p.value) for p in of] for name, of in points.items()}, expected(result.history.rows())
    )


def test_a_server_of_mlflow_that_does_not_answer_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(SettingError, match=r"^MLflow.uri = 'http://localhost:1': API request to .* failed"):
        start(world(), 2, tmp_path / "run", callbacks=[MLflow(uri="http://localhost:1")])
    assert not (tmp_path / "run").exists()


def test_an_experiment_that_mlflow_has_deleted_is_said_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path / 'store.db'}"
    client = MlflowClient(uri)
    client.delete_experiment(client.create_experiment("gone"))
    with pytest.raises(RunError, match=r"^MLflow: .*(deleted|active)"):
        start(world(), 2, tmp_path / "run", callbacks=[MLflow(experiment="gone", uri=uri)])
