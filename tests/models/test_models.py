from __future__ import annotations

import textwrap
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsash.client import Batch
from fedsash.engines.gradients import OneByOne, Stacked
from fedsash.engines.processes import threads
from fedsash.methods import FedAvg
from fedsash.models import MODELS, build
from fedsash.models.resnet import Subsample
from fedsash.settings.errors import ModelError
from fedsash.vector.layout import Layout
from support.by_default import full

LARGE = ("alexnet_gn", "vgg11_gn", "resnet18_gn")
SMALL = {
    "mlp": (2, 3),
    "fmnist_cnn": (1, 16, 17),
    "lenet5": (1, 12, 13),
    "cifar_cnn": (3, 17, 16),
    "cifar_lenet": (3, 16, 17),
    "femnist_cnn": (1, 6, 9),
    "digit_five_cnn": (3, 8, 17),
    "alexnet_gn": (3, 64, 63),
    "vgg11_gn": (1, 32, 33),
    "resnet18_gn": (1, 5, 8),
    "resnet20_gn": (3, 8, 5),
    "mobilenet_v2_gn": (3, 5, 8),
}
ELSEWHERE = {"shakespeare_lstm", "vit"}
"""Models that have a file of tests of their own."""


def make(name: str, shape: tuple[int, ...], classes: int = 10, seed: int = 0, **options: Any) -> nn.Module:
    return build(name, options, shape=shape, classes=classes, seed=seed)


def parameters(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def as_printed(model: nn.Module) -> nn.Module:
    """The model with each ReLU that comes after a pooling layer before it, as the papers print it."""
    layers = list(model.features)
    for place in range(1, len(layers)):
        if isinstance(layers[place - 1], nn.MaxPool2d) and isinstance(layers[place], nn.ReLU):
            layers[place - 1 : place + 1] = layers[place], layers[place - 1]
    return nn.Sequential(*layers, model.classifier)


@pytest.mark.parametrize("name", ["fmnist_cnn", "cifar_cnn", "cifar_lenet", "lenet5", "femnist_cnn"])
def test_the_order_of_relu_and_pooling_changes_neither_outputs_nor_gradients(name: str) -> None:
    model = make(name, (3, 17, 18)).eval()
    printed = as_printed(model)
    assert [type(layer) for layer in printed[:-1]] != [type(layer) for layer in model.features]
    x = torch.randn(7, 3, 17, 18)
    gradients = []
    assert torch.equal(printed(x), model(x))
    for network in (model, printed):
        model.zero_grad()
        F.cross_entropy(network(x), torch.arange(7)).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert torch.equal(*gradients)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "count"),
    [
        ("mlp", (64,), 10, 64 * 64 + 64 + 64 * 10 + 10),
        ("fmnist_cnn", (1, 28, 28), 10, 274_026),
        ("cifar_cnn", (3, 32, 32), 10, 772_682),
        ("cifar_lenet", (3, 32, 32), 10, 797_962),
        ("lenet5", (1, 28, 28), 10, 61_706),
        ("femnist_cnn", (1, 28, 28), 62, 1_206_590),
        ("digit_five_cnn", (3, 28, 28), 10, 806_090),
        ("alexnet_gn", (3, 224, 224), 7, 12_042_311),
        ("vgg11_gn", (3, 32, 32), 10, 9_292_938),
        ("vgg11_gn", (3, 32, 32), 100, 9_304_548),
        ("resnet18_gn", (3, 32, 32), 10, 11_235_786),
        ("resnet18_gn", (3, 32, 32), 100, 11_247_396),
        ("resnet20_gn", (3, 32, 32), 10, 269_722),
        ("resnet20_gn", (3, 32, 32), 100, 275_572),
    ],
)
def test_models_have_the_published_numbers_of_parameters(
    name: str, shape: tuple[int, ...], classes: int, count: int
) -> None:
    with torch.device("meta"):
        model = MODELS[name](shape, classes)
    assert sum(p.numel() for p in model.parameters()) == count
    assert not list(model.buffers())


def test_every_model_has_a_small_shape_here() -> None:
    assert SMALL.keys() | ELSEWHERE == MODELS.keys()


