"""Numbers by their labels: what a paper prints in a table, or what runs gave, one value a seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any, TypeAlias

from ...settings.errors import check
from ..report.comparison import half_width

Label: TypeAlias = str | float
"""A label: a row's or a column's name, a round, a number of clients."""
Key: TypeAlias = tuple[Label, ...]

SEEDS = 3
"""The fewest seeds whose spread says how certain their mean is."""


@dataclass(frozen=True)
class Quantity:
    """One number: its `values`, one a seed. An `exact` one is a single value without chance: printed, or calculated.

    `seeds` are the names of the seeds; without names, two quantities have the same seeds in the same order.
    """

    values: tuple[float, ...]
    exact: bool = False
    seeds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        named = len(self.seeds) in (0, len(self.values))
        check(named, "Quantity.seeds", self.seeds, f"must be none, or one for each of {len(self.values)} values")
        check(len(set(self.seeds)) == len(self.seeds), "Quantity.seeds", self.seeds, "must name each seed once")
        check(bool(self.values), "Quantity.values", self.values, "must be one value at least")

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return fmean(self.values)

    def interval(self, of: float = 1) -> tuple[float, float]:
        """The lowest and the highest value that the mean over many seeds may have.

        It is Student's interval of 95 %, mean +- t s / sqrt(n), over n seeds, and the value itself of an exact number.
        Fewer than three seeds, or a value that is not finite, say nothing: the interval has no ends. One `of` several
        leaves out 5 % / of, so that all hold together with 95 %.
        """
        if not all(map(math.isfinite, self.values)):
            return -math.inf, math.inf
        if self.exact:
            return self.mean, self.mean
        if len(self.values) < SEEDS:
            return -math.inf, math.inf
        half = half_width(self.values, of)
        return self.mean - half, self.mean + half

    def of(self, seeds: Sequence[str]) -> Quantity:
        """The values of these seeds, in their order; those of an exact number are the same for all."""
        if self.exact:
            return Quantity(self.values * len(seeds), seeds=tuple(seeds))
        by_seed = dict(zip(self.names, self.values, strict=True))
        return Quantity(tuple(by_seed[seed] for seed in seeds), seeds=tuple(seeds))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the seeds: by default their places."""
        return self.seeds or tuple(map(str, range(len(self.values))))


def shared_seeds(quantities: Sequence[Quantity]) -> tuple[str, ...]:
    """The seeds that all quantities have, in the order of the first; those of exact ones don't count."""
    measured = [quantity for quantity in quantities if not quantity.exact]
    if not measured:
        return ("exact",)
    return tuple(seed for seed in measured[0].names if all(seed in quantity.names for quantity in measured))


def reduced(quantities: Sequence[Quantity], function: Callable[[Sequence[float]], float]) -> Quantity | None:
    """`function` of the quantities' values, seed by seed; None if they share no seed."""
    seeds = shared_seeds(quantities)
    if not seeds:
        return None
    columns = [quantity.of(seeds).values for quantity in quantities]
    values = tuple(float(function(of_seed)) for of_seed in zip(*columns, strict=True))
    if all(quantity.exact for quantity in quantities):
        return Quantity(values, exact=True)
    return Quantity(values, seeds=seeds)


