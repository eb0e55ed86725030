"""A tracker in loops that do what loops do: other modes, other types, modules that change under it."""

from __future__ import annotations

import gc
import io
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedsash.averages import EMA, SWA, Average, Pieces, Tracker, Window
from fedsash.averages.afterwards import KeptSums, RunningSum
from fedsash.averages.places import Disk
from fedsash.averages.trainers.callback import TrackerCallback
from fedsash.settings.errors import ModelError, RunError, SettingError
from support.limits import few_files, short_files
from support.loops import make_model


def counter() -> nn.Linear:
    """A module whose only number says how many updates there were."""
    module = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(module.weight)
    return module


def step(tracker: Tracker, module: nn.Linear) -> None:
    with torch.no_grad():
        module.weight += 1
    tracker.update()


@pytest.mark.parametrize("average", [Window(4), Window(2, every=2), SWA(1), EMA(0.5)], ids=repr)
def test_an_average_may_be_asked_for_in_inference_mode(average: Average) -> None:
    module, plain = counter(), counter()
    tracker, other = Tracker(average, module), Tracker(average, plain)
    for _ in range(9):
        with torch.inference_mode():
            value = tracker.value()["weight"]
        assert torch.equal(value, other.value()["weight"])
        step(tracker, module)
        step(other, plain)
    assert torch.equal(tracker.value()["weight"], other.value()["weight"])


def test_a_tracker_may_be_made_loaded_and_updated_in_inference_mode() -> None:
    module = counter()
    with torch.inference_mode():
        tracker = Tracker({"w": Window(2), "ema": EMA(0.5)}, module)
        tracker.load_state_dict(tracker.state_dict())
        tracker.update()
    for _ in range(4):
        step(tracker, module)
    assert tracker.value("w")["weight"].item() == 3.5


@contextmanager
def default_type(kind: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def test_the_type_of_an_average_is_not_pytorchs_default() -> None:
    module = counter()
    with default_type(torch.bfloat16):
        tracker = Tracker(EMA(0.999), module)
    tracker.update()
    with torch.no_grad():
        module.weight += 1
    for _ in range(1000):
        tracker.update()
    assert tracker.value()["weight"].item() == pytest.approx(1 - 0.999**1000, abs=1e-4)


@pytest.mark.parametrize("storage", ["host", "disk"])
def test_a_tracker_that_is_dropped_leaves_nothing_behind(storage: Any) -> None:
    """Python collects cycles by their number, not by their bytes."""
    module = counter()
    tracker = Tracker({"w": Window(3, storage=storage), "v": Window(2, storage=storage)}, module, trajectory_every=1)
    step(tracker, module)
    places = [weakref.ref(past.trajectory.place) for group in tracker._groups for past in group.past.values()]
    gc.disable()
    try:
        del tracker
        assert places and not any(place() for place in places)
    finally:
        gc.enable()


def saved_size(window: Window, updates: int) -> int:
    module = nn.Linear(100, 100)
    tracker = Tracker(window, module)
    for _ in range(updates):
        tracker.update()
    file = io.BytesIO()
    torch.save(tracker.state_dict(), file)
    return len(file.getvalue())


def test_pytorch_saves_the_models_of_a_window_and_not_its_room() -> None:
    model = 4 * 100 * 101
    assert saved_size(Window(1000), 2) < 3 * model


def test_a_running_sum_that_could_not_be_kept_is_not_there(tmp_path: Path) -> None:
    w, total = torch.ones(1000), RunningSum.empty(1000)
    sums = KeptSums(1, w)
    sums._past.trajectory.place = Disk(8, torch.zeros(1, dtype=torch.float64).expand(2000), tmp_path)
    state = {"high": total.high, "low": total.low, "seen": torch.tensor(1)}
    sums.observe(state, 1)
    with short_files(2000), pytest.raises(OSError, match="a past model can't be written"):
        sums.observe(state, 2)
    assert sums.rounds == [1] and set(sums.tensors()) == {"sums/counts", "sums/1"}


def test_models_on_disk_make_room_for_more_open_files_as_they_come(tmp_path: Path) -> None:
    like = torch.zeros(1).expand(2)
    with few_files(100):
        place = Disk(8, like, tmp_path)
        for round in range(400):
            place.put(round, Pieces.of(torch.full((2,), float(round))))
        assert all(place[round].tolist() == [round, round] for round in range(400))


def without_weight(layer: nn.Module) -> None:
    del layer._parameters["weight"]


def wider(layer: nn.Module) -> None:
    layer.weight = nn.Parameter(torch.ones(5, 2))


@pytest.mark.parametrize("change", [without_weight, wider])
def test_what_is_left_of_a_module_is_restored(change: Callable[[nn.Module], None]) -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    tracker = Tracker(Window(2), module)
    tracker.update()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 1
    own = module[2].weight.detach().clone()
    with pytest.raises(ModelError, match=r"the module has no such 1\.weight any more"), tracker.applied():
        change(module[1])
    assert torch.equal(module[2].weight, own)
    with pytest.raises(KeyboardInterrupt), Tracker(Window(2), module[2]).applied():
        change(module[2])
        raise KeyboardInterrupt


def test_a_second_tracker_does_not_observe_the_average_of_the_first() -> None:
    module = counter()
    one, other = Tracker(Window(2), module), Tracker(Window(2), module)
    step(one, module)
    whole = Tracker(Window(2), nn.Sequential(module))
    for lender, observer in ((one, other), (whole, one), (one, whole)):
        with lender.applied(), pytest.raises(RunError, match=r"inside applied\(\) the module is the average"):
            observer.update()
    other.update()


def on_two_devices() -> nn.Module:
    return nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1, device="meta"))


