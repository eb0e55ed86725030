"""Values that no run can use are refused in one line by the settings themselves, also those of a class that is new."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from inspect import isabstract
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest
from torture.schema import Key, keys

import fedsash as fs
from fedsash.engines.processes import pick_device
from fedsash.lab.config import parse
from fedsash.methods.server_optimisers import ServerSGD
from fedsash.settings.checks import TOO_WIDE, TypeRefusal, checked
from fedsash.settings.errors import FedsashError, SettingError, brief
from fedsash.settings.limits import Limit
from fedsash.settings.options import options
from fedsash.settings.setting import Setting, hints_of
from support.defaults import settings_classes
from support.each import check_each
from support.settings import SETTINGS, minimal
from support.settings_record import put
from support.worlds import federation

EVERY: set[Any] = {*SETTINGS, *settings_classes().values()}
MADE = (cls for cls in EVERY if issubclass(cls, Setting) and is_dataclass(cls) and not isabstract(cls))
CLASSES: list[Any] = sorted(MADE, key=str)
"""Every class of settings of which there are objects."""
NUMBERS = [math.nan, math.inf, -math.inf, 10**400, -(10**400), 2**63, 10**5000]
UNLIMITED = {("limit", math.inf)}
"""An infinite limit of the guard is no guard."""
IN_TUPLES = [math.nan, 2**63, -(2**63) - 1, 10**400]
OTHER_RULES = {
    "Broadcast.patience": 'has an effect with start = "auto" alone',
    "Domains.clients_per_domain": "IID.clients = 9223372036854775807: must be at most 1,000,000,000",
    "FedAdagrad.tau": "must be above 0, or 0 if initial_v is above 0",
    "FedAdam.tau": "must be above 0, or 0 if initial_v is above 0",
    "FedYogi.tau": "must be above 0, or 0 if initial_v is above 0",
    "Personal.alone": "Personal.part = (): must not be empty: it trains alone",
    "Private.clip": "must be finite, since the noise is a multiple of it",
    "SimulatedClients.off": "must both be positive, or 0",
    "SimulatedClients.on": "must both be positive, or 0",
    "Uniform.count": "must be one of them, the other left out",
    "Uniform.fraction": "must be one of them, the other left out",
}
"""What forbids numbers at the ends of limits, or None: rules of several settings, by the fields."""
OTHER_RULES_IN_FILES = {
    "broadcast.start": "broadcast.average = './nowhere': must be an average",
    "broadcast.patience": OTHER_RULES["Broadcast.patience"],
    "network.clients.off": OTHER_RULES["SimulatedClients.off"],
    "network.clients.on": OTHER_RULES["SimulatedClients.on"],
    "network.down.limit": "must be left out: a download that finds no room is not tried again",
    "partition.clients_per_domain": OTHER_RULES["Domains.clients_per_domain"].removeprefix("IID.clients"),
    "personal.alone": OTHER_RULES["Personal.alone"].removeprefix("Personal."),
    "server.tau": OTHER_RULES["FedAdam.tau"],
    "sampling.dropout": "sampling.function = './nowhere': must be 'package.module:name'",
}
"""The same by the keys of experiment files; two of them are about another key, which has an example's value."""


@dataclass(frozen=True)
class Probe:
    """A value for a setting; `right` is what the limit says would be right in its place, empty if it lets it through.

    `make(value)` gives what is kept of it, or raises a `FedsashError`.
    """

    name: str
    value: Any
    right: str
    make: Callable[[Any], Any]

    def __str__(self) -> str:
        return f"{self.name} = {brief(self.value)}"


def probes(name: str, kind: Any, limit: Limit, make: Callable[[Any], Any]) -> Iterator[Probe]:
    """The ends of a limit, and the numbers next to them."""
    for value, right in numbers_at(limit):
        words = "".join(f', or "{word}"' for word in words_in(kind)) if right and right != TOO_WIDE else ""
        yield Probe(name, value, right + words, make)


def numbers_at(limit: Limit) -> Iterator[tuple[float, str]]:
    """The ends of a limit, and the nearest number beyond those that are inside, or else within."""
    interval: Any = limit.interval
    ends = ((interval.ge, True, -1), (interval.gt, False, -1), (interval.le, True, 1), (interval.lt, False, 1))
    for end, inside, outwards in ends:
        if end is None:
            continue
        right = f"must be {limit.words_for(outwards < 0)}"
        yield end, "" if inside else right
        if inside and math.isfinite(end):
            yield next_to(end, outwards, limit.number), right
        elif not inside:
            yield next_to(end, -outwards, limit.number), ""
    if limit.number is int and interval.le is interval.lt is None:
        yield 2**63 - 1, ""
        yield 2**63, TOO_WIDE


def next_to(end: float, direction: int, kind: type) -> float:
    return end + direction if kind is int else math.nextafter(end, direction * math.inf)


def words_in(kind: Any) -> list[str]:
    """The words that may stand in place of a number."""
    return [word for member in get_args(kind) if get_origin(member) is Literal for word in get_args(member)]


def check_stands(probe: Probe) -> None:
    """What the limit lets through is kept, unless another rule forbids it; anything else is refused in its words."""
    try:
        kept = probe.make(probe.value)
    except FedsashError as error:
        line = str(error)
        if probe.right:
            assert line == f"{probe}: {probe.right}"
        else:
            assert (OTHER_RULES | OTHER_RULES_IN_FILES).get(probe.name, "no other rule") in line
    else:
        assert not probe.right, "it is taken"
        assert kept is probe.value or kept == probe.value


