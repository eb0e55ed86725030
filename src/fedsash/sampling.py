"""Who takes part in a round: pure functions of (seed, round).

`draw` says who is asked, `answers` who of them answers; `clients` puts both together. All ids are positions in `sizes`,
the clients' numbers of training samples [N], and every array of ids is sorted and without repetition. Each client's
chance is a hash of (seed, round, client), so no draw depends on an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .basics.errors import SettingError, check, one_line
from .basics.randomness import Purpose, keys
from .basics.resolve import resolve
from .basics.typed import typed

Ids: TypeAlias = NDArray[np.int64]
DrawFunction: TypeAlias = Callable[[int, Ids, int], Any]


@dataclass(frozen=True, kw_only=True)
@typed
class Sampling:
    """What every sampling has in common: clients that are asked and do not answer.

    `dropout` is the probability that a client that is asked fails to answer, independently in every round. `trace`
    (an array [R, N], or the path of a .npy or .csv file with one) holds 1 where a client is within reach and 0 where
    it is not; round R starts again at its first row. With both, a client answers if neither keeps it away.
    """

    dropout: float = 0.0
    trace: str | NDArray[np.bool_] = ""

    def __post_init__(self) -> None:
        check(0 <= self.dropout < 1, f"{self._name}.dropout", self.dropout, "must be at least 0 and below 1")
        _ = self._trace

    def draw(self, round: int, sizes: Ids, seed: int) -> Ids:
        """The clients that are asked in a round."""
        raise NotImplementedError

    def answers(self, round: int, ids: Ids, sizes: Ids, seed: int) -> NDArray[np.bool_]:
        """For each client in `ids`, whether it answers in this round if it is asked."""
        mask = np.ones(len(ids), dtype=np.bool_)
        if self.dropout:
            mask &= _uniform(keys(seed, Purpose.AVAILABILITY, round, ids)) >= self.dropout
        if self._trace is not None:
            field, right = f"{self._name}.trace: clients", f"must be the number of clients, {len(sizes)}"
            check(self._trace.shape[1] == len(sizes), field, self._trace.shape[1], right)
            mask &= self._trace[round % len(self._trace), ids]
        return mask

    def clients(self, round: int, sizes: Ids, seed: int) -> Ids:
        """The clients that take part in a round: asked, and answering. It may be nobody.

        Raises `ValueError` where the settings do not fit the clients, in round 0 already.
        """
        ids = self.draw(round, sizes, seed)
        return ids[self.answers(round, ids, sizes, seed)]

    def first(self, sizes: Ids, seed: int, rounds: int = 5) -> tuple[Ids, ...]:
        """The clients of the first rounds in which there are any; client 0 if there are none."""
        found = (self.clients(round, sizes, seed) for round in range(rounds))
        return tuple(ids for ids in found if len(ids)) or (np.arange(1),)

    @property
    def _name(self) -> str:
        return type(self).__name__

    @cached_property
    def _trace(self) -> NDArray[np.bool_] | None:
        if isinstance(self.trace, str):
            return _load_trace(self._name, self.trace) if self.trace else None
        return _check_trace(f"{self._name}.trace", self.trace)


@dataclass(frozen=True)
class Uniform(Sampling):
    """So many clients, each as likely as any other, without replacement.

    Either `count`, or `fraction` of the N clients: `max(floor(fraction * N), 1)`, as in FedIMA.
    """

    count: int = field(default=0, metadata={"unless": "fraction"})
    fraction: float = field(default=0.0, metadata={"unless": "count"})

    def __post_init__(self) -> None:
        super().__post_init__()
        valid = (self.count >= 1 and self.fraction == 0) or (self.count == 0 and 0 < self.fraction <= 1)
        right = "must be a count of at least 1, or else a fraction above 0 and at most 1"
        check(valid, "Uniform.count, fraction", (self.count, self.fraction), right)

    def draw(self, round: int, sizes: Ids, seed: int) -> Ids:
        n = len(sizes)
        # The small addition, because 0.29 * 100 is a little less than 29 in floating point.
        count = self.count or max(int(self.fraction * n + 1e-9), 1)
        check(count <= n, "Uniform.count", count, f"must be at most the number of clients, {n}")
        return _smallest(keys(seed, Purpose.SAMPLING, round, np.arange(n)), count)


@dataclass(frozen=True)
class Weighted(Sampling):
    """So many clients, one after the other by their number of samples, without replacement.

    Exponential race (Efraimidis & Spirakis 2006): those with the smallest `-log(1 - u_i) / n_i`, u_i uniform. Equal
    clients are drawn as `Uniform` draws them; a client without samples never is.
    """

    count: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.count >= 1, "Weighted.count", self.count, "must be at least 1")

    def draw(self, round: int, sizes: Ids, seed: int) -> Ids:
        (ids,) = np.nonzero(sizes)
        right = f"must be at most the number of clients with samples, {len(ids)}"
        check(self.count <= len(ids), "Weighted.count", self.count, right)
        u = _uniform(keys(seed, Purpose.SAMPLING, round, ids))
        return ids[_smallest(-np.log1p(-u) / sizes[ids], self.count)]


@dataclass(frozen=True)
class FixedClients(Sampling):
    """A list of client ids for each round; after the last round's list the first comes again.

    One list alone therefore holds for every round.
    """

    rounds: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        check(len(self.rounds) > 0, "FixedClients.rounds", self.rounds, "must hold at least one list of client ids")
        rounds = (_check_ids(f"FixedClients.rounds[{number}]", ids) for number, ids in enumerate(self.rounds))
        object.__setattr__(self, "rounds", tuple(tuple(ids.tolist()) for ids in rounds))

    def draw(self, round: int, sizes: Ids, seed: int) -> Ids:
        check(
            self._highest < len(sizes), "FixedClients.rounds: highest id", self._highest, f"must be below {len(sizes)}"
        )
        return np.array(self.rounds[round % len(self.rounds)], dtype=np.int64)

    @cached_property
    def _highest(self) -> int:
        return max((i for ids in self.rounds for i in ids), default=-1)


@dataclass(frozen=True)
class Function(Sampling):
    """A user's function `(round, sizes, seed) -> ids`, or its name as "package.module:function".

    It must be a pure function of its arguments, or a resumed run goes another way. Its answer may be any sequence of
    distinct client ids, in any order, and may be empty.
    """

    function: str | DrawFunction

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._rule

    def draw(self, round: int, sizes: Ids, seed: int) -> Ids:
        answer = self._rule(round, sizes, seed)
        return _check_ids(f"Function.function: answer in round {round + 1}", answer, below=len(sizes))

    @cached_property
    def _rule(self) -> DrawFunction:
        rule: Any = self.function
        if isinstance(rule, str):
            rule = resolve(rule, "Function", "function")
        check(callable(rule), "Function.function", self.function, "must be a function (round, sizes, seed) -> ids")
        return rule  # type: ignore[no-any-return]


SAMPLINGS: dict[str, type[Sampling]] = {
    "uniform": Uniform,
    "weighted": Weighted,
    "fixed": FixedClients,
    "function": Function,
}


def _uniform(h: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers in [0, 1) from keys, in the keys' order."""
    return (h >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _smallest(values: NDArray[Any], count: int) -> Ids:
    """The positions of the `count` smallest values, sorted."""
    return np.sort(np.argpartition(values, count - 1)[:count])


def _check_ids(field: str, given: Any, below: int = 2**63) -> Ids:
    """Anything that holds distinct client ids, sorted."""
    array = np.asarray(given)
    valid = array.ndim == 1 and (array.size == 0 or array.dtype.kind in "iu")
    ids = np.unique(array.astype(np.int64)) if valid else np.empty(0, dtype=np.int64)
    valid = valid and ids.size == array.size and (ids.size == 0 or bool(ids[0] >= 0 and ids[-1] < below))
    limit = "of at least 0" if below == 2**63 else f"from 0 to {below - 1}"
    check(valid, field, array.tolist(), f"must hold distinct client ids, integers {limit}")
    return ids


def _load_trace(name: str, path: str) -> NDArray[np.bool_]:
    suffix = Path(path).suffix
    check(suffix in (".npy", ".csv"), f"{name}.trace", path, "must be a .npy or .csv file")
    try:
        table = np.load(path) if suffix == ".npy" else np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise SettingError(name, "trace", path, f"can't be read: {one_line(error)}") from error
    return _check_trace(f"{name}.trace", table, path)


def _check_trace(field: str, trace: NDArray[Any], path: str = "") -> NDArray[np.bool_]:
    table = np.asarray(trace)
    valid = table.ndim == 2 and table.size > 0 and table.dtype.kind in "biuf" and bool(np.isin(table, (0, 1)).all())
    given = path or f"array of shape {table.shape}"
    check(valid, field, given, "must hold 0 and 1 only, one row a round, one column a client")
    return table.astype(np.bool_)
