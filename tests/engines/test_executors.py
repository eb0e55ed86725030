"""The contract of executors, which each one and any user's own passes: every place once, in order, whatever happens."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsash.client.messages import Request
from fedsash.data import OwnTransform
from fedsash.engines import buffers
from fedsash.engines.local_engine import Kind
from fedsash.methods import Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.methods.server_optimisers import ServerSGD
from fedsash.tasks import Classification
from fedsash.testing import check_executor
from fedsash.vector.arrays import Vectors
from support.by_default import full, some
from support.executors import Cluster, Own, Twice, answers, interrupted_rounds, request_of
from support.worlds import ENGINES, EVERY_ENGINE, SIZES, SPAWNED, SPAWNED_TOO, after, data, federation, identical, mlp

EVERYBODY = Uniform(len(SIZES))


ALL = EVERY_ENGINE | {"own": Own(), "compiled": replace(ENGINES["vectorised"], compile=True)}
EACH = pytest.mark.parametrize("name", [*ENGINES, pytest.param("own", marks=pytest.mark.full), SPAWNED_TOO])
ONE_PROCESS_AND_SEVERAL = ["sequential", "workers"]


@pytest.mark.parametrize(
    "name",
    [*some(ENGINES, "vectorised"), full("own"), SPAWNED_TOO, pytest.param("compiled", marks=pytest.mark.slow)],
)
def test_every_engine_passes_the_check_that_users_have_for_their_own(name: str) -> None:
    check_executor(ALL[name])


def test_every_kind_of_the_local_engine_is_among_those_that_are_checked() -> None:
    kinds = {engine.kind for engine in EVERY_ENGINE.values()}
    assert kinds == set(get_args(Kind)) - {"auto"}


def test_a_round_that_fits_into_shared_memory_only_in_parts_has_the_bytes_of_one_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(buffers, "MOST_BYTES", 1)
    one, parts = (
        after(federation(engine=ALL[name], method=Scaffold(), sampling=EVERYBODY), 2)
        for name in ONE_PROCESS_AND_SEVERAL
    )
    assert identical(one, parts)


@pytest.mark.full
def test_answers_stay_as_they_are_if_a_round_fits_into_shared_memory_only_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(buffers, "MOST_BYTES", 1)
    check_executor(ENGINES["workers"])


@pytest.mark.parametrize("pieces", [pytest.param(1, marks=pytest.mark.full), 3])
def test_an_engine_that_sums_up_where_its_clients_are_passes_it_too(pieces: int) -> None:
    check_executor(Cluster(pieces=pieces))


def test_an_executor_that_breaks_the_contract_fails_the_check_with_a_sentence() -> None:
    with pytest.raises(AssertionError, match=r"^Twice\(.*\): every place must be answered exactly once$"):
        check_executor(Twice())


@pytest.mark.parametrize(
    "name",
    [
        *some([*ONE_PROCESS_AND_SEVERAL, "vectorised", "own"], "sequential"),
        SPAWNED_TOO,
    ],
)
def test_ctrl_c_in_the_middle_of_a_round_of_ones_own_loop_does_not_change_the_next(name: str) -> None:
    """`Federation.round` without a runner around it: what is interrupted is done again from the state before."""
    whole = after(federation(engine=ALL[name]), 20).w
    assert torch.equal(interrupted_rounds(federation(engine=ALL[name]), 20, pause=0.0005).w, whole)


def loss_that_fails(output: Tensor, y: Tensor) -> Tensor:
    if len(y) == 4:  # the last batch of the client with nine samples
        raise RuntimeError("this batch can't be learned")
    return Classification().loss(output, y)


@pytest.mark.parametrize("name", ["sequential", "workers", "own"])
def test_an_exception_names_its_clients_and_the_next_request_is_answered(name: str) -> None:
    with federation(engine=ALL[name], loss=loss_that_fails, sampling=EVERYBODY) as world:
        request = replace(request_of(world), ids=np.array([2, 5]))
        expected = [reply.upload["delta"].clone() for reply in answers(world, request)]
        with pytest.raises(RuntimeError, match="can't be learned") as error:
            answers(world, request_of(world))
        assert any("clients [4]" in note and "round 1" in note for note in error.value.__notes__)
        assert all(map(torch.equal, [reply.upload["delta"] for reply in answers(world, request)], expected))


@pytest.mark.full
@pytest.mark.timeout(120)
def test_spawned_workers_give_the_bytes_of_forked_ones() -> None:
    settings: Any = {"method": Scaffold(), "sampling": EVERYBODY}
    spawned, forked = (after(federation(**settings, engine=engine), 3) for engine in (SPAWNED, ENGINES["workers"]))
    assert identical(spawned, forked)


@pytest.mark.slow
def test_a_script_that_spawned_workers_run_again_is_told_what_it_lacks(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from fedsash.testing import after, small_federation; from fedsash.engines import LocalEngine\n"
        "after(small_federation(engine=LocalEngine('sequential', 2, 1, False, 'contiguous', 1, 'spawn')), 1)\n"
    )
    found = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert found.returncode == 1
    assert "begin the program by if __name__ == '__main__':" in found.stderr.splitlines()[-1]


def test_what_cannot_be_sent_to_a_spawned_worker_is_refused_in_a_line() -> None:
    def local(output: Tensor, y: Tensor) -> Tensor:
        return Classification().loss(output, y)

    with pytest.raises(ValueError, match=r"^Federation.loss = .*: can't be sent to another process .*top of a module$"):
        federation(engine=SPAWNED, loss=local).prepare()
    with pytest.raises(
        ValueError, match=r"^Federation.metrics = .*: can't be sent to another process .*top of a module$"
    ):
        federation(engine=SPAWNED, metrics={"mine": lambda output, y: 0.0}).prepare()
    transformed = replace(data(), transform=OwnTransform(batch=lambda x: x))
    with pytest.raises(
        ValueError, match=r"^Federation.transform = OwnTransform\(.*: can't be sent to another process "
    ):
        federation(engine=SPAWNED, data=transformed).prepare()


# Shards: who holds some of the clients draws what he would among all.


@pytest.mark.full  # it is in the check that every engine passes, too
@pytest.mark.parametrize("name", ENGINES)
def test_a_shard_of_the_clients_draws_what_the_whole_draws(name: str) -> None:
    settings: Any = {"engine": ENGINES[name], "sampling": EVERYBODY, "model": mlp(dropout=0.3), "method": Scaffold()}
    with federation(**settings) as whole:
        request = request_of(whole)
        expected = {}
        for reply in answers(whole, request):
            expected |= dict(zip(request.ids[reply.places].tolist(), reply.upload["delta"], strict=True))
        for numbers in ([0, 3, 4], [1, 2, 5]):
            shard = data().shard(numbers)
            with federation(**settings | {"data": shard, "sampling": Uniform(3)}) as part:
                asked = request.only(np.array(numbers))
                for reply in answers(part, asked):
                    for number, delta in zip(asked.ids[reply.places].tolist(), reply.upload["delta"], strict=True):
                        tolerance = 0 if name != "vectorised" else 1e-15
                        torch.testing.assert_close(delta, expected[number], rtol=0, atol=tolerance)


def test_who_does_not_hold_a_client_says_so() -> None:
    with federation(data=data().shard([1, 2]), sampling=Uniform(2)) as part:
        one = np.array([4])
        request = Request(
            job="train",
            round=0,
            ids=one,
            sent=part.start().w,
            server_state={},
        )
        with pytest.raises(ValueError, match=r"clients = \[4\]: their samples are not held here"):
            list(part.executor.work(request))


def test_a_shard_holds_out_what_the_whole_holds_out() -> None:
    whole = data().hold_out(0.4, seed=3)
    for numbers in ([0, 3, 4], [1, 2, 5]):
        shard = data().shard(numbers).hold_out(0.4, seed=3)
        assert [own.tolist() for own in shard.held] == [whole.held[i].tolist() for i in numbers]
        assert [own.tolist() for own in shard.clients] == [whole.clients[i].tolist() for i in numbers]


def test_workers_do_not_go_on_with_a_request_that_was_given_up() -> None:
    before = set(multiprocessing.active_children())
    with federation(engine=ENGINES["workers"], sampling=EVERYBODY) as world:
        answers_ = world.executor.work(request_of(world))
        next(answers_)
        ours = set(multiprocessing.active_children()) - before
        assert len(ours) == 2
        answers_.close()
        assert not ours & set(multiprocessing.active_children())


def test_workers_that_were_interrupted_as_they_started_are_started_anew() -> None:
    """An interrupt between two starts leaves fewer workers than the engine has."""
    expected = after(federation(engine=ALL["workers"]), 1)
    with federation(engine=ALL["workers"]) as world:
        state = world.start()
        world.prepare()
        workers: Any = world.executor
        workers._workers.pop(1).close()
        assert identical(world.round(state)[0], expected)


@dataclass(frozen=True)
class Counting(ServerSGD):
    """Tells the threads of its steps."""

    told: list[int] = field(default_factory=list)

    def step(self, sent: Tensor, delta: Tensor, state: Vectors) -> tuple[Tensor, Vectors]:
        self.told.append(torch.get_num_threads())
        return super().step(sent, delta, state)


@pytest.mark.parametrize(
    "name, own, threads",
    [
        pytest.param("sequential", 1, 1, marks=pytest.mark.full),
        ("sequential", 2, 2),
        ("workers", 2, 1),
    ],
)
def test_the_servers_half_of_a_round_has_no_threads_that_the_clients_half_has_not(
    name: str, own: int, threads: int
) -> None:
    """A second thread that waits for work takes milliseconds where cores are busy, for a sum of microseconds."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        server = Counting()
        after(federation(engine=replace(ENGINES[name], threads=own), server=server), 1)
        assert server.told == [threads] and torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
