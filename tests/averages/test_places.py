"""Where models lie changes no number; on a disk they take no memory, and a full disk loses nothing."""

from __future__ import annotations

import copy
import gc
import math
import os
import pickle
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedsash.averages import Observer, Observers, Pieces, Tracker, Window
from fedsash.averages.afterwards import KeptSums
from fedsash.averages.places import Memory
from fedsash.vector.storage import Storage
from support.by_default import full
from support.limits import short_files
from support.trajectories import Alone, follow, same_bits, trajectory

STORAGES = get_args(Storage)


class Together:
    """The same windows in one storage."""

    def __init__(self, windows: list[dict[str, Any]], storage: Storage, w: Tensor, folder: Path) -> None:
        parts = [[(0, len(w))], [(0, 1), (2, 3)]]
        self.observers = Observers(
            {f"w{i}": Observer(Window(**each, storage=storage), parts[i % 2]) for i, each in enumerate(windows)}
        )
        self.averages, self.past = self.observers.init(w, folder)

    def values(self, w: Tensor) -> list[Tensor]:
        return list(self.observers.values(self, w).values())


WINDOW = st.fixed_dictionaries(
    {"size": st.integers(1, 5), "every": st.integers(1, 3), "kept_as": st.sampled_from(["model", "bfloat16"])}
)


@settings(deadline=None, max_examples=6, derandomize=True)
@given(windows=st.lists(WINDOW, min_size=1, max_size=4), data=st.data())
@pytest.mark.parametrize("dtype", [torch.float64, full(torch.float32), torch.bfloat16])
def test_all_storages_give_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, dtype: torch.dtype, windows: list[dict[str, Any]], data: st.DataObject
) -> None:
    """Whatever is left out or retracted, and whenever it is asked."""
    models, folder = trajectory(14, d=3, dtype=dtype), tmp_path_factory.mktemp("past")
    for bad in data.draw(st.sets(st.integers(1, 14), max_size=3)):
        models[bad, 1] = math.nan
    kinds = [Together(windows, storage, models[0], folder) for storage in STORAGES]
    for round in range(1, 15):
        asks, retracts = data.draw(st.booleans()), data.draw(st.booleans())
        held = sorted(kinds[0].past["w0"])
        gone = data.draw(st.sampled_from(held)) if held and retracts else None
        for each in kinds:
            each.observers.observe(each, models[round], round)
            if gone is not None and gone in each.past["w0"].rounds:
                each.observers.retract(each, "w0", gone)
        if asks:
            values = [each.values(models[0]) for each in kinds]
            assert all(same_bits(a, b) for other in values for a, b in zip(values[0], other, strict=True))
    assert not list(folder.iterdir())


def test_a_tracker_has_the_same_bytes_wherever_its_models_lie_and_goes_on_from_its_state() -> None:
    values = []
    for storage in STORAGES:
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
        windows = {"long": Window(5, storage=storage), "lawa": Window(2, every=3, storage=storage)}
        tracker = Tracker(windows, module)
        for step in range(12):
            for p in module.parameters():
                p.data += torch.randn_like(p)
            if step == 7:
                saved = {name: value.clone() for name, value in tracker.state_dict().items()}
                tracker = Tracker(windows, module)
                tracker.load_state_dict(saved)
            tracker.update()
        values.append([value for name in windows for value in tracker.value(name).values()])
    assert all(torch.equal(a, b) for other in values for a, b in zip(values[0], other, strict=True))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda tracker: pickle.loads(pickle.dumps(tracker))])
def test_a_copy_of_a_tracker_on_disk_goes_on_by_itself(copied: Any) -> None:
    module = torch.nn.Linear(3, 2)
    tracker = Tracker({"w": Window(3, storage="disk")}, module)
    for _ in range(4):
        tracker.update()
    value = tracker.value("w")["weight"].clone()
    again = copied(tracker)
    for p in again.module.parameters():
        p.data += 3
    again.update()
    assert torch.equal(tracker.value("w")["weight"], value)
    assert torch.allclose(again.value("w")["weight"], value + 1)


def test_running_sums_on_disk_are_those_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from fedsash.averages import places
    from fedsash.averages.afterwards import SUM

    models, found = trajectory(12, dtype=torch.float32), []
    for storage in ("host", "disk"):
        monkeypatch.setattr(places, "chosen", lambda *_, storage=storage: storage)
        state, kept = SUM.init(models[0]), KeptSums(3, models[0])
        for round in range(1, 13):
            SUM.take(state, Pieces.of(models[round]), round, {})
            kept.observe(state, round)
        found.append([kept.mean(begins, 12, models[0]) for begins in (0, 3, 9)])
    assert all(a is not None and b is not None and same_bits(a, b) for a, b in zip(*found, strict=True))


def test_a_disk_that_fills_up_is_an_error_and_with_room_again_the_window_is_whole(tmp_path: Path) -> None:
    models = trajectory(9, d=1000, dtype=torch.float32)
    window = follow(Window(4, storage="disk"), models[:6], tmp_path)
    trajectory_of = window.past["it"].trajectory
    with short_files(2000), pytest.raises(OSError, match="a past model can't be written"):
        trajectory_of.put(6, models[6])
    assert trajectory_of.rounds == [2, 3, 4, 5]
    for round in range(6, 10):
        window.observe(models[round], round)
    assert same_bits(window.value(models[9]), follow(Window(4), models).value(models[9]))


