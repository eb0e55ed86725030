"""Flower interrupts the process of a served run: what the command that follows it is told."""

from __future__ import annotations

import json
import os
import signal
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr")

from fedsash.flower import Waiting
from fedsash.lab.cli.flower import _follow
from fedsash.lab.config import load
from fedsash.lab.served import superlink
from fedsash.lab.served.apps import STOPPED, node_app, server_app
from fedsash.lab.served.news import ProgressReader, ProgressWriter
from fedsash.runs.interrupts import StoppedError
from fedsash.testing.grid import InProcessGrid
from support.loopback import content


def grid_and_context(folder: Path, rounds: int) -> tuple[InProcessGrid, Any]:
    """A grid with one node, and the context of a server app for an experiment of so many rounds in a folder."""
    experiment, data = folder / "experiment.toml", folder / "mine.toml"
    experiment.write_text(content(partition={"name": "iid", "clients": 1}, method={"name": "fedavg"}, rounds=rounds))
    data.write_text('[data]\nname = "digits"\n[partition]\nname = "iid"\nclients = 1\n')
    own = {"partition-id": 0, "data": str(data), "state": str(folder / "state"), "own-code": ""}
    grid = InProcessGrid(node_app(), {7: own})
    config = {
        "experiment": json.dumps(load(experiment).table()),
        "out": str(folder / "out"),
        "news": str(folder),
        "clients": 1,
        "waiting": json.dumps(vars(Waiting(poll=0.01))),
        "limit": 0,
        "fork": "",
    }
    return grid, SimpleNamespace(run_config=config)


@pytest.mark.parametrize("signals", [1, 2], ids=["after the round", "at once"])
def test_a_run_that_is_interrupted_is_not_told_as_finished(signals: int, tmp_path: Path) -> None:
    """The same app goes on with it, and that is the end."""
    grid, context = grid_and_context(tmp_path, rounds=3)
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


def test_a_signal_in_the_last_round_does_not_make_a_run_one_that_was_stopped(tmp_path: Path) -> None:
    grid, context = grid_and_context(tmp_path, rounds=1)
    messages = iter(range(100))

    def interrupted(message: Any) -> str:
        if next(messages) == 1:  # 0 is the roll call
            os.kill(os.getpid(), signal.SIGINT)
        return ""

    grid.fault = interrupted  # type: ignore[assignment]
    server_app()(grid, context)
    assert ProgressReader(tmp_path).news()[-1] == {"code": 0, "line": ""}


@pytest.mark.parametrize("ended", [True, False])
def test_the_command_says_that_it_was_stopped_only_if_the_run_has_not_ended(
    ended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Link:
        """A SuperLink whose run comes to its end, or not, while it is asked to stop."""

        def __init__(self, name: str) -> None:
            pass

        def submit(self, folder: Path) -> int:
            os.kill(os.getpid(), signal.SIGINT)
            return 7

        def stop(self, number: int, out: Path) -> str:
            if ended:
                ProgressWriter(tmp_path).ended(0, "")
            return "run 7 of Flower has been stopped"

    monkeypatch.setattr(superlink, "SuperLink", Link)
    args = Namespace(superlink="lab", experiment=tmp_path / "e.toml", out=tmp_path / "out")
    if ended:
        assert _follow(tmp_path, args, 3) == (0, "")
    else:
        with pytest.raises(StoppedError):
            _follow(tmp_path, args, 3)
    assert ("has been stopped" in "".join(capsys.readouterr())) is not ended
