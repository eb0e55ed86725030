"""The Shakespeare LSTM against PyTorch's, and against itself in other forms."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from fedsash.models import build
from fedsash.models.lstm import LSTM

close = partial(torch.testing.assert_close, rtol=0, atol=1e-13)


def make(shape: tuple[int, ...] = (7,), classes: int = 6, seed: int = 0, **options: Any) -> nn.Module:
    return build("shakespeare_lstm", {"embedding": 3, "width": 5} | options, shape=shape, classes=classes, seed=seed)


def characters(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(6, shape, generator=torch.Generator().manual_seed(seed))


def random(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def twin(layer: LSTM) -> nn.LSTM:
    """PyTorch's layer with the same weights: gates in the order i, f, g, o, and f's 1 in one of its two biases."""
    width = layer.U.shape[1]
    inputs = layer.W.shape[1]
    other = nn.LSTM(inputs, width, batch_first=True).double()
    i, g, f, o = range(4)
    order = torch.cat([torch.arange(width) + k * width for k in (i, f, g, o)])
    with torch.no_grad():
        other.weight_ih_l0.copy_(layer.W[order])
        other.weight_hh_l0.copy_(layer.U[order])
        other.bias_ih_l0.copy_(layer.b[order])
        other.bias_hh_l0.zero_()[width : 2 * width] = 1
    return other


class CountedLstms(TorchFunctionMode):
    """Counts the calls of PyTorch's LSTM."""

    calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += func is torch.lstm
        return func(*args, **(kwargs or {}))


def test_it_has_the_published_number_of_parameters() -> None:
    model = build("shakespeare_lstm", {}, shape=(80,), classes=90, seed=0)
    layers = 4 * 256 * (8 + 256 + 1), 4 * 256 * (256 + 256 + 1)
    assert sum(p.numel() for p in model.parameters()) == 820_522 == 90 * 8 + sum(layers) + 256 * 90 + 90
    assert not list(model.buffers())


def test_a_layer_and_its_gradient_are_pytorchs_with_one_bias_and_one_more_on_the_forget_gate() -> None:
    layer = LSTM(3, 5).double()
    nn.init.normal_(layer.b)
    other = twin(layer)
    x = random(4, 9, 3).requires_grad_()
    weights = random(4, 9, 5)
    h = layer(x)
    theirs = other(x)[0]
    close(h, theirs)
    dx, dW, dU, db = torch.autograd.grad((h * weights).sum(), [x, layer.W, layer.U, layer.b])
    order = torch.arange(20).view(4, 5)[[0, 2, 1, 3]].flatten()
    parameters = [other.weight_ih_l0, other.weight_hh_l0, other.bias_ih_l0]
    for client_state, its in zip(
        (dx, dW[order], dU[order], db[order]),
        torch.autograd.grad((theirs * weights).sum(), [x, *parameters]),
        strict=True,
    ):
        close(client_state, its)


def test_the_model_is_two_of_pytorchs_layers_with_a_tanh_after_each() -> None:
    model = make().double()
    x = characters(4, 7)
    embedding, first, _, second, _ = model.get_submodule("features")
    h = torch.tanh(twin(first)(embedding.weight[x])[0])
    close(model(x), model.get_submodule("classifier")(torch.tanh(twin(second)(h)[0])))


def test_the_gradient_is_that_of_finite_differences() -> None:
    layer = LSTM(2, 3).double()
    names, values = zip(*layer.named_parameters(), strict=True)
    parameters = [value.detach().requires_grad_() for value in values]

    def h(x: Tensor, *weights: Tensor) -> Any:
        return vmap(partial(functional_call, layer, dict(zip(names, weights, strict=True))))((x,))

    assert torch.autograd.gradcheck(h, (random(3, 2, 4, 2).requires_grad_(), *parameters))


