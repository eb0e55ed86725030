"""The contract of executors, which each one and any user's own passes: every place once, in order, whatever happens."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from worlds import ENGINES, SEQUENTIAL, SIZES, SPAWNED, after, data, federation, mlp, snapshot

from fedsash.arrays import Ints
from fedsash.data.tasks import Classification
from fedsash.engines import Engine, Work
from fedsash.exchange import Answers, Executor, Missing, Part, Reply, Request
from fedsash.federation import Federation
from fedsash.methods import Local, Method, Scaffold, Upload
from fedsash.sampling import Uniform
from fedsash.sums import Sums

EVERYBODY = Uniform(len(SIZES))


class OneByOne(Executor):
    """A user's executor: a trainer that answers for one client at a time."""

    def __init__(self, work: Work) -> None:
        self._trainer = work.trainer(False, "contiguous")

    def work(self, request: Request) -> Answers:
        for place in range(len(request.ids)):
            yield self._trainer.answer(request.only(slice(place, place + 1)), np.array([place]))


@dataclass(frozen=True)
class Own(Engine):
    """A user's engine."""

    def open(self, work: Work, rounds: int | None = None) -> tuple[Executor, list[str]]:
        return OneByOne(work), ["engine: my own"]


class InParts(Executor):
    """An executor that sums its clients up where they are, the last piece first."""

    def __init__(self, work: Work, pieces: int) -> None:
        self._work, self._pieces = work, pieces
        self._trainer = work.trainer(False, "contiguous")

    def work(self, request: Request) -> Answers:
        training = self._work.training
        whole = Sums.of(request, training.aggregation, training.method, self._work.data.sizes, self._pieces)
        parts: dict[int, Part] = {}
        for number in reversed(range(min(self._pieces, len(request.ids)))):
            places, sums = whole.piece(number)
            for place in places:
                sums.take(self._trainer.answer(request.only(np.array([place])), np.array([place])))
            parts[number] = sums.part()
        yield from (parts[number] for number in sorted(parts))


@dataclass(frozen=True)
class Cluster(Engine):
    """An engine that answers with parts."""

    def open(self, work: Work, rounds: int | None = None) -> tuple[Executor, list[str]]:
        return InParts(work, self.pieces), []


ALL = ENGINES | {"own": Own(), "spawned": SPAWNED}
EACH = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "spawned" else ()) for name in ALL]
)
"""Spawned workers take seconds to start."""


def request_of(world: Federation, method_round: int = 0) -> Request:
    return world.ask(replace(world.start(), round=method_round))


def answers(world: Federation, request: Request) -> list[Reply]:
    found = list(world.executor.work(request))
    assert all(isinstance(answer, Reply) for answer in found)
    return found  # type: ignore[return-value]


