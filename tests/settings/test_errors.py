"""Errors for users: each is one line, with its parts as attributes, and survives the way between processes."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from fedsash import LocalTraining, Window
from fedsash.lab.config import ConfigError, parse
from fedsash.settings.errors import (
    DataError,
    FedsashError,
    LibraryError,
    ModelError,
    RunError,
    SettingError,
    WorkerError,
    check,
    library,
)
from fedsash.settings.resolve import resolve


def test_what_is_refused_has_an_owner_a_field_a_value_and_what_is_right() -> None:
    with pytest.raises(SettingError) as error:
        Window(0)
    refused = error.value
    assert (refused.owner, refused.field, refused.value) == ("Window", "size", 0)
    assert str(refused) == f"Window.size = 0: {refused.right}"


@pytest.mark.parametrize("name", ["a\nb", "\x1b]0;title\x07", "back\rwards", "\u202eright to left"])
def test_an_error_is_one_line_whatever_is_in_a_name(name: str) -> None:
    with pytest.raises(SettingError) as error:
        check(False, f"{name}/train.csv: class", 3, "must be 4")
    for text in (str(error.value), str(DataError(f"{name} can't be read"))):
        assert text.isprintable() and repr(name)[1:-1] in text


@pytest.mark.parametrize(
    ("name", "owner", "field"),
    [
        ("Window.size", "Window", "size"),
        ("Domains.inner.clients", "Domains", "inner.clients"),
        ("rounds", "", "rounds"),
        ("network.bytes", "", "network.bytes"),
        ("--samples", "", "--samples"),
        ("a/Folder.txt: x", "", "a/Folder.txt: x"),
    ],
)
def test_an_owner_is_a_class(name: str, owner: str, field: str) -> None:
    with pytest.raises(SettingError) as error:
        check(False, name, 3, "must be 4")
    assert (error.value.owner, error.value.field) == (owner, field)
    assert str(error.value) == f"{name} = 3: must be 4"


def test_an_error_in_a_file_has_its_key_and_its_line() -> None:
    with pytest.raises(ConfigError) as error:
        parse({"averages": {"w": {"name": "window", "size": 0}}})
    assert error.value.key == "averages.w.size" and error.value.file == ""
    assert isinstance(error.value.__cause__, SettingError)


@pytest.mark.parametrize(
    "error",
    [
        SettingError("Window", "size", 0, "must be at least 1"),
        ConfigError("local.lr = 1: must be 2", "local.lr", "a.toml"),
        *(kind("one line") for kind in (ModelError, DataError, RunError, WorkerError, LibraryError)),
    ],
)
def test_an_error_survives_the_way_between_processes(error: FedsashError) -> None:
    there = pickle.loads(pickle.dumps(error))
    assert type(there) is type(error) and str(there) == str(error) and vars(there) == vars(error)


def test_a_missing_library_is_an_import_error_that_says_what_to_install() -> None:
    with (
        pytest.raises(ImportError, match='nothing is needed for this: pip install "nothing"') as error,
        library("nothing", "this", "nothing"),
    ):
        import nothing  # noqa: F401
    assert isinstance(error.value, LibraryError)


def test_a_place_is_resolved_and_a_bug_in_its_module_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve("fedsash.client:LocalTraining") is LocalTraining and callable(
        resolve("fedsash.client:LocalTraining.at")
    )
    for place in (
        "fedsash",
        "fedsash:",
        "fedsash local:LocalTraining",
        "nowhere:LocalTraining",
        "fedsash.client:LocalTraning",
    ):
        with pytest.raises(SettingError, match=r"must be 'package\.module:name'|can't be imported"):
            resolve(place)
    (tmp_path / "broken_module.py").write_text("int('x')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="invalid literal"):
        resolve("broken_module:thing")
