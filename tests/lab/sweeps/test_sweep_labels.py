"""Labels say what was trained: nothing else can be put under them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fedsash.data import IID
from fedsash.lab.cli import main
from fedsash.lab.config import ConfigError, parse
from fedsash.methods.server_optimisers import FedAdam, ServerSGD
from support.studies import refused
from support.sweeps import BASE, sweep, write

SMALL = BASE | {"rounds": 1, "evaluation": {"every": 1, "last": 1}}


def test_a_sweep_in_parts_is_of_one_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first part is compared with what the file says now, with --plan, too."""
    file, out = write({"base": SMALL, "axes": {"seed": [0, 1]}}, tmp_path / "s.toml"), tmp_path / "out"
    assert main(["sweep", str(file), "--out", str(out), "--only", "seed=0"]) == 0
    for more in ((), ("--plan",)):
        message = refused(capsys, "sweep", file, "--out", out, "--only", "seed=1", "--set", "local.lr=0.2", *more)
        assert "seed=0 holds a run of another experiment: local.lr" in message
    assert main(["sweep", str(file), "--out", str(out), "--only", "seed=1"]) == 0


def test_parts_of_a_sweep_may_differ_in_what_changes_no_number(tmp_path: Path) -> None:
    file, out = write({"base": SMALL, "axes": {"seed": [0, 1]}}, tmp_path / "s.toml"), tmp_path / "out"
    command = ["sweep", str(file), "--out", str(out), "--only"]
    assert main([*command, "seed=0"]) == 0
    assert main([*command, "seed=1", "--set", "device=cpu", "--set", "checkpoint.every=1"]) == 0


def test_a_setting_that_does_not_fit_the_other_runs_may_train_those_that_are_asked_for(tmp_path: Path) -> None:
    """FedAvg has no mu."""
    axes = {"method": {"avg": {}, "prox": {"method": {"name": "fedprox"}}}}
    file = write({"base": SMALL, "axes": axes}, tmp_path / "s.toml")
    command = ["sweep", str(file), "--out", str(tmp_path / "out"), "--plan", "--set", "method.mu=0.2"]
    assert main(command) == 2 and main([*command, "--only", "method=prox"]) == 0


def test_the_plan_of_a_sweep_into_a_folder_that_is_not_its_own_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write({"base": SMALL, "axes": {"seed": [0]}}, tmp_path / "s.toml")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("rounds = 1\n")
    (tmp_path / "run" / "metrics.jsonl").touch()
    assert "holds a run, and no sweep" in refused(capsys, "sweep", file, "--out", tmp_path / "run", "--plan")


