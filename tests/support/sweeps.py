"""Sweeps for tests, in this process and in one that can be stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import tomli_w

from fedsash.lab.sweeps import parse, plan

BASE: dict[str, Any] = {
    "rounds": 6,
    "partition": {"name": "dirichlet", "clients": 10, "alpha": 0.1},
    "model": {"name": "mlp", "hidden": [8]},
    "local": {"lr": 0.1, "batch": 20},
    "sampling": {"name": "uniform", "count": 3},
    "averages": {"ima": {"name": "window", "size": 2}},
    "evaluation": {"every": 2, "last": 2},
    "engine": {"kind": "sequential", "workers": 1, "compile": False, "memory_format": "contiguous"},
}


IMA = {
    "off": {},
    "t2": {
        "broadcast": {"average": "ima", "start": 3},
        "local": {"schedule": {"name": "mild", "start": 2, "decay": 1.0}},
    },
    "t3": {"broadcast": {"average": "ima", "start": 4}},
}


def sweep(axes: dict[str, Any], only: tuple[str, ...] = (), **more: Any) -> Any:
    return parse({"base": BASE, "axes": axes} | more, Path(), only)


def to_train(axes: dict[str, Any], **more: Any) -> int:
    return plan(sweep(axes, **more).runs).to_train


def contents(folder: Path) -> dict[str, bytes]:
    names = ["metrics.jsonl", *(f"models/{file.name}" for file in sorted((folder / "models").iterdir()))]
    return {name: (folder / name).read_bytes() for name in names}


def write(table: dict[str, Any], file: Path) -> Path:
    file.write_text(tomli_w.dumps(table))
    return file


def started(file: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    program = [sys.executable, "-m", "fedsash", "sweep", str(file), "--out", str(out), *more]
    return subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def wait_for(condition: Any) -> None:
    """As long as the test may take."""
    while not condition():
        time.sleep(0.05)


def trains_into(out: Path) -> list[int]:
    """The processes that have the sweep's logs open."""
    links = [link for link in Path("/proc").glob("[0-9]*/fd/2") if link.parent.parent.exists()]
    return [int(link.parts[2]) for link in links if os.path.realpath(link).startswith(str(out))]
