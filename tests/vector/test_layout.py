from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedsash.client import LocalTraining
from fedsash.data.federated import FederatedData
from fedsash.methods.sampling import Uniform
from fedsash.vector.layout import Layout, ModelSlice
from support.worlds import ENGINES, after, federation

FLOATS = (torch.float32, torch.float64, torch.bfloat16)


class Tied(nn.Module):
    """A classifier whose weight is the embedding's, as in language models."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(3, 3, bias=False)
        self.body = nn.Linear(3, 3)
        self.decoder = nn.Linear(3, 3)
        self.decoder.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.decoder(torch.tanh(self.body(self.embedding(x))))
        return out


class Shapes(nn.Module):
    """Parameters of every number of dimensions, a frozen one and a buffer among them."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.conv = nn.Conv2d(2, 3, 2)
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)
        self.register_buffer("counter", torch.zeros(5))
        self.fc = nn.Linear(3, 4)


def module_of(shapes: list[tuple[int, ...]], dtype: torch.dtype = torch.float64) -> nn.Module:
    module = nn.Module()
    for i, shape in enumerate(shapes):
        module.register_parameter(f"p{i}", nn.Parameter(torch.randn(shape, dtype=dtype)))
    return module


def values(module: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in module.parameters()]


def covered(layout: Layout, part: ModelSlice) -> list[int]:
    return [i for start, stop in layout.ranges(part) for i in range(start, stop)]


@settings(max_examples=50)
@given(
    shapes=st.lists(st.lists(st.integers(1, 4), max_size=4).map(tuple), min_size=1, max_size=6),
    dtype=st.sampled_from(FLOATS),
)
def test_there_and_back_is_bitwise_the_same(shapes: list[tuple[int, ...]], dtype: torch.dtype) -> None:
    module = module_of(shapes, dtype)
    other = module_of(shapes, dtype)
    layout = Layout(module)
    w = layout.flatten(module)
    assert w.shape == (layout.size,) and w.dtype == layout.dtype == dtype
    assert [view.shape for view in layout.views(w).values()] == [torch.Size(s) for s in shapes]
    layout.load(other, w)
    assert all(torch.equal(a, b) for a, b in zip(values(module), values(other), strict=True))
    assert torch.equal(layout.flatten(other), w)


def test_views_share_the_vectors_memory_in_the_order_of_the_parameters() -> None:
    layout = Layout(Shapes())
    w = torch.arange(layout.size, dtype=torch.float32)
    views = layout.views(w)
    assert torch.equal(torch.cat([v.reshape(-1) for v in views.values()]), w)
    for view in views.values():
        view += 1
    assert torch.equal(w, torch.arange(layout.size) + 1.0)


def test_views_of_stacked_models_have_the_stack_in_front() -> None:
    module = Shapes()
    layout = Layout(module)
    w = torch.randn(3, 2, layout.size)
    views = layout.views(w)
    assert views["conv.weight"].shape == (3, 2, 3, 2, 2, 2) and views["scale"].shape == (3, 2)
    assert torch.equal(views["conv.weight"][2, 1], layout.views(w[2, 1])["conv.weight"])
    views["fc.bias"].zero_()
    assert torch.equal(w[..., -4:], torch.zeros(3, 2, 4)) and bool(w[..., :-4].all())


def test_flatten_copies_even_a_single_parameter() -> None:
    module = module_of([(3,)])
    w = Layout(module).flatten(module)
    w.zero_()
    assert all(bool(p.all()) for p in values(module)) and not w.requires_grad


def test_frozen_parameters_and_buffers_stay_out_of_the_vector() -> None:
    module = Shapes()
    layout = Layout(module)
    assert layout.names == ("scale", "conv.weight", "conv.bias", "fc.weight", "fc.bias")
    assert layout.lengths == (1, 24, 3, 12, 4) and layout.size == 44
    layout.load(module, torch.zeros(layout.size))
    assert bool(module.frozen.eq(1).all()) and not bool(module.fc.weight.any())


