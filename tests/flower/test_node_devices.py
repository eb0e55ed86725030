"""The device on which a node's clients train. What travels is on the CPU."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("flwr")

from fedsash.client.messages import Request
from fedsash.client.store import StateRows, StateVersions
from fedsash.flower import client_app
from fedsash.flower.nodes import wire
from fedsash.methods import Scaffold
from fedsash.settings.errors import RunError, SettingError
from fedsash.testing import close
from fedsash.testing.grid import identify
from support.by_default import rotated, some
from support.flower import grid, here, there
from support.worlds import data

NOT_HERE = "cuda:99"
LINE = f"device = '{NOT_HERE}': not available here"


def test_an_app_for_a_device_that_is_not_there_is_refused_at_once() -> None:
    with pytest.raises(SettingError, match=LINE):
        client_app(data(), device=NOT_HERE)


def test_a_node_whose_configuration_names_such_a_device_says_so_in_the_roll_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = grid(tmp_path)
    nodes.configs = {node: {**config, "device": NOT_HERE} for node, config in nodes.configs.items()}
    with caplog.at_level(logging.WARNING, "fedsash"), pytest.raises(RunError, match=f"the last reason: node .*{LINE}"):
        there(nodes, here())
    assert LINE in caplog.text


@pytest.mark.parametrize("keeps", [True, False])
def test_the_vectors_of_a_request_go_to_the_device_and_those_of_a_reply_come_to_the_cpu(keeps: bool) -> None:
    identify()
    request = Request(
        job="train",
        round=0,
        ids=np.array([0]),
        sent=torch.rand(5),
        server_state={"c": torch.rand(5)},
        clients=StateVersions(last=np.array([0])) if keeps else StateRows({"c": torch.rand(1, 5)}),
    )
    content = wire.request_content(request, wire.packed({"w": request.sent}), wire.packed(request.server_state), "")
    found, _ = wire.read_request(content, torch.device("meta"))
    vectors = [found.sent, *found.server_state.values(), *found.clients.own.values()]
    assert len(vectors) == (2 if keeps else 3) and all(vector.is_meta for vector in vectors)
    assert not any(vector.is_meta for vector in wire.unpacked(content[wire.MODEL]).values())


@pytest.mark.parametrize(
    "device, state", [*rotated(["cpu", "auto"], ["at nodes", "travels"]), ("cuda", "at nodes"), ("cuda", "travels")]
)
def test_a_node_trains_on_its_device_as_the_simulation_does(device: str, state: str, tmp_path: Path) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    simulated, nodes = here(method=Scaffold()), grid(tmp_path)
    nodes.configs = {node: {**config, "device": device} for node, config in nodes.configs.items()}
    with there(nodes, simulated, state == "at nodes") as world, simulated:
        state, expected = world.start(), simulated.start()
        for _ in range(3):
            state, report = world.round(state)
            expected, _ = simulated.round(expected)
            assert not report.missing and state.w.device.type == "cpu"
    assert close(state.w, expected.w, 1e-12)


class Front(nn.Module):
    """A frozen part of one type below a head of another."""

    def __init__(self, kind: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.front, self.head = nn.Linear(4, 8).to(kind).requires_grad_(False), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.head(torch.tanh(self.front(x.to(self.front.weight.dtype)).to(torch.float32))))


@pytest.mark.parametrize("kind", some([torch.float16, torch.float32, torch.float64], torch.float16))
def test_a_frozen_part_of_another_type_trains_as_in_the_simulation(kind: torch.dtype, tmp_path: Path) -> None:
    model = Front(kind)
    world = here(model=model)
    expected, _ = world.round(world.start())
    with there(grid(tmp_path, model=model), world) as served:
        state, report = served.round(served.start())
    assert not report.missing and torch.equal(state.w, expected.w)
