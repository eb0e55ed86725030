"""A model's vector in three slices: common parameters, what stays with clients, and statistics."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fedsash.averages import Window
from fedsash.evaluation import Curvature, Evaluation
from fedsash.lab.studies.landscape import filter_normalised
from fedsash.lab.studies.outputs import features, outputs
from fedsash.vector.layout import Layout
from fedsash.vector.sharing import Buffers, Personal, Sharing
from support.norms import batch_norm_model, with_norm
from support.personal import personal, three_layers

FIRST = ["0.weight", "0.bias"]
NORM = ["1.weight", "1.bias"]
LAST = ["3.weight", "3.bias"]
STATISTICS = [f"1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")]


def in_modules_order(w: Tensor, layout: Layout, defined: Layout) -> Tensor:
    """Models `[..., D]` of a layout, name by name in the order of another one."""
    tensors = layout.views(w)
    return torch.cat([tensors[name].reshape(*w.shape[:-1], -1) for name in defined.names], dim=-1)


@pytest.mark.parametrize(
    "buffers, part, slices",
    [
        ("average", (), (FIRST + LAST + NORM, [], STATISTICS)),
        ("local", (), (FIRST + LAST + NORM, STATISTICS, [])),
        ("local_norm", (), (FIRST + LAST, NORM + STATISTICS, [])),
        ("average", ("0",), (LAST + NORM, FIRST, STATISTICS)),
        ("local", ("classifier",), (FIRST + NORM, LAST + STATISTICS, [])),
        ("local_norm", ("0",), (LAST, NORM + FIRST + STATISTICS, [])),
        ("average", ("0", "1"), (LAST, FIRST + NORM + STATISTICS, [])),
        ("refuse", ("1",), (FIRST + LAST, NORM + STATISTICS, [])),
        ("average", ("3.bias",), (["0.weight", "0.bias", "3.weight", *NORM], ["3.bias"], STATISTICS)),
    ],
)
def test_common_parameters_come_first_and_then_what_stays_and_then_statistics(
    buffers: Buffers, part: Any, slices: tuple[list[str], ...]
) -> None:
    part = part[0] if part == ("classifier",) else part
    module = batch_norm_model()
    sharing = Sharing.of(module, buffers, Personal(part))
    layout = sharing.layout
    there = (slice(0, sharing.common_size), sharing.own, sharing.statistics)
    assert tuple(list(layout.between(each.start, each.stop).names) for each in there) == slices
    assert sorted(layout.names) == sorted(Layout(module).names) and layout.size == Layout(module).size
    assert sharing.own_names == {*slices[1]} and sharing.means == bool(slices[2])
    assert list(sharing.common.names) == slices[0]


def test_where_nothing_stays_the_order_is_the_modules_own() -> None:
    for module in (batch_norm_model(), three_layers()):
        sharing = Sharing.of(module, "average")
        assert sharing.layout.names == Layout(module).names and sharing.layout.order == Layout(module).order


def test_the_order_of_a_sharing_that_trains_together_is_the_same() -> None:
    sharing = Sharing.of(three_layers(), personal=Personal(("0",), alone=2))
    assert sharing.together.layout is sharing.layout and sharing.together.personal.alone == 0
    assert (sharing.together.common_size, sharing.together.own) == (sharing.common_size, sharing.own)


def test_slices_are_put_together_as_they_were_taken_apart() -> None:
    sharing = Sharing.of(batch_norm_model(), "average", Personal(("0",)))
    w, others = torch.rand(2, sharing.layout.size, dtype=torch.float64)
    rows = torch.rand(3, sharing.layout.size, dtype=torch.float64)
    assert torch.equal(sharing.with_common(sharing.common_of(w), w), w)
    assert torch.equal(sharing.with_own(w, w[sharing.own]), w)
    mixed = sharing.with_own(w, rows[:, sharing.own])
    assert torch.equal(mixed[:, sharing.own], rows[:, sharing.own])
    assert torch.equal(sharing.common_of(mixed), sharing.common_of(w).expand(3, -1))
    assert torch.equal(mixed[:, sharing.statistics], w[sharing.statistics].expand(3, -1))
    upload = sharing.statistics_upload(rows, others)
    change = sharing.model_change(sharing.common_of(rows) - sharing.common_of(others), upload)
    change[:, sharing.own] = (rows - others)[:, sharing.own]
    assert torch.equal(change, rows - others)


@pytest.mark.parametrize("part", [("0",), ("2",), "extractor", "classifier"], ids=str)
def test_a_models_tensors_lie_where_the_federation_says(part: Any) -> None:
    """Whoever takes a federation's vector takes its layout: evaluation, export, curvature, outputs and directions."""
    with personal(part, averages={}, evaluation=Evaluation(clients=False)) as world:
        defined = Layout(world.module)
        w = torch.rand(world.layout.size, dtype=torch.float64)
        plain = in_modules_order(w, world.layout, defined)
        assert torch.equal(defined.flatten(world.module_of(w)), plain)
        assert world.export(w) == defined.export(world.module, plain)
        samples = world.training_data.train
        assert torch.equal(world.module_of(w)(samples.x), defined.copied(world.module, plain)(samples.x))

        here = Curvature(world.module, world.training_data, samples, layout=world.layout)
        there = Curvature(world.module, world.training_data, samples)
        assert here.loss(w) == there.loss(plain)
        assert torch.equal(in_modules_order(here.gradient(w), world.layout, defined), there.gradient(plain))
        for of in (outputs, features):
            found = of(world.module, w[None], samples, layout=world.layout)
            assert torch.equal(found, of(world.module, plain[None], samples))

        direction = filter_normalised(w, world.layout, 3, 1, drawn=defined)
        right = filter_normalised(plain, defined, 3, 1)
        assert torch.equal(in_modules_order(direction, world.layout, defined), right)


def test_new_statistics_come_to_their_places_whatever_stays_with_clients() -> None:
    for part in ("classifier", ("0",)):
        averages = {"w": Window(2, buffers="re-estimate")}
        with with_norm(personal=part, averages=averages, evaluation=Evaluation(clients=False)) as world:
            state, _ = world.round(world.start())
            mean = world.models(state)["w"]
            model = world.module_of(mean)
            assert torch.equal(world.layout.flatten(model), mean)
            assert torch.equal(mean[: world.layout.trained], state.w[: world.layout.trained])
            assert not torch.equal(mean[world.sharing.statistics], state.w[world.sharing.statistics])
