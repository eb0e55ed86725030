"""The federation in a bottle: its disk forgets what a disk may forget, its dead do nothing, a seed tells one story."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torture.bottle import steps
from torture.bottle.case import Case, shrunk
from torture.bottle.disk import SimulatedDisk
from torture.bottle.machine import Machine, SimulatedProcess, forget_process
from torture.bottle.world import Hang, Killed, World

from fedsash.flower.averaged.best import KeptBest
from fedsash.flower.nodes.on_grid import OnGrid
from fedsash.flower.nodes.roll_call import RollCall
from fedsash.runs import session
from fedsash.runs.records import Records
from fedsash.system import files
from fedsash.system.files import replace_file
from fedsash.system.host import NEW, host, make_folders, opened, write_all
from fedsash.vector import saved
from support.by_default import some

FACTS = {"format": 1}


def machine(folder: Path, seed: int = 0) -> Machine:
    """A machine whose process has started."""
    made = Machine(World(limit=1e6), "the machine", folder / "disk", Random(seed))
    made.start()
    return made


def start_again(dead: Machine) -> None:
    """Kill the process, if it lives, and start another one."""
    dead.die("dies")
    forget_process()
    dead.deaths.clear()
    dead.start()


def restart(dead: Machine) -> None:
    """Kill the process, lose the power and start again."""
    dead.powered = False
    start_again(dead)


@contextmanager
def empty() -> Iterator[Path]:
    """An empty folder, for one example of a law."""
    with TemporaryDirectory() as name:
        yield Path(name)


def save(folder: Path, round: int) -> None:
    """Save a state with a part of its own and one that never changes."""
    parts = {f"part-{round}.safetensors": {"w": torch.ones(2) * round}, "same.safetensors": {"w": torch.ones(3)}}
    saved.save(folder, round, {"w": torch.full((2,), float(round))}, parts, FACTS)


def readable(folder: Path) -> int:
    """The round of the newest readable state; 0 without any state."""
    loaded, _ = saved.newest(folder, lambda path: saved.read(path, 1)[1]["w"])
    return 0 if loaded is None else int(loaded[0])


@pytest.mark.parametrize("seed", some(range(5), 3))
def test_the_story_of_a_seed_is_always_the_same(seed: int) -> None:
    outcome = Case(seed).go()
    assert outcome.violations == [] and outcome.rounds > 0
    assert Case(seed).go().story == outcome.story


def test_without_its_faults_a_case_is_the_same_federation() -> None:
    whole = Case(11)
    without = Case(11, whole.places)
    assert without.setup == whole.setup and without.faults == []
    assert without.go().violations == []


def test_the_search_for_fewer_faults_leaves_out_what_the_same_violation_does_not_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torture.bottle.play.SERVERS", 0)  # so that no run ever ends, whatever befalls it
    case = Case(3)
    (violation,) = case.go().violations
    assert shrunk(3, violation).faults == []
    assert shrunk(3, "the server ends: another reason").faults == case.faults != []


def no_sync_of_a_new_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is replaced by one that may not be on the disk yet."""
    write = files._write_beside

    def write_without_sync(path: Path, *content: bytes | memoryview) -> None:
        with monkeypatch.context() as unsynced:
            unsynced.setattr(SimulatedDisk, "sync", lambda disk, handle: None)
            write(path, *content)

    monkeypatch.setattr(files, "_write_beside", write_without_sync)


def no_second_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose answer to the roll call is lost is not asked again."""
    monkeypatch.setattr(RollCall, "_is_due", lambda roll_call, node: node not in roll_call._last)


def the_newest_state_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is resumed goes on from the state before the newest."""
    newest = saved.newest

    def newest_but_one(folder: Path, load: Callable[[Path], Any]) -> Any:
        with monkeypatch.context() as dropped:
            dropped.setattr(saved, "saved_rounds", lambda folder: saved_rounds(folder)[:-1] or saved_rounds(folder))
            return newest(folder, load)

    saved_rounds = saved.saved_rounds
    monkeypatch.setattr(saved, "newest", newest_but_one)


