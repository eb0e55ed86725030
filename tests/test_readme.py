"""The README's Python is real: its code is taken from the page and run, small."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from support.places import ROOT
from support.worlds import data, mlp

SNIPPETS: list[str] = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def names() -> dict[str, Any]:
    """What the page takes for granted: a model, arrays, and a training loop."""
    world, model = data(sizes=(4,) * 10), mlp(dtype=torch.float32)

    def train(model: nn.Module) -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.ones_like(parameter))

    assert world.test is not None
    arrays = {"x": world.train.x, "y": world.train.y, "x_test": world.test.x, "y_test": world.test.y}
    loop = {"epochs": 3, "train": train, "evaluate": list, "model": model}
    return arrays | loop | {"clients": [client.tolist() for client in world.clients]}


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
    assert len(SNIPPETS) == 2 and "rounds=200" in SNIPPETS[0]
    known = run(tmp_path, monkeypatch)
    result = known["result"]
    assert result.state.round == 4 and result.folder.is_dir()
    assert str(result.summary["models"]["wima"]["last_mean"]) in capsys.readouterr().out
    now = torch.cat([parameter.flatten() for parameter in known["model"].parameters()])
    mean = torch.cat([value.flatten() for value in known["tracker"].value().values()])
    torch.testing.assert_close(now - mean, torch.ones_like(now))  # the mean of 1, 2, 3 steps is 2
