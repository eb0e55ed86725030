"""The keys of an experiment file: every one is found, with its default, and what it means."""

from __future__ import annotations

import re

import pytest

from fedsash.lab.config import NetworkExperiment, parse
from fedsash.lab.config.keys import keys
from fedsash.lab.config.registries import REGISTRIES
from fedsash.lab.config.tables import plain
from fedsash.lab.config.words import show

KEYS = keys()


def paths_in(table: dict[str, object], place: str = "") -> set[str]:
    """The dotted keys in a complete experiment, but for those of things that a registry has."""
    found = set()
    for key, value in table.items():
        found.add(f"{place}{key}")
        if isinstance(value, dict) and "name" not in value:
            found |= paths_in(value, f"{place}{key}.")
    return found


def test_every_key_of_a_complete_experiment_is_among_them_with_its_default() -> None:
    known = {key.path: key for key in KEYS if not key.thing}
    table = NetworkExperiment().table()
    assert paths_in(table) <= known.keys()
    assert {path: known[path].default for path in ("rounds", "local.lr", "network.link.rate", "task", "options")} == {
        "rounds": "300",
        "local.lr": "0.1",
        "network.link.rate": "1000000.0",
        "task": "(not set)",
        "options": "{}",
    }


@pytest.mark.parametrize("title", REGISTRIES)
def test_every_option_of_everything_that_has_a_name_is_among_them(title: str) -> None:
    registry = REGISTRIES[title]
    for name in registry.things:
        expected = {f"{registry.key}.{option}" for option in registry.options(name) if option != "**"}
        assert expected == {
            key.path for key in KEYS if key.thing == name and key.path.rpartition(".")[0] == registry.key
        }


def test_a_key_is_known_to_the_parser_where_it_stands() -> None:
    """The parser takes each plain key of the tables that are always there, with its own default."""
    tables = ("local", "evaluation", "checkpoint")
    known = [key for key in KEYS if not key.thing and key.path.rpartition(".")[0] in tables]
    written = [f"{key.path}={key.default}" for key in known if key.default != "(not set)" and key.name != "optimiser"]
    assert len(written) > 15 and parse({}, written) == parse({})


def test_defaults_are_those_of_an_experiment_that_names_nothing_but_the_thing() -> None:
    """Another partition has as many clients as the usual one; the sampling is that of a run without a network."""
    told = [key for key in KEYS if re.fullmatch(r"(partition|sampling)\.\w+", key.path) and key.thing != "flwr"]
    needy = {key.thing for key in told if key.default == "(required)"}
    for key in told:
        if key.thing not in needy:
            place = key.path.partition(".")[0]
            made = getattr(parse({place: {"name": key.thing}}), place)
            value = getattr(made, key.name)
            assert key.default == ("(not set)" if value is None else show(plain(value, key.option.kind))), key
    assert "iid" not in needy and len(told) > 20


def test_only_tables_of_fields_are_called_tables() -> None:
    tables = {key.path for key in KEYS if key.table is not None}
    assert {"local", "evaluation", "evaluation.fine_tuning", "track.wandb", "network.link"} <= tables
    assert not {"method", "data", "engine", "averages", "rounds", "scheduler.window"} & tables


def test_a_setting_in_a_meaning_can_be_pasted_into_a_file() -> None:
    """It is written as in TOML, although it stands in a class that is read by those who write Python, too."""
    python = re.compile(r"`\w+ = (\(\)|True|False|None)|\bNone:")
    assert not [(key.path, key.meaning) for key in KEYS if python.search(key.meaning)]


def test_a_key_that_has_no_default_says_so() -> None:
    required = next(key for key in KEYS if key.path == "averages.NAME.size" and key.thing == "window")
    assert required.default == "(required)" and required.name == "size"
