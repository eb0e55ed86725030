"""What clients remember, in memory and on disk."""

from __future__ import annotations

import mmap
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedsash.averages import Window
from fedsash.client.store import ClientStore
from fedsash.methods import FedAvg, Scaffold
from fedsash.runs.checkpoints import load, load_newest, save
from fedsash.server.state import State
from fedsash.vector.saved import StateError, UnreadableError, place
from fedsash.vector.storage import Storage, client_rows, rows
from support.by_default import rotated
from support.worlds import after, bits, federation, identical, record

CLIENTS = 6
SHAPES: dict[str, tuple[int, ...]] = {"vector": (5,), "number": (), "prototypes": (3, 2)}


def remembering(shapes: dict[str, tuple[int, ...]] = SHAPES, clients: int = CLIENTS, value: float = 0.0) -> State:
    """The start of a run whose clients remember tensors of these shapes."""
    client_state = {name: client_rows(torch.full(shape, value).double(), clients) for name, shape in shapes.items()}
    return State(0, torch.zeros(5), {}, {}, ClientStore(client_state, torch.zeros(clients, dtype=torch.int64)), {})


def round_of(state: State, ids: set[int]) -> None:
    """A round after which the clients `ids` remember something new."""
    state.round += 1
    for memory in state.client_state.values():
        for client in ids:
            memory[client] = torch.randn(memory.shape[1:], dtype=memory.dtype)
    state.last[list(ids)] = state.round


def files(place: Path) -> dict[str, os.stat_result]:
    """The files of clients in a saved state."""
    return {path.name: path.stat() for path in place.glob("client-*")}


# In memory.


@pytest.mark.parametrize("storage, shape", rotated(get_args(Storage), [(), (7,), (3, 4), (2, 3, 4)]))
def test_rows_have_any_shape_and_begin_as_zeros(storage: Storage, shape: tuple[int, ...], tmp_path: Path) -> None:
    for dtype in (torch.float32, torch.float64, torch.int64):
        made = rows(4, torch.ones(shape, dtype=dtype), storage, tmp_path)
        assert bits(made) == bits(torch.zeros((4, *shape), dtype=dtype))
        made[2] = 3
        assert made.sum() == 3 * made[2].numel()
    assert not list(tmp_path.iterdir())


@given(value=st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=4), clients=st.integers(1, 5))
def test_every_client_begins_with_its_own_copy_of_the_methods_value(value: list[float], clients: int) -> None:
    first = torch.tensor(value)
    memory = client_rows(first, clients)
    assert torch.equal(memory, first.expand(clients, -1))
    memory[0] += 1
    assert torch.equal(memory[1:], first.expand(clients - 1, -1))


# On disk.

Rounds = list[tuple[set[int], bool]]
any_rounds = st.lists(st.tuples(st.sets(st.integers(0, CLIENTS - 1)), st.booleans()), max_size=8)


