from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fedsash.client import Batch
from fedsash.engines.dropout import SeededDropout, draws_dropout
from fedsash.engines.gradients import OneByOne, Stacked
from fedsash.errors import ModelError
from fedsash.methods import FedAvg
from fedsash.vector.layout import Layout
from fedsash.vector.randomness import Purpose, fold, keys, to_tensor
from support.scoring import cross_entropy

words = st.integers(-(2**63), 2**63 - 1)


def key(client: int = 0, step: int = 0) -> Tensor:
    """The key of a client's local step, as local training makes it."""
    return to_tensor(fold(keys(0, Purpose.STEP, 0, np.array([client])), step))[0]


def masks(model: nn.Module, x: Tensor, key: Tensor) -> Tensor:
    with SeededDropout(key):
        out: Tensor = model(x)
    return out


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_elements_are_kept_with_probability_1_minus_p_and_scaled_by_its_inverse(p: float) -> None:
    n = 40_000
    out = masks(nn.Dropout(p), torch.ones(200, n // 200, dtype=torch.float64), key())
    kept = int((out != 0).sum())
    torch.testing.assert_close(out[out != 0], torch.full((kept,), 1 / (1 - p), dtype=torch.float64))
    assert abs(kept - n * (1 - p)) < 6 * (n * p * (1 - p)) ** 0.5


def test_p_0_changes_nothing_and_counts_as_no_dropout() -> None:
    x = torch.randn(3, 4)
    assert torch.equal(masks(nn.Dropout(0.0), x, key()), x)
    assert not draws_dropout(lambda: nn.Dropout(0.0)(x))


@pytest.mark.parametrize("gradients", [OneByOne, Stacked])
def test_p_1_drops_everything_in_the_value_and_in_the_gradient(gradients: Any) -> None:
    assert not bool(masks(nn.Dropout(1.0), torch.randn(3, 4), key()).any())
    model = nn.Sequential(nn.Linear(2, 3), nn.Dropout(1.0), nn.Linear(3, 3)).double()
    gradient = gradient_of(model, gradients)
    views = Layout(model).views(gradient)
    assert not any(bool(views[name].any()) for name in ("0.weight", "0.bias", "2.weight"))
    assert bool(views["2.bias"].any())


def test_eval_mode_is_left_alone() -> None:
    x = torch.randn(3, 4)
    model = nn.Sequential(nn.Dropout(0.5), nn.Dropout2d(0.5)).eval()
    assert torch.equal(masks(model, x[None], key()), x[None])
    assert not draws_dropout(lambda: model(x[None]))


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.Dropout1d(0.5), nn.Dropout2d(0.5), nn.Dropout3d(0.5)], ids=repr)
def test_every_form_is_seen_and_is_a_pure_function_of_the_key(layer: nn.Module) -> None:
    x = torch.ones(4, 8, *[3] * {"Dropout": 0, "Dropout1d": 1, "Dropout2d": 2, "Dropout3d": 3}[type(layer).__name__])
    assert draws_dropout(lambda: layer(x))
    before = torch.get_rng_state()
    assert torch.equal(masks(layer, x, key()), masks(layer, x, key()))
    assert torch.equal(torch.get_rng_state(), before), "PyTorch's own generator is not used"


@pytest.mark.parametrize(
    "forward",
    [
        lambda: nn.LSTM(2, 3, 2, dropout=0.5)(torch.ones(4, 2)),
        lambda: F.scaled_dot_product_attention(*torch.ones(3, 1, 2, 4), dropout_p=0.5),
        lambda: torch.ones(3) + torch.randn(3),
        lambda: F.rrelu(-torch.ones(3), training=True),
    ],
    ids=["LSTM", "attention", "noise", "rrelu"],
)
def test_what_draws_from_pytorchs_own_generators_is_seen(forward: Callable[[], object]) -> None:
    assert draws_dropout(forward)


def test_without_the_mode_pytorchs_own_dropout_is_back() -> None:
    x = torch.ones(1000)
    seeded = masks(nn.Dropout(0.5), x, key())
    assert not torch.equal(nn.Dropout(0.5)(x), seeded)
    assert not draws_dropout(lambda: torch.relu(x))


