"""An aggregation says itself what it does not go with, and how many uploads it needs at least."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsash.averages import Window
from fedsash.methods import Method, Private, WeightedMean
from fedsash.methods.rules import Surroundings
from fedsash.methods.sampling import Uniform, Weighted
from fedsash.server.broadcast import Broadcast
from fedsash.settings.errors import SettingError
from support.norms import batch_norm_model
from support.private import along, sending
from support.worlds import after, data, federation


@dataclass(frozen=True)
class Crowd(WeightedMean):
    """The mean of at least three uploads, of federations of at least three clients."""

    least: ClassVar[int] = 3

    def refuses(self, federation: Surroundings) -> Iterator[SettingError]:
        if len(federation.sizes) < self.least:
            yield SettingError.at("Federation.data", len(federation.sizes), "must have at least three clients")


def test_a_federation_is_refused_by_its_aggregations_reason() -> None:
    federation(aggregation=Crowd(), data=data((4, 4, 4)), sampling=Uniform(2))
    with pytest.raises(SettingError, match=r"^Federation\.data = 2: must have at least three clients$"):
        federation(aggregation=Crowd(), data=data((4, 4)), sampling=Uniform(2))


@dataclass(frozen=True)
class Guarded(WeightedMean):
    """Accepts what the `guard` says."""

    guard: Callable[[Tensor], Any] = field(kw_only=True)

    def accepts(self, norms: Tensor) -> list[int]:
        positions: list[int] = self.guard(norms)
        return positions


@pytest.mark.parametrize("guard", [lambda norms: norms < 1, lambda norms: (norms < 1).tolist(), lambda norms: [1]])
def test_a_guard_that_answers_with_a_mask_is_refused_since_it_must_list_positions(
    guard: Callable[[Tensor], Any],
) -> None:
    with pytest.raises(SettingError, match=r"^Guarded\.accepts = .*: must be a list of the positions of the clients"):
        federation(aggregation=Guarded(guard=guard))


def test_a_guard_may_list_positions_of_numpy() -> None:
    positions = Guarded(guard=lambda norms: list(np.flatnonzero(norms < 1e6)))
    assert torch.equal(after(federation(aggregation=positions), 1).w, after(federation(), 1).w)


@dataclass(frozen=True)
class Misspelt(Method):
    weighting: str = "unifrom"  # type: ignore[assignment]


def test_a_weighting_of_a_looser_type_is_checked_all_the_same() -> None:
    with pytest.raises(SettingError, match=r"^Misspelt\.weighting = 'unifrom': must be 'samples' or 'uniform'$"):
        federation(method=Misspelt())


@pytest.mark.parametrize(("away", "line"), [(1, ""), (2, "only 2 uploads can be used, of at least 3")])
def test_a_round_with_fewer_uploads_than_the_aggregation_needs_is_skipped(away: int, line: str) -> None:
    world = sending([*["late"] * away, *along(*[1.0] * (4 - away))], aggregation=Crowd())
    state, report = world.round(world.start())
    assert report.skipped == line
    assert torch.equal(state.w, torch.zeros(2, dtype=torch.float64)) == bool(line)


def test_a_private_rule_lists_all_its_reasons() -> None:
    settings: Any = {
        "averages": {"w": Window(2, buffers="re-estimate")},
        "model": batch_norm_model(),
        "buffers": "average",
    }
    world = federation(**settings, data=data((20, 20)), sampling=Weighted(2))
    reasons = [str(reason).split(" =")[0] for reason in Private(1.0, 0.0).refuses(world)]
    assert reasons == ["Federation.buffers", "method.weighting", "sampling", "averages.w.buffers"]
    (reason,) = Private(1.0, 0.0).refuses_broadcast(Broadcast("w", "auto"))
    assert str(reason).startswith("Broadcast.start, average = ('auto', 'w'): decides by clients' scores")
