"""Whether a value fits the type of a setting: pydantic decides, in Python and in files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache, partial
from numbers import Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    PydanticSchemaGenerationError,
    PydanticUserError,
    Strict,
    TypeAdapter,
    ValidationError,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from .errors import FedsashError
from .limits import limit_in, union_of

LEAST_INTEGER = -(2**63)
"""The least integer of 64 bits, which is what arrays and tensors hold."""
MOST_INTEGER = 2**63 - 1
"""The largest one."""
TOO_WIDE = "must be a number of up to 64 bits"
CONTAINERS = (Annotated, Union, UnionType, Literal, tuple, list, Sequence, dict, Mapping)
"""The forms of types whose members can be checked."""
BELOW = ("greater_than", "greater_than_equal")
"""pydantic's types of errors for a number that is below its limit."""
BEYOND = ("less_than", "less_than_equal")
"""The same for one that is above."""


class TypeRefusal(ValueError):
    """A value does not fit a type.

    `requirement` says what would be right; it is empty where only the type's name says it. `of_limits` says whether the
    value is of the right type, but outside its limits.
    """

    def __init__(self, requirement: str = "", of_limits: bool = False) -> None:
        super().__init__(requirement)
        self.requirement = requirement
        self.of_limits = of_limits


def checked(kind: Any, value: Any) -> Any:
    """The value, converted for a setting of type `kind`.

    Raises `TypeRefusal` if it does not fit. A class that pydantic can't check, such as a protocol or a model, takes
    every value: whoever uses it finds out. Raises `SettingError` for a short form that its class refuses.
    """
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise _refusal(kind, error) from None


def is_settings(kind: Any) -> bool:
    """Whether a type is one of settings: a dataclass, or the base class of an axis."""
    return isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "by_name"))


@cache
def short_form(kind: Any) -> Any:
    """The type of the short form from which a class makes an object by its `of(value)`; None if it has none."""
    hints = get_type_hints(kind.of) if hasattr(kind, "of") else {}
    taken = [hint for name, hint in hints.items() if name != "return"]
    return taken[0] if len(taken) == 1 else None


def from_short_form(kind: Any, value: Any) -> Any:
    """The object that a class makes from a short form. Raises `TypeRefusal` if it takes no such value."""
    form = short_form(kind)
    if form is None:
        raise TypeRefusal
    return kind.of(checked(form, value))


def _refusal(kind: Any, error: ValidationError) -> TypeRefusal:
    limit = limit_in(kind)
    for line in error.errors(include_url=False, include_input=False):
        cause = line.get("ctx", {}).get("error")
        if isinstance(cause, FedsashError):  # a short form's class refuses the value
            raise cause
        if line["type"] == TOO_WIDE:
            return TypeRefusal(TOO_WIDE)
        below = line["type"] in BELOW
        if limit is not None and (below or line["type"] in BEYOND):
            requirement = f"must be {limit.words_for(below)}"
            words = "".join(f', or "{word}"' for word in _words_in(kind))
            return TypeRefusal(requirement + words, of_limits=True)
    return TypeRefusal()


def _words_in(kind: Any) -> list[str]:
    """The words that may stand in place of a number."""
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else ()
    return [word for member in members if get_origin(member) is Literal for word in get_args(member)]


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """pydantic's checker of a type. They are cached: making one takes longer than using it."""
    return TypeAdapter(_as_pydantic_checks(kind))


def _as_pydantic_checks(kind: Any) -> Any:
    """A type as pydantic has to read it: strictly, and with the few conversions that settings have."""
    origin = get_origin(kind)
    members = get_args(kind)
    if origin is Annotated:
        return Annotated[_as_pydantic_checks(members[0]), *members[1:]]
    if origin in (Union, UnionType):
        return _union(members)
    if origin is Literal:
        numbers = any(isinstance(choice, int) for choice in members)
        return Annotated[kind, BeforeValidator(_no_boolean)] if numbers else kind
    if origin in (tuple, list, Sequence):
        return _sequence(origin, members)
    if origin in (dict, Mapping):
        values: Any = _as_pydantic_checks(members[1])
        return dict[Any, values]
    if kind in _CHECKS:
        return _CHECKS[kind]
    if is_settings(kind):
        return Annotated[Any, PlainValidator(partial(_as_object, kind))]
    return kind if is_known(kind) else Any


def _union(members: Iterable[Any]) -> Any:
    """A union whose first type that takes a value decides what becomes of it."""
    kinds = [_as_pydantic_checks(member) for member in members if member is not NoneType]
    union = kinds[0] if len(kinds) == 1 else Annotated[union_of(kinds), Field(union_mode="left_to_right")]
    return union | None if NoneType in members else union


def _sequence(kind: type, members: tuple[Any, ...]) -> Any:
    """Lists and tuples become what the field has. Other collections, such as arrays, are held as they are."""
    container = list if kind is list else tuple
    items = tuple(one if one is Ellipsis else _as_pydantic_checks(one) for one in members)
    if kind is Sequence:
        items = (*items, Ellipsis)
    return Annotated[container[items], WrapValidator(_unless_other_collection)]


def _unless_other_collection(value: Any, check: Any) -> Any:
    if isinstance(value, list | tuple):
        return check(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        return value
    raise ValueError("must be a list")


def _as_object(kind: Any, value: Any) -> Any:
    if isinstance(value, kind):
        return value
    return from_short_form(kind, value)


def is_known(kind: Any) -> bool:
    """Whether values of a type can be checked. What can't is code: functions, models, protocols, arrays."""
    origin = get_origin(kind)
    if origin is not None:
        return origin in CONTAINERS
    return kind in _CHECKS or is_settings(kind) or _is_of_pydantic(kind)


def _is_of_pydantic(kind: Any) -> bool:
    """Whether pydantic knows a class, such as `Path`, by itself."""
    if not isinstance(kind, type) or kind.__module__.startswith(("collections", "typing")):
        return False
    try:
        TypeAdapter(kind)
    except (PydanticSchemaGenerationError, PydanticUserError):
        return False
    return True


def _plain(value: Any) -> Any:
    """A scalar of NumPy or PyTorch as a number of Python."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def _integer(value: Any) -> Any:
    value = _plain(value)
    if isinstance(value, int) and not LEAST_INTEGER <= value <= MOST_INTEGER:
        raise PydanticCustomError(TOO_WIDE, TOO_WIDE)
    return value


def _number(value: Any) -> Any:
    """Any real number, such as a fraction, as a float. NaN is none."""
    value = _integer(value)
    if isinstance(value, bool) or not isinstance(value, Real) or value != value:
        raise ValueError("must be a number")
    return float(value)


def _no_boolean(value: Any) -> Any:
    """pydantic takes True for the 1 of a literal, since they are equal."""
    if isinstance(value, bool):
        raise ValueError("is a boolean")
    return value


_CHECKS: dict[Any, Any] = {
    int: Annotated[int, Strict(), BeforeValidator(_integer)],
    float: Annotated[float, Strict(), BeforeValidator(_number)],
    bool: Annotated[bool, Strict(), BeforeValidator(_plain)],
    str: Annotated[str, Strict()],
    NoneType: NoneType,
    Any: Any,
}
