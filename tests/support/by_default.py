"""Which values of a parametrised test are tried by default. The rest is tried by `make full`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def by_default(values: Iterable[Any], chosen: Callable[..., bool]) -> list[ParameterSet]:
    """All values, `full` unless they are chosen. Those that have a mark already, such as `slow`, keep it."""
    found = [value if isinstance(value, ParameterSet) else pytest.param(value) for value in values]
    assert any(chosen(*each.values) and not each.marks for each in found), "none is left"
    return [each if each.marks or chosen(*each.values) else full(*each.values, id=each.id) for each in found]


def some(values: Iterable[Any], *chosen: Any) -> list[ParameterSet]:
    """All values, `full` but for those that are named here; of several values, by the first one."""
    values = list(values)
    firsts = [value.values[0] if isinstance(value, ParameterSet) else value for value in values]
    assert all(name in firsts for name in chosen), f"{chosen} must be among {firsts}"
    return by_default(values, lambda first, *others: first in chosen)


def full(*values: Any, id: Any = None) -> ParameterSet:
    """Values that are tried by `make full` alone."""
    return pytest.param(*values, marks=pytest.mark.full, id=id)


def tried(one: Iterable[Any], other: Iterable[Any]) -> list[ParameterSet]:
    """All pairs, `full` but for a few in which each value of both is."""
    one, other = list(one), list(other)
    few = {(i % len(one), i % len(other)) for i in range(max(len(one), len(other)))}
    pairs = product(enumerate(one), enumerate(other))
    return [pytest.param(a, b) if (i, j) in few else full(a, b) for (i, a), (j, b) in pairs]
