"""The guide's example is real: its code is taken from CONTRIBUTING.md and put to work."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from fedsash import methods
from fedsash.lab import cli, config
from support.places import ROOT
from support.worlds import ENGINES, after, federation

GUIDE = (ROOT / "CONTRIBUTING.md").read_text()
BLOCKS: dict[str, str] = dict(re.findall(r"`([\w./]+)`:\n\n```\w+\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL))
METHOD, TEST = "src/fedsash/methods/fedvarp.py", "tests/methods/test_fedvarp.py"


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The new method's name, in a library that has it: its file beside the others, its line in METHODS."""
    named = re.search(r'`"(\w+)":\s(\w+)`\sto\s`METHODS`', GUIDE)
    assert named is not None
    name, of_class = named.groups()
    assert name not in methods.METHODS, "the library has the example by now; choose another one"
    file = Path(METHOD)
    (tmp_path / file.name).write_text(BLOCKS[METHOD])
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    module = importlib.import_module(f"fedsash.methods.{file.stem}")
    monkeypatch.setattr(methods, of_class, getattr(module, of_class), raising=False)
    monkeypatch.setitem(methods.METHODS, name, getattr(module, of_class))
    yield name
    del sys.modules[module.__name__]
    delattr(methods, file.stem)


@pytest.mark.parametrize("test", re.findall(r"^def (test_\w+)", BLOCKS[TEST], re.MULTILINE))
def test_the_guides_tests_pass(test: str, name: str) -> None:
    module = ModuleType(Path(TEST).stem)
    exec(compile(BLOCKS[TEST], TEST, "exec"), vars(module))
    getattr(module, test)()


@pytest.mark.parametrize("file", [METHOD, TEST])
@pytest.mark.parametrize("command", [["check"], ["format", "--check"]])
def test_the_guides_code_is_in_the_projects_style(file: str, command: list[str]) -> None:
    ruff = [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", file, "-"]
    answer = subprocess.run(ruff, cwd=ROOT, input=BLOCKS[file], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_the_guides_experiment_file_chooses_it_and_the_list_has_it(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(BLOCKS[file.name])
    experiment = config.load(file)
    assert type(experiment.method) is methods.METHODS[name]
    assert config.parse(experiment.table()) == experiment
    assert cli.main(["list", "methods", name]) == 0
    printed = capsys.readouterr().out
    assert (methods.METHODS[name].__doc__ or "?").splitlines()[0] in printed and "weighting" in printed


def test_it_runs_on_every_engine(name: str) -> None:
    states = {
        engine: after(federation(method=methods.METHODS[name](), engine=ENGINES[engine]), 4) for engine in ENGINES
    }
    one = dict(states["sequential"].tensors())
    assert same(one, dict(states["workers"].tensors()), 0.0)
    assert same(one, dict(states["vectorised"].tensors()), 1e-13)


def test_the_guide_names_every_function_that_a_method_may_override() -> None:
    listed = set(re.findall(r"^\| `(\w+)\(", GUIDE, re.MULTILINE))
    functions = {name for name, value in vars(methods.Method).items() if callable(value) and name[0] != "_"}
    assert listed == functions


def same(a: dict[str, Any], b: dict[str, Any], tolerance: float) -> bool:
    """Whether two states hold the same tensors, up to rounding."""
    return a.keys() == b.keys() and all(torch.allclose(a[name], b[name], rtol=0, atol=tolerance) for name in a)