def no_best_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """No model is kept as the best one."""
    monkeypatch.setattr(session, "best_after", lambda best, *arguments: best)


def no_best_model_of_a_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    """No served model is kept as the best one."""
    monkeypatch.setattr(KeptBest, "_is_better", lambda kept, score: False)


def no_wait_for_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds are made while no node is there."""
    monkeypatch.setattr(OnGrid, "_await_clients", lambda executor: None)


PLANTED = {
    no_sync_of_a_new_file: (7200013, "config.toml is damaged"),
    no_second_question: (7200015, "though nodes have long been there"),
    the_newest_state_is_dropped: (7200001, "goes back to round 9, though round 10 was on the disk"),
    no_best_model: (7200013, "model-best is of round None"),
    no_best_model_of_a_strategy: (7200030, "no best model is kept"),
    no_wait_for_clients: (7200069, "is skipped, and no node was there"),
}
"""A seed that tells each mistake, and some of its words; without the mistake nothing is violated."""


@pytest.mark.parametrize(
    "plant", some(PLANTED, no_sync_of_a_new_file, no_best_model_of_a_strategy, no_wait_for_clients)
)
def test_a_mistake_in_production_is_told(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    seed, expected = PLANTED[plant]
    assert Case(seed).go().violations == []
    plant(monkeypatch)
    assert any(expected in violation for violation in Case(seed).go().violations)


def test_of_fresh_uploads_one_at_a_time_every_scheduler_makes_the_uploaded_model_its_own() -> None:
    models = np.random.default_rng(0).normal(size=(4, 3))
    uploads = [steps.Uploaded(0, version, models[version], models[version + 1]) for version in range(3)]
    for made in (
        steps.fedasync(models[0], uploads, alpha=1.0, a=0.5),
        steps.fedbuff(models[0], uploads, size=1, a=0.5),
        steps.fedwindow(models[0], uploads, size=1),
    ):
        np.testing.assert_allclose(made, models, rtol=1e-14)
    assert steps.versions_of_ring(uploads, 1) == [0, 1, 2]


@pytest.mark.full
def test_a_minute_in_the_bottle_violates_nothing() -> None:
    seed = 10_000
    end = time.monotonic() + 60
    while time.monotonic() < end:
        outcome = Case(seed).go()
        assert not outcome.violations, "\n".join(outcome.story)
        seed += 1


@given(st.integers(0, 10**6), st.integers(1, 6))
@settings(deadline=None, max_examples=60)
def test_after_any_power_cut_the_state_before_the_newest_is_there(seed: int, count: int) -> None:
    """Also if an earlier process, which was killed, has saved the states so far."""
    with empty() as folder:
        bottle = machine(folder, seed)
        states = bottle.disk.root / "runs" / "run" / "state"
        with bottle.at_work():
            for round in range(1, count + 1):
                save(states, round)
                if bottle.chance.random() < 0.3:
                    start_again(bottle)
                    saved.cut(states, round)  # the next process goes on from there
        restart(bottle)
        assert readable(states) >= max(count - 1, 1)


@given(st.integers(0, 10**6), st.integers(1, 200))
@settings(deadline=None, max_examples=70)
def test_wherever_a_process_dies_while_it_saves_another_one_saves_on(seed: int, step: int) -> None:
    with empty() as folder:
        bottle = machine(folder, seed)
        states = bottle.disk.root / "run" / "state"
        bottle.deaths[step] = lambda: bottle.die("dies")
        done = 0
        try:
            with bottle.at_work():
                for round in range(1, 6):
                    save(states, round)
                    done = round
        except Killed:
            pass
        restart(bottle)
        with bottle.at_work():
            newest = readable(states)
            assert newest >= done - 1 and (done == 0 or newest > 0)
            saved.cut(states, newest)
            for round in range(newest + 1, 7):  # also where the crash has left a part of a state
                save(states, round)
        assert readable(states) == 6
        assert not list(states.glob(".*.tmp"))


@given(st.integers(0, 10**6), st.integers(1, 200))
@settings(deadline=None, max_examples=60)
def test_what_a_killed_process_has_left_does_not_come_back_once_another_one_has_looked(seed: int, step: int) -> None:
    """As when a run has ended, and saves nothing any more."""
    with empty() as folder:
        bottle = machine(folder, seed)
        states = bottle.disk.root / "run" / "state"
        bottle.deaths[step] = lambda: bottle.die("dies")
        with bottle.at_work(), suppress(Killed):
            for round in range(1, 6):
                save(states, round)
        start_again(bottle)
        with bottle.at_work():
            last, _ = saved.newest(states, lambda path: int(path.name))
            if last is not None:
                saved.cut(states, last)
                saved.prune(states, ())
        restart(bottle)
        assert not list(states.glob(".*.tmp"))


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=30)
def test_what_was_removed_does_not_come_back_however_early_the_newest_state_is_on_the_disk(seed: int) -> None:
    with empty() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedProcess, "background", lambda process: AtOnce())
        bottle = machine(folder, seed)
        states = bottle.disk.root / "run" / "state"
        with bottle.at_work():
            for round in range(1, 4):
                save(states, round)
        restart(bottle)
        assert not list(states.glob(".*.tmp"))


class AtOnce(Executor):
    """The background of a process that does at once what it is given."""

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(call(*arguments, **named))
        return done


def test_a_power_cut_when_a_run_goes_back_leaves_no_part_of_a_state_in_its_way(tmp_path: Path) -> None:
    """As a part it would be taken for somebody's folder. Without a sync about one cut in a hundred leaves one."""
    bottle = machine(tmp_path)
    states = bottle.disk.root / "state"
    with bottle.at_work():
        for round in range(1, 4):
            save(states, round)
        saved.cut(states, 3)
    content = bottle.disk.content()
    for _ in range(150):
        bottle.disk.put(content)
        with bottle.at_work():
            saved.cut(states, 2)
        restart(bottle)
        with bottle.at_work():
            newest = readable(states)
            assert newest >= 2
            saved.cut(states, 2)
            save(states, 3)


