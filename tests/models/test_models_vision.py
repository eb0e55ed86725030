"""What is particular to the papers' larger networks."""

from __future__ import annotations

from math import sqrt
from typing import Any

import pytest
import torch
from test_models import make, parameters
from torch import nn

from fedsash.models import MODELS
from support.by_default import full, rotated


def on_meta(name: str, shape: tuple[int, ...], classes: int, **options: object) -> nn.Module:
    """A model whose values take neither memory nor time."""
    with torch.device("meta"):
        return MODELS[name](shape, classes, **options)


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def kinds(model: nn.Module, *types: type[nn.Module]) -> list[nn.Module]:
    return [layer for layer in model.modules() if isinstance(layer, types)]


def widths(model: nn.Module) -> list[tuple[int, int]]:
    return [(layer.in_features, layer.out_features) for layer in model.modules() if isinstance(layer, nn.Linear)]


def test_digit_five_has_three_poolings_in_the_code_and_two_in_the_papers_table() -> None:
    code, paper = (on_meta("digit_five_cnn", (3, 28, 28), 10, variant=variant) for variant in ("code", "paper"))
    assert widths(code) == [(128 * 3 * 3, 384), (384, 128), (128, 10)]
    assert widths(paper) == [(6272, 2048), (2048, 128), (128, 10)]
    assert [len(kinds(model, nn.MaxPool2d)) for model in (code, paper)] == [3, 2]


def test_alexnets_variants_differ_in_groups_and_linear_layers() -> None:
    code, paper = (on_meta("alexnet_gn", (3, 224, 224), 7, variant=variant) for variant in ("code", "paper"))
    assert widths(code) == [(9216, 1024), (1024, 128), (128, 7)]
    assert widths(paper) == [(9216, 4096), (4096, 512), (512, 7)]
    groups = [
        {norm.num_groups for norm in model.modules() if isinstance(norm, nn.GroupNorm)} for model in (code, paper)
    ]
    assert groups == [{32}, {2}]


def test_at_224_pixels_alexnets_average_pool_is_the_identity() -> None:
    features = on_meta("alexnet_gn", (3, 224, 224), 7).get_submodule("features")
    assert isinstance(features, nn.Sequential)
    pool = next(i for i, layer in enumerate(features) if isinstance(layer, nn.AdaptiveAvgPool2d))
    assert features[:pool](torch.empty(1, 3, 224, 224, device="meta")).shape == (1, 256, 6, 6)


@pytest.mark.parametrize("side, name", rotated([32, 64, 224], ["vgg11_gn", "mobilenet_v2_gn", "resnet18_gn"]))
def test_any_size_of_image_has_the_same_parameters(side: int, name: str) -> None:
    model = on_meta(name, (3, side, side), 10)
    assert size(model) == size(on_meta(name, (3, 32, 32), 10))
    assert model(torch.empty(2, 3, side, side, device="meta")).shape == (2, 10)


def test_at_32_pixels_vggs_average_pool_is_the_identity() -> None:
    features = on_meta("vgg11_gn", (3, 32, 32), 10).get_submodule("features")
    assert isinstance(features, nn.Sequential)
    pool = next(i for i, layer in enumerate(features) if isinstance(layer, nn.AdaptiveAvgPool2d))
    assert features[:pool](torch.empty(1, 3, 32, 32, device="meta")).shape == (1, 512, 1, 1)


@pytest.mark.parametrize(("width", "count"), [(1.0, 3_504_872), (0.5, 1_968_680), (1.4, 6_108_776), (0.75, 2_636_424)])
def test_mobilenet_has_as_many_parameters_as_torchvisions_with_batch_norm(width: float, count: int) -> None:
    """For ImageNet; BatchNorm learns a weight and a bias a channel, too."""
    assert size(on_meta("mobilenet_v2_gn", (3, 224, 224), 1000, width=width)) == count