class Numbers(Mapping[Key, Quantity]):
    """Quantities by their labels, one label for each of `dims`.

        accuracy = Numbers.exact(("row", "column"), {("FedAvg", "Exp"): 64.57, ("FedAvg", "Epoch"): 62.96})
        gain = accuracy.at(column="Exp") - accuracy.at(column="Epoch")

    `at` chooses labels. `-` and `/` go by labels and seed by seed. `over` makes one number of all those along a
    dimension, in each seed: what is judged is this number's spread over the seeds.
    """

    def __init__(self, dims: Sequence[str], quantities: Mapping[Key, Quantity]) -> None:
        self.dims = tuple(dims)
        self._quantities = dict(quantities)
        for key in self._quantities:
            check(len(key) == len(self.dims), "Numbers", key, f"must have a label for each of {', '.join(self.dims)}")

    @classmethod
    def exact(cls, dims: Sequence[str], values: Mapping[Key, float]) -> Numbers:
        """Numbers without chance: printed, or calculated."""
        return cls(dims, {key: Quantity((float(value),), exact=True) for key, value in values.items()})

    @classmethod
    def measured(cls, dims: Sequence[str], values: Mapping[Key, Sequence[float] | Mapping[str, float]]) -> Numbers:
        """Numbers of runs: for each key its values by seed, or one a seed in the same order of seeds."""
        quantities = {}
        for key, each in values.items():
            if isinstance(each, Mapping):
                quantities[key] = Quantity(tuple(map(float, each.values())), seeds=tuple(each))
            else:
                quantities[key] = Quantity(tuple(map(float, each)))
        return cls(dims, quantities)

    @classmethod
    def load(cls, table: Mapping[str, Any], exact: bool | None = None) -> Numbers:
        """The numbers in what `saved` gave; with `exact`, whatever it says of that itself."""
        if exact is None:
            exact = bool(table.get("exact", False))
        quantities = {}
        for entry in table["numbers"]:
            values = tuple(math.nan if value is None else float(value) for value in entry["values"])
            quantities[tuple(entry["at"])] = Quantity(values, exact, tuple(entry.get("seeds", ())))
        return cls(table["dims"], quantities)

    def saved(self) -> dict[str, Any]:
        """The numbers as plain data for JSON. What is not finite is None."""
        exact = bool(self._quantities) and all(quantity.exact for quantity in self._quantities.values())
        entries = []
        for key, quantity in self._quantities.items():
            values = [value if math.isfinite(value) else None for value in quantity.values]
            entry: dict[str, Any] = {"at": list(key), "values": values}
            if quantity.seeds:
                entry["seeds"] = list(quantity.seeds)
            entries.append(entry)
        return {"dims": list(self.dims), "exact": exact, "numbers": entries}

    def __getitem__(self, key: Key) -> Quantity:
        return self._quantities[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._quantities)

    def __len__(self) -> int:
        return len(self._quantities)

    def __repr__(self) -> str:
        return f"Numbers({self.dims}, {len(self)} quantities)"

    def labels(self, dim: str) -> list[Label]:
        """The labels of a dimension, in the order in which they came."""
        place = self._place(dim)
        return list(dict.fromkeys(key[place] for key in self))

    def at(self, **labels: Label | Sequence[Label]) -> Numbers:
        """The numbers with these labels. One label takes its dimension away; a list of labels keeps it."""
        kept = dict(self._quantities)
        single = []
        for dim, wanted in labels.items():
            place = self._place(dim)
            choices = _listed(wanted)
            kept = {key: quantity for key, quantity in kept.items() if key[place] in choices}
            if isinstance(wanted, str | int | float):
                single.append(dim)
        dims = [dim for dim in self.dims if dim not in single]
        return Numbers(dims, {self._without(single, key): quantity for key, quantity in kept.items()})

    def without(self, **labels: Label | Sequence[Label]) -> Numbers:
        """The numbers with other labels than these."""
        kept = dict(self._quantities)
        for dim, unwanted in labels.items():
            place = self._place(dim)
            choices = _listed(unwanted)
            kept = {key: quantity for key, quantity in kept.items() if key[place] not in choices}
        return Numbers(self.dims, kept)

    def __sub__(self, other: Numbers | float) -> Numbers:
        """The differences, where both have the labels. A dimension that `other` lacks is gone through."""
        return self._combined(other, lambda a, b: a - b)

    def __add__(self, other: Numbers | float) -> Numbers:
        """The sums, where both have the labels."""
        return self._combined(other, lambda a, b: a + b)

    def __truediv__(self, other: Numbers | float) -> Numbers:
        """The quotients, where both have the labels; NaN where a divisor is 0."""
        return self._combined(other, lambda a, b: a / b if b else math.nan)

    def __mul__(self, factor: float) -> Numbers:
        return self._combined(factor, lambda a, b: a * b)

    def joined(self, other: Numbers) -> Numbers:
        """These numbers with the seeds and the labels that only the other ones have; both have the same dimensions.

        Numbers without names of seeds can't be told apart: those of `other` take their place.
        """
        check(other.dims == self.dims, "Numbers", other.dims, f"must have the dimensions {', '.join(self.dims)}")
        quantities = dict(self._quantities)
        for key, theirs in other.items():
            mine = quantities.get(key)
            if mine is None or mine.exact or not mine.seeds or not theirs.seeds:
                quantities[key] = theirs
                continue
            by_seed = dict(zip(theirs.seeds, theirs.values, strict=True))
            by_seed |= zip(mine.seeds, mine.values, strict=True)  # of a seed that both have, mine stays
            seeds = mine.seeds + tuple(seed for seed in theirs.seeds if seed not in mine.seeds)
            quantities[key] = Quantity(tuple(by_seed[seed] for seed in seeds), seeds=seeds)
        return Numbers(self.dims, quantities)

    def over(self, dim: str, function: Callable[[Sequence[float]], float] = fmean) -> Numbers:
        """One number for those along a dimension: in each seed `function` of them, in the order of their labels.

        Only seeds that all of them have count.
        """
        groups: dict[Key, list[Quantity]] = {}
        for key, quantity in self._quantities.items():
            groups.setdefault(self._without([dim], key), []).append(quantity)
        results = {}
        for key, quantities in groups.items():
            result = reduced(quantities, function)
            if result is not None:
                results[key] = result
        return Numbers([each for each in self.dims if each != dim], results)

    def steps(self, dim: str) -> Numbers:
        """The differences of each number and the one before it along a dimension; it has the label of the later."""
        labels = self.labels(dim)
        place = self._place(dim)
        steps: dict[Key, Quantity] = {}
        for earlier, later in pairwise(labels):
            change = self.at(**{dim: later}) - self.at(**{dim: earlier})
            for key, quantity in change.items():
                steps[(*key[:place], later, *key[place:])] = quantity
        return Numbers(self.dims, steps)

    def _combined(self, other: Numbers | float, operation: Callable[[float, float], float]) -> Numbers:
        if not isinstance(other, Numbers):
            other = Numbers.exact((), {(): other})
        return elementwise(operation, self, other)

    def _place(self, dim: str) -> int:
        """The place of a dimension's label in a key."""
        check(dim in self.dims, "Numbers", dim, f"must be one of {', '.join(self.dims)}")
        return self.dims.index(dim)

    def _without(self, dims: Sequence[str], key: Key) -> Key:
        """A key without its labels of some dimensions."""
        return tuple(label for dim, label in zip(self.dims, key, strict=True) if dim not in dims)