@given(st.integers(0, 10**6), st.integers(1, 30))
@settings(deadline=None, max_examples=60)
def test_a_folder_that_a_killed_process_has_made_is_there_after_a_power_cut_if_it_holds_a_state(
    seed: int, step: int
) -> None:
    with empty() as folder:
        bottle = machine(folder, seed)
        states = bottle.disk.root / "runs" / "run" / "state"
        with bottle.at_work():
            bottle.deaths[step] = lambda: bottle.die("dies")
            try:
                save(states, 1)
            except Killed:
                start_again(bottle)
                saved.cut(states, 1)
                save(states, 1)
        restart(bottle)
        assert readable(states) == 1


@given(st.integers(0, 10**6), st.integers(1, 60))
@settings(deadline=None, max_examples=60)
def test_a_power_cut_while_a_round_is_saved_again_leaves_it(seed: int, step: int) -> None:
    """A run that ends early saves its last round a second time."""
    with empty() as folder:
        bottle = machine(folder, seed)
        states = bottle.disk.root / "runs" / "run" / "state"
        with bottle.at_work(), suppress(Killed):
            save(states, 1)
            bottle.deaths[bottle.steps + step] = lambda: bottle.die("dies")
            save(states, 1)
        restart(bottle)
        with bottle.at_work():
            assert readable(states) == 1
            saved.cut(states, 1)
            save(states, 2)
        assert readable(states) == 2
        assert not list(states.glob(".*.tmp"))


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=40)
def test_a_file_in_new_folders_is_there_after_a_power_cut(seed: int) -> None:
    with empty() as folder:
        bottle = machine(folder, seed)
        file = bottle.disk.root / "run" / "client" / "file"
        with bottle.at_work():
            make_folders(file.parent)
            replace_file(file, b"written")
        restart(bottle)
        assert file.read_bytes() == b"written"


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=60)
def test_a_file_that_was_replaced_is_the_old_or_the_new_one_after_a_power_cut(seed: int) -> None:
    with empty() as folder:
        bottle = machine(folder, seed)
        file = bottle.disk.root / "file"
        with bottle.at_work():
            replace_file(file, b"old")
            bottle.deaths[bottle.steps + 1 + bottle.chance.randrange(12)] = lambda: bottle.die("dies")
            try:
                replace_file(file, b"new")
                expected = [b"new"]
            except Killed:
                expected = [b"old", b"new"]
        restart(bottle)
        assert file.read_bytes() in expected


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=60)
def test_rows_that_were_flushed_outlive_a_power_cut_and_others_at_most_in_part(seed: int) -> None:
    with empty() as folder:
        bottle = machine(folder, seed)
        file = bottle.disk.root / "metrics.jsonl"
        with bottle.at_work():
            replace_file(file, b"one\n")
            with opened(file, os.O_WRONLY | os.O_APPEND) as handle:
                write_all(handle, b"two\n")
            Records(bottle.disk.root).flush()
            with opened(file, os.O_WRONLY | os.O_APPEND) as handle:
                write_all(handle, b"three\n")
        restart(bottle)
        content = file.read_bytes()
        assert content.startswith(b"one\ntwo\n") and len(content) <= len(b"one\ntwo\nthree\n")


