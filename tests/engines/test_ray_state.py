"""Client state that stays in the cluster: the bytes of one machine, and the server has handles only."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsash import Checkpoint, Evaluation, Window, resume, run
from fedsash.client.messages import PartialSum
from fedsash.engines.ray import engine
from fedsash.evaluation import FineTuning
from fedsash.lab.studies.client_models import client_models
from fedsash.methods import FedGMA, LocalRun, Mime, Scaffold, Upload, WeightedMean
from fedsash.methods.sampling import Uniform
from fedsash.runs import Fork
from fedsash.server.state import State
from fedsash.vector.arrays import Vectors
from support.choices import METHODS
from support.clusters import HERE, WITHOUT_RAY, cluster, on_ray, wide
from support.executors import interrupted_rounds, request_of
from support.personal import personal
from support.worlds import SIZES, after, federation, identical, mlp

ray: Any = pytest.importorskip("ray", reason=WITHOUT_RAY)
__all__ = ["cluster"]

EVERYBODY = Uniform(len(SIZES))


@pytest.fixture(autouse=True)
def held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even the smallest state stays in the cluster."""
    monkeypatch.setattr(engine, "LEAST", 1)


MODELS = {"small": mlp, "wide": wide}


def states_in_memory(state: State) -> list[tuple[int, ...]]:
    """The shapes of the client state that the server has."""
    return [tuple(rows.shape) for rows in state.client_state.values() if rows.device.type != "meta"]