def of_classes() -> Iterator[Probe]:
    """Those of all classes."""
    for cls in CLASSES:
        for option in options(cls).values():
            if option.limit is not None:
                name = f"{cls.__name__}.{option.name}"
                make = partial(made, cls, option.name)
                yield from probes(name, option.kind, option.limit, make)
                if NoneType in get_args(option.kind):
                    yield Probe(name, None, "", make)


def made(cls: Any, name: str, value: Any) -> Any:
    """What an object with that value has."""
    return getattr(cls(**{**minimal(cls), name: value}), name)


def test_the_ends_of_every_limit_stand_where_its_words_say() -> None:
    check_each(check_stands, of_classes())


def limits(cls: Any) -> dict[str, Limit]:
    """Those of a class's fields."""
    return {name: option.limit for name, option in options(cls).items() if option.limit is not None}


def test_a_subclass_that_writes_types_anew_without_limits_keeps_every_limit() -> None:
    for cls in CLASSES:
        anew = {name: hints_of(cls)[name] for name in limits(cls)}
        written = type(cls.__name__, (cls,), {"__annotations__": anew})
        frozen = cls.__dataclass_params__.frozen
        assert limits(dataclass(frozen=frozen, kw_only=True)(written)) == limits(cls)


def of_files() -> Iterator[Probe]:
    """Those of all keys of experiment files, in which no number is infinite or wider than 64 bits."""
    for key in keys():
        if key.limit is not None:
            for probe in probes(".".join(key.place), key.kind, key.limit, partial(read, key)):
                if math.isfinite(probe.value) and probe.right != TOO_WIDE:
                    yield probe


def read(key: Key, value: Any) -> Any:
    """What an experiment has of that value in its file."""
    table: dict[str, Any] = {}
    for place, needed in {**key.needs, key.place: value}.items():
        put(table, place, needed)
    found: Any = parse(table).table()
    for part in key.place:
        found = found[part]
    return found


def test_they_stand_there_in_experiment_files_too() -> None:
    check_each(check_stands, of_files())


def number_fields(cls: Any) -> list[str]:
    """The fields that take a number."""
    kinds = {field.name: hints_of(cls)[field.name] for field in fields(cls) if field.init}
    return [name for name, kind in kinds.items() if not takes(kind, object()) and (takes(kind, 1) or takes(kind, 0.5))]


def takes(kind: Any, value: Any) -> bool:
    try:
        checked(kind, value)
    except TypeRefusal:
        return False
    return True


def check_takes_no_such_number(place: tuple[Any, str, Any]) -> None:
    cls, name, value = place
    with pytest.raises(SettingError) as error:
        cls(**{**minimal(cls), name: value})
    assert len(str(error.value)) < 300 and name in str(error.value) and "\n" not in str(error.value)
    assert error.value.right.startswith("must be ")


def named(place: tuple[Any, str, Any]) -> str:
    return f"{place[0].__name__}.{place[1]} = {brief(place[2])}"


def test_no_field_takes_a_number_that_is_none_or_beyond_64_bits() -> None:
    fields_of_all = [(cls, name) for cls in CLASSES for name in number_fields(cls)]
    places = [(*field, value) for field in fields_of_all for value in NUMBERS if (field[1], value) not in UNLIMITED]
    check_each(check_takes_no_such_number, places, named)


def tuples_of(kind: Any, number: float) -> Iterator[Any]:
    """The tuples of numbers that a type takes, each filled with that number."""
    if get_origin(kind) in (Union, UnionType):
        for member in get_args(kind):
            yield from tuples_of(member, number)
    elif get_origin(kind) is tuple:
        first, second = get_args(kind)
        length = 1 if second is Ellipsis else 2
        inner = [number] if first in (int, float) else tuples_of(first, number)
        yield from ((one,) * length for one in inner)


def test_no_tuple_takes_such_a_number_either() -> None:
    kinds = [(cls, name, option.kind) for cls in CLASSES for name, option in options(cls).items()]
    places = [(cls, name, one) for cls, name, kind in kinds for bad in IN_TUPLES for one in tuples_of(kind, bad)]
    assert {place[1] for place in places} >= {"epochs", "keep", "weights", "order", "rounds", "mean"}
    check_each(check_takes_no_such_number, places, named)


def test_what_somebody_may_try_on_purpose_is_taken() -> None:
    """Clients that do not move, a server that goes too far, no momentum, hardly any averaging."""
    assert fs.LocalTraining(lr=0.0).lr == 0 and ServerSGD(lr=3.0, momentum=0.0).lr == 3
    assert fs.EMA(0.0).decay == 0 and fs.Evaluation(held_out=0.9).held_out == 0.9
    assert fs.FedProx(mu=0.0).mu == 0 and fs.LocalEngine(workers=1024, threads=1024, block=65_536).workers == 1024


def test_an_empty_part_of_the_model_is_refused() -> None:
    for part in ("", (), ("classifier", "")):
        with pytest.raises(SettingError, match="nothing that trains is called"):
            federation(averages={"w": fs.Window(2, part=part)}).start()


def test_a_device_without_numbers_is_refused() -> None:
    with pytest.raises(SettingError, match="device = 'meta': holds no numbers"):
        pick_device("meta")
    with pytest.raises(SettingError, match="device = 'nowhere': not available here") as error:
        pick_device("nowhere")
    assert "\n" not in str(error.value) and len(str(error.value)) < 200


def test_values_that_python_cannot_write_are_named_by_their_type() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert brief(10**5000) == "int(...)" and brief(deep) == "list(...)"
    assert brief(pytest.raises) == "raises" and brief(lambda: 0) == "<lambda>" and brief(SettingError) == "SettingError"
    assert brief([10**5000, 1]) == "list(...)" and len(brief("x" * 1000)) == 100
