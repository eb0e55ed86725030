"""FedFA against the identities of its paper."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsash.client import SGD, LocalTraining
from fedsash.data.federated import FederatedData
from fedsash.methods import FedAvg, FedFA, Method
from fedsash.methods.sampling import FixedClients, Uniform
from fedsash.server.federation import Federation
from fedsash.vector.layout import Layout
from support.worlds import SIZES, after, data, federation, mlp

ROUGH = LocalTraining(lr=0.1, batch=5, epochs=2, optimiser=SGD(momentum=0.5, weight_decay=0.01))
close = partial(torch.testing.assert_close, rtol=0, atol=1e-14)


def random_anchors(d: int = 8) -> Tensor:
    return torch.randn(3, d, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "method", [FedFA(0.0, calibration=0.0), FedFA(anchors_from=3, calibrate_from=3)], ids=["off", "not yet"]
)
def test_without_anchor_loss_and_calibration_it_is_fedavg_bitwise(method: Method) -> None:
    fedavg = after(federation(method=FedAvg(), local=ROUGH), 3).w
    assert torch.equal(after(federation(method=method, local=ROUGH), 3).w, fedavg)


@pytest.mark.parametrize("client", [5, 3], ids=["one sample", "many samples"])
def test_a_step_descends_on_cross_entropy_and_the_distances_from_the_anchors(client: int) -> None:
    """lam/C * ||h - A||^2 for one sample; for more, the sum over classes of the mean over the class's samples."""
    lam, A = 0.4, random_anchors()
    world = {"local": LocalTraining(lr=0.1, batch="full"), "sampling": FixedClients(((client,),))}
    f = federation(method=FedFA(lam, calibration=0.0), **world)
    state = f.start()
    state.server_state["anchors"] = A.clone()
    module, own = f.model, torch.from_numpy(f.data.clients[client])
    f.layout.load(module, state.w)
    h, y = module[:-1](f.data.train.x[own]), f.data.train.y[own]
    loss = F.cross_entropy(module[-1](h), y)
    for c in y.unique():
        loss = loss + lam / 3 * (h[y == c] - A[c]).square().sum(1).mean()
    g = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, f.layout.tensors(module))])
    close(after(f, 1, state).w, f.start().w - 0.1 * g)


def identity_world(batch: Any) -> Federation:
    """Clients with one sample of each class; the features are the inputs, and these are the anchors."""
    world = FederatedData.from_arrays(
        np.eye(3)[[0, 1, 2] * 2], np.array([0, 1, 2] * 2), [[0, 1, 2], [3, 4, 5]], classes=3
    )
    return federation(
        model=nn.Sequential(nn.Linear(3, 3)).double(),
        data=world,
        method=FedFA(momentum=0.6),
        local=LocalTraining(lr=0.1, batch=batch, epochs=2),
        sampling=Uniform(2),
    )


def test_anchors_that_are_the_features_stay() -> None:
    state = after(identity_world("full"), 3)
    close(state.server_state["anchors"], torch.eye(3, dtype=torch.float64))


def test_a_class_that_batches_miss_is_drawn_to_zero_as_published() -> None:
    """With one sample a batch each class is in one batch of three, so an epoch's mean feature is a third of it."""
    state = after(identity_world(1), 1)
    two_epochs = 0.6 * (0.6 + 0.4 / 3) + 0.4 / 3
    close(state.server_state["anchors"], two_epochs * torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize("bias", [True, False])
def test_calibration_is_pytorchs_adam_on_the_classifier_at_the_anchors_fresh_in_every_round(bias: bool) -> None:
    """With rate 0 and fixed anchors nothing else moves; the extractor stays bitwise."""
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3, bias=bias)).double()
    still = LocalTraining(lr=0.0, batch=5, epochs=3)
    f = federation(model=model, method=FedFA(0.0, 1.0, 0.01), local=still, sampling=FixedClients(((3,),)))
    state = f.start()
    state.server_state["anchors"] = random_anchors(5)
    for _ in range(2):
        adam = torch.optim.Adam(model[2].parameters(), lr=0.01)
        for _ in range(3 * SIZES[3] // 5):
            adam.zero_grad()
            F.cross_entropy(model[2](random_anchors(5)), torch.arange(3)).backward()
            adam.step()
        state, _ = f.round(state)
        close(state.w, f.layout.flatten(model), atol=1e-13)
    assert torch.equal(state.w[:25], f.start().w[:25])


def test_anchors_of_classes_that_a_client_does_not_have_come_back_bitwise() -> None:
    A = random_anchors()
    f = federation(method=FedFA(momentum=0.5), sampling=FixedClients(((5,),)))
    state = f.start()
    state.server_state["anchors"] = A.clone()
    (owned,) = data().train.y[f.data.clients[5]].tolist()
    changed = (after(f, 1, state).server_state["anchors"] != A).any(1)
    assert [c for c in range(3) if changed[c]] == [owned]


@pytest.mark.parametrize("steps", [1, 3])
def test_steps_that_are_fewer_than_a_pass_count_as_one(steps: int) -> None:
    """A client of 7 samples has four batches of 2 in a pass. Its anchors move at the last step that it takes."""
    settings: dict[str, Any] = {"method": FedFA(momentum=0.5), "data": data((7,)), "sampling": FixedClients(((0,),))}
    local = LocalTraining(lr=0.0, batch=2, steps=steps)
    f = federation(**settings, local=local)
    moved = after(f, 1).server_state["anchors"] - f.start().server_state["anchors"]
    assert bool((moved != 0).any())


def test_momentum_one_keeps_all_anchors() -> None:
    close(
        after(federation(method=FedFA(momentum=1.0)), 3).server_state["anchors"], torch.eye(3, 8, dtype=torch.float64)
    )


def test_anchors_start_as_rows_of_the_identity_or_as_directions_where_there_is_no_room() -> None:
    for module, classes, d in [(mlp(), 3, 8), (nn.Sequential(nn.Linear(4, 9)).double(), 9, 4)]:
        layout = Layout(module)
        anchors = FedFA().server_state(layout.flatten(module), layout)["anchors"]
        assert anchors.shape == (classes, d) and len(anchors.unique(dim=0)) == classes
        close(anchors.norm(dim=1), torch.ones(classes, dtype=torch.float64))
        assert classes > d or torch.equal(anchors, torch.eye(classes, d, dtype=torch.float64))


def test_a_model_may_be_nothing_but_its_classifier() -> None:
    alone, wrapped = nn.Linear(4, 3).double(), nn.Sequential(nn.Linear(4, 3)).double()
    wrapped[0].load_state_dict(alone.state_dict())
    one, other = (after(federation(model=model, method=FedFA()), 2).w for model in (alone, wrapped))
    assert torch.equal(one, other)


def test_a_classifier_without_a_weight_of_its_own_is_refused_with_one_line() -> None:
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))).double()
    with pytest.raises(ValueError, match="the classifier '0' has no trainable weight of its own"):
        after(federation(model=model, method=FedFA()), 1)


def test_a_classifier_that_shares_its_weight_with_an_earlier_layer_is_calibrated_in_both() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)).double()
    model[2].weight = model[0].weight
    state = after(federation(model=model, method=FedFA()), 2)
    assert torch.isfinite(state.w).all() and len(state.w) == 16 + 4 + 4
