"""Sweeps: what a file means, which rounds are shared, and that the results are those of separate runs."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsash import runs
from fedsash.client import LocalTraining
from fedsash.data import Dirichlet
from fedsash.lab.cli import main
from fedsash.lab.config import ConfigError
from fedsash.lab.config.files import merged, overridden, put
from fedsash.lab.sweeps import execute, parse
from fedsash.methods.server_optimisers import FedAdam
from fedsash.runs.records import Records
from support.by_default import rotated
from support.sweeps import BASE, IMA, contents, started, sweep, trains_into, wait_for, write

# What a file means.


def test_axes_are_a_product_and_zipped_ones_go_hand_in_hand() -> None:
    axes = {"seed": [0, 1], "local.lr": [0.1, 0.2], "local.batch": [5, 10]}
    assert len(sweep(axes).runs) == 8
    together = sweep(axes, zip=[["local.lr", "local.batch"]]).runs
    assert [(r.experiment.seed, r.experiment.local.lr, r.experiment.local.batch) for r in together] == [
        (seed, lr, batch) for seed in (0, 1) for lr, batch in ((0.1, 5), (0.2, 10))
    ]
    assert together[0].name == "seed=0,lr=0.1,batch=5"


def test_labels_have_settings_and_later_axes_win() -> None:
    axes = {"a": {"x": {"local": {"lr": 0.3}}, "y": {}}, "b": {"z": {"local": {"lr": 0.4, "batch": 7}}}}
    made = {run.name: run.experiment.local for run in sweep(axes).runs}
    assert {name: (local.lr, local.batch) for name, local in made.items()} == {"x,z": (0.4, 7), "y,z": (0.4, 7)}


def test_only_keeps_labels_of_an_axis_that_add_up_and_all_of_the_others() -> None:
    axes = {"seed": [0, 1, 2], "ima": IMA}
    chosen = sweep(axes, only=("seed=0", "seed=2", "ima=off"))
    assert [run.name for run in chosen.runs] == ["seed=0,off", "seed=2,off"]
    assert chosen.axes == {"seed": ["0", "2"], "ima": ["off"]}


def test_only_takes_an_axis_as_it_stands_in_the_names_of_runs() -> None:
    axes = {"local.lr": [0.1, 0.2], "server.lr": [0.5, 1.0], "method.name": ["fedavg", "fedprox"]}
    assert {run.labels["method.name"] for run in sweep(axes, only=("name=fedavg",)).runs} == {"fedavg"}
    with pytest.raises(ConfigError, match="there is no axis lr"):  # there are two
        sweep(axes, only=("lr=0.1",))
    own = sweep(axes | {"lr": {"a": {}, "b": {}}}, only=("lr=a",))
    assert own.axes["lr"] == ["a"] and own.axes["local.lr"] == ["0.1", "0.2"]


@pytest.mark.parametrize(
    "axes, more, line",
    [
        ({}, {}, "axes is missing"),
        ({"seed": 3}, {}, "axes.seed = 3: must be a list of values"),
        ({"seed": []}, {}, "axes.seed = []: must be a list of values"),
        ({"seed": [0, 1, 0]}, {}, "axes.seed = [0, 1, 0]: must not name a value twice"),
        ({"seed": [0, -1]}, {}, "seed=-1: seed = -1: must be at least 0"),
        ({"local.rate": [1]}, {}, "rate=1: unknown key local.rate"),
        ({"seed": [0, 1]}, {"zip": [["seed", "sed"]]}, "zip: there is no axis sed; did you mean seed?"),
        ({"seed": [0, 1], "rounds": [1]}, {"zip": [["seed", "rounds"]]}, "as many labels each"),
        ({"seed": [0]}, {"zip": [["seed"], ["seed"]]}, "seed is in it twice"),
        ({"seed": [0]}, {"zip": "seed"}, "must be a list of lists"),
        ({"seed": [0]}, {"only": ("seed=1",)}, "axis seed has no label 1; there are 0"),
        ({"seed": [0]}, {"only": ("lr=1",)}, "there is no axis lr"),
        ({"seed": [0]}, {"only": ("seed",)}, "must be AXIS=LABEL"),
        ({"seed": [0]}, {"bass": 1}, "unknown key bass"),
        ({"seed": [0]}, {"base": 1}, "base = 1: must be a table"),
        ({"seed": [0]}, {"base": "nowhere.toml"}, "nowhere.toml: there is no such file"),
        ({"m": {"a/b": {}, "a b": {}}}, {}, "two runs would have the folder a-b"),
    ],
)
def test_what_is_wrong_is_one_line(axes: dict[str, Any], more: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as error:
        sweep(axes, **more)
    assert line in str(error.value) and "\n" not in str(error.value)


@given(st.text(min_size=1), st.text(min_size=1))
def test_no_label_leads_out_of_the_folder(one: str, other: str) -> None:
    try:
        names = [run.name for run in sweep({"m": {one: {}, other: {}}}).runs]
    except ConfigError as error:
        assert "two runs would have the folder" in str(error)
        return
    for name in names:
        assert "/" not in name and "\0" not in name and name not in ("", ".", "..") and Path(name).name == name


def test_a_table_with_another_name_takes_the_whole_table_s_place() -> None:
    prox = {"method": {"name": "fedprox", "mu": 0.1}}
    assert merged(prox, {"method": {"name": "scaffold"}}) == {"method": {"name": "scaffold"}}
    assert merged(prox, {"method": {"mu": 0.2}}) == {"method": {"name": "fedprox", "mu": 0.2}}
    assert put({"broadcast": "ima"}, "broadcast.start", 3) == {"broadcast": {"": "ima", "start": 3}}
    assert overridden(prox, "method={name = 'scaffold'}") == {"method": {"name": "scaffold"}}
    assert overridden(prox, "method={}") == {"method": {}}


def test_a_table_without_a_name_changes_its_keys_alone_on_an_axis_too() -> None:
    adam = {"name": "adam", "lr": 0.5, "beta1": 0.5}
    assert overridden({"server": adam}, "server={lr = 0.3}") == {"server": adam | {"lr": 0.3}}
    partition = overridden({"partition": {"clients": 10}}, "partition={alpha = 0.5}")
    assert partition == {"partition": {"clients": 10, "alpha": 0.5}}
    base = {"server": adam, "partition": {"clients": 7}, "local": {"batch": 64}}
    axes = {"server": [{"lr": 0.1}], "partition": [{"alpha": 0.5}], "local": [{"lr": 0.2}]}
    experiment = sweep(axes, base=base).runs[0].experiment
    assert experiment.server == FedAdam(lr=0.1, beta1=0.5)
    assert experiment.partition == Dirichlet(clients=7, alpha=0.5)
    assert experiment.local == LocalTraining(lr=0.2, batch=64)
    with pytest.raises(ConfigError, match=r"axes.server: server.lr is lost, because server.name chooses another thing"):
        sweep(axes | {"server.name": ["yogi"]}, base=base)


@pytest.mark.parametrize(
    "base, axis, right",
    [
        ({"partition": {"alpha": 0.5}}, {"partition": {"name": "dirichlet", "clients": 50}}, 0.5),
        ({"partition": {"name": "dirichlet", "alpha": 0.5}}, {"partition": {"name": "dirichlet", "clients": 50}}, 0.5),
        ({"partition": {"alpha": 0.5}}, {"partition": {"clients": 50}}, 0.5),
        ({"partition": {"alpha": 0.5}}, {"partition": {"name": "iid", "clients": 50}}, None),
        ({"local": {"optimiser": {"momentum": 0.5}}}, {"partition": {"clients": 50}}, 0.1),
    ],
)
def test_an_axis_that_names_what_the_base_leaves_unnamed_keeps_its_settings(
    base: dict[str, Any], axis: dict[str, Any], right: float | None
) -> None:
    (run,) = parse({"base": base, "axes": {"a": {"one": axis}}}, Path()).runs
    partition = run.experiment.partition
    assert getattr(partition, "alpha", None) == right and partition.clients == 50


# What is trained.


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sweep")
    executed = execute(sweep({"averages.ima.size": [1, 2], "ima": IMA}), out, progress=False)
    assert not executed.failed and not executed.signal
    return out


@pytest.mark.parametrize("size, ima", rotated([1, 2], IMA))
def test_the_results_are_bitwise_those_of_separate_runs(size: int, ima: str, trained: Path, tmp_path: Path) -> None:
    name = f"size={size},{ima}"
    (planned,) = (run for run in sweep({"averages.ima.size": [1, 2], "ima": IMA}).runs if run.name == name)
    runs.run(planned.experiment.federation(), 6, out=tmp_path, progress=False)
    assert contents(trained / "runs" / name) == contents(tmp_path)


def test_a_finished_sweep_is_not_trained_again(trained: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in trained.rglob("*") if file.name != "sweep.json"}
    execute(sweep({"averages.ima.size": [1, 2], "ima": IMA}), trained, progress=False)
    assert {file: file.stat().st_mtime_ns for file in trained.rglob("*") if file.name != "sweep.json"} == before


def test_the_index_says_where_every_run_stands(trained: Path) -> None:
    index = json.loads((trained / "sweep.json").read_text())
    assert index["axes"] == {"averages.ima.size": ["1", "2"], "ima": ["off", "t2", "t3"]}
    assert index["runs"]["size=2,t3"] == {"averages.ima.size": "2", "ima": "t3"}
    assert index["failed"] == {}


def test_finished_runs_are_not_trained_again_when_fewer_of_them_are_asked_for(tmp_path: Path) -> None:
    """A part of the runs shares other rounds than all of them, under another name."""
    axes = {"averages.ima.size": [1, 2, 3]}
    execute(sweep(axes), tmp_path, jobs=1, progress=False)
    before = sorted(path.name for path in (tmp_path / "shared").iterdir())
    execute(sweep(axes, only=("averages.ima.size=1", "averages.ima.size=2")), tmp_path, jobs=1, progress=False)
    assert sorted(path.name for path in (tmp_path / "shared").iterdir()) == before


def test_a_folder_of_another_sweep_or_another_experiment_is_refused(trained: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds a sweep over averages\.ima\.size, ima, not over seed"):
        execute(sweep({"seed": [0, 1]}), trained, progress=False)
    with pytest.raises(ConfigError, match="holds a run of another experiment: seed is 0 there and 5 here"):
        execute(sweep({"averages.ima.size": [1, 2], "ima": IMA}, base=BASE | {"seed": 5}), trained, progress=False)


@pytest.mark.slow
def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    axes = {"data": {"digits": {}, "none": {"data": {"name": "mnist", "path": str(tmp_path / "nowhere")}}}, "ima": IMA}
    executed = execute(sweep(axes, only=("ima=off", "ima=t3")), tmp_path / "out", progress=False)
    assert sorted(executed.failed) == ["none,off", "none,t3"]
    assert all("nowhere" in reason for reason in executed.failed.values())
    assert json.loads((tmp_path / "out" / "sweep.json").read_text())["failed"] == executed.failed
    assert (tmp_path / "out/runs/digits,t3/summary.json").exists()


def test_the_command_shows_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write({"base": BASE, "axes": {"seed": [0, 1], "ima": IMA}}, tmp_path / "s.toml")
    assert main(["sweep", str(file), "--plan"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "6 runs, 36 rounds asked, 22 to train"
    assert "    runs/seed=0,t2: rounds 4 to 6" in printed


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_sweep_that_was_stopped_or_killed_ends_with_the_same_bytes(number: int, tmp_path: Path) -> None:
    base = BASE | {"rounds": 300, "checkpoint": {"every": 10}}
    axes = {"ima": {"off": {}, "t200": {"broadcast": {"average": "ima", "start": 201}}}}
    file, out = write({"base": base, "axes": axes}, tmp_path / "s.toml"), tmp_path / "out"
    process = started(file, out)
    wait_for(lambda: any(len(Records(folder).load().rows()) > 20 for folder in (out / "shared").glob("*")))
    os.kill(process.pid, number)
    assert process.wait() == (-number if number == signal.SIGKILL else 128 + number)
    wait_for(lambda: not trains_into(out))
    assert not list((out / "runs").glob("*/summary.json"))
    assert started(file, out).wait() == 0
    whole = parse({"base": base, "axes": axes}, tmp_path)
    execute(whole, tmp_path / "whole", progress=False)
    for name in ("off", "t200"):
        assert contents(out / "runs" / name) == contents(tmp_path / "whole" / "runs" / name)


@pytest.mark.slow
def test_a_process_that_is_killed_costs_its_own_run_and_the_next_sitting_mends_it(tmp_path: Path) -> None:
    base = BASE | {"rounds": 300, "checkpoint": {"every": 10}}
    file, out = write({"base": base, "axes": {"seed": [0, 1]}}, tmp_path / "s.toml"), tmp_path / "out"
    process = started(file, out)
    wait_for(lambda: sum(len(Records(folder).load().rows()) > 20 for folder in (out / "runs").glob("*")) == 2)
    os.kill(trains_into(out)[0], signal.SIGKILL)
    assert process.wait() == 2
    (reason,) = json.loads((out / "sweep.json").read_text())["failed"].values()
    assert reason == "killed by SIGKILL, out of memory perhaps"
    assert len(list((out / "runs").glob("*/summary.json"))) == 1
    assert started(file, out).wait() == 0
    execute(parse({"base": base, "axes": {"seed": [0, 1]}}, tmp_path), tmp_path / "whole", progress=False)
    for name in ("seed=0", "seed=1"):
        assert contents(out / "runs" / name) == contents(tmp_path / "whole" / "runs" / name)
    assert json.loads((out / "sweep.json").read_text())["failed"] == {}