@EACH
def test_every_place_is_answered_once_in_the_rounds_order(name: str) -> None:
    with federation(engine=ALL[name], sampling=EVERYBODY, method=Scaffold()) as world:
        request = request_of(world)
        found = answers(world, request)
        assert np.concatenate([reply.places for reply in found]).tolist() == list(range(len(SIZES)))
        for reply in found:
            count = len(reply.places)
            tensors = [*reply.upload.values(), *reply.clients.values(), reply.norms]
            assert {len(t) for t in tensors} == {len(reply.effort.samples)} == {len(reply.effort.steps)} == {count}
            assert reply.effort.samples.tolist() == (2 * np.array(SIZES)[request.ids[reply.places]]).tolist()
            assert reply.effort.steps.tolist() == (2 * -(-np.array(SIZES)[request.ids[reply.places]] // 5)).tolist()


@EACH
def test_an_answer_is_not_written_to_again(name: str) -> None:
    """Neither by the answers after it, nor by the next request, and the request stays as it was."""
    with federation(engine=ALL[name], sampling=EVERYBODY, method=Scaffold()) as world:
        request, other = request_of(world), request_of(world, 1)
        sent, state = request.sent.clone(), {name: rows.clone() for name, rows in (request.clients or {}).items()}
        first = answers(world, request)
        kept = [{name: value.clone() for name, value in (reply.upload | reply.clients).items()} for reply in first]
        answers(world, other)
        for reply, before in zip(first, kept, strict=True):
            assert all(torch.equal(value, before[name]) for name, value in (reply.upload | reply.clients).items())
        assert torch.equal(request.sent, sent)
        assert all(torch.equal(rows, state[name]) for name, rows in (request.clients or {}).items())


@EACH
@pytest.mark.parametrize("taken", [0, 1])
def test_a_request_that_is_given_up_leaves_no_trace(name: str, taken: int) -> None:
    """The next request is answered as if it were the first, also while the old iterator is still there."""
    with federation(engine=ALL[name], sampling=EVERYBODY) as world:
        expected = [reply.upload["delta"] for reply in answers(world, request_of(world, 1))]
        given_up = world.executor.work(request_of(world))
        for _ in range(taken):
            next(given_up)
        again = [reply.upload["delta"] for reply in answers(world, request_of(world, 1))]
        assert all(map(torch.equal, again, expected))
        given_up.close()
        again = [reply.upload["delta"] for reply in answers(world, request_of(world, 1))]
        assert all(map(torch.equal, again, expected))


@EACH
def test_ctrl_c_in_the_middle_of_a_round_of_ones_own_loop_does_not_change_the_next(name: str) -> None:
    """`Federation.round` without a runner around it: what is interrupted is done again from the state before."""
    whole, inside, interrupted = after(federation(engine=ALL[name]), 3).w, False, 0

    def interrupt(number: int, frame: object) -> None:
        if inside:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with federation(engine=ALL[name]) as world:
            state = world.start()
            world.prepare()
            while state.round < 3:
                timer = threading.Timer(0.001 * (1 + interrupted), os.kill, (os.getpid(), signal.SIGUSR1))
                try:
                    inside = interrupted < 6
                    timer.start()
                    after_it, _ = world.round(state)
                    inside = False
                except KeyboardInterrupt:
                    inside, interrupted = False, interrupted + 1
                else:
                    state = after_it
                timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert torch.equal(state.w, whole) and interrupted > 0


def loss_that_fails(output: Tensor, y: Tensor) -> Tensor:
    if len(y) == 4:  # the last batch of the client with nine samples
        raise RuntimeError("this batch can't be learned")
    return Classification().loss(output, y)


@pytest.mark.parametrize("name", ["sequential", "workers", "own"])
def test_an_exception_names_its_clients_and_the_next_request_is_answered(name: str) -> None:
    with federation(engine=ALL[name], loss=loss_that_fails, sampling=EVERYBODY) as world:
        request = replace(request_of(world), ids=np.array([2, 5]), last=np.zeros(2, dtype=np.int64))
        expected = [reply.upload["delta"] for reply in answers(world, request)]
        with pytest.raises(RuntimeError, match="can't be learned") as error:
            answers(world, request_of(world))
        assert any("clients [4]" in note and "round 0" in note for note in error.value.__notes__)
        assert all(map(torch.equal, [reply.upload["delta"] for reply in answers(world, request)], expected))


@pytest.mark.timeout(120)
def test_spawned_workers_give_the_bytes_of_forked_ones() -> None:
    settings: Any = {"method": Scaffold(), "sampling": EVERYBODY}
    spawned, forked = (after(federation(**settings, engine=engine), 3) for engine in (SPAWNED, ENGINES["workers"]))
    assert snapshot(spawned) == snapshot(forked)


def test_what_cannot_be_sent_to_a_spawned_worker_is_refused_in_a_line() -> None:
    def local(output: Tensor, y: Tensor) -> Tensor:
        return Classification().loss(output, y)

    with pytest.raises(ValueError, match=r"^Federation.loss = .*: can't be sent to another process .*top of a module$"):
        federation(engine=SPAWNED, loss=local).prepare()


# Shards: who holds some of the clients draws what he would among all.


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
        request = Request("train", 0, one, part.start().w, {}, {}, np.zeros_like(one))
        with pytest.raises(ValueError, match=r"clients = \[4\]: their samples are not held here"):
            list(part.executor.work(request))


def test_a_shard_holds_out_what_the_whole_holds_out() -> None:
    whole = data().hold_out(0.4, seed=3)
    for numbers in ([0, 3, 4], [1, 2, 5]):
        shard = data().shard(numbers).hold_out(0.4, seed=3)
        assert [own.tolist() for own in shard.held] == [whole.held[i].tolist() for i in numbers]
        assert [own.tolist() for own in shard.clients] == [whole.clients[i].tolist() for i in numbers]


# Pieces: the bytes depend on their number, and on nothing else.


@pytest.mark.parametrize("pieces", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("method", [Scaffold(), Scaffold("I")])
def test_parts_summed_elsewhere_give_the_bytes_of_replies_at_the_same_pieces(pieces: int, method: Method) -> None:
    settings: Any = {"method": method, "sampling": EVERYBODY}
    replies = after(federation(**settings, engine=replace(SEQUENTIAL, pieces=pieces)), 4)
    parts = after(federation(**settings, engine=Cluster(pieces=pieces)), 4)
    assert snapshot(parts) == snapshot(replies)
    workers = after(federation(**settings, engine=replace(ENGINES["workers"], pieces=pieces)), 4)
    assert snapshot(workers) == snapshot(replies)
    one = after(federation(**settings, engine=SEQUENTIAL), 4).w
    torch.testing.assert_close(replies.w, one, rtol=0, atol=1e-14)


# Who does not answer.


@dataclass(frozen=True)
class Absent(Engine):
    """The clients `who` never answer to the job."""

    who: tuple[int, ...] = ()
    job: str = "train"

    def open(self, work: Work, rounds: int | None = None) -> tuple[Executor, list[str]]:
        return Without(work, self), []


class Without(OneByOne):
    def __init__(self, work: Work, engine: Absent) -> None:
        super().__init__(work)
        self._engine = engine

    def work(self, request: Request) -> Answers:
        away = np.isin(request.ids, self._engine.who) & (request.job == self._engine.job)
        if away.any():
            yield Missing(np.flatnonzero(away), "late")
        here = np.flatnonzero(~away)
        for reply in super().work(request.only(here)):
            assert isinstance(reply, Reply)
            yield replace(reply, places=here[reply.places])


def ids_without(who: tuple[int, ...]) -> Ints:
    return np.setdiff1d(np.arange(len(SIZES)), who)


@pytest.mark.parametrize("method", [Scaffold(), Scaffold("I")])
def test_a_round_with_missing_clients_is_the_round_of_those_that_answered(method: Method) -> None:
    who = (1, 4)
    with federation(method=method, engine=Absent(who=who), sampling=EVERYBODY) as world:
        state, outcome = world.round(world.start())
    assert outcome.missing == {1: "late", 4: "late"} and outcome.clients.tolist() == list(range(6))
    assert outcome.samples == 2 * sum(SIZES[i] for i in ids_without(who))
    with federation(method=method, sampling=EVERYBODY) as world:
        first = world.start()
        request = world.ask(first, ids=ids_without(who))
        expected, _ = world.finish(first, request, world.collect(request))
    torch.testing.assert_close(state.w, expected.w, rtol=0, atol=1e-15)
    torch.testing.assert_close(state.shared["c"], state.mine["c"].mean(0), rtol=0, atol=1e-15)
    assert state.last.tolist() == [1, 0, 1, 1, 0, 1] == expected.last.tolist()


def test_when_nobody_answers_the_round_is_skipped() -> None:
    with federation(engine=Absent(who=tuple(range(6)))) as world:
        state, outcome = world.round(world.start())
    assert outcome.skipped == "nobody answered" and not outcome.moved and state.round == 1
    assert torch.equal(state.w, world.start().w) and state.last.tolist() == [0] * 6


@pytest.mark.parametrize("who", [(2,), (0, 3, 5), tuple(range(6))])
def test_who_misses_the_probe_is_not_asked_to_train(who: tuple[int, ...]) -> None:
    from fedsash.methods import Mime

    with federation(method=Mime(), engine=Absent(who=who, job="probe"), sampling=EVERYBODY) as world:
        state, outcome = world.round(world.start())
    assert set(outcome.missing) == set(who)
    with federation(method=Mime(), sampling=EVERYBODY) as world:
        first = world.start()
        probe = world.ask(first, ids=ids_without(who))
        if len(probe.ids):
            probed = world.collect(probe)
            request = world.ask(first, probed=probed)
            first, _ = world.finish(first, request, world.collect(request), probed)
    torch.testing.assert_close(state.w, first.w, rtol=0, atol=1e-15)


@dataclass(frozen=True)
class Twice(Engine):
    """An engine with a mistake: it answers a place twice, or not at all."""

    times: int = 2

    def open(self, work: Work, rounds: int | None = None) -> tuple[Executor, list[str]]:
        return Careless(work, self.times), []


class Careless(OneByOne):
    def __init__(self, work: Work, times: int) -> None:
        super().__init__(work)
        self._times = times

    def work(self, request: Request) -> Answers:
        for answer in super().work(request):
            assert isinstance(answer, Reply)
            yield from [answer] * (self._times if answer.places[0] == 1 else 1)


@pytest.mark.parametrize(("times", "why"), [(2, "again, or too late"), (0, "every place must be answered")])
def test_an_executor_that_forgets_or_repeats_a_client_is_told_so(times: int, why: str) -> None:
    with federation(engine=Twice(times=times)) as world, pytest.raises(RuntimeError, match=why):
        world.round(world.start())


# What a method may say before the training.


@dataclass(frozen=True)
class Silent(Method):
    """A method that overrides `probe` and has nothing to ask."""

    def probe(self, local: Local) -> Upload:
        return {}


@EACH
def test_a_probe_that_sends_nothing_changes_nothing(name: str) -> None:
    silent = after(federation(method=Silent(), engine=ALL[name]), 3).w
    assert torch.equal(silent, after(federation(engine=ALL[name]), 3).w)
