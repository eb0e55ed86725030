"""Fixtures of several files, and how Hypothesis looks for counterexamples."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from fedsash.system.paths import cache_folder

pytest_plugins = ["support.budget", "support.collecting"]

# Before PyTorch is imported. For models as small as these more threads only wait for each other, most of all beside
# other tests. Programs that a test starts inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Most tests compare with numbers of the CPU, and train in forked processes. `make test-gpu` shows a GPU to some.
if "FEDSASH_TEST_GPU" not in os.environ:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

settings.register_profile("fedsash", deadline=None, max_examples=50)  # a machine may be busy
settings.load_profile("fedsash")

# A shell lets a background job ignore Ctrl-C, and whoever is started by it. Tests send Ctrl-C all the same.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def key_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A place for the key of permits (`runs/own_code.py`) that is not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True, scope="session")
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache folder that is not the user's, so that no test depends on earlier ones; compiled code is the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "compiled"))
        patch.setenv("FEDSASH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def power_that_stays() -> Iterator[None]:
    """No file waits for the disk, which takes longer than most tests: power is cut in `test_bottle.py` alone, whose
    disk is none of the system's. Commands that a test starts wait as ever."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(autouse=True, scope="module")
def no_pictures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs draw none, which takes most of the time of a short run, unless a module looks at them: `mark.pictures`."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.node.get_closest_marker("pictures"):
            for room in ("drawn", "folder"):
                patch.setattr(f"fedsash.runs.{room}.draw", lambda picture, path: Path(path).touch())
        yield


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, in place of the user's."""
    monkeypatch.setenv("FEDSASH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def device() -> str:
    """The device that is there: a GPU, or else the CPU."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files and folders that were brought to the disk, in this order."""
    paths: list[Path] = []
    fsync = os.fsync

    def noted(opened: int) -> None:
        paths.append(Path(f"/proc/self/fd/{opened}").resolve())
        fsync(opened)

    monkeypatch.setattr(os, "fsync", noted)
    return paths
