"""Personal parts on a simulated network."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedsash.methods.sampling import Uniform
from fedsash.network import Asynchronous, FedBuff, Link, Network, OnNetwork, SimulatedClients
from fedsash.vector.sharing import Personal
from support.personal import personal
from support.worlds import after

NETWORK = Network(Link(1e4, 0.01), clients=SimulatedClients(seconds=1.0, spread=1.0))


def test_an_asynchronous_scheduler_is_refused_in_a_line() -> None:
    with pytest.raises(ValueError, match=r"personal = 'classifier': needs synchronous rounds, in which clients keep"):
        Asynchronous(personal(averages={}, sampling=Uniform(2)), NETWORK, FedBuff(2))


def test_rounds_on_a_network_train_the_same() -> None:
    world = personal(Personal("classifier", 1), sampling=Uniform(2))
    found, expected = after(replace(world, data=OnNetwork(world.clients, NETWORK)), 3), after(world, 3)
    assert torch.equal(found.w, expected.w)
    assert torch.equal(found.client_state["own"], expected.client_state["own"])
