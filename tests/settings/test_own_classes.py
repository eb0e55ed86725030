"""Classes of settings of one's own, in every form that people write: checked, described and named as the library's."""

from __future__ import annotations

import datetime
import enum
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import pytest
from annotated_types import Ge, MinLen, MultipleOf
from typing_extensions import Doc

from fedsash import LocalTraining, Window
from fedsash.averages import Average
from fedsash.lab.config import ConfigError, parse
from fedsash.lab.config.registries import REGISTRIES, Registry
from fedsash.methods import FedAvg, Method
from fedsash.methods.server_optimisers import Server
from fedsash.settings.checks import TypeRefusal, checked
from fedsash.settings.errors import SettingError
from fedsash.settings.limits import Count

if TYPE_CHECKING:
    from nowhere import Nothing  # type: ignore[import-not-found]


class Colour(enum.Enum):
    RED = "red"


class Unread(NamedTuple):
    low: float
    at: Nothing | None = None


@dataclass(frozen=True)
class Inner:
    a: int = 1


@dataclass(frozen=True)
class Wide(FedAvg):
    """A field of every kind."""

    even: Annotated[int, MultipleOf(2)] = 2
    least: Annotated[int, Ge(2)] = 2
    several: Annotated[tuple[int, ...], MinLen(1)] = (1,)
    counts: tuple[Count, ...] = ()
    colour: Colour = Colour.RED
    when: datetime.timedelta = datetime.timedelta(1)
    numbers: set[int] = field(default_factory=set)
    call: Callable[[], int] | None = None
    listed: list[Inner] = field(default_factory=list)
    series: Sequence[Inner] = ()
    named: dict[str, list[Inner]] = field(default_factory=dict)
    yes: Literal[True] = True
    pair: Unread | None = None
    place: Path | str = ""


@dataclass(frozen=True)
class Unreadable(FedAvg):
    other: Nothing | None = None
    count: int = 3


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"even": 3}, "Wide.even = 3: must be a multiple of 2"),
        ({"least": 1}, "Wide.least = 1: must be greater than or equal to 2"),
        ({"several": ()}, "Wide.several = (): must have at least 1 item after validation, not 0"),
        ({"counts": [0]}, "Wide.counts = [0]: must be at least 1"),
        ({"when": True}, "Wide.when = True: must be a timedelta"),
        ({"yes": 1}, "Wide.yes = 1: must be True"),
        ({"colour": "blue"}, "Wide.colour = 'blue': must be a Colour"),
    ],
)
def test_a_rule_of_any_kind_says_what_would_be_right(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingError) as refused:
        Wide(**settings)
    assert str(refused.value) == line


def test_what_a_file_writes_becomes_what_the_field_has() -> None:
    table: dict[str, Any] = {"name": f"{__name__}:Wide", "colour": "red", "numbers": [1, 1]}
    table |= {"listed": [{"a": 2}], "series": [{}], "named": {"x": [{"a": 3}]}, "yes": True, "place": "a/"}
    made = parse({"method": table}, own_code=True).method
    assert isinstance(made, Wide)
    assert (made.colour, made.numbers, made.place) == (Colour.RED, {1}, "a/")
    assert (made.listed, made.series, made.named) == ([Inner(2)], (Inner(),), {"x": [Inner(3)]})


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("call", "relu", "must be"),
        ("numbers", True, "must be"),
        ("listed", {"a": 1}, "must be a list of tables"),
        ("counts", [float("inf")], "must be finite"),
    ],
)
def test_a_file_gives_no_code_and_no_infinity(key: str, value: Any, line: str) -> None:
    with pytest.raises(ConfigError, match=rf"method\.{key} = .*{line}"):
        parse({"method": {"name": f"{__name__}:Wide", key: value}}, own_code=True)


def test_a_class_with_a_type_that_is_there_for_checkers_only_works_in_a_file_too() -> None:
    made = parse({"method": {"name": f"{__name__}:Unreadable", "count": 4}}, own_code=True).method
    assert made == Unreadable(count=4)


@pytest.mark.parametrize("kind", [int, Annotated[float, Doc("mine")], float | None, Literal[-5, 1], Any])
def test_a_field_keeps_the_limit_of_its_base_however_it_is_written(kind: Any) -> None:
    space = {"__annotations__": {"lr": kind}, "lr": 1, "__module__": __name__}
    own = dataclass(frozen=True)(type("Own", (LocalTraining,), space))
    with pytest.raises(SettingError, match=r"Own\.lr = -5: must be at least 0 and at most 1,000,000,000"):
        own(lr=-5)


def test_the_first_type_of_a_union_decides_whatever_was_checked_before() -> None:
    for _ in range(2):
        assert type(checked(float | int, 3)) is float and type(checked(int | float, 3)) is int
    assert checked(Path | str, "a") == "a" and checked(Path, "a") == Path("a")


@pytest.mark.parametrize("number", [Fraction(10**400), Fraction(1, 10**400)])
def test_a_fraction_that_no_float_holds_is_refused(number: Fraction) -> None:
    with pytest.raises(TypeRefusal):
        checked(float, number)


def test_a_name_belongs_to_one_class() -> None:
    with pytest.raises(TypeError, match="the name 'window' is that of fedsash"):
        type("Window", (Average,), {"__module__": __name__}, name="window")
    with pytest.raises(TypeError, match="must be a word"):
        type("Odd", (Average,), {"__module__": __name__}, name="a:b")
    with pytest.raises(TypeError, match="in a file, name chooses the class"):
        type("Named", (Average,), {"__module__": __name__, "__annotations__": {"name": str}}, name="named_odd")
    assert Average.by_name["window"] is Window


def test_a_name_of_ones_own_is_taken_here_and_written_with_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Method, "by_name", dict(Method.by_name))  # other tests see the library's names alone
    monkeypatch.setitem(REGISTRIES, "methods", Registry("method", Method.by_name, Method))

    @dataclass(frozen=True, slots=True)
    class Slotted(FedAvg, name="slotted"):
        size: int = 1

    known = Method.by_name["slotted"]
    assert known is Slotted and REGISTRIES["methods"].find("slotted") is Slotted
    written = REGISTRIES["methods"].name_of(Slotted())
    assert written == f"{__name__}:{Slotted.__qualname__}"


def test_a_misspelt_function_is_found_on_each_of_two_axes() -> None:
    with pytest.raises(TypeError, match="did you mean retention"):
        type("Both", (Average, Server), {"retentoin": lambda self: 1})


def test_a_default_without_a_type_is_refused_where_a_dataclass_would_pass_it_over() -> None:
    line = r"^Uniform\.weighting = 'uniform' has no effect: write its type, weighting: TYPE = 'uniform'$"
    with pytest.raises(TypeError, match=line):
        type("Uniform", (FedAvg,), {"weighting": "uniform"})

    @dataclass(frozen=True)
    class Typed(FedAvg):
        weighting: Literal["samples", "uniform"] = "uniform"

    assert Typed().weighting == "uniform"


MARGIN = """
from dataclasses import dataclass
from fedsash.methods import FedAvg, Method

def made():
    @dataclass(frozen=True)
    class Local(FedAvg):
        "Mine."

# a comment at the margin
        size: int = 1
        "how many"

    return Local
"""


def test_a_class_in_a_function_with_a_comment_at_the_margin_has_meanings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "at_the_margin.py").write_text(MARGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "- `size`: how many" in import_module("at_the_margin").made().__doc__


def test_an_error_with_a_type_of_no_module_can_be_pickled() -> None:
    with pytest.raises(SettingError) as refused:
        Wide(listed=3)  # type: ignore[arg-type]
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)
