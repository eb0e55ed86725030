"""The contract of executors and clients: every place is answered once and in order, also after failures."""

from __future__ import annotations

import copy
import multiprocessing
import re
from collections.abc import Iterable
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
from ..server.state import State
from ..vector.arrays import Vectors
from .equality import close, expect, identical, in_one_sentence, record
from .worlds import BATCH, EPOCHS, SEQUENTIAL, SIZES, after, small_data, small_federation, small_model


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
        _check_sizes(clients, name)
        sizes = clients.sizes
        defaults: dict[str, Any] = {"sampling": Uniform(len(sizes)), "device": "cpu"}
        federation = Federation(model, clients, **defaults | settings)
        with federation:
            expect(isinstance(federation.executor, Executor), name, "open must return an Executor")
            settled = clients.settled(federation.described())
            expect(settled.sizes.tolist() == sizes.tolist(), name, "settled must return clients of the same sizes")
            request = first_request(federation)
            _check_fingerprint(clients, federation, name)
            is_answered = sorted(_places(federation.executor.work(request))) == [*range(len(request.ids))]
            expect(is_answered, name, "every place must be answered exactly once")
            every_other = request.only(np.arange(0, len(request.ids), 2))
            is_answered = sorted(_places(federation.executor.work(every_other))) == [*range(len(every_other.ids))]
            message = "every place must be answered exactly once, and only those of clients that are asked"
            expect(is_answered, name, message)
            if clients.remember:
                no_state = not federation.start().client_state
                expect(no_state, name, "clients that keep their own state must be sent none")
            _check_repeated(federation, name)


def _check_sizes(clients: Clients, name: str) -> None:
    sizes = clients.sizes
    is_valid = sizes.dtype == np.int64 and sizes.ndim == 1 and bool((sizes > 0).all())
    expect(is_valid, name, "sizes must be one int64 array of positive numbers")
    if clients.data is not None:
        expect(clients.data.sizes.tolist() == sizes.tolist(), name, "sizes must be those of data")


def _check_fingerprint(clients: Clients, federation: Federation, name: str) -> None:
    training = federation.training()
    fingerprint = clients.fingerprint(training)
    are_texts = all(isinstance(text, str) for text in (*fingerprint, *fingerprint.values()))
    is_same = clients.fingerprint(training) == fingerprint
    expect(are_texts and is_same, name, "the fingerprint must hold the same texts each time")


def _check_repeated(federation: Federation, name: str) -> None:
    """Check that rounds can be repeated, from the start and after the server is set back by two."""
    state = _after_rounds(federation, federation.start(), 2)
    saved = copy.deepcopy(state)
    state = _after_rounds(federation, state, 2)
    repeated = _after_rounds(federation, saved, 2)
    expect(identical(repeated, state), name, "after a server is set back, the run must be repeated bitwise")
    repeated = _after_rounds(federation, federation.start(), 4)
    expect(identical(repeated, state), name, "a run must be repeated bitwise")


def _after_rounds(federation: Federation, state: State, rounds: int) -> State:
    """The state after so many more rounds; other than `after`, it leaves the federation open."""
    for _ in range(rounds):
        state, _ = federation.round(state)
    return state


def _places(answers: Iterable[Answer]) -> list[int]:
    """The places in the request that are answered, in the order of the answers."""
    places: list[int] = []
    for answer in answers:
        places += answer.places.tolist()
    return places


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
        processes_before = len(multiprocessing.active_children())
        _check_places(engine)
        _check_unchanged(engine)
        _check_cancelled(engine)
        _check_exceptions(engine)
        _check_silent_probe(engine)
        _check_shards(engine)
        _check_numbers(engine, tolerance)
        processes = len(multiprocessing.active_children())
        expect(processes <= processes_before, engine, "close must end all processes")


def first_request(federation: Federation, round: int = 0) -> Request:
    """The request to the clients of `round` from the federation's first state."""
    return federation.ask(replace(federation.start(), round=round))


def _federation(engine: Engine, **settings: Any) -> Federation:
    parts: dict[str, Any] = {"engine": engine, "sampling": EVERYBODY}
    return small_federation(**parts | settings)


