"""Fingerprints outlive moves of classes and new fields; whatever determines numbers changes them, by its name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Literal, get_args, get_origin

import pytest

from fedsash.averages import EMA, Window
from fedsash.client import SGD, LocalTraining
from fedsash.lab.config.registries import REGISTRIES
from fedsash.settings import fingerprint as module
from fedsash.settings.errors import FedsashError
from fedsash.settings.fingerprint import DEFAULTS, OTHER_DEFAULTS, differences, fingerprint, text
from fedsash.settings.setting import default_of, hints_of
from fedsash.tasks import Classification
from fedsash.testing import examples
from support.defaults import RECORDED, changes, defaults
from support.worlds import federation

KINDS = (
    *("methods", "aggregations", "servers", "averages", "samplings", "optimisers", "schedules", "local_schedules"),
    *("tasks", "client_windows", "schedulers", "partitions"),
)


def things() -> dict[str, Any]:
    """An object of every class that has a name in files and determines numbers."""
    made: dict[str, Any] = {}
    for kind in KINDS:
        registry = dict(REGISTRIES[kind].things)
        if kind == "aggregations":
            registry.pop("private")  # it needs two numbers of its own
        if kind == "partitions":
            registry.pop("flwr")
        made |= {f"{kind} {name}": each for name, each in examples(registry).items()}
    made["optimisers sgd with momentum"] = SGD(momentum=0.5)  # nesterov needs it
    return made


def test_a_class_or_function_of_the_library_may_move(monkeypatch: pytest.MonkeyPatch) -> None:
    world = federation()
    each_thing = things() | {"local": world.local, "personal": world.personal, "loss": Classification().loss_of}
    before = {name: text(each) for name, each in each_thing.items()}
    of_world = type(world)._fingerprint.func(world)
    for each in each_thing.values():
        cls = type(getattr(each, "__self__", each))
        monkeypatch.setattr(cls, "__module__", "fedsash.elsewhere")
    assert {name: text(each) for name, each in each_thing.items()} == before
    assert type(world)._fingerprint.func(world) == of_world


def test_a_class_of_ones_own_is_known_by_its_module_too() -> None:
    assert text(Mine(3)).startswith(f"{__name__}.Mine(")


def grown(cls: type) -> type:
    """The class as it will be with one more field, which has a default."""
    content = {"__annotations__": {"added": int}, "added": 3, "__module__": cls.__module__}
    newer = dataclass(frozen=True)(type(cls.__name__, (cls,), content))
    newer.__qualname__ = cls.__qualname__
    return newer


def test_a_field_with_a_default_may_be_added() -> None:
    for name, each in things().items():
        values = {field.name: getattr(each, field.name) for field in fields(each) if field.init}
        newer = grown(type(each))(**values)
        assert text(newer) == text(each), name
        assert text(grown(type(each))(**values, added=4)) != text(each), name


@dataclass(frozen=True)
class Mine(Window):
    """An average of one's own."""

    factor: float = 1.0


@dataclass(frozen=True)
class Later(Window):
    """The same with another default of its own."""

    factor: float = 2.0


def test_of_settings_of_ones_own_all_fields_of_ones_own_count() -> None:
    """Nobody records their defaults; those that the library declares are left out as ever."""
    assert text(Mine(3)).endswith("Mine(factor=1, size=3)")
    assert text(Later(3)).endswith("Later(factor=2, size=3)")


def test_the_recorded_defaults_are_those_of_the_code() -> None:
    """If this fails: raise `DEFAULTS` if a default has changed, then `python tests/support/defaults.py`."""
    recorded = json.loads(RECORDED.read_text())
    assert recorded["number"] == DEFAULTS
    assert not changes(recorded["defaults"], defaults())
    assert recorded["defaults"] == defaults()


def test_a_changed_default_is_noticed_and_a_new_field_is_not() -> None:
    now = {"SGD": {"momentum": "0.5", "added": "1"}}
    assert changes({"SGD": {"momentum": "0"}}, now) == ["SGD.momentum was 0 and is 0.5"]
    assert not changes({"SGD": {"momentum": "0.5"}, "Gone": {"lr": "1"}}, now)


def test_with_other_defaults_every_fingerprint_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint({"seed": 1})
    world = federation().fingerprint
    monkeypatch.setattr(module, "DEFAULTS", DEFAULTS + 1)
    assert differences(fingerprint({"seed": 1}), before) == [OTHER_DEFAULTS]
    assert differences(federation().fingerprint, world) == [OTHER_DEFAULTS]


CANDIDATES: dict[Any, tuple[Any, ...]] = {
    bool: (True, False),
    int: (1, 2, 3, 5, 8, 50),
    float: (0.25, 0.75, 1.5, 3.0, 0.01, 40.0),
    str: ("classifier", "macro", "a"),
}


def others(hint: Any, value: Any) -> Iterator[Any]:
    """Values of a type that differ from a given one."""
    if get_origin(hint) is Literal:
        candidates = get_args(hint)
    elif isinstance(hint, type) and hint in CANDIDATES:
        candidates = CANDIDATES[hint]
    else:
        for each in get_args(hint):
            yield from others(each, value)
        return
    yield from (each for each in candidates if each != value)


def test_whatever_determines_numbers_changes_the_text_and_is_named() -> None:
    """Every field of every class, with another value that the class takes."""
    tried = set()
    for name, each in things().items():
        for field in fields(each):
            counts = field.init and field.metadata.get("numbers", True)
            value = getattr(each, field.name)
            for other in others(hints_of(type(each))[field.name], value):
                try:
                    changed = replace(each, **{field.name: other})
                except (FedsashError, TypeError):
                    continue
                assert (text(changed) != text(each)) == counts, f"{name}: {field.name} = {other!r}"
                if counts:
                    (line,) = differences({"it": text(changed)}, {"it": text(each)})
                    assert field.name in line, line
                tried.add((type(each).__name__, field.name))
                break
    plain = {
        (cls.__name__, field.name)
        for cls in {type(each) for each in things().values()}
        for field in fields(cls)
        if hints_of(cls)[field.name] in (int, float, bool) and default_of(field) is not MISSING
    }
    assert plain <= tried


def test_where_models_lie_changes_no_fingerprint() -> None:
    assert text(Window(3, storage="disk")) == text(Window(3))


def test_a_field_in_a_field_is_named_by_both() -> None:
    one, other = (text(LocalTraining(optimiser=SGD(momentum=m, weight_decay=0.5))) for m in (0.1, 0.2))
    assert differences({"local": one}, {"local": other}) == [
        "local is optimiser.momentum=0.2 there and optimiser.momentum=0.1 here"
    ]


@pytest.mark.parametrize("part", ["a, b", "it's", 'a "word"', "(", "a\\", "w)=3, size=("])
def test_texts_within_settings_may_hold_any_letters(part: str) -> None:
    one = text(EMA(0.5, part=part))
    other = text(EMA(0.25, part=part))
    assert differences({"e": one}, {"e": other}) == ["e is decay=0.25 there and decay=0.5 here"]
