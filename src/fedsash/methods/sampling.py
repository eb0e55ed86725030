"""Which clients take part in a round, drawn or read from a trace.

`draw` chooses the clients that are asked, `answers` tells which of them answer, and `clients` combines both. Clients
are numbered by their positions in `sizes` [N], their numbers of training samples. Every array of ids is sorted and has
no duplicates. Random numbers are hashes of (seed, round, client), so no draw depends on an earlier one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..settings.errors import SettingError, check, one_line
from ..settings.limits import Count, Factor, Fraction
from ..settings.resolve import resolve
from ..settings.setting import Accepts, Setting, dataclass
from ..vector.arrays import Ints
from ..vector.randomness import Purpose, fractions, keys


def trace_of(owner: str, source: str | NDArray[Any], row: str) -> NDArray[np.bool_]:
    """The trace `[R, N]` in an array, or in the .npy or .csv file at a path.

    It has one row for each `row`, such as "round", and one column for each client: 1 if the client is available, 0 if
    not. Raises `SettingError`, which calls the setting `owner`.trace.
    """
    if isinstance(source, str):
        table = _load(owner, source)
        description = source
    else:
        table = np.asarray(source)
        description = f"array of shape {table.shape}"
    numeric_table = table.ndim == 2 and table.size > 0 and table.dtype.kind in "biuf"
    valid = numeric_table and bool(np.isin(table, (0, 1)).all())
    requirement = f"must hold only 0 and 1, with one row for each {row} and one column for each client"
    check(valid, f"{owner}.trace", description, requirement)
    return table.astype(np.bool_)


def check_clients(owner: str, trace: NDArray[np.bool_], clients: int) -> None:
    """Raise `SettingError` unless the trace has a column for each of so many clients."""
    columns = trace.shape[1]
    check(columns == clients, f"{owner}.trace: clients", columns, f"must be the number of clients, {clients}")


def _load(owner: str, path: str) -> NDArray[Any]:
    suffix = Path(path).suffix
    check(suffix in (".npy", ".csv"), f"{owner}.trace", path, "must be a .npy or .csv file")
    try:
        with warnings.catch_warnings(category=UserWarning, action="ignore"):  # a file without numbers is refused anyway
            if suffix == ".npy":
                return np.asarray(np.load(path))
            return np.loadtxt(path, delimiter=",", ndmin=2, encoding="utf-8-sig")  # with or without a byte order mark
    except (OSError, ValueError, EOFError) as error:
        raise SettingError(owner, "trace", path, f"can't be read: {one_line(error)}") from error


DrawFunction: TypeAlias = Callable[[int, Ints, int], Any]

FIRST = 5
"""So many rounds show how many clients take part."""


@dataclass(frozen=True, kw_only=True)
class Sampling(Setting):
    """The base class of samplings; it decides which of the asked clients do not answer.

    With both settings, a client answers if it is available and does not drop out.
    """

    dropout: Fraction = 0.0
    """the probability that a client does not answer, independently in every round"""
    trace: str | NDArray[np.bool_] = field(default="", metadata={"file": True})
    """which clients are available when: an array [R, N], or the path of a .npy or .csv file that holds one. It has one
    row for each round: 1 if a client is available, 0 if not. After R rounds it starts again with its first row. Left
    out, all clients are always available"""

    def __post_init__(self) -> None:
        _ = self._trace

    def draw(self, round: int, sizes: Ints, seed: int) -> Ints:
        """The ids [s] of the clients that are asked in `round` (from 0): any sequence of distinct ids, or none."""
        raise NotImplementedError

    def answers(self, round: int, ids: Ints, sizes: Ints, seed: int) -> NDArray[np.bool_]:
        """For each client in `ids` [s], whether it answers in this round if it is asked, [s]."""
        mask = np.ones(len(ids), dtype=np.bool_)
        if self.dropout:
            mask &= fractions(keys(seed, Purpose.AVAILABILITY, round, ids)) >= self.dropout
        if self._trace is not None:
            check_clients(type(self).__name__, self._trace, len(sizes))
            mask &= self._trace[round % len(self._trace), ids]
        return mask

    def clients(self, round: int, sizes: Ints, seed: int) -> Ints:
        """The ids of the clients that take part in a round, those that are asked and answer. There may be none.

        Raises `ValueError` if the settings do not fit the clients; round 0 always shows this. It also raises it if
        `draw` gives anything but distinct ids of these clients, or `answers` anything but True or False for each.
        """
        answer = self.draw(round, sizes.copy(), seed)  # a sampling of one's own may change them
        ids = _sorted_ids(f"{type(self).__name__}.draw: answer in round {round + 1}", answer, below=len(sizes))
        mask = np.asarray(self.answers(round, ids, sizes, seed))
        is_mask = mask.dtype == np.bool_ or len(ids) == 0  # an empty list has another type
        if not is_mask or mask.shape != ids.shape:
            place = f"{type(self).__name__}.answers: mask of round {round + 1}"
            raise SettingError.at(place, mask.tolist(), f"must be True or False for each of the {len(ids)} ids")
        return ids[mask.astype(np.bool_)]

    def first(self, sizes: Ints, seed: int) -> tuple[Ints, ...]:
        """The clients of each of the first `FIRST` rounds, without empty ones; client 0 if all are empty."""
        first: list[Ints] = []
        for round in range(FIRST):
            try:
                ids = self.clients(round, sizes, seed)
            except LookupError:  # a plan of one's own has no more rounds
                if round == 0:
                    raise
                break
            if len(ids):
                first.append(ids)
        return tuple(first) or (np.arange(1),)

    @cached_property
    def _trace(self) -> NDArray[np.bool_] | None:
        if isinstance(self.trace, str) and not self.trace:
            return None
        return trace_of(type(self).__name__, self.trace, "round")


@dataclass(frozen=True)
class Uniform(Sampling, name="uniform"):
    """A fixed number of clients, all equally likely, without replacement.

    Raises `SettingError` for both `count` and `fraction`, and, once the number N of clients is known, for a count
    above it.
    """

    count: Count | None = field(default=None, metadata={"unless": "fraction"})
    """how many clients each round asks. Without it and `fraction` it asks ten, or all if there are fewer"""
    fraction: Factor | None = field(default=None, metadata={"unless": "count"})
    """the share of the N clients that each round asks, in place of `count`: `max(floor(fraction * N), 1)` clients, as
    in FedIMA"""

    def __post_init__(self) -> None:
        super().__post_init__()
        both = (self.count, self.fraction)
        one_at_most = self.count is None or self.fraction is None
        check(one_at_most, "Uniform.count, fraction", both, "must be one of them, the other left out")

    def asked(self, clients: int) -> int:
        """How many of so many clients each round asks. Raises `SettingError` if there are fewer than `count`."""
        if self.fraction is not None:
            # 1e-9 is added because 0.29 * 100 is a little less than 29 in floating point.
            return max(int(self.fraction * clients + 1e-9), 1)
        if self.count is None:
            return min(10, clients)
        if self.count > clients:
            everybody = "all of them are fraction = 1.0, in Python Uniform(fraction=1.0)"
            requirement = f"must be at most the number of clients, {clients}; {everybody}"
            raise SettingError.at("Uniform.count", self.count, requirement)
        return self.count

    def expected(self, clients: int) -> float:
        """The mean number of clients that answer in a round, of so many, if no trace keeps them away."""
        return self.asked(clients) * (1 - self.dropout)

    def draw(self, round: int, sizes: Ints, seed: int) -> Ints:
        count = self.asked(len(sizes))
        draws = keys(seed, Purpose.SAMPLING, round, np.arange(len(sizes)))
        return np.sort(np.argpartition(draws, count - 1)[:count])


@dataclass(frozen=True)
class Poisson(Sampling, name="poisson"):
    """Each client takes part with probability `rate`, independently of the others.

    So the number of clients varies, and a round may have none.
    """

    rate: Factor
    """the probability that a round asks a client"""

    def expected(self, clients: int) -> float:
        """The mean number of clients that answer in a round, of so many, if no trace keeps them away."""
        return self.rate * clients * (1 - self.dropout)

    def draw(self, round: int, sizes: Ints, seed: int) -> Ints:
        u = fractions(keys(seed, Purpose.SAMPLING, round, np.arange(len(sizes))))
        return np.flatnonzero(u < self.rate)


@dataclass(frozen=True)
class Weighted(Sampling, name="weighted"):
    """`count` clients, drawn one by one with probabilities proportional to their samples, without replacement.

    The clients with the smallest `-log(1 - u_i) / n_i` are taken, with u_i uniform in [0, 1) and n_i the number of
    samples (Efraimidis & Spirakis 2006). If all n_i are equal, it draws the same clients as `Uniform`. A client without
    samples is never drawn.
    """

    count: Count
    """how many clients each round asks"""

    def draw(self, round: int, sizes: Ints, seed: int) -> Ints:
        ids = np.flatnonzero(sizes)
        requirement = f"must be at most the number of clients with samples, {len(ids)}"
        check(self.count <= len(ids), "Weighted.count", self.count, requirement)
        u = fractions(keys(seed, Purpose.SAMPLING, round, ids))
        times = -np.log1p(-u) / sizes[ids]
        return ids[np.sort(np.argpartition(times, self.count - 1)[: self.count])]


@dataclass(frozen=True)
class FixedClients(Sampling, name="fixed"):
    """`rounds` has a list of client ids for each round; after the last list it starts again with the first.

    So a single list holds for every round.
    """

    rounds: Accepts[tuple[tuple[int, ...], ...], Sequence[Sequence[int]]]
    """the lists of client ids, one a round"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(len(self.rounds) > 0, "FixedClients.rounds", self.rounds, "must hold at least one list of client ids")
        rounds: list[tuple[int, ...]] = []
        for index, ids in enumerate(self.rounds):
            sorted_ids = _sorted_ids(f"FixedClients.rounds[{index}]", ids)
            rounds.append(tuple(sorted_ids.tolist()))
        object.__setattr__(self, "rounds", tuple(rounds))

    def draw(self, round: int, sizes: Ints, seed: int) -> Ints:
        highest = self._highest
        check(highest < len(sizes), "FixedClients.rounds: highest id", highest, f"must be below {len(sizes)}")
        return np.array(self.rounds[round % len(self.rounds)], dtype=np.int64)

    @cached_property
    def _highest(self) -> int:
        return max(chain.from_iterable(self.rounds), default=-1)


