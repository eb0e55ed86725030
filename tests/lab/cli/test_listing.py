"""`fedsash list`: everything that an experiment file can say is found by the words that one may try."""

from __future__ import annotations

import json

import pytest

from fedsash.lab import papers
from fedsash.lab.cli import main
from fedsash.lab.config import Experiment
from fedsash.lab.config.catalogue import names
from fedsash.lab.config.keys import keys
from fedsash.lab.config.registries import REGISTRIES
from fedsash.settings.options import options
from support.by_default import some


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["list", *words]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["list", *words]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1
    return error


def test_list_alone_has_a_line_for_everything(capsys: pytest.CaptureFixture[str]) -> None:
    lines = listed(capsys).splitlines()
    named = [line.split()[0] for line in lines if line.startswith("  ")]
    top = [key.path for key in keys() if "." not in key.path]
    things = [name for registry in REGISTRIES.values() for name in registry.things]
    assert set(options(Experiment)) < set(top)
    assert sorted(named) == sorted([*top, *things, *papers.names()])
    assert all(len(line.split()) > 2 for line in lines if line.startswith("  "))


@pytest.mark.parametrize(
    "title", some(REGISTRIES, "methods", "averages", "schedules", "partitions", "models", "metrics", "tasks")
)
def test_list_tells_all_options_of_each_thing(title: str, capsys: pytest.CaptureFixture[str]) -> None:
    overview = listed(capsys, title)
    assert overview.splitlines()[0] == f"{REGISTRIES[title].key}.name"
    for name in REGISTRIES[title].things:
        assert name in overview
        table = listed(capsys, title, name).partition("Options and defaults:\n")[2]
        assert [line.split()[0] for line in table.splitlines()] == ["name", *REGISTRIES[title].options(name)]


@pytest.mark.parametrize(
    ("words", "same"),
    [
        ("method", "methods"),
        ("data", "datasets"),
        ("dataset", "datasets"),
        ("engine", "engines"),
        ("local.optimiser", "optimisers"),
        ("averages", "average"),
        ("scaffold", "methods scaffold"),
        ("method scaffold", "methods scaffold"),
        ("data images", "datasets images"),
        ("evaluations", "evaluation"),
        ("local lr", "local.lr"),
        ("data path", "data.path"),
        ("reproduction", "reproductions"),
        ("wima-table-5", "reproductions wima-table-5"),
    ],
)
def test_singular_plural_and_both_ways_of_writing_are_the_same(
    words: str, same: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = listed(capsys, *words.split())
    assert found and found == listed(capsys, *same.split())


@pytest.mark.parametrize("table", ["local", "evaluation", "checkpoint", "trajectory", "personal", "track", "network"])
def test_a_table_is_explained_with_all_its_keys(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = listed(capsys, table)
    assert told.startswith(f"[{table}]\n")
    inside = [key.name for key in keys() if key.path.rpartition(".")[0] == table and not key.thing]
    assert [line.split()[0] for line in told.partition("Options and defaults:\n")[2].splitlines()] == inside


def test_a_key_has_its_default_its_type_and_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(capsys, "evaluation.every").startswith("evaluation.every = 10  (an integer; at least 1)\n    ")
    assert listed(capsys, "device").startswith('device = "auto"  (a string)\n')
    assert listed(capsys, "partition_seed").startswith("partition_seed = (not set)  (an integer; at least 0)\n")


def test_a_bare_name_finds_every_key_that_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = listed(capsys, "every")
    assert all(f"{table}.every = " in found for table in ("evaluation", "checkpoint", "trajectory", "averages.NAME"))
    assert "method.mu = 0.01  (fedprox: a number; at least 0)" in listed(capsys, "mu")


def test_whatever_completion_offers_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    for word, inside in names().items():
        assert listed(capsys, word)
        if inside:
            assert listed(capsys, word, inside[-1])


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["metohds"], "nothing is called metohds; did you mean methods?"),
        (["evaluation.evry"], "did you mean evaluation.every?"),
        (["evaluation", "evry"], "did you mean evaluation.every?"),
        (["xqzxqz"], "nothing is called xqzxqz; see fedsash list"),
        (["servers", "adan"], 'server.name = "adan": must be one of sgd, adagrad, adam, yogi'),
        (["methods", "scafold"], "did you mean scaffold?"),
        (["reproductions", "ima-tabel-1"], "did you mean ima-table-1?"),
    ],
)
def test_an_unknown_word_is_one_line_with_a_similar_one(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert line in refused(capsys, *words)


def test_as_json_it_is_the_same_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    (key,) = json.loads(listed(capsys, "evaluation.every", "--json"))
    assert (key["key"], key["takes"], key["default"]) == ("evaluation.every", "an integer; at least 1", "10")
    (thing,) = json.loads(listed(capsys, "methods", "fedprox", "--json"))
    assert thing["name"] == "fedprox" and "method.mu" in [key["key"] for key in thing["keys"]]
    every = json.loads(listed(capsys, "--json"))
    assert every[1]["things"].keys() == REGISTRIES["methods"].things.keys()


@pytest.mark.parametrize(
    ("kind", "default"), [("methods", "fedavg"), ("partitions", "dirichlet"), ("schedulers", "synchronous")]
)
def test_a_list_begins_with_the_default(kind: str, default: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = listed(capsys, kind).splitlines()[1]
    assert first.split()[0] == default