def check_gradients(models: list[nn.Module], shape: tuple[int, ...]) -> None:
    """One client a model: stacked, or one by one in either memory format, they have the same gradients."""
    clients = len(models)
    layout = Layout(models[0])
    w = torch.stack([layout.flatten(model) for model in models])
    x = torch.randn(clients, 3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.arange(3 * clients).view(clients, 3) % 5
    weights = torch.tensor([0.5, 0.3, 0.2]).double()
    batch = Batch(x, y, weights.expand(clients, 3), torch.arange(clients) + 7)

    def loss(output: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(output, y, reduction="none")

    with threads(1):
        together = Stacked(
            module=models[0],
            layout=Layout(models[0]),
            loss=loss,
            method=FedAvg(),
            memory_format="contiguous",
            precision="full",
            dropout=True,
        )(w, batch, {})
        for memory_format in ("contiguous", "channels_last"):
            alone = OneByOne(
                module=models[0],
                layout=Layout(models[0]),
                loss=loss,
                method=FedAvg(),
                memory_format=memory_format,
                precision="full",
                dropout=True,
            )
            for c in range(clients):
                client_batch = Batch(*(values[c : c + 1] for values in (batch.x, batch.y, batch.weights, batch.keys)))
                torch.testing.assert_close(together[c], alone(w[c : c + 1], client_batch, {})[0], rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow) if n in LARGE else full(n) if n == "mobilenet_v2_gn" else n
        for n in SMALL
    ],
)
def test_clients_side_by_side_have_the_gradients_of_clients_one_by_one_in_either_memory_format(name: str) -> None:
    options = {"width": 0.5} if name == "mobilenet_v2_gn" else {}
    check_gradients([make(name, SMALL[name], seed=seed, **options).double() for seed in (1, 2)], SMALL[name])


@pytest.mark.parametrize(
    "name", [full(n) if n in ("alexnet_gn", "vgg11_gn", "resnet18_gn", "mobilenet_v2_gn") else n for n in SMALL]
)
def test_the_last_linear_layer_classifies_the_features(name: str) -> None:
    model = make(name, SMALL[name], classes=7).double().eval()
    x = torch.randn(3, *SMALL[name], dtype=torch.float64)
    *_, last = (layer for layer in model.modules() if isinstance(layer, nn.Linear))
    assert last is model.get_submodule("classifier")
    assert last.out_features == 7
    assert torch.equal(model(x), last(model.get_submodule("features")(x)))


