"""Who may run code: files name code of one's own only where the user allows it, and no file that lies around is run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedsash.lab.cli import main
from fedsash.lab.config import ConfigError, load, parse
from fedsash.methods.sampling import Function
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
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def done(answer: subprocess.CompletedProcess[str]) -> None:
    assert answer.returncode == 0, answer.stderr


class Here:
    """The command in this process, as if it were a new one, in a folder."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys

    def __call__(self, *arguments: str) -> tuple[int, str]:
        """The exit code, and what was said on standard error."""
        with pytest.MonkeyPatch.context() as patch:
            new_process(patch, self.folder)
            code = main([*arguments])
        return code, self.capsys.readouterr().err

    def refused(self, line: str, *arguments: str) -> None:
        code, error = self(*arguments)
        assert code == 2 and error.count("\n") == 1 and line in error, error


def new_process(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Forget what code was allowed and imported."""
    patch.chdir(folder)
    patch.setattr(sys, "path", [*sys.path])
    patch.setattr("fedsash.settings.resolve._resolved", set())
    sys.modules.pop("mine", None)


@pytest.fixture
def here(folder: Path, capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(folder, capsys)


def with_libraries(folder: Path) -> None:
    """Put files into the folder that have the names of libraries, and say so if they are run."""
    for name in LIBRARIES:
        (folder / f"{name}.py").write_text(f"open({str(folder / 'ran')!r}, 'a').write('{name} ')\n")


def ran(folder: Path) -> str:
    file = folder / "ran"
    return file.read_text() if file.exists() else ""


def test_code_that_a_file_names_is_refused_in_one_line_before_it_is_imported(folder: Path, here: Here) -> None:
    asked = 'model.name = "mine:net": names code outside fedsash; if you trust it, allow it with --own-code'
    here.refused(f"own.toml: {asked}", "run", "own.toml", "--out", "r")
    here.refused(asked, "sweep", "own_sweep.toml", "--out", "r")
    here.refused(asked, "partition", "own.toml")
    here.refused(asked, "network", "network.toml", "--out", "r", "--set", "model.name=mine:net")
    here.refused(asked, "reproduce", "wima-table-2", "--scale", "tiny", "--out", "r", "--set", "model.name=mine:net")
    assert ran(folder) == "" and not (folder / "r").exists()


@pytest.mark.parametrize(
    "override",
    [*OWN, "partition.name=mine:Split", "averages.v.name=mine:A", "data.name=mine:D", "transform.name=mine:T"],
)
def test_every_table_asks_and_so_does_a_function(override: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_process(monkeypatch, folder)
    with pytest.raises(ConfigError, match=r"mine:\w+['\"]: names code outside fedsash; .* --own-code \(in Python"):
        load(folder / "experiment.toml", [override])
    assert ran(folder) == ""


def test_python_allows_it_with_own_code_and_its_own_objects_need_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_process(monkeypatch, folder)
    rule = Function("mine:rule")
    experiment = load("experiment.toml", OWN, own_code=True)
    assert experiment.sampling == rule and experiment.model.name == "mine:net"
    assert parse(experiment.table()) == experiment, "what has been allowed once stays allowed"


def test_a_run_with_code_of_ones_own_goes_on_where_it_was_made_and_nowhere_else(folder: Path, here: Here) -> None:
    assert here("run", "own.toml", "--out", "r", "--own-code", "--no-progress")[0] == 0
    assert here("resume", "r", "--rounds", "3", "--no-progress")[0] == 0
    (folder / "ran").unlink()
    asked = 'model.name = "mine:net": names code outside fedsash'
    (folder / "r").rename(folder / "moved")
    here.refused(f"moved/config.toml: {asked}", "resume", "moved")
    here.refused(f"moved/config.toml: {asked}", "flatness", "moved", "--models", "model")
    (folder / "moved").rename(folder / "r")
    (folder / "other").mkdir()
    here.folder = folder / "other"
    here.refused(f"../r/config.toml: {asked}", "resume", "../r")
    assert ran(folder) == ""


def test_a_study_of_time_asks_and_goes_on_too(folder: Path, here: Here) -> None:
    time = ["--set", "network.learning=false", "--set", "network.bytes=1000", "--set", "network.clients.count=4"]
    name = ["--set", "method.name=mine:Mine"]
    here.refused("names code outside fedsash", "network", "network.toml", "--out", "n", *time, *name)
    assert here("network", "network.toml", "--out", "n", *time, *name, "--own-code", "--no-progress")[0] == 0
    assert here("resume", "n", "--no-progress")[0] == 0


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("subprocess:run", "is of Python's standard library"),
        ("os:system", "is of Python's standard library"),
        ("mine:number", "must return an nn.Module, returned int"),
        ("mine:Mine", "must be a function that returns an nn.Module, or a class that extends nn.Module"),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(name: str, line: str, folder: Path, here: Here) -> None:
    here.refused(line, "run", "experiment.toml", "--out", "r", "--own-code", "--set", f"model.name={name}")
    assert not (folder / "r").exists()


def test_a_file_with_the_name_of_a_library_is_not_run_by_the_first_imports(folder: Path) -> None:
    with_libraries(folder)
    done(fedsash(folder, "--version", module=True))
    assert ran(folder) == ""


@pytest.mark.full
@pytest.mark.parametrize(
    "module", [pytest.param(False, marks=pytest.mark.slow, id="fedsash"), pytest.param(True, id="python -m fedsash")]
)
def test_a_file_with_the_name_of_a_library_is_not_run(module: bool, folder: Path) -> None:
    with_libraries(folder)
    done(fedsash(folder, "list", "methods", module=module))
    done(fedsash(folder, "run", "experiment.toml", "--out", "r", "--set", "engine.workers=2", module=module))
    assert ran(folder) == ""


@pytest.mark.slow
def test_nor_is_it_run_by_spawned_workers(folder: Path) -> None:
    with_libraries(folder)
    spawned = ["--set", "engine.start=spawn", "--set", "engine.workers=2"]
    done(fedsash(folder, "run", "experiment.toml", "--out", "r", *spawned))
    assert ran(folder) == ""


@pytest.mark.slow
def test_nor_where_code_of_ones_own_is_allowed(folder: Path) -> None:
    with_libraries(folder)
    done(fedsash(folder, "run", "own.toml", "--out", "r", "--own-code", "--set", "engine.start=spawn"))
    assert ran(folder).split() == ["mine"]


@pytest.mark.slow
def test_a_sweep_hands_the_permission_on_and_its_runs_keep_it(folder: Path, here: Here) -> None:
    with_libraries(folder)
    done(fedsash(folder, "sweep", "own_sweep.toml", "--out", "s", "--own-code", "--no-progress"))
    done(fedsash(folder, "resume", "s/runs/seed=0", "--rounds", "3", "--no-progress"))
    assert set(ran(folder).split()) == {"mine"}
    shutil.rmtree(folder / "s" / "logs")
    here.refused("names code outside fedsash", "sweep", "own_sweep.toml", "--out", "s")


@pytest.mark.slow
def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    commands = re.findall(r"^fedsash (.*)$", (DOCS / "design" / "safety.md").read_text(), re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["run", "resume"]
    shutil.copytree(ROOT / "examples", tmp_path / "folder" / "examples")
    answer = fedsash(tmp_path / "folder", *commands[0].replace("--own-code", "").split())
    assert answer.returncode == 2 and "names code outside fedsash" in answer.stderr
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
