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


def check_sampling(sampling: Sampling, sizes: Sequence[int] = SIZES, **settings: Any) -> None:
    """Check that a sampling keeps the identities of every sampling in `SAMPLINGS`, for clients of these sizes.

    - A round's clients are distinct ids, int64, in ascending order, and among the clients that are asked.
    - It is a pure function of (round, sizes, seed): rounds may be drawn in any order, and `sizes` are not changed.
    - It keeps the identities of `check_federation`, if it fits the small federation's six clients.

    `settings` are those of a `Federation`. Raises `AssertionError` that names the identity.
    """
    with in_one_sentence(sampling):
        given = np.array(sizes, dtype=np.int64)
        other = copy.deepcopy(sampling)  # which remembers nothing of the first draws
        drawn = {round: sampling.clients(round, given, 3) for round in range(ROUNDS)}
        for round, ids in drawn.items():
            valid = ids.dtype == np.int64 and identical(np.unique(ids), ids)
            expect(valid, sampling, f"round {round} must have distinct client ids, int64 and ascending, not {ids}")
            asked = sampling.draw(round, given, 3)
            expect(np.isin(ids, asked).all(), sampling, "only clients that are asked may answer")
        again = {round: other.clients(round, given, 3) for round in reversed(range(ROUNDS))}
        expect(identical(drawn, again), sampling, "it must be a pure function: the same clients in any order of rounds")
        expect(given.tolist() == list(sizes), sampling, "it must not change the sizes")
        if len(sizes) == len(SIZES):
            check_federation(**{"sampling": sampling} | settings)


def check_schedule(schedule: Schedule, **settings: Any) -> None:
    """Check that a schedule by round keeps the identities of every schedule in `SCHEDULES`.

    - Rates are finite and not negative. Numbers of epochs are integers of at least 1.
    - It is a pure function of (round, rate), so rounds may be asked for in any order.
    - `moves_epochs` says whether it changes the number of epochs.
    - It keeps the identities of `check_federation`.

    `settings` are those of a `Federation`. Raises `AssertionError` that names the identity.
    """
    with in_one_sentence(schedule):
        rates = {t: schedule.lr(t, 0.1) for t in range(ROUNDS)}
        epochs = {t: schedule.epochs(t, 5) for t in range(ROUNDS)}
        valid = all(math.isfinite(rate) and rate >= 0 for rate in rates.values())
        expect(valid, schedule, "a rate must be finite and not negative")
        expect(
            all(type(number) is int and number >= 1 for number in epochs.values()),
            schedule,
            "a number of epochs must be whole and at least 1",
        )
        again = {t: (schedule.lr(t, 0.1), schedule.epochs(t, 5)) for t in reversed(range(ROUNDS))}
        expect(again == {t: (rates[t], epochs[t]) for t in range(ROUNDS)}, schedule, "it must be a pure function")
        still = set(epochs.values()) == {5}
        expect(still or schedule.moves_epochs, schedule, "moves_epochs must say that it changes the number of epochs")
        check_federation(**{"local": LocalTraining(lr=0.1, batch=5, epochs=2, schedule=schedule)} | settings)


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
        taken = together[k < steps]
        expect(
            bool(np.isfinite(taken).all() and (taken >= 0).all()), schedule, "a factor must be finite and not negative"
        )
        alone = np.concatenate([schedule.factors(k, steps[[client]]) for client in range(3)])
        expect(identical(together, alone), schedule, "clients together must have the factors of each client alone")
        check_federation(**{"local": LocalTraining(lr=0.1, batch=5, epochs=2, local_schedule=schedule)} | settings)


def check_partition(rule: Callable[..., Sequence[Ints]], *given: Any) -> None:
    """Check that a partition keeps the identities of every partition in `PARTITIONS`.

    - Every client has at least one sample. All indices are integers, and those of samples.
    - If it has a field `clients` that is a number, there are so many of them.
    - It is a pure function of its arguments and the seed, and does not change its arguments.

    It is not asked whether every sample is dealt out, and none twice: some partitions leave samples out or use them
    again. `given` are the arrays `[n]` that the rule is called with, before the seed. The default is labels of five
    classes for 600 samples. Raises `AssertionError` that names the identity.
    """
    with in_one_sentence(rule):
        given = given or (np.random.default_rng(0).integers(0, 5, 600),)
        before = record(given)
        other = copy.deepcopy(rule)  # which remembers nothing of the first one's calls
        for seed in range(3):
            clients = _dealt(rule, given, seed)
            whole = all(own.ndim == 1 and len(own) > 0 and own.dtype.kind in "iu" for own in clients)
            expect(whole, rule, "every client must have at least one sample, by integer indices")
            said = getattr(rule, "clients", None)
            right = f"it must give as many clients as its field says, not {len(clients)}"
            expect(not isinstance(said, int) or said == len(clients), rule, right)
            indices = np.concatenate(clients)
            expect(indices.min() >= 0 and indices.max() < len(given[0]), rule, "indices must be those of samples")
            expect(
                identical(clients, _dealt(other, given, seed)), rule, "it must be a pure function of labels and seed"
            )
        expect(identical(given, before), rule, "it must not change its arguments")


def _dealt(rule: Callable[..., Sequence[Ints]], given: tuple[Any, ...], seed: int) -> list[Ints]:
    """The indices of each client, which may be any sequence."""
    return [np.asarray(own) for own in rule(*given, seed)]
