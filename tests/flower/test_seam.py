"""Nothing goes around the seam (`system/host.py`): what a served run changes on the disk, it changes through it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.loopback import Loopback, after, files, loopback, served, wait
from support.places import TESTS
from support.seam.traced import (
    OPERATIONS,
    Call,
    beyond,
    can_trace,
    killed_threads,
    recorded,
    traced,
    tracer,
    wait_for_end,
)

TRACE = """\
openat(AT_FDCWD</home>, "/run/lock", O_RDWR|O_CREAT|O_NOFOLLOW|O_CLOEXEC, 0666) = 5</run/lock>
openat(AT_FDCWD</home>, "/run/read", O_RDONLY|O_CLOEXEC) = 6</run/read>
ftruncate(5</run/lock>, 0)              = 0
write(5</run/lock>, ""..., 90)          = 90
write(2</home/log>, ""..., 90)          = 90
openat(AT_FDCWD</home>, "/run", O_RDWR|O_CLOEXEC|O_TMPFILE, 0600) = 7</run/#31>(deleted)
write(7</run/#31>(deleted), ""..., 64)  = 64
fsync(7</run/#31>(deleted))             = ? ERESTARTSYS (To be restarted if SA_RESTART is set)
fsync(7</run/#31>(deleted))             = 0
linkat(7</run/#31>(deleted), "/proc/self/fd/7", AT_FDCWD</home>, "/run/w", AT_SYMLINK_FOLLOW) = 0
openat(AT_FDCWD</home>, "/run/.tmpj7L8nu", O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC, 0600) = 8</run/.tmpj7L8nu>
write(8</run/.tmpj7L8nu>, ""..., 4072)  = 4072
renameat(AT_FDCWD</home>, "/run/.tmpj7L8nu", AT_FDCWD</home>, "/run/a") = 0
mkdir("/run/old", 0777)                 = -1 EEXIST (File exists)
unlinkat(9</run/old>, "a b", 0)         = 0
unlink("/run/.tmpAbC12d")              = 0
unlinkat(9</run>, "old", AT_REMOVEDIR)  = 0
rename("/run/a", "/run/b" <unfinished ...>
+++ killed by SIGKILL +++
"""
"""What strace writes of a thread."""
CALLS = [
    Call(3, "open", ("/run/lock",)),
    Call(3, "truncate", ("/run/lock",)),
    Call(3, "write", ("/run/lock",)),
    Call(3, "open", ("/run",)),
    Call(3, "write", ("/run/#31",)),
    Call(3, "sync", ("/run/#31",)),
    Call(3, "link", ("/proc/self/fd/7", "/run/w")),
    Call(3, "open", ("/run/.tmp*",)),
    Call(3, "rename", ("/run/.tmp*", "/run/a")),
    Call(3, "make folder", ("/run/old",)),
    Call(3, "unlink", ("/run/old/a b",)),
    Call(3, "unlink", ("/run/.tmp*",)),
    Call(3, "remove folder", ("/run/old",)),
    Call(3, "rename", ("/run/a", "/run/b")),
]
"""The operations in it that change something below /run."""


def test_a_write_that_the_seam_was_not_asked_for_is_found(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    trace = tmp_path / "traces" / "thread.3"
    log = tmp_path / "seam.jsonl"
    trace.write_text(TRACE)
    log.write_text("".join(f"{json.dumps(call)}\n" for call in CALLS))
    asked_for = recorded(log, [Path("/run")])
    calls = traced(trace.parent, [Path("/run")])
    assert calls == CALLS == asked_for
    assert killed_threads(trace.parent) == {3}

    second_write = 'write(5</run/lock>, ""..., 90)          = 90\n'
    trace.write_text(second_write + TRACE)
    calls = traced(trace.parent, [Path("/run")])
    assert beyond(asked_for, calls) == [Call(3, "write", ("/run/lock",))]

    trace.rename(trace.with_suffix(".4"))  # another thread was asked for none of them
    calls = traced(trace.parent, [Path("/run")])
    assert sorted(beyond(asked_for, calls)) == sorted(calls)


IN_ROUNDS: dict[str, Any] = {"trajectory": {"every": 1}}
IN_REAL_TIME: dict[str, Any] = {"method": {"name": "fedavg"}, "scheduler": {"name": "fedbuff", "size": 2}}


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("settings", [IN_ROUNDS, IN_REAL_TIME], ids=["in rounds, and a fork", "in real time"])
def test_a_served_run_that_is_killed_and_goes_on_changes_files_through_the_seam_alone(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    pytest.importorskip("flwr")
    traces = tmp_path / "traces"
    traces.mkdir()
    if not can_trace(tmp_path):
        pytest.skip("strace is not installed, or may trace no process here")
    home = tmp_path / "home"
    out = tmp_path / "there"
    fork = tmp_path / "fork"
    log = tmp_path / "seam.jsonl"
    with loopback(home) as flower:
        flower.before = tracer(traces)
        flower.environment["FEDSASH_SEAM"] = str(log)
        flower.environment["PYTHONPATH"] += f":{TESTS / 'support' / 'seam'}:{TESTS}"
        flower.environment["XDG_STATE_HOME"] = str(home / "user")
        experiment = run_with_a_kill(flower, tmp_path, out, **settings)
        if settings is IN_ROUNDS:
            assert served(flower, experiment, fork, "--own-code", "--fork", f"{out}@2") == 0, flower.logs()
    wait_for_end(traces)
    folders = [out, fork, home / "state", home / "user"]
    calls = traced(traces, folders)
    asked_for = recorded(log, folders)
    assert beyond(asked_for, calls) == []
    # All that the seam was asked for was seen, but for what a kill came before: so the trace is a whole one.
    unseen = beyond(calls, asked_for)
    assert {call.thread for call in unseen} <= killed_threads(traces)
    assert {call.operation for call in calls} == set(OPERATIONS)


def run_with_a_kill(flower: Loopback, folder: Path, out: Path, **settings: Any) -> Path:
    """A run over two nodes with all that writes files, whose server is killed, and which the same command goes on.

    Returns its experiment file.
    """
    averages = {
        "w": {"name": "window", "size": 2, "storage": "disk"},
        "own": {"name": "support.own:PlainMean"},
    }
    experiment, data = files(
        folder,
        rounds=3,
        averages=averages,
        evaluation={"every": 2, "last": 1, "held_out": 0.2},
        **settings,
    )
    flower.configure("insecure = true")
    flower.superlink("--insecure")
    for number in range(2):
        flower.node(number, data, "--insecure")
    process = flower.serve(experiment, out, 2, "--deadline", "120", "--roll-call", "120", "--own-code")
    wait(lambda: after(out, 2) or process.poll() is not None, flower, 300)
    flower.kill_server()
    assert process.wait(180) == 2, flower.logs()
    assert served(flower, experiment, out, "--own-code") == 0, flower.logs()
    assert after(out, 3)
    return experiment
