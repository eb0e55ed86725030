"""`fedsash flower serve` is asked to stop by Ctrl-C or SIGTERM, over real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from support.loopback import after, files, served, simulated, started, wait
from support.observing import rows


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_served_run_that_is_stopped_goes_on_by_the_same_command(number: signal.Signals, tmp_path: Path) -> None:
    experiment, data = files(tmp_path, rounds=4)
    out = tmp_path / "there"
    with started(tmp_path, data) as flower:
        process = flower.serve(experiment, out, 2)
        wait(lambda: after(out, 2), flower)
        process.send_signal(number)
        assert process.wait(100) == 128 + number, flower.logs()
        last = (flower.home / "serve.log").read_text().splitlines()[-1]
        assert last == "stopped; the same command goes on"
        assert not after(out, 4)
        command = [sys.executable, "-m", "fedsash", "resume", str(out)]
        resumed = subprocess.run(command, env=flower.environment, capture_output=True, text=True, check=False)
        assert resumed.returncode == 2 and "fedsash flower serve" in resumed.stderr, resumed.stderr
        assert served(flower, experiment, out) == 0, flower.logs()
    simulated(experiment, tmp_path / "here")
    assert rows(out) == rows(tmp_path / "here")