@pytest.mark.parametrize(
    "actors", [2, pytest.param(1, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("model", ["small", pytest.param("wide", marks=pytest.mark.slow)])
def test_scaffold_has_the_bytes_of_one_machine_and_the_server_no_client_state(model: str, actors: int) -> None:
    settings: dict[str, Any] = {"model": MODELS[model](), "method": Scaffold(), "sampling": Uniform(4)}
    there = after(federation(**settings, engine=on_ray(actors)), 4)
    assert states_in_memory(there) == []
    assert identical(there, after(federation(**settings, engine=HERE), 4))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_the_bytes_of_one_machine(method: str) -> None:
    settings: dict[str, Any] = {"method": METHODS[method], "sampling": Uniform(5)}
    there = after(federation(**settings, engine=on_ray(2)), 4)
    assert identical(there, after(federation(**settings, engine=HERE), 4))


def test_sums_come_back_without_client_state() -> None:
    with federation(method=Scaffold(), sampling=EVERYBODY, engine=on_ray(2)) as world:
        for answer in world.executor.work(request_of(world)):
            assert isinstance(answer, PartialSum)
            assert answer.client_state == {}
            assert answer.handles is not None and len(answer.handles) == len(answer.accepted)


def test_small_states_stay_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    world = federation(method=Scaffold(), engine=on_ray(1))
    size = world.layout.size * 8
    assert size < engine.LEAST <= federation(model=wide()).layout.size * 8
    assert world.start().clients.handles is None
    assert federation(model=wide(), method=Scaffold(), engine=on_ray(1)).start().clients.handles is not None


@pytest.mark.slow
def test_replies_with_each_update_bring_handles_too() -> None:
    settings: dict[str, Any] = {"aggregation": FedGMA(mask="code"), "method": Scaffold(), "sampling": Uniform(4)}
    there = after(federation(**settings, engine=on_ray(2)), 3)
    assert states_in_memory(there) == []
    assert identical(there, after(federation(**settings, engine=HERE), 3))


@dataclass(frozen=True)
class Sick(Scaffold):
    """The upload of the clients of these sizes is not a number."""

    sizes: tuple[int, ...] = (9,)

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        upload, own = super().upload(local)
        sick = sum((local.size == size for size in self.sizes), torch.zeros_like(local.size)).bool()
        return upload | {"delta": torch.where(sick, torch.nan, upload["delta"])}, own


@pytest.mark.parametrize("sizes", [(9, 20), pytest.param(SIZES, marks=pytest.mark.slow)], ids=["some", "all"])
@pytest.mark.parametrize("rule", [WeightedMean(), pytest.param(FedGMA(mask="code"), marks=pytest.mark.slow)])
def test_who_is_refused_keeps_the_state_it_had(rule: Any, sizes: tuple[int, ...]) -> None:
    """Also if all are refused: then the round is skipped."""
    settings: dict[str, Any] = {"method": Sick(sizes=sizes), "sampling": EVERYBODY, "aggregation": rule}
    there = after(federation(**settings, engine=on_ray(2)), 3)
    assert identical(there, after(federation(**settings, engine=HERE), 3))


@pytest.mark.slow
def test_clients_score_and_fine_tune_with_their_own_part() -> None:
    evaluation = Evaluation(clients=True, client_test=True, held_out=0.3, fine_tuning=FineTuning(epochs=2))
    settings: dict[str, Any] = {"evaluation": evaluation, "averages": {"w": Window(2)}}
    with personal(("4",), **settings, engine=on_ray(2)) as there, personal(("4",), **settings, engine=HERE) as here:
        one, other = there.start(), here.start()
        for _ in range(2):
            (one, _), (other, _) = there.round(one), here.round(other)
        assert identical(one, other) and states_in_memory(one) == []
        for found, right in zip(there.evaluate(one), here.evaluate(other), strict=True):
            assert found.values == pytest.approx(right.values, abs=1e-12)


def test_a_round_that_is_made_again_from_an_older_state_goes_on_from_the_older_client_state() -> None:
    with federation(method=Scaffold(), sampling=EVERYBODY, engine=on_ray(2)) as world:
        state, _ = world.round(world.start())
        before = replace(state.clients, last=state.last.clone(), handles=np.array(state.clients.handles))
        older = replace(state, clients=before)
        state, _ = world.round(state)
        again, _ = world.round(older)
    assert identical(again, state)


@pytest.mark.slow
def test_ctrl_c_in_the_middle_of_a_round_does_not_change_the_next() -> None:
    world = federation(method=Scaffold(), sampling=EVERYBODY, engine=on_ray(2))
    right = after(federation(method=Scaffold(), sampling=EVERYBODY, engine=HERE), 3)
    assert identical(interrupted_rounds(world, 3, pause=0.004), right)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["small", "wide"])
def test_the_state_that_a_killed_actor_has_made_is_not_lost(model: str) -> None:
    settings: dict[str, Any] = {"model": MODELS[model](), "method": Scaffold(), "sampling": EVERYBODY}
    with federation(**settings, engine=on_ray(2)) as world:
        state, _ = world.round(world.start())
        for pid, _ in list(world.executor._pool.processes()):  # type: ignore[attr-defined]
            os.kill(pid, signal.SIGKILL)
        state, _ = world.round(state)
    assert identical(state, after(federation(**settings, engine=HERE), 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    "engines", [(2, 1, 0), (0, 2, 1), (2, 0, 2)], ids=["ends here", "begins here", "in between here"]
)
def test_a_run_goes_on_with_other_actors_or_on_one_machine(engines: tuple[int, ...], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"method": Scaffold(), "averages": {"w": Window(3)}}
    for until, actors in zip([2, 4, 6], engines, strict=True):
        go = run if until == 2 else resume
        world = federation(**settings, engine=on_ray(actors) if actors else HERE)
        result = go(world, 6, out=tmp_path / "a", until=until, checkpoint=Checkpoint(every=2), progress=False)
    whole = run(federation(**settings, engine=HERE), 6, out=tmp_path / "b", progress=False)
    assert identical(result.state, whole.state)
    assert identical(tmp_path / "a", tmp_path / "b")


@pytest.mark.slow
def test_a_fork_does_not_need_its_source_any_more(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"method": Scaffold()}
    run(federation(**settings, engine=on_ray(2)), 3, out=tmp_path / "a", progress=False)

    def goes_on(where: Any, out: str) -> Iterator[State]:
        fork = Fork(tmp_path / "a", 3)
        world = federation(**settings, engine=where)
        yield run(world, 6, out=tmp_path / out, fork=fork, until=4, progress=False).state
        yield resume(federation(**settings, engine=where), 6, out=tmp_path / out, progress=False).state

    here, there = list(goes_on(HERE, "here")), goes_on(on_ray(2), "there")
    assert identical(next(there), here[0])
    (tmp_path / "a").rename(tmp_path / "gone")
    assert identical(next(there), here[1])


def test_unchanged_client_state_is_linked_and_only_changed_state_is_fetched(tmp_path: Path) -> None:
    checkpoint = Checkpoint(every=1, keep=(1, 2, 3))
    settings: dict[str, Any] = {"method": Scaffold(), "sampling": Uniform(2)}
    result = run(federation(**settings, engine=on_ray(2)), 3, out=tmp_path, checkpoint=checkpoint, progress=False)
    files = [{f.name: f.stat().st_ino for f in (tmp_path / "state").glob(f"0000000{r}/client-*")} for r in (2, 3)]
    shared = files[0].keys() & files[1].keys()
    assert len(shared) > 0 and all(files[0][name] == files[1][name] for name in shared)
    last: list[int] = result.state.last.tolist()
    assert files[1].keys() == {f"client-{i}.{version:08d}.safetensors" for i, version in enumerate(last) if version}


@pytest.mark.parametrize("method", [Scaffold(), pytest.param(Mime(0.5), marks=pytest.mark.slow)])
def test_the_models_of_a_rounds_clients_are_trained_here_with_the_same_bytes(method: Any) -> None:
    with federation(method=method, engine=on_ray(1)) as there, federation(method=method, engine=HERE) as here:
        state, right = there.round(there.start())[0], here.round(here.start())[0]
        found, own = client_models(there, state), client_models(here, right)
    assert torch.equal(found.w, own.w) and found.ids.tolist() == own.ids.tolist()


def test_gathered_is_the_state_with_rows() -> None:
    settings: dict[str, Any] = {"method": Scaffold(), "sampling": Uniform(2)}
    state = after(federation(**settings, engine=on_ray(1)), 1)
    rows: Tensor = state.gathered().client_state["c"]
    right = after(federation(**settings, engine=HERE), 1)
    assert torch.equal(rows, right.client_state["c"]) and right.gathered() is right
