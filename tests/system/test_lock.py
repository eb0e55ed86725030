"""One session at a time works in a folder, and its lock ends with its process."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsash import RunError
from fedsash.evaluation import Score
from fedsash.lab.cli import main
from fedsash.lab.sweeps import execute, index, parse
from fedsash.system.lock import InUseError, check_free, locked
from support.forked import Forked
from support.observing import Evaluated, final, go_on, observed, start
from support.script import tell
from support.worlds import federation

ORDERS: dict[str, Callable[[Path], object]] = {}
"""What a process of this file's script can do with a folder."""


def order(act: Callable[[Path], object]) -> Callable[[Path], object]:
    ORDERS[act.__name__] = act
    return act


def do(what: str, folder: str) -> None:
    """Carry out an order in a process of its own."""
    ORDERS[what](Path(folder))


@pytest.fixture(scope="module")
def script() -> Iterator[Forked]:
    started = Forked(do)
    yield started
    started.close()


def refusal(folder: Path) -> str:
    with pytest.raises(InUseError) as refused, locked(folder):
        pass
    return str(refused.value)


def test_a_command_with_a_byte_that_is_no_text_holds_a_folder_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["fedsash", "run", os.fsdecode(b"caf\xe9.toml")])
    with locked(tmp_path):
        assert r"fedsash run 'caf\udce9.toml'" in (tmp_path / "lock").read_text()


def at_once(times: int, act: Callable[[int], object]) -> None:
    """Call a function in several processes at the same moment, and wait for them."""
    pids = []
    for number in range(times):
        pids.append(os.fork())
        if not pids[-1]:
            act(number)
            os._exit(0)
    for pid in pids:
        os.waitpid(pid, 0)


@order
def hold(folder: Path) -> None:
    with locked(folder):
        tell("held")
        signal.pause()


@order
def hold_with_workers(folder: Path) -> None:
    with locked(folder):
        worker = os.fork()
        if not worker:
            signal.pause()
            os._exit(0)
        tell("worker", worker)
        signal.pause()


@pytest.mark.parametrize("act", ["hold", "hold_with_workers"])
def test_the_second_process_is_told_who_is_the_first(act: str, script: Forked, tmp_path: Path) -> None:
    pid = script.begin(what=act, folder=tmp_path)
    worker = script.wait_for("held", "worker")
    before = (tmp_path / "lock").read_bytes()
    for line in (refusal(tmp_path), refusal(Path(os.path.relpath(tmp_path)))):
        assert f"is in use by process {pid} of " in line and os.uname().nodename in line and "\n" not in line
    with pytest.raises(InUseError, match=f"process {pid} of"):
        check_free(tmp_path)
    assert (tmp_path / "lock").read_bytes() == before
    os.kill(pid, signal.SIGKILL)  # its worker is still alive
    script.wait_for("ended")
    check_free(tmp_path)
    with locked(tmp_path):
        assert str(os.getpid()) in (tmp_path / "lock").read_text()
    assert not list(tmp_path.iterdir())
    if act == "hold_with_workers":
        os.kill(int(worker), signal.SIGKILL)


@order
def take_turns(folder: Path) -> None:
    """Five processes add to the number in a file many times. If two were there at once, numbers would be lost."""
    (folder / "number").write_text("0")

    def add(_: int) -> None:
        for _ in range(20):
            with locked(folder / "made", wait=lambda line: None):
                before = int((folder / "number").read_text())
                (folder / "number").write_text(str(before + 1))

    at_once(5, add)


def test_processes_that_wait_take_turns_though_the_folder_comes_and_goes(script: Forked, tmp_path: Path) -> None:
    script.begin(what="take_turns", folder=tmp_path)
    assert script.wait_for("ended") == "0"
    assert (tmp_path / "number").read_text() == "100"


