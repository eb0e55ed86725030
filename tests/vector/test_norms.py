"""Which layers keep statistics of the data, which are frozen, and statistics that are estimated again."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from fedsash.vector.layout import copied
from fedsash.vector.norms import for_training, mixes_samples, re_estimate, tracking


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2), nn.BatchNorm1d(2))


def test_a_layer_in_eval_mode_in_a_module_in_train_mode_is_frozen_and_stays_so() -> None:
    module = network()
    module[1].eval()
    module[2].eval()
    trained = for_training(module)
    assert list(tracking(module)) == ["4"]
    assert [layer.training for layer in trained] == [True, False, False, True, True], "dropout is frozen, too"
    assert not module[2].training, "it is a copy"


def test_a_module_in_eval_mode_has_no_frozen_layer() -> None:
    module = network().eval()
    assert list(tracking(module)) == ["1", "4"] and all(layer.training for layer in for_training(module).modules())


class WithFrozenBackbone(nn.Sequential):
    """Its `train` keeps the first two layers in eval mode."""

    def train(self, mode: bool = True) -> WithFrozenBackbone:
        super().train(mode)
        self[0].eval()
        self[1].eval()
        return self


def test_a_modules_own_train_says_which_layers_are_frozen() -> None:
    as_made = WithFrozenBackbone(*network())
    for module in (as_made, copy.deepcopy(as_made).train()):
        module[4].eval()
        modes = [layer.training for layer in for_training(module)]
        assert modes == [False, False, True, True, False], "also of a module on which nobody has called it"
        assert not tracking(copied(module))


@pytest.mark.parametrize(
    ("layer", "mixes", "tracks"),
    [
        (nn.BatchNorm1d(4), True, True),
        (nn.BatchNorm1d(4, track_running_stats=False), True, False),
        (nn.BatchNorm1d(4).eval(), False, False),
        (nn.InstanceNorm1d(4), False, False),
        (nn.InstanceNorm1d(4, track_running_stats=True), True, True),
        (nn.GroupNorm(2, 4), False, False),
    ],
)
def test_what_a_layer_knows_of_other_samples(layer: nn.Module, mixes: bool, tracks: bool) -> None:
    module = nn.Sequential(layer)
    assert mixes_samples(module) == mixes and bool(tracking(module)) == tracks


def forward(module: nn.Module, batch: Tensor) -> None:
    module(batch)


def test_re_estimated_statistics_are_those_of_pytorch() -> None:
    batches = torch.randn(60, 3).split(20)
    module = network()
    module[2].p = 0.0
    other = copy.deepcopy(module)
    module(batches[0])
    module.eval()
    re_estimate(module, ["1", "4"], batches, forward)
    update_bn(batches, other)
    assert all(
        torch.equal(a, b) for a, b in zip(module.state_dict().values(), other.state_dict().values(), strict=True)
    )
    assert module[1].momentum == 0.1 and not any(layer.training for layer in module.modules())


def test_only_the_layers_that_are_named_are_estimated_again_and_there_is_no_dropout() -> None:
    batches = torch.randn(60, 3).split(20)
    module = network()
    before = copy.deepcopy(module[1].state_dict())
    found = []
    for _ in range(2):
        re_estimate(module, ["4"], batches, forward)
        found.append(module[4].running_var.clone())
    assert torch.equal(*found) and all(torch.equal(module[1].state_dict()[name], t) for name, t in before.items())


def test_no_batch_is_refused_and_a_failure_leaves_the_modes_as_they_were() -> None:
    module = network()
    with pytest.raises(ValueError, match=r"^batches = 0: must be at least one"):
        re_estimate(module, ["1"], [], forward)
    with pytest.raises(RuntimeError):
        re_estimate(module, ["1"], [torch.randn(2, 7)], forward)
    assert module.training and module[1].training and module[1].momentum == 0.1
