"""The pages that are made from the code: every key, every command, every public name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from griffe import Class, load, load_extensions
from site_build import commands, experiment_file, python_pages, signatures

import fedsash
from fedsash.lab import cli
from fedsash.lab.config import ConfigError, NetworkExperiment, parse
from fedsash.lab.config.files import put
from fedsash.lab.config.keys import Key, keys
from fedsash.lab.config.registries import REGISTRIES
from support.each import check_each
from support.places import ROOT

PAGE = experiment_file.page()


def sections() -> dict[str, set[str]]:
    """The keys on the page by its sections: `local`, `method-fedprox`."""
    found: dict[str, set[str]] = {}
    for part in re.split(r"^##+ ", PAGE, flags=re.MULTILINE)[1:]:
        named = re.search(r"\{#([\w-]+)\}", part.splitlines()[0])
        found[named[1] if named else part.splitlines()[0]] = set(re.findall(r"^\| `(\w+)` \| [^|]*\|", part, re.M))
    return found


def written(table: dict[str, Any], place: str = "") -> Iterator[tuple[str, str]]:
    """The place and name of each key of an experiment's complete table."""
    for key, value in table.items():
        yield place, key
        if isinstance(value, dict):
            yield from written(value, f"{place}.{key}" if place else key)


def test_each_key_of_a_complete_experiment_is_on_the_page() -> None:
    experiment = parse({"network": {}, "scheduler": {"name": "synchronous"}})
    on_page = {key for section in sections().values() for key in section}
    assert {key for _, key in written(experiment.table()) if key != "name"} <= on_page
    assert {f.name for f in fields(NetworkExperiment)} <= sections()["The file itself"]


@pytest.mark.parametrize("kind", REGISTRIES)
def test_each_option_of_each_thing_is_in_its_section(kind: str) -> None:
    registry, found = REGISTRIES[kind], sections()
    shared = found[experiment_file.anchor(registry.key)]
    for name in registry.things:
        own = found.get(experiment_file.anchor(registry.key, name), set())
        assert {option for option in registry.options(name) if option != "**"} <= shared | own, name


THINGS = {key.path: key.thing for key in keys()}
OF_OWN = ("built_by", "options")
"""The keys that only an experiment has whose federation is made in Python: beside them most others are refused."""
ON_PAGE = [key for given in experiment_file.by_table().values() for key in given if key.path not in OF_OWN]


def asked(key: Key) -> dict[str, Any]:
    """An experiment with this key, under a value that no key takes, and the names that its tables need for it."""
    table: dict[str, Any] = {}
    places = key.path.split(".")
    things = {".".join(places[:i]): THINGS.get(".".join([*places[:i], places[i]]), "") for i in range(1, len(places))}
    for place, thing in (things | {".".join(places[:-1]): key.thing}).items():
        table = put(table, f"{place}.name".replace("NAME", "x"), thing) if thing else table
    return put(table, key.path.replace("NAME", "x"), [[["nothing takes this"]]])


def check_known(key: Key) -> None:
    with pytest.raises(ConfigError) as error:
        parse(asked(key))
    assert "unknown key" not in str(error.value)


def test_the_parser_knows_each_key_of_the_page() -> None:
    check_each(check_known, ON_PAGE, lambda key: f"{key.path} {key.thing}")


def test_each_key_has_a_meaning() -> None:
    assert not [(key.path, key.thing) for key in keys() if not key.meaning]


def test_the_limits_of_a_number_are_what_its_class_says_of_wrong_ones() -> None:
    takes = {(key.path, key.thing): key.takes for key in keys()}
    assert takes["averages.NAME.size", "window"] == "an integer; at least 1"
    assert takes["evaluation.held_out", ""] == "a number; at least 0 and at most 0.9: clients need samples to train on"
    assert takes["averages.NAME.warmup", "ema"] == "true or false"


def test_each_command_and_each_of_its_options_is_on_the_page() -> None:
    page = commands.page()
    found = list(commands.commands(cli.parser()))
    assert {"fedsash run", "fedsash landscape", "fedsash flower serve"} <= {name for name, _, _ in found}
    for name, parser, _ in found:
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        for action in parser._actions:
            for option in set(action.option_strings) - {"-h", "--help"}:
                assert f"`{option}" in section, (name, option)


def test_each_public_name_is_on_one_page_of_the_python_reference() -> None:
    shown = [name for page in python_pages.pages().values() for name in re.findall(r"^::: fedsash\.(\S+)$", page, re.M)]
    assert len(shown) == len(set(shown))
    assert {name for name in shown if "." not in name} == set(fedsash.__all__)
    assert {f"extend.{name}" for name in fedsash.extend.__all__} - {"extend.Callback"} <= set(shown)  # daily, too


def test_a_page_written_out_has_signatures_docstrings_and_methods() -> None:
    page = python_pages.written_out("# Averages\n\n::: fedsash.Tracker\n")
    assert "## fedsash.Tracker" in page and "Tracker(" in page and "### update" in page and ":::" not in page
    assert (fedsash.Tracker.__doc__ or "?").splitlines()[0] in page


@pytest.mark.full  # reads the whole package
def test_a_signature_has_all_forms_that_a_field_accepts_and_its_default() -> None:
    package = load("fedsash", search_paths=[ROOT / "src"], extensions=load_extensions(signatures.Accepted))
    found = {}
    for path in ("server.federation.Federation", "server.broadcast.Broadcast"):
        cls = package[path]
        assert isinstance(cls, Class)
        found |= {one.name: f"{one.annotation} = {one.default}" for one in cls.parameters}
    assert found["broadcast"] == "Broadcast | None | str = None"
    assert found["personal"] == "Personal | ModelSlice | list[str] = Personal()"
    assert found["average"] == "str | tuple[str, ...] | list[str] = None"
    plain = python_pages.written_out("::: fedsash.Federation")
    assert "broadcast: Broadcast | None | str = None" in plain and "Accepts" not in plain