def pattern(out: Tensor) -> list[bool]:
    """Along which dimensions a mask is constant."""
    shape = range(out.dim())
    return [torch.equal(out, out.select(d, 0).unsqueeze(d).expand_as(out)) for d in shape]


@pytest.mark.parametrize(
    ("dropout", "shape"),
    [
        (F.dropout, (16, 16)),
        (F.dropout, (8, 8, 4, 4)),
        (F.dropout1d, (16, 16, 3)),
        (F.dropout1d, (64, 3)),
        (F.dropout2d, (16, 16, 3, 2)),
        (F.dropout2d, (16, 16, 3)),
        (F.dropout2d, (16, 16)),
        (F.dropout3d, (16, 16, 2, 3, 2)),
        (F.dropout3d, (64, 2, 3, 2)),
    ],
)
def test_dimensions_share_a_draw_as_in_pytorch(dropout: Callable[..., Tensor], shape: tuple[int, ...]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of some shapes that it still accepts
        theirs = dropout(torch.ones(shape), 0.5, True)
        with SeededDropout(key()):
            ours = dropout(torch.ones(shape), 0.5, True)
    assert pattern(ours) == pattern(theirs)
    assert set(ours.flatten().tolist()) == set(theirs.flatten().tolist()) == {0.0, 2.0}


def test_masks_differ_by_client_step_and_layer() -> None:
    x = torch.ones(2000, dtype=torch.float64)
    two_layers = [masks(nn.Dropout(0.5), x, key())]
    with SeededDropout(key()):
        F.dropout(x)
        two_layers.append(F.dropout(x))
    drawn = [*two_layers, masks(nn.Dropout(0.5), x, key(client=1)), masks(nn.Dropout(0.5), x, key(step=1))]
    for i, one in enumerate(drawn):
        for other in drawn[:i]:
            agree = int((one == other).sum())
            assert abs(agree - 1000) < 6 * 500**0.5


@settings(max_examples=30)
@given(h=words, b=st.integers(1, 6), padding=st.integers(0, 5), dims=st.integers(0, 3), p=st.floats(0.05, 0.95))
def test_padding_a_batch_leaves_the_masks_of_its_samples(h: int, b: int, padding: int, dims: int, p: float) -> None:
    dropout = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d)[dims]
    x = torch.ones(b + padding, 4, *[2] * dims)

    def drawn(x: Tensor) -> Tensor:
        with SeededDropout(torch.tensor(h)):
            return torch.cat([dropout(x, p, True), dropout(2 * x, p, True)], dim=1)

    assert torch.equal(drawn(x)[:b], drawn(x[:b]))


@settings(max_examples=30)
@given(h=st.lists(words, min_size=1, max_size=4), dims=st.integers(0, 3), p=st.floats(0.05, 0.95))
def test_masks_under_vmap_are_those_of_each_client_alone(h: list[int], dims: int, p: float) -> None:
    dropout = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d)[dims]
    x = torch.randn(len(h), 3, 4, *[2] * dims)

    def forward(x: Tensor, key: Tensor) -> Tensor:
        with SeededDropout(key):
            return dropout(dropout(x, p, True) + 1, p, True)

    together = torch.vmap(forward)(x, torch.tensor(h))
    assert torch.equal(together, torch.stack([forward(x[c], torch.tensor(h[c])) for c in range(len(h))]))


