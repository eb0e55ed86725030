"""The examples say how they are called and train; those of papers load, and fit their data."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from fedsash.lab import sweeps
from fedsash.lab.config import Experiment, load, parse
from fedsash.methods import AGGREGATIONS, METHODS
from fedsash.methods.server_optimisers import SERVERS
from support.each import check_each
from support.places import ROOT, real

FOLDER = ROOT / "examples"
WITHOUT_FLOWER = [
    file for file in sorted(FOLDER.rglob("*")) if file.suffix in (".toml", ".py", ".csv") and "flower" not in file.parts
]
"""All but the apps of Flower, which have pages and tests of their own."""
WITHOUT_DOWNLOAD = [
    file for folder in ("", "averages", "clients", "own") for file in sorted((FOLDER / folder).glob("*.toml"))
]
PAPERS = sorted((FOLDER / "papers").glob("*.toml"))
FINDINGS = ("batch_norm", "clients", "personal", "precision", "private")
SWEEPS = [
    *sorted((FOLDER / "sweeps").glob("*.toml")),
    *(FOLDER / "findings" / f"{name}.toml" for name in FINDINGS),
]

PLACE = re.compile(r"(?<![\w/])(?:\.\./)*(examples/[\w./-]*\w)")
"""A file or folder of the examples in a text, also as a link that begins elsewhere."""
OBJECT = re.compile(r"\b(examples(?:\.\w+)+):(\w+)")
"""A module of the examples, and what is taken from it."""


def loaded(path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT)
    own = path.parent.name == "own"
    engine = ["engine.kind=sequential", "engine.workers=1", "engine.threads=1", "engine.compile=false"]
    return load(path, [] if own else engine, own_code=own)


RARELY = ("adaptive_broadcast", "digits", "federation", "personal", "swa_cyclic", "trace")
"""Those whose like are trained by default here or by `test_cli.py`."""


@pytest.mark.parametrize("path", WITHOUT_DOWNLOAD, ids=lambda p: p.stem)
def test_examples_load(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = loaded(path, monkeypatch)
    assert parse(experiment.table()) == experiment


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=pytest.mark.full if p.stem in RARELY else ()) for p in WITHOUT_DOWNLOAD],
    ids=lambda p: p.stem,
)
def test_examples_train(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = loaded(path, monkeypatch)
    with experiment.federation() as federation:
        state, outcome = federation.round(federation.start())
    assert outcome.moved and state.round == 1


@pytest.mark.parametrize("path", PAPERS, ids=lambda p: p.stem)
def test_the_papers_experiments_load(path: Path) -> None:
    experiment = load(path)
    assert parse(experiment.table()) == experiment


@pytest.mark.parametrize("path", SWEEPS, ids=lambda p: p.stem)
def test_the_sweeps_load(path: Path) -> None:
    runs = sweeps.load(path).runs
    assert len(runs) > 1
    assert all(parse(run.experiment.table()) == run.experiment for run in runs)


def test_the_sweep_of_methods_has_all_of_them() -> None:
    experiments = [run.experiment.table() for run in sweeps.load(FOLDER / "sweeps" / "methods.toml").runs]
    assert {table["method"]["name"] for table in experiments} == METHODS.keys()
    assert {table["server"]["name"] for table in experiments} == SERVERS.keys()
    assert {table["aggregation"]["name"] for table in experiments} == AGGREGATIONS.keys() - {"private"}


def _calls_itself(path: Path) -> None:
    text = path.read_text()
    runs = path.suffix == ".toml" or '__name__ == "__main__"' in text
    assert not runs or f" {path.relative_to(ROOT)}" in text


def test_an_example_that_can_be_run_says_how() -> None:
    check_each(_calls_itself, WITHOUT_FLOWER, lambda path: str(path.relative_to(FOLDER)))


def test_the_readme_names_every_example() -> None:
    text = (FOLDER / "README.md").read_text()
    named = set(re.findall(r"\]\(([^)]+)\)", text)) - {f"flower/{app}/README.md" for app in ("digits", "quickstart")}
    assert named == {str(path.relative_to(FOLDER)) for path in WITHOUT_FLOWER}


def _place_is_there(named: tuple[str, str]) -> None:
    assert (ROOT / named[1]).exists(), "there is no such file"


def _object_is_there(named: tuple[str, str, str]) -> None:
    tree = ast.parse((ROOT / f"{named[1].replace('.', '/')}.py").read_text())
    assert named[2] in {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def test_what_pages_and_programs_name_of_the_examples_is_there() -> None:
    """Files and folders, in commands, links and comments, and objects, as `package.module:name`."""
    rooms = ("docs", "examples", "src", "benchmarks", "site_build", "skills", "torture")
    kinds = (".md", ".ipynb", ".py", ".toml")
    files = [file for room in rooms for file in sorted((ROOT / room).rglob("*")) if file.suffix in kinds]
    files += [ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md", "RELEASE.md", "Makefile")]
    texts = {str(file.relative_to(ROOT)): file.read_text() for file in files}
    check_each(_place_is_there, [(f, name) for f, text in texts.items() for name in PLACE.findall(text)], ": ".join)
    check_each(_object_is_there, [(f, *name) for f, text in texts.items() for name in OBJECT.findall(text)], ": ".join)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, data, clients",
    [
        ("ima_fmnist_cnn", "fashion_mnist", 100),
        ("ima_pacs", "pacs", 80),
        ("wima_cifar10", "cifar10", 100),
        ("wima_shakespeare", "shakespeare", 299),
    ],
)
def test_the_papers_experiments_fit_their_data(
    name: str, data: str, clients: int, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDSASH_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    federation = load(FOLDER / "papers" / f"{name}.toml", [f"data.path={real(data)}"]).federation()
    assert len(federation.data.clients) == clients
