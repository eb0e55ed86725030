from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from worlds import after, data, federation, mlp

from fedsash.averages import EMA, SWA, Window
from fedsash.data.federated import FederatedData
from fedsash.federation import Federation
from fedsash.methods import FedAvg, Scaffold
from fedsash.servers import SGD, Adagrad, Adam, Yogi
from fedsash.state import Best, State, StateError, UnreadableError, cut, load, load_newest, save, saved_rounds

no_deadline = settings(deadline=None, max_examples=50)

KINDS: dict[str, dict[str, Any]] = {
    "nothing but the model": {},
    "SCAFFOLD": {"method": Scaffold()},
    "momentum": {"server": SGD(momentum=0.9)},
    "Adagrad": {"server": Adagrad()},
    "Adam": {"server": Adam(bias_correction="keras")},
    "Yogi": {"server": Yogi()},
    "window on the device": {"averages": {"w": Window(3, storage="device")}},
    "window in host memory": {"averages": {"w": Window(3, storage="host")}},
    "window on disk": {"averages": {"w": Window(3, storage="disk")}},
    "window not full yet": {"averages": {"w": Window(9, every=2, start=3)}},
    "window of the classifier": {"averages": {"w": Window(2, part="classifier")}},
    "EMA": {"averages": {"e": EMA(0.9), "zero": EMA(0.9, start="zero")}},
    "SWA": {"averages": {"s": SWA(1, cycle=2)}},
    "everything": {
        "method": Scaffold("I"),
        "server": Adam(),
        "averages": {"w-3": Window(3), "long": Window(4, every=2), "e": EMA(0.5), "s-1": SWA(1)},
    },
}


def tensors(state: State) -> dict[str, Tensor]:
    """Every single tensor of a state."""
    groups = {"server": state.server, "shared": state.shared, "mine": state.mine, **state.averages}
    found = {f"{group}/{name}": value for group, vectors in groups.items() for name, value in vectors.items()}
    return found | {f"best/{name}": best.w for name, best in state.best.items()} | {"w": state.w}


def bits(tensor: Tensor) -> tuple[str, tuple[int, ...], bytes]:
    return (
        str(tensor.dtype),
        tuple(tensor.shape),
        tensor.contiguous().view(torch.uint8 if tensor.dim() else tensor.dtype).numpy().tobytes(),
    )


def snapshot(state: State) -> dict[str, Any]:
    """All that a state holds, as plain values."""
    numbers = (state.round, state.forked, state.samples, state.seconds, state.training_seconds)
    best = {name: (best.accuracy, best.round) for name, best in state.best.items()}
    return {name: bits(t) for name, t in tensors(state).items()} | {"numbers": numbers, "best": best}


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def trained(world: Federation, rounds: int, folder: Path, every: int = 2, keep: tuple[int, ...] = ()) -> State:
    """The state after so many rounds, with a state saved every so often, evaluated each time."""
    state = world.start()
    for round in range(every, rounds + 1, every):
        state = after(world, every, state)
        world.evaluate(state)
        state.samples, state.seconds, state.training_seconds = 10 * round, 0.1 + round, round / 3
        save(state, folder, keep)
    return state


# What is saved comes back.


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_state_comes_back_bitwise_and_trains_on_alike(kind: str, tmp_path: Path) -> None:
    world = federation(**KINDS[kind])
    state = after(world, 5)
    world.evaluate(state)
    state.samples, state.seconds, state.training_seconds, state.forked = 123, 0.1 + 0.2, 1 / 3, 2
    expected = snapshot(state)
    loaded = load(save(state, tmp_path), world.start(tmp_path))
    assert snapshot(loaded) == expected
    assert snapshot(after(world, 3, loaded)) == snapshot(after(world, 3, state))


