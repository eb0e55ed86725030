"""The smallest app: what is added to a plain Flower app, and that it learns."""

from __future__ import annotations

import sys
from statistics import mean
from typing import Any

import pytest

from support.places import HOW_TO, ROOT

pytest.importorskip("flwr")

APP = ROOT / "examples" / "flower" / "quickstart"
SERVER = APP / "quickstart" / "server_app.py"


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a server app with some source comes to: that of the benchmark."""
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    from benchmarks.quickstart import run

    return run


def test_one_line_beside_the_import_is_all_that_is_added() -> None:
    lines = SERVER.read_text().splitlines()
    added = [line.strip() for line in lines if "fs." in line or "import fedsash" in line]
    assert len(added) == 2
    assert added[0] == "import fedsash as fs" and added[1].startswith("strategy = fs.flower.Averaged(strategy, ")
    others = [path for path in APP.rglob("*.py") if path != SERVER]
    assert not [path for path in others if "import fedsash" in path.read_text()]


@pytest.mark.slow
def test_with_the_line_the_averages_are_better_than_the_model_and_without_it_the_app_is_plain(trial: Any) -> None:
    source = SERVER.read_text()
    plain = "\n".join(line for line in source.splitlines() if "fs." not in line and "import fedsash" not in line)
    with_line, without = (list(trial(each, 0).evaluate_metrics_serverapp.values()) for each in (source, plain))
    assert [row["accuracy"] for row in without[1:]] == [row["model/accuracy"] for row in with_line[1:]]
    last = {name: mean(row[name] for row in with_line[-10:]) for name in with_line[-1]}
    assert last["accuracy"] > last["model/accuracy"] + 0.05 and last["ema/accuracy"] > last["model/accuracy"] + 0.05


def test_the_page_shows_the_line() -> None:
    page = (HOW_TO / "flower.md").read_text()
    (line,) = (line.strip() for line in SERVER.read_text().splitlines() if "fs." in line and "import" not in line)
    assert line in page
