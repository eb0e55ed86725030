"""Whether a value fits the type of a setting: pydantic decides, in Python and in files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from functools import cache, partial
from numbers import Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    Strict,
    TypeAdapter,
    ValidationError,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from .errors import FedsashError, one_line
from .limits import CONTAINERS, Inherited, Limit, Remark, limit_in, union_of

LEAST_INTEGER = -(2**63)
"""The least integer of 64 bits, which is what arrays and tensors hold."""
MOST_INTEGER = 2**63 - 1
"""The largest one."""
TOO_WIDE = "must be a number of up to 64 bits"
BELOW = ("greater_than", "greater_than_equal")
"""pydantic's types of errors for a number that is below its limit."""
BEYOND = ("less_than", "less_than_equal")
"""The same for one that is above."""
LENGTHS = ("too_short", "too_long", "string_too_short", "string_too_long")
CONSTRAINTS = (*BELOW, *BEYOND, *LENGTHS, "multiple_of", "string_pattern_mismatch", "predicate_failed")
"""The same for values of the right type that break a rule of it."""
OUTSIDE = "outside_inherited_limit"


class TypeRefusal(ValueError):
    """A value does not fit a type.

    `requirement` says what would be right; it is empty where only the type's name says it. `of_limits` says whether the
    value is of the right type, but outside its limits.
    """

    def __init__(self, requirement: str = "", of_limits: bool = False) -> None:
        super().__init__(requirement)
        self.requirement = requirement
        self.of_limits = of_limits


class Checker:
    """Checks values of one type, and converts them: `checker(kind)(value)`.

    Raises `TypeRefusal` for a value that does not fit, and `SettingError` for a short form that its class refuses. A
    class that pydantic can't check, such as a protocol or a model, takes every value: whoever uses it finds out.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._validate = TypeAdapter(_as_pydantic_checks(kind)).validator.validate_python

    def __call__(self, value: Any) -> Any:
        try:
            return self._validate(value)
        except ValidationError as error:
            raise _refusal(self._kind, error) from None


def checked(kind: Any, value: Any) -> Any:
    """The value, checked and converted as by `checker(kind)`."""
    return checker(kind)(value)


def checker(kind: Any) -> Checker:
    """The checker of a type. They are kept, since making one takes longer than using it."""
    try:
        return _checker(kind, repr(kind))
    except TypeError:  # a rule of somebody's own has no hash
        return Checker(kind)


@cache
def _checker(kind: Any, text: str) -> Checker:
    """`text` tells `int | float` from `float | int`, which are equal."""
    return Checker(kind)


def is_settings(kind: Any) -> bool:
    """Whether a type is one of settings: a dataclass, or the base class of an axis."""
    return isinstance(kind, type) and (is_dataclass(kind) or getattr(kind, "is_setting", False) is True)


@cache
def short_form(kind: Any) -> Any:
    """The type of the short form from which a class makes an object by its `of(value)`; None if it has none."""
    if not hasattr(kind, "of"):
        return None
    hints = get_type_hints(kind.of)
    hints.pop("return", None)
    if len(hints) != 1:
        return None
    (kind_of_value,) = hints.values()
    return kind_of_value


def from_short_form(kind: Any, value: Any) -> Any:
    """The object that a class makes from a short form. Raises `TypeRefusal` if it takes no such value."""
    form = short_form(kind)
    if form is None:
        raise TypeRefusal
    return kind.of(checked(form, value))


def _refusal(kind: Any, error: ValidationError) -> TypeRefusal:
    """What pydantic's error says of a value, in the words of our errors; the first of its lines that says something.

    A union has a line for each of its types; most only say that the value has another type.
    """
    limit = limit_in(kind)
    for line in error.errors(include_url=False, include_input=False):
        problem = line["type"]
        cause = line.get("ctx", {}).get("error")
        if isinstance(cause, FedsashError):  # the class of a short form refuses the value
            raise cause
        if cause is not None:  # somebody's own class refuses it
            return TypeRefusal(one_line(cause))
        if problem == TOO_WIDE:
            return TypeRefusal(TOO_WIDE)
        if problem == OUTSIDE:
            return TypeRefusal(line["msg"], of_limits=True)
        if limit is not None and problem in (*BELOW, *BEYOND):
            requirement = f"must be {limit.words_for(problem in BELOW)}"
            for word in _words_in(kind):
                requirement += f', or "{word}"'
            return TypeRefusal(requirement, of_limits=True)
        # The wrong length of a tuple such as `tuple[int, int]` is a wrong type, and not a broken rule.
        is_rule = problem not in LENGTHS or get_origin(kind) is Annotated
        if problem in CONSTRAINTS and is_rule:
            requirement = re.sub(r"^\w+ should ", "must ", line["msg"])
            return TypeRefusal(requirement, of_limits=True)
    return TypeRefusal()


def _words_in(kind: Any) -> list[str]:
    """The words that may stand in place of a number: of a union, the choices of its literals."""
    if get_origin(kind) not in (Union, UnionType):
        return []
    words: list[str] = []
    for member in get_args(kind):
        if get_origin(member) is Literal:
            words += get_args(member)
    return words


def _as_pydantic_checks(kind: Any) -> Any:
    """A type as pydantic has to read it: strictly, and with the few conversions that settings have."""
    origin = get_origin(kind)
    members = get_args(kind)
    if origin is Annotated:
        rules = [_as_rule(rule) for rule in members[1:]]
        return Annotated[_as_pydantic_checks(members[0]), *rules]
    if not members:
        return _simple(kind)
    if origin in (Union, UnionType):
        return _union(members)
    if origin is Literal:
        return Annotated[Any, PlainValidator(partial(_choice, members))]
    if origin in (tuple, list, Sequence):
        return _sequence(origin, members)
    if origin is set:
        item: Any = _as_pydantic_checks(members[0])
        return set[item]
    if origin is frozenset:
        item = _as_pydantic_checks(members[0])
        return frozenset[item]
    if origin in (dict, Mapping):
        values: Any = _as_pydantic_checks(members[1])
        return dict[Any, values]
    return Any


def _simple(kind: Any) -> Any:
    """What pydantic checks of a type without members: a number, a word, an object of settings, a path and so on."""
    if kind in _CHECKS:
        return _CHECKS[kind]
    if is_settings(kind):
        return Annotated[Any, PlainValidator(partial(_as_object, kind))]
    if _is_of_pydantic(kind):
        return Annotated[kind, WrapValidator(partial(_unless_number, kind))]
    return Any


def _as_rule(rule: Any) -> Any:
    """What stands behind a type in `Annotated`; pydantic knows all but the limit that a field has from a base."""
    if isinstance(rule, Inherited):
        return AfterValidator(partial(_within, rule.limit))
    return rule


def _wrong_type() -> PydanticCustomError:
    return PydanticCustomError("wrong_type", "has another type")


def _union(members: Iterable[Any]) -> Any:
    """A union whose first type that takes a value decides what becomes of it."""
    members = sorted(members, key=_is_of_pydantic)  # a path takes every text, so it comes last
    kinds = [_as_pydantic_checks(member) for member in members if member is not NoneType]
    union = kinds[0]
    if len(kinds) > 1:
        union = Annotated[union_of(kinds), Field(union_mode="left_to_right")]
    if NoneType in members:
        return union | None
    return union


def _sequence(kind: type, members: tuple[Any, ...]) -> Any:
    """Lists and tuples become what the field has. Other collections, such as arrays, are held as they are."""
    container = list if kind is list else tuple
    items = []
    for member in members:
        if member is Ellipsis:
            items.append(Ellipsis)
        else:
            items.append(_as_pydantic_checks(member))
    if kind is Sequence:
        items.append(Ellipsis)
    return Annotated[container[tuple(items)], WrapValidator(_unless_other_collection)]


def _unless_other_collection(value: Any, check: Any) -> Any:
    if isinstance(value, list | tuple):
        return check(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        return value
    raise _wrong_type()


def _as_object(kind: Any, value: Any) -> Any:
    if isinstance(value, kind):
        return value
    try:
        return from_short_form(kind, value)
    except TypeRefusal:
        raise _wrong_type() from None


def _choice(choices: tuple[Any, ...], value: Any) -> Any:
    """A value that is one of the choices, and no other that is equal to it: True is not 1."""
    for choice in choices:
        if type(value) is type(choice) and value == choice:
            return value
    raise _wrong_type()


def _unless_number(kind: type, value: Any, check: Any) -> Any:
    """An object of a class that pydantic knows, or what is made of a text or a list; of a number only an `Enum`."""
    if isinstance(value, kind):
        return value
    if isinstance(value, int | float) and not issubclass(kind, Enum):
        raise _wrong_type()
    return check(value)


def _within(limit: Limit, value: Any) -> Any:
    """A value whose numbers lie in the limit that a base of the class has for them."""
    numbers = value if isinstance(value, list | tuple) else [value]
    for number in numbers:
        if not isinstance(number, Real) or isinstance(number, bool):
            continue
        try:
            checked(Annotated[limit.number, limit.interval, Remark(limit.remark)], number)
        except TypeRefusal as refusal:
            raise PydanticCustomError(OUTSIDE, "{requirement}", {"requirement": str(refusal)}) from None
    return value


def is_known(kind: Any) -> bool:
    """Whether values of a type can be checked. What can't is code: functions, models, protocols, arrays."""
    origin = get_origin(kind)
    if origin is not None:
        return origin in CONTAINERS
    return kind in _CHECKS or is_settings(kind) or _is_of_pydantic(kind)


