from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import Tensor, nn

from fedsash.models import batch_norms, group_norm, resnet20_gn
from fedsash.settings.errors import ModelError


class Net(nn.Module):
    """Every kind of BatchNorm at some depth, one of them used under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.bn = nn.BatchNorm2d(4, eps=1e-3)
        self.inner = nn.Sequential(nn.BatchNorm1d(6, affine=False), nn.ModuleDict({"deep": nn.BatchNorm3d(2)}))
        self.sync = nn.SyncBatchNorm(8)
        self.alias = self.bn


def test_batch_norms_names_each_layer_once() -> None:
    assert batch_norms(Net()) == ["bn", "inner.0", "inner.1.deep", "sync"]


def test_batch_norms_of_the_module_itself_and_of_none() -> None:
    assert batch_norms(nn.BatchNorm2d(3)) == ["BatchNorm2d"]
    assert batch_norms(resnet20_gn((3, 8, 8), 10)) == []


def test_instance_norm_counts_where_it_tracks_statistics() -> None:
    module = nn.Sequential(nn.InstanceNorm2d(3), nn.InstanceNorm2d(3, track_running_stats=True))
    assert batch_norms(module) == ["1"]


def test_group_norm_converts_a_copy_and_leaves_no_statistics() -> None:
    net = Net()
    net.eval()
    nn.init.normal_(net.bn.weight)
    net.bn.bias.requires_grad_(False)
    model = group_norm(net)
    assert batch_norms(model) == [] and not list(model.buffers())
    assert batch_norms(net) == ["bn", "inner.0", "inner.1.deep", "sync"]
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.GroupNorm)}
    assert {name: (layer.num_groups, layer.num_channels) for name, layer in layers.items()} == {
        "bn": (2, 4),
        "inner.0": (2, 6),
        "inner.1.deep": (2, 2),
        "sync": (2, 8),
    }
    bn = layers["bn"]
    assert bn.eps == 1e-3 and bn.affine and not bn.training
    assert torch.equal(bn.weight, net.bn.weight) and bn.weight is not net.bn.weight
    assert bn.weight.requires_grad and not bn.bias.requires_grad
    assert not layers["inner.0"].affine and layers["inner.0"].weight is None
    assert model.get_submodule("alias") is bn


def test_the_converted_layer_normalises_each_group_of_each_sample() -> None:
    layer = nn.BatchNorm2d(6, eps=0.0).double()
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    x = torch.randn(3, 6, 4, 5, dtype=torch.float64)
    groups = x.reshape(3, 3, -1)
    mean = groups.mean(-1, keepdim=True)
    std = groups.std(-1, keepdim=True, correction=0)
    z = ((groups - mean) / std).reshape(x.shape)
    expected = z * layer.weight.view(1, 6, 1, 1) + layer.bias.view(1, 6, 1, 1)
    torch.testing.assert_close(group_norm(layer, groups=3)(x), expected)


def test_instance_norm_becomes_instance_norm_without_statistics() -> None:
    layer = nn.InstanceNorm2d(3, affine=True, track_running_stats=True).double()
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(group_norm(layer)(x), layer(x))


class NormAndMore(nn.BatchNorm2d):
    """A norm, and then its own layers, as timm's BatchNormAct2d has them."""

    def __init__(self, channels: int, **layers: nn.Module) -> None:
        super().__init__(channels)
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        for layer in self.children():
            x = layer(x)
        return x


def test_timms_norm_keeps_its_dropout_and_its_activation() -> None:
    layer = NormAndMore(4, drop=nn.Dropout(0.5), act=nn.ReLU()).eval()
    x = torch.randn(2, 4, 3, 3)
    torch.testing.assert_close(group_norm(layer)(x), group_norm(nn.BatchNorm2d(4))(x).relu())
    assert isinstance(group_norm(layer)[1], nn.Dropout)


def test_a_norm_that_does_something_unknown_is_refused_and_a_renamed_one_is_not() -> None:
    with pytest.raises(ModelError, match="layer 'norm' is a NormAndMore, which may do more than normalise"):
        group_norm(nn.Sequential(OrderedDict(norm=NormAndMore(4, gate=nn.Sigmoid()))))
    renamed = type("Renamed", (nn.BatchNorm2d,), {})
    assert isinstance(group_norm(renamed(4)), nn.GroupNorm)


def test_channels_that_do_not_divide_are_refused_with_the_layers_name() -> None:
    with pytest.raises(ValueError, match=r"layer 'inner\.0' = 6: must be a multiple of groups = 4"):
        group_norm(Net(), groups=4)
    with pytest.raises(ValueError, match=r"layer 'BatchNorm1d' = 3: must be a multiple of groups = 2"):
        group_norm(nn.BatchNorm1d(3))
    with pytest.raises(ValueError, match=r"group_norm\.groups = 0: must be at least 1"):
        group_norm(Net(), groups=0)
