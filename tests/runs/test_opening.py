"""The first lines of a session: what is trained, before the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsash import EMA, Fork, Window, run
from fedsash.lab.config import parse
from fedsash.methods import FedProx
from fedsash.runs.opening import opening
from support.worlds import federation


def test_what_is_trained_is_said_before_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    averages = {"window": Window(5), "ema": EMA(0.9)}
    found = run(federation(method=FedProx(mu=0.25), averages=averages), 2)
    lines = capsys.readouterr().out.splitlines()
    starts = [line.split(":")[0] for line in lines]
    assert starts[:5] == ["data", "model", "method", "averages", "device"]
    samples, clients = int(found.federation.clients.sizes.sum()), len(found.federation.clients.sizes)
    assert lines[0].startswith(f"data: {samples:,} samples of 4 features, 3 classes, clients: {clients} with")
    assert lines[1].startswith(f"model: Sequential of {found.state.w.numel():,} parameters")
    local = found.federation.local
    assert "FedProx(mu=0.25)" in lines[2] and "ServerSGD" not in lines[2]
    assert f"LocalTraining(lr={local.lr}, batch={local.batch}" in lines[2]
    assert "window Window(size=5), ema EMA(decay=0.9)" in lines[3]
    assert lines[4] == "device: cpu, rounds 1 to 2"


@pytest.mark.parametrize(
    ("window", "models"),
    [
        (Window(5), 3),
        (Window(3), None),
        (Window(2, every=2), 1),
        (Window(2, start=3), 1),
        (Window(9, start=2, every=2), 1),
        (Window(2, start=4), None),  # which a warning says already: it never begins
        (EMA(0.9), None),
    ],
)
def test_a_window_that_never_gets_full_is_said(
    window: Window | EMA, models: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    run(federation(averages={"w": window}), 3)
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("averages.w.size")]
    size = getattr(window, "size", 0)
    line = f"averages.w.size = {size}: not full in this run, where it is the mean of at most {models}"
    assert said == ([] if models is None else [line])


def test_a_window_of_a_fork_counts_from_the_fork(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The window that the source had goes on; the new one has only the rounds of the fork."""
    run(federation(averages={"old": Window(6)}), 4, out=tmp_path / "source", progress=False)
    averages, fork = {"old": Window(6), "new": Window(6)}, Fork(tmp_path / "source", 4)
    capsys.readouterr()
    run(federation(averages=averages), 8, out=tmp_path / "fork", fork=fork)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if ".size = " in line]
    assert line == "averages.new.size = 6: not full in this run, where it is the mean of at most 4"


def test_an_experiment_file_gives_data_and_model_their_names() -> None:
    experiment = parse({"partition": {"name": "iid", "clients": 10}, "model": {"name": "mlp", "hidden": [4]}})
    with experiment.federation() as world:
        lines = list(opening(world, world.start(), 300, experiment.table()))
    assert lines[0].startswith("data: digits, ") and lines[1].startswith("model: mlp of ")
