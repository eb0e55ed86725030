"""Workers that are killed: their clients are asked again, and the bytes are those of an undisturbed run."""

from __future__ import annotations

import multiprocessing
import os
import pickletools
import random
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from multiprocessing import connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsash import Evaluation
from fedsash.client.messages import Job, Reply
from fedsash.engines.buffers import Buffers, Contents
from fedsash.errors import WorkerError
from fedsash.methods import LocalRun, Method, Mime, Scaffold, Upload
from fedsash.methods.sampling import Uniform
from fedsash.system.subprocesses import STOPS, ending
from fedsash.tasks import Classification
from fedsash.vector.arrays import Vectors
from support.executors import request_of
from support.places import ROOT
from support.worlds import ENGINES, SIZES, SPAWNED, after, data, federation, identical

WORKERS = ENGINES["workers"]
EVERYBODY = Uniform(len(SIZES))
KILLED = "killed by SIGKILL, out of memory perhaps"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def strike(folder: str, times: int) -> bool:
    """Whether this is one of the first so many calls in workers, counted by files since the callers die."""
    if multiprocessing.parent_process() is None:
        return False
    count = len(list(Path(folder).iterdir()))
    if count < times:
        Path(folder, str(count)).touch()
    return count < times


@dataclass(frozen=True)
class Deadly(Scaffold):
    """Kills its process in the training of the client with nine samples, the first so many times."""

    folder: str = ""
    times: int = 1

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        if bool((local.size == 9).any()) and strike(self.folder, self.times):
            die()
        return super().upload(local)


@dataclass(frozen=True)
class DeadlyProbe(Mime):
    """Kills its process in the probe, once."""

    folder: str = ""

    def probe(self, local: LocalRun) -> Upload:
        if strike(self.folder, 1):
            die()
        return super().probe(local)


def pids() -> list[int]:
    return [child.pid for child in multiprocessing.active_children() if child.pid is not None]


def kill_all() -> None:
    for pid in pids():
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("times", [pytest.param(1, marks=pytest.mark.full), 2])
@pytest.mark.parametrize("engine", [WORKERS, pytest.param(SPAWNED, marks=pytest.mark.slow)], ids=["fork", "spawn"])
def test_a_worker_that_is_killed_in_a_training_is_replaced(
    engine: Any, times: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    undisturbed = after(federation(engine=WORKERS, method=Scaffold(), sampling=EVERYBODY), 3)
    deadly = Deadly(folder=str(tmp_path), times=times)
    assert identical(after(federation(engine=engine, method=deadly, sampling=EVERYBODY), 3), undisturbed)
    assert len(caplog.messages) == times
    for line in caplog.messages:
        assert line[:16] == "round 1: worker " and line[17:] == f" died ({KILLED}); its clients are asked again"


def test_the_third_death_ends_the_round_in_a_line_and_the_next_request_is_answered(tmp_path: Path) -> None:
    undisturbed = after(federation(engine=WORKERS, method=Scaffold(), sampling=EVERYBODY), 1)
    with federation(engine=WORKERS, method=Deadly(folder=str(tmp_path), times=3), sampling=EVERYBODY) as world:
        with pytest.raises(WorkerError) as error:
            world.round(world.start())
        assert (
            str(error.value)[17:] == f" died ({KILLED}), as did the 2 before it; use fewer workers if memory is short"
        )
        assert not pids()
        assert identical(world.round(world.start())[0], undisturbed)


def test_a_worker_that_is_killed_in_a_probe_is_replaced(tmp_path: Path) -> None:
    undisturbed = after(federation(engine=WORKERS, method=Mime()), 2)
    assert identical(after(federation(engine=WORKERS, method=DeadlyProbe(folder=str(tmp_path))), 2), undisturbed)


def test_a_worker_that_is_killed_in_an_evaluation_is_replaced(tmp_path: Path) -> None:
    def deadly(output: Tensor, y: Tensor) -> Tensor:
        if not torch.is_grad_enabled() and strike(str(tmp_path), 1):
            die()
        return Classification().loss(output, y)

    said = replace(data(), task=Classification())
    settings: dict[str, Any] = {"data": said, "engine": WORKERS, "evaluation": Evaluation(clients=True)}
    with federation(**settings) as world, federation(**settings, loss=deadly) as killed:
        assert killed.evaluate(killed.start()) == world.evaluate(world.start())
    assert list(tmp_path.iterdir())


def test_what_a_killed_worker_has_half_written_is_neither_read_nor_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"engine": WORKERS, "method": Scaffold(), "sampling": EVERYBODY}
    undisturbed = after(federation(**settings), 3)
    put_reply = Buffers.put_reply

    def torn(self: Buffers, job: Job, rows: slice, reply: Reply) -> Contents:
        if rows.start == 4 and strike(str(tmp_path), 2):
            for vectors in (self.client_state, self.uploads[job]):
                for value in vectors.values():
                    value[rows].fill_(1e9)
            die()
        return put_reply(self, job, rows, reply)

    monkeypatch.setattr(Buffers, "put_reply", torn)
    assert identical(after(federation(**settings), 3), undisturbed)
    assert len(list(tmp_path.iterdir())) == 2


