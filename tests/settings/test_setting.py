"""A value of the wrong type is taken as an experiment file takes it, or refused in one line that names the field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pytest
import torch

from fedsash import Broadcast, Federation, LocalTraining, Scaffold, Window
from fedsash.averages import Average
from fedsash.lab.config import Experiment, NetworkExperiment
from fedsash.methods import Method
from fedsash.methods.sampling import FixedClients, Uniform
from fedsash.methods.schedules import Cosine
from fedsash.network import ConstantWindow
from fedsash.network.fedwindow import FedWindow
from fedsash.network.schedulers import FedBuff
from fedsash.runs import Callback
from fedsash.settings.checks import TypeRefusal, checked, is_settings
from fedsash.settings.errors import SettingError
from fedsash.settings.setting import Setting
from support.each import check_each
from support.settings import SETTINGS, minimal
from support.worlds import federation

if TYPE_CHECKING:
    from nowhere import Nothing  # type: ignore[import-not-found]


class Odd:
    """What no setting is."""

    def __repr__(self) -> str:
        return "Odd()"


def check_refuses_what_is_no_setting(place: tuple[Any, str]) -> None:
    cls, name = place
    given = minimal(cls)
    cls(**given)
    with pytest.raises(SettingError) as error:
        cls(**given | {name: Odd()})
    assert str(error.value).startswith(f"{cls.__name__}.{name} = Odd(): must be ")
    assert (error.value.owner, error.value.field) == (cls.__name__, name)


def test_every_field_of_every_setting_refuses_what_is_no_setting() -> None:
    places = [(cls, f.name) for cls in SETTINGS for f in fields(cls) if f.init and (cls.__name__, f.name) not in OPEN]
    check_each(check_refuses_what_is_no_setting, places, lambda place: f"{place[0].__name__}.{place[1]}")


OPEN = {("Function", "function"), *((cls.__name__, "trace") for cls in SETTINGS if hasattr(cls, "answers"))} | {
    (name, field) for name in ("Experiment", "NetworkExperiment") for field in ("data", "partition")
}
"""Fields that take anything of a certain behaviour, which their class looks for."""


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: Window(size="5"), "Window.size = '5': must be an integer"),
        (lambda: LocalTraining(schedule=0.99), "LocalTraining.schedule = 0.99: must be a Schedule, such as Constant()"),
        (lambda: LocalTraining(schedule=Cosine), "must be an object of this class, Cosine(...)"),
        (lambda: federation(method="scaffold"), "Federation.method = 'scaffold': must be a Method, such as FedAvg()"),
        (lambda: federation(method=Scaffold), "must be an object of this class, Scaffold(...)"),
        (lambda: federation(sampling=FedBuff()), "must be a Sampling, such as Uniform()"),
        (
            lambda: federation(local={"lr": 0.1}),
            "Federation.local = {'lr': 0.1}: must be a LocalTraining, such as LocalTraining()",
        ),
        (
            lambda: federation(averages=[Window(5)]),
            'must be a dict of names and averages, such as {"w5": Window(5)}',
        ),
        (lambda: federation(averages={"w": 5}), "Federation.averages = {'w': 5}: must be a dict of names and averages"),
        (lambda: NetworkExperiment(scheduler=FedBuff), "must be an object of this class, FedBuff(...)"),
        (lambda: FixedClients(rounds=[["a"]]), "FixedClients.rounds = [['a']]: must be a list of lists of integers"),
    ],
)
def test_what_has_the_wrong_type_is_refused_in_one_line(make: Callable[[], Any], line: str) -> None:
    with pytest.raises(SettingError) as error:
        make()
    assert line in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 200


@pytest.mark.parametrize("five", [5, np.int64(5), np.int32(5), np.array(5), torch.tensor(5)])
def test_scalars_of_numpy_and_pytorch_are_numbers(five: Any) -> None:
    assert Window(five) == Window(5) and type(Window(five).size) is int
    assert LocalTraining(lr=five).lr == 5
    with pytest.raises(SettingError):
        Window(five * 1.1)


def test_short_forms_are_those_of_an_experiment_file() -> None:
    with federation(averages={"w": Window(3)}, broadcast="w") as f:
        assert f.broadcast == Broadcast("w")
    assert Experiment(broadcast="w", averages={"w": Window(3)}).broadcast == Broadcast("w")
    assert FedWindow(window=4).window == ConstantWindow(4)
    assert FixedClients(rounds=[[1, 0], [2]]).rounds == ((0, 1), (2,))


@dataclass(frozen=True)
class Own(Method):
    """A user's own, with a field of every kind."""

    count: int = 3
    rate: float = None  # type: ignore[assignment]
    when: Path | bytes = Path()
    call: Callable[[int], int] = abs
    array: np.ndarray[Any, Any] | None = None
    words: Mapping[str, Any] | None = None
    mode: Literal["a", 2] = "a"
    pair: tuple[int, str] = (1, "b")
    odd: Odd | None = None


