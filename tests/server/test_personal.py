"""Parts of the model that stay with the clients (FedPer, LG-FedAvg)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedsash import Private, SettingError
from fedsash.averages import Window
from fedsash.client import SGD, Adam, AdamW, LocalTraining
from fedsash.client.messages import Reply
from fedsash.evaluation import Evaluation, FineTuning
from fedsash.methods import (
    EWC,
    AdaBest,
    FedACG,
    FedASAM,
    FedAvg,
    FedDyn,
    FedFA,
    FedProx,
    FedSAM,
    Method,
    Mime,
    MimeLite,
    Scaffold,
)
from fedsash.methods.sampling import Poisson, Uniform
from fedsash.methods.server_optimisers import FedAdam
from fedsash.runs.checkpoints import load, save
from fedsash.server.broadcast import Broadcast
from fedsash.testing import close, identical
from fedsash.vector.sharing import Personal
from support.by_default import full, rotated, some
from support.personal import SIZES, centrally, one_client, personal, three_layers
from support.worlds import ENGINES, EVERY_ENGINE, after, data

PARTS: dict[Any, int] = {"classifier": 15, "extractor": 76, ("2",): 36, ("0.weight", "4"): 47}
"""How many entries of the model each part has."""

OPTIMISERS: dict[str, Any] = {
    "sgd": (SGD(momentum=0.5), partial(torch.optim.SGD, momentum=0.5)),
    "adam": (Adam(), torch.optim.Adam),
}
METHODS: list[Method] = [
    *(Scaffold(), Scaffold(option="I"), FedProx(0.1), FedDyn(0.1), AdaBest(), FedACG()),
    *(Mime(), MimeLite(), FedSAM(0.05), EWC()),
]


@pytest.mark.parametrize("part, method", rotated(PARTS, [FedAvg(), *METHODS], turns=5), ids=str)
def test_what_stays_with_a_client_is_in_no_upload_and_never_moves_the_server(part: Any, method: Method) -> None:
    with personal(part, method=method, server=FedAdam(), averages={"w2": Window(2)}) as world:
        start = world.start().w.clone()
        state = world.start()
        own = world.layout.ranges(part)
        mine = torch.cat([torch.arange(*span) for span in own])
        for _ in range(2):
            request = world.ask(state)
            if request.job == "probe":
                request = world.ask(state, probed=world.collect(request))
            for reply in world.executor.work(request):
                assert isinstance(reply, Reply)
                assert all(vector.shape[-1] == len(start) - PARTS[part] for vector in reply.upload.values())
            state, _ = world.round(state)
    assert torch.equal(state.w[mine], start[mine]) and not torch.equal(state.w, start)
    assert state.client_state["own"].shape == (len(SIZES), PARTS[part])
    assert state.optimiser["m"].shape == (len(start) - PARTS[part],)
    assert all(rows.shape[-1] == len(start) - PARTS[part] for rows in state.past["w2"].values())


def test_what_another_client_keeps_changes_nothing() -> None:
    found = []
    for stranger in (0.0, 5.0):
        with personal(sampling=Uniform(2)) as world:
            state = world.start()
            taking_part = world.sampling.clients(0, world.sizes, world.seed)
            others = np.setdiff1d(np.arange(len(SIZES)), taking_part)
            state.client_state["own"][others] += stranger
            state, _ = world.round(state)
            found.append((state.w, state.client_state["own"][taking_part]))
    assert identical(*found)


@pytest.mark.parametrize("part, engine, name", rotated([*PARTS, "all"], ENGINES, OPTIMISERS, turns=3), ids=str)
def test_one_client_is_central_training(part: Any, engine: str, name: str) -> None:
    optimiser, make = OPTIMISERS[name]
    with one_client(part, optimiser, engine=ENGINES[engine]) as world:
        state = world.start()
        for _ in range(3):
            state, _ = world.round(state)
    whole = world.sharing.with_own(state.w, state.client_state["own"][0])
    plain = centrally(three_layers(), world, [(["0", "2", "4"], 3)], make, 3)
    assert close(whole, world.layout.flatten(plain), 1e-12)


def test_what_clients_keep_in_another_memory_joins_the_model_on_its_device() -> None:
    """As on a GPU, where the clients' state may lie in the host's memory."""
    with one_client("0", SGD(), engine=ENGINES["sequential"]) as world:
        own = torch.zeros(2, world.sharing.own.stop - world.sharing.own.start)
        whole = world.sharing.with_own(world.start().w.to("meta"), own)
    assert whole.is_meta and whole.shape == (2, world.layout.size)


@pytest.mark.parametrize(
    "method", rotated([Scaffold(), Mime(), FedAvg(), FedSAM(), FedDyn(0.1)], turns=1), ids=lambda m: type(m).__name__
)
def test_if_everything_is_personal_each_client_trains_alone(method: Method) -> None:
    everybody = Uniform(len(SIZES))
    state = after(personal("all", method=method, sampling=everybody, averages={}), 2)
    plain = after(personal("all", sampling=everybody, averages={}), 2)
    assert torch.equal(state.w, personal((), averages={}).start().w)
    assert identical(state.client_state["own"], plain.client_state["own"])
    shared = after(one_client("all", SGD(momentum=0.5)), 3), after(one_client((), SGD(momentum=0.5)), 3)
    assert close(shared[0].client_state["own"][0], shared[1].w, 1e-12)


@pytest.mark.parametrize("method", [full(FedAvg()), Scaffold()], ids=lambda m: type(m).__name__)
def test_nothing_personal_is_as_ever(method: Method) -> None:
    assert identical(after(personal((), method=method), 2), after(personal(Personal(), method=method), 2))
    assert "own" not in personal(()).start().client_state


KEEPING: list[Method] = [FedAvg(), Scaffold("raw"), FedSAM()]


@pytest.mark.parametrize(
    "engine, method",
    [
        *rotated(["vectorised", "workers"], KEEPING, turns=2),
        *(pytest.param("spawned", method, marks=pytest.mark.slow) for method in KEEPING),
    ],
    ids=str,
)
def test_every_engine_keeps_the_same(method: Method, engine: str) -> None:
    local = LocalTraining(lr=0.1, batch=5, epochs=2, optimiser=SGD(momentum=0.5), keep_moments=True)
    settings: dict[str, Any] = {"method": method, "local": local, "evaluation": Evaluation(clients=True)}
    found = []
    for kind in ("sequential", engine):
        with personal(("0", "4.bias"), engine=EVERY_ENGINE[kind], **settings) as world:
            state = world.start()
            for _ in range(3):
                state, _ = world.round(state)
            found.append((state.w, *state.client_state.values(), torch.tensor(world.evaluate(state)[-1].loss)))
    assert all(close(one, other, 1e-12) for one, other in zip(*found, strict=True))
    assert engine == "vectorised" or identical(*found)


@pytest.mark.parametrize("alone", some([0, 2], 2))
def test_a_resumed_run_has_the_bytes_of_an_unbroken_one(alone: int, tmp_path: Path) -> None:
    local = LocalTraining(lr=0.01, batch=5, epochs=2, optimiser=AdamW(), keep_moments=True)
    make = partial(
        personal, Personal("classifier", alone), averages={"w2": Window(2)}, method=FedProx(0.1), local=local
    )
    unbroken = after(make(), 4)
    save(after(make(), 2), tmp_path)
    world = make()
    assert identical(after(world, 2, load(tmp_path / "00000002", world.start())), unbroken)


def test_clients_score_a_model_and_an_average_with_the_part_that_they_keep() -> None:
    settings: dict[str, Any] = {"averages": {"w2": Window(2)}, "evaluation": Evaluation(clients=True)}
    with personal(("2",), **settings) as world:
        state = world.start()
        for _ in range(3):
            state, _ = world.round(state)
        found = {m.model: m["accuracy"] for m in world.evaluate(state) if m.split == "clients"}
        samples = world.training_data.train
        for name, w in world.models(state).items():
            right = []
            for client, own in enumerate(state.client_state["own"]):
                whole = w.clone()
                whole[world.sharing.own] = own
                members = torch.from_numpy(world.training_data.clients[client])
                output = world.module_of(whole)(samples.x[members])  # type: ignore[index]
                right.append(float((output.argmax(1) == samples.y[members]).double().mean()))
            assert found[name] == pytest.approx(np.mean(right))


def test_an_average_has_the_part_of_the_start_and_an_average_of_the_part_alone_is_refused() -> None:
    world = personal("classifier", averages={"w2": Window(2), "body": Window(2, part="extractor")})
    state = after(world, 3)
    models = world.models(state)
    assert all(torch.equal(w[-15:], world.start().w[-15:]) for w in models.values())
    assert torch.equal(models["w2"], models["body"])
    with pytest.raises(SettingError, match="part = 'classifier': stays with the clients: name a"):
        personal("classifier", averages={"w2": Window(2, part="classifier")})


def test_an_average_that_is_sent_has_the_part_of_the_start() -> None:
    settings: dict[str, Any] = {"averages": {"w2": Window(2)}, "broadcast": Broadcast("w2", start=1)}
    world = personal("classifier", **settings)
    state = after(world, 3)
    sent = world.server_round.send(state)[0]
    assert torch.equal(sent, world.models(state)["w2"]) and torch.equal(sent[-15:], world.start().w[-15:])


def test_noise_and_clipping_are_of_what_is_shared() -> None:
    settings: dict[str, Any] = {"method": FedAvg(weighting="uniform"), "sampling": Poisson(0.5), "averages": {}}
    kept = []
    for clip, noise in ((1e-9, 0.0), (1.0, 50.0)):
        world = personal("extractor", aggregation=Private(clip, noise, delta=0.1), **settings)
        state, start = after(world, 1), world.start()
        kept.append(state.client_state["own"])
        shared = world.sharing.common_size
        assert torch.equal(state.w[shared:], start.w[shared:]) and not torch.equal(state.w[:shared], start.w[:shared])
    assert torch.equal(*kept) and world.privacy(state) is not None


def test_a_method_that_needs_the_classifier_says_that_it_stays_with_the_clients() -> None:
    with pytest.raises(ValueError, match="the classifier '4' stays with the clients, but the method needs it"):
        personal("classifier", method=FedFA())
    assert personal("extractor", method=FedFA()).start().round == 0


@pytest.mark.parametrize(
    "settings, line",
    [
        ({"part": "head"}, r"part = 'head': nothing that trains is called \['head'\]; there are 0.weight"),
        ({"part": (), "alone": 2}, r"Personal.part = \(\): must not be empty: it trains alone"),
        ({"part": "all", "alone": 2}, "Personal.part = 'all': must leave something to share if it first trains alone"),
        ({"part": "classifier", "alone": -1}, "Personal.alone"),
    ],
)
def test_a_wrong_part_is_refused_in_one_line(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingError, match=line) as error:
        personal(Personal(**settings), averages={})
    assert "\n" not in str(error.value)


def test_a_note_says_what_clients_keep_and_who_scores_with_it() -> None:
    lines = {
        0.3: "clients keep their own 0, 2: they score models with it, on samples of their own; exported models have",
        0.0: "clients keep their own 0, 2: a test set meets what the start had of it: set evaluation.client_test or",
    }
    for held_out, line in lines.items():
        with personal(("0", "2"), evaluation=Evaluation(held_out=held_out)) as world:
            assert world.prepare()[0].startswith(line)
            splits = {metrics.split for metrics in world.evaluate(world.start())}
            assert splits == {"held_out" if held_out else "test"}
    with personal(()) as world:
        assert not any("keep" in note for note in world.prepare())


@pytest.mark.parametrize("part, engine", rotated(["classifier", Personal("extractor", 4), "all"], ENGINES), ids=str)
def test_a_copy_that_is_fine_tuned_has_the_part_which_trains_with_the_rest(part: Any, engine: str) -> None:
    evaluation = Evaluation(held_out=0.5, fine_tuning=FineTuning(steps=2))
    local = LocalTraining(lr=0.1, batch="full", steps=3)
    settings: dict[str, Any] = {"data": data((12, 16)), "local": local, "sampling": Uniform(2), "averages": {}}
    with personal(part, evaluation=evaluation, engine=ENGINES[engine], **settings) as world:
        state = world.start()
        for _ in range(2):
            state, _ = world.round(state)
        (found,) = (metrics for metrics in world.evaluate(state) if metrics.split == "held_out_tuned")
        before = state.client_state["own"].clone()
    samples, losses = world.training_data.train, []
    for own, members, held in zip(before, world.training_data.clients, world.training_data.held, strict=True):
        model = world.module_of(world.sharing.with_own(state.w, own))
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            optimiser.zero_grad()
            F.cross_entropy(model(samples.x[members]), samples.y[members]).backward()
            optimiser.step()
        losses.append(F.cross_entropy(model(samples.x[held]), samples.y[held], reduction="sum").item())
    count = sum(map(len, world.training_data.held))
    assert found.loss == pytest.approx(sum(losses) / count, rel=1e-12)


@pytest.mark.parametrize(
    "method",
    rotated([FedASAM(0.5, 0.2), FedAvg(), *METHODS[:3], Mime(), FedSAM(0.05), *METHODS[3:]], turns=7),
    ids=lambda m: type(m).__name__,
)
def test_nothing_at_all_may_be_shared(method: Method) -> None:
    with personal("all", method=method) as world:
        state = after(world, 1)
        assert torch.equal(state.w, world.start().w) and not torch.equal(state.client_state["own"], 0 * state.w)