@pytest.mark.parametrize("name", [full(n) if n in LARGE else n for n in SMALL])
def test_the_start_is_a_function_of_the_seed_alone(name: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = parameters(make(name, SMALL[name], seed=5))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(parameters(make(name, SMALL[name], seed=5)), first)
    assert not torch.equal(parameters(make(name, SMALL[name], seed=6)), first)


def test_mlp_without_hidden_layers_is_an_affine_map_of_the_flattened_input() -> None:
    model = make("mlp", (2, 3), classes=4, hidden=()).double()
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    layer = model.get_submodule("classifier")
    assert isinstance(layer, nn.Linear)
    torch.testing.assert_close(model(x), x.flatten(1) @ layer.weight.T + layer.bias)


def test_mlp_has_the_widths_asked_for() -> None:
    model = make("mlp", (4,), classes=3, hidden=[8, 5])
    assert [(p.in_features, p.out_features) for p in model.modules() if isinstance(p, nn.Linear)] == [
        (4, 8),
        (8, 5),
        (5, 3),
    ]


def test_option_a_shortcut_subsamples_and_pads_with_zero_channels() -> None:
    x = torch.randn(2, 16, 5, 4)
    y = Subsample(16, 32)(x)
    assert y.shape == (2, 32, 3, 2)
    assert torch.equal(y[:, 8:24], x[:, :, ::2, ::2])
    assert not y[:, :8].any() and not y[:, 24:].any()


@pytest.mark.parametrize(("name", "fan"), [("resnet18_gn", "out"), ("resnet20_gn", "in")])
def test_convolutions_start_kaiming_normal(name: str, fan: str) -> None:
    for layer in make(name, (3, 32, 32)).modules():
        if isinstance(layer, nn.Conv2d) and layer.weight.numel() > 10_000:
            fan_size = layer.weight[0].numel() if fan == "in" else layer.weight[:, 0].numel()
            assert layer.weight.std().item() == pytest.approx(sqrt(2 / fan_size), rel=0.05)
            assert layer.bias is None


def test_groups_are_an_option_of_the_residual_networks() -> None:
    norms = [m for m in make("resnet20_gn", (3, 8, 8), groups=4).modules() if isinstance(m, nn.GroupNorm)]
    assert len(norms) == 19 and {norm.num_groups for norm in norms} == {4}


@pytest.mark.parametrize("name", ["resnet18_gn", "resnet20_gn"])
def test_zero_groups_put_batch_norm_in_place_of_group_norm_at_the_same_initial_values(name: str) -> None:
    with_groups = make(name, (3, 8, 8))
    with_batches = make(name, (3, 8, 8), groups=0)
    norms = [layer for layer in with_batches.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert len(norms) == sum(isinstance(layer, nn.GroupNorm) for layer in with_groups.modules())
    values = dict(with_batches.named_parameters())
    expected = dict(with_groups.named_parameters())
    assert values.keys() == expected.keys()
    assert all(torch.equal(values[key], expected[key]) for key in values)


def test_a_users_function_is_called_with_the_options_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
        from torch import nn

        def tower(width, depth=1):
            return nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))

        def number():
            return 3
    """
    (tmp_path / "users_networks.py").write_text(textwrap.dedent(source))
    monkeypatch.syspath_prepend(tmp_path)
    model = build("users_networks:tower", {"width": 4, "depth": 2}, shape=(1,), classes=2, seed=3)
    again = build("users_networks:tower", {"width": 4, "depth": 2}, shape=(9,), classes=5, seed=3)
    assert parameters(model).numel() == 2 * 20
    assert torch.equal(parameters(model), parameters(again))
    with pytest.raises(ValueError, match=r"must return an nn\.Module, returned int"):
        build("users_networks:number", {}, shape=(1,), classes=2, seed=3)
    with pytest.raises(ValueError, match=r"missing a required argument: 'width'; its options are width, depth"):
        build("users_networks:tower", {}, shape=(1,), classes=2, seed=3)


@pytest.mark.parametrize(
    ("name", "options", "shape", "message"),
    [
        ("resnet18", {}, (3, 32, 32), r"model\.name = 'resnet18': must be one of .*; did you mean 'resnet18_gn'\?"),
        ("zzz", {}, (3, 32, 32), r"must be one of mlp, .* or 'package.module:function'$"),
        ("no_such_package:f", {}, (1,), r"can't be imported: No module named 'no_such_package'"),
        ("numpy:no_such_function", {}, (1,), r"can't be imported: module 'numpy' has no attribute 'no_such_function'"),
        (
            "numpy:ndarray",
            {},
            (1,),
            r"must be a function that returns an nn\.Module, or a class that extends nn\.Module",
        ),
        ("numpy:hypot", {}, (1,), r"must be a class or a function that is written in Python"),
        ("subprocess:run", {"args": "true"}, (1,), r"is of Python's standard library"),
        ("mlp", {"width": 3}, (4,), r"unexpected keyword argument 'width'; its options are hidden"),
        ("cifar_cnn", {"classes": 3}, (3, 32, 32), r"unexpected keyword argument 'classes'; its options are none"),
        ("mlp", {"hidden": 64}, (4,), r"mlp\.hidden = 64: must be a list of positive integers"),
        ("mlp", {"hidden": [8, 0]}, (4,), r"mlp\.hidden = \[8, 0\]: must be a list of positive integers"),
        ("fmnist_cnn", {}, (64,), r"fmnist_cnn: shape of one input = \(64,\): must be \(channels, height, width\)"),
        ("cifar_cnn", {}, (3, 15, 32), r"sides of at least 16 pixels"),
        ("resnet18_gn", {}, (32, 32), r"resnet18_gn: shape of one input = \(32, 32\)"),
        ("resnet18_gn", {"groups": 3}, (3, 8, 8), r"resnet18_gn\.groups = 3: must divide 64"),
        ("resnet18_gn", {"variant": "x"}, (3, 8, 8), r"resnet18_gn\.variant = 'x': must be 'ima' or 'fedswa'"),
        ("resnet20_gn", {"groups": -1}, (3, 8, 8), r"resnet20_gn\.groups = -1: must divide 16, .* 0 for BatchNorm"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    name: str, options: dict[str, Any], shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        build(name, options, shape=shape, classes=10, seed=0)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        ("mobilenet_v2_gn", {"width": 3e4}, "takes .* GB, and .* GB are free"),
        ("mlp", {"hidden": [10**9]}, "takes .* GB, and .* GB are free"),
        full("mlp", {"hidden": [4096] * 3000}, "takes .* GB, and .* GB are free"),
        ("resnet18_gn", {"groups": "2"}, "resnet18_gn can't be made with these options: "),
        ("mobilenet_v2_gn", {"width": "a"}, "mobilenet_v2_gn can't be made with these options: "),
    ],
)
def test_options_that_make_no_model_are_refused_in_one_line(name: str, options: dict[str, Any], line: str) -> None:
    with pytest.raises(ModelError, match=line) as refused:
        build(name, options, shape=(3, 32, 32), classes=10, seed=0)
    assert "\n" not in str(refused.value)