def test_what_was_not_synced_may_be_lost_and_what_is_lost_depends_on_chance(tmp_path: Path) -> None:
    """The disk would see a missing fsync of a file, and of a folder."""
    seen = set()
    for seed in range(60):
        bottle = machine(tmp_path / str(seed), seed)
        with bottle.at_work(), opened(bottle.disk.root / "file", NEW) as handle:
            write_all(handle, b"abcdef")
        restart(bottle)
        file = bottle.disk.root / "file"
        seen.add(file.read_bytes() if file.exists() else None)
    assert {None, b"", b"abcdef"} <= seen
    assert any(content and content != b"abcdef" for content in seen)


def test_what_a_process_waits_for_is_done_once_also_if_it_is_paused_in_it(tmp_path: Path) -> None:
    bottle = machine(tmp_path)
    done: list[int] = []

    def paused() -> None:
        done.append(1)
        bottle.pause(10.0)
        bottle.step()  # in the pause comes the moment at which it would be done in the background

    with bottle.at_work():
        host.process.background().submit(paused).result()
    assert done == [1]


def test_a_dead_process_changes_nothing_whatever_it_catches(tmp_path: Path) -> None:
    bottle = machine(tmp_path)
    with bottle.at_work():
        make_folders(bottle.disk.root / "folder")
        bottle.die("dies")
        with pytest.raises(Killed):
            replace_file(bottle.disk.root / "file", b"late")
        with pytest.raises(Killed):
            host.disk.remove_folder(bottle.disk.root / "folder")
        with pytest.raises(Killed):
            host.clock.sleep(1.0)
        with pytest.raises(Killed):
            host.process.background().submit(len, "").result()
    assert [path.name for path in bottle.disk.root.iterdir()] == ["folder"]
    assert bottle.world.now == 0.0


def test_time_goes_on_while_somebody_sleeps_and_does_not_go_on_for_ever() -> None:
    world = World(limit=10.0)
    moments: list[float] = []
    world.after(2.0, lambda: moments.append(world.now))
    world.after(1.0, lambda: moments.append(world.now))
    world.wait(5.0)
    assert moments == [1.0, 2.0] and world.now == 5.0
    with pytest.raises(Hang):
        world.wait(6.0)