def test_float32_stays_float32(tmp_path: Path) -> None:
    world = federation(model=mlp().float(), data=_single(data()), averages={"w": Window(2), "e": EMA(0.9)})
    state = after(world, 3)
    loaded = load(save(state, tmp_path), world.start())
    assert loaded.w.dtype == loaded.averages["w"]["models"].dtype == torch.float32
    assert snapshot(loaded) == snapshot(state)


def _single(world: FederatedData) -> FederatedData:
    """The same data in float32."""
    assert world.test is not None
    return replace(
        world, train=replace(world.train, x=world.train.x.float()), test=replace(world.test, x=world.test.x.float())
    )


any_floats = st.lists(st.floats(width=64), min_size=1, max_size=5)


@no_deadline
@given(w=any_floats, c=any_floats, accuracy=st.floats(0, 1), seconds=st.floats(0, 1e9), samples=st.integers(0, 2**62))
def test_any_numbers_come_back_bitwise(
    w: list[float],
    c: list[float],
    accuracy: float,
    seconds: float,
    samples: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    def state(w: list[float], c: list[float]) -> State:
        vector, mine = torch.tensor(w, dtype=torch.float64), torch.tensor([c], dtype=torch.float64)
        return State(0, vector, {}, {"c": mine[0].clone()}, {"c": mine}, {})

    full = state(w, c)
    full.round, full.samples, full.seconds, full.best = 7, samples, seconds, {"model": Best(accuracy, 3, -full.w)}
    empty = state([0.0] * len(w), [0.0] * len(c))
    loaded = load(save(full, tmp_path_factory.mktemp("state")), empty)
    assert snapshot(loaded) == snapshot(full)


def test_a_state_is_safetensors_and_json_and_readable_by_those_who_may_read_the_folder(tmp_path: Path) -> None:
    from safetensors import safe_open

    place = save(after(federation(**KINDS["everything"]), 3), tmp_path)
    for path in place.iterdir():
        assert path.stat().st_mode & 0o666 == place.stat().st_mode & 0o666
        if path.name == "state.json":
            json.loads(path.read_text())
        else:
            assert path.suffix == ".safetensors"
            with safe_open(path, "pt") as file:
                assert list(file.keys())


def test_what_was_loaded_does_not_depend_on_the_files_any_more(tmp_path: Path) -> None:
    world = federation(**KINDS["everything"])
    state = trained(world, 4, tmp_path, every=4)
    loaded = load(tmp_path / "00000004", world.start())
    for path in (tmp_path / "00000004").iterdir():
        os.truncate(path, 0)
    assert snapshot(loaded) == snapshot(state)


# Which files there are.


def test_a_windows_models_are_written_once_and_linked_from_then_on(tmp_path: Path) -> None:
    world = federation(averages={"w": Window(3)})
    state = after(world, 3)
    first = save(state, tmp_path)
    written = (first / "w-00000003.safetensors").stat()
    second = save(after(world, 2, state), tmp_path)
    assert sorted(path.name for path in second.glob("w-*")) == [f"w-0000000{round}.safetensors" for round in (3, 4, 5)]
    linked = (second / "w-00000003.safetensors").stat()
    assert (linked.st_ino, linked.st_mtime_ns, linked.st_nlink) == (written.st_ino, written.st_mtime_ns, 2)
    assert all((second / f"w-0000000{round}.safetensors").stat().st_nlink == 1 for round in (4, 5))


def test_a_window_whose_state_before_lost_a_file_is_written_again(tmp_path: Path) -> None:
    world = federation(averages={"w": Window(4)})
    state = trained(world, 2, tmp_path)
    (tmp_path / "00000002" / "w-00000002.safetensors").unlink()
    state = after(world, 1, state)
    assert snapshot(load(save(state, tmp_path), world.start())) == snapshot(state)


def test_a_retracted_model_is_in_no_later_state(tmp_path: Path) -> None:
    world = federation(averages={"w": Window(4)})
    state = trained(world, 2, tmp_path)
    world.observers["w"].retract(state.averages["w"], 2)
    state = after(world, 1, state)
    place = save(state, tmp_path)
    assert sorted(path.name for path in place.glob("w-*")) == ["w-00000001.safetensors", "w-00000003.safetensors"]
    assert snapshot(load(place, world.start())) == snapshot(state)


def test_the_last_two_states_and_those_to_keep_stay(tmp_path: Path) -> None:
    trained(federation(averages={"w": Window(2)}), 12, tmp_path, keep=(4, 5, 12))
    assert saved_rounds(tmp_path) == [4, 10, 12]
    assert listing(tmp_path)[0] == "00000004" and not list(tmp_path.glob(".*"))


def test_cutting_drops_later_states_and_what_was_half_written(tmp_path: Path) -> None:
    trained(federation(), 6, tmp_path, keep=(2, 4, 6))
    (tmp_path / ".00000008.tmp").mkdir()
    (tmp_path / ".00000008.tmp" / "state.safetensors").write_bytes(b"half")
    cut(tmp_path, 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000002", "00000004"]
    cut(tmp_path / "nowhere", 4)


def test_a_state_can_be_saved_again(tmp_path: Path) -> None:
    world = federation(averages={"w": Window(2)})
    state = trained(world, 4, tmp_path)
    save(state, tmp_path)
    assert saved_rounds(tmp_path) == [2, 4]
    assert snapshot(load(tmp_path / "00000004", world.start())) == snapshot(state)


# Damage.


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def flip_first(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])


def flip_last(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 0x80]))