def test_workers_that_are_all_killed_at_once_are_replaced(caplog: pytest.LogCaptureFixture) -> None:
    settings: dict[str, Any] = {"engine": WORKERS, "method": Scaffold(), "sampling": EVERYBODY}
    undisturbed = after(federation(**settings), 3)
    with federation(**settings) as world:
        state = world.start()
        world.prepare()
        kill_all()  # while they wait
        state, _ = world.round(state)
        expected = [reply.upload["delta"].clone() for reply in world.executor.work(world.ask(state))]  # type: ignore[union-attr]
        answers = world.executor.work(world.ask(state))
        found = [next(answers).upload["delta"]]  # type: ignore[union-attr]
        kill_all()  # while they work
        found += [reply.upload["delta"] for reply in answers]  # type: ignore[union-attr]
        assert identical(found, expected)
        state, _ = world.round(state)
        assert identical(world.round(state)[0], undisturbed)
    assert 2 <= len(caplog.messages) <= 4


@pytest.mark.full
def test_kills_at_random_moments_change_nothing() -> None:
    settings: dict[str, Any] = {"engine": WORKERS, "method": Scaffold(), "sampling": EVERYBODY}
    undisturbed = after(federation(**settings), 30)
    with federation(**settings) as world:
        state = world.start()
        world.prepare()
        for _ in range(30):
            killer = threading.Timer(random.uniform(0, 0.03), lambda: os.kill(random.choice(pids()), signal.SIGKILL))
            killer.start()
            state, _ = world.round(state)
            killer.join()
    assert identical(state, undisturbed)


@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=() if number == signal.SIGINT else pytest.mark.full) for number in STOPS]
)
def test_a_signal_that_asks_to_stop_does_not_end_a_worker(number: int, caplog: pytest.LogCaptureFixture) -> None:
    undisturbed = after(federation(engine=WORKERS), 1)
    with federation(engine=WORKERS) as world:
        world.prepare()
        before = pids()
        for pid in before:
            os.kill(pid, number)
        assert identical(world.round(world.start())[0], undisturbed) and pids() == before
    assert not caplog.messages and not pids()


def test_a_signal_that_comes_while_a_worker_starts_waits_for_the_start() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    timer = threading.Timer(0, lambda: [os.kill(os.getpid(), signal.SIGTERM) for _ in range(2000)])
    try:
        with federation(engine=WORKERS) as world:
            timer.start()
            for _ in range(3):
                world.prepare()
                world.close()
            timer.join()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came and not pids()


@dataclass(frozen=True)
class Obscure(Method):
    """A method whose exception can't be sent to another process."""

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        class LocalError(Exception):
            pass

        if multiprocessing.parent_process():
            raise LocalError("a plain word")
        return super().upload(local)


def test_an_interrupt_while_blocks_are_sent_is_no_pickling_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent has no name that pickle would import, for an interrupt in an import comes out as PicklingError."""
    imported = list[str]()
    sent = connection.Connection.send

    def watched(pipe: connection.Connection, message: Any) -> None:
        codes = pickletools.genops(bytes(ForkingPickler.dumps(message)))
        imported.extend(code.name for code, _, _ in codes if "GLOBAL" in code.name)
        sent(pipe, message)

    with federation(engine=WORKERS, method=Mime(), evaluation=Evaluation(clients=True)) as world:
        world.prepare()
        monkeypatch.setattr(connection.Connection, "send", watched)
        state = world.start()
        for _ in range(2):
            state, _ = world.round(state)
        world.evaluate(state)
    assert not imported


def test_an_exception_that_cannot_be_sent_comes_as_its_text() -> None:
    with federation(engine=WORKERS, method=Obscure()) as world, pytest.raises(RuntimeError) as error:
        list(world.executor.work(request_of(world)))
    assert str(error.value) == "LocalError: a plain word" and "clients" in error.value.__notes__[0]


@pytest.mark.full
def test_a_program_that_closes_nothing_ends_with_its_workers() -> None:
    program = (
        "from fedsash.testing import small_federation; from fedsash.testing.worlds import WORKERS\n"
        "world = small_federation(engine=WORKERS); world.round(world.start())"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env=environment)


@pytest.mark.parametrize(
    ("code", "says"),
    [(3, "exit code 3"), (-9, KILLED), (-15, "killed by SIGTERM"), (-40, "killed by signal 40")],
)
def test_the_end_of_a_process_is_said_in_words(code: int, says: str) -> None:
    assert ending(code) == says
