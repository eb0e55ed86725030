"""Running sums of a run's models: what they are, and that kills, resumes, forks and skipped rounds leave them right."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsash import SWA, Checkpoint, Fork, RunError, Window, resume, run
from fedsash.averages.afterwards import RunningSum
from fedsash.averages.sum_files import count, kept, place, read
from fedsash.methods import Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.runs import RunningSums
from fedsash.runs.checkpoints import load_newest
from fedsash.runs.running_sums import FOLDER, NAME
from fedsash.vector.saved import place as place_of_state
from fedsash.vector.saved import saved_rounds
from support.observing import AVERAGES, Crash, Evaluated, crash_at, final, go_on, observed, start
from support.script import Script, tell
from support.worlds import federation

EVERY = RunningSums(3)


def sums(folder: Path) -> dict[str, bytes]:
    """The bytes of all that a run has written of its sums."""
    return {path.name: path.read_bytes() for path in (folder / FOLDER).glob("*")}


def models_of(world: Any, rounds: int) -> list[Tensor]:
    """The model after each round, and None where the round was skipped."""
    found = []
    with world:
        state = world.start()
        for _ in range(rounds):
            state, outcome = world.round(state)
            found.append(state.w if outcome.moved else None)
    return found


def absent(**settings: Any) -> Any:
    """A federation in whose every third round nobody answers."""
    answers = np.ones((3, 6), dtype=np.bool_)
    answers[1] = False
    return observed(sampling=Uniform(4, trace=answers), **settings)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten rounds that nothing has stopped."""
    out = tmp_path_factory.mktemp("whole")
    start(observed(), 10, out, trajectory=EVERY)
    return out


# --- what they are ------------------------------------------------------------------------------------------------


def test_a_sum_is_that_of_the_models_so_far(whole: Path) -> None:
    models = models_of(observed(), 10)
    assert kept(whole / FOLDER) == [3, 6, 9]
    for round in (3, 6, 9):
        found = read(whole / FOLDER, round)
        assert found.count == round == count(whole / FOLDER, round)
        torch.testing.assert_close(found.high, torch.stack(models[:round]).sum(0), rtol=1e-15, atol=1e-15)


def test_a_window_between_two_sums_is_that_of_the_run_bitwise(whole: Path) -> None:
    world = observed(averages={"w3": Window(3), "w6": Window(6), "all": SWA(1)})
    with world:
        state = world.start()
        for _ in range(9):
            state, _ = world.round(state)
    there = world.models(state)
    newest = read(whole / FOLDER, 9)
    for name, since in {"w3": 6, "w6": 3}.items():
        assert torch.equal(newest.mean_since(read(whole / FOLDER, since), state.w), there[name])
    assert torch.equal(newest.mean_since(RunningSum.empty(len(state.w)), state.w), there["all"])


def test_they_change_nothing_else(whole: Path, tmp_path: Path) -> None:
    start(observed(), 10, tmp_path)
    bare, with_sums = final(tmp_path), final(whole)
    differ = {name for name in bare if bare[name] != with_sums[name]}
    assert bare.keys() == with_sums.keys() and differ == {"state/00000010/state.safetensors"}, "which has the sum"
    assert not (tmp_path / FOLDER).exists()


def test_a_file_takes_16_bytes_a_parameter(whole: Path) -> None:
    assert 0 <= place(whole / FOLDER, 3).stat().st_size - 16 * read(whole / FOLDER, 3).high.numel() < 1000


def test_a_round_that_was_skipped_counts_for_nothing(tmp_path: Path) -> None:
    models = models_of(absent(), 9)
    assert [w is None for w in models] == [False, True, False] * 3
    start(absent(averages={"w4": Window(4)}), 9, tmp_path, trajectory=EVERY)
    assert [count(tmp_path / FOLDER, round) for round in (3, 6, 9)] == [2, 4, 6]
    last = [w for w in models if w is not None][-4:]
    found = read(tmp_path / FOLDER, 9).mean_since(read(tmp_path / FOLDER, 3), models[0])
    torch.testing.assert_close(found, torch.stack(last).mean(0), rtol=1e-15, atol=1e-15)


def test_they_need_a_folder() -> None:
    with pytest.raises(ValueError, match=r"^trajectory.every = 3: needs a folder, or be 0$"):
        run(federation(), 3, progress=False, trajectory=EVERY)


# --- kills, resumes and forks -------------------------------------------------------------------------------------


def forget(folder: Path, round: int) -> None:
    """Remove the state that an exception has saved, so that the folder is that of a killed process."""
    shutil.rmtree(place_of_state(folder / "state", round))