def append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def nothing_known(path: Path) -> None:
    path.write_text("[]")


def other_number(path: Path) -> None:
    """Still JSON, but not what was written."""
    path.write_text(path.read_text().replace('"samples": 40', '"samples": 41'))


def other_format(path: Path) -> None:
    manifest = json.loads(path.read_text()) | {"format": 2}
    del manifest["checksum"]
    path.write_text(json.dumps(manifest | {"checksum": zlib.crc32(json.dumps(manifest).encode())}))


DAMAGE: list[tuple[str, Callable[[Path], None]]] = [
    *(
        (file, harm)
        for file in ("state.safetensors", "w-00000004.safetensors", "state.json")
        for harm in (truncate, empty, flip_first, flip_last, append, Path.unlink)
    ),
    *(("state.json", harm) for harm in (nothing_known, other_number, other_format)),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Federation, Path]:
    """States after rounds 2 and 4 of a run that share no file."""
    folder = tmp_path_factory.mktemp("saved")
    world = federation(averages={"w": Window(2)}, server=Adam(), method=Scaffold())
    trained(world, 4, folder)
    return world, folder


@pytest.mark.parametrize(("file", "harm"), DAMAGE, ids=[f"{harm.__name__} {file}" for file, harm in DAMAGE])
def test_a_damaged_state_is_found_and_the_one_before_used(
    file: str, harm: Callable[[Path], None], saved: tuple[Federation, Path], tmp_path: Path
) -> None:
    world, source = saved
    folder = shutil.copytree(source, tmp_path / "state")
    good = snapshot(load(folder / "00000002", world.start()))
    harm(folder / "00000004" / file)
    untouched = world.start()
    before = snapshot(untouched)
    with pytest.raises(UnreadableError):
        load(folder / "00000004", untouched)
    assert snapshot(untouched) == before
    state, notes = load_newest(folder, untouched)
    assert snapshot(state) == good
    assert len(notes) == 1 and "\n" not in notes[0]
    assert notes[0].startswith(str(folder / "00000004")) and notes[0].endswith("; using the state before it")
    if harm is other_format:
        assert "is in format 2, and this version of fedsash reads 1" in notes[0]
    else:
        assert file in notes[0] and "damaged" in notes[0]


