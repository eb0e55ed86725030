"""Clients on the nodes of a grid: whatever is trained, the numbers are those of the simulation."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("flwr")

from fedsash.averages import EMA, Window
from fedsash.client import Adam, LocalTraining
from fedsash.data.federated import FederatedData
from fedsash.evaluation import Evaluation, FineTuning
from fedsash.flower import FlowerClients, client_app
from fedsash.methods import Adaptive, FedAvg, Mime, Private, Scaffold
from fedsash.methods.sampling import Poisson, Uniform
from fedsash.server.broadcast import Broadcast
from fedsash.server.federation import Federation
from fedsash.settings.errors import ModelError, SettingError
from fedsash.testing import check_clients
from support.by_default import by_default, full, rotated, some
from support.choices import AGGREGATIONS, METHODS, SAMPLINGS, SERVERS, chequered
from support.flower import WAITING, assert_same, both, grid, here, there
from support.worlds import SIZES, data, mlp

AVERAGES = {"w": Window(3), "ema": EMA(0.9)}
SHOWN = ("scaffold-II", "mime")
"""Methods that differ in what travels beside the model: variates, multipliers, a probe, anchors, two models."""
WHOSE = {"fednova": "scaffold-II", "fednova-steps": "feddyn", "fedgma": "feddyn", "fedgma-hard": "scaffold-II"}
"""The method with which an aggregation is tried by default, if it is not FedAvg."""


@pytest.mark.parametrize("name, state", some(chequered(METHODS, ["at nodes", "travels"]), *SHOWN))
def test_every_method_trains_bitwise_as_in_the_simulation(name: str, state: str, tmp_path: Path) -> None:
    assert_same(*both(tmp_path, 3, state == "at nodes", method=METHODS[name], averages=AVERAGES))


@pytest.mark.parametrize(
    "name, method",
    by_default(
        (pytest.param(*pair) for pair in product([*AGGREGATIONS][1:], ["fedavg", "scaffold-II", "feddyn"])),
        lambda name, method: name in ("fednova-steps", "fedgma") and method == WHOSE[name],
    ),
)
def test_every_aggregation_gets_the_same_uploads_and_efforts(name: str, method: str, tmp_path: Path) -> None:
    assert_same(*both(tmp_path, 2, aggregation=AGGREGATIONS[name], method=METHODS[method], averages=AVERAGES))


@pytest.mark.parametrize("name", some([*SERVERS][1:], "yogi"))
def test_every_server_optimiser_moves_alike(name: str, tmp_path: Path) -> None:
    broadcast = Broadcast("w", 2)
    assert_same(*both(tmp_path, 3, server=SERVERS[name], method=Scaffold(), averages=AVERAGES, broadcast=broadcast))


@pytest.mark.parametrize("name", some([*SAMPLINGS][1:], "weighted", "dropout"))
def test_every_sampling_asks_the_same_clients(name: str, tmp_path: Path) -> None:
    assert_same(*both(tmp_path, 3, sampling=SAMPLINGS[name], method=Scaffold()))


OTHERS: dict[str, dict[str, Any]] = {
    "dropout": {"model": mlp(dropout=0.3)},
    "moments": {
        "local": LocalTraining(lr=0.01, batch=5, epochs=(1, 3), stragglers=0.5, optimiser=Adam(), keep_moments=True)
    },
    "private": {"aggregation": Private(1.0, 0.5), "method": FedAvg(weighting="uniform"), "sampling": Poisson(0.5)},
    "adaptive": {
        "aggregation": Private(1.0, 0.5, Adaptive(noise=1.0)),
        "method": FedAvg(weighting="uniform"),
        "sampling": Uniform(4),
    },
    "personal": {"personal": "classifier", "method": Scaffold()},
    "held out": {"evaluation": Evaluation(held_out=0.3)},
}


@pytest.mark.parametrize("name, state", rotated(OTHERS, ["at nodes", "travels"], turns=3))
def test_other_settings_of_a_training_reach_the_nodes(name: str, state: str, tmp_path: Path) -> None:
    assert_same(*both(tmp_path, 3, state == "at nodes", averages=AVERAGES, **OTHERS[name]))


def test_whole_numbers_are_evaluated_as_they_are_trained(tmp_path: Path) -> None:
    """The server's test set has the types that its model takes, as the nodes' samples have."""
    rng, model = np.random.default_rng(0), nn.Linear(4, 3)
    x, y = rng.integers(0, 9, (40, 4)), rng.integers(0, 3, 40)
    whole = FederatedData.from_arrays(x[:30], y[:30], [range(10), range(10, 30)], test=(x[30:], y[30:]), classes=3)
    settings: dict[str, Any] = {"data": whole, "model": model, "sampling": Uniform(2), "seed": 0}
    simulated = here(**settings)
    clients = FlowerClients(grid(tmp_path, whole, model), whole.problem, 2, waiting=WAITING)
    with replace(simulated, data=clients) as world:
        state, expected = world.round(world.start())[0], simulated.round(simulated.start())[0]
        assert torch.equal(state.w, expected.w)
        assert [m.row() for m in world.evaluate(state)] == [m.row() for m in simulated.evaluate(expected)]


def test_a_test_set_that_the_model_does_not_take_is_refused_before_the_first_round(tmp_path: Path) -> None:
    clients = FlowerClients(grid(tmp_path), data().problem, len(SIZES), waiting=WAITING)
    with pytest.raises(ModelError, match="does not take samples of shape"):
        Federation(nn.Linear(3, 3), clients)


@pytest.mark.parametrize(
    "buffers, state", rotated(["average", "local", "local_norm"], ["travels", "at nodes"], turns=2)
)
def test_statistics_of_batch_norm_travel_or_stay_as_in_the_simulation(buffers: str, state: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)).double()
    settings = {"model": model, "buffers": buffers, "local": LocalTraining(batch="full")}
    samples = data((7, 12, 3, 20, 9, 2))
    assert_same(*both(tmp_path, 3, state == "at nodes", method=Scaffold(), averages=AVERAGES, data=samples, **settings))


EVALUATIONS = {
    "clients": Evaluation(clients=True),
    "held out": Evaluation(held_out=0.3, fine_tuning=FineTuning(2)),
    "test": Evaluation(client_test=True, clients=True, fine_tuning=FineTuning(steps=3)),
}


PARTS: dict[str, Any] = {"personal": "classifier", "common": ()}


@pytest.mark.parametrize("name, whose", rotated(EVALUATIONS, PARTS, turns=2))
def test_clients_score_models_as_in_the_simulation(name: str, whose: str, tmp_path: Path) -> None:
    samples, part = data().deal_test(3), PARTS[whose]
    simulated = here(evaluation=EVALUATIONS[name], averages=AVERAGES, personal=part, data=samples)
    with simulated, there(grid(tmp_path, samples), simulated) as world:
        state, expected = world.start(), simulated.start()
        for _ in range(2):
            state, _ = world.round(state)
            expected, _ = simulated.round(expected)
        found, right = world.evaluate(state), simulated.evaluate(expected)
    assert [(m.model, m.split) for m in found] == [(m.model, m.split) for m in right]
    for one, other in zip(found, right, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-13), one.split
        assert one["accuracy"] == pytest.approx(other["accuracy"], rel=1e-13)


@pytest.mark.parametrize("part", [full(()), "classifier"], ids=["common", "personal"])
def test_a_model_that_has_diverged_has_its_scores_as_in_the_simulation(part: Any, tmp_path: Path) -> None:
    samples = data().deal_test(3)
    simulated = here(evaluation=EVALUATIONS["test"], personal=part, data=samples)
    with simulated, there(grid(tmp_path, samples), simulated) as world:
        state, expected = world.start(), simulated.start()
        for one in (state, expected):
            common = simulated.sharing.common_of(one.w)
            one.w = simulated.sharing.with_common(torch.full_like(common, torch.nan), one.w)
        found, right = world.evaluate(state), simulated.evaluate(expected)
    assert right and all(np.isnan(m.loss) for m in (*found, *right))
    assert [(m.model, m.split) for m in found] == [(m.model, m.split) for m in right]


CONTRACTS: dict[str, Any] = {"fedavg": FedAvg(), "scaffold": Scaffold(), "mime": Mime(0.5)}


@pytest.mark.parametrize(
    "name, remember",
    by_default(
        (pytest.param(*pair) for pair in product(CONTRACTS, [True, False])),
        lambda name, remember: remember and name == "scaffold",
    ),
)
def test_they_keep_the_contract_of_clients(name: str, remember: bool, tmp_path: Path) -> None:
    local = LocalTraining(lr=0.1, batch=5)
    nodes = grid(tmp_path)
    clients = FlowerClients(nodes, data().problem, len(SIZES), waiting=WAITING, remember=remember)
    check_clients(clients, mlp(), method=CONTRACTS[name], local=local)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("evaluation.held_out", {"evaluation": Evaluation(held_out=0.3)}), ("seed", {"seed": 8})],
)
def test_clients_that_set_other_samples_aside_than_the_federation_are_refused(
    name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    clients = FlowerClients(grid(tmp_path), data().problem, len(SIZES), waiting=WAITING)
    right = next(iter(settings.values()))
    told = rf"FlowerClients\.{name} = 0.*must be the federation's, {getattr(right, 'held_out', right)}"
    with pytest.raises(SettingError, match=told):
        Federation(mlp(), clients, sampling=Uniform(6), device="cpu", **settings)


def test_several_clients_of_a_node_travel_in_one_message(tmp_path: Path) -> None:
    simulated = here(method=Scaffold(), sampling=Uniform(6))
    nodes = grid(tmp_path)
    shares = {8: [4, 0], 9: [1, 2, 3], 10: [5]}
    apps = {node: client_app(data().shard(own), model=mlp(), folder=tmp_path) for node, own in shares.items()}
    nodes.app = lambda message, context: apps[context.node_id](message, context)
    nodes.configs = {node: {} for node in shares}
    sent: list[int] = []
    nodes.fault = lambda message: sent.append(message.metadata.dst_node_id) or ""
    with there(nodes, simulated) as world, simulated:
        state, expected = world.start(), simulated.start()
        sent.clear()
        for _ in range(3):
            state, _ = world.round(state)
            expected, _ = simulated.round(expected)
    assert sorted(sent) == [8, 8, 8, 9, 9, 9, 10, 10, 10]
    assert_same(state, expected)


def renamed(samples: FederatedData, *names: str) -> FederatedData:
    """The samples with these names of labels, numbered from the last to the first."""
    assert samples.test is not None
    train, test = (replace(part, y=len(names) - 1 - part.y) for part in (samples.train, samples.test))
    return replace(samples, train=train, test=test, label_names=names[::-1])


def test_labels_with_names_have_the_servers_numbers_whatever_the_nodes_are(tmp_path: Path) -> None:
    samples = data().deal_test(3)
    names = tuple("abc"[: samples.classes])
    simulated = here(data=replace(samples, label_names=names), evaluation=EVALUATIONS["test"])
    with there(grid(tmp_path, renamed(samples, *names)), simulated) as world, simulated:
        found, right = world.round(world.start())[0], simulated.round(simulated.start())[0]
        assert_same(found, right)
        scored = [[m["accuracy"] for m in side.evaluate(state)] for side, state in ((world, found), (simulated, right))]
    assert len(scored[0]) >= 3 and scored[0] == pytest.approx(scored[1], rel=1e-13)


def test_a_node_with_several_clients_and_labels_in_another_order_scores_their_test_samples(tmp_path: Path) -> None:
    names = tuple("abc"[: data().classes])
    simulated = here(data=replace(data().deal_test(3), label_names=names), evaluation=EVALUATIONS["test"])
    nodes, own = grid(tmp_path), renamed(data(), *names)
    shares = {8: [4, 0], 9: [1, 2, 3], 10: [5]}
    apps = {node: client_app(own.shard(share), model=mlp(), folder=tmp_path) for node, share in shares.items()}
    nodes.app = lambda message, context: apps[context.node_id](message, context)
    nodes.configs = {node: {} for node in shares}
    with there(nodes, simulated) as world:
        found = {m.split: m.each for m in world.evaluate(world.start())}
    assert np.isfinite(found["clients"]).all() and found["client_test"].shape == (len(SIZES),)


def test_a_node_with_a_label_that_the_server_does_not_know_is_missing_by_name(tmp_path: Path) -> None:
    names = tuple("abc"[: data().classes])
    simulated = here(data=replace(data(), label_names=names))
    with there(grid(tmp_path, renamed(data(), *names[:-1], "z")), simulated) as world:
        missing = world.round(world.start())[1].missing
    right = f"must be among the server's: {', '.join(names)}"
    assert len(missing) == 4 and all("z" in why and right in why for why in missing.values())


def own_loss(output: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output, y, reduction="none", label_smoothing=0.1)


def test_a_nodes_configuration_allows_code_of_its_owner(tmp_path: Path) -> None:
    simulated = here(loss=own_loss, data=data())
    missing = []
    for allowed in ("elsewhere:own_loss", f"elsewhere:own_loss {__name__}:own_loss"):
        nodes = grid(tmp_path)
        nodes.configs = {node: {**config, "own-code": allowed} for node, config in nodes.configs.items()}
        with there(nodes, simulated) as world:
            missing.append(world.round(world.start())[1].missing)
    assert len(missing[0]) == 4 and all("names code outside fedsash" in why for why in missing[0].values())
    assert not missing[1]


def test_wrong_types_are_refused_in_one_line(tmp_path: Path) -> None:
    nodes, problem = grid(tmp_path), here().clients.problem
    for wrong in ({"count": "6"}, {"seed": "x"}, {"waiting": 3}, {"model": "mlp"}):
        with pytest.raises(SettingError, match=f"^FlowerClients.{next(iter(wrong))} = .*: must be"):
            FlowerClients(nodes, problem, **({"count": 6, "waiting": WAITING} | wrong))  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=r"^client_app.data = 3: must be FederatedData, or a function"):
        client_app(3)  # type: ignore[arg-type]
