"""What is in the folder of a run, the picture among it."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsash import LocalEngine
from fedsash.methods import Scaffold
from fedsash.methods.server_optimisers import FedAdam
from fedsash.runs.folder import write_config
from fedsash.vector.saved import saved_rounds
from support.json_files import content_of
from support.observing import AVERAGES, observed, rows, start
from support.worlds import SEQUENTIAL

pytestmark = pytest.mark.pictures


def test_the_folder_of_a_run(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "a"
    config = {"seed": 3, "averages": {"window": {"name": "window", "size": 3}}}
    result = start(observed(), 6, out, every=2, config=config)
    assert sorted(path.name for path in out.iterdir()) == [
        "config.toml",
        "curves.png",
        "engine.json",
        "files.json",
        "goal.json",
        "metrics.jsonl",
        "models",
        "partition.json",
        "state",
        "summary.json",
    ]
    names = ["model", *AVERAGES]
    files = {f"{name}{end}.safetensors" for name in names for end in ("", "-best")}
    assert {path.name for path in (out / "models").iterdir()} == files
    assert saved_rounds(out / "state") == [4, 6]
    assert rows(out) == result.history.rows()
    assert result.folder == out and content_of(out / "summary.json") == result.summary
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")

    engine = content_of(out / "engine.json")
    assert LocalEngine(**engine) == SEQUENTIAL
    assert tomllib.loads((out / "config.toml").read_text()) == config | {"rounds": 6, "engine": engine}


def test_the_config_says_the_same_without_the_library_that_writes_toml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core comes without it. Names have quotes, line ends, letters of all kinds and control characters."""
    config = {
        "seed": 3,
        "title": 'a "name"\n\t\\ \x01 \x7f é 語 😀',
        "rates": [0.1, 1e-300, 1e22, 3],
        "on": True,
        "averages": {"window": {"name": "window", "size": 3}, "with space": {}},
    }
    write_config(tmp_path, config)
    assert tomllib.loads((tmp_path / "config.toml").read_text()) == config
    monkeypatch.setitem(sys.modules, "tomli_w", None)
    write_config(tmp_path, config)
    assert tomllib.loads((tmp_path / "config.toml").read_text()) == config


def test_there_is_no_pickle_in_the_folder(tmp_path: Path) -> None:
    from safetensors import safe_open

    start(observed(method=Scaffold(), server=FedAdam()), 2, tmp_path)

    def tensors(path: Path) -> list[str]:
        with safe_open(path, "pt") as file:
            return list(file.keys())

    readers: dict[str, Callable[[Path], Any]] = {
        ".safetensors": tensors,
        ".json": lambda path: json.loads(path.read_text()),
        ".jsonl": lambda path: [json.loads(line) for line in path.read_text().splitlines()],
        ".toml": lambda path: tomllib.loads(path.read_text()),
        ".png": lambda path: path.read_bytes().startswith(b"\x89PNG"),
    }
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in found} == readers.keys()
    assert all(readers[path.suffix](path) for path in found)


def test_the_summary_is_the_last_file_of_a_run_since_it_says_to_a_sweep_that_the_run_is_done(tmp_path: Path) -> None:
    start(observed(), 2, tmp_path)
    done = {path: path.stat().st_ctime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert max(done.values()) == done[tmp_path / "summary.json"] > done[tmp_path / "curves.png"]
