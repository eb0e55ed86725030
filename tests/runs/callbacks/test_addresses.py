"""Where a tracker sends or writes is the user's word, and not that of a file."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedsash.lab.config import load
from fedsash.lab.sweeps import load as load_sweep
from fedsash.runs.callbacks import MLflow
from support.by_default import rotated

FILE = "rounds = 1\n[data]\nname = 'digits'\n[partition]\nname = 'iid'\nclients = 4\n"
FORMS = {
    "track": "[track.mlflow]\nuri = '{}'\n",
    "callback": "[callbacks.mine]\nname = 'mlflow'\nuri = '{}'\n",
}
ADDRESSES = ["http://elsewhere.example:5000", "sqlite:////tmp/elsewhere.db", "file:///tmp/elsewhere", "databricks"]


@pytest.fixture(autouse=True)
def _nothing_allowed_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsash.settings.resolve._resolved", set())


def written(folder: Path, text: str) -> Path:
    file = folder / "experiment.toml"
    file.write_text(FILE + text)
    return file


@pytest.mark.parametrize("form, address", rotated(FORMS, ADDRESSES))
def test_an_address_in_a_file_is_refused_in_a_line(form: str, address: str, tmp_path: Path) -> None:
    file = written(tmp_path, FORMS[form].format(address))
    with pytest.raises(ValueError, match="is where a run's numbers go, and stands in a file") as refused:
        load(file)
    assert f"--set track.mlflow.uri={address}" in str(refused.value)


def test_a_sweep_is_refused_like_an_experiment(tmp_path: Path) -> None:
    written(tmp_path, FORMS["track"].format(ADDRESSES[0]))
    file = tmp_path / "sweep.toml"
    file.write_text("base = 'experiment.toml'\n[axes]\nseed = [0, 1]\n")
    with pytest.raises(ValueError, match="stands in a file"):
        load_sweep(file)
    assert len(load_sweep(file, overrides=[f"track.mlflow.uri={ADDRESSES[0]}"]).runs) == 2


def test_the_users_own_word_allows_it(tmp_path: Path) -> None:
    file = written(tmp_path, FORMS["track"].format(ADDRESSES[0]))
    assert MLflow(uri=ADDRESSES[1]).uri == ADDRESSES[1]
    for allowed in (load(file, own_code=True), load(written(tmp_path, ""), [f"track.mlflow.uri={ADDRESSES[0]}"])):
        assert allowed.track.mlflow is not None
        assert allowed.track.mlflow.uri == ADDRESSES[0]


def test_a_word_for_one_address_allows_no_other(tmp_path: Path) -> None:
    file = written(tmp_path, FORMS["callback"].format(ADDRESSES[1]))
    with pytest.raises(ValueError, match="stands in a file"):
        load(file, [f"track.mlflow.uri={ADDRESSES[0]}"])


def command(*words: Any, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = (sys.executable, "-m", "fedsash", *map(str, words))
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.full
def test_a_run_that_was_allowed_goes_on_and_a_copy_of_it_elsewhere_does_not(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    file, address = written(tmp_path, ""), f"sqlite:///{tmp_path}/own.db"
    done = command("run", file, "--out", "run", "--set", f"track.mlflow.uri={address}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert command("resume", "run", "--rounds", 2, cwd=tmp_path).returncode == 0
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    refused = command("resume", "copy", "--rounds", 3, cwd=tmp_path)
    assert refused.returncode == 2
    assert "stands in a file" in refused.stderr