@settings(max_examples=20)
@given(rounds=any_rounds)
def test_a_state_writes_the_clients_of_its_rounds_and_links_the_others(
    rounds: Rounds, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whoever takes part, and whichever rounds are saved, also those after which nobody had anything new."""
    folder, state = tmp_path_factory.mktemp("state"), remembering()
    before: dict[str, os.stat_result] = {}
    new: set[int] = set()
    for ids, is_saved in [*rounds, (set(), True)]:
        round_of(state, ids)
        new |= ids
        if not is_saved:
            continue
        saved = files(save(state, folder))
        last = state.last.tolist()
        assert saved.keys() == {f"client-{i}.{last[i]:08d}.safetensors" for i in range(CLIENTS) if last[i]}
        linked = {name for name, file in saved.items() if name in before and file.st_ino == before[name].st_ino}
        assert {int(name.removeprefix("client-").split(".")[0]) for name in saved.keys() - linked} == new
        assert identical(load(place(folder, state.round), remembering()), state)
        before, new = saved, set()


def test_a_state_takes_the_disk_space_of_the_clients_that_took_part_since_the_one_before(tmp_path: Path) -> None:
    state = remembering({"c": (10_000,)}, clients=50)
    everybody, row = set(range(50)), 80_000
    for ids in (everybody, {3}, set(), {3, 49}):
        round_of(state, ids)
        place = save(state, tmp_path)
        written = sum(path.stat().st_size for path in place.iterdir() if path.stat().st_nlink == 1)
        assert row * len(ids) < written < row * len(ids) + 20_000


def test_a_client_has_the_file_of_the_round_in_which_it_last_took_part(tmp_path: Path) -> None:
    world = federation(method=Scaffold())
    state, last = world.start(), {}
    with world:
        for _ in range(3):
            state, outcome = world.round(state)
            last |= {int(client): state.round for client in outcome.clients}
    saved = save(state, tmp_path)
    assert files(saved).keys() == {f"client-{client}.{round:08d}.safetensors" for client, round in last.items()}


def test_a_client_that_never_took_part_has_no_file_and_remembers_what_it_began_with(tmp_path: Path) -> None:
    state = remembering(value=0.25)
    round_of(state, {1, 4})
    saved = save(state, tmp_path)
    assert files(saved).keys() == {"client-1.00000001.safetensors", "client-4.00000001.safetensors"}
    loaded = load(saved, remembering(value=0.25))
    assert identical(loaded, state)
    assert all(bool((memory[[0, 2, 3, 5]] == 0.25).all()) for memory in loaded.client_state.values())


def test_a_method_whose_clients_remember_nothing_has_no_files_of_clients(tmp_path: Path) -> None:
    assert not files(save(after(federation(method=FedAvg()), 2), tmp_path))


def test_a_window_may_have_a_clients_name(tmp_path: Path) -> None:
    world = federation(method=Scaffold(), averages={f"client-{i}": Window(3) for i in range(CLIENTS)})
    state = after(world, 3)
    assert identical(load(save(state, tmp_path), world.start()), state)


def test_a_client_whose_file_the_state_before_lost_is_written_again(tmp_path: Path) -> None:
    state = remembering()
    round_of(state, {0, 1})
    (save(state, tmp_path) / "client-0.00000001.safetensors").unlink()
    round_of(state, {1})
    assert identical(load(save(state, tmp_path), remembering()), state)


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: os.truncate(path, 100)])
def test_a_missing_or_damaged_file_of_a_client_is_named(harm: Callable[[Path], None], tmp_path: Path) -> None:
    state = remembering()
    round_of(state, {0, 5})
    path = save(state, tmp_path) / "client-5.00000001.safetensors"
    harm(path)
    fresh = remembering()
    with pytest.raises(UnreadableError) as caught:
        load(path.parent, fresh)
    assert str(caught.value) == f"{path} is missing or damaged"
    assert identical(fresh, remembering())


OTHERS: dict[str, tuple[State, str]] = {
    "fewer clients": (remembering(clients=4), "vector is torch.float64 [6, 5] there and torch.float64 [4, 5] here"),
    "more clients": (remembering(clients=9), "vector is torch.float64 [6, 5] there and torch.float64 [9, 5] here"),
    "another shape": (
        remembering(SHAPES | {"prototypes": (2, 3)}),
        "prototypes is torch.float64 [6, 3, 2] there and torch.float64 [6, 2, 3] here",
    ),
    "a name more": (remembering(SHAPES | {"more": ()}), "more is missing there and torch.float64 [6] here"),
    "a name less": (remembering({"vector": (5,)}), "number is torch.float64 [6] there and missing here"),
    "no memory": (remembering({}), "vector is torch.float64 [6, 5] there and missing here"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_the_memory_of_other_clients_is_refused_in_one_line(other: str, tmp_path: Path) -> None:
    """Also before any client took part, when there is no file of a client."""
    start, line = OTHERS[other]
    before = record(start)
    state = remembering()
    for ids in (set[int](), {2}):
        round_of(state, ids)
        saved = save(state, tmp_path)
        with pytest.raises(StateError) as caught:
            load_newest(tmp_path, start)
        assert str(caught.value) == f"{saved} is of another experiment: client_state/{line}"
        assert identical(start, before)


# Far more than fits into memory.

BIG, WIDE = 3400, 1_206_590


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system has no /proc")
def test_clients_that_took_part_are_all_that_takes_memory_and_disk(tmp_path: Path) -> None:
    """FEMNIST's 3400 writers and a model of 1.2 M parameters: 16 GB of memories, of which 20 rows are ever written."""
    w = torch.zeros(WIDE)
    if shutil.disk_usage(tmp_path).free < 2 * BIG * w.nbytes:
        pytest.skip("there is no room for 16 GB of rows, should they be written")

    def start() -> State:
        client_state = {"c": rows(BIG, w, "disk", tmp_path)}
        return State(0, w, {}, {}, ClientStore(client_state, torch.zeros(BIG, dtype=torch.int64)), {})

    ids = list(range(0, BIG, 170))
    before = _anonymous_memory()
    with _allocating_at_most(400_000_000):
        state = start()
        state.round = 1
        for client in ids:
            state.client_state["c"][client] = torch.randn(WIDE)
        state.last[ids] = 1
        loaded = load(save(state, tmp_path / "state"), start())
    assert _anonymous_memory() - before < 400_000_000
    assert len(files(place(tmp_path / "state", 1))) == len(ids) == 20
    pages = -(-w.nbytes // mmap.PAGESIZE) + 1
    for memory in (state.client_state["c"], loaded.client_state["c"]):
        assert len(ids) * w.nbytes <= _blocks(memory) <= len(ids) * (pages + 1) * mmap.PAGESIZE
    assert all(torch.equal(loaded.client_state["c"][i], state.client_state["c"][i]) for i in ids)
    assert not any(loaded.client_state["c"][i + 1].any() for i in ids)


def _anonymous_memory() -> int:
    """Bytes of this process's memory that are no file's."""
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) * 1024


@contextmanager
def _allocating_at_most(more: int) -> Iterator[None]:
    """At no moment may the process have so many more bytes of memory of its own; server_state mappings don't count."""
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(fields["VmData"].split()[0]) * 1024 + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _blocks(memory: Tensor) -> int:
    """Bytes on the disk that the nameless file behind a mapped tensor takes."""
    for file in Path("/proc/self/map_files").iterdir():
        begin, end = (int(address, 16) for address in file.name.split("-"))
        if begin <= memory.data_ptr() < end:
            try:
                return file.stat().st_blocks * 512
            except PermissionError:
                pytest.skip("only root may look at a nameless file")
    raise AssertionError("the tensor is no mapped file")
