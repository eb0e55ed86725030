"""A program of its own: its lines, its signals, its end, and where its errors go."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsash.system.machine import unlike, versions
from fedsash.system.subprocesses import Child

ECHO = """
import os, sys
print(os.getcwd(), os.environ["WORD"], flush=True)
for line in sys.stdin:
    print(line.strip()[::-1], flush=True)
sys.exit("the end")
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    (tmp_path / "echo.py").write_text(ECHO)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "there").mkdir()
    yield Child("echo", str(tmp_path / "logs/{machine}.txt"), str(tmp_path / "there"), {"WORD": "grüße"})


def line(child: Any) -> str:
    said = b""
    while not said.endswith(b"\n"):
        said += child.said()
    return str(said.decode()[:-1])


def test_it_answers_line_by_line_works_where_it_is_told_and_ends_when_there_are_no_more(
    child: Child, tmp_path: Path
) -> None:
    assert line(child) == f"{tmp_path / 'there'} grüße"
    for word in ("fenster", "öfen"):
        child.write(word)
        assert line(child) == word[::-1]
    child.close()
    assert child.said() == b"" and child.code() == 1
    assert child.log() == str(tmp_path / f"logs/{socket.gethostname()}.txt")
    assert Path(child.log()).read_text() == "the end\n"


def test_a_signal_reaches_it_and_what_is_written_after_its_end_is_lost(child: Child) -> None:
    line(child)
    child.signal(signal.SIGKILL)
    assert child.said() == b"" and child.code() == -signal.SIGKILL
    child.write("nobody hears this")
    child.signal(signal.SIGTERM)
    child.close()


def test_a_machine_says_what_it_lacks(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    gone = tmp_path / "gone"
    assert unlike(str(marker), str(tmp_path), versions()) == (
        f"does not see {tmp_path}: it must be on a file system that all machines share"
    )
    marker.touch()
    assert unlike(str(marker), str(gone), versions()).startswith(f"does not see {gone}, the folder of this command")
    other = versions() | {"numpy": "0.1"}
    own = versions()["numpy"]
    assert unlike(str(marker), str(tmp_path), other) == (
        f"has numpy {own}, and this one 0.1: install the same versions on all machines"
    )
    assert unlike(str(marker), str(tmp_path), versions()) == ""
