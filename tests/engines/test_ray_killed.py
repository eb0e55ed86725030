"""Actors that are killed: their clients are asked again, and the bytes are those of an undisturbed run."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedsash.errors import WorkerError
from fedsash.methods import LocalRun, Scaffold, Upload
from fedsash.methods.sampling import Uniform
from fedsash.vector.arrays import Vectors
from support.clusters import HERE, WITHOUT_RAY, cluster, on_ray
from support.executors import interrupted_rounds, request_of
from support.worlds import SIZES, after, federation, identical

ray: Any = pytest.importorskip("ray", reason=WITHOUT_RAY)
__all__ = ["cluster"]

EVERYBODY = Uniform(len(SIZES))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True)
class Deadly(Scaffold):
    """Kills its actor in the training of the client with nine samples, the first so many times."""

    folder: str = ""
    times: int = 1

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        count = len(list(Path(self.folder).iterdir()))
        if bool((local.size == 9).any()) and count < self.times:
            Path(self.folder, str(count)).touch()
            die()
        return super().upload(local)


def undisturbed(rounds: int) -> Any:
    return after(federation(method=Scaffold(), sampling=EVERYBODY, engine=HERE), rounds)


def pids(world: Any) -> list[int]:
    """The processes of the actors that are free."""
    return [pid for pid, _ in world.executor._pool.processes()]


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_actor_that_is_killed_in_a_training_costs_its_piece_once_more(
    times: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deadly = Deadly(folder=str(tmp_path), times=times)
    found = after(federation(method=deadly, sampling=EVERYBODY, engine=on_ray(2)), 3)
    assert identical(found, undisturbed(3))
    line = "round 1: an actor died (its worker process has died); a new one takes its place"
    assert caplog.messages == times * [line]


@pytest.mark.slow
def test_the_third_death_ends_the_round_in_a_line_and_the_next_request_is_answered(tmp_path: Path) -> None:
    deadly = Deadly(folder=str(tmp_path), times=3)
    with federation(method=deadly, sampling=EVERYBODY, engine=on_ray(1)) as world:
        with pytest.raises(WorkerError, match=r"^round 1: an actor died \(.*\), as did the 2 before it$"):
            world.round(world.start())
        assert identical(world.round(world.start())[0], undisturbed(1))


@pytest.mark.slow
def test_actors_that_are_all_killed_at_once_are_replaced() -> None:
    with federation(method=Scaffold(), sampling=EVERYBODY, engine=on_ray(2)) as world:
        state, _ = world.round(world.start())
        for pid in pids(world):
            kill(pid)
        state, _ = world.round(state)
        assert identical(state, undisturbed(2))


@pytest.mark.slow
def test_one_piece_does_not_try_all_actors_that_died_while_they_had_nothing_to_do() -> None:
    """As with a machine that goes between two rounds, of which the second has fewer pieces than there are actors."""
    with federation(method=Scaffold(), sampling=Uniform(1), engine=on_ray(4)) as world:
        state = world.start()
        world.prepare()
        while len(pids(world)) < 4:
            time.sleep(0.1)
            world.executor._pool._next({}, "the start")
        for pid in pids(world):
            kill(pid)
        state, _ = world.round(state)
    assert identical(state, after(federation(method=Scaffold(), sampling=Uniform(1), engine=HERE), 1))


@pytest.mark.slow
def test_kills_at_random_moments_change_nothing() -> None:
    rounds = 6
    with federation(method=Scaffold(), sampling=EVERYBODY, engine=on_ray(2)) as world:
        state = world.start()
        world.prepare()
        for _ in range(rounds):
            for pid in pids(world)[:1]:  # none if all are about to start
                threading.Timer(random.uniform(0, 0.05), kill, (pid,)).start()
            state, _ = world.round(state)
    assert identical(state, undisturbed(rounds))


@pytest.mark.slow
def test_a_request_that_was_given_up_leaves_no_trace() -> None:
    with federation(method=Scaffold(), sampling=EVERYBODY, engine=on_ray(1)) as world:
        given_up = world.executor.work(request_of(world))
        next(given_up)
        given_up.close()
        state, _ = world.round(world.start())
        assert identical(state, undisturbed(1))


@pytest.mark.slow
def test_ctrl_c_in_the_middle_of_a_round_does_not_change_the_next() -> None:
    world = federation(method=Scaffold(), sampling=EVERYBODY, engine=on_ray(2))
    assert identical(interrupted_rounds(world, 3, pause=0.004), undisturbed(3))
