"""Clients on the actors of a Ray cluster: at the same number of pieces, the bytes are those of one machine."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsash import Checkpoint, Evaluation, SettingError, Window, resume, run
from fedsash.client.messages import PartialSum, Reply
from fedsash.engines import RayEngine
from fedsash.evaluation import FineTuning
from fedsash.methods import FedAvg, FedGMA, FedNova, Mime, Private, Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.system.subprocesses import STOPS
from fedsash.tasks import Classification
from fedsash.testing import check_executor
from support.choices import METHODS
from support.clusters import HERE, WITHOUT_RAY, cluster, on_ray
from support.executors import request_of
from support.personal import personal
from support.worlds import SEQUENTIAL, SIZES, VECTORISED, after, data, federation, identical

ray: Any = pytest.importorskip("ray", reason=WITHOUT_RAY)
__all__ = ["cluster"]

EVERYBODY = Uniform(len(SIZES))


@pytest.mark.slow
@pytest.mark.parametrize("block", [1, 3])
def test_it_passes_the_check_of_all_executors(block: int) -> None:
    check_executor(on_ray(2, block=block))


@pytest.mark.parametrize("actors", [1, 2, 4])
def test_scaffold_has_the_bytes_of_one_machine_with_any_number_of_actors(actors: int) -> None:
    settings: dict[str, Any] = {"method": Scaffold(), "sampling": EVERYBODY}
    there = after(federation(**settings, engine=on_ray(actors)), 4)
    assert identical(there, after(federation(**settings, engine=HERE), 4))


@pytest.mark.slow
@pytest.mark.parametrize("actors", [1, 2, 4])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_the_bytes_of_one_machine(method: str, actors: int) -> None:
    settings: dict[str, Any] = {"method": METHODS[method], "sampling": Uniform(5)}
    there = after(federation(**settings, engine=on_ray(actors)), 4)
    assert identical(there, after(federation(**settings, engine=HERE), 4))


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [1, 2, 64])
def test_more_and_fewer_pieces_have_the_bytes_of_one_machine_with_as_many(pieces: int) -> None:
    settings: dict[str, Any] = {"method": Mime(0.5), "sampling": EVERYBODY}
    there = after(federation(**settings, engine=on_ray(2, pieces)), 3)
    assert identical(there, after(federation(**settings, engine=replace(SEQUENTIAL, pieces=pieces)), 3))


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule", [FedNova(), FedGMA(mask="code"), Private(clip=0.5, noise=0.5)], ids=["nova", "code", "private"]
)
def test_every_kind_of_aggregation_has_the_bytes_of_one_machine(rule: Any) -> None:
    settings: dict[str, Any] = {"aggregation": rule, "method": FedAvg(weighting="uniform"), "sampling": Uniform(4)}
    there = after(federation(**settings, engine=on_ray(2)), 3)
    assert identical(there, after(federation(**settings, engine=HERE), 3))


@pytest.mark.slow
def test_stacked_clients_have_the_numbers_of_one_machine_to_rounding() -> None:
    settings: dict[str, Any] = {"method": Scaffold(), "sampling": EVERYBODY}
    there = after(federation(**settings, engine=on_ray(2, block=2)), 3).w
    here = after(federation(**settings, engine=replace(VECTORISED, pieces=3)), 3).w
    torch.testing.assert_close(there, here, rtol=0, atol=1e-13)


def test_sums_come_back_from_a_training_and_replies_only_if_each_update_is_needed() -> None:
    with federation(sampling=EVERYBODY, engine=on_ray(2), evaluation=Evaluation(clients=True)) as world:
        answers = list(world.executor.work(request_of(world)))
        assert [type(answer) for answer in answers] == 3 * [PartialSum]
        assert world.executor.memory() > 0
        scored = list(world.executor.work(replace(request_of(world), job="evaluate")))
        assert [type(answer) for answer in scored] == 3 * [Reply]


@pytest.mark.slow
def test_clients_score_and_fine_tune_models_as_on_one_machine() -> None:
    evaluation = Evaluation(clients=True, client_test=True, held_out=0.3, fine_tuning=FineTuning(epochs=2))
    settings: dict[str, Any] = {"evaluation": evaluation, "averages": {"w": Window(2)}}
    with federation(**settings, engine=on_ray(2)) as there, federation(**settings, engine=HERE) as here:
        state = here.start()
        state, _ = here.round(state)
        found, right = there.evaluate(state), here.evaluate(state)
        assert len(found) == len(right) > 0
        for one, other in zip(found, right, strict=True):
            assert one.values == pytest.approx(other.values, abs=1e-12)


@pytest.mark.slow
def test_a_personal_part_travels_with_its_clients() -> None:
    there = after(personal(("4",), engine=on_ray(2)), 3)
    assert identical(there, after(personal(("4",), engine=HERE), 3))


@pytest.mark.slow
def test_a_run_that_is_resumed_has_the_bytes_of_one_that_was_not_stopped(tmp_path: Path) -> None:
    """Also on another number of actors, and then on one machine."""
    settings: dict[str, Any] = {"method": Scaffold(), "averages": {"w": Window(3)}}
    engines = [on_ray(2), on_ray(1), HERE]
    for until, engine in zip([2, 4, 6], engines, strict=True):
        go = run if until == 2 else resume
        world = federation(**settings, engine=engine)
        result = go(world, 6, out=tmp_path / "a", until=until, checkpoint=Checkpoint(every=2), progress=False)
    whole = run(federation(**settings, engine=HERE), 6, out=tmp_path / "b", progress=False)
    assert identical(result.state, whole.state)


def failing(output: Tensor, y: Tensor) -> Tensor:
    if len(y) == 4:  # the last batch of the client with nine samples
        raise RuntimeError("this batch can't be learned")
    return Classification().loss(output, y)


@pytest.mark.slow
def test_an_exception_of_the_training_names_its_clients_and_the_next_request_is_answered() -> None:
    with federation(engine=on_ray(2), loss=failing, sampling=EVERYBODY) as world:
        request = request_of(world)
        with pytest.raises(RuntimeError, match="this batch can't be learned") as error:
            list(world.executor.work(request))
        assert any("clients [4]" in note and "round 1" in note for note in error.value.__notes__)
        others = request.only(slice(0, 4))
        assert len(list(world.executor.work(others))) == 3


def test_signals_that_ask_to_stop_keep_their_meaning() -> None:
    before = [signal.getsignal(number) for number in STOPS]
    with federation(engine=on_ray(1)) as world:
        world.prepare()
        assert [signal.getsignal(number) for number in STOPS] == before


def test_what_does_not_fit_is_refused_in_a_line() -> None:
    with pytest.raises(SettingError, match=r"^RayEngine.actors = 17: must be at most the 16 cores there$"):
        federation(engine=on_ray(17)).prepare()


def test_as_many_actors_as_work_at_the_same_time() -> None:
    for pieces, actors in ((2, 2), (64, 4)):
        with federation(engine=RayEngine(pieces=pieces), data=data()) as world:
            assert world.prepare() == [f"engine: {actors} actors on a Ray cluster with 16 cores on 1 machine"]


def test_the_reason_of_a_loss_is_the_last_line_or_the_kind_of_error() -> None:
    from fedsash.engines.ray.pool import reason

    assert reason(RuntimeError("Failed to retrieve.\n\nAll copies are lost.\n")) == "All copies are lost."
    assert reason(RuntimeError()) == "RuntimeError"