class Net(nn.Module):
    """Dropout of channels and of features, so that a mistake in either shows in the gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.channels = nn.Conv2d(1, 4, 2), nn.Dropout2d(0.4)
        self.features, self.fc = nn.Dropout(0.3, inplace=True), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(self.features(2 * torch.tanh(self.channels(self.conv(x))).flatten(1)))
        return out


def test_stacked_gradients_with_padding_are_those_of_each_client_alone() -> None:
    torch.manual_seed(0)
    model = Net().double()
    layout = Layout(model)
    counts, width = (5, 2, 3), 5
    x, y = torch.randn(3, width, 1, 3, 3).double(), torch.randint(0, 3, (3, width))
    weights = torch.stack([(torch.arange(width) < n).double() / n for n in counts])
    h = torch.stack([key(client) for client in range(3)])
    w = torch.randn(3, layout.size).double()
    together = Stacked(
        module=model,
        layout=Layout(model),
        loss=cross_entropy,
        method=FedAvg(),
        memory_format="contiguous",
        precision="full",
        dropout=True,
    )(w, Batch(x, y, weights, h), {})
    alone = OneByOne(
        module=model,
        layout=Layout(model),
        loss=cross_entropy,
        method=FedAvg(),
        memory_format="contiguous",
        precision="full",
        dropout=True,
    )
    for c, n in enumerate(counts):
        one = slice(c, c + 1)
        gradient = alone(w[one], Batch(x[one, :n], y[one, :n], weights[one, :n], h[one]), {})
        torch.testing.assert_close(gradient[0], together[c], rtol=1e-12, atol=1e-14)
    plain = nn.Sequential(model.conv, nn.Tanh(), nn.Flatten(), model.fc)
    undropped = Stacked(
        module=plain,
        layout=Layout(plain),
        loss=cross_entropy,
        method=FedAvg(),
        memory_format="contiguous",
        precision="full",
        dropout=False,
    )(w, Batch(x, y, weights, h), {})
    assert not torch.allclose(together, undropped), "dropout does something"


def test_the_same_batch_asked_again_has_the_same_masks() -> None:
    torch.manual_seed(0)
    model = Net().double()
    w = Layout(model).flatten(model)[None]
    batch = Batch(torch.randn(1, 4, 1, 3, 3).double(), torch.zeros(1, 4).long(), torch.ones(1, 4).double(), key()[None])
    for gradients in (OneByOne, Stacked):
        gradient = gradients(
            module=model,
            layout=Layout(model),
            loss=cross_entropy,
            method=FedAvg(),
            memory_format="contiguous",
            precision="full",
            dropout=True,
        )
        assert torch.equal(gradient(w, batch, {}), gradient(w.clone(), batch, {}))


class WithoutResult(nn.Sequential):
    """Calls its dropout in place, and does not use what it returns."""

    def __init__(self, inplace: bool) -> None:
        super().__init__(nn.Linear(2, 8), nn.Linear(8, 3))
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        hidden = 2 * torch.tanh(self[0](x))
        dropped = F.dropout(hidden, 0.5, self.training, self.inplace)
        if self.inplace:
            dropped = hidden
        out: Tensor = self[1](dropped)
        return out


@pytest.mark.parametrize("gradients", [OneByOne, Stacked])
def test_dropout_in_place_changes_its_input(gradients: Any) -> None:
    computed = []
    for inplace in (True, False):
        torch.manual_seed(0)
        computed.append(gradient_of(WithoutResult(inplace).double(), gradients))
    assert torch.equal(*computed)


class Checkpointed(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self[1](checkpoint(self[0], x, use_reentrant=False))
        return out


def test_dropout_in_a_checkpoint_of_activations_is_refused() -> None:
    first = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Tanh())
    with pytest.raises(ModelError, match=r"dropout in a part of the model that torch\.utils\.checkpoint"):
        gradient_of(Checkpointed(first, nn.Linear(8, 3)).double(), OneByOne)


def test_a_checkpoint_of_activations_without_dropout_has_the_gradient_without_it() -> None:
    parts = [nn.Sequential(nn.Linear(2, 8), nn.Tanh()), nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 3))]
    computed = [gradient_of(kind(*parts).double(), OneByOne) for kind in (Checkpointed, nn.Sequential)]
    assert torch.equal(*computed)


def gradient_of(model: nn.Module, gradients: Any) -> Tensor:
    """The gradient of a model with two inputs and three outputs over a batch of four samples."""
    x = torch.linspace(-1, 1, 8, dtype=torch.float64).view(1, 4, 2)
    batch = Batch(x, torch.zeros(1, 4).long(), torch.full((1, 4), 0.25).double(), key()[None])
    gradient = gradients(
        module=model,
        layout=Layout(model),
        loss=cross_entropy,
        method=FedAvg(),
        memory_format="contiguous",
        precision="full",
        dropout=True,
    )
    computed: Tensor = gradient(Layout(model).flatten(model)[None], batch, {})
    return computed