def test_a_sum_for_which_there_is_no_room_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    models = trajectory(5, d=1000, dtype=torch.float32)
    window = follow(Window(4, storage="disk"), models, tmp_path)
    with short_files(8000), pytest.raises(OSError, match="16,000 bytes can't be kept on the disk") as error:
        window.value(models[0])
    assert error.value.filename == str(tmp_path) and not list(tmp_path.iterdir())
    assert same_bits(window.value(models[0]), follow(Window(4), models).value(models[0]))


@pytest.mark.parametrize("asked", [False, True], ids=["never asked", "asked after every model"])
def test_a_model_that_could_not_be_kept_is_in_no_sum(asked: bool, tmp_path: Path) -> None:
    """The sum takes a model before its place does. The next model may have the same round."""
    models = trajectory(9, d=1000, dtype=torch.float32)
    window, right = (Alone(Window(4, storage=storage), models[0], tmp_path) for storage in ("disk", "host"))
    for round in range(1, 7):
        for each in (window, right):
            each.observe(models[round], round)
            if asked:
                each.value(models[0])
    with short_files(2000), pytest.raises(OSError, match="a past model can't be written"):
        window.observe(models[9], 7)
    for round in (7, 8, 9):
        window.observe(models[round], round)
        held = torch.stack([window.held[one] for one in sorted({*window.held})])
        mean = window.value(models[0]).double()
        assert torch.allclose(mean, held.double().mean(0), atol=1e-6)


def test_several_windows_may_have_all_their_files_open(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 20, hard))
    try:
        models = trajectory(30, d=2, dtype=torch.float32)
        windows = [follow(Window(30, storage="disk"), models, tmp_path) for _ in range(4)]
        assert len({float(window.value(models[0])[0]) for window in windows}) == 1
    finally:
        windows = []
        gc.collect()  # their files are closed now
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def most_anonymous_memory() -> Iterator[list[int]]:
    """How much anonymous memory this process has come to have, at most, in bytes, in addition to what it had."""

    def now() -> int:
        fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(fields["RssAnon"].split()[0]) * 1024

    first, most, done = now(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.0005):
            most[0] = max(most[0], now() - first)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield most
    finally:
        done.set()
        watching.join()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system has no /proc/self/status")
@pytest.mark.parametrize("kept_as", ["model", full("bfloat16")])
def test_a_window_on_disk_takes_less_than_three_models_of_memory(kept_as: Any, tmp_path: Path) -> None:
    """In memory it would be 20 models, and 4 for their sum."""
    w = torch.ones(2_000_000)
    follow(Window(2, storage="disk", kept_as=kept_as), w.expand(4, -1), tmp_path).value(w)  # what is needed once
    with most_anonymous_memory() as most:
        window = follow(Window(20, storage="disk", kept_as=kept_as), w.expand(31, -1), tmp_path)
        for round in range(31, 36):
            assert torch.equal(window.value(w), w)
            window.observe(w, round)
    assert most[0] < 3 * w.nbytes, "the value itself is one model, and freed chunks stay in the heap"


# kept_as = "bfloat16"


NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=True)


@settings(max_examples=20)
@given(columns=st.lists(st.lists(NUMBERS, min_size=6, max_size=6), min_size=1, max_size=4))
@pytest.mark.parametrize("storage", ["host", "disk"])
def test_bfloat16_changes_the_mean_by_no_more_than_the_docstring_says(
    tmp_path_factory: pytest.TempPathFactory, storage: Any, columns: list[list[float]]
) -> None:
    """`|w' - wima| <= 2^-8 * mean |w_tau| + 2^-134`, in float64, which takes the rounding of the mean itself away."""
    models = torch.tensor(columns, dtype=torch.float32).T.contiguous()
    rounded = follow(Window(5, storage=storage, kept_as="bfloat16"), models, tmp_path_factory.mktemp("past"))
    kept = torch.stack([rounded.held[round].double() for round in range(1, 6)])
    exact = models[1:].double()
    bound = exact.abs().mean(0) * 2**-8 + 2.0**-134
    assert ((kept.mean(0) - exact.mean(0)).abs() <= bound * (1 + 1e-12)).all()
    expected = follow(Window(5), torch.cat([models[:1], kept.float()])).value(models[0])
    assert torch.equal(rounded.value(models[0]), expected)


def test_the_bound_for_bfloat16_is_nearly_reached() -> None:
    """Half-way between two neighbours the error is 1/257 of the number."""
    w = torch.full((2, 1), 1 + 2.0**-8)
    value = follow(Window(1, kept_as="bfloat16"), w).value(w[0])
    assert float((value - w[1]).abs() / w[1]) == pytest.approx(1 / 257)


def test_windows_of_two_types_keep_models_apart() -> None:
    observers = Observers({name: Observer(Window(2, kept_as=name), [(0, 7)]) for name in ("model", "bfloat16")})  # type: ignore[arg-type]
    _, past = observers.init(trajectory(0)[0])
    assert {each.trajectory.name for each in past.values()} == {"all", "all+bfloat16"}


def test_rows_in_memory_that_go_to_the_disk_where_memory_is_short_take_their_room_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sparse file would kill the process when the disk is full, and not raise an error."""
    w = torch.ones(1000)
    sums = Memory(1, w, "auto")
    sums.put(1, Pieces.of(w))
    monkeypatch.setattr("fedsash.vector.storage.free", lambda device: 1)

    def full(handle: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="bytes can't be kept on the disk"):
        sums.put(2, Pieces.of(w))
    assert sums.rounds == {1}
