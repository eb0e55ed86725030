"""The contract of executors: every place once, in order, whatever happens."""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from ..basics.arrays import Vectors
from ..evaluation import Evaluation
from ..exchange import Answer, Missing, PartialSum, Reply, Request
from ..executors import Engine
from ..federation import Federation
from ..methods import LocalRun, Method, Scaffold, Upload
from ..sampling import Uniform
from .equality import close, identical, record
from .expect import expect
from .worlds import SEQUENTIAL, SIZES, after, small_data, small_federation, small_model

EVERYBODY = Uniform(len(SIZES))


def check_executor(engine: Engine, tolerance: float = 1e-13) -> None:
    """Check that the executors which an engine opens keep the contract of `Executor`, on the small federation.

    - Every place of a request is answered exactly once, in the round's order, with the effort that was made.
    - An answer and its request are not written to afterwards.
    - A request that is given up, before or after its first answer, leaves no trace in the next.
    - An exception in a client's training names its clients and the round, and the next request is answered.
    - A method that overrides `probe` and asks for nothing trains as one that does not.
    - An executor that holds a shard of the clients answers for them as one that holds all, and names those of others.
    - A run repeats its bytes. Its numbers, and those of an evaluation at the clients, are within `tolerance` of one
      client after the other in this process (float64, at the engine's number of pieces).
    - `close` leaves no process behind.

    Raises `AssertionError` that names the part of the contract. Whatever it needs can be sent to another process.
    """
    before = len(multiprocessing.active_children())
    for check in (_places, _fresh, _given_up, _exceptions, _probes, _shards):
        check(engine)
    _numbers(engine, tolerance)
    expect(len(multiprocessing.active_children()) <= before, engine, "close must end all processes")


def first_request(world: Federation, round: int = 0) -> Request:
    """What the clients of `round` are asked in the world's first state."""
    return world.ask(replace(world.start(), round=round))


def _world(engine: Engine, **settings: Any) -> Federation:
    return small_federation(**{"engine": engine, "sampling": EVERYBODY} | settings)


def _places(engine: Engine) -> None:
    with _world(engine, method=Scaffold()) as world:
        request = first_request(world)
        found = list(world.executor.work(request))
    places = [place for answer in found for place in places_of(answer)]
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
        first = [*world.executor.work(request)]
        kept = record([_content(answer) for answer in first])
        for _ in world.executor.work(first_request(world, 1)):
            pass
        same = identical([_content(answer) for answer in first], kept)
        expect(same, engine, "an answer must not be written to again")
        expect(identical(_content(request), asked), engine, "a request must stay as it was")


def _given_up(engine: Engine) -> None:
    with _world(engine) as world:
        expected = _mean(world, first_request(world, 1))
        for taken in (0, 1):
            given_up = world.executor.work(first_request(world))
            for _ in range(taken):
                next(given_up)
            for when in ("is not closed yet", "is closed"):
                same = identical(_mean(world, first_request(world, 1)), expected)
                expect(same, engine, f"a request that was given up and {when} must leave no trace in the next")
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
        expect(right, engine, "an exception in training must be passed on with a note that names clients and round")
        expect(
            identical(_mean(world, others), expected), engine, "after an exception the next request must be answered"
        )


@dataclass(frozen=True)
class Silent(Method):
    """A method that overrides `probe` and has nothing to ask."""

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
        for numbers in ([0, 3, 4], [1, 2, 5]) if expected else ():  # an engine that answers with sums has no rows
            held = settings | {"data": small_data().shard(numbers), "sampling": Uniform(len(numbers))}
            with _world(engine, **held) as part:
                found = dict(_deltas(part, request.only(np.array(numbers))))
                own = {number: expected[number] for number in numbers if number in expected}
                expect(close(found, own, 1e-15), engine, "a shard of the clients must draw what the whole draws")
                stranger = next(i for i in range(len(SIZES)) if i not in numbers)
                expect(
                    _refuses(part, request.only(np.array([stranger]))),
                    engine,
                    "who does not hold a client must raise ValueError that names it",
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
    reference, state = after(one, 3), after(mine, 3)
    expect(close(reference, state, tolerance), engine, "a run must have the numbers of one client after the other")
    expect(identical(state, after(mine, 3)), engine, "a run must repeat its bytes")
    with one, mine:
        same = close(one.evaluate(reference), mine.evaluate(state), max(tolerance, 1e-12))
        expect(same, engine, "an evaluation at the clients must have the numbers of one process")


def _mean(world: Federation, request: Request) -> Vectors:
    """The means of what the clients send up."""
    return world.collect(request).mean()


def _deltas(world: Federation, request: Request) -> Iterator[tuple[int, Tensor]]:
    """The update of each client, by its number, where the executor answers with replies."""
    for answer in world.executor.work(request):
        if isinstance(answer, Reply):
            yield from zip(request.ids[answer.places].tolist(), answer.upload["delta"], strict=True)


def places_of(answer: Answer) -> list[int]:
    """The places that an answer is of."""
    if isinstance(answer, PartialSum):
        return [*answer.accepted.tolist(), *answer.refused.tolist(), *answer.missing]
    return [int(place) for place in answer.places]


def _content(value: Request | Answer) -> dict[str, Any]:
    """The tensors of a request or an answer."""
    if isinstance(value, Request):
        return {"sent": value.sent, "server_state": value.server_state, "client_state": value.client_state or {}}
    if isinstance(value, Missing):
        return {}
    sums = {"sums": value.sums} if isinstance(value, PartialSum) else {"upload": value.upload, "norms": value.norms}
    return sums | {"client_state": value.client_state}
