"""Slips of a new user: what the commands say to them, and that nothing is lost."""

from __future__ import annotations

import io
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from fedsash import RunError, resume, run
from fedsash.lab.cli import main
from fedsash.lab.config import ConfigError, parse
from fedsash.lab.config.parsing import _overridden
from fedsash.lab.sweeps import parse as parse_sweep
from support.json_files import content_of
from support.places import ROOT
from support.studies import ENGINE
from support.sweeps import BASE, write
from support.worlds import federation

Said = Callable[..., tuple[int, str]]

SMALL = f"""rounds = 4
[partition]
alpha = 0.3
clients = 10
[sampling]
count = 2
[method]
name = "fedprox"
mu = 0.1
{ENGINE}"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(SMALL)
    return tmp_path / "mine.toml"


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """The exit code of a command, and all that it prints."""

    def command(*words: str) -> tuple[int, str]:
        try:
            code = main([*words])
        except SystemExit as ended:  # of the parser
            code = int(ended.code or 0)
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return command


@pytest.mark.parametrize(
    ("changes", "key", "right"),
    [
        (["method.name=scaffold"], "method", {"name": "scaffold", "option": "II"}),
        (["method.option=I", "method.name=scaffold"], "method", {"name": "scaffold", "option": "I"}),
        (["method.name=fedprox", "method.weighting=uniform"], "method", {"name": "fedprox", "mu": 0.1}),
        (["partition.name=iid"], "partition", {"name": "iid", "clients": 10}),  # as many as before
        (["partition.name=dirichlet", "partition.clients=20"], "partition", {"alpha": 0.3, "clients": 20}),
        (["sampling.name=poisson", "sampling.rate=0.5"], "sampling", {"name": "poisson", "rate": 0.5}),
        (["local.optimiser.name=adam"], "local", {}),
    ],
)
def test_another_name_leaves_nothing_of_the_table_that_was_there(
    changes: list[str], key: str, right: dict[str, object]
) -> None:
    table = tomllib.loads(SMALL) | {"local": {"optimiser": {"name": "sgd", "momentum": 0.9}}}
    found = parse(table, changes).table()[key]
    assert right.items() <= found.items()


def test_a_run_with_an_engine_of_ones_own_is_not_taken_for_one_over_nodes(
    file: Path,
    said: Said,
    tmp_path: Path,
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    engine = '[engine]\nname = "examples.own.mine:Aloud"\n'
    assert engine.rstrip() in (tmp_path / "examples" / "own" / "parts.toml").read_text()
    file.write_text(SMALL.partition("[engine]")[0] + engine)
    code, printed = said("run", "mine.toml", "--out", "r", "--own-code", "--no-progress")
    assert code == 0, printed
    assert content_of(tmp_path / "r" / "engine.json") == {}
    code, printed = said("resume", "r", "--rounds", "5", "--no-progress")
    assert code == 0, printed


def test_a_resume_to_fewer_rounds_than_there_are_changes_nothing(file: Path, said: Said, tmp_path: Path) -> None:
    assert said("run", "mine.toml", "--out", "r", "--no-progress")[0] == 0
    before = {path: path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file()}
    code, printed = said("resume", "r", "--rounds", "3", "--no-progress")
    assert code == 2 and "rounds = 3: must be at least the 4 that the run has" in printed
    assert {path: path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file()} == before


def test_a_run_whose_data_have_moved_is_told_how_it_goes_on(file: Path, said: Said, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{i / 40},{i % 2}\n" for i in range(40)))
    table = 'data={name="table", path="a.csv", label="y", test=0.0}'
    settings = ["--set", table, "--set", 'partition={name="iid", clients=2}', "--set", "sampling.count=1"]
    assert said("run", "mine.toml", "--out", "r", "--no-progress", *settings)[0] == 0
    (tmp_path / "a.csv").rename("b.csv")
    code, printed = said("resume", "r", "--rounds", "5", "--no-progress")
    assert code == 2 and "data.path = 'a.csv': there is no such file" in printed
    assert printed.endswith("; if the data moved: fedsash resume r --set data.path=NEW\n")
    code, printed = said("resume", "r", "--rounds", "5", "--no-progress", "--set", "data.path=b.csv")
    assert code == 0, printed


def test_a_model_that_was_not_seeded_is_recognised(tmp_path: Path) -> None:
    torch.manual_seed(1)
    run(federation(model=nn.Linear(4, 3)), 2, out=tmp_path, progress=False)
    torch.manual_seed(2)
    with pytest.raises(RunError, match=r"seed PyTorch before you make it: torch\.manual_seed"):
        resume(federation(model=nn.Linear(4, 3)), 3, tmp_path, progress=False)
    with pytest.raises(RunError, match="another experiment") as error:
        resume(federation(model=nn.Sequential(nn.Linear(4, 3))), 3, tmp_path, progress=False)
    assert "seed" not in str(error.value).partition("fork")[2]


def test_a_sweep_says_what_it_has_trained_and_is_told_from_a_run(file: Path, said: Said, tmp_path: Path) -> None:
    sweep = write({"base": BASE, "axes": {"seed": [0, 1]}}, tmp_path / "s.toml")
    assert "2 runs, 12 rounds asked, 12 to train\n" in said("sweep", str(sweep), "--plan")[1]
    assert said("sweep", str(sweep), "--jobs", "1", "--no-progress")[0] == 0
    assert "12 to train; 12 of them are trained, 0 left to train" in said("sweep", str(sweep), "--plan")[1]
    code, printed = said("resume", "runs/s")
    assert code == 2 and "runs/s: holds a sweep: the same fedsash sweep or reproduce command continues it" in printed
    code, printed = said("run", str(sweep))
    assert code == 2 and "this is a sweep: train it with fedsash sweep" in printed
    code, printed = said("sweep", str(sweep), "--rounds", "3")
    assert code == 2 and "a setting: --set rounds=VALUE" in printed


def test_a_dotted_key_of_an_axis_without_quotes_is_told_how_it_is_written() -> None:
    with pytest.raises(ConfigError, match=r'one name here, in quotes: "local\.lr" = \[0\.1, 0\.01\]'):
        parse_sweep({"base": BASE, "axes": {"local": {"lr": [0.1, 0.01]}}}, Path())


def test_an_average_needs_a_name_of_ones_own() -> None:
    with pytest.raises(ConfigError, match=r"a name of yours, such as \[averages\.mine\] with name = \"window\""):
        parse({"averages": {"name": "window", "size": 5}})


@pytest.mark.parametrize("command", [["report", "r"], ["average", "r", "--window", "2"]])
def test_a_folder_in_place_of_a_file_is_named(command: list[str], file: Path, said: Said, tmp_path: Path) -> None:
    assert said("run", "mine.toml", "--out", "r", "--set", "trajectory.every=1", "--no-progress")[0] == 0
    (tmp_path / "folder").mkdir()
    code, printed = said(*command, "--out", "folder")
    assert code == 2 and "folder is a folder, and must be a file" in printed


def test_a_reproduction_without_its_data_has_not_succeeded(file: Path, said: Said) -> None:
    code, printed = said("reproduce", "wima-table-3", "--data", "nowhere")
    assert code == 2 and "nothing was trained: no run has its data below --data nowhere" in printed


def test_letters_that_an_encoding_lacks_are_no_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table has ± between a mean and its deviation."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["run", "mine.toml", "--out", "r", "--no-progress"]) == 0
    assert b"\\xb1" in written.getvalue()


def test_an_option_of_ones_own_may_be_called_name_and_an_engine_chosen_by_its_keys_keeps_them() -> None:
    own = _overridden({"built_by": "own:build", "options": {"name": "a", "clients": 50}}, ["options.name=b"])
    assert own["options"] == {"name": "b", "clients": 50}
    engine = parse({"engine": {"kind": "ray", "block": 8}}, ["engine.name=ray"]).table()["engine"]
    assert engine["block"] == 8
