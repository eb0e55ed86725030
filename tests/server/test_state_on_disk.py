"""Runs whose windows lie on the disk: the numbers of those in memory, states that share their files, a full disk."""

from __future__ import annotations

import ctypes
import itertools
import multiprocessing
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedsash import Broadcast, Checkpoint, Federation, Fork, Window, resume, run
from fedsash.runs import Callback, LiveRun
from fedsash.runs.checkpoints import load, save
from fedsash.settings.errors import RunError
from fedsash.vector.saved import saved_rounds
from support.broadcasting import ADAPTIVE, noisy
from support.by_default import full, some
from support.choices import chequered
from support.observing import final, go_on, start
from support.script import Script, tell
from support.worlds import WORKERS, after, federation, identical, mlp, quadratic_federation

SHARES = os.uname().sysname == "Linux"
ELSEWHERE = Path("/dev/shm")
WINDOWS = {"wima": Window(3), "ema": Window(5, every=2), "part": Window(2, part="classifier"), "one": Window(1)}
LOW = {name: replace(window, kept_as="bfloat16") for name, window in WINDOWS.items()}
KEPT = {"model": WINDOWS, "bfloat16": LOW}
FED: dict[str, Any] = ADAPTIVE | {
    "nobody": None,
    "after": Broadcast("wima", 2),
    "before": Broadcast("wima", 2, "before"),
    "code": Broadcast("wima", 2, "code"),
}


SHOWN = ("code",)
"""Broadcasts with which a run is tried by default."""


def on(storage: Any, windows: dict[str, Window]) -> Any:
    return {name: replace(window, storage=storage) for name, window in windows.items()}


def kept(place: Path) -> dict[str, int]:
    """The models in a saved state, by their names: which file it is."""
    return {path.name: path.stat().st_ino for path in place.glob("past-*")}


@pytest.mark.parametrize("broadcast, kept_as", some(chequered(FED, KEPT, of=3), *SHOWN))
def test_a_run_has_the_same_bytes_wherever_its_models_lie(broadcast: str, kept_as: str, tmp_path: Path) -> None:
    windows = KEPT[kept_as]
    for storage in ("host", "disk"):
        world = noisy(averages=on(storage, windows), broadcast=FED[broadcast])
        start(world, 6, tmp_path / storage, every=2)
    assert final(tmp_path / "host") == final(tmp_path / "disk")


@pytest.mark.parametrize("windows", [full(WINDOWS), LOW], ids=list(KEPT))
def test_a_run_that_is_resumed_or_forked_may_go_on_with_another_storage(
    windows: dict[str, Window], tmp_path: Path
) -> None:
    def world(storage: str) -> Federation:
        return noisy(averages=on(storage, windows), broadcast=FED["after"])

    start(world("host"), 6, tmp_path / "whole", every=3)
    start(world("disk"), 3, tmp_path / "a", every=3)
    go_on(world("host"), 6, tmp_path / "a", every=3)
    start(world("host"), 3, tmp_path / "b", every=3)
    go_on(world("disk"), 6, tmp_path / "b", every=3)
    start(world("disk"), 6, tmp_path / "fork", fork=Fork(tmp_path / "whole", 3))
    for other in "a", "b", "fork":
        assert final(tmp_path / other) == final(tmp_path / "whole")


@pytest.mark.skipif(not SHARES, reason="only Linux names a file that has no name")
def test_states_forks_and_windows_share_one_file_for_each_model(tmp_path: Path) -> None:
    world = federation(averages={"a": Window(3, storage="disk"), "b": Window(2, storage="disk")})
    state = world.start(tmp_path)
    states = [kept(save(state := after(world, 1, state), tmp_path / "state")) for _ in range(3)]
    for one, other in itertools.pairwise(states):
        assert {name: other[name] for name in one} == one
    loaded = load(tmp_path / "state" / "00000003", world.start(tmp_path / "fork"))
    assert identical(loaded, state) and kept(save(loaded, tmp_path / "fork")) == states[-1]
    further = kept(save(after(world, 1, loaded), tmp_path / "fork"))
    assert {name for name in further if further[name] == states[-1].get(name)} == set(sorted(states[-1])[1:])


@pytest.mark.skipif(not os.access(ELSEWHERE, os.W_OK), reason="the system has no second file system at /dev/shm")
def test_a_fork_from_another_file_system_has_copies(tmp_path: Path) -> None:
    world, source = federation(averages={"w": Window(3, storage="disk")}), ELSEWHERE / f"fedsash-{os.getpid()}"
    try:
        state = after(world, 4, world.start(source))
        place = save(state, source)
        loaded = load(place, world.start(tmp_path))
        again = save(loaded, tmp_path)
        subprocess.run(["rm", "-r", str(source)], check=True)
        assert identical(load(again, world.start()), state) and identical(loaded, state)
        assert identical(after(world, 2, loaded), after(world, 2, state))  # this makes the folder again
    finally:
        shutil.rmtree(source, ignore_errors=True)