@pytest.mark.parametrize("stop", [6, *(pytest.param(at, marks=pytest.mark.full) for at in (1, 4, 8))])
def test_a_resumed_run_has_the_same_sums_bitwise(stop: int, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(Crash):
        start(observed(), 10, tmp_path, every=2, trajectory=EVERY, callbacks=[crash_at(stop)])
    forget(tmp_path, stop)
    assert saved_rounds(tmp_path / "state")[-1:] == list(range(2, stop, 2))[-1:]
    go_on(observed(), 10, tmp_path, every=2, trajectory=EVERY)
    assert sums(tmp_path) == sums(whole)


def test_a_resumed_run_drops_the_sums_after_its_state_and_what_was_half_written(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(Crash):
        start(observed(), 10, tmp_path, every=4, trajectory=EVERY, callbacks=[crash_at(7)])
    assert kept(tmp_path / FOLDER) == [3, 6]
    forget(tmp_path, 7)
    (tmp_path / FOLDER / ".00000009.safetensors.99999999.tmp").write_bytes(b"half")  # of no process that lives
    world = observed()
    state, *_ = load_newest(tmp_path / "state", world.start())
    assert state.round == 4
    go_on(observed(), 10, tmp_path, until=5, trajectory=EVERY)
    assert kept(tmp_path / FOLDER) == [3] and len(sums(tmp_path)) == 1
    go_on(observed(), 10, tmp_path, trajectory=EVERY)
    assert sums(tmp_path) == sums(whole)


def test_a_run_that_is_resumed_with_running_sums_begins_them_there(tmp_path: Path) -> None:
    start(observed(), 10, tmp_path, until=4)
    go_on(observed(), 10, tmp_path, trajectory=EVERY)
    assert {round: count(tmp_path / FOLDER, round) for round in kept(tmp_path / FOLDER)} == {6: 2, 9: 5}


def test_sums_that_were_switched_off_in_between_are_kept_and_not_gone_on_with(tmp_path: Path) -> None:
    start(observed(), 12, tmp_path, until=4, trajectory=EVERY)
    go_on(observed(), 12, tmp_path, until=5, trajectory=RunningSums())
    with pytest.raises(RunError, match="has sums of the rounds 3, and the run has gone on without them: leave"):
        go_on(observed(), 12, tmp_path, trajectory=EVERY)
    assert kept(tmp_path / FOLDER) == [3] and saved_rounds(tmp_path / "state") == [4, 5]
    (tmp_path / FOLDER).rename(tmp_path / "before")
    go_on(observed(), 12, tmp_path, trajectory=EVERY)
    assert {round: count(tmp_path / FOLDER, round) for round in kept(tmp_path / FOLDER)} == {6: 1, 9: 4, 12: 7}


def test_a_session_that_says_nothing_of_sums_and_kept_states_goes_on_with_them(tmp_path: Path) -> None:
    how = {"checkpoint": Checkpoint(2, keep=(2,)), "trajectory": EVERY, "progress": False}
    run(observed(), 12, out=tmp_path, until=6, **how)  # type: ignore[arg-type]
    resume(observed(), 12, tmp_path, progress=False)
    assert kept(tmp_path / FOLDER) == [3, 6, 9, 12] and saved_rounds(tmp_path / "state") == [2, 10, 12]
    resume(observed(), 14, tmp_path, progress=False)
    assert saved_rounds(tmp_path / "state") == [2, 12, 14]


def test_a_fork_takes_over_the_sums_before_it_for_good(whole: Path, synced: list[Path], tmp_path: Path) -> None:
    """They are links, whose names are on the disk before the fork's state is: as the bottle's seed 7005171 missed."""
    start(observed(), 10, tmp_path / "stem", until=7, trajectory=EVERY)
    synced.clear()
    start(observed(), 10, tmp_path / "fork", until=8, fork=Fork(tmp_path / "stem", 7), trajectory=EVERY)
    assert tmp_path / "fork" / FOLDER in synced
    resume(observed(), 10, tmp_path / "fork", progress=False)
    assert sums(tmp_path / "fork") == sums(whole)
    start(observed(), 10, tmp_path / "none", fork=Fork(tmp_path / "stem", 7))
    assert not (tmp_path / "none" / FOLDER).exists()


def test_a_fork_does_not_take_over_a_damaged_sum(tmp_path: Path) -> None:
    start(observed(), 10, tmp_path / "stem", until=7, trajectory=EVERY)
    file = place(tmp_path / "stem" / FOLDER, 3)
    content = bytearray(file.read_bytes())
    content[-9] ^= 1
    file.write_bytes(content)
    with pytest.raises(RunError, match=r"00000003.safetensors is missing or damaged"):
        start(observed(), 10, tmp_path / "fork", fork=Fork(tmp_path / "stem", 7), trajectory=EVERY)
    assert not (tmp_path / "fork").exists()


def test_the_sums_of_a_fork_of_a_run_without_them_begin_at_the_fork(tmp_path: Path) -> None:
    start(observed(), 10, tmp_path / "stem", until=4)
    start(observed(), 10, tmp_path / "fork", fork=Fork(tmp_path / "stem", 4), trajectory=EVERY)
    folder = tmp_path / "fork" / FOLDER
    assert {round: count(folder, round) for round in kept(folder)} == {6: 2, 9: 5}


def test_a_beginning_that_was_killed_leaves_no_sums(whole: Path, tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    place(tmp_path / FOLDER, 1).write_bytes(b"of a fork that never began")
    start(observed(), 10, tmp_path, trajectory=EVERY)
    assert sums(tmp_path) == sums(whole)


def train(out: str, rounds: int) -> None:
    """Start or resume a run, and tell every round."""
    world, folder = observed(method=Scaffold()), Path(out)
    begun = (folder / "metrics.jsonl").exists()
    act: Callable[..., Any] = go_on if begun else start
    act(
        world,
        rounds,
        folder,
        every=4,
        trajectory=EVERY,
        callbacks=[Evaluated(lambda round, metrics: tell("round", round))],
    )
    tell("finished")


@pytest.fixture(scope="module")
def script() -> Iterator[Script]:
    started = Script(__name__, "train")
    yield started
    started.close()


@pytest.mark.slow
def test_kill_minus_nine_at_any_moment_changes_no_sum(script: Script, tmp_path: Path) -> None:
    kills, rounds = 5, 60
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    script.begin(out=whole, rounds=rounds)
    assert int(script.wait_for("ended")) == 0
    for i in range(kills):
        pid = script.begin(out=killed, rounds=rounds)
        if i:
            script.wait_for("round", "finished")
        time.sleep(random.uniform(0, 0.15))
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        script.wait_for("ended")
        for round in kept(killed / FOLDER):
            assert read(killed / FOLDER, round).count == round, "whatever is there can be used"
    script.begin(out=killed, rounds=rounds)
    assert int(script.wait_for("ended")) == 0
    assert final(killed) == final(whole) and sums(killed) == sums(whole)


# --- damage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [0, 9, 60, 300, -1])
def test_a_damaged_file_is_refused_in_one_line(part: int, whole: Path, tmp_path: Path) -> None:
    content = bytearray(place(whole / FOLDER, 6).read_bytes())
    content[part] ^= 16
    place(tmp_path, 6).write_bytes(content)
    with pytest.raises(ValueError, match=r"00000006\.safetensors is missing or damaged; without") as error:
        read(tmp_path, 6)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"nothing", None], ids=["empty", "other", "cut short"])
def test_other_bytes_and_other_rounds_are_refused(content: bytes | None, whole: Path, tmp_path: Path) -> None:
    bytes_there = place(whole / FOLDER, 6).read_bytes()
    place(tmp_path, 6).write_bytes(bytes_there[:-8] if content is None else content)
    with pytest.raises(ValueError, match="is missing or damaged"):
        count(tmp_path, 6)
    place(tmp_path, 3).write_bytes(bytes_there)
    with pytest.raises(ValueError, match="is missing or damaged"):
        read(tmp_path, 3)


def test_no_average_of_a_users_can_be_called_like_the_sum() -> None:
    with pytest.raises(ValueError, match="must be a name of letters"):
        federation(averages={NAME: AVERAGES["ema"]})
    assert replace(EVERY, every=0) == RunningSums()


def test_a_run_whose_rounds_so_far_were_all_skipped_goes_on(tmp_path: Path) -> None:
    """Its saved sums are of no model, and its first model comes after the resume."""
    answers = np.ones((8, 6), dtype=np.bool_)
    answers[:3] = False

    def late() -> Any:
        return observed(sampling=Uniform(4, trace=answers))

    start(late(), 6, tmp_path / "whole", trajectory=RunningSums(1))
    start(late(), 2, tmp_path / "stopped", trajectory=RunningSums(1))
    assert [count(tmp_path / "stopped" / FOLDER, round) for round in (1, 2)] == [0, 0]
    go_on(late(), 6, tmp_path / "stopped", trajectory=RunningSums(1))
    assert sums(tmp_path / "stopped") == sums(tmp_path / "whole")
    assert final(tmp_path / "stopped") == final(tmp_path / "whole")
