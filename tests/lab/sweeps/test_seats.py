"""Runs of a stack in one process: what ends one of them at once leaves the others whole."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from fedsash.basics.saved import saved_rounds
from fedsash.exchange import RoundReport
from fedsash.lab.runs import Callback, Checkpoint, LiveRun
from fedsash.lab.runs.interrupts import Stop
from fedsash.lab.runs.session import Session
from fedsash.lab.sweeps.assigned import Assigned
from fedsash.lab.sweeps.together import Group, Seat, _Joined
from support.joint import differing, opened, shape_of


class StopsAtOnce(Callback):
    """It stops the process at once in round 2, as a second Ctrl-C does."""

    def round(self, run: LiveRun, report: RoundReport) -> None:
        if run.round == 2:
            raise KeyboardInterrupt


def test_runs_that_are_stopped_at_once_save_their_last_state(tmp_path: Path) -> None:
    """The first one is stopped in round 2, when the steps of all are taken: the others still have round 1."""
    worlds, seats = opened(differing), {}
    for name, world in zip("abc", worlds, strict=True):
        callbacks = [StopsAtOnce()] if name == "a" else []
        session = Session(world, 9, tmp_path / name, Checkpoint(every=9), False, callbacks, None, None, stopping=_never)
        seats[name] = Seat(Assigned(name, {}, tmp_path / name, None, 9), session, session.begun(None))
        seats[name].go(seats[name].course.__next__)
    joined = _Joined(Group(tuple("abc"), shape_of(worlds)), seats)
    assert joined.round()
    with pytest.raises(KeyboardInterrupt):
        joined.round()
    for seat in seats.values():
        seat.course.close()
    assert {name: saved_rounds(tmp_path / name / "state") for name in "abc"} == {"a": [2], "b": [1], "c": [1]}


def _never(say: object) -> nullcontext[Stop]:
    return nullcontext(Stop())
