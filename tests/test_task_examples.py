"""Each example of a task learns: after a few rounds the metric that decides is better than before."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import fedsash as fs
from support.places import ROOT

FOLDER = ROOT / "examples" / "tasks"
ROUNDS = {"multi_label.py": 20, "next_token.py": 1, "regression.toml": 5, "segmentation.py": 1, "text.py": 15}
DEAR = ("multi_label.py", "text.py")


def federation(name: str) -> fs.Federation:
    if name.endswith(".toml"):
        return fs.load(FOLDER / name).federation()
    spec = spec_from_file_location(f"example_{Path(name).stem}", FOLDER / name)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.federation()
    assert isinstance(made, fs.Federation)
    return made


def test_every_example_is_tried() -> None:
    """LoRA's has a test of its own, `test_lora_example.py`."""
    assert {file.name for file in FOLDER.iterdir() if file.suffix in (".py", ".toml")} == {*ROUNDS, "lora.py"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.full] * (name in DEAR)) for name in ROUNDS])
def test_the_example_learns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    f = replace(federation(name), engine=fs.LocalEngine(kind="sequential", workers=1))
    (before,) = (m for m in f.evaluate(f.start()) if m.model == "model")
    result = fs.run(f, ROUNDS[name], progress=False)
    after = [row for row in result.history.rows() if row["model"] == "model"][-1]
    criterion = f.goal.criterion
    assert criterion.wins(after[criterion.name], before[criterion.name])
    assert set(f.goal.metrics) <= after.keys()
