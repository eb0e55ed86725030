"""States of processes that are killed while they write or remove them."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsash.averages.places import place_for
from fedsash.averages.trajectory import Trajectory
from fedsash.client.store import ClientStore
from fedsash.runs.checkpoints import load, load_newest, save
from fedsash.server.state import State
from fedsash.system.host import Disk, host
from fedsash.vector.saved import cut, place, saved_rounds
from support.by_default import full
from support.script import Script, tell
from support.worlds import identical

OPERATIONS = {"os.rename", "os.remove", "os.rmdir", "os.link", "os.mkdir", "os.truncate"}


def kill_at(operation: int) -> None:
    """Let this process be killed before its n-th operation on files."""
    left = operation

    def count(event: str, given: tuple[Any, ...]) -> None:
        nonlocal left
        writes = event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR)
        if event in OPERATIONS or writes:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def saves_and_cuts(folder: Path, operation: int) -> None:
    kill_at(operation)
    for round in range(1, 5):
        save(_numbered(round), folder, keep=(1,))
    cut(folder, 3)
    save(_numbered(3), folder, keep=(1,))


def saves_again(folder: Path, operation: int) -> None:
    kill_at(operation)
    save(_numbered(2), folder)


def ended(act: Callable[[Path, int], None], folder: Path, operation: int) -> int:
    """How a process ends that acts on the folder, and is killed before that operation."""
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            act(folder, operation)
            os._exit(0)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("step", [5, full(1)])
def test_a_kill_at_any_operation_leaves_only_whole_states(step: int, tmp_path: Path) -> None:
    operation, how = 0, -signal.SIGKILL
    while how == -signal.SIGKILL:
        operation += step
        folder = tmp_path / str(operation)
        how = ended(saves_and_cuts, folder, operation)
        for round in saved_rounds(folder):
            assert identical(load(place(folder, round), _numbered(0)), _numbered(round)), f"killed at {operation}"
        save(_numbered(5), folder)
        assert not list(folder.glob(".*")), "the next save clears up after a killed one"
    assert how == 0 and operation > 40 and saved_rounds(folder) == [3, 5]


def test_a_kill_at_any_operation_of_saving_a_round_again_loses_nothing(tmp_path: Path) -> None:
    operation, how = 0, -signal.SIGKILL
    while how == -signal.SIGKILL:
        operation += 1
        folder = tmp_path / str(operation)
        save(_numbered(1), folder)
        save(_numbered(2), folder)
        how = ended(saves_again, folder, operation)
        state, _, notes = load_newest(folder, _numbered(0))
        assert identical(state, _numbered(2)) and not notes, f"killed at {operation}"
        assert saved_rounds(folder) == [1, 2] and not list(folder.glob(".*")), f"killed at {operation}"
    assert how == 0 and operation > 10


@pytest.mark.parametrize("renames", [1, 2])
def test_ctrl_c_between_the_steps_of_saving_a_round_again_loses_nothing(
    renames: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for round in (1, 2):
        save(_numbered(round), tmp_path)

    class Interrupted(Disk):
        left = renames

        def rename(self, source: Path, target: Path) -> None:
            super().rename(source, target)
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(host, "disk", Interrupted())
        save(_numbered(2), tmp_path)
    assert saved_rounds(tmp_path) == [1, 2] and not list(tmp_path.glob(".*"))
    assert identical(load(place(tmp_path, 2), _numbered(0)), _numbered(2))


def test_ctrl_c_between_the_two_steps_of_a_removal_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for round in (1, 2):
        save(_numbered(round), tmp_path)

    class Interrupted(Disk):
        def rename(self, source: Path, target: Path) -> None:
            super().rename(source, target)
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(host, "disk", Interrupted())
        cut(tmp_path, 1)
    assert saved_rounds(tmp_path) == [1] and not list(tmp_path.glob(".*"))


def saves_until_killed(folder: str) -> None:
    """Save one state after another. After Ctrl-C the process ends with the code 42.

    Python loses an exception in a weak reference's callback, and NumPy loses one in its first look at ctypes. So the
    handler also notes that it was called.
    """
    pressed = False

    def press(*_: object) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    try:
        signal.signal(signal.SIGINT, press)
        tell("begins")
        with suppress(KeyboardInterrupt):
            for round in itertools.takewhile(lambda _: not pressed, itertools.count(1)):
                save(_numbered(round), Path(folder))
        os._exit(42)
    finally:
        os._exit(1)


@pytest.fixture(scope="module")
def script() -> Iterator[Script]:
    started = Script(__name__, "saves_until_killed")
    yield started
    started.close()


def _numbered(round: int) -> State:
    """A state of which every number is its round."""
    w = torch.full((500,), float(round), dtype=torch.float64)
    past = Trajectory(place_for(8, w, "host")).share()
    past.fill(range(max(round - 7, 1), round + 1), lambda round: torch.full_like(w, round))
    return State(round, w, {}, {}, ClientStore({}, torch.zeros(0)), {"w": {"seen": torch.tensor(round)}}, {"w": past})


@pytest.mark.parametrize("number", [full(signal.SIGKILL), pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_write_that_is_stopped_at_any_moment_leaves_whole_states(
    number: signal.Signals, script: Script, tmp_path: Path
) -> None:
    for attempt in range(12):
        folder = tmp_path / str(attempt)
        pid = script.begin(folder=folder)
        script.wait_for("begins")
        time.sleep(random.uniform(0, 0.1))
        os.kill(pid, number)
        assert int(script.wait_for("ended")) == (42 if number == signal.SIGINT else -signal.SIGKILL)
        if number == signal.SIGINT:
            assert not list(folder.glob(".*")), "an interrupted write leaves nothing behind"
        newest = max(saved_rounds(folder), default=0)
        state, _, notes = load_newest(folder, _numbered(0))
        assert state.round == newest and not notes
        if newest:
            assert identical(state, _numbered(newest))
        save(_numbered(newest + 1), folder)
        assert not list(folder.glob(".*")), "the next save clears up after a killed one"