def test_models_whose_files_are_removed_while_a_run_goes_on_are_not_lost(tmp_path: Path) -> None:
    world = federation(averages={"w": Window(3, storage="disk")})
    state = after(world, 3, world.start(tmp_path))
    place = save(state, tmp_path)
    for path in place.glob("past-*"):
        path.unlink()
    again = save(after(world, 1, state), tmp_path)
    assert identical(load(again, world.start()), after(world, 4))


def test_models_of_float32_and_of_a_single_number_lie_on_the_disk_too(tmp_path: Path) -> None:
    averages = {"w": Window(2, storage="disk")}
    small = federation(averages=averages, model=mlp(dtype=torch.float32))
    single = quadratic_federation([1.0, 3.0], [0.0, 1.2], averages=averages)
    for world, place in ((small, tmp_path / "small"), (single, tmp_path / "single")):
        state = after(world, 3, world.start(place))
        assert identical(load(save(state, place), world.start()), state)
    assert small.start().w.dtype == torch.float32 and len(single.start().w) == 1


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system has no /proc")
def test_worker_processes_hold_no_models_of_a_resumed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what the run has removed would fill the disk as long as they live. The disk is a slow one."""
    averages = {"w": Window(3, storage="disk")}
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (time.sleep(0.1), fsync(file)))
    save(after(federation(averages=averages), 3), tmp_path)
    with federation(averages=averages, engine=WORKERS) as world:
        state = load(tmp_path / "00000003", world.start(tmp_path))
        world.round(state)
        held = [_files_of(child.pid) for child in multiprocessing.active_children()]
    assert held and not [name for names in held for name in names if name.startswith(str(tmp_path))]


def _files_of(pid: int | None) -> list[str]:
    return [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]


def test_the_type_counts_where_the_window_feeds_the_training_and_never_mixes(tmp_path: Path) -> None:
    exact, low = ({"w": Window(2, kept_as=kind)} for kind in ("model", "bfloat16"))  # type: ignore[arg-type]
    seen, fed = (
        [federation(averages=averages, broadcast=to).fingerprint for averages in (exact, low)] for to in (None, "w")
    )
    assert {name for name in seen[0] if seen[0][name] != seen[1][name]} == {"averages.w"}
    assert {name for name in fed[0] if fed[0][name] != fed[1][name]} == {"averages", "averages.w"}
    run(federation(averages=exact), 2, out=tmp_path, progress=False)
    with pytest.raises(RunError, match=r"averages\.w is kept_as at its default there and kept_as='bfloat16' here\. To"):
        resume(federation(averages=low), 3, tmp_path, progress=False)


# A disk that fills up.


class Ballast(Callback):
    """Fills the disk of a run up after a round."""

    def round(self, run: LiveRun, report: Any) -> None:
        if run.round == 7:
            assert run.folder is not None
            left = os.statvfs(run.folder).f_bavail * os.statvfs(run.folder).f_bsize
            (run.folder / "ballast").write_bytes(bytes(max(0, left - 100_000)))


def observed() -> Federation:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5000), nn.Tanh(), nn.Linear(5000, 3)).double()  # 320 kB
    return federation(model=model, averages={"w": Window(6, storage="disk")}, broadcast=Broadcast("w", 3))


def on_a_full_disk(folder: str) -> None:
    """Tell how a run ends whose disk fills up, and whether it then comes to the bytes of one that has room."""
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None).unshare(0x10000000 | 0x20000):
        tell("mounts", "no")
        return
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    disk = Path(folder) / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)], capture_output=True).returncode:
        tell("mounts", "no")
        return
    tell("mounts", "yes")
    out, checkpoint = disk / "run", Checkpoint(3)
    try:
        run(observed(), 9, out=out, checkpoint=checkpoint, callbacks=[Ballast()], progress=False)
    except OSError as error:
        tell("error", str(error).replace(" ", "_"))
    tell("saved", max(saved_rounds(out / "state")))
    (out / "ballast").unlink()
    resume(observed(), 9, out, checkpoint=checkpoint, progress=False)
    whole = Path(folder) / "whole"
    run(observed(), 9, out=whole, checkpoint=checkpoint, progress=False)
    tell("same", final(out) == final(whole))


@pytest.fixture
def script() -> Iterator[Script]:
    started = Script(__name__, "on_a_full_disk")
    yield started
    started.close()


@pytest.mark.full
@pytest.mark.timeout(100)
def test_a_disk_that_fills_up_ends_the_run_in_one_line_and_with_room_it_goes_on(script: Script, tmp_path: Path) -> None:
    script.begin(folder=tmp_path)
    if script.wait_for("mounts") == "no":
        pytest.skip("this system allows no file systems of one's own")
    assert "a_past_model_can't_be_written:_No_space_left_on_device" in script.wait_for("error")
    assert int(script.wait_for("saved")) >= 6
    assert (script.wait_for("same"), script.wait_for("ended")) == ("True", "0")
