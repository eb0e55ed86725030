"""Whatever an experiment file holds, its refusal is one short line, and so is that of an override or a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedsash.data.sources.npy import NpyFiles
from fedsash.lab.config import ConfigError, load, parse
from fedsash.lab.sweeps import parse as parse_sweep
from support.experiments import file_with

LONG = "x" * 100_000
FILES = {
    "nested lists": ("seed = " + "[" * 900 + "]" * 900, "nested deeper than 20 levels"),
    "more of them": ("seed = " + "[" * 100_000 + "]" * 100_000, "nested deeper than 20 levels"),
    "nested tables": (".".join(["a"] * 5000) + " = 1", "nested deeper than 20 levels"),
    "a long integer": ("seed = " + "1" * 5000, "is not TOML"),
    "an integer of 65 bits": ("seed = 18446744073709551616", "seed: must be a number of up to 64 bits"),
    "one in a list": ("model.hidden = [18446744073709551616]", "model.hidden: must be a number of up to 64 bits"),
    "no finite number": ("local.lr = 1e400", "local.lr = inf: must be finite"),
    "a name that is a list": ('method.name = ["fedavg"]', 'method.name = ["fedavg"]: must be one of'),
    "a name that is a table": ("partition = { name = {}, clients = 3 }", "partition.name = {}: must be one of"),
    "a model that is a list": ("model.name = [[1]]", "model.name = [[1]]: must be one of"),
    "a long text": (f'local.lr = "{LONG}"', 'local.lr = "xxx'),
    "a long key": (f"local.{LONG} = 1", "unknown key local.xxx"),
    "a long name": (f'method.name = "{LONG}"', 'method.name = "xxx'),
    "a long list": (f"local.lr = {[1] * 10_000}", "local.lr = [1, 1, "),
    "a long average": (f'averages.{"w" * 240} = {{ name = "window", size = 2 }}', "must have at most 200 bytes"),
    "a long average in Greek": (f'averages."{"ω" * 120}" = {{ name = "window", size = 2 }}', "at most 200 bytes"),
    "a date": ("data = { name = 'npy', path = 2024-01-01 }", "data.path = 2024-01-01: is a date or a time, which no"),
    "a byte that is none": ('device = "\\u0000"', "device"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_refusal_is_one_short_line(name: str, tmp_path: Path) -> None:
    content, line = FILES[name]
    file = file_with(content, tmp_path)
    with pytest.raises(ConfigError) as error:
        load(file, ["rounds=1"]).federation()
    text = str(error.value).replace(str(file), "FILE")
    assert line in text and len(text) < 700 and "\n" not in text


def test_values_in_python_are_checked_like_those_of_a_file() -> None:
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    for value, line in ((10**5000, "seed: must be a number of up to 64 bits"), (deep, "nested deeper")):
        with pytest.raises(ConfigError, match=line):
            parse({"seed": value})


def test_a_second_line_of_an_override_is_refused_and_not_dropped(tmp_path: Path) -> None:
    for override in ("rounds=1\nseed=2", "rounds=1\r\nseed = 2"):
        with pytest.raises(ConfigError, match="--set rounds: must be one line; repeat --set for another key") as error:
            load(file_with("", tmp_path), [override])
        assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="must be KEY=VALUE"):
        load(file_with("", tmp_path), [".".join(["a"] * 5000) + "=1"])


def test_a_sweep_of_too_many_runs_is_refused_before_they_are_counted(tmp_path: Path) -> None:
    axes = {key: list(range(1, 101)) for key in ("seed", "rounds", "local.batch", "local.steps", "sampling.count")}
    with pytest.raises(ConfigError, match="they make 10,000,000,000 runs, and a sweep has at most 10,000"):
        parse_sweep({"axes": axes}, tmp_path)
    few = [f"{axis}=1" for axis in axes]
    assert len(parse_sweep({"axes": axes}, tmp_path, few).runs) == 1


def test_a_run_of_a_sweep_whose_folder_would_have_too_long_a_name_is_refused(tmp_path: Path) -> None:
    axes = {"title": {"a" * 150: {}}, "other": {"b" * 150: {}}}
    with pytest.raises(ConfigError, match="would have a name of more than 200 bytes"):
        parse_sweep({"axes": axes}, tmp_path)


@pytest.mark.parametrize("hidden", ["[1000000000, 1000000000]", "[4611686018427387904]", "[1000000000]"])
def test_a_model_that_no_memory_holds_is_refused_before_it_is_made(hidden: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model: mlp (with these options takes .* GB|can't be made)") as error:
        load(file_with(f"model.hidden = {hidden}", tmp_path)).federation()
    assert len(str(error.value)) < 400


def test_a_folder_may_be_called_by_a_date(tmp_path: Path) -> None:
    found = load(file_with("data.name = 'npy'", tmp_path), ["data.path=2024-01-01"])
    assert found.data == NpyFiles("2024-01-01")
