"""A simulated network whose models learn numbers: the RMSE reaches its target by falling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedsash.lab.cli import main
from fedsash.runs.records import Records
from support.worlds import ON_NETWORK

NUMBERS: dict[str, Any] = ON_NETWORK | {
    "task": {"name": "regression"},
    "local": {"lr": 0.01, "epochs": 1},
    "evaluation": {"every": 2, "last": 1, "target": 4.9, "held_out": 0.2},
}


@pytest.mark.parametrize("test, split", [(0.2, "test"), (0.0, "held_out")])
def test_the_target_is_that_of_the_split_on_which_models_are_compared(
    test: float, split: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "n.toml").write_text(tomli_w.dumps(NUMBERS | {"data": {"name": "digits", "test": test}}))
    assert main(["network", str(tmp_path / "n.toml"), "--out", str(tmp_path / "a"), "--no-progress"]) == 0
    out, rows = capsys.readouterr().out, Records(tmp_path / "a").load().rows()
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert set(summary["target"]) == {"model", "w3"}
    for name, when in summary["target"].items():
        of_model = [row for row in rows if (row["model"], row["split"]) == (name, split)]
        first = next(row for row in of_model if row["rmse"] <= 4.9)
        assert when == {key: first[key] for key in ("round", "time", "trips")}
        assert f"{name} at 4.9: {when['trips']:,} trips" in out
    assert {"progress.png", "curves.png", "link.png", "timeline.png"} <= {p.name for p in (tmp_path / "a").iterdir()}
    assert main(["report", str(tmp_path / "a"), "--out", str(tmp_path / "p.html")]) == 0
    assert "Rmse over time and trips" in (tmp_path / "p.html").read_text()