@pytest.mark.parametrize(
    "override",
    ["local.lr=0.5", "local={lr=0.5}", "method.mu=1", "method={name='fedcm'}", "averages.w.size=3", "seed=4"],
)
def test_what_an_axis_sets_can_t_be_overridden(
    override: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = {"avg": {}, "prox": {"method": {"name": "fedprox", "mu": 0.1}}}
    window = {"w": {"averages": {"w": {"name": "window", "size": 2}}}}
    axes = {"seed": [0], "local.lr": [0.1, 0.2], "method": methods, "window": window}
    file = write({"base": SMALL, "axes": axes}, tmp_path / "s.toml")
    message = refused(capsys, "sweep", file, "--out", tmp_path / "out", "--plan", "--set", override)
    key = override.partition("=")[0]
    assert f"--set {key}: the axis " in message and "--only" in message
    assert main(["sweep", str(file), "--out", str(tmp_path / "out"), "--plan", "--set", "local.batch=5"]) == 0


def test_another_thing_on_an_axis_has_its_own_settings() -> None:
    base = SMALL | {"server": {"name": "adam", "lr": 0.01}}
    servers = [run.experiment.server for run in sweep({"server.name": ["adam", "sgd"]}, base=base).runs]
    assert servers == [FedAdam(lr=0.01), ServerSGD()]


def test_another_partition_on_an_axis_has_as_many_clients() -> None:
    """Unless it says how many, or has no number of its own."""
    splits = {"base": {}, "iid": {"partition": {"name": "iid"}}, "more": {"partition": {"name": "iid", "clients": 20}}}
    domains = {"domains": {"partition": {"name": "domains", "clients_per_domain": 2}}}
    whole = [splits["iid"]["partition"], splits["iid"]["partition"] | {"clients": 20}]
    for axes, right in (
        ({"split": splits}, [10, 10, 20]),
        ({"partition.name": ["dirichlet", "iid"]}, [10, 10]),
        ({"partition": whole}, [10, 20]),
    ):
        assert [run.experiment.partition.clients for run in sweep(axes).runs] == right
    assert parse(SMALL, ['partition={name="iid"}']).partition == IID(clients=10)
    assert sweep({"split": domains}).runs[0].experiment.table()["partition"]["name"] == "domains"


def test_runs_that_are_combined_though_they_differ_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder from elsewhere, or one that an earlier version wrote."""
    file = write({"base": SMALL, "axes": {"seed": [0, 1], "method.name": ["fedavg"]}}, tmp_path / "s.toml")
    assert main(["sweep", str(file), "--out", str(tmp_path / "a")]) == 0
    assert main(["sweep", str(file), "--out", str(tmp_path / "b"), "--set", "local.lr=0.2", "--only", "seed=1"]) == 0
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "a")]) == 0
    assert capsys.readouterr().err == ""
    shutil.rmtree(tmp_path / "a" / "runs" / "seed=1,name=fedavg")
    shutil.copytree(*(tmp_path / name / "runs" / "seed=1,name=fedavg" for name in "ba"))
    assert main(["compare", str(tmp_path / "a")]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "fedsash: run seed=1,name=fedavg: has the labels of seed=0,name=fedavg and other settings: local.lr"


def test_an_experiment_is_no_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "sweep", write(SMALL, tmp_path / "e.toml"), "--plan")
    assert "this is an experiment, without axes: train it with fedsash run" in message


def test_runs_that_are_the_same_experiment_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A later axis sets what an earlier one has set, so two labels stand for one experiment."""
    axes = {
        "lr": {"low": {"local": {"lr": 0.1}}, "high": {"local": {"lr": 0.2}}},
        "rate": {"0.3": {"local": {"lr": 0.3}}},
    }
    assert main(["sweep", str(write({"base": SMALL, "axes": axes}, tmp_path / "s.toml")), "--plan"]) == 0
    assert "high,0.3 is the same experiment as low,0.3\n" in capsys.readouterr().err


@pytest.mark.parametrize("zipped", [False, True])
def test_a_later_axis_that_chooses_another_thing_does_not_take_an_earlier_ones_setting_away(
    zipped: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run "lr=0.3,name=adam" would have Adam's usual rate."""
    axes = {"server.lr": [1.0, 0.3], "server.name": ["sgd", "adam"]}
    more = {"zip": [["server.lr", "server.name"]]} if zipped else {}
    file = write({"base": SMALL, "axes": axes} | more, tmp_path / "s.toml")
    line = "server.lr is lost, because server.name chooses another thing after it: put axes.server.lr behind"
    assert line in refused(capsys, "sweep", file, "--plan")
    behind = write({"base": SMALL, "axes": dict(reversed(axes.items()))} | more, tmp_path / "t.toml")
    assert main(["sweep", str(behind), "--out", str(tmp_path / "t"), "--plan"]) == 0


def test_nor_does_it_take_the_settings_of_an_earlier_label_away() -> None:
    """But a thing that the earlier label chooses itself is replaced with all of its settings."""
    rates = {"slow": {"server": {"lr": 0.01}, "local": {"lr": 0.01}}, "usual": {}}
    servers = {"adam": {"server": {"name": "adam"}}, "sgd": {"server": {"name": "sgd"}}}
    line = "axes.rate: server.lr is lost, because which chooses another thing after it: put axes.rate behind axes.which"
    with pytest.raises(ConfigError, match=line):
        sweep({"rate": rates, "which": servers})
    assert sweep({"which": servers, "rate": rates}).runs[0].experiment.server == FedAdam(lr=0.01)
    chosen = {"yogi": {"server": {"name": "yogi", "lr": 0.5}}}
    assert sweep({"first": chosen, "which": servers}).runs[0].experiment.server == FedAdam()


def test_an_override_does_not_take_an_axis_setting_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write({"base": SMALL, "axes": {"server.lr": [1.0, 0.3]}}, tmp_path / "s.toml")
    said = refused(capsys, "sweep", file, "--only", "lr=0.3", "--set", "server.name=adam")
    assert "--set server.name: the axis server.lr sets it" in said


def test_runs_of_another_precision_are_other_runs_and_those_of_another_engine_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = write({"base": SMALL, "axes": {"seed": [0, 1]}}, tmp_path / "s.toml"), tmp_path / "out"
    assert main(["sweep", str(file), "--out", str(out), "--only", "seed=0"]) == 0
    for only in ((), ("--only", "seed=1")):
        message = refused(capsys, "sweep", file, "--out", out, *only, "--set", "engine.precision=bfloat16", "--plan")
        assert "seed=0 holds a run of another experiment: engine.precision is" in message
    assert main(["sweep", str(file), "--out", str(out), "--set", "engine.workers=2", "--plan"]) == 0


def test_runs_that_were_trained_before_the_file_was_edited_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    for rates in ([0.1], [0.5]):
        file = write({"base": SMALL, "axes": {"local.lr": rates}}, tmp_path / "s.toml")
        assert (
            main(
                ["sweep", str(file), "--out", str(out), "--plan"]
                if rates == [0.5]
                else ["sweep", str(file), "--out", str(out)]
            )
            == 0
        )
    assert "also holds runs that this file does not have, lr=0.1; compare shows them, too" in capsys.readouterr().err
