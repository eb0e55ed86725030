"""What a tracker's averages are: PyTorch's own EMA and SWA, the plain mean of a window, now and after the fact."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

from fedsash.averages import EMA, SWA, Average, Tracker, Window
from fedsash.settings.errors import ModelError, SettingError
from support.by_default import rotated
from support.loops import equal, make_model, steps


def norms() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))


def drift(model: nn.Module, rounds: int, *watching: Tracker | AveragedModel) -> list[dict[str, Tensor]]:
    """A random walk of all values that are observed; the model after each step."""
    generator, models = torch.Generator().manual_seed(2), []
    for _ in range(rounds):
        for t in model.state_dict().values():
            if t.is_floating_point():
                t += torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t.dtype).abs()
        for each in watching:
            each.update() if isinstance(each, Tracker) else each.update_parameters(model)
        models.append(copy.deepcopy(model.state_dict()))
    return models


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_an_ema_is_pytorchs_bitwise(dtype: torch.dtype) -> None:
    model = norms().to(dtype)
    theirs = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)  # type: ignore[no-untyped-call]
    ours = Tracker(EMA(0.9), model)
    drift(model, 30, ours, theirs)
    expected, found = nn.Module.state_dict(theirs.module), ours.averaged_state_dict()
    assert all(torch.equal(found[name], t) for name, t in expected.items() if t.is_floating_point())


def test_swa_is_pytorchs_to_rounding() -> None:
    model = norms().double()
    theirs, ours = AveragedModel(model, use_buffers=True), Tracker(SWA(1), model)
    drift(model, 30, ours, theirs)
    expected, found = nn.Module.state_dict(theirs.module), ours.averaged_state_dict()
    for name, t in expected.items():
        if t.is_floating_point():
            torch.testing.assert_close(found[name], t, rtol=1e-14, atol=0)


def test_a_window_is_the_mean_of_its_models_to_one_rounding() -> None:
    model = norms()
    tracker = Tracker({"short": Window(4), "long": Window(9), "lawa": Window(3, every=2)}, model)
    models = drift(model, 20, tracker)
    members = {"short": models[-4:], "long": models[-9:], "lawa": models[15::2]}
    for name, held in members.items():
        for tensor, value in tracker.value(name).items():
            if value.is_floating_point() and "tracked" not in tensor:
                flat = zip(*(m[tensor].flatten().tolist() for m in held), strict=True)
                assert value.flatten().tolist() == [float(torch.tensor(math.fsum(v) / len(v))) for v in flat]


def test_windows_in_one_tracker_hold_each_model_once() -> None:
    model = make_model()
    tracker = Tracker({f"w{size}": Window(size) for size in (2, 5, 9)} | {"ema": EMA(0.9)}, model)
    steps(model, 12, tracker)
    held = [name for name in tracker.state_dict() if "past" in name]
    assert sorted(held) == sorted(f"0/past/all/{round}" for round in range(4, 13))
    assert [tracker.count(name) for name in tracker.averages] == [2, 5, 9, 12]


@pytest.mark.parametrize("size", [2, 4, 10])
def test_a_window_after_the_fact_is_the_window_that_was_kept(size: int) -> None:
    model = make_model()
    tracker = Tracker({"w": Window(size), "ema": EMA(0.9)}, model, trajectory_every=2)
    drift(model, 10, tracker)
    then = tracker.value("w")
    drift(model, 5, tracker)
    assert equal(tracker.window(size, at=10), then)
    with tracker.applied(tracker.window(size, at=10)) as module:
        assert equal({n: p.detach() for n, p in module.named_parameters()}, then)
    resumed = Tracker({"w": Window(size), "ema": EMA(0.9)}, model, trajectory_every=2)
    resumed.load_state_dict(tracker.state_dict())
    assert equal(resumed.window(size, at=10), then)


def test_a_window_that_no_sums_give_is_refused_with_those_there_are() -> None:
    model = make_model()
    tracker = Tracker(EMA(0.9), model, trajectory_every=3)
    with pytest.raises(ValueError, match=r"^Tracker.window: there is no running sum yet; the first is after update 3$"):
        tracker.window(2)
    drift(model, 7, tracker)
    with pytest.raises(ValueError, match=r"^at = 7: there are running sums after the updates 3, 6$"):
        tracker.window(2, at=7)
    with pytest.raises(ValueError, match=r"^size = 2: after update 6 a window can have 3, 6 models"):
        tracker.window(2)
    with pytest.raises(ValueError, match=r"^Tracker.window: there are no running sums; a tracker keeps them with"):
        Tracker(EMA(0.9), model).window(2)


def test_an_average_has_a_name_if_there_are_several() -> None:
    model = make_model()
    tracker = Tracker({"a": EMA(0.9), "b": SWA(1)}, model)
    with pytest.raises(ValueError, match=r"^Tracker: average = None: must be one of \['a', 'b'\]"):
        tracker.value()
    with pytest.raises(ValueError, match=r"^Tracker: average = 'c': must be one of"), tracker.applied("c"):
        pass
    with pytest.raises(ValueError, match=r"^Tracker.averages = {}: must be at least one average"):
        Tracker({}, model)
    with pytest.raises(ValueError, match=r"^Tracker.averages = \[Window.*or a dict of averages by their names$"):
        Tracker([Window(3)], model)  # type: ignore[arg-type]


def test_a_model_that_is_not_finite_in_one_type_is_left_out_in_all(caplog: pytest.LogCaptureFixture) -> None:
    model = make_model()
    model[2].double()
    tracker = Tracker({"window": Window(3), "ema": EMA(0.9), "head": Window(3, part="2")}, model, trajectory_every=1)
    drift(model, 3, tracker)
    before = {name: tracker.value(name) for name in tracker.averages}
    own = copy.deepcopy(model.state_dict())
    for p in model.parameters():
        p.data += 1
    model[0].bias.data[0] = math.nan
    tracker.update()
    head = tracker.value("head")
    model.load_state_dict(own)
    assert all(equal(before[name], tracker.value(name)) for name in ("window", "ema"))
    assert not equal(head, before["head"]), "this average is of finite values only"
    assert [record.message for record in caplog.records] == [
        "update 4: 0.bias is not finite; left out of ema, running sum, window"
    ]
    drift(model, 1, tracker)
    assert [tracker.count(name) for name in tracker.averages] == [3, 4, 3]
    assert equal(tracker.window(3), tracker.value("window"))


KINDS = {
    "window": Window(3),
    "narrow": Window(3, kept_as="bfloat16"),
    "lawa": Window(2, every=2),
    "swa": SWA(1),
    "ema": EMA(0.9),
    "double": EMA(0.9, precision="double"),
    "initial": EMA(0.9, start="initial"),
    "zero": EMA(0.9, start="zero"),
}


@pytest.mark.parametrize("name, value", rotated(KINDS, [math.nan, math.inf]))
def test_an_average_that_is_not_finite_is_named_whenever_it_is_loaded_read_and_saved(
    name: str, value: float, caplog: pytest.LogCaptureFixture
) -> None:
    model = make_model()
    tracker = Tracker(KINDS, model)
    drift(model, 4, tracker)
    saved = tracker.state_dict()
    models = {"window": "0/past/all/3", "narrow": "0/past/all+bfloat16/3", "lawa": "0/past/all/4", "swa": "0/swa/high"}
    key = models.get(name, f"0/{name}/ema")
    tensor = saved[key] = saved[key].clone()
    tensor[7] = value
    other = Tracker(KINDS, model)
    assert not caplog.messages
    other.load_state_dict(saved)
    assert f"Tracker: the saved average {name}: 0.weight is not finite" in caplog.messages
    caplog.clear()
    with other.applied(name):
        assert caplog.messages == [f"Tracker: the average {name}: 0.weight is not finite"]
    other.averaged_state_dict(name)
    assert caplog.messages == [f"Tracker: the average {name}: 0.weight is not finite"] * 2
    caplog.clear()
    other.state_dict()
    expected = [] if KINDS[name].retention() else [f"Tracker: the saved average {name}: 0.weight is not finite"]
    assert caplog.messages == expected


def test_an_average_that_would_begin_with_a_model_that_is_not_finite_is_refused() -> None:
    model = make_model()
    model[2].requires_grad_(False)
    model[2].bias.data[1] = math.inf
    tracker = Tracker({"window": Window(2), "ema": EMA(0.9, start="initial")}, model)
    model[2].requires_grad_(True)
    with pytest.raises(ModelError, match=r"^Tracker: the average ema begins with the model, and 2.bias is not finite$"):
        tracker.update()
    assert not tracker.torn and tracker.round == 0


def test_windows_after_the_fact_and_new_statistics_that_are_not_finite_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = norms()
    tracker = Tracker(Window(2, buffers="re-estimate"), model, trajectory_every=1)
    drift(model, 3, tracker)
    saved = tracker.state_dict()
    saved["0/sums/3"] = saved["0/sums/3"].clone().fill_(math.nan)
    tracker.load_state_dict(saved)
    tracker.window(1)
    with tracker.applied(batches=[torch.full((3, 4), math.inf)]):
        assert [m[:51] for m in caplog.messages] == [
            "Tracker: the window of 1 after update 3: 0.weight, ",
            "Tracker: an average re-estimated from these batches",
        ]


def test_the_average_of_the_average_is_refused() -> None:
    tracker = Tracker(Window(2), make_model())
    with (
        tracker.applied(),
        pytest.raises(ValueError, match=r"^Tracker.update: inside applied\(\) the module is the average"),
    ):
        tracker.update()
    tracker.update()
    assert tracker.round == 1


@pytest.mark.parametrize("use_buffers", [False, True])
def test_an_average_of_pytorch_goes_on_in_a_tracker(use_buffers: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))
    average = get_ema_multi_avg_fn(0.9)
    theirs = AveragedModel(model, multi_avg_fn=average, use_buffers=use_buffers)  # type: ignore[no-untyped-call]
    drift(model, 5, theirs)
    own = copy.deepcopy(model.state_dict())
    model.load_state_dict(theirs.module.state_dict())
    ours = Tracker(EMA(0.9, start="initial", buffers="average" if use_buffers else "latest"), model)
    model.load_state_dict(own)
    drift(model, 5, theirs, ours)
    expected = {n: t for n, t in theirs.module.state_dict().items() if "num_batches" not in n}
    assert expected.keys() < ours.averaged_state_dict().keys()
    assert all(torch.equal(ours.averaged_state_dict()[n], t) for n, t in expected.items())


def test_an_averaged_module_is_a_module_of_its_own() -> None:
    model = make_model()
    tracker = Tracker(Window(3), model)
    models = steps(model, 5, tracker)
    averaged = tracker.averaged_module()
    assert type(averaged) is type(model) and equal(averaged.state_dict(), tracker.averaged_state_dict())
    for t in averaged.state_dict().values():
        t.zero_()
    assert equal(model.state_dict(), models[-1]) and bool(tracker.value()["0.weight"].any())


def test_a_state_that_does_not_fit_is_refused_in_a_line_and_changes_nothing() -> None:
    model = make_model()
    tracker = Tracker({"w": Window(3), "e": EMA(0.9)}, model)
    steps(model, 4, tracker)
    before = {name: t.clone() for name, t in tracker.state_dict().items()}
    whole = tracker.state_dict()
    wide = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    wrong = {
        r"this is not the whole state of a tracker: KeyError 'about'": model.state_dict(),
        r"this is not the whole state of a tracker: KeyError '0/past/all/3'": {
            n: t for n, t in whole.items() if n != "0/past/all/3"
        },
        r"this is not the whole state of a tracker: RuntimeError shape": whole | {"0/e/ema": torch.zeros(3)},
        r"this is not the whole state of a tracker: ValueError": whole | {"round": torch.zeros(2)},
        r"the saved state does not fit this tracker: e is warmup=True there and warmup at its default here": Tracker(
            {"w": Window(3), "e": EMA(0.9, warmup=True)}, model
        ).state_dict(),
        r"the saved state does not fit this tracker: 0.weight is \[6, 4\] there and \[5, 4\] here": Tracker(
            {"w": Window(3), "e": EMA(0.9)}, wide
        ).state_dict(),
    }
    for message, saved in wrong.items():
        with pytest.raises(ValueError, match=f"^{message}") as refusal:
            tracker.load_state_dict(saved)
        assert "\n" not in str(refusal.value)
        assert equal(tracker.state_dict(), before)
    with pytest.raises(ValueError, match=r"^Tracker.copy_to: the other module does not fit this tracker: 0.weight"):
        tracker.copy_to(wide, "w")
    narrow = {"0.weight": torch.zeros(1)}
    with pytest.raises(ValueError, match=r"0.weight is \[1\] there and \[5, 4\] here"), tracker.applied(narrow):
        pass


def test_an_average_more_or_less_than_a_saved_state_has_begins_or_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    model = norms()
    kept: dict[str, Average] = {"w": Window(3), "e": EMA(0.9)}
    saved = Tracker(kept | {"head": SWA(1, part="classifier")}, model)
    drift(model, 4, saved)
    other = Tracker(kept | {"long": Window(5, buffers="latest"), "first": EMA(0.5, start="initial")}, model)
    start = copy.deepcopy(model.state_dict())
    other.load_state_dict(saved.state_dict())
    assert caplog.messages == [
        "Tracker: the saved state has no first, long: it begins with the next update",
        "Tracker: head of the saved state is left out",
    ]
    assert [other.count(name) for name in other.averages] == [3, 4, 0, 0]
    models = drift(model, 2, saved, other)
    assert all(equal(saved.value(name), other.value(name)) for name in kept)
    assert other.round == 6 and other.count("long") == 2
    weight = [model["0.weight"].double() for model in models]
    torch.testing.assert_close(other.value("long")["0.weight"], (sum(weight) / 2).float(), rtol=1e-7, atol=0)
    expected = start["0.weight"].double() / 4 + weight[0] / 4 + weight[1] / 2
    torch.testing.assert_close(other.value("first")["0.weight"].double(), expected, rtol=1e-6, atol=0)
    again = Tracker(other.averages, model)
    again.load_state_dict(other.state_dict())
    assert equal(again.state_dict(), other.state_dict())


def test_an_average_of_more_tensors_than_a_saved_state_has_is_of_all_of_them_from_the_next_update_on() -> None:
    model = norms()
    saved = Tracker({"head": EMA(0.9, part="classifier")}, model)
    drift(model, 2, saved)
    other = Tracker({"all": Window(2)}, model)
    other.load_state_dict(saved.state_dict())
    drift(model, 2, other)
    assert other.value().keys() >= dict(model.named_parameters()).keys() and other.count() == 2


def test_statistics_that_are_estimated_again_draw_nothing_from_the_training() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    tracker = Tracker(Window(2, buffers="re-estimate"), model)
    tracker.update()
    own = torch.Generator().manual_seed(5)
    loader = DataLoader(TensorDataset(torch.randn(12, 4)), batch_size=4, shuffle=True, generator=own)
    before = own.get_state()
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    tracker.averaged_state_dict(batches=loader)
    assert torch.equal(torch.rand(2), expected) and torch.equal(own.get_state(), before)


def test_batches_that_are_used_up_are_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    tracker = Tracker(Window(2, buffers="re-estimate"), model)
    tracker.update()
    with pytest.raises(SettingError, match="must be at least one; a loader or a list can be read again, an iterator"):
        tracker.averaged_state_dict(batches=iter([]))
