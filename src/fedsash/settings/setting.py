"""The base of whatever has settings: a dataclass whose fields are checked by their types, in Python as in files.

    @dataclass(frozen=True)
    class Federation(Setting):
        broadcast: Accepts[Broadcast | None, str] = default(None)

A checker takes a name for `Federation(broadcast="ima")`, and reads `federation.broadcast` as a broadcast or None. For
Python the field's type is the first one alone. `Setting` converts the value, whoever writes the class: a short form by
the `of` of the field's class, a list to a tuple. (Of a frozen subclass mypy reads both types, where pyright reads one.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import cache, wraps
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, dataclass_transform, get_args, get_type_hints

from .checks import Checker, TypeRefusal, checked, checker, is_settings
from .errors import SettingError
from .hooks import check_hooks
from .limits import limited_hints
from .meanings import Documentation
from .words import python_words

if TYPE_CHECKING:
    Held = TypeVar("Held")
    Form = TypeVar("Form")
    Made = TypeVar("Made")

    class Accepts(Generic[Held, Form]):
        """A checker takes the types of a descriptor: what is assigned, and so given to `__init__`, and what is read."""

        def __get__(self, instance: object, owner: type) -> Held: ...
        def __set__(self, instance: object, value: Held | Form) -> None: ...

    @dataclass_transform(field_specifiers=(dataclasses.field,))
    def dataclass(*, frozen: bool = False, kw_only: bool = False) -> Callable[[type[Made]], type[Made]]:
        """Python's own. For a class with a required field that `Accepts`: mypy sees no descriptor there without it."""
        ...

else:
    dataclass = dataclasses.dataclass

    class Accepts:
        """The type of what a field holds."""

        def __class_getitem__(cls, kinds: tuple[Any, Any]) -> Any:
            return kinds[0]


def default(value: Any = dataclasses.MISSING, *, factory: Any = dataclasses.MISSING) -> Any:
    """The default of a field that `Accepts`, or what makes it; a checker would refuse it as it stands."""
    if factory is dataclasses.MISSING:
        return value
    return dataclasses.field(default_factory=factory)


class Setting:
    """The base of an axis, such as `Average`, and of a table of settings, such as `LocalTraining`.

        @dataclass(frozen=True)
        class Window(Average, name="window"):
            size: Count
            \"""The number of models that are averaged.\"""

    A setting is described once: its type, its limits (see `limits`) and its meaning in the class, and the class's
    `name` in experiment files. Whenever an object is made, its fields are checked before its own `__post_init__`, also
    in subclasses that are plain dataclasses of a user. A few values are converted, as in an experiment file: a list to
    a tuple, a NumPy or PyTorch scalar to a number, a short form to an object of the field's class (by its `of`).
    Any other value of a wrong type, or outside its limits, raises `SettingError`.

    A subclass whose functions are misspelt raises `TypeError` (see `check_hooks`), and so do a name that another class
    of the axis has, and another default for a base's field without its type.
    """

    by_name: ClassVar[dict[str, type[Any]]]
    """The classes of the axis, by their names in experiment files."""

    is_setting: ClassVar[bool] = True

    if TYPE_CHECKING:  # says that `replace` and `fields` take every object of settings (see `dataclass` above)
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls, *, name: str = "", **more: Any) -> None:
        super().__init_subclass__(**more)
        _check_defaults(cls)
        if Setting in cls.__bases__:
            cls.by_name = {}
        for axis in axes_of(cls):
            if axis is not cls:
                check_hooks(cls, axis)
            _register(name, cls, axis)
        docstring = vars(cls).get("__doc__")
        if isinstance(docstring, str):
            cls.__doc__ = Documentation(docstring)  # type: ignore[assignment]
        own_check = vars(cls).get("__post_init__")
        if own_check is not None:
            cls.__post_init__ = _after_types(own_check)  # type: ignore[assignment, method-assign]

    def __post_init__(self) -> None:
        if type(self).__post_init__ is Setting.__post_init__:
            check_fields(self)


def axes_of(cls: type[Setting]) -> list[type[Setting]]:
    """The axes of a class: those among its bases that extend `Setting` itself."""
    return [base for base in cls.__mro__ if Setting in base.__bases__]


def in_order(axis: type[Setting], *classes: type[Setting]) -> dict[str, type[Any]]:
    """The classes of an axis by their names: these first, in this order, whatever was imported first."""
    before = dict(axis.by_name)
    axis.by_name.clear()
    for cls in classes:
        for name, known_class in before.items():
            if known_class is cls:
                axis.by_name[name] = cls
    axis.by_name.update(before)
    return axis.by_name