def test_an_own_class_is_checked_too_and_what_is_not_understood_is_let_through() -> None:
    with pytest.raises(SettingError, match=r"Own\.count = 'x': must be an integer"):
        Own(count="x")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=r"Own\.pair = "):
        Own(pair=(1, 2))  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=r"Own\.mode = 3: must be 'a' or 2"):
        Own(mode=3)  # type: ignore[arg-type]
    own = Own(when=b"x", call=3, array=[1], odd=5, words={1: Odd()}, pair=[2, "c"])  # type: ignore[arg-type]
    assert own.rate is None and own.when == b"x" and own.pair == (2, "c")


def test_an_own_class_whose_types_cannot_be_read_is_let_through() -> None:
    @dataclass(frozen=True)
    class Hidden(Method):
        what: Nothing = 1
        count: int = 2

    assert Hidden(count="x").count == "x"  # type: ignore[arg-type]


def test_the_class_of_a_setting_checks_its_values_after_the_types() -> None:
    with pytest.raises(SettingError, match=r"Uniform\.count, fraction = \(1, 0\.5\): must be one of them"):
        Uniform(1, fraction=0.5)
    with pytest.raises(SettingError, match=r"Uniform\.fraction = 'half': must be a number"):
        Uniform(1, fraction="half")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "value", "taken"),
    [
        (int | None, None, None),
        (float, 3, 3),
        (bool, 1, MISSING),
        (bool, np.bool_(True), True),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, ...], "12", MISSING),
        (tuple[int, ...], range(2), range(2)),
        (list[int], (1, 2), [1, 2]),
        (str | tuple[str, ...], ["a"], ("a",)),
        (Mapping[str, Average], {"w": Window(3)}, {"w": Window(3)}),
        (Literal[1, 3] | None, 2, MISSING),
        (Any, Odd, Odd),
    ],
)
def test_a_value_fits_a_type_or_does_not(kind: Any, value: Any, taken: Any) -> None:
    if taken is MISSING:
        with pytest.raises(TypeRefusal):
            checked(kind, value)
    else:
        assert checked(kind, value) == taken


def test_settings_are_dataclasses_and_the_bases_of_the_axes() -> None:
    assert all(map(is_settings, (LocalTraining, Method, Average, Federation))) and not any(
        map(is_settings, (int, Path, Odd))
    )


def test_a_base_class_keeps_what_it_does_with_its_subclasses() -> None:
    @dataclass(frozen=True)
    class Base(Setting):
        size: int = 1
        names: ClassVar[list[str]] = []

        def __init_subclass__(cls) -> None:
            super().__init_subclass__()
            Base.names.append(cls.__name__)

    @dataclass(frozen=True)
    class Sub(Base):
        width: int = 2

    assert Base.names == ["Sub"]
    with pytest.raises(SettingError, match=r"Sub\.width = 'a': must be an integer"):
        Sub(width="a")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("base", "name", "meant"),
    [(Method, "directions", "direction"), (Average, "observe", "observes"), (Callback, "on_round", "round")],
)
def test_a_function_that_is_called_almost_like_one_of_its_base_is_refused(base: Any, name: str, meant: str) -> None:
    """Nobody would call it, and nobody would say so."""
    with pytest.raises(TypeError, match=rf"Mine.{name}: {base.__name__} has no such function; did you mean {meant}\?"):
        type("Mine", (base,), {name: lambda self: None})
    for own in (f"_{name}", meant, "quite_another"):
        type("Mine", (base,), {own: lambda self: None})
