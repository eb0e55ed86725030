"""What users import."""

from __future__ import annotations

import ast
import re
from inspect import getdoc, isfunction
from pathlib import Path

import pytest

import fedsash
from fedsash.averages import AVERAGES
from fedsash.client import OPTIMISERS
from fedsash.data import DATASETS, PARTITIONS
from fedsash.engines import ENGINES
from fedsash.methods import AGGREGATIONS, METHODS
from fedsash.methods.sampling import SAMPLINGS
from fedsash.methods.schedules import LOCAL_SCHEDULES, SCHEDULES
from fedsash.methods.server_optimisers import SERVERS
from fedsash.runs.callbacks import CALLBACKS

REGISTRIES = (
    (AGGREGATIONS, fedsash.methods),
    (AVERAGES, fedsash.averages),
    (CALLBACKS, fedsash.runs),
    (DATASETS, fedsash.data),
    (ENGINES, fedsash.engines),
    (LOCAL_SCHEDULES, fedsash.schedules),
    (METHODS, fedsash.methods),
    (OPTIMISERS, fedsash.optimisers),
    (PARTITIONS, fedsash.partitions),
    (SAMPLINGS, fedsash.sampling),
    (SCHEDULES, fedsash.schedules),
    (SERVERS, fedsash.optimisers),
)
"""What an experiment file can name, and the public module that has it."""
RAISES = re.compile(r"\b[Rr]aises .*?(?:\.\s|$)", re.DOTALL)
"""A sentence about errors."""


def test_every_public_name_is_there_and_is_what_it_is_called() -> None:
    for name in fedsash.__all__:
        assert getattr(fedsash, name).__name__ == name


def test_whatever_an_experiment_file_can_name_is_public() -> None:
    for registry, module in REGISTRIES:
        for value in registry.values():
            assert getattr(module, value.__name__) is value


def test_about_forty_five_names_are_of_daily_use_and_what_authors_build_on_is_in_extend() -> None:
    assert len(fedsash.__all__) <= 48
    assert {"Method", "Average", "Aggregation", "Engine", "Source"} <= set(fedsash.extend.__all__)


def test_type_checkers_are_told_of_each_name_under_its_own_name() -> None:
    """A stub gives a name on only if it imports it as itself."""
    stub = Path(fedsash.__file__).with_suffix(".pyi").read_text()
    given = re.findall(r"^(?:from \S+ import|   ) (\w+) as (\w+),?$", stub, re.MULTILINE)
    assert all(name == own for name, own in given)
    assert {name for name, _ in given} | {"__version__"} == set(dir(fedsash))


@pytest.mark.parametrize(
    "name, hint", [("Windw", "; did you mean Window?"), ("modles", "; did you mean models?"), ("xyz", ""), ("_x", "")]
)
def test_a_misspelt_name_is_told_which_one_is_meant(name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as error:
        getattr(fedsash, name)
    assert str(error.value) == f"module 'fedsash' has no attribute '{name}'{hint}"


def test_each_function_and_what_is_asked_of_a_tracker_says_which_errors_there_are() -> None:
    """By the names under which they can be caught: those of `fedsash.errors`, and Python's own."""
    errors = {name for name in dir(fedsash.errors) if name.endswith("Error")} | {"OSError", "FileNotFoundError"}
    objects: dict[str, object] = {name: getattr(fedsash, name) for name in fedsash.__all__}
    for name, method in vars(fedsash.Tracker).items():
        if not name.startswith("_"):
            objects[f"Tracker.{name}"] = method
    for name, thing in objects.items():
        docstring = getdoc(thing) or ""
        named = {error for sentence in RAISES.findall(docstring) for error in re.findall(r"`(\w+Error)`", sentence)}
        assert named or not isfunction(thing) or name.startswith("Tracker."), f"{name} names no error"
        assert named <= errors, f"{name} names {named - errors}"


def test_formulas_in_docstrings_are_blocks_of_code() -> None:
    """Their lines are indented: else the site makes one paragraph of them, in which `*` is emphasis."""
    flat = []
    for file in sorted(Path(fedsash.__file__).parent.rglob("*.py")):
        source = file.read_text()
        if " <- " not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                lines = (ast.get_docstring(node) or "").splitlines()
                flat += [f"{file.name}: {line}" for line in lines if re.match(r"\w+ <- ", line)]
    assert flat == []
