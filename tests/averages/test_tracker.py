"""Averages alone, in a plain PyTorch training loop."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fedsash.averages import EMA, Average, Pieces, Tracker, Window
from fedsash.settings.errors import RunError
from fedsash.vector.arrays import Vectors
from support.loops import equal, make_model, steps


def test_tracking_does_not_change_training() -> None:
    plain, tracked = make_model(), make_model()
    models = steps(plain, 6)
    assert all(map(equal, steps(tracked, 6, Tracker(Window(3), tracked)), models))


def test_the_average_is_applied_and_taken_back() -> None:
    model = make_model()
    tracker = Tracker(Window(3), model)
    models = steps(model, 6, tracker)
    mean = {name: torch.stack([m[name] for m in models[-3:]]).mean(0) for name in models[0]}
    own = copy.deepcopy(model.state_dict())
    with pytest.raises(RuntimeError, match="stop"), tracker.applied() as averaged:
        assert averaged is model
        for name, p in model.named_parameters():
            torch.testing.assert_close(p.detach(), mean[name])
        raise RuntimeError("stop")
    assert equal(model.state_dict(), own)


def test_copy_to_another_module() -> None:
    model, other = make_model(), make_model()
    tracker = Tracker(Window(1), model)
    steps(model, 2, tracker)
    tracker.copy_to(other)
    assert equal(other.state_dict(), model.state_dict())


def test_an_average_of_the_classifier_leaves_the_extractor() -> None:
    model, other = make_model(), make_model()
    tracker = Tracker(Window(5, part="classifier"), model)
    models = steps(model, 5, tracker)
    tracker.copy_to(other)
    averaged, own = other.state_dict(), model.state_dict()
    assert all(torch.equal(averaged[name], own[name]) for name in ("0.weight", "0.bias"))
    torch.testing.assert_close(averaged["2.weight"], torch.stack([m["2.weight"] for m in models]).mean(0))


@pytest.mark.parametrize("average", [Window(3), Window(2, every=2, part="classifier"), EMA(0.8)], ids=str)
def test_a_saved_tracker_goes_on(average: Average, tmp_path: Path) -> None:
    model = make_model()
    tracker = Tracker(average, model)
    steps(model, 4, tracker)
    save_file(tracker.state_dict(), tmp_path / "tracker.safetensors")
    saved = load_file(tmp_path / "tracker.safetensors")
    resumed = Tracker(average, model)
    steps(model, 3, resumed)
    resumed.load_state_dict(saved)
    assert equal(resumed.state_dict(), saved) and equal(tracker.state_dict(), saved)
    steps(model, 1, tracker)
    resumed.update()
    assert resumed.round == 5
    assert equal(resumed.state_dict(), tracker.state_dict())
    assert equal(resumed.value(), tracker.value())


def test_a_state_of_another_average_is_refused() -> None:
    model = make_model()
    theirs = Tracker(Window(4), model).state_dict()
    with pytest.raises(ValueError, match=r"tracker: average is size=4 there and size=3 here$") as refusal:
        Tracker(Window(3), model).load_state_dict(theirs)
    assert "\n" not in str(refusal.value)


def test_a_state_that_was_saved_under_other_defaults_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = make_model()
    with monkeypatch.context() as patch:
        patch.setattr("fedsash.settings.fingerprint.DEFAULTS", 0)
        theirs = Tracker(Window(4), model).state_dict()
    with pytest.raises(RunError, match="this tracker: it is of a fedsash with other defaults: go on with that one"):
        Tracker(Window(4), model).load_state_dict(theirs)


def test_a_state_of_an_average_whose_settings_begin_alike_is_refused_with_their_ends() -> None:
    names = [f"a_layer_with_a_name_that_is_rather_long_{i}" for i in range(5)]
    model = nn.ModuleDict({name: nn.Linear(1, 1) for name in names})
    one, other = (Tracker(Window(3, part=(*names[:3], name)), model) for name in names[3:])
    with pytest.raises(ValueError, match=r"average is \.\.\..*_3.*there and \.\.\..*_4.* here$"):
        other.load_state_dict(one.state_dict())


class Breaks(EMA):
    """Is interrupted by Ctrl-C when it takes the third model."""

    def take(self, state: Vectors, w: Pieces, round: int, past: Mapping[int, Tensor]) -> None:
        if round == 3:
            raise KeyboardInterrupt
        super().take(state, w, round, past)


def test_after_an_update_that_was_broken_off_nothing_is_read_until_a_state_is_loaded() -> None:
    model = make_model()
    tracker = Tracker({"window": Window(3), "ema": Breaks(0.5)}, model)
    steps(model, 2, tracker)
    saved = {name: tensor.clone() for name, tensor in tracker.state_dict().items()}
    values = tracker.value("window")
    with pytest.raises(KeyboardInterrupt):
        tracker.update()
    for used in (tracker.update, tracker.state_dict, lambda: tracker.value("window"), tracker.applied("ema").__enter__):
        with pytest.raises(RunError, match="an update was interrupted: load a saved state"):
            used()
    tracker.load_state_dict(saved)
    assert equal(tracker.value("window"), values)


def with_norm() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))


@pytest.mark.parametrize("buffers", ["average", "latest"])
def test_an_average_of_a_model_with_batch_norm_has_the_mean_of_its_statistics_or_the_latest(buffers: str) -> None:
    model = with_norm()
    tracker = Tracker(Window(3, buffers=buffers), model)  # type: ignore[arg-type]
    models = steps(model, 6, tracker)
    for name, value in models[-1].items():
        mean = torch.stack([m[name].double() for m in models[-3:]]).mean(0)
        expected = value if "1.running" in name and buffers == "latest" else mean.to(value.dtype)
        with tracker.applied():
            found = copy.deepcopy(model.state_dict()[name])
        if name != "1.num_batches_tracked":
            torch.testing.assert_close(found, expected)
    assert equal(model.state_dict(), models[-1])


def test_the_statistics_of_an_average_are_estimated_again_from_the_batches_of_a_loader() -> None:
    model = with_norm()
    tracker = Tracker(Window(3, buffers="re-estimate"), model)
    models = steps(model, 6)
    tracker.update()
    loader = [(torch.randn(8, 4), 0) for _ in range(3)]
    other = with_norm()
    tracker.copy_to(other, batches=loader)
    plain = copy.deepcopy(model)
    torch.optim.swa_utils.update_bn(loader, plain)
    with tracker.applied(batches=loader):
        assert equal(model.state_dict(), plain.state_dict()) and equal(other.state_dict(), plain.state_dict())
    assert equal(model.state_dict(), models[-1])


@pytest.mark.parametrize("kind", [nn.InstanceNorm1d, nn.BatchNorm1d])
def test_re_estimated_statistics_are_the_plain_mean_over_the_batches(kind: Any) -> None:
    norm = kind(2, track_running_stats=True)
    tracker = Tracker(Window(2, buffers="re-estimate"), nn.Sequential(norm, nn.Flatten(), nn.Linear(8, 1)))
    tracker.update()
    batches = [torch.randn(16, 2, 4) * scale + 5 for scale in (1, 3, 9)]
    over = (0, 2) if kind is nn.BatchNorm1d else 2
    variances = [batch.var(over).reshape(-1, 2).mean(0) for batch in batches]
    with tracker.applied(batches=batches):
        torch.testing.assert_close(norm.running_mean, torch.stack([b.mean((0, 2)) for b in batches]).mean(0))
        torch.testing.assert_close(norm.running_var, torch.stack(variances).mean(0))
    assert norm.momentum == 0.1 and not norm._forward_pre_hooks


@pytest.mark.parametrize("buffers", ["latest", "re-estimate"])
def test_the_value_of_an_average_has_no_statistics_that_are_not_averaged(buffers: str) -> None:
    tracker = Tracker(Window(3, buffers=buffers), with_norm())
    tracker.update()
    assert tracker.value().keys() == dict(tracker.module.named_parameters()).keys()
    loader = [torch.randn(8, 4)] if buffers == "re-estimate" else None
    assert tracker.averaged_state_dict(batches=loader).keys() == tracker.module.state_dict().keys()


def test_batches_must_be_given_where_statistics_are_estimated_again_and_nowhere_else() -> None:
    missing = Tracker(Window(3, buffers="re-estimate"), with_norm())
    with pytest.raises(ValueError, match=r"^Tracker: batches = None: must be given"), missing.applied():
        pass
    with pytest.raises(ValueError, match=r"^Tracker: batches = \[.*\]: only for an average with buffers"):
        Tracker(Window(3), with_norm()).copy_to(with_norm(), batches=[torch.randn(8, 4)])
    with Tracker(Window(3, buffers="re-estimate"), make_model()).applied() as model:
        assert model.training
