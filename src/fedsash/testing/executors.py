"""The contract of executors and clients: every place is answered once and in order, also after failures."""

from __future__ import annotations

import copy
import multiprocessing
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..client.messages import Answer, Executor, Missing, PartialSum, Reply, Request
from ..engines import Engine
from ..engines.clients import Clients
from ..evaluation import Evaluation
from ..methods import LocalRun, Method, Scaffold, Upload
from ..methods.sampling import Uniform
from ..server.federation import Federation
from ..vector.arrays import Vectors
from .equality import close, expect, identical, in_one_sentence, record
from .worlds import SEQUENTIAL, SIZES, after, small_data, small_federation, small_model


def check_clients(clients: Clients, model: nn.Module, **settings: Any) -> None:
    """Check that clients keep the contract of `Clients`, in a federation that trains `model` on the CPU.

    - `sizes` are int64 `[N]` and positive, and do not change. They are the sizes of `data`, if there are any.
    - The fingerprint holds texts by name, and is the same each time.
    - `settled` returns clients of the same sizes, with any description of an executor.
    - Their executor answers every place of a request exactly once.
    - A run can be repeated bitwise, also after the server is set back by two rounds. If clients keep their own state,
      they keep it by version, and no request contains any.

    `settings` are those of a `Federation`. Raises `AssertionError` that names the part of the contract.
    """
    with in_one_sentence(type(clients).__name__):
        name = type(clients).__name__
        sizes = clients.sizes
        expect(
            sizes.dtype == np.int64 and sizes.ndim == 1 and bool((sizes > 0).all()),
            name,
            "sizes must be one int64 array of positive numbers",
        )
        expect(
            clients.data is None or clients.data.sizes.tolist() == sizes.tolist(), name, "sizes must be those of data"
        )
        defaults: dict[str, Any] = {"sampling": Uniform(len(sizes)), "device": "cpu"}
        world = Federation(model, clients, **defaults | settings)
        with world:
            expect(isinstance(world.executor, Executor), name, "open must return an Executor")
            settled = clients.settled(world.described()).sizes.tolist()
            expect(settled == sizes.tolist(), name, "settled must return clients of the same sizes")
            request = first_request(world)
            training = world.training()
            found = clients.fingerprint(training)
            texts = all(isinstance(text, str) for text in (*found, *found.values()))
            same = clients.fingerprint(training) == found
            expect(texts and same, name, "the fingerprint must hold the same texts each time")
            places = [place for answer in world.executor.work(request) for place in answer.places.tolist()]
            expect(sorted(places) == [*range(len(request.ids))], name, "every place must be answered exactly once")
            some = request.only(np.arange(0, len(request.ids), 2))
            places = [place for answer in world.executor.work(some) for place in answer.places.tolist()]
            right = "every place must be answered exactly once, and only those of clients that are asked"
            expect(sorted(places) == [*range(len(some.ids))], name, right)
            expect(
                not clients.remember or not world.start().client_state,
                name,
                "clients that keep their own state must be sent none",
            )
            _set_back(world, name)


def _set_back(world: Federation, name: str) -> None:
    state = world.start()
    for _ in range(2):
        state, _ = world.round(state)
    saved = copy.deepcopy(state)
    for _ in range(2):
        state, _ = world.round(state)
    for _ in range(2):
        saved, _ = world.round(saved)
    expect(identical(saved, state), name, "after a server is set back, the run must be repeated bitwise")
    again = world.start()
    for _ in range(4):
        again, _ = world.round(again)
    expect(identical(again, state), name, "a run must be repeated bitwise")


EVERYBODY = Uniform(len(SIZES))


def check_executor(engine: Engine, tolerance: float = 1e-13) -> None:
    """Check that the executors which an engine opens keep the contract of `Executor`, on the small federation.

    - Every place of a request is answered exactly once, in the round's order, with the samples and steps trained on.
    - A request is not changed, and an answer stays as it is until the next request.
    - A request that is cancelled, before or after its first answer, does not affect the next request.
    - An exception in a client's training names its clients and the round. The next request is answered.
    - A method whose `probe` sends nothing trains like a method without one.
    - An executor with a shard of the clients answers for them like one with all clients, and refuses others by name.
    - A run can be repeated bitwise. Its numbers, and those of an evaluation at the clients, differ by at most
      `tolerance` from those of one client at a time in this process (float64, with the engine's number of pieces).
    - `close` ends all processes.

    Raises `AssertionError` that names the part of the contract. All arguments can be sent to other processes.
    """
    with in_one_sentence(engine):
        before = len(multiprocessing.active_children())
        for check in (_places, _fresh, _given_up, _exceptions, _probes, _shards):
            check(engine)
        _numbers(engine, tolerance)
        expect(len(multiprocessing.active_children()) <= before, engine, "close must end all processes")


def first_request(world: Federation, round: int = 0) -> Request:
    """The request to the clients of `round` from the federation's first state."""
    return world.ask(replace(world.start(), round=round))


def _world(engine: Engine, **settings: Any) -> Federation:
    return small_federation(**{"engine": engine, "sampling": EVERYBODY} | settings)