@settings(max_examples=30)
@given(frozen=st.sets(st.integers(0, 4)))
def test_only_what_trains_is_counted(frozen: set[int]) -> None:
    module = module_of([(2,), (3, 2), (), (1, 4), (5,)])
    for i, p in enumerate(module.parameters()):
        p.requires_grad_(i not in frozen)
    if len(frozen) == 5:
        with pytest.raises(ValueError, match="Module has no trainable parameters: set requires_grad"):
            Layout(module)
    else:
        layout = Layout(module)
        assert layout.names == tuple(f"p{i}" for i in range(5) if i not in frozen)
        assert layout.size == sum(p.numel() for p in module.parameters() if p.requires_grad)


def test_tied_parameters_count_once_and_stay_tied() -> None:
    module = Tied()
    layout = Layout(module)
    assert layout.names == ("embedding.weight", "body.weight", "body.bias", "decoder.bias") and layout.size == 24
    w = torch.randn(layout.size)
    for change in (layout.load, layout.bind):
        change(module, w)
        assert module.decoder.weight is module.embedding.weight
        assert torch.equal(module.decoder.weight.view(-1), w[:9])


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_a_tied_model_trains_as_with_plain_autograd(engine: Any) -> None:
    """One full-batch step of all clients, weighted by samples, is gradient descent: here by PyTorch itself."""
    torch.manual_seed(0)
    model = Tied().double()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(9, 3))
    y = rng.integers(0, 3, 9)
    data = FederatedData.from_arrays(x, y, [range(4), range(4, 9)], classes=3)
    client = LocalTraining(lr=0.5, batch="full", steps=1)
    state = after(federation(model=model, data=data, local=client, sampling=Uniform(2), engine=engine), 3)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(3):
        optimiser.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y)))
        optimiser.step()
    torch.testing.assert_close(state.w, Layout(model).flatten(model), rtol=1e-12, atol=1e-14)


def test_the_classifier_is_the_last_linear_layer() -> None:
    layout = Layout(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 4), nn.GroupNorm(2, 4)))
    assert layout.ranges("classifier") == [(9, 25)] and layout.ranges("extractor") == [(0, 9), (25, 33)]
    assert layout.ranges("all") == [(0, 33)]


def test_a_classifier_may_be_tied_frozen_without_bias_or_the_whole_model() -> None:
    tied = Layout(Tied())
    assert tied.ranges("classifier") == [(0, 9), (21, 24)] == tied.ranges("decoder")
    assert tied.ranges("extractor") == [(9, 21)] == tied.ranges("body")

    frozen = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4))
    frozen[1].requires_grad_(False)
    assert Layout(frozen).ranges("classifier") == [(0, 9)]

    assert Layout(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4, bias=False))).ranges("classifier") == [(9, 21)]
    assert Layout(nn.Linear(2, 3)).ranges("classifier") == [(0, 9)]


def test_a_classifier_with_weight_normalisation_is_all_of_its_parameters() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)))
    assert Layout(module).ranges("classifier") == [(9, 9 + 4 + 4 + 12)]


def test_parts_by_name_are_parameters_or_modules_in_the_vectors_order() -> None:
    layout = Layout(Shapes())
    assert layout.ranges("conv") == layout.ranges(("conv.bias", "conv.weight")) == [(1, 28)]
    assert layout.ranges(("fc.bias", "scale")) == [(0, 1), (40, 44)]
    assert layout.ranges(("fc", "conv", "scale")) == [(0, 44)]
    assert layout.ranges("conv.bias") == [(25, 28)]


@settings(max_examples=50)
@given(data=st.data())
def test_ranges_of_a_part_and_of_the_rest_cover_the_vector_once(data: st.DataObject) -> None:
    layout = Layout(module_of(data.draw(st.lists(st.lists(st.integers(1, 3), max_size=2).map(tuple), min_size=2))))
    chosen = tuple(data.draw(st.lists(st.sampled_from(layout.names), min_size=1, unique=True)))
    rest = tuple(name for name in layout.names if name not in chosen)
    ranges = layout.ranges(chosen)
    assert all(start < stop for start, stop in ranges)
    assert all(one[1] < other[0] for one, other in itertools.pairwise(ranges)), "adjoining ranges are one"
    assert sorted(covered(layout, chosen) + (covered(layout, rest) if rest else [])) == list(range(layout.size))
    marked = torch.zeros(layout.size)
    marked[covered(layout, chosen)] = 1
    assert {name for name, view in layout.views(marked).items() if bool(view.any())} == set(chosen)