def _is_of_pydantic(kind: Any) -> bool:
    """Whether pydantic knows a class, such as `Path`, by itself."""
    if not isinstance(kind, type) or kind in _CHECKS or kind.__module__.startswith(("collections", "typing")):
        return False
    try:
        return TypeAdapter(kind).pydantic_complete is True
    except Exception:  # a class may say itself how pydantic reads it
        return False


def _plain(value: Any) -> Any:
    """A scalar of NumPy or PyTorch as a number of Python."""
    if getattr(value, "ndim", None) == 0:
        return value.item()
    return value


def _integer(value: Any) -> Any:
    value = _plain(value)
    if isinstance(value, int) and not LEAST_INTEGER <= value <= MOST_INTEGER:
        raise PydanticCustomError(TOO_WIDE, TOO_WIDE)
    return value


def _number(value: Any) -> Any:
    """Any real number, such as a fraction, as a float. NaN is none."""
    value = _integer(value)
    if isinstance(value, bool) or not isinstance(value, Real) or value != value:
        raise _wrong_type()
    try:
        number = float(value)
    except OverflowError:
        raise _wrong_type() from None
    if number == 0 and value != 0:  # a fraction that no float is near
        raise _wrong_type()
    return number


_CHECKS: dict[Any, Any] = {
    int: Annotated[int, Strict(), BeforeValidator(_integer)],
    float: Annotated[float, Strict(), BeforeValidator(_number)],
    bool: Annotated[bool, Strict(), BeforeValidator(_plain)],
    str: Annotated[str, Strict()],
    NoneType: NoneType,
    Any: Any,
}
