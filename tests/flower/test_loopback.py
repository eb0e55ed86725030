"""Real processes: a SuperLink and SuperNodes, started as users start them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from fedsash.lab.config import load
from fedsash.lab.runs import run
from support.loopback import Loopback, content, loopback

PARTITION: dict[str, Any] = {"name": "iid", "clients": 2}


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def files(home: Path, **tables: Any) -> tuple[Path, Path]:
    """The experiment file, and the file of a node's data, whose partition is the experiment's."""
    experiment, data = home / "experiment.toml", home / "mine.toml"
    experiment.write_text(content(partition=PARTITION, **tables))
    data.write_text('seed = 5\n[data]\nname = "digits"\n[partition]\nname = "iid"\nclients = 2\n')
    return experiment, data


def simulated(experiment: Path, out: Path) -> None:
    found = load(experiment)
    driver = found.driver()
    run(driver, found.rounds, out=out, progress=False, **found.settings(driver))


def served(flower: Loopback, experiment: Path, out: Path, *more: str) -> int:
    process = flower.serve(experiment, out, 2, "--roll-call", "60", *more)
    return process.wait(240)


@pytest.mark.timeout(300)
def test_an_experiment_that_is_served_to_nodes_gives_the_bytes_of_its_simulation(tmp_path: Path) -> None:
    experiment, data = files(tmp_path)
    with loopback(tmp_path / "home") as flower:
        flower.configure("insecure = true")
        flower.superlink("--insecure")
        for number in range(2):
            flower.node(number, data, "--insecure")
        assert served(flower, experiment, tmp_path / "there") == 0, flower.logs()
    simulated(experiment, tmp_path / "here")
    assert rows(tmp_path / "there") == rows(tmp_path / "here")
    for model in ("model", "w"):
        one, other = (tmp_path / place / "models" / f"{model}.safetensors" for place in ("there", "here"))
        assert one.read_bytes() == other.read_bytes()
