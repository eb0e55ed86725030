"""The pages on parts of one's own are real: their code is put to work, as is the guide to a method of the library."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from fedsash import methods, testing
from fedsash.lab import cli, config
from fedsash.testing import close, identical
from support.places import HOW_TO, ROOT
from support.worlds import ENGINES, after, federation

PAGES = [
    (HOW_TO / f"{name}.md").read_text()
    for name in ("extend", "own-method", "own-average", "own-server", "schedules", "sampling")
]
MADE = re.compile(r"`(mine\.\w+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS: dict[str, str] = {}
"""A module and an experiment file with the parts of all pages."""
for page in PAGES:
    for file, block in MADE.findall(page):
        BLOCKS[file] = BLOCKS.get(file, "") + block
CHECKS = [check for page in PAGES for check in re.findall(r"`fedsash\.testing\.(check_\w+\(\w+\(\d*\)\))`", page)]
"""The checks that the pages name, such as `check_sampling(InTurn())`."""
GUIDE = ROOT / "tests" / "support" / "guide"
METHOD, TEST = "src/fedsash/methods/fedvarp.py", "tests/methods/test_fedvarp.py"
NAIVE, REGISTRY = "tests/support/naive/methods.py", "src/fedsash/methods/__init__.py"
SOURCES = {METHOD: (GUIDE / "fedvarp.py").read_text(), TEST: (GUIDE / "proof.py").read_text()}
"""What goes where, as CONTRIBUTING.md says."""
TOUCHED = (
    *(TEST, "tests/methods/test_methods.py", "tests/methods/test_methods_naive.py", "tests/test_extend.py"),
    *("tests/test_architecture.py", "tests/test_public.py", "tests/lab/config/test_config_round_trips.py"),
)
"""The modules that load every method, and whose tests may miss something of one."""


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The new method's name, in a library that has it: its file beside the others, its import in `methods`."""
    named = re.search(r'^class (\w+)\(Method, name="(\w+)"\):', SOURCES[METHOD], re.MULTILINE)
    assert named is not None
    of_class, name = named.groups()
    if name in methods.METHODS:
        pytest.skip("the library has the guide's example")
    file = Path(METHOD)
    (tmp_path / file.name).write_text(SOURCES[METHOD])
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    module = importlib.import_module(f"fedsash.methods.{file.stem}")
    monkeypatch.setattr(methods, of_class, getattr(module, of_class), raising=False)
    yield name
    del methods.METHODS[name]
    del sys.modules[module.__name__]
    delattr(methods, file.stem)


@pytest.mark.parametrize("test", re.findall(r"^def (test_\w+)", SOURCES[TEST], re.MULTILINE))
def test_the_guides_tests_pass(test: str, name: str) -> None:
    module = ModuleType(Path(TEST).stem)
    exec(compile(SOURCES[TEST], TEST, "exec"), vars(module))
    getattr(module, test)()