def _places(engine: Engine) -> None:
    with _world(engine, method=Scaffold()) as world:
        request = first_request(world)
        found = list(world.executor.work(request))
    places = [place for answer in found for place in answer.places.tolist()]
    expect(sorted(places) == [*range(len(SIZES))], engine, "every place must be answered exactly once")
    uploaded = [place for answer in found if isinstance(answer, Reply) for place in answer.places.tolist()]
    expect(uploaded == sorted(uploaded), engine, "uploads must come in the round's order")
    for reply in found:
        if isinstance(reply, Reply):
            sizes = np.array(SIZES)[request.ids[reply.places]]
            rows = {len(t) for t in (*reply.upload.values(), *reply.client_state.values(), reply.norms)}
            expect(rows == {len(sizes)}, engine, "a reply must have one row for each of its places")
            effort = reply.effort.samples.tolist(), reply.effort.steps.tolist()
            made = (2 * sizes).tolist(), (2 * -(-sizes // 5)).tolist()
            expect(effort == made, engine, "a reply must report the samples and the steps that were trained on")


def _fresh(engine: Engine) -> None:
    with _world(engine, method=Scaffold()) as world:
        request = first_request(world)
        asked = record(_content(request))
        first = []
        kept = []
        for answer in world.executor.work(request):
            first.append(_content(answer))
            kept.append(record(first[-1]))
        same = all(map(identical, first, kept))
        expect(same, engine, "an answer must stay as it is until the next request")
        expect(identical(_content(request), asked), engine, "a request must not be changed")


def _given_up(engine: Engine) -> None:
    with _world(engine) as world:
        expected = _mean(world, first_request(world, 1))
        for taken in (0, 1):
            given_up = world.executor.work(first_request(world))
            for _ in range(taken):
                next(given_up)
            for when in ("is not closed yet", "is closed"):
                same = identical(_mean(world, first_request(world, 1)), expected)
                expect(same, engine, f"a request that was cancelled and {when} must not affect the next")
                given_up.close()


@dataclass(frozen=True)
class Failing(Method):
    """A method whose training fails at the client with nine samples."""

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        if bool((local.size == 9).any()):
            raise RuntimeError("this client can't be trained")
        return super().upload(local)


def _exceptions(engine: Engine) -> None:
    with _world(engine, method=Failing()) as world:
        others = first_request(world).only(np.array([2, 5]))
        expected = _mean(world, others)
        notes: list[str] = []
        try:
            _mean(world, first_request(world))
        except RuntimeError as error:
            notes = getattr(error, "__notes__", [])
        named = [re.search(r"clients \[([\d, ]+)\].*round 1", note) for note in notes]
        right = any(match and "4" in match[1].split(", ") for match in named)
        expect(right, engine, "an exception in training must be raised with a note that names clients and round")
        expect(
            identical(_mean(world, others), expected), engine, "after an exception the next request must be answered"
        )


@dataclass(frozen=True)
class Silent(Method):
    """A method whose `probe` sends nothing."""

    def probe(self, local: LocalRun) -> Upload:
        return {}


def _probes(engine: Engine) -> None:
    silent = after(_world(engine, method=Silent()), 2)
    expect(identical(silent, after(_world(engine), 2)), engine, "a probe that sends nothing must change nothing")


def _shards(engine: Engine) -> None:
    settings: dict[str, Any] = {"model": small_model(dropout=0.3), "method": Scaffold()}
    with _world(engine, **settings) as whole:
        request = first_request(whole)
        expected = dict(_deltas(whole, request))
        if not expected:  # partial sums: there are no replies to compare
            return
        for numbers in ([0, 3, 4], [1, 2, 5]):
            held = settings | {"data": small_data().shard(numbers), "sampling": Uniform(len(numbers))}
            with _world(engine, **held) as part:
                found = dict(_deltas(part, request.only(np.array(numbers))))
                own = {number: expected[number] for number in numbers if number in expected}
                expect(
                    close(found, own, 1e-15),
                    engine,
                    "a shard of the clients must make the same draws as the whole federation",
                )
                stranger = next(i for i in range(len(SIZES)) if i not in numbers)
                expect(
                    _refuses(part, request.only(np.array([stranger]))),
                    engine,
                    "an executor that does not hold a client must raise ValueError that names it",
                )


def _refuses(world: Federation, request: Request) -> bool:
    try:
        list(world.executor.work(request))
    except ValueError as error:
        return str(request.ids.tolist()) in str(error)
    return False


def _numbers(engine: Engine, tolerance: float) -> None:
    settings: dict[str, Any] = {"method": Scaffold(), "sampling": Uniform(4), "evaluation": Evaluation(clients=True)}
    one = _world(replace(SEQUENTIAL, pieces=engine.pieces), **settings)
    mine = _world(engine, **settings)
    reference = after(one, 3)
    state = after(mine, 3)
    expect(close(reference, state, tolerance), engine, "a run must have the numbers of one client at a time")
    expect(identical(state, after(mine, 3)), engine, "a run must be repeated bitwise")
    with one, mine:
        same = close(one.evaluate(reference), mine.evaluate(state), max(tolerance, 1e-12))
        expect(same, engine, "an evaluation at the clients must have the numbers of one process")


def _mean(world: Federation, request: Request) -> Vectors:
    """The means of the clients' uploads."""
    return world.collect(request).mean()


def _deltas(world: Federation, request: Request) -> Iterator[tuple[int, Tensor]]:
    """The update of each client with its number, from an executor that answers with replies."""
    for answer in world.executor.work(request):
        if isinstance(answer, Reply):
            yield from zip(request.ids[answer.places].tolist(), answer.upload["delta"], strict=True)


def _content(value: Request | Answer) -> dict[str, Any]:
    """The tensors of a request or an answer."""
    if isinstance(value, Request):
        return {"sent": value.sent, "server_state": value.server_state, "client_state": value.clients.own}
    if isinstance(value, Missing):
        return {}
    sums = {"sums": value.sums} if isinstance(value, PartialSum) else {"upload": value.upload, "norms": value.norms}
    return sums | {"client_state": value.client_state}