def test_a_second_derivative_of_stacked_clients_is_refused() -> None:
    x = random(3, 2, 4, 2).requires_grad_()
    (first,) = torch.autograd.grad(vmap(LSTM(2, 3).double())(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(first.sum(), x)


@pytest.mark.parametrize("training", [True, False])
def test_one_client_alone_runs_pytorchs_kernel_and_stacked_clients_have_the_same_numbers(training: bool) -> None:
    layer = LSTM(3, 5).double().train(training)
    x = random(2, 4, 9, 3).requires_grad_()
    nn.init.normal_(layer.b)
    leaves = [x, layer.W, layer.U, layer.b]
    alone = torch.stack([layer(one) for one in x])
    together = vmap(layer)(x)
    close(alone, together)
    for one, other in zip(*(torch.autograd.grad(h.sin().sum(), leaves) for h in (alone, together)), strict=True):
        close(one, other)
    with CountedLstms() as counted:
        layer(x[0])
        vmap(layer)(x)
    assert counted.calls == 1


@pytest.mark.parametrize("server_state", [False, True], ids=["own weights", "the same weights"])
def test_clients_side_by_side_have_the_gradients_of_clients_one_by_one(server_state: bool) -> None:
    models = [make(seed=0 if server_state else seed).double() for seed in (1, 2)]
    x = characters(2, 3, 7)
    y = characters(2, 3, 7, seed=1)

    def loss(w: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(models[0], w, (x,)).flatten(0, 1), y.flatten())

    single = [{n: p.detach() for n, p in model.named_parameters()} for model in models]
    weights = single[0] if server_state else {n: torch.stack([w[n] for w in single]) for n in single[0]}
    together = vmap(grad(loss), in_dims=(None if server_state else 0, 0, 0))(weights, x, y)
    for i, w in enumerate(single):
        alone = grad(loss)(w, x[i], y[i])
        for n in w:
            close(together[n][i], alone[n])


def test_clients_of_clients_are_vectorised_as_well() -> None:
    layer = LSTM(2, 3).double()
    x = random(2, 3, 4, 5, 2)
    nested = vmap(vmap(layer))(x)
    for i in range(2):
        for j in range(3):
            close(nested[i, j], layer(x[i, j]))


def test_the_last_linear_layer_classifies_the_features_at_every_position() -> None:
    model = make(classes=8).double()
    x = characters(3, 7)
    *_, last = (layer for layer in model.modules() if isinstance(layer, nn.Linear))
    assert last is model.get_submodule("classifier") and last.out_features == 8
    features = model.get_submodule("features")(x)
    assert features.shape == (3, 7, 5) and model(x).shape == (3, 7, 8)
    assert torch.equal(model(x), last(features))


def test_characters_may_come_as_floats() -> None:
    model = make()
    x = characters(3, 7)
    assert torch.equal(model(x), model(x.float())) and torch.equal(model(x), model(x.int()))


def test_what_comes_later_changes_nothing_and_what_came_before_does() -> None:
    model = make().double()
    x = characters(1, 7)
    other = x.clone()
    other[0, 4] = (x[0, 4] + 1) % 6
    same = (model(x) == model(other)).all(-1)[0]
    assert same.tolist() == [True] * 4 + [False] * 3


def test_every_sequence_begins_anew() -> None:
    model = make().double()
    x = characters(4, 7)
    close(model(x), torch.cat([model(one[None]) for one in x]))


def test_weights_start_within_two_deviations_and_biases_at_zero() -> None:
    model = build("shakespeare_lstm", {}, shape=(80,), classes=90, seed=0)
    embedding, first, _, second, _ = model.get_submodule("features")
    classifier = model.get_submodule("classifier")
    normal = 0.8796  # the deviation of a standard normal number that lies within (-2, 2)
    pairs = [(embedding.weight, 1), (classifier.weight, 256)]
    pairs += [(weight, fan) for layer, fan in ((first, 8 + 256), (second, 512)) for weight in (layer.W, layer.U)]
    for weight, fan_in in pairs:
        weight = weight.detach()
        assert float(weight.abs().max()) <= 2 * fan_in**-0.5
        assert float(weight.std()) == pytest.approx(normal * fan_in**-0.5, rel=0.05)
    assert not any(bias.any() for bias in (first.b, second.b, classifier.bias))


@pytest.mark.parametrize(
    ("shape", "options", "line"),
    [
        ((1, 28, 28), {}, r"shakespeare_lstm: shape of one input = \(1, 28, 28\): must be \(characters,\)"),
        ((7,), {"width": 0}, r"shakespeare_lstm\.width = 0: must be a positive integer"),
        ((7,), {"embedding": 1.5}, r"shakespeare_lstm\.embedding = 1\.5: must be a positive integer"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(shape: tuple[int, ...], options: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        make(shape, **options)
