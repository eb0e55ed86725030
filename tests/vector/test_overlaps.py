"""A model whose tensors share memory can't train in copies; its tracker follows it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsash.averages import Tracker, Window
from fedsash.data.federated import FederatedData
from fedsash.errors import ModelError
from fedsash.server.federation import Federation


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.b(self.a(x).tanh())
        return output


def one_memory() -> Two:
    model = Two()
    model.b.weight.data = model.a.weight.data
    return model


def transposed() -> Two:
    model = Two()
    model.b.weight.data = model.a.weight.data.T
    return model


def one_array() -> Two:
    model = Two()
    values = np.eye(3, dtype=np.float32)
    model.a.weight.data, model.b.weight.data = torch.from_numpy(values), torch.from_numpy(values)
    return model


def frozen() -> Two:
    model = Two()
    model.b.weight = nn.Parameter(model.a.weight.data, requires_grad=False)
    return model


def a_row_in_a_buffer() -> Two:
    model = Two()
    model.b.register_buffer("row", model.a.weight.detach()[1])
    return model


def federation_of(model: nn.Module) -> Federation:
    data = FederatedData.from_arrays(np.zeros((6, 3), dtype=np.float32), [0, 1, 2] * 2, clients=[range(3), range(3, 6)])
    return Federation(model, data)


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (one_memory, "a.weight and b.weight"),
        (transposed, "a.weight and b.weight"),
        (one_array, "a.weight and b.weight"),
        (frozen, "a.weight and b.weight"),
        (a_row_in_a_buffer, "a.weight and b.row"),
    ],
)
def test_tensors_that_share_an_entry_are_refused_by_name(build: Callable[[], nn.Module], names: str) -> None:
    with pytest.raises(ModelError, match=f"^{names} share memory, and copies of the model, which train, have one for"):
        federation_of(build())


def tied() -> Two:
    model = Two()
    model.b.weight = model.a.weight
    model.alias = model.a.weight
    return model


def rows_of_one_memory() -> Two:
    model = Two()
    nn.utils.vector_to_parameters(torch.arange(18.0) / 18, model.parameters())
    return model


def columns_of_one_memory() -> Two:
    model = Two()
    values = torch.randn(3, 6)
    model.a.weight.data, model.b.weight.data = values[:, :3], values[:, 3:]
    return model


@pytest.mark.parametrize("build", [Two, tied, rows_of_one_memory, columns_of_one_memory])
def test_tied_parameters_and_views_without_a_common_entry_are_taken(build: Callable[[], nn.Module]) -> None:
    federation_of(build())


@pytest.mark.parametrize("build", [one_memory, rows_of_one_memory, columns_of_one_memory])
def test_a_tracker_follows_parameters_that_share_memory(build: Callable[[], Two]) -> None:
    model = build()
    tracker = Tracker(Window(2), model)
    seen = []
    for _ in range(2):
        with torch.no_grad():
            model.a.weight.add_(1.0)
        tracker.update()
        seen.append([p.detach().double().clone() for p in model.parameters()])
    average = tracker.averaged_state_dict()
    for value, first, second in zip(average.values(), *seen, strict=True):
        torch.testing.assert_close(value.double(), (first + second) / 2, rtol=0, atol=1e-6)