def test_classifier_and_extractor_cover_the_vector() -> None:
    for module in (Tied(), Shapes(), nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 1))):
        layout = Layout(module)
        assert sorted(covered(layout, "classifier") + covered(layout, "extractor")) == list(range(layout.size))


@pytest.mark.parametrize(
    ("module", "part", "message"),
    [
        (nn.Conv2d(1, 1, 1), "classifier", r"part = 'classifier': the model has no trainable nn\.Linear"),
        (nn.Conv2d(1, 1, 1), "extractor", r"part = 'extractor': the model has no trainable nn\.Linear"),
        (nn.Linear(2, 2), "extractor", "part = 'extractor': the model has nothing but its classifier"),
        (nn.Linear(2, 2), ("weight", "wieght"), r"nothing that trains is called \['wieght'\]; there are weight, bias"),
        (nn.Linear(2, 2), "wei", r"nothing that trains is called \['wei'\]; there are weight, bias"),
        (nn.Linear(2, 2), "clasifier", r"there are weight, bias; did you mean 'classifier'\?"),
        (nn.Linear(2, 2), (), r"part = \(\): nothing that trains is called \[\]"),
        (Shapes(), "frozen", r"nothing that trains is called \['frozen'\]"),
    ],
)
def test_a_part_that_is_not_there_is_refused(module: nn.Module, part: ModelSlice, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layout(module).ranges(part)


@pytest.mark.parametrize(
    ("dtypes", "message"),
    [
        (
            (torch.float32, torch.float64),
            r"one floating-point type, found torch\.float32, torch\.float64: use",
        ),
        ((torch.complex64,), r"must be floating-point numbers, found torch\.complex64"),
        ((torch.float32, torch.float8_e5m2), r"must have 16 bits or more, found torch\.float8_e5m2 \(1\)"),
    ],
)
def test_types_that_can_not_be_one_vector_are_refused(dtypes: tuple[torch.dtype, ...], message: str) -> None:
    module = nn.ParameterList([nn.Parameter(torch.ones(2).to(dtype)) for dtype in dtypes])
    with pytest.raises(ValueError, match=message):
        Layout(module)


def test_a_frozen_parameter_may_have_another_type() -> None:
    module = nn.ParameterList([nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2).double(), requires_grad=False)])
    assert Layout(module).dtype == torch.float32


def test_bound_parameters_and_the_vector_are_one_memory() -> None:
    module = Shapes()
    layout = Layout(module)
    w = torch.zeros(layout.size)
    layout.bind(module, w)
    with torch.no_grad():
        module.fc.bias.fill_(3)
    w[0] = 7
    assert torch.equal(w[-4:], torch.full((4,), 3.0)) and module.scale.item() == 7


def test_applied_lends_the_values_and_restores_the_modules_own_memory() -> None:
    module = Tied()
    layout = Layout(module)
    own = values(module)
    memory = [p.data_ptr() for p in module.parameters()]
    w = torch.randn(layout.size)
    with layout.applied(module, w) as lent:
        assert lent is module and torch.equal(layout.flatten(module), w)
    assert [p.data_ptr() for p in module.parameters()] == memory
    assert all(torch.equal(a, b) for a, b in zip(values(module), own, strict=True))


@pytest.mark.parametrize("w", [torch.zeros(24), torch.zeros(23)], ids=["in the block", "while binding"])
def test_applied_restores_after_an_exception(w: Tensor) -> None:
    module = Tied()
    layout = Layout(module)
    memory = [p.data_ptr() for p in module.parameters()]
    with pytest.raises(RuntimeError), layout.applied(module, w):
        raise RuntimeError
    assert [p.data_ptr() for p in module.parameters()] == memory


def test_a_compiler_knows_the_shape_of_a_mask() -> None:
    from torch._subclasses import FakeTensorMode

    layout = Layout(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)))
    with FakeTensorMode():
        assert layout.mask("weight", torch.device("cpu")).shape == (layout.size,)
