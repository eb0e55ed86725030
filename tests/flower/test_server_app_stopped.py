"""Flower interrupts the process of a served run: what the command that follows it is told."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr")

from fedsash.flower import Waiting
from fedsash.lab.config import load
from fedsash.lab.served.apps import STOPPED, node_app, server_app
from fedsash.lab.served.news import ProgressReader
from fedsash.testing.grid import InProcessGrid
from support.loopback import content


@pytest.mark.parametrize("signals", [1, 2], ids=["after the round", "at once"])
def test_a_run_that_is_interrupted_is_not_told_as_finished(signals: int, tmp_path: Path) -> None:
    """The same app goes on with it, and that is the end."""
    experiment, data = tmp_path / "experiment.toml", tmp_path / "mine.toml"
    experiment.write_text(content(partition={"name": "iid", "clients": 1}, method={"name": "fedavg"}, rounds=3))
    data.write_text('[data]\nname = "digits"\n[partition]\nname = "iid"\nclients = 1\n')
    own = {"partition-id": 0, "data": str(data), "state": str(tmp_path / "state"), "own-code": ""}
    grid = InProcessGrid(node_app(), {7: own})
    config = {
        "experiment": json.dumps(load(experiment).table()),
        "out": str(tmp_path / "out"),
        "news": str(tmp_path),
        "clients": 1,
        "waiting": json.dumps(vars(Waiting(poll=0.01))),
        "limit": 0,
        "fork": "",
    }
    context: Any = SimpleNamespace(run_config=config)
    listener, messages = ProgressReader(tmp_path), iter(range(100))

    def interrupted(message: Any) -> str:
        for _ in range(signals if next(messages) == 1 else 0):  # 0 is the roll call
            os.kill(os.getpid(), signal.SIGINT)
        return ""

    grid.fault = interrupted  # type: ignore[assignment]
    if signals == 1:
        server_app()(grid, context)
    else:
        with pytest.raises(KeyboardInterrupt) as error:
            server_app()(grid, context)
        assert error.value.__notes__ == ["go on with: the fedsash flower serve that began it"]
    assert listener.news()[-1] == {"code": 2, "line": STOPPED}
    server_app()(grid, context)
    told = listener.news()
    assert told[-1] == {"code": 0, "line": ""} and told[-2]["round"] == 3
