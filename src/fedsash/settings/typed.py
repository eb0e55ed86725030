"""Type checks for the fields of settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from numbers import Real
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import SettingError
from .hooks import check_hooks
from .limits import check_limits, limits_of

T = TypeVar("T")
Named = Callable[[Any, bool], str]
"""`named(kind, many)`: the words for a class, a mapping or a literal's value, in the singular or the plural."""


def typed(cls: type[T]) -> type[T]:
    """Check the types of a dataclass's fields and their limits before its own `__post_init__`, also in subclasses.

    Integers must fit into 64 bits, and NaN is no number. A few values are converted, as in an experiment file: a list
    to a tuple, a NumPy or PyTorch scalar to a number, and a short form to an object of the field's class (by its `of`).
    Any other value of a wrong type raises `SettingError`. Types that `fit` does not know are not checked. A subclass
    whose functions are misspelt raises `TypeError` (see `check_hooks`). The decorator is written below `@dataclass`.
    """

    own = cls.__dict__.get("__init_subclass__")

    def extended(sub: type[Any], /, **more: Any) -> None:
        if own is None:
            super(cls, sub).__init_subclass__(**more)
        else:
            own.__get__(None, sub)(**more)
        check_hooks(sub, cls)
        _guard(sub)

    _guard(cls)
    cls.__init_subclass__ = classmethod(extended)  # type: ignore[assignment]
    cls._typed = True  # type: ignore[attr-defined]
    return cls


def fit(kind: Any, value: Any) -> Any:
    """The value, converted for a field of type `kind`; `MISSING` if it does not fit."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return value if any(type(value) is type(one) and value == one for one in arguments) else MISSING
    if origin in (Union, UnionType):
        return next((found for one in arguments if (found := fit(one, value)) is not MISSING), MISSING)
    if origin in (tuple, list, Sequence):
        return _several(origin, arguments, value)
    if origin in (dict, Mapping):
        return _mapping(arguments[1], value)
    if kind is NoneType or kind is str:
        return value if isinstance(value, kind) else MISSING
    if kind in (int, float, bool):
        return _number(kind, value)
    return _object(kind, value) if is_settings(kind) else value


@cache
def hints_of(cls: Any) -> dict[str, Any]:
    """The types of a class's fields by name. They are cached, because it takes longer to read them than to use them."""
    return get_type_hints(cls)


def is_settings(kind: Any) -> bool:
    """Whether a type is one of settings: a dataclass, or the base class of an axis."""
    return isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_typed"))


def short(kind: Any, value: Any) -> Any:
    """The object that a class makes from a short form, by its `of(value)`; `MISSING` if it takes no such value."""
    form = short_form(kind)
    taken = MISSING if form is None else fit(form, value)
    return MISSING if taken is MISSING else kind.of(taken)


def short_form(kind: Any) -> Any:
    """The type of the short form from which a class makes an object by its `of(value)`; None if it has none."""
    hints = get_type_hints(kind.of) if hasattr(kind, "of") else {}
    taken = [hint for name, hint in hints.items() if name != "return"]
    return taken[0] if len(taken) == 1 else None


def in_words(kind: Any, named: Named, many: bool = False) -> str:
    """A type in words, such as "a list of integers"; empty if there are none. None is left out of a union."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _WORDS:
        return _WORDS[kind][many]
    if origin in (Union, UnionType):
        words = [in_words(one, named, many) for one in arguments if one is not NoneType]
        return " or ".join(word for word in words if word)
    if origin is Literal:
        return " or ".join(named(one, many) for one in arguments)
    if origin in (tuple, list, Sequence):
        count = "" if Ellipsis in arguments or origin is not tuple else f"{len(arguments)} "
        return f"{'lists' if many else 'a list'} of {count}{in_words(arguments[0], named, True)}"
    return named(kind, many) if origin in (dict, Mapping) or (origin is None and isinstance(kind, type)) else ""


_WORDS = {
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    str: ("a string", "strings"),
    bool: ("true or false", "true or false"),
    Any: ("a value", "values"),
}


def _guard(cls: type[Any]) -> None:
    """Make a class check the types of its fields first."""
    own = vars(cls).get("__post_init__")
    if own is None and hasattr(cls, "__post_init__"):
        return  # the inherited one checks them

    def post_init(self: Any) -> None:
        _take(self)
        if own is not None:
            own(self)

    cls.__post_init__ = post_init


def _take(settings: Any) -> None:
    cls: Any = type(settings)
    for field, kind in _fields(cls):
        value = getattr(settings, field.name)
        taken = value if value is field.default else fit(kind, value)
        if taken is MISSING:
            raise SettingError(cls.__name__, field.name, value, f"must be {_right(field, kind, value)}")
        if taken is not value:
            object.__setattr__(settings, field.name, taken)
    for field in fields(settings):
        if field.init and field.name in limits_of(cls):
            check_limits(cls, field.name, getattr(settings, field.name))


@cache
def _fields(cls: Any) -> list[tuple[Field[Any], Any]]:
    """The fields of `__init__` with their types; none if a user's annotations can't be evaluated."""
    try:
        hints = hints_of(cls)
    except (NameError, TypeError, AttributeError):
        return []
    return [(field, hints[field.name]) for field in fields(cls) if field.init]


def default_of(field: Field[Any]) -> Any:
    """The default of a dataclass's field, made anew if a factory makes it; `MISSING` if it has none."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def _right(field: Field[Any], kind: Any, value: Any) -> str:
    """The right type of a field, in words."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "a number of up to 64 bits"
    if isinstance(value, type) and is_settings(value):
        members = tuple(one for one in (*get_args(kind), kind) if isinstance(one, type))
        if issubclass(value, members):
            return f"an object of this class, {value.__name__}(...)"
    default = default_of(field)
    example = f"{type(default).__name__}()" if is_settings(type(default)) else ""
    example = field.metadata.get("example", example)
    return in_words(kind, _named) + (f", such as {example}" if example else "")


def _named(kind: Any, many: bool) -> str:
    if get_origin(kind) in (dict, Mapping):
        return f"{'dicts' if many else 'a dict'} of names and {in_words(get_args(kind)[1], _named, True)}"
    if isinstance(kind, type):
        name = kind.__name__
        return f"{name.lower()}s" if many else f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
    return repr(kind)


def _number(kind: type, value: Any) -> Any:
    if getattr(value, "ndim", None) == 0:
        value = value.item()  # a scalar of NumPy or PyTorch
    if kind is bool or isinstance(value, bool):
        return value if isinstance(value, bool) and kind is bool else MISSING
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else MISSING
    return value if kind is float and isinstance(value, Real) and value == value else MISSING  # NaN equals nothing


def _several(kind: type, kinds: Sequence[Any], value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return value if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping) else MISSING
    repeated = kind is not tuple or kinds[-1] is Ellipsis
    if not repeated and len(kinds) != len(value):
        return MISSING
    taken = [fit(kinds[0 if repeated else i], one) for i, one in enumerate(value)]
    return MISSING if any(one is MISSING for one in taken) else list(taken) if kind is list else tuple(taken)


def _mapping(kind: Any, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return MISSING
    taken = {name: fit(kind, one) for name, one in value.items()}
    if any(one is MISSING for one in taken.values()):
        return MISSING
    return value if all(taken[name] is one for name, one in value.items()) else taken


def _object(kind: type, value: Any) -> Any:
    return value if isinstance(value, kind) else short(kind, value)
