"""The smallest app: what is added to a plain Flower app, and that it learns."""

from __future__ import annotations

import random
import sys
from statistics import mean
from types import ModuleType
from typing import Any

import pytest

from support.apps import grid
from support.places import ROOT

# isort: split
from flwr.app import Context, RecordDict
from flwr.serverapp.strategy import Strategy

APP = ROOT / "examples" / "flower" / "quickstart"
SERVER = APP / "quickstart" / "server_app.py"


def run(source: str, rounds: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The result of a server app with this source, with ten nodes in this process."""
    monkeypatch.syspath_prepend(APP)
    for name in [name for name in sys.modules if name.split(".")[0] == "quickstart"]:
        monkeypatch.delitem(sys.modules, name)
    from quickstart import client_app  # type: ignore[import-not-found]

    results: list[Any] = []
    start = Strategy.start
    monkeypatch.setattr(Strategy, "start", lambda *given, **more: results.append(start(*given, **more)) or results[-1])
    server = ModuleType("server_app")
    exec(compile(source, str(SERVER), "exec"), vars(server))
    context = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={"num-server-rounds": rounds})
    server.app(grid(client_app.app, 10), context)
    return results[-1]


def test_one_line_beside_the_import_is_all_that_is_added() -> None:
    lines = SERVER.read_text().splitlines()
    added = [line.strip() for line in lines if "fs." in line or "import fedsash" in line]
    assert len(added) == 2
    assert added[0] == "import fedsash as fs" and added[1].startswith("strategy = fs.flower.Averaged(strategy, ")
    others = [path for path in APP.rglob("*.py") if path != SERVER]
    assert not [path for path in others if "import fedsash" in path.read_text()]


def test_with_the_line_the_averages_are_better_than_the_model_and_without_it_the_app_is_plain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = SERVER.read_text()
    plain = "\n".join(line for line in source.splitlines() if "fs." not in line and "import fedsash" not in line)
    random.seed(0)
    with_line = run(source, 40, monkeypatch).evaluate_metrics_serverapp
    random.seed(0)
    without = run(plain, 40, monkeypatch).evaluate_metrics_serverapp
    assert [row["accuracy"] for row in without.values()][1:] == [
        row["model/accuracy"] for row in list(with_line.values())[1:]
    ]
    last = {name: mean(with_line[round][name] for round in range(31, 41)) for name in with_line[40]}
    assert last["accuracy"] > last["model/accuracy"] + 0.05 and last["ema/accuracy"] > last["model/accuracy"] + 0.05


def test_the_page_shows_the_line() -> None:
    page = (ROOT / "docs" / "flower.md").read_text()
    (line,) = (line.strip() for line in SERVER.read_text().splitlines() if "fs." in line and "import" not in line)
    assert line in page