def test_mobilenet_halves_an_image_five_times_or_four() -> None:
    for stride, side in ((2, 7), (1, 14)):
        features = on_meta("mobilenet_v2_gn", (3, 224, 224), 10, stride=stride).get_submodule("features")
        assert isinstance(features, nn.Sequential)
        assert features[:-2](torch.empty(1, 3, 224, 224, device="meta")).shape == (1, 1280, side, side)


def test_mobilenet_adds_the_input_ten_times() -> None:
    """In every block of a stage but its first: 16 blocks beyond the first stage's one, less six."""
    model = on_meta("mobilenet_v2_gn", (3, 32, 32), 10)
    assert sum(getattr(layer, "adds", False) for layer in model.modules()) == 10
    assert len(kinds(model, nn.Conv2d)) == len(kinds(model, nn.GroupNorm)) == 52


def test_femnist_starts_truncated_normal_with_zero_biases() -> None:
    for layer in kinds(make("femnist_cnn", (1, 28, 28), 62), nn.Conv2d, nn.Linear):
        assert isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None
        std = 1 / sqrt(layer.weight[0].numel())
        assert not layer.bias.any()
        assert layer.weight.abs().max() <= 2 * std * (1 + 1e-6)
        if layer.weight.numel() > 10_000:  # a normal variable cut off at two deviations has 0.8796 of them
            assert layer.weight.std().item() == pytest.approx(0.8796 * std, rel=0.02)


def test_fedswas_resnet18_is_imas_trunk_with_another_head() -> None:
    ima, fedswa = (on_meta("resnet18_gn", (3, 32, 32), 100, variant=variant) for variant in ("ima", "fedswa"))
    assert size(fedswa) == 11_220_132
    assert widths(ima) == [(512, 128), (128, 100)] and widths(fedswa) == [(512, 100)]
    trunk = [p.shape for p in fedswa.get_submodule("features").parameters()]
    assert trunk == [p.shape for p in ima.get_submodule("features.0").parameters()]


@pytest.mark.parametrize(("name", "shape"), [("digit_five_cnn", (3, 8, 8)), full("resnet18_gn", (3, 4, 4))])
def test_the_start_of_every_variant_is_a_function_of_the_seed(name: str, shape: tuple[int, ...]) -> None:
    variant = "fedswa" if name == "resnet18_gn" else "paper"
    first, again, other = (parameters(make(name, shape, seed=seed, variant=variant)) for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize(
    ("name", "options", "shape", "message"),
    [
        ("cifar_lenet", {}, (3, 32, 15), r"cifar_lenet: shape of one input = .* sides of at least 16 pixels"),
        ("femnist_cnn", {}, (1, 5, 28), r"femnist_cnn: shape of one input = .* sides of at least 6 pixels"),
        ("digit_five_cnn", {}, (3, 7, 28), r"digit_five_cnn: shape of one input = .* sides of at least 8 pixels"),
        ("digit_five_cnn", {"variant": ""}, (3, 8, 8), r"digit_five_cnn\.variant = '': must be 'code' or 'paper'"),
        ("vgg11_gn", {}, (3, 31, 32), r"vgg11_gn: shape of one input = .* sides of at least 32 pixels"),
        ("alexnet_gn", {}, (3, 62, 63), r"alexnet_gn: shape of one input = .* sides of at least 63 pixels"),
        ("alexnet_gn", {"variant": 2}, (3, 64, 64), r"alexnet_gn\.variant = 2: must be 'code' or 'paper'"),
        ("mobilenet_v2_gn", {}, (3, 8), r"mobilenet_v2_gn: shape of one input = \(3, 8\)"),
        ("mobilenet_v2_gn", {"width": 0.0}, (3, 8, 8), r"mobilenet_v2_gn\.width = 0\.0: must be a positive number"),
        ("mobilenet_v2_gn", {"groups": 3}, (3, 8, 8), r"mobilenet_v2_gn\.groups = 3: must divide 8"),
        ("mobilenet_v2_gn", {"stride": 4}, (3, 8, 8), r"mobilenet_v2_gn\.stride = 4: must be 1 or 2"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    name: str, options: dict[str, Any], shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        make(name, shape, **options)
    assert "\n" not in str(refusal.value)