def _check_defaults(cls: type[Setting]) -> None:
    """Raise `TypeError` for another default of a base's field that has no type, as in `weighting = "uniform"`.

    A dataclass passes it over, and the default stays that of the base.
    """
    if not dataclasses.is_dataclass(cls):
        return
    typed = get_annotations(cls)
    for name in (each.name for each in fields(cls)):
        value = vars(cls).get(name, MISSING)
        if value is not MISSING and name not in typed and not hasattr(value, "__get__"):
            line = f"has no effect: write its type, {name}: TYPE = {value!r}"
            raise TypeError(f"{cls.__name__}.{name} = {value!r} {line}")


def _register(name: str, cls: type[Setting], axis: type[Setting]) -> None:
    """Enter a class under its name. With slots, `dataclass` makes the class again, beside it and without the name.

    Raises `TypeError` for a name that is no word, that another class has, or that a field of the class hides.
    """
    for known_name, known_class in axis.by_name.items():
        same_name = known_class.__module__ == cls.__module__ and known_class.__name__ == cls.__name__
        is_made_again = same_name and not issubclass(cls, known_class)
        if is_made_again and name in ("", known_name):
            axis.by_name[known_name] = cls
        elif known_name == name:
            owner = f"{known_class.__module__}.{known_class.__qualname__}"
            raise TypeError(f"{cls.__name__}: the name {name!r} is that of {owner}")
    if not name:
        return
    if not isinstance(name, str) or not name.isidentifier():
        raise TypeError(f"{cls.__name__}: the name {name!r} must be a word, such as 'window'")
    if "name" in get_annotations(cls):
        raise TypeError(f"{cls.__name__}.name: in a file, name chooses the class; call the field otherwise")
    axis.by_name[name] = cls


def _after_types(own_check: Callable[[Any], None]) -> Callable[[Any], None]:
    """A class's own `__post_init__`, which sees only values of the right types."""

    @wraps(own_check)
    def post_init(self: Any) -> None:
        if type(self).__post_init__ is post_init:  # and not called by a subclass, which has checked all fields
            check_fields(self)
        own_check(self)

    return post_init


def check_fields(settings: Any) -> None:
    """Check every field of a dataclass by its type, and convert what is taken in another form.

    Raises `SettingError` for the first value that is refused. A default may be of a type that its field has not, such
    as None, but it must lie in the limits.
    """
    cls: Any = type(settings)
    for field, kind, check in _checked_fields(cls):
        value = getattr(settings, field.name)
        try:
            converted = check(value)
        except TypeRefusal as refusal:
            if value is field.default and not refusal.of_limits:
                continue
            if refusal.requirement:
                raise SettingError(cls.__name__, field.name, value, refusal.requirement) from None
            requirement = f"must be {_type_in_words(field, kind, value)}"
            raise SettingError(cls.__name__, field.name, value, requirement, kind) from None
        if converted is not value:
            object.__setattr__(settings, field.name, converted)


def checked_value(name: str, kind: Any, value: Any) -> Any:
    """An argument of a function, checked and converted as a setting of that type. Raises `SettingError`."""
    try:
        return checked(kind, value)
    except TypeRefusal as refusal:
        requirement = refusal.requirement or f"must be {python_words(kind)}"
        raise SettingError("", name, value, requirement) from None


@cache
def _checked_fields(cls: Any) -> list[tuple[Field[Any], Any, Checker]]:
    """The fields of `__init__` with their types and checkers; none if a user's annotations can't be evaluated."""
    hints = limited_hints(cls)
    checked_fields = []
    for field in fields(cls):
        if field.init and field.name in hints:
            kind = hints[field.name]
            checked_fields.append((field, kind, checker(kind)))
    return checked_fields


@cache
def hints_of(cls: Any) -> dict[str, Any]:
    """The types of a class's fields by name, without limits; `Any` for those that can't be evaluated.

    They are cached: reading takes longer than using them.
    """
    try:
        return get_type_hints(cls)
    except (NameError, TypeError, AttributeError):
        return {field.name: Any for field in fields(cls)}


def default_of(field: Field[Any]) -> Any:
    """The default of a dataclass's field, made anew if a factory makes it; `MISSING` if it has none."""
    if field.default_factory is MISSING:
        return field.default
    return field.default_factory()


def _type_in_words(field: Field[Any], kind: Any, value: Any) -> str:
    """The type of a field in words, with an example, for an error about a value of another type."""
    if isinstance(value, type) and is_settings(value) and issubclass(value, _classes(kind)):
        return f"an object of this class, {value.__name__}(...)"
    words = python_words(kind)
    example = _example(field)
    if not example:
        return words
    return f"{words}, such as {example}"


def _example(field: Field[Any]) -> str:
    """A right value of a field, as Python writes it: what its metadata say, or the class of its default; or empty."""
    if "example" in field.metadata:
        return str(field.metadata["example"])
    cls = type(default_of(field))
    if not is_settings(cls):
        return ""
    return f"{cls.__name__}()"


def _classes(kind: Any) -> tuple[type, ...]:
    """The classes of which a field takes objects: the type itself, or the members of a union."""
    return tuple(member for member in (*get_args(kind), kind) if isinstance(member, type))