@pytest.mark.parametrize("file", [METHOD, TEST])
@pytest.mark.parametrize("command", [["check"], ["format", "--check"]])
def test_the_guides_code_is_in_the_projects_style(file: str, command: list[str]) -> None:
    ruff = [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", file, "-"]
    answer = subprocess.run(ruff, cwd=ROOT, input=SOURCES[file], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_the_guides_experiment_file_chooses_it_and_the_list_has_it(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(f'[method]\nname = "{name}"\n')
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
    assert identical(states["sequential"], states["workers"])
    assert close(states["sequential"], states["vectorised"], 1e-13)


def test_the_page_on_methods_names_every_function_that_a_method_may_override() -> None:
    rows = [line for line in (HOW_TO / "own-method.md").read_text().splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)\(", row.split(" | ")[0])}
    functions = {name for name, value in vars(methods.Method).items() if callable(value) and name[0] != "_"}
    assert listed == functions


def follow(root: Path) -> None:
    """Do in a copy of the tree what the guide says, to the letter."""
    for folder in ("src", "tests", "docs", "examples", "benchmarks", "site_build", "torture"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (
        *ROOT.glob("*.md"),
        *(ROOT / name for name in ("pyproject.toml", "hatch_build.py", "LICENSE", "Makefile")),
    ):
        shutil.copy(file, root)
    for name in (METHOD, TEST):
        (root / name).write_text(SOURCES[name])
    naive, registry = root / NAIVE, root / REGISTRY
    of_guide = "class " + (GUIDE / "naive.py").read_text().partition("\nclass ")[2]
    naive.write_text(naive.read_text().replace("KINDS: dict", f"{of_guide}\n\nKINDS: dict"))
    text = registry.read_text().replace("from .fedswa", "from .fedvarp import FedVARP\nfrom .fedswa")
    registry.write_text(text.replace('    "FedSWA",\n', '    "FedSWA",\n    "FedVARP",\n'))


@pytest.mark.slow
@pytest.mark.skipif("fedvarp" in methods.METHODS, reason="the library has the guide's example")
def test_a_tree_in_which_the_guide_was_followed_passes_its_tests(tmp_path: Path) -> None:
    follow(tmp_path)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
    run = partial(subprocess.run, cwd=tmp_path, env=environment, capture_output=True, text=True)
    loaded = run([sys.executable, "-m", "pytest", "-q", "--collect-only", "tests"])
    assert loaded.returncode == 0, loaded.stdout[-3000:]
    chosen = f"fedvarp or every_method_of or account or {Path(TEST).stem}"
    passed = run([sys.executable, "-m", "pytest", "-q", "-k", chosen, *TOUCHED, "tests/server/test_composition.py"])
    assert passed.returncode == 0, passed.stdout[-3000:]
    others = run([sys.executable, "-m", "pytest", "-q", *TOUCHED[3:]])
    assert others.returncode == 0, others.stdout[-3000:]
    checked = run([sys.executable, "-m", "ruff", "check", "--quiet", METHOD, TEST, NAIVE])
    assert checked.returncode == 0, checked.stdout


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the pages' module of one's own, from which Python imports it."""
    for file in ("mine.py", "mine.toml"):
        (tmp_path / file).write_text(BLOCKS[file])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("mine", None)  # that of another test
    yield tmp_path
    sys.modules.pop("mine", None)


def _check(checks: list[str]) -> None:
    for check in checks:
        function, value = check.removesuffix(")").split("(", 1)
        getattr(testing, function)(eval(value, vars(importlib.import_module("mine"))))


@pytest.mark.full
def test_the_pages_own_things_pass_the_checks_of_their_kinds(mine: Path) -> None:
    _check(CHECKS)
    own = [name for name, one in vars(sys.modules["mine"]).items() if getattr(one, "__module__", "") == "mine"]
    assert [name for name in own if not any(f"({name}(" in check for check in CHECKS)] == []


def test_those_of_the_pages_own_things_pass_whose_kinds_test_own_does_not_check(mine: Path) -> None:
    elsewhere = ("check_method(", "check_average(", "check_server(", "check_sampling(")
    kept = [check for check in CHECKS if not check.startswith(elsewhere)]
    assert len(kept) == 3
    _check(kept)


def test_the_pages_experiment_file_trains_with_ones_own_things(mine: Path) -> None:
    experiment = config.load(mine / "mine.toml", ["rounds=4"], own_code=True)
    own = [experiment.method, experiment.sampling, experiment.partition, experiment.server]
    own += [experiment.aggregation, experiment.local.schedule, *experiment.averages.values()]
    assert [type(one).__module__ for one in own] == ["mine"] * 7
    with experiment.federation() as f:
        state = after(f, 4)
        assert sorted(state.averages["rising"]["rounds"].tolist()) == [2, 3, 4]
        assert close(state.server_state["y"], state.client_state["y"].mean(0), 1e-6)
