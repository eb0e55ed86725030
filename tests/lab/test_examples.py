"""The examples train, and those of papers and of data from a folder load, and fit such data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedsash.data import Images, Shakespeare
from fedsash.data.sources.published import PublishedImages
from fedsash.lab import sweeps
from fedsash.lab.config import Experiment, load, parse
from fedsash.methods import METHODS
from support.places import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
SWEEPS = sorted((ROOT / "examples" / "sweeps").glob("*.toml"))
PAPERS = sorted((ROOT / "examples" / "papers").glob("*.toml"))
FROM_A_FOLDER = {
    "cifar10": "cifar10",
    "cifar10_ima": "cifar10",
    "cifar10_wima": "cifar10",
    "domains": "pacs",
    "hub": "fashion_mnist",
    "shakespeare": "shakespeare",
}
"""Examples whose data are not in the library, and the folder of FEDSASH_DATA that has them."""


ALIKE = {path.stem for path in EXAMPLES} & {*METHODS, "own_federation"}
"""Examples of a method each, which differ in little else, and one whose engine is measured."""
TRAINED = [path for path in EXAMPLES if path.stem not in FROM_A_FOLDER]


def loaded(path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT)
    engine = ["engine.kind=sequential", "engine.workers=1", "engine.threads=1", "engine.compile=false"]
    changes = [] if path.stem in ("own_engine", "own_federation") else engine
    return load(path, changes, own_code=path.stem.startswith("own_"))


@pytest.mark.parametrize("path", TRAINED, ids=lambda p: p.stem)
def test_examples_load(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = loaded(path, monkeypatch)
    assert parse(experiment.table()) == experiment


@pytest.mark.parametrize(
    "path", [pytest.param(p, marks=pytest.mark.full if p.stem in ALIKE else ()) for p in TRAINED], ids=lambda p: p.stem
)
def test_examples_train(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.stem == "flwr":
        pytest.importorskip("flwr_datasets")
    experiment = loaded(path, monkeypatch)
    with experiment.federation() as federation:
        state, outcome = federation.round(federation.start())
    assert outcome.moved and state.round == 1


@pytest.mark.parametrize("path", PAPERS, ids=lambda p: p.stem)
def test_the_papers_experiments_load(path: Path) -> None:
    experiment = load(path)
    assert parse(experiment.table()) == experiment
    assert f"fedsash run examples/papers/{path.name} --out" in path.read_text()


@pytest.mark.parametrize("path", SWEEPS, ids=lambda p: p.stem)
def test_the_sweeps_load_and_name_their_command(path: Path) -> None:
    runs = sweeps.load(path).runs
    assert len(runs) > 1
    assert all(parse(run.experiment.table()) == run.experiment for run in runs)
    assert f"fedsash sweep examples/sweeps/{path.name} --out" in path.read_text()


@pytest.mark.parametrize("path", [p for p in EXAMPLES if p.stem in FROM_A_FOLDER], ids=lambda p: p.stem)
def test_examples_on_data_from_a_folder_load(path: Path) -> None:
    experiment = load(path)
    assert isinstance(experiment.data, Images | PublishedImages | Shakespeare)
    assert parse(experiment.table()) == experiment


@pytest.mark.slow
@pytest.mark.parametrize("name", FROM_A_FOLDER)
def test_examples_on_data_from_a_folder_fit_them(
    name: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "FEDSASH_DATA" not in os.environ:
        pytest.skip("FEDSASH_DATA names no folder with data")
    monkeypatch.setenv("FEDSASH_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    path = Path(os.environ["FEDSASH_DATA"]) / FROM_A_FOLDER[name]
    federation = load(ROOT / "examples" / f"{name}.toml", [f"data.path={path}"]).federation()
    assert len(federation.data.clients) in (80, 100, 299)
