"""Values that no run can use are refused in one line by the settings themselves, also those of a class that is new."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest

import fedsash as fs
from fedsash.averages import SWA
from fedsash.data import Digits
from fedsash.executors.devices import pick_device
from fedsash.local.settings import LONGEST
from fedsash.network import Link
from fedsash.network.schedulers import FedAsync, FedBuff
from fedsash.schedules import Cosine, Exponential, Mild
from fedsash.servers import FedAdam, FedYogi, ServerSGD
from fedsash.settings.checks import TypeRefusal, checked
from fedsash.settings.errors import SettingError, brief
from fedsash.settings.setting import hints_of
from support.each import check_each
from support.settings import SETTINGS, minimal
from support.worlds import federation

NUMBERS = [math.nan, math.inf, -math.inf, 10**400, -(10**400), 2**63, 10**5000]
UNLIMITED = {("limit", math.inf)}
"""An infinite limit of the guard is no guard."""


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


def check_takes_no_such_number(place: tuple[Any, str, float]) -> None:
    cls, name, value = place
    with pytest.raises(SettingError) as error:
        cls(**{**minimal(cls), name: value})
    assert len(str(error.value)) < 300 and name in str(error.value) and "\n" not in str(error.value)


def test_no_field_takes_a_number_that_is_none_or_beyond_64_bits() -> None:
    fields_of_all = [(cls, name) for cls in SETTINGS for name in number_fields(cls)]
    places = [(*field, value) for field in fields_of_all for value in NUMBERS if (field[1], value) not in UNLIMITED]
    check_each(check_takes_no_such_number, places, lambda place: f"{place[0].__name__}.{place[1]} = {brief(place[2])}")


@pytest.mark.parametrize(
    ("cls", "values"),
    [
        (ServerSGD, {"lr": 0.0}),
        (ServerSGD, {"lr": 9e18}),
        (FedAdam, {"lr": 0.0}),
        (FedAdam, {"tau": 1e300}),
        (FedYogi, {"initial_v": 1e300}),
        (FedBuff, {"lr": 0.0}),
        (FedAsync, {"alpha": 0.0}),
        (fs.LocalTraining, {"lr": 9e18}),
        (fs.SGD, {"weight_decay": 1e12}),
        (fs.LocalTraining, {"epochs": LONGEST + 1}),
        (fs.LocalTraining, {"steps": 10**9}),
        (fs.LocalTraining, {"batch": 2**62}),
        (fs.Evaluation, {"held_out": 0.999}),
        (fs.Evaluation, {"every": 2**62}),
        (fs.Window, {"size": 2**62}),
        (SWA, {"start": 2**62}),
        (fs.Checkpoint, {"keep": (5, 2**62)}),
        (fs.FedProx, {"mu": 1e300}),
        (Mild, {"start": 2**62}),
        (Link, {"rate": 1.0, "latency": 1e300}),
        (Digits, {"test": 1.0}),
        (Exponential, {"decay": 0.0}),
        (Cosine, {"rounds": 10**12}),
        (fs.LocalEngine, {"threads": 100_000}),
        (fs.LocalEngine, {"workers": 100_000}),
        (fs.LocalEngine, {"block": 10**9}),
        (fs.LocalEngine, {"pieces": 2**62}),
    ],
    ids=str,
)
def test_what_no_run_can_use_is_refused(cls: Any, values: dict[str, Any]) -> None:
    name = list(values)[-1]
    with pytest.raises(SettingError, match=rf"^{cls.__name__}\.{name} = .*: must be "):
        cls(**values)


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