@pytest.mark.parametrize("again", [False, True], ids=["removed", "removed and made again"])
def test_a_folder_that_is_removed_while_it_is_made_is_made_again(
    again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Path.mkdir
    races = iter([True])

    def raced(path: Path, *more: Any, **options: Any) -> None:
        if next(races, False):  # as Python does if the folder is there at first, and gone when it looks again
            if again:
                make(path)
            raise FileExistsError(errno.EEXIST, "File exists", str(path))
        make(path, *more, **options)

    monkeypatch.setattr(Path, "mkdir", raced)
    with locked(tmp_path / "made"):
        assert (tmp_path / "made" / "lock").exists()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for other in ("file", "link"):
        with pytest.raises(FileExistsError), locked(tmp_path / other):
            pass


@order
def race(folder: Path) -> None:
    """Four processes begin a run in a new folder at the same moment."""

    def begin(seed: int) -> None:
        try:
            start(federation(seed=seed), 2, folder / "run")
            outcome = "done"
        except RunError as error:
            outcome = str(error)
        (folder / f"{seed}.txt").write_text(outcome)

    at_once(4, begin)


def test_of_processes_that_begin_the_same_run_one_trains_it(script: Forked, tmp_path: Path) -> None:
    script.begin(what="race", folder=tmp_path)
    assert script.wait_for("ended") == "0"
    outcomes = {int(file.stem): file.read_text() for file in tmp_path.glob("*.txt")}
    done = [seed for seed, outcome in outcomes.items() if outcome == "done"]
    assert len(outcomes) == 4 and len(done) == 1
    assert all("is in use by" in o or "holds a run already" in o for s, o in outcomes.items() if s not in done)
    start(federation(seed=done[0]), 2, tmp_path / "alone")
    assert final(tmp_path / "run") == final(tmp_path / "alone")


def test_sessions_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    lines: list[str] = []

    def again(round: int, metrics: list[Score]) -> None:
        for act in (lambda: go_on(observed(), 3, tmp_path / "a"), lambda: start(observed(), 3, tmp_path / "a")):
            with pytest.raises(InUseError) as refused:
                act()
            lines.append(str(refused.value))
            thread = threading.Thread(target=lambda: lines.append(refusal(tmp_path / "a")))
            thread.start()
            thread.join()

    start(observed(), 1, tmp_path / "a", callbacks=[Evaluated(again)])
    start(observed(), 1, tmp_path / "b")
    assert lines == [f"{tmp_path / 'a'} is in use by another session of this process"] * 4
    assert final(tmp_path / "a") == final(tmp_path / "b")


def test_a_refused_run_leaves_no_folder_and_a_failed_one_no_lock(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run to resume"):
        go_on(federation(), 2, tmp_path / "new" / "run")
    assert not list(tmp_path.iterdir())

    def fail(round: int, metrics: list[Score]) -> None:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        start(observed(), 2, tmp_path / "failed", callbacks=[Evaluated(fail)])
    assert not (tmp_path / "failed" / "lock").exists()
    go_on(observed(), 2, tmp_path / "failed")


def test_without_locks_in_the_file_system_a_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def nothing(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", nothing)
    with locked(tmp_path):
        assert "another session" in refusal(tmp_path)
    assert caplog.messages == [f"{tmp_path} can't be locked here: let only one process work in it"]


def test_a_lock_that_is_a_link_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "lock").symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match="lock"), locked(tmp_path):
        pass
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_command_on_a_folder_in_use_is_one_line_before_data_are_loaded(
    script: Forked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.toml").write_text('[data]\nname = "cifar10"\npath = "not there"\n')
    pid = script.begin(what="hold", folder=tmp_path / "run")
    script.wait_for("held")
    (tmp_path / "run" / "config.toml").write_text((tmp_path / "a.toml").read_text())
    files = sorted((tmp_path / "run").iterdir())
    for command in (["run", str(tmp_path / "a.toml"), "--out"], ["resume"]):
        assert main([*command, str(tmp_path / "run")]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and f"run is in use by process {pid}" in error
    assert sorted((tmp_path / "run").iterdir()) == files
    os.kill(pid, signal.SIGKILL)
    script.wait_for("ended")


# Sweeps.

TABLE: dict[str, Any] = {
    "base": {
        "rounds": 8,
        "partition": {"name": "dirichlet", "clients": 10, "alpha": 0.1},
        "model": {"name": "mlp", "hidden": [8]},
        "sampling": {"name": "uniform", "count": 3},
        "averages": {"w": {"name": "window", "size": 2}},
        "evaluation": {"every": 2},
        "engine": {"kind": "sequential", "workers": 1, "compile": False, "memory_format": "contiguous"},
    },
    "axes": {
        "seed": [0, 1],
        "sent": {
            "model": {},
            "a": {"broadcast": {"average": "w", "start": 7}},
            "b": {"broadcast": {"average": "w", "start": 6}},
        },
    },
}


@order
def two_sweeps(folder: Path) -> None:
    """Two processes train the same runs, which share segments, and a third one writes the index again and again."""

    def act(number: int) -> None:
        if number < 2:
            failed = execute(parse(TABLE, Path(), ("seed=0",)), folder / "two", 1, progress=False).failed
            (folder / f"{number}.json").write_text(json.dumps(failed))
        else:
            for _ in range(50):
                index.write(folder / "two", parse(TABLE, Path(), ("seed=1",)), {})

    at_once(3, act)


@pytest.mark.slow
def test_two_sweeps_of_the_same_runs_into_one_folder_are_one_sweep(script: Forked, tmp_path: Path) -> None:
    script.begin(what="two_sweeps", folder=tmp_path)
    execute(parse(TABLE, Path(), ("seed=0",)), tmp_path / "one", 1, progress=False)
    assert script.wait_for("ended") == "0"
    assert [json.loads((tmp_path / f"{number}.json").read_text()) for number in (0, 1)] == [{}, {}]
    assert len(index.read(tmp_path / "two")["runs"]) == 6 and not (tmp_path / "two" / "lock").exists()
    runs = sorted(path.name for path in (tmp_path / "one" / "runs").iterdir())
    assert len(runs) == 3
    for run in runs:
        assert final(tmp_path / "two" / "runs" / run) == final(tmp_path / "one" / "runs" / run)


def test_the_line_of_who_holds_a_folder_hides_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["flwr-serverapp", "--token", "1adb8f", "--password=x", "--insecure"])
    with locked(tmp_path):
        line = (tmp_path / "lock").read_text()
    assert "flwr-serverapp --token ... --password=... --insecure" in line