@no_deadline
@given(data=st.data())
def test_any_flipped_bit_is_found(
    data: st.DataObject, saved: tuple[Federation, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    world, source = saved
    place = shutil.copytree(source / "00000004", tmp_path_factory.mktemp("copy") / "00000004")
    path = data.draw(st.sampled_from(sorted(place.iterdir())))
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    expected = snapshot(load(source / "00000004", world.start()))
    try:
        loaded = load(place, world.start())
    except UnreadableError:
        return
    assert path.name == "state.json" and snapshot(loaded) == expected  # white space


def test_an_empty_folder_in_place_of_a_state_is_damage(saved: tuple[Federation, Path], tmp_path: Path) -> None:
    world, source = saved
    folder = shutil.copytree(source, tmp_path / "state")
    (folder / "00000009").mkdir()
    state, notes = load_newest(folder, world.start())
    assert state.round == 4 and len(notes) == 1 and "00000009/state.json is missing or damaged" in notes[0]


def test_two_damaged_states_make_two_lines(tmp_path: Path) -> None:
    world = federation()
    trained(world, 6, tmp_path, keep=(2,))
    for round in (4, 6):
        flip_last(tmp_path / f"0000000{round}" / "state.safetensors")
    state, notes = load_newest(tmp_path, world.start())
    assert state.round == 2
    assert [note.split("/state.")[0][-8:] for note in notes] == ["00000006", "00000004"]


def test_where_no_state_is_readable_nothing_is_guessed(tmp_path: Path) -> None:
    world = federation(averages={"w": Window(3)})
    trained(world, 4, tmp_path)
    flip_last(tmp_path / "00000004" / "w-00000002.safetensors")  # the same file in both
    with pytest.raises(StateError, match=r"there is no usable state: .*w-00000002.*; .*w-00000002") as caught:
        load_newest(tmp_path, world.start())
    assert "\n" not in str(caught.value)


def test_without_any_state_it_is_the_start(tmp_path: Path) -> None:
    start = federation().start()
    for folder in (tmp_path, tmp_path / "nowhere"):
        assert load_newest(folder, start) == (start, [])


# States of other experiments.

HERE: dict[str, Any] = {"method": Scaffold(), "server": Adam(), "averages": {"w": Window(2)}}
OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "a larger model": ({"model": torch.nn.Linear(4, 3).double()}, "w is .*67.* there and .*15.* here"),
    "float32": ({"model": mlp().float(), "data": _single(data())}, "w is torch.float64 .* there and torch.float32"),
    "another server": ({"server": SGD()}, "server/m is torch.float64 .* there and missing here"),
    "a server that remembers more": ({"server": Adam(bias_correction="keras")}, "server/steps is missing there"),
    "another method": ({"method": FedAvg()}, "(shared|mine)/c is .* there and missing here"),
    "other clients": ({"data": data((20, 20))}, "mine/c is .*6, 67.* there and .*2, 67.* here"),
    "another window": ({"averages": {"w": Window(3)}}, r"averages/w/rounds is .*\[2\] there and .*\[3\] here"),
    "a window of a part": ({"averages": {"w": Window(2, part="classifier")}}, "averages/w/high is .*67.*27"),
    "SWA under the window's name": ({"averages": {"w": SWA(0)}}, "averages/w/rounds is .* there and missing here"),
    "EMA under the window's name": ({"averages": {"w": EMA(0.5)}}, "averages/w/.* is missing"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_state_of_another_experiment_is_refused_in_one_line(other: str, tmp_path: Path) -> None:
    different, line = OTHERS[other]
    trained(federation(**HERE), 2, tmp_path)
    settings = HERE | different | ({"sampling": _all_clients()} if "data" in different else {})
    start = federation(**settings).start()
    before = snapshot(start)
    with pytest.raises(StateError, match=line) as caught:
        load_newest(tmp_path, start)
    assert str(caught.value).startswith(f"{tmp_path / '00000002'} is of another experiment: ")
    assert "\n" not in str(caught.value)
    assert snapshot(start) == before


def _all_clients() -> Any:
    from fedsash.sampling import Uniform

    return Uniform(2)


def test_averages_may_differ(tmp_path: Path) -> None:
    there = federation(averages={"both": Window(2), "old": EMA(0.9)})
    state = trained(there, 2, tmp_path)
    here = federation(averages={"both": Window(2), "new": Window(3)})
    loaded, notes = load_newest(tmp_path, here.start())
    assert not notes and loaded.averages.keys() == {"both", "new"}
    assert bits(loaded.averages["both"]["models"]) == bits(state.averages["both"]["models"])
    assert here.observers["new"].count(loaded.averages["new"]) == 0
    assert loaded.best.keys() == {"model", "both"}


# A full disk, and interrupted writes.


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a quarter of a megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"mounting a small disk is not allowed here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_leaves_the_states_as_they_were(small_disk: Path) -> None:
    world = federation(averages={"w": Window(3)})
    state = trained(world, 4, small_disk)
    before, at_four = listing(small_disk), snapshot(state)
    filler = small_disk / "filler"
    for free in (1 << 12, 0):
        filler.write_bytes(b"")
        room = shutil.disk_usage(small_disk).free
        filler.write_bytes(bytes(max(room - free, 0)))
        with pytest.raises(OSError, match=r"No space left|can't be written"):
            save(replace(after(world, 1, load_newest(small_disk, world.start())[0]), round=5), small_disk)
        assert [name for name in listing(small_disk) if name != "filler"] == before
        assert snapshot(load_newest(small_disk, world.start())[0]) == at_four
    filler.unlink()
    save(after(world, 2, load_newest(small_disk, world.start())[0]), small_disk)
    assert saved_rounds(small_disk) == [4, 6]


def test_a_file_that_may_not_grow_leaves_the_states_as_they_were(tmp_path: Path) -> None:
    world = federation(averages={"w": Window(3)})
    state = trained(world, 4, tmp_path)
    before, at_four = listing(tmp_path), snapshot(state)
    large = replace(state, round=5, mine={"c": torch.zeros(1000, 1000)})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(OSError, match=r"00000005.*can't be written.*too large"):
            save(large, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert listing(tmp_path) == before
    assert snapshot(load_newest(tmp_path, world.start())[0]) == at_four


def saves_until_killed(folder: Path) -> int:
    """A forked process that saves one state after another; its id. On Ctrl-C it ends with the code 42."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would ignore it
        for round in range(1, 10**6):
            save(_numbered(round), folder)
    except KeyboardInterrupt:
        os._exit(42)
    finally:
        os._exit(1)


def _numbered(round: int) -> State:
    """A state of which every number is its round."""
    models = torch.arange(round - 8, round, dtype=torch.float64)[:, None].expand(8, 500) + 1
    rounds = torch.arange(round - 8, round) + 1
    window = {"models": models, "rounds": torch.where(rounds > 0, rounds, -1), "seen": torch.tensor(round)}
    return State(round, torch.full((500,), float(round)), {}, {}, {}, {"w": window})


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_write_that_is_stopped_at_any_moment_leaves_whole_states(number: signal.Signals, tmp_path: Path) -> None:
    for attempt in range(12):
        folder = tmp_path / str(attempt)
        pid = saves_until_killed(folder)
        time.sleep(0.03 + random.uniform(0, 0.1))
        os.kill(pid, number)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code == (42 if number == signal.SIGINT else -signal.SIGKILL)
        if number == signal.SIGINT:
            assert not list(folder.glob(".*")), "an interrupted write leaves nothing behind"
        newest = max(saved_rounds(folder), default=0)
        state, notes = load_newest(folder, _numbered(0))
        assert state.round == newest and not notes
        if newest:
            assert snapshot(replace(state, averages={})) == snapshot(replace(_numbered(newest), averages={}))
            ours, theirs = state.averages["w"], _numbered(newest).averages["w"]
            held = theirs["rounds"] > 0
            assert np.array_equal(ours["models"][held], theirs["models"][held])
        save(_numbered(newest + 1), folder)
        assert not list(folder.glob(".*")), "the next save clears up after a killed one"
