"""An aggregation says itself what it does not go with, and how many uploads it needs at least."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch

from fedsash.averages import Window
from fedsash.methods import Private, WeightedMean
from fedsash.methods.rules import Surroundings
from fedsash.methods.sampling import Uniform, Weighted
from fedsash.server.broadcast import Broadcast
from fedsash.settings.errors import SettingError
from support.norms import batch_norm_model
from support.private import along, sending
from support.worlds import data, federation


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
