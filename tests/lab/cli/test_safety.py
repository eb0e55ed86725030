"""Who may run code: files name code of one's own only where the user allows it, and no file that lies around is run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedsash.lab.config import ConfigError, load, parse
from support.places import DOCS, ROOT

ENGINE = '[engine]\nkind = "sequential"\nworkers = 1\ncompile = false\nmemory_format = "contiguous"\nthreads = 1\n'
SMALL = "rounds = 2\npartition.clients = 10\nsampling.count = 2\n[averages.w]\nname = 'window'\nsize = 2\n"
NETWORK = "[network]\nlearning = true\n"
MINE = """
open("ran", "a").write("mine ")
from torch import nn
from dataclasses import dataclass
from fedsash.methods import FedAvg

def rule(round, sizes, seed):
    return [0, 1]

def net():
    return nn.Linear(64, 10)

def number():
    return 3

@dataclass(frozen=True)
class Mine(FedAvg):
    pass
"""
OWN = ["model.name=mine:net", "method.name=mine:Mine", "sampling={name='function',function='mine:rule'}"]
LIBRARIES = (
    *("statistics", "json", "random", "torch", "numpy", "sitecustomize", "socket", "pickle", "tempfile", "struct"),
    *("selectors", "threading", "signal", "multiprocessing", "rich", "matplotlib", "plotly", "scipy", "safetensors"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an experiment, a sweep, and code that leaves a file `ran` behind when it is imported."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "experiment.toml").write_text(SMALL + ENGINE)
    (folder / "own.toml").write_text(SMALL + "[model]\nname = 'mine:net'\n" + ENGINE)
    (folder / "network.toml").write_text(SMALL.replace("sampling.count = 2\n", "") + NETWORK + ENGINE)
    (folder / "sweep.toml").write_text('base = "experiment.toml"\n[axes]\nseed = [0, 1]\n')
    (folder / "own_sweep.toml").write_text('base = "own.toml"\n[axes]\nseed = [0, 1]\n')
    (folder / "mine.py").write_text(MINE)
    return folder


def fedsash(folder: Path, *arguments: str, module: bool = False) -> subprocess.CompletedProcess[str]:
    """The command as installed, or as `python -m fedsash`, in the folder."""
    script = folder.parent / "fedsash"
    script.write_text(
        "import sys\nfrom fedsash.lab.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
    )
    command = [sys.executable, *(["-m", "fedsash"] if module else [str(script)]), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)


def done(answer: subprocess.CompletedProcess[str]) -> str:
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def refused(answer: subprocess.CompletedProcess[str], line: str) -> None:
    assert answer.returncode == 2 and answer.stdout == "" and answer.stderr.count("\n") == 1
    assert line in answer.stderr, answer.stderr


def with_libraries(folder: Path) -> None:
    """Put files into the folder that have the names of libraries, and say so if they are run."""
    for name in LIBRARIES:
        (folder / f"{name}.py").write_text(f"open({str(folder / 'ran')!r}, 'a').write('{name} ')\n")


def ran(folder: Path) -> str:
    file = folder / "ran"
    return file.read_text() if file.exists() else ""


def test_code_that_a_file_names_is_refused_in_one_line_before_it_is_imported(folder: Path) -> None:
    asked = 'model.name = "mine:net": names code outside fedsash; if you trust it, allow it with --own-code'
    refused(fedsash(folder, "run", "own.toml", "--out", "r"), f"own.toml: {asked}")
    refused(fedsash(folder, "sweep", "own_sweep.toml", "--out", "r"), asked)
    refused(fedsash(folder, "partition", "own.toml"), asked)
    assert ran(folder) == "" and not (folder / "r").exists()


@pytest.mark.parametrize("override", [*OWN, "partition.name=mine:Split", "averages.v.name=mine:A", "data.name=mine:D"])
def test_every_table_asks_and_so_does_a_function(override: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    monkeypatch.setattr("fedsash.basics.resolve._resolved", set())
    with pytest.raises(ConfigError, match=r"mine:\w+['\"]: names code outside fedsash; .* --own-code \(in Python"):
        load(folder / "experiment.toml", [override])
    assert ran(folder) == ""


def test_python_allows_it_with_own_code_and_its_own_objects_need_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    monkeypatch.setattr("fedsash.basics.resolve._resolved", set())
    from fedsash.sampling import Function

    rule = Function("mine:rule")
    experiment = load("experiment.toml", OWN, own_code=True)
    assert experiment.sampling == rule and experiment.model.name == "mine:net"
    assert parse(experiment.table()) == experiment, "what has been allowed once stays allowed"


def test_a_run_with_code_of_ones_own_goes_on_where_it_was_made_and_nowhere_else(folder: Path) -> None:
    done(fedsash(folder, "run", "own.toml", "--out", "r", "--own-code", "--no-progress"))
    done(fedsash(folder, "resume", "r", "--rounds", "3", "--no-progress"))
    (folder / "ran").unlink()
    asked = 'model.name = "mine:net": names code outside fedsash'
    (folder / "r").rename(folder / "moved")
    refused(fedsash(folder, "resume", "moved"), f"moved/config.toml: {asked}")
    refused(fedsash(folder, "flatness", "moved", "--models", "model"), f"moved/config.toml: {asked}")
    (folder / "moved").rename(folder / "r")
    config = folder / "r" / "config.toml"
    config.write_text(config.read_text().replace("mine:net", "mine:other"))
    refused(fedsash(folder, "resume", "r"), 'model.name = "mine:other": names code outside fedsash')
    assert ran(folder) == ""


def test_a_sweep_hands_the_permission_on_and_its_runs_keep_it(folder: Path) -> None:
    done(fedsash(folder, "sweep", "own_sweep.toml", "--out", "s", "--own-code", "--no-progress"))
    done(fedsash(folder, "resume", "s/runs/seed=0", "--rounds", "3", "--no-progress"))
    refused(fedsash(folder, "sweep", "own_sweep.toml", "--out", "s"), "names code outside fedsash")


def test_what_is_no_model_is_refused_in_one_line(folder: Path) -> None:
    for name, line in [
        ("subprocess:run", "is of Python's standard library"),
        ("os:system", "is of Python's standard library"),
        ("mine:number", "must return an nn.Module, returned int"),
        ("mine:Mine", "must be a function that returns an nn.Module, or a class that extends nn.Module"),
    ]:
        arguments = ["run", "experiment.toml", "--out", "r", "--own-code", "--set", f"model.name={name}"]
        refused(fedsash(folder, *arguments), "model.name = ")
        refused(fedsash(folder, *arguments), line)
    assert not (folder / "r").exists()


@pytest.mark.parametrize("module", [False, True], ids=["fedsash", "python -m fedsash"])
def test_a_file_with_the_name_of_a_library_is_not_run(module: bool, folder: Path) -> None:
    with_libraries(folder)
    done(fedsash(folder, "list", module=module))
    done(fedsash(folder, "run", "experiment.toml", "--out", "r", "--set", "engine.workers=2", module=module))
    done(fedsash(folder, "report", "r", "--out", "r.html", module=module))
    done(fedsash(folder, "compare", "r", module=module))
    assert ran(folder) == ""


def test_nor_is_it_run_by_spawned_workers_or_by_the_processes_of_a_sweep(folder: Path) -> None:
    with_libraries(folder)
    spawned = ["--set", "engine.start=spawn", "--set", "engine.workers=2"]
    done(fedsash(folder, "run", "experiment.toml", "--out", "r", *spawned))
    done(fedsash(folder, "sweep", "sweep.toml", "--out", "s", "--set", "engine.start=spawn", "--no-progress"))
    assert ran(folder) == ""


def test_nor_where_code_of_ones_own_is_allowed(folder: Path) -> None:
    with_libraries(folder)
    done(fedsash(folder, "run", "own.toml", "--out", "r", "--own-code", "--set", "engine.start=spawn"))
    assert ran(folder).split() == ["mine"]


@pytest.mark.slow
def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    commands = re.findall(r"^fedsash (.*)$", (DOCS / "safety.md").read_text(), re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["run", "resume"]
    shutil.copytree(ROOT / "examples", tmp_path / "folder" / "examples")
    refused(fedsash(tmp_path / "folder", *commands[0].replace("--own-code", "").split()), "names code outside fedsash")
    for command in commands:
        done(fedsash(tmp_path / "folder", *command.split()))


@pytest.mark.slow
def test_no_command_runs_it(folder: Path) -> None:
    with_libraries(folder)
    shutil.copy(folder / "experiment.toml", folder / "again.toml")
    commands = """
        run again.toml --out r --set trajectory.every=1 --set checkpoint.keep=[1,2]
        resume r --rounds 3
        partition again.toml --out clients.png
        network network.toml --out n
        sweep sweep.toml --out s
        landscape r --models model,w --points 3 --samples 20
        decompose r --rounds 2 --samples 20
        flatness r --models model --samples 20
        window r --average w
        average r --window 2
        report r s n --out page.html --figures figures
        reproduce wima-table-2 --scale tiny --set rounds=2 --out t
    """
    for command in commands.strip().splitlines():
        done(fedsash(folder, *command.split()))
        assert ran(folder) == "", command