def _listed(wanted: Label | Sequence[Label]) -> list[Label]:
    """One label or several, as a list."""
    if isinstance(wanted, list | tuple | set | frozenset | range):
        return list(wanted)
    return [wanted]  # type: ignore[list-item]


def stacked(dim: str, parts: Mapping[str, Numbers] | Mapping[float, Numbers]) -> Numbers:
    """Numbers with the same dimensions as one, under a further dimension: each part under its label."""
    quantities: dict[Key, Quantity] = {}
    dims: tuple[str, ...] = ()
    for label, part in parts.items():
        requirement = f"must have the dimensions {', '.join(dims)}"
        check(not dims or part.dims == dims, f"stacked: {label}", part.dims, requirement)
        dims = part.dims
        for key, quantity in part.items():
            quantities[(*key, label)] = quantity
    return Numbers((*dims, dim), quantities)


def elementwise(function: Callable[..., float], first: Numbers, *others: Numbers) -> Numbers:
    """`function` of the numbers with the same labels, seed by seed, where all of them have these.

    A dimension that one of the `others` lacks is gone through.
    """
    for other in others:
        unknown = [dim for dim in other.dims if dim not in first.dims]
        check(not unknown, "Numbers", unknown, f"must be among {', '.join(first.dims)}")
    results: dict[Key, Quantity] = {}
    for key, quantity in first.items():
        labels = dict(zip(first.dims, key, strict=True))
        operands: list[Quantity | None] = [quantity]
        for other in others:
            its_key = tuple(labels[dim] for dim in other.dims)
            operands.append(other.get(its_key))
        known = [operand for operand in operands if operand is not None]
        if len(known) < len(operands):
            continue
        result = reduced(known, lambda values: function(*values))
        if result is not None:
            results[key] = result
    return Numbers(first.dims, results)
