"""Three finished runs to look at."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedsash.lab.studies.opened import OpenRun, open_run
from support.studies import EXPERIMENT, OWN_SPLIT, fedsash


@pytest.fixture(scope="package")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Three runs that differ in their seed, and share out their data in the same way."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "own_split.py").write_text(OWN_SPLIT)
    (folder / "experiment.toml").write_text(EXPERIMENT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(folder), *sys.path])
        for seed in range(3):
            arguments = [
                folder / "experiment.toml",
                "--out",
                folder / f"r{seed}",
                "--seed",
                seed,
                "--no-progress",
                "--own-code",
            ]
            assert fedsash("run", *arguments, "--set", "checkpoint.keep=[1, 3, 5]") == 0
        yield [folder / f"r{seed}" for seed in range(3)]


@pytest.fixture
def run(runs: list[Path], tmp_path: Path) -> Path:
    """A copy of the first run."""
    return Path(shutil.copytree(runs[0], tmp_path / "run", ignore=shutil.ignore_patterns("analyses")))


@pytest.fixture(scope="package")
def opened(runs: list[Path]) -> OpenRun:
    """The first run, opened."""
    return open_run(runs[0])
