"""The README's Python and its experiment are real: they are taken from the page and run, small."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsash.lab.cli import main
from support.places import ROOT
from support.worlds import data, mlp

README = (ROOT / "README.md").read_text()
SNIPPETS: list[str] = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def names() -> dict[str, Any]:
    """What the page takes for granted: a model and arrays."""
    world, model = data(sizes=(4,) * 10), mlp(dtype=torch.float32)
    assert world.test is not None
    arrays = {"x": world.train.x, "y": world.train.y, "x_test": world.test.x, "y_test": world.test.y}
    return arrays | {"model": model, "clients": [client.tolist() for client in world.clients]}


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the names of all snippets are, one after the other in one place, in four rounds."""
    monkeypatch.chdir(tmp_path)
    known = names()
    for snippet in SNIPPETS:
        exec(compile(snippet.replace("rounds=200", "rounds=4"), "README.md", "exec"), known)
    return known


def test_the_readmes_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(SNIPPETS) == 1 and "rounds=200" in SNIPPETS[0]
    result = run(tmp_path, monkeypatch)["result"]
    assert result.state.round == 4 and result.folder.is_dir()
    assert str(result.summary["models"]["window50"]["last_mean"]) in capsys.readouterr().out


def test_the_readmes_experiment_trains(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    (tmp_path / "experiment.toml").write_text(text)
    out = str(tmp_path / "run")
    assert main(["run", str(tmp_path / "experiment.toml"), "--rounds", "1", "--out", out, "--no-progress"]) == 0
    assert set(json.loads((tmp_path / "run/summary.json").read_text())["models"]) >= {"model", "window50"}
