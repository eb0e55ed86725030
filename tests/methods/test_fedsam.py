"""FedSAM, FedASAM, MoFedSAM and FedLESAM against the identities of their papers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsash.client import SGD, LocalTraining
from fedsash.data.federated import FederatedData
from fedsash.methods import FedASAM, FedAvg, FedCM, FedLESAM, FedSAM, LocalRun, Method, MoFedSAM, Step
from fedsash.methods.sampling import FixedClients, Uniform
from fedsash.server.federation import Federation
from fedsash.vector.arrays import Vectors
from fedsash.vector.layout import Layout
from support.by_default import full
from support.worlds import Point, after, data, federation, mlp

ROUGH = LocalTraining(lr=0.1, batch=5, epochs=2, optimiser=SGD(momentum=0.5, weight_decay=0.01))
UNIFORM = FedAvg(weighting="uniform")
close = partial(torch.testing.assert_close, rtol=0, atol=1e-14)


def climbed(method: Method, module: nn.Module) -> tuple[Tensor, Tensor]:
    """How far from where the client is the method takes the gradient of a step, and the gradient there, `[D]` each."""
    layout, samples = Layout(module), data().train
    w, asked, answers = layout.flatten(module).unsqueeze(0), [], []

    def grad(w: Tensor) -> Tensor:
        asked.append(w[0])
        with layout.applied(module, w[0]):
            loss = nn.functional.cross_entropy(module(samples.x), samples.y)
            parts = torch.autograd.grad(loss, layout.tensors(module))
        answers.append(torch.cat([g.reshape(-1) for g in parts]).unsqueeze(0))
        return answers[-1]

    weights = torch.full((1, len(samples)), 1 / len(samples))
    no_features = partial(torch.empty, 0)
    method.direction(
        Step(
            w=w,
            sent=w[0],
            lr=0.1,
            server_state={},
            client_state={},
            round_state={},
            y=samples.y[None],
            weights=weights,
            layout=layout,
            grad=grad,
            grad_at_sent=lambda: grad(w),
            features=no_features,
        )
    )
    return asked[-1] - w[0], answers[0][0]


def plane(loss: Any, method: Method) -> Federation:
    """Clients with points in the plane, a model that is a point, and that loss of the distances."""
    rng = np.random.default_rng(0)
    world = FederatedData.from_arrays(rng.normal(size=(6, 2)), np.arange(6), [[0, 1, 2], [3, 4], [5]], classes=6)
    settings: dict[str, Any] = {"data": world, "loss": loss, "method": method, "sampling": Uniform(2)}
    return federation(model=Point([0.5, -1.0]), local=LocalTraining(lr=0.1, batch=2, epochs=2), **settings)


def skewed(distance: Tensor, y: Tensor) -> Tensor:
    return (distance**4).sum(-1) + (1 + y) * distance[:, 0] ** 2


def linear(distance: Tensor, y: Tensor) -> Tensor:
    return (1 + y) * distance[:, 0] - 3 * distance[:, 1]


@pytest.mark.parametrize(
    "method, limit",
    [
        (FedSAM(0.0), FedAvg()),
        (FedASAM(0.0), FedAvg()),
        full(MoFedSAM(0.3, 0.0), FedCM(0.3)),
        (MoFedSAM(1.0, 0.2), FedSAM(0.2, weighting="uniform")),
        full(MoFedSAM(1.0, 0.0), UNIFORM),
        (FedLESAM(0.0), UNIFORM),
    ],
    ids=repr,
)
def test_limits_hold_bitwise(method: Method, limit: Method) -> None:
    assert torch.equal(
        after(federation(method=method, local=ROUGH), 4).w, after(federation(method=limit, local=ROUGH), 4).w
    )


@pytest.mark.parametrize("method", [FedSAM(0.7), FedASAM(0.7, 0.2)], ids=repr)
def test_on_a_linear_loss_it_is_fedavg_bitwise_for_any_rho(method: Method) -> None:
    assert torch.equal(after(plane(linear, method), 4).w, after(plane(linear, FedAvg()), 4).w)


def test_fedasam_is_fedsam_bitwise_where_nothing_is_called_a_weight() -> None:
    sam = after(plane(skewed, FedSAM(0.1)), 4).w
    assert torch.equal(after(plane(skewed, FedASAM(0.1, 0.7)), 4).w, sam)
    assert not torch.allclose(after(plane(skewed, FedAvg()), 4).w, sam)


def test_sam_climbs_by_rho_along_the_gradient() -> None:
    e, g = climbed(FedSAM(0.3), mlp())
    assert float(e.norm()) == pytest.approx(0.3, abs=1e-14)
    assert float(g @ e) == pytest.approx(0.3 * float(g.norm()), abs=1e-14)


def test_asam_climbs_furthest_of_all_perturbations_of_norm_rho_in_units_of_the_weights() -> None:
    """<g, e> = <T g, e / T> is at most rho * ||T g||."""
    model, eta = mlp(), 0.2
    T = torch.cat([p.abs().reshape(-1) + eta if p.ndim > 1 else torch.ones_like(p) for p in model.parameters()])
    T = T.detach()
    e, g = climbed(FedASAM(0.3, eta), model)
    assert float((e / T).norm()) == pytest.approx(0.3, abs=1e-14)
    assert float(g @ e) == pytest.approx(0.3 * float((T * g).norm()), abs=1e-14)


def test_rescaling_two_weights_that_follow_each_other_rescales_asams_perturbation() -> None:
    """ReLU lets factors c and 1/c through, so the function is the same; FedSAM's perturbation is not rescaled."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False)).double()
    c = torch.tensor([10.0] * 32 + [0.1] * 24, dtype=torch.float64)
    asam, sam = climbed(FedASAM(0.3, 0.0), model)[0], climbed(FedSAM(0.3), model)[0]
    Layout(model).load(model, c * Layout(model).flatten(model))
    close(climbed(FedASAM(0.3, 0.0), model)[0], c * asam, atol=1e-13)
    assert not torch.allclose(climbed(FedSAM(0.3), model)[0], c * sam)


