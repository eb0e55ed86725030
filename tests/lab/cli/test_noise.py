"""`fedsash noise` finds the noise of an epsilon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedsash.lab.cli import main
from support.libraries import Library

Library("dp_accounting")
FILE = """
rounds = 8
partition = { name = "iid", clients = 20 }
model = { name = "mlp", hidden = [4] }
sampling = { name = "poisson", rate = 1.0 }
method = { name = "fedavg", weighting = "uniform" }
aggregation = { name = "private", clip = 0.5, noise = 0.0 }
local = { batch = 32 }
engine = { kind = "sequential", workers = 1 }
"""


def test_it_names_the_noise_and_what_it_comes_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "private.toml"
    file.write_text(FILE)
    assert main(["noise", str(file), "--epsilon", "3"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("aggregation.noise = 2.")
    assert second.startswith("after 8 rounds of 20 clients: epsilon = ") and "for one client more or fewer" in second


@pytest.mark.full
def test_a_run_with_the_noise_that_it_names_records_that_epsilon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "private.toml"
    file.write_text(FILE)
    assert main(["noise", str(file), "--epsilon", "3", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert 2.99 < answer["epsilon"] <= 3
    out = tmp_path / "run"
    command = ["run", str(file), "--out", str(out), "--no-progress", "--set", f"aggregation.noise={answer['noise']}"]
    assert main(command) == 0
    assert json.loads((out / "summary.json").read_text())["privacy"]["epsilon"] == answer["epsilon"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--epsilon", "3", "--set", 'aggregation={name="mean"}'], "aggregation: must be private"),
        (["--epsilon", "-1"], "epsilon = -1.0: must be positive"),
        pytest.param(
            ["--epsilon", "3", "--set", "aggregation.adaptive={noise=0.1}"],
            "Adaptive.noise = 0.1: must be above ",
            marks=pytest.mark.full,
        ),
    ],
)
def test_what_has_no_such_noise_is_refused(
    arguments: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "private.toml"
    file.write_text(FILE)
    assert main(["noise", str(file), *arguments]) == 2
    assert line in capsys.readouterr().err