def _check_places(engine: Engine) -> None:
    with _federation(engine, method=Scaffold()) as federation:
        request = first_request(federation)
        answers = list(federation.executor.work(request))
    is_answered = sorted(_places(answers)) == [*range(len(SIZES))]
    expect(is_answered, engine, "every place must be answered exactly once")
    replies = [answer for answer in answers if isinstance(answer, Reply)]
    places = _places(replies)
    expect(places == sorted(places), engine, "uploads must come in the round's order")
    for reply in replies:
        sizes = np.array(SIZES)[request.ids[reply.places]]
        for tensor in (*reply.upload.values(), *reply.client_state.values(), reply.norms):
            expect(len(tensor) == len(sizes), engine, "a reply must have one row for each of its places")
        samples = EPOCHS * sizes
        steps = EPOCHS * -(-sizes // BATCH)
        reports_samples = reply.effort.samples.tolist() == samples.tolist()
        reports_steps = reply.effort.steps.tolist() == steps.tolist()
        message = "a reply must report the samples and the steps that were trained on"
        expect(reports_samples and reports_steps, engine, message)


def _check_unchanged(engine: Engine) -> None:
    with _federation(engine, method=Scaffold()) as federation:
        request = first_request(federation)
        request_before = record(_content(request))
        contents = []
        copies = []
        for answer in federation.executor.work(request):
            content = _content(answer)
            contents.append(content)
            copies.append(record(content))
        for content, copied in zip(contents, copies, strict=True):
            expect(identical(content, copied), engine, "an answer must stay as it is until the next request")
        expect(identical(_content(request), request_before), engine, "a request must not be changed")


def _check_cancelled(engine: Engine) -> None:
    with _federation(engine) as federation:
        expected = _mean(federation, first_request(federation, 1))
        for answers_heard in (0, 1):
            cancelled = federation.executor.work(first_request(federation))
            for _ in range(answers_heard):
                next(cancelled)
            for when in ("is not closed yet", "is closed"):
                is_same = identical(_mean(federation, first_request(federation, 1)), expected)
                expect(is_same, engine, f"a request that was cancelled and {when} must not affect the next")
                cancelled.close()


@dataclass(frozen=True)
class Failing(Method):
    """A method whose training fails at the client with nine samples."""

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        if bool((local.size == 9).any()):
            raise RuntimeError("this client can't be trained")
        return super().upload(local)


def _check_exceptions(engine: Engine) -> None:
    with _federation(engine, method=Failing()) as federation:
        without_failing = first_request(federation).only(np.array([2, 5]))
        expected = _mean(federation, without_failing)
        notes: list[str] = []
        try:
            _mean(federation, first_request(federation))
        except RuntimeError as error:
            notes = getattr(error, "__notes__", [])
        is_named = any(_names_failing_client(note) for note in notes)
        expect(is_named, engine, "an exception in training must be raised with a note that names clients and round")
        is_same = identical(_mean(federation, without_failing), expected)
        expect(is_same, engine, "after an exception the next request must be answered")


def _names_failing_client(note: str) -> bool:
    """Whether a note names the first round and, maybe among others, the client with nine samples."""
    match = re.search(r"clients \[([\d, ]+)\].*round 1", note)
    if match is None:
        return False
    clients = match[1].split(", ")
    return str(SIZES.index(9)) in clients


@dataclass(frozen=True)
class Silent(Method):
    """A method whose `probe` sends nothing."""

    def probe(self, local: LocalRun) -> Upload:
        return {}


def _check_silent_probe(engine: Engine) -> None:
    with_probe = after(_federation(engine, method=Silent()), 2)
    without_probe = after(_federation(engine), 2)
    expect(identical(with_probe, without_probe), engine, "a probe that sends nothing must change nothing")


def _check_shards(engine: Engine) -> None:
    settings: dict[str, Any] = {"model": small_model(dropout=0.3), "method": Scaffold()}
    with _federation(engine, **settings) as whole:
        request = first_request(whole)
        expected = _deltas(whole, request)
        if not expected:  # partial sums: there are no replies to compare
            return
        for shard, other_client in (([0, 3, 4], 1), ([1, 2, 5], 0)):
            of_shard = {"data": small_data().shard(shard), "sampling": Uniform(len(shard))}
            with _federation(engine, **settings | of_shard) as part:
                deltas = _deltas(part, request.only(np.array(shard)))
                expected_of_shard = {client: expected[client] for client in shard if client in expected}
                has_same_draws = close(deltas, expected_of_shard, 1e-15)
                message = "a shard of the clients must make the same draws as the whole federation"
                expect(has_same_draws, engine, message)
                is_refused = _refuses(part, request.only(np.array([other_client])))
                message = "an executor that does not hold a client must raise ValueError that names it"
                expect(is_refused, engine, message)


def _refuses(federation: Federation, request: Request) -> bool:
    """Whether a request raises `ValueError`, which names the clients."""
    try:
        list(federation.executor.work(request))
    except ValueError as error:
        return str(request.ids.tolist()) in str(error)
    return False


def _check_numbers(engine: Engine, tolerance: float) -> None:
    settings: dict[str, Any] = {"method": Scaffold(), "sampling": Uniform(4), "evaluation": Evaluation(clients=True)}
    reference = _federation(replace(SEQUENTIAL, pieces=engine.pieces), **settings)
    federation = _federation(engine, **settings)
    reference_state = after(reference, 3)
    state = after(federation, 3)
    expect(close(reference_state, state, tolerance), engine, "a run must have the numbers of one client at a time")
    expect(identical(state, after(federation, 3)), engine, "a run must be repeated bitwise")
    with reference, federation:
        expected = reference.evaluate(reference_state)
        is_close = close(expected, federation.evaluate(state), max(tolerance, 1e-12))
        expect(is_close, engine, "an evaluation at the clients must have the numbers of one process")


def _mean(federation: Federation, request: Request) -> Vectors:
    """The means of the clients' uploads."""
    return federation.collect(request).mean()


def _deltas(federation: Federation, request: Request) -> dict[int, Tensor]:
    """The update of each client by its number, from an executor that answers with replies."""
    deltas: dict[int, Tensor] = {}
    for answer in federation.executor.work(request):
        if isinstance(answer, Reply):
            clients = request.ids[answer.places].tolist()
            deltas.update(zip(clients, answer.upload["delta"], strict=True))
    return deltas


def _content(value: Request | Answer) -> dict[str, Any]:
    """The tensors of a request or an answer."""
    if isinstance(value, Request):
        return {"sent": value.sent, "server_state": value.server_state, "client_state": value.clients.own}
    if isinstance(value, Missing):
        return {}
    if isinstance(value, PartialSum):
        return {"sums": value.sums, "client_state": value.client_state}
    return {"upload": value.upload, "norms": value.norms, "client_state": value.client_state}