@dataclass(frozen=True)
class Function(Sampling, name="function"):
    """A user's function `(round, sizes, seed) -> ids`, or its name as "package.module:function".

    It must be a pure function of its arguments; otherwise a resumed run differs from an uninterrupted one. It may
    return any sequence of distinct client ids, in any order, also an empty one.
    """

    function: str | DrawFunction
    """the function, or its place as `package.module:function`"""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._rule

    def draw(self, round: int, sizes: Ints, seed: int) -> Ints:
        answer: Ints = self._rule(round, sizes, seed)
        return answer

    @cached_property
    def _rule(self) -> DrawFunction:
        rule: Any = self.function
        if isinstance(rule, str):
            rule = resolve(rule, "Function", "function")
        check(callable(rule), "Function.function", self.function, "must be a function (round, sizes, seed) -> ids")
        return rule  # type: ignore[no-any-return]


SAMPLINGS = Sampling.by_name


def _sorted_ids(field: str, ids: Any, below: int = 2**63) -> Ints:
    """Client ids `[s]`, sorted; raises `ValueError` unless they are distinct, at least 0 and under `below`."""
    try:
        array = np.asarray(ids)
    except ValueError:  # a ragged list
        array = np.asarray(ids, dtype=object)
    if array.ndim == 1 and (array.size == 0 or array.dtype.kind in "iu"):
        ascending = np.sort(array.astype(np.int64))
        within = ascending.size == 0 or (ascending[0] >= 0 and ascending[-1] < below)
        if within and (ascending[1:] > ascending[:-1]).all():
            return ascending
    # The text is made here only: a round may ask a million clients.
    limit = "of at least 0" if below == 2**63 else f"from 0 to {below - 1}"
    raise SettingError.at(field, array.tolist(), f"must hold distinct client ids, integers {limit}")
