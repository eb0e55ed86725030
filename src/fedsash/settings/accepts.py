"""What a field takes beside objects of its own type, for type checkers: `broadcast: Accepts[Broadcast | None, str]`.

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
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, dataclass_transform

if TYPE_CHECKING:
    Held = TypeVar("Held")
    Form = TypeVar("Form")
    Made = TypeVar("Made")

    class Accepts(Generic[Held, Form]):
        """A checker takes the types of a descriptor: what is assigned, and so given to `__init__`, and what is read."""

        def __get__(self, instance: object, owner: type) -> Held: ...
        def __set__(self, instance: object, value: Held | Form) -> None: ...

    @dataclass_transform(field_specifiers=(field,))
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
    return value if factory is dataclasses.MISSING else field(default_factory=factory)
