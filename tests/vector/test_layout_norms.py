"""Statistics of BatchNorm in a model's vector."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedsash.settings.errors import ModelError
from fedsash.vector.layout import Layout


def with_norms() -> nn.Module:
    """Statistics in the middle of a model, and below another layer."""
    norm = nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
    return nn.Sequential(nn.BatchNorm2d(1), nn.Conv2d(1, 4, 3), nn.Sequential(norm, nn.ReLU()), nn.Linear(2, 2))


def test_the_affine_parameters_of_norms_and_their_statistics_come_last() -> None:
    layout = Layout(with_norms())
    module = with_norms()
    names = "1.weight 1.bias 3.weight 3.bias", "0.weight 0.bias 2.0.weight 2.0.bias"
    statistics = [
        f"{at}.{name}" for at in ("0", "2.0") for name in ("running_mean", "running_var", "num_batches_tracked")
    ]
    assert layout.names == (*" ".join(names).split(), *statistics)
    assert layout.affine == {*names[1].split()} and (layout.trained, layout.size) == (56, 68)
    parts = [layout.between(*bounds) for bounds in ((0, 46), (46, 56), (56, 68))]
    assert [" ".join(part.names) for part in parts] == [*names, " ".join(statistics)]
    w = layout.flatten(module)
    assert torch.equal(torch.cat([part.flatten(module) for part in parts]), w)
    assert layout.between(0, 68) is layout
    with torch.no_grad():
        module[0].num_batches_tracked += 7
    assert layout.flatten(module)[58] == 7


def test_a_module_gets_its_statistics_and_its_number_of_batches_in_their_own_type() -> None:
    layout = Layout(with_norms())
    module = with_norms()
    w = torch.rand(68)
    w[58] = 6.8
    layout.load(module, w)
    assert torch.equal(module[0].running_mean, w[56:57]) and module[0].num_batches_tracked.item() == 7
    assert module[0].num_batches_tracked.dtype == torch.int64
    with layout.applied(module, w + 1):
        assert module.state_dict()["0.num_batches_tracked"].item() == 8
        assert module[0].num_batches_tracked.dtype == torch.int64


def test_bound_statistics_and_the_vector_are_one_memory() -> None:
    layout = Layout(with_norms())
    module = with_norms()
    w = layout.flatten(module)
    layout.bind(module, w)
    module[0](torch.ones(2, 1, 2, 2))
    assert w[56:59].tolist() == pytest.approx([0.1, 0.9, 1])


def test_a_part_has_the_statistics_of_its_layers_or_none() -> None:
    layout = Layout(with_norms())
    assert layout.ranges("0") == [(46, 48), (56, 59)] and layout.ranges("0", statistics=False) == [(46, 48)]
    assert layout.ranges("all") == [(0, 68)] and layout.ranges("all", statistics=False) == [(0, 56)]


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm2d(4, track_running_stats=False),
        nn.InstanceNorm2d(4, affine=True),
        nn.BatchNorm2d(4).eval(),
        nn.SyncBatchNorm(4).eval().requires_grad_(False),
    ],
)
def test_frozen_layers_and_layers_without_statistics_add_none_to_the_vector(norm: nn.Module) -> None:
    module = nn.Sequential(nn.Conv2d(1, 4, 3), norm)
    trained = sum(p.numel() for p in module.parameters() if p.requires_grad)
    layout = Layout(module)
    assert not layout.affine and layout.trained == layout.size == trained


def test_a_layer_is_frozen_only_while_the_module_itself_trains() -> None:
    assert Layout(with_norms().eval()).size == 68


def test_statistics_of_another_type_are_refused() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    module[1].running_mean = module[1].running_mean.double()
    with pytest.raises(ValueError, match=r"found torch\.float32, torch\.float64"):
        Layout(module)


def test_layers_that_share_statistics_are_refused() -> None:
    """Each would count the other's batches."""
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.BatchNorm1d(2))
    module[2].running_mean = module[1].running_mean
    with pytest.raises(ModelError, match=r"1\.running_mean and 2\.running_mean are one tensor"):
        Layout(module)
