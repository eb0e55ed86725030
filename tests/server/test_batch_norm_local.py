"""BatchNorm in a federation: statistics, and affine parameters, that stay with the clients (SiloBN, FedBN)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsash.averages import Window
from fedsash.client import LocalTraining
from fedsash.client.messages import Reply
from fedsash.evaluation import Evaluation
from fedsash.methods import EWC, AdaBest, FedACG, FedDyn, FedProx, FedSAM, Method, Mime, MimeLite, Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.server.federation import Federation
from fedsash.testing import close, identical
from support.by_default import rotated
from support.norms import SIZES, alone, batch_norm_model, centrally_trained, with_norm
from support.worlds import ENGINES, EVERY_ENGINE, after, data, federation

KEPT = {"local": 17, "local_norm": 33}
"""How many entries of the model stay with each client: mean, variance and counter; weight and bias."""

METHODS: list[Method] = [
    *(Scaffold(), Scaffold(option="I"), FedProx(0.1), FedDyn(0.1), AdaBest(), FedACG()),
    *(Mime(), MimeLite(), FedSAM(0.05), EWC()),
]


@pytest.mark.parametrize("buffers, method", rotated(KEPT, METHODS, turns=4), ids=str)
def test_what_stays_with_a_client_is_in_no_upload_and_never_moves_the_server(buffers: Any, method: Method) -> None:
    world, kept = with_norm(buffers=buffers, method=method), KEPT[buffers]
    with world:
        start = world.start().w.clone()
        state = world.start()
        for _ in range(2):
            request = world.ask(state)
            if request.job == "probe":
                request = world.ask(state, probed=world.collect(request))
            for reply in world.executor.work(request):
                assert isinstance(reply, Reply)
                assert "statistics" not in reply.upload
                assert all(vector.shape[-1] == len(start) - kept for vector in reply.upload.values())
            state, _ = world.round(state)
    assert torch.equal(state.w[-kept:], start[-kept:])
    assert not torch.equal(state.w[:-kept], start[:-kept])
    assert state.client_state["own"].shape == (len(SIZES), kept)


@pytest.mark.parametrize("buffers, engine", rotated(KEPT, ENGINES, turns=2))
def test_one_client_is_central_training_in_what_it_shares_and_in_what_it_keeps(buffers: Any, engine: str) -> None:
    model = batch_norm_model()
    world = alone(model, buffers=buffers, engine=ENGINES[engine])
    state = after(world, 3)
    state.w[-KEPT[buffers] :] = state.client_state["own"][0]
    trained = world.module_of(state.w).state_dict()
    for name, value in centrally_trained(model, world, 12).state_dict().items():
        assert close(trained[name].double(), value.double(), 1e-12), name


@pytest.mark.parametrize(
    "buffers, engine",
    [
        *rotated(KEPT, ["vectorised", "workers"]),
        *(pytest.param(buffers, "spawned", marks=pytest.mark.slow) for buffers in KEPT),
    ],
)
def test_every_engine_keeps_the_same(buffers: Any, engine: str) -> None:
    settings: dict[str, Any] = {"buffers": buffers, "method": Scaffold(), "evaluation": Evaluation(clients=True)}
    found = []
    for kind in ("sequential", engine):
        with with_norm(engine=EVERY_ENGINE[kind], **settings) as world:
            state = world.start()
            for _ in range(3):
                state, _ = world.round(state)
            found.append((state.w, state.client_state["own"], state.client_state["c"], world.evaluate(state)[-1].loss))
    for one, other in zip(*found, strict=True):
        assert close(torch.as_tensor(one), torch.as_tensor(other), 1e-12)


def test_statistics_that_stay_train_the_parameters_of_statistics_that_are_averaged() -> None:
    """A local step normalises by its batch, so it does not read what has been tracked."""
    averaged, local = (after(with_norm(buffers=buffers), 4).w for buffers in ("average", "local"))
    trained = with_norm().layout.trained
    assert identical(averaged[:trained], local[:trained]) and not torch.equal(averaged, local)


@pytest.mark.parametrize("buffers", KEPT)
def test_a_client_that_does_not_take_part_keeps_what_it_has(buffers: Any) -> None:
    with with_norm(buffers=buffers, sampling=Uniform(1)) as world:
        state = world.start()
        before = state.client_state["own"].clone()
        state, report = world.round(state)
        changed = (state.client_state["own"] != before).any(1).numpy()
    assert np.flatnonzero(changed).tolist() == report.clients.tolist()


def accuracy(world: Federation, w: Tensor, client: int) -> float:
    samples = torch.from_numpy(world.training_data.clients[client])
    x, y = world.training_data.train.x, world.training_data.train.y
    assert isinstance(x, Tensor)
    with torch.no_grad():
        return float((world.module_of(w).eval()(x[samples]).argmax(1) == y[samples]).double().mean())


@pytest.mark.parametrize("buffers", KEPT)
def test_clients_score_a_model_and_an_average_with_what_they_keep(buffers: Any) -> None:
    settings: dict[str, Any] = {"averages": {"w2": Window(2)}, "evaluation": Evaluation(clients=True)}
    with with_norm(buffers=buffers, **settings) as world:
        state = world.start()
        for _ in range(3):
            state, _ = world.round(state)
        found = {m.model: m["accuracy"] for m in world.evaluate(state) if m.split == "clients"}
        own = state.client_state["own"]
        for name, w in world.models(state).items():
            models = [torch.cat([w[: -own.shape[1]], row]) for row in own]
            right = [accuracy(world, model, client) for client, model in enumerate(models)]
            assert found[name] == pytest.approx(np.mean(right))


@pytest.mark.parametrize("buffers", KEPT)
def test_a_model_without_statistics_is_trained_as_ever(buffers: Any) -> None:
    assert identical(after(federation(buffers=buffers), 2), after(federation(), 2))


def test_affine_parameters_stay_and_the_rest_is_fedavg_when_all_clients_are_equal() -> None:
    same = data((10,))
    copies = type(same).from_arrays(same.train.x.numpy(), same.train.y.numpy(), [range(10)] * 3, classes=3)
    settings: dict[str, Any] = {"data": copies, "sampling": Uniform(3), "buffers": "local_norm"}
    local = LocalTraining(lr=0.1, batch="full", steps=3)
    state, shared = (after(with_norm(local=local, **settings | {"buffers": b}), 3) for b in ("local_norm", "average"))
    own = state.client_state["own"]
    assert close(torch.cat([state.w[:-33], own[0]]), shared.w, 1e-12)
    assert close(own[0], own[2], 1e-15)
