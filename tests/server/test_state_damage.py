"""States under fire: damaged files, full disks, kills."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsash.averages import Window
from fedsash.methods import Scaffold
from fedsash.methods.server_optimisers import FedAdam
from fedsash.runs.checkpoints import FORMAT, NO_RUN, load, load_newest, save
from fedsash.server.federation import Federation
from fedsash.settings.errors import RunError
from fedsash.vector.saved import StateError, UnreadableError, saved_rounds
from support.by_default import rotated
from support.worlds import after, federation, identical, listing, record, trained

no_deadline = settings(deadline=None, max_examples=50)


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
    manifest = json.loads(path.read_text()) | {"format": FORMAT + 1}
    del manifest["checksum"]
    path.write_text(json.dumps(manifest | {"checksum": zlib.crc32(json.dumps(manifest).encode())}))


FILES = ("state.safetensors", "past-all-00000004.safetensors", "client-*.00000004.safetensors", "state.json")
HARMS: tuple[Callable[[Path], None], ...] = (truncate, empty, flip_first, flip_last, append, Path.unlink)
DAMAGE = [*rotated(HARMS, FILES), *((harm, "state.json") for harm in (nothing_known, other_number, other_format))]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Federation, Path]:
    """The states after rounds 2 and 4 of a run."""
    folder = tmp_path_factory.mktemp("saved")
    world = federation(averages={"w": Window(2)}, server=FedAdam(), method=Scaffold())
    trained(world, 4, folder)
    return world, folder


@pytest.mark.parametrize("harm, file", DAMAGE)
def test_a_damaged_state_is_found_and_the_one_before_used(
    harm: Callable[[Path], None], file: str, saved: tuple[Federation, Path], tmp_path: Path
) -> None:
    world, source = saved
    folder = shutil.copytree(source, tmp_path / "state")
    good = record(load(folder / "00000002", world.start()))
    path = min((folder / "00000004").glob(file))
    harm(path)
    untouched = world.start()
    before = record(untouched)
    with pytest.raises(UnreadableError):
        load(folder / "00000004", untouched)
    assert identical(untouched, before)
    state, _, notes = load_newest(folder, untouched)
    assert identical(state, good)
    assert len(notes) == 1 and "\n" not in notes[0]
    assert notes[0].startswith(str(folder / "00000004")) and notes[0].endswith("; using the state before it")
    if harm is other_format:
        assert (
            f"is in format {FORMAT + 1}, and this fedsash reads format {FORMAT}: go on with what saved it" in notes[0]
        )
    else:
        assert path.name in notes[0] and "damaged" in notes[0]


def test_a_manifest_names_no_file_outside_of_its_state(saved: tuple[Federation, Path], tmp_path: Path) -> None:
    world, source = saved
    folder = shutil.copytree(source, tmp_path / "state")
    file = folder / "00000004" / "state.json"
    manifest = json.loads(file.read_text())
    del manifest["checksum"]
    manifest["files"]["../00000002/state.safetensors"] = 3
    file.write_text(json.dumps(manifest | {"checksum": zlib.crc32(json.dumps(manifest).encode())}))
    with pytest.raises(
        RunError, match=r"names the file '\.\./00000002/state\.safetensors', which is not in this folder"
    ):
        load_newest(folder, world.start())


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
    expected = record(load(source / "00000004", world.start()))
    try:
        loaded = load(place, world.start())
    except UnreadableError:
        return
    assert path.name == "state.json" and identical(loaded, expected)  # white space


def test_an_empty_folder_in_place_of_a_state_is_damage(saved: tuple[Federation, Path], tmp_path: Path) -> None:
    world, source = saved
    folder = shutil.copytree(source, tmp_path / "state")
    (folder / "00000009").mkdir()
    state, _, notes = load_newest(folder, world.start())
    assert state.round == 4 and len(notes) == 1 and "00000009/state.json is missing or damaged" in notes[0]


def test_two_damaged_states_make_two_lines(tmp_path: Path) -> None:
    world = federation()
    trained(world, 6, tmp_path, keep=(2,))
    for round in (4, 6):
        flip_last(tmp_path / f"0000000{round}" / "state.safetensors")
    state, _, notes = load_newest(tmp_path, world.start())
    assert state.round == 2
    assert [note.split("/state.")[0][-8:] for note in notes] == ["00000006", "00000004"]


def test_where_no_state_is_readable_nothing_is_guessed(tmp_path: Path) -> None:
    world = federation(averages={"w": Window(3)})
    trained(world, 4, tmp_path)
    flip_last(tmp_path / "00000004" / "past-all-00000002.safetensors")  # the same file in both
    with pytest.raises(
        StateError, match=r"there is no usable state: .*past-all-00000002.*; .*past-all-00000002"
    ) as caught:
        load_newest(tmp_path, world.start())
    assert "\n" not in str(caught.value)


def test_without_any_state_it_is_the_start(tmp_path: Path) -> None:
    start = federation().start()
    for folder in (tmp_path, tmp_path / "nowhere"):
        state, tally, notes = load_newest(folder, start)
        assert state is start and tally is NO_RUN and not notes


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
    before, at_four = listing(small_disk), record(state)
    filler = small_disk / "filler"
    for free in (1 << 12, 0):
        filler.write_bytes(b"")
        room = shutil.disk_usage(small_disk).free
        filler.write_bytes(bytes(max(room - free, 0)))
        with pytest.raises(OSError, match=r"No space left|can't be written"):
            save(replace(after(world, 1, load_newest(small_disk, world.start())[0]), round=5), small_disk)
        assert [name for name in listing(small_disk) if name != "filler"] == before
        assert identical(load_newest(small_disk, world.start())[0], at_four)
    filler.unlink()
    save(after(world, 2, load_newest(small_disk, world.start())[0]), small_disk)
    assert saved_rounds(small_disk) == [4, 6]


def test_a_file_that_may_not_grow_leaves_the_states_as_they_were(tmp_path: Path) -> None:
    world = federation(averages={"w": Window(3)})
    state = trained(world, 4, tmp_path)
    before, at_four = listing(tmp_path), record(state)
    large = replace(state, round=5, server_state={"c": torch.zeros(1000, 1000)})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(OSError, match=r"00000005.*can't be written.*too large"):
            save(large, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert listing(tmp_path) == before
    assert identical(load_newest(tmp_path, world.start())[0], at_four)
