"""Losses and layers that look across a batch: stacked clients pad their batches, so they train one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsash import LocalEngine, LocalTraining
from fedsash.methods import Method, MimeLite
from fedsash.settings.errors import SettingError
from fedsash.testing.worlds import SEQUENTIAL, VECTORISED, small_data
from fedsash.vector.arrays import Vectors
from fedsash.vector.layout import Layout
from support.by_default import some
from support.worlds import after, federation


def contrastive(output: Tensor, y: Tensor) -> Tensor:
    """A sample's distance to those of its batch that have its label."""
    places = F.normalize(output, dim=1)
    same = (y[:, None] == y).to(output.dtype)
    return -(F.log_softmax(2 * places @ places.T, 1) * same).sum(1) / same.sum(1)


class Centred(nn.Linear):
    """Takes the mean of the batch from its outputs."""

    def forward(self, x: Tensor) -> Tensor:
        outputs = super().forward(x)
        return outputs - outputs.mean(0)


class Scaled(nn.Module):
    """A table whose rows move the less the more often they occur in a batch: its loss does not tell."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 3, scale_grad_by_freq=True)

    def forward(self, x: Tensor) -> Tensor:
        rows: Tensor = self.table(x.abs().long().clamp(max=7)).mean(1)
        return rows


class DynamicRange(nn.Linear):
    """Divides its outputs by the largest one of the batch, as a dynamic quantisation does."""

    def forward(self, x: Tensor) -> Tensor:
        outputs = super().forward(x)
        return outputs / outputs.abs().amax().detach()


def to_centre(output: Tensor, y: Tensor) -> Tensor:
    """The distance of a sample to the centre of its class in the batch."""
    same = (y[:, None] == y).to(output.dtype)
    centres = same @ output / same.sum(1, keepdim=True)
    return F.cross_entropy(output, y, reduction="none") + (output - centres).square().sum(1)


class Short(Method):
    """Adds the mean square of the features, over all samples of a batch and whatever their weights."""

    def objective(self, features: Tensor, y: Tensor, weights: Tensor, server_state: Vectors) -> Tensor:
        return server_state["strength"] * features.square().sum(-1).mean()

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        return {"strength": w.new_ones(())}


ACROSS: dict[str, dict[str, Any]] = {
    "a loss": {"loss": contrastive},
    "a layer": {"model": Centred(4, 3).double()},
    "a gradient": {"model": Scaled().double()},
    "a maximum": {"model": DynamicRange(4, 3).double()},
    "a mean of each class": {"loss": to_centre},
    "a method's objective": {"method": Short()},
}


@pytest.mark.parametrize("name", some(ACROSS, "a layer"))
def test_what_looks_across_a_batch_trains_one_client_at_a_time_with_a_line(name: str, cache: Path) -> None:
    world = federation(engine=LocalEngine(workers=1, threads=1), **ACROSS[name])
    notes = world.prepare()
    assert world.described()["kind"] == "sequential"
    assert any("can't be vectorised over clients (a sample's loss depends on the others" in note for note in notes)
    assert torch.equal(after(world, 2).w, after(federation(engine=SEQUENTIAL, **ACROSS[name]), 2).w)


@pytest.mark.parametrize("name", ACROSS)
def test_an_engine_that_must_stack_it_is_refused(name: str) -> None:
    line = r"^LocalEngine\.kind = 'vectorised': this model can't be vectorised over clients \(a sample's loss depends"
    with pytest.raises(SettingError, match=line):
        after(federation(engine=VECTORISED, **ACROSS[name]), 1)


@pytest.mark.parametrize("name", ["a loss", "a layer"])
def test_where_no_batch_is_padded_it_is_stacked(name: str) -> None:
    alike: dict[str, Any] = {"data": small_data((6,) * 6), "local": LocalTraining(lr=0.1, batch=3, epochs=2)}
    worlds = [federation(engine=engine, **alike | ACROSS[name]) for engine in (VECTORISED, SEQUENTIAL)]
    torch.testing.assert_close(*(after(world, 2).w for world in worlds), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", some(ACROSS, "a layer"))
def test_a_smaller_last_batch_would_be_padded_also_of_clients_of_equal_size(name: str) -> None:
    alike: dict[str, Any] = {"data": small_data((7,) * 6), "local": LocalTraining(lr=0.1, batch=3, epochs=2)}
    with pytest.raises(SettingError, match="a sample's loss depends on the others"):
        after(federation(engine=VECTORISED, **alike | ACROSS[name]), 1)


def test_a_smaller_last_batch_that_is_dropped_pads_nothing_but_full_gradients_have_it() -> None:
    local = LocalTraining(lr=0.1, batch=3, epochs=2, drop_last=True)
    alike: dict[str, Any] = {"data": small_data((7,) * 6), "local": local, **ACROSS["a layer"]}
    worlds = [federation(engine=engine, **alike) for engine in (VECTORISED, SEQUENTIAL)]
    torch.testing.assert_close(*(after(world, 2).w for world in worlds), rtol=0, atol=1e-12)
    with pytest.raises(SettingError, match="a sample's loss depends on the others"):
        after(federation(engine=VECTORISED, method=MimeLite(), **alike), 1)
