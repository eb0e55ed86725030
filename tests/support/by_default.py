"""Which values of a parametrised test are tried by default. `make full` tries the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def full(*values: Any, id: Any = None) -> ParameterSet:
    """Values that are tried by `make full` alone."""
    return pytest.param(*values, marks=pytest.mark.full, id=id)


def by_default(values: Iterable[Any], chosen: Callable[..., bool]) -> list[ParameterSet]:
    """All values, `full` unless they are chosen. Those that have a mark already, such as `slow`, keep it."""
    parameters = [value if isinstance(value, ParameterSet) else pytest.param(value) for value in values]
    assert any(chosen(*each.values) and not each.marks for each in parameters), "none is left"
    return [each if each.marks or chosen(*each.values) else full(*each.values, id=each.id) for each in parameters]


def some(values: Iterable[Any], *chosen: Any) -> list[ParameterSet]:
    """All values, `full` but for those that are named here; of several values, by the first one."""
    values = list(values)
    firsts = [value.values[0] if isinstance(value, ParameterSet) else value for value in values]
    assert all(name in firsts for name in chosen), f"{chosen} must be among {firsts}"
    return by_default(values, lambda first, *others: first in chosen)


def rotated(*choices: Iterable[Any], turns: int = 0) -> list[ParameterSet]:
    """The whole product. By default all go round together until each value has been met; the rest is full.

    With `turns` there are only so many.
    """
    lists = [list(values) for values in choices]
    turns = turns or max(map(len, lists))
    met = {tuple(turn % len(values) for values in lists) for turn in range(turns)}
    parameters = []
    for places in product(*(range(len(values)) for values in lists)):
        values = [each[place] for each, place in zip(lists, places, strict=True)]
        parameters.append(pytest.param(*values) if places in met else full(*values))
    return parameters