def with_parameter(values: torch.Tensor) -> nn.Module:
    return nn.ParameterList([nn.Parameter(values)])


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (on_two_devices, r"on several devices \(cpu, meta\): make a tracker for each one's part"),
        (lambda: nn.LazyLinear(3), "weight has no shape before the first input: pass a batch through"),
        (
            lambda: nn.Sequential(nn.Linear(2, 3), nn.LazyBatchNorm1d(affine=False)),
            "1.running_mean has no shape before the first input: pass a batch through",
        ),
        (lambda: with_parameter(torch.eye(3).to_sparse()), "^0 is sparse or expanded: give it values of its own"),
        (lambda: with_parameter(torch.ones(1, 3).expand(4, 3)), "^0 is sparse or expanded: give it values of its own"),
        (
            lambda: with_parameter(torch.ones(2, dtype=torch.complex64)),
            r"must be floating-point numbers, found torch\.complex64 \(0\): train torch\.view_as_real\(\) of it",
        ),
        (
            lambda: with_parameter(torch.ones(2).to(torch.float8_e4m3fn)),
            r"must have 16 bits or more, found torch\.float8_e4m3fn \(0\): train it in bfloat16",
        ),
    ],
)
def test_a_module_that_can_not_be_averaged_is_refused(make: Callable[[], nn.Module], line: str) -> None:
    with pytest.raises(ModelError, match=line):
        Tracker(Window(2), make())


def test_a_module_without_values_can_not_be_copied_to() -> None:
    tracker = Tracker(Window(2), nn.Linear(2, 2))
    with pytest.raises(ModelError, match="the other module is on the device meta"):
        tracker.copy_to(nn.Linear(2, 2, device="meta"))


def test_what_is_no_module_can_not_be_copied_to() -> None:
    with pytest.raises(SettingError, match=r"Tracker\.copy_to: module = None: must be an nn\.Module"):
        Tracker(Window(2), nn.Linear(2, 2)).copy_to(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("every", [2.5, True, None, "10"])
def test_a_number_of_updates_is_a_whole_number(every: Any) -> None:
    with pytest.raises(SettingError, match=r"Tracker\.trajectory_every = .*: must be a whole number"):
        Tracker(Window(2), nn.Linear(2, 2), trajectory_every=every)


@pytest.mark.parametrize("batches", [(torch.zeros(2, 2) for _ in range(3)), 5])
def test_batches_that_can_be_read_only_once_are_refused_at_once(batches: Any) -> None:
    with pytest.raises(SettingError, match=r"Averages\.batches = .*: must be a loader or a list"):
        TrackerCallback(Window(2, buffers="re-estimate"), batches=batches)


def test_a_loader_is_not_begun_before_it_is_needed() -> None:
    """Its beginning would draw a random number of the training."""
    loader = DataLoader(TensorDataset(torch.zeros(4, 2)), batch_size=2)
    before = torch.get_rng_state()
    TrackerCallback(Window(2, buffers="re-estimate"), batches=loader)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("change", [lambda m: m.append(nn.ReLU()), lambda m: m.__setitem__(1, nn.Identity())])
def test_a_module_may_get_other_parts_while_it_is_lent(change: Callable[[nn.Sequential], object]) -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    old, tracker = module[1], Tracker(Window(2), module)
    with tracker.applied():
        change(module)
    tracker.update()
    Tracker(Window(2), nn.Sequential(nn.Linear(2, 2), old)).update()


@pytest.mark.parametrize(
    "average", [Window(3), Window(3, buffers="latest"), Window(3, part="2"), EMA(0.5, buffers="latest")], ids=str
)
def test_a_module_that_is_used_in_train_mode_while_it_is_lent_has_its_own_statistics_again(average: Average) -> None:
    power = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))  # each forward pass moves its buffers
    module = nn.Sequential(power, nn.BatchNorm1d(4), nn.Linear(4, 2))
    tracker = Tracker(average, module)
    module(torch.randn(8, 4))
    tracker.update()
    own = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    with tracker.applied():
        module(torch.randn(8, 4))
    assert all(torch.equal(own[name], tensor) for name, tensor in module.state_dict().items())


