"""What a client remembers is cut into its parts and joined again without a change."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedsash.client import SGD, Adam, ClientMemory, LocalTraining
from fedsash.methods import FedAvg, Scaffold
from fedsash.vector.sharing import OWN, Personal
from support.worlds import federation

MEMORIES: dict[str, dict[str, Any]] = {
    "nothing": {"method": FedAvg()},
    "method": {"method": Scaffold()},
    "moments": {"method": FedAvg(), "local": LocalTraining(optimiser=Adam(), keep_moments=True)},
    "own": {"method": FedAvg(), "personal": Personal("classifier")},
    "all": {
        "method": Scaffold(),
        "local": LocalTraining(optimiser=SGD(0.9, 0.1), keep_moments=False),
        "personal": Personal("classifier", alone=1),
    },
    "moments of a part": {
        "method": FedAvg(),
        "local": LocalTraining(optimiser=Adam(), keep_moments=True),
        "personal": Personal("classifier", alone=1),
    },
}


@pytest.mark.parametrize("name", MEMORIES)
def test_joining_the_parts_of_a_memory_is_the_memory(name: str) -> None:
    f = federation(**MEMORIES[name])
    memory = ClientMemory(f.method, f.local, f.sharing)
    w = f.layout.flatten(f.module)
    first = memory.first(w)
    rows = {key: torch.randn(3, *value.shape, dtype=value.dtype) for key, value in first.items()}
    before = memory.split(rows)
    models = (w if before.own is None else f.sharing.with_own(w, before.own)).expand(3, -1)
    trained = models[:, : f.sharing.trained]
    moments = memory.moments(trained, before)
    taken = torch.full((3, 2 if f.sharing.personal.alone else 1), 4.0, dtype=w.dtype)
    after = memory.joined(before.method, moments, models, before, taken)
    assert after.keys() == first.keys()
    for key, value in after.items():
        more = 4.0 if key.endswith("_steps") else 0.0
        assert torch.equal(value, rows[key] + more), key


@pytest.mark.parametrize("name", MEMORIES)
def test_a_method_sees_its_own_vectors_alone(name: str) -> None:
    f = federation(**MEMORIES[name])
    memory = ClientMemory(f.method, f.local, f.sharing)
    w = f.layout.flatten(f.module)
    first = memory.first(w)
    before = memory.split({key: value[None] for key, value in first.items()})
    assert before.method.keys() == f.method.client_state(f.sharing.common_of(w)).keys()
    assert (before.own is not None) == (OWN in first)


def test_moments_that_are_kept_are_copies() -> None:
    """The steps move the moments in place, and a client that is refused goes on from the old ones."""
    f = federation(**MEMORIES["moments"])
    memory = ClientMemory(f.method, f.local, f.sharing)
    rows = {key: value[None] for key, value in memory.first(f.layout.flatten(f.module)).items()}
    moments = memory.moments(f.layout.flatten(f.module)[None], memory.split(rows))
    moments["m"].add_(1)
    assert not rows["adam_m"].any()