def perturbations(rounds: int, **settings: Any) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """FedLESAM's last model, the perturbation of each client in each round, and what was sent to it."""
    e: list[Tensor] = []
    sent: list[Tensor] = []

    class Watched(FedLESAM):
        def round_state(self, local: LocalRun) -> Vectors:
            work = super().round_state(local)
            e.append(work["e"][0])
            sent.append(local.sent.clone())
            return work

    f = federation(method=Watched(0.5), **settings)
    f.prepare()
    e.clear()
    sent.clear()
    return after(f, rounds).w, e, sent


def test_first_rounds_of_all_clients_of_fedlesam_are_uniform_fedavg_bitwise() -> None:
    trace = FixedClients(((0, 3), (5,), (1, 2, 4)))
    fedlesam = after(federation(method=FedLESAM(0.5), sampling=trace), 3).w
    assert torch.equal(fedlesam, after(federation(method=UNIFORM, sampling=trace), 3).w)


def test_fedlesam_climbs_by_rho_towards_the_model_received_last() -> None:
    _, e, sent = perturbations(4, sampling=FixedClients(((0,), (1,), (1,), (0,))))
    assert not e[0].any() and not e[1].any()
    for now, last in [(2, 1), (3, 0)]:
        assert float(e[now].norm()) == pytest.approx(0.5, abs=1e-14)
        way = sent[last] - sent[now]
        close(e[now], 0.5 * way / way.norm())


def test_fedlesam_does_not_climb_where_the_model_has_not_moved() -> None:
    w, e, _ = perturbations(3, local=LocalTraining(lr=0.0), sampling=Uniform(6))
    assert torch.equal(w, federation().start().w)
    assert len(e) == 18 and not torch.stack(e).any()
