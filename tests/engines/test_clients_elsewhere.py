"""Clients that live elsewhere and keep their own state, by version: whatever gets lost, the run is that of those whose
uploads were accepted."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsash.averages import Window
from fedsash.client import LocalTraining
from fedsash.client.messages import Answers, Executor, Missing, Request
from fedsash.client.store import StateRows, StateVersions
from fedsash.data.federated import FederatedData, Problem
from fedsash.engines import ClientWork, Engine, Training
from fedsash.evaluation import Evaluation, FineTuning
from fedsash.methods import FedAvg, FedDyn, FedMoSWA, Method, Mime, Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.server.federation import Federation
from fedsash.server.state import State
from fedsash.testing import check_clients
from fedsash.vector.arrays import Ints, Vectors
from fedsash.vector.sharing import Personal
from support.by_default import full, rotated, some
from support.faults import run_of
from support.worlds import SIZES, data, federation, mlp

FAULTS = ("none", "away", "lost", "nan", "huge")
"""A client answers; has not trained; has trained but its answer is lost; sends what the guard refuses."""

Faults = dict[tuple[int, int], str]
"""What befalls a client in a round."""


@dataclass
class Nodes:
    """Clients each of which is a process of its own, as it were: it alone has its samples and its state."""

    samples: FederatedData
    faults: Faults = field(default_factory=dict)
    remember: bool = True
    held: bool = False
    data: None = None
    kept: dict[tuple[str, int, int], Vectors] = field(default_factory=dict)
    """What client i has made in a run as version v."""

    @property
    def problem(self) -> Problem:
        return self.samples.problem

    @property
    def sizes(self) -> Ints:
        return self.samples.sizes

    def fits(self, evaluation: Evaluation, seed: int, engine: Engine) -> None:
        return

    def open(self, training: Training, rounds: int | None = None) -> tuple[Executor, list[str]]:
        return AtNodes(self, training), []

    def settled(self, began: Any) -> Nodes:
        return self

    def fingerprint(self, training: Training) -> dict[str, str]:
        return {}


class AtNodes(Executor):
    """Every node holds one client, knows it by its number, and trains it from the version that it is told."""

    def __init__(self, nodes: Nodes, training: Training) -> None:
        self._nodes, self._training = nodes, training
        shards = [nodes.samples.shard([client]) for client in range(len(nodes.samples.clients))]
        self._trainers = [ClientWork(training, shard).trainer() for shard in shards]

    def work(self, request: Request) -> Answers:
        for place, client in enumerate(request.ids.tolist()):
            fault = self._nodes.faults.get((request.round, client), "none") if request.job == "train" else "none"
            if fault == "away":
                yield Missing(np.array([place]), "away")
                continue
            named = request.clients
            own = self._of(request, named, place) if isinstance(named, StateVersions) else {}
            rows = StateRows({name: v[None] for name, v in own.items()})
            asked = replace(request.only(np.array([place])), clients=rows)
            reply = self._trainers[client].answer(asked, np.array([place]))
            if request.job == "train" and isinstance(named, StateVersions):
                made = {name: rows[0] for name, rows in reply.client_state.items()}
                self._nodes.kept[named.maker(request.round + 1)[0], client, request.round + 1] = made
            factor = {"nan": float("nan"), "huge": 1e9}.get(fault)
            upload = reply.upload if factor is None else {n: v * factor for n, v in reply.upload.items()}
            norms = reply.norms if factor is None else reply.norms * factor
            yield (
                Missing(np.array([place]), "lost")
                if fault == "lost"
                else replace(reply, upload=upload, norms=norms, client_state={})
            )

    def _of(self, request: Request, named: StateVersions, place: int) -> Vectors:
        client, version = int(request.ids[place]), int(named.last[place])
        if version == 0:
            return self._training.memory.first(request.sent)
        return self._nodes.kept[named.maker(version)[0], client, version]


METHODS: dict[str, Method] = {
    "fedavg": FedAvg(),
    "scaffold": Scaffold(),
    "scaffold-I": Scaffold("I"),
    "feddyn": FedDyn(0.3),
    "mime": Mime(0.5),
    "fedmoswa": FedMoSWA(0.2, 1.3, 0.4),
}


def at_nodes(method: Method, faults: Faults) -> tuple[Federation, Nodes]:
    nodes = Nodes(data(), faults)
    world = federation(method=method, averages={"w": Window(3)}, sampling=Uniform(4))
    return replace(world, data=nodes), nodes


def here(method: Method) -> Federation:
    return federation(method=method, averages={"w": Window(3)}, sampling=Uniform(4))


def run_here(method: Method, faults: Faults, rounds: int) -> State:
    return run_of(here(method), lambda t, client: faults.get((t, client), "none") == "none", rounds)


def assert_equal_to(there: State, state: State, nodes: Nodes) -> None:
    """The same model, windows and server state, and each client's accepted version is the state it has here."""
    torch.testing.assert_close(there.w, state.w, rtol=0, atol=1e-12)
    assert there.averages["w"]["rounds"].tolist() == state.averages["w"]["rounds"].tolist()
    for name, value in state.server_state.items():
        torch.testing.assert_close(there.server_state[name], value, rtol=0, atol=1e-12)
    if state.client_state:
        assert there.last.tolist() == state.last.tolist()
    for client, version in enumerate(there.last.tolist()):
        for name, rows in state.client_state.items():
            if version:
                torch.testing.assert_close(nodes.kept["", client, version][name], rows[client], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", some(METHODS, "scaffold", "mime", "fedmoswa"))
def test_they_pass_the_check_that_users_have_for_their_own(name: str) -> None:
    check_clients(Nodes(data()), mlp(), method=METHODS[name], local=LocalTraining(lr=0.1, batch=5))


class Everybody(AtNodes):
    """Whoever is asked, the clients of the first request answer."""

    first: Request | None = None

    def work(self, request: Request) -> Answers:
        self.first = self.first or request
        return super().work(self.first)


class AlwaysAll(Nodes):
    def open(self, training: Training, rounds: int | None = None) -> tuple[Executor, list[str]]:
        return Everybody(self, training), []


def test_the_check_finds_who_answers_without_being_asked() -> None:
    with pytest.raises(AssertionError, match="and only those of clients that are asked"):
        check_clients(AlwaysAll(data()), mlp(), local=LocalTraining(lr=0.1, batch=5))


@pytest.mark.parametrize("name", rotated(["scaffold", "mime", "fedavg", "scaffold-I", "feddyn", "fedmoswa"], turns=1))
def test_without_faults_the_bytes_are_those_of_the_simulation(name: str) -> None:
    world, _ = at_nodes(METHODS[name], {})
    with world, here(METHODS[name]) as simulation:
        state, expected = world.start(), simulation.start()
        for _ in range(3):
            state, _ = world.round(state)
            expected, _ = simulation.round(expected)
    assert torch.equal(state.w, expected.w) and not state.client_state
    assert all(torch.equal(state.server_state[key], value) for key, value in expected.server_state.items())


faults = st.dictionaries(
    st.tuples(st.integers(0, 5), st.integers(0, len(SIZES) - 1)), st.sampled_from(FAULTS), max_size=14
)


@pytest.mark.parametrize("name", some(METHODS, "mime"))
@settings(max_examples=2, derandomize=True)
@given(faults=faults)
def test_with_any_faults_the_run_is_that_of_those_whose_uploads_were_accepted(name: str, faults: Faults) -> None:
    world, nodes = at_nodes(METHODS[name], faults)
    with world:
        state = world.start()
        for _ in range(4):
            state, _ = world.round(state)
    assert_equal_to(state, run_here(METHODS[name], faults, 4), nodes)


@pytest.mark.full
@settings(max_examples=20)
@given(name=st.sampled_from(sorted(METHODS)), faults=faults)
def test_with_any_faults_longer_runs_are_those_of_the_accepted_uploads_too(name: str, faults: Faults) -> None:
    world, nodes = at_nodes(METHODS[name], faults)
    with world:
        state = world.start()
        for _ in range(6):
            state, _ = world.round(state)
    assert_equal_to(state, run_here(METHODS[name], faults, 6), nodes)


@settings(max_examples=4, derandomize=True)
@given(faults=faults, back=st.integers(0, 5), gone_on=st.integers(1, 3))
def test_a_server_that_is_set_back_needs_no_word_to_the_nodes(faults: Faults, back: int, gone_on: int) -> None:
    """The nodes have newer versions by then; the server names those that count."""
    world, nodes = at_nodes(Scaffold(), faults)
    with world:
        state = world.start()
        saved: Any = copy.deepcopy(state)
        for t in range(min(back + gone_on, 6)):
            saved = copy.deepcopy(state) if t == back else saved
            state, _ = world.round(state)
        state = saved if back else world.start()
        while state.round < 6:
            state, _ = world.round(state)
    expected = run_here(Scaffold(), faults, 6)
    assert_equal_to(state, expected, nodes)
    versions = [
        nodes.kept["", i, v]["c"] if v else torch.zeros_like(state.w) for i, v in enumerate(state.last.tolist())
    ]
    torch.testing.assert_close(state.server_state["c"], torch.stack(versions).mean(0), rtol=0, atol=1e-13)


def test_evaluation_at_clients_that_live_elsewhere_is_that_of_the_simulation() -> None:
    world, nodes = at_nodes(FedAvg(), {})
    evaluation = Evaluation(clients=True, client_test=True, fine_tuning=FineTuning(epochs=2))
    nodes.samples = nodes.samples.deal_test(world.seed)
    asks = replace(world, evaluation=evaluation)
    with asks, replace(here(FedAvg()), evaluation=evaluation) as simulation:
        state, _ = asks.round(asks.start())
        expected, _ = simulation.round(simulation.start())
        there, these = asks.evaluate(state), simulation.evaluate(expected)
    assert [(m.model, m.split) for m in there] == [(m.model, m.split) for m in these]
    assert {m.split for m in there} == {"test", "client_test", "clients", "client_test_tuned"}
    for one, other in zip(there, these, strict=True):
        assert (one["accuracy"], one.loss) == pytest.approx((other["accuracy"], other.loss), rel=1e-14)
    with pytest.raises(ValueError, match="the clients' samples are not in this process"):
        _ = asks.training_data


@pytest.mark.parametrize("part", [full("classifier"), Personal("extractor", 1)], ids=str)
def test_a_personal_part_stays_at_clients_that_live_elsewhere(part: Any) -> None:
    world, nodes = at_nodes(Scaffold(), {})
    settings: dict[str, Any] = {"personal": part, "evaluation": Evaluation(clients=True)}
    with replace(world, **settings) as there, replace(here(Scaffold()), **settings) as simulation:
        state, expected = there.start(), simulation.start()
        for _ in range(4):
            state, _ = there.round(state)
            expected, _ = simulation.round(expected)
        losses = [
            [metrics.loss for metrics in one.evaluate(of)] for one, of in ((there, state), (simulation, expected))
        ]
    assert torch.equal(state.w, expected.w) and not state.client_state
    assert losses[0] == pytest.approx(losses[1], rel=1e-14)
    for client, version in enumerate(state.last.tolist()):
        if version:
            assert torch.equal(nodes.kept["", client, version]["own"], expected.client_state["own"][client])


def test_two_runs_on_the_same_nodes_and_a_fork_beside_its_source_keep_their_state_apart() -> None:
    world, nodes = at_nodes(Scaffold(), {})
    with world, here(Scaffold()) as simulation:
        one = world.start()
        one.clients.lineage = ((0, "one"),)
        other = world.start()
        other.clients.lineage = ((0, "other"),)
        for _ in range(2):
            one, _ = world.round(one)
        fork = copy.deepcopy(one)
        fork.clients.lineage = (0, "one"), (2, "fork")
        for _ in range(4):
            other, _ = world.round(replace(other, round=other.round))
        one, _ = world.round(one)
        for _ in range(3):
            fork, _ = world.round(fork)
        for _ in range(2):
            one, _ = world.round(one)
        expected = simulation.start()
        for _ in range(5):
            expected, _ = simulation.round(expected)
    assert torch.equal(one.w, expected.w) and torch.equal(fork.w, expected.w)
    assert {run for run, _, _ in nodes.kept} == {"one", "other", "fork"}


def test_a_run_with_an_id_scores_the_personal_parts_that_it_has_made() -> None:
    losses = []
    for lineage in ((), ((0, "one"),)):
        world, _ = at_nodes(FedAvg(), {})
        with replace(world, personal="classifier", evaluation=Evaluation(clients=True)) as there:
            start = there.start()
            start.clients.lineage = lineage
            state, _ = there.round(start)
            losses.append([metrics.loss for metrics in there.evaluate(state)])
    assert losses[0] == losses[1]