def test_the_windows_there_are_fit_into_one_short_line() -> None:
    tracker = Tracker(EMA(0.9), nn.Linear(2, 2), trajectory_every=1)
    for _ in range(50):
        tracker.update()
    with pytest.raises(SettingError, match=r"at = 60: there are running sums after the updates 1, 2, .* and 44 more$"):
        tracker.window(10, at=60)
    with pytest.raises(SettingError, match=r"size = 70: after update 50 a window can have 1, .* and 44 more models$"):
        tracker.window(70)


def test_tensors_without_a_value_are_averaged_with_the_others() -> None:
    module = nn.ParameterList([nn.Parameter(torch.ones(3 * (i % 2))) for i in range(200)])
    tracker = Tracker(EMA(0.5), module)
    tracker.update()
    assert [len(tensor) for tensor in tracker.value().values()] == [0, 3] * 100


def test_a_wrapper_that_hands_on_its_attributes_is_not_left_out() -> None:
    """As PEFT's model does: its inner module, which may be compiled, is not the module that trains."""

    class Wrapper(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner, self.extra = inner, nn.Linear(2, 2)

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("inner"), name)

    wrapper = Wrapper(torch.compile(make_model(), backend="eager"))  # type: ignore[arg-type]
    tracker = Tracker(Window(3), wrapper)
    tracker.update()
    assert tracker.module is wrapper
    assert tracker.averaged_state_dict().keys() == Wrapper(make_model()).state_dict().keys()


def test_a_module_may_have_an_expanded_buffer_which_nobody_can_write() -> None:
    module = nn.Linear(2, 2)
    module.register_buffer("mask", torch.ones(1, 4).expand(4, 4), persistent=False)
    tracker = Tracker(Window(2), module)
    tracker.update()
    with pytest.raises(KeyError), tracker.applied():
        raise KeyError
    assert bool((module.mask == 1).all())


def test_a_scripted_module_is_averaged() -> None:
    tracker = Tracker(Window(2), torch.jit.script(make_model()))
    tracker.update()
    assert tracker.count() == 1


def test_a_module_whose_values_would_be_rounded_is_refused() -> None:
    """A narrower type is kept in the first one, a wider one is not."""
    module = counter().bfloat16()
    tracker = Tracker(Window(3), module)
    step(tracker, module)
    module.float()
    with pytest.raises(ModelError, match=r"the averages are torch\.bfloat16, which would round torch\.float32: make a"):
        step(tracker, module)
    assert tracker.round == 1 and tracker.value()["weight"].item() == 1
    with tracker.applied():
        assert module.weight.item() == 1


@pytest.mark.parametrize(
    "averages", [{"ema": EMA(0.9)}, {"ema": EMA(0.9), "window": Window(3)}], ids=["alone", "beside"]
)
def test_one_entry_that_is_not_finite_is_left_out_with_the_name_of_its_tensor(
    averages: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """In the middle of the second of two large tensors, for one update."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(300, 300), nn.Linear(300, 300))
    tracker, clean = Tracker(averages, model), Tracker(averages, model)
    for update in range(8):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.01)
            own = model[1].weight[200, 77].clone()
            model[1].weight[200, 77] = torch.nan if update == 4 else own
        tracker.update()
        if update != 4:
            clean.update()
        with torch.no_grad():
            model[1].weight[200, 77] = own
    value = tracker.value("ema")
    assert all(torch.equal(value[name], tensor) for name, tensor in clean.value("ema").items())
    assert [record.getMessage() for record in caplog.records] == [
        f"update 5: 1.weight is not finite; left out of {', '.join(sorted(averages))}"
    ]
