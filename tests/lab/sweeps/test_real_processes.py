"""A sweep whose segments are trained in processes of their own, as a user's are: the same results, and their logs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsash.lab.cli import main
from support.in_thread import in_process
from support.sweeps import BASE, contents, write

LOUD = """
import os
from dataclasses import dataclass
from fedsash import Callback


@dataclass
class Loud(Callback):
    def round(self, run, report):
        print("round", run.round)
        os.write(1, b"and more\\n")
"""
KINDS: dict[str, Any] = {
    "off": {},
    "forked": {
        "broadcast": {"average": "ima", "start": 1},
        "local": {"schedule": {"name": "mild", "start": 1, "decay": 1.0}},
    },
    "loud": {"callbacks": {"loud": {"name": "loud:Loud"}}},
    "stacked 0": {"engine": {"kind": "vectorised"}},
    "stacked 1": {"engine": {"kind": "vectorised"}, "seed": 1},
}
SWEEP = {"base": BASE | {"rounds": 3}, "axes": {"kind": KINDS}}


def swept(folder: Path, out: str) -> int:
    file = write(SWEEP, folder / "s.toml")
    return main(["sweep", str(file), "--out", str(folder / out), "--own-code", "--jobs", "1", "--no-progress"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A sweep in a process, into `out`: with code of one's own, shared rounds, and stacked clients."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "loud.py").write_text(LOUD)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        patch.syspath_prepend(folder)
        with in_process():
            assert swept(folder, "out") == 0
        yield folder


def test_what_code_of_ones_own_prints_goes_to_the_log_and_does_not_hold_a_sweep_up(folder: Path) -> None:
    said = "".join(log.read_text() for log in (folder / "out" / "logs").iterdir())
    assert said.count("and more") == 3 and said.count("round 3") == 1


def test_a_sweep_in_threads_has_the_bytes_of_one_in_processes(folder: Path) -> None:
    """So other tests may train theirs in threads."""
    assert swept(folder, "threads") == 0
    for kind in ("runs", "shared"):
        names = sorted(run.name for run in (folder / "out" / kind).iterdir())
        assert names == sorted(run.name for run in (folder / "threads" / kind).iterdir())
        for name in names:
            here, there = folder / "threads" / kind / name, folder / "out" / kind / name
            assert contents(here) == contents(there)
