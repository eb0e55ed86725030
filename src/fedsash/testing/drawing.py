"""Identities of samplings, schedules and partitions, which are pure functions of their arguments."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..client import LocalTraining
from ..methods.sampling import Sampling
from ..methods.schedules import LocalSchedule, Schedule
from ..vector.arrays import Ints
from .equality import expect, identical, in_one_sentence, record
from .federations import check_federation
from .worlds import SIZES

ROUNDS = 30
SEED = 3


def check_sampling(sampling: Sampling, sizes: Sequence[int] = SIZES, **settings: Any) -> None:
    """Check that a sampling keeps the identities of every sampling in `SAMPLINGS`, for clients of these sizes.

    - A round's clients are distinct ids, int64, in ascending order, and among the clients that are asked.
    - It is a pure function of (round, sizes, seed): rounds may be drawn in any order, and `sizes` are not changed.
    - It keeps the identities of `check_federation`, if it fits the small federation's six clients.

    `settings` are those of a `Federation`. Raises `AssertionError` that names the identity.
    """
    with in_one_sentence(sampling):
        sizes_of_clients = np.array(sizes, dtype=np.int64)
        fresh_copy = copy.deepcopy(sampling)  # which remembers nothing of the first draws
        ids_of_rounds = [sampling.clients(round, sizes_of_clients, SEED) for round in range(ROUNDS)]
        for round, ids in enumerate(ids_of_rounds):
            is_ascending = ids.dtype == np.int64 and identical(np.unique(ids), ids)
            message = f"round {round} must have distinct client ids, int64 and ascending, not {ids}"
            expect(is_ascending, sampling, message)
            asked = sampling.draw(round, sizes_of_clients, SEED)
            expect(np.isin(ids, asked).all(), sampling, "only clients that are asked may answer")
        for round in reversed(range(ROUNDS)):
            is_same = identical(fresh_copy.clients(round, sizes_of_clients, SEED), ids_of_rounds[round])
            expect(is_same, sampling, "it must be a pure function: the same clients in any order of rounds")
        expect(sizes_of_clients.tolist() == list(sizes), sampling, "it must not change the sizes")
        if len(sizes) == len(SIZES):
            parts: dict[str, Any] = {"sampling": sampling}
            check_federation(**parts | settings)


def check_schedule(schedule: Schedule, **settings: Any) -> None:
    """Check that a schedule by round keeps the identities of every schedule in `SCHEDULES`.

    - Rates are finite and not negative. Numbers of epochs are integers of at least 1.
    - It is a pure function of (round, rate), so rounds may be asked for in any order.
    - `moves_epochs` says whether it changes the number of epochs.
    - It keeps the identities of `check_federation`.

    `settings` are those of a `Federation`. Raises `AssertionError` that names the identity.
    """
    with in_one_sentence(schedule):
        rates = [schedule.lr(round, 0.1) for round in range(ROUNDS)]
        epochs = [schedule.epochs(round, 5) for round in range(ROUNDS)]
        for rate in rates:
            expect(math.isfinite(rate) and rate >= 0, schedule, "a rate must be finite and not negative")
        for number in epochs:
            is_whole = type(number) is int
            expect(is_whole and number >= 1, schedule, "a number of epochs must be whole and at least 1")
        for round in reversed(range(ROUNDS)):
            rate = schedule.lr(round, 0.1)
            number = schedule.epochs(round, 5)
            is_same = rate == rates[round] and number == epochs[round]
            expect(is_same, schedule, "it must be a pure function")
        is_constant = set(epochs) == {5}
        message = "moves_epochs must say that it changes the number of epochs"
        expect(is_constant or schedule.moves_epochs, schedule, message)
        parts: dict[str, Any] = {"local": LocalTraining(lr=0.1, batch=5, epochs=2, schedule=schedule)}
        check_federation(**parts | settings)


def check_local_schedule(schedule: LocalSchedule, **settings: Any) -> None:
    """Check that a schedule by local step keeps the identities of every one in `LOCAL_SCHEDULES`.

    - The factors `[C, K]` of all local steps are finite and not negative.
    - C clients together have the same factors as each client alone.
    - It keeps the identities of `check_federation`.

    `settings` are those of a `Federation`. Raises `AssertionError` that names the identity.
    """
    with in_one_sentence(schedule):
        k = np.arange(8)
        steps = np.array([[8], [3], [1]])
        together = schedule.factors(k, steps)
        expect(together.shape == (3, 8), schedule, "k [8] and steps [3, 1] must give factors [3, 8]")
        factors_of_steps = together[k < steps]  # a client takes no step after its last
        is_valid = bool(np.isfinite(factors_of_steps).all() and (factors_of_steps >= 0).all())
        expect(is_valid, schedule, "a factor must be finite and not negative")
        alone = np.concatenate([schedule.factors(k, steps[[client]]) for client in range(3)])
        expect(identical(together, alone), schedule, "clients together must have the factors of each client alone")
        parts: dict[str, Any] = {"local": LocalTraining(lr=0.1, batch=5, epochs=2, local_schedule=schedule)}
        check_federation(**parts | settings)


def check_partition(rule: Callable[..., Sequence[Ints]], *arrays: Any) -> None:
    """Check that a partition keeps the identities of every partition in `PARTITIONS`.

    - Every client has at least one sample. All indices are integers, and those of samples.
    - If it has a field `clients` that is a number, there are so many of them.
    - It is a pure function of its arguments and the seed, and does not change its arguments.

    It is not asked whether every sample is dealt out, and none twice: some partitions leave samples out or use them
    again. The rule is called with the `arrays` `[n]` and then the seed. The default is one array, labels of five
    classes for 600 samples. Raises `AssertionError` that names the identity.
    """
    with in_one_sentence(rule):
        arrays = arrays or (np.random.default_rng(0).integers(0, 5, 600),)
        samples = len(arrays[0])
        before = record(arrays)
        fresh_copy = copy.deepcopy(rule)  # which remembers nothing of the first one's calls
        for seed in range(3):
            clients = _partition(rule, arrays, seed)
            for indices in clients:
                is_valid = indices.ndim == 1 and len(indices) > 0 and indices.dtype.kind in "iu"
                expect(is_valid, rule, "every client must have at least one sample, by integer indices")
            count = getattr(rule, "clients", None)
            message = f"it must give as many clients as its field says, not {len(clients)}"
            expect(not isinstance(count, int) or count == len(clients), rule, message)
            indices = np.concatenate(clients)
            expect(indices.min() >= 0 and indices.max() < samples, rule, "indices must be those of samples")
            is_same = identical(clients, _partition(fresh_copy, arrays, seed))
            expect(is_same, rule, "it must be a pure function of labels and seed")
        expect(identical(arrays, before), rule, "it must not change its arguments")


def _partition(rule: Callable[..., Sequence[Ints]], arrays: tuple[Any, ...], seed: int) -> list[Ints]:
    """The indices of each client as arrays; a rule may give any sequence."""
    return [np.asarray(indices) for indices in rule(*arrays, seed)]
