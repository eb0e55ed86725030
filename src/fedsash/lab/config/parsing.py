"""Experiment files, read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from ...runs import own_code as permits
from ...runs.records import Records
from ...settings.errors import ConfigError, shortened
from ...settings.resolve import Allowed, allow, allowed_only
from . import tables
from .errors import located, prefixed
from .experiment import OWN_KEYS, Experiment, OwnExperiment
from .files import check_content, overridden, read, without_others
from .network import NetworkExperiment
from .registries import REGISTRIES


def load(path: str | Path, overrides: Iterable[str] = (), own_code: Allowed = False) -> Experiment:
    """The experiment in a TOML file, with every default, after `overrides` such as `"local.lr=0.05"`, in order.

    The value of an override is written as in TOML. If it is not TOML, it is a string. An experiment that names code
    outside fedsash, as `"package.module:name"`, is refused before anything is imported, unless `own_code` allows it:
    True, or the names that are allowed. Raises `ConfigError`, with the file and the key, if the file can't be read or
    holds anything that is wrong.
    """
    with prefixed(path):
        return parse(read(path), overrides, own_code)


def load_run(folder: Path, overrides: Iterable[str] = (), own_code: bool = False, federation: str = "") -> Experiment:
    """The experiment of the run in `folder`, after `overrides`.

    For a run that was made in Python, `federation` names the function that makes its federation,
    `"package.module:function"`. This function is allowed, as is the code that was allowed when the run was made here
    (see `own_code.py`); with `own_code` all code is. Raises `FileNotFoundError` if the folder holds no run, and
    `ConfigError`.
    """
    file = folder / "config.toml"
    if not file.exists():
        if (folder / "sweep.json").exists():
            raise ConfigError(
                "holds a sweep: the same fedsash sweep or reproduce command continues it", file=str(folder)
            )
        if not Records(folder).begun:
            raise FileNotFoundError(f"{folder} holds no run: there is no {file}")
        raise ConfigError("is missing, and only it says what was trained: put it back", file=str(file))
    with prefixed(file):
        table = read(file)
        if federation:
            if "built_by" not in table:
                why = "this run was made from an experiment file, which says what its federation is; leave it out"
                raise ConfigError(f"--federation {federation}: {why}")
            table["built_by"] = federation
        if own_code:
            return parse(table, overrides, own_code)
        allowed = set(permits.of(folder))
        if federation:
            allowed.add(federation)
        return parse(table, overrides, allowed)


def load_own(federation: str, overrides: Iterable[str], own_code: bool = False) -> Experiment:
    """The experiment whose federation the function at `federation` makes, `"package.module:function"`.

    This function is allowed, and with `own_code` all code that the overrides name.
    """
    allowed: Allowed = True if own_code else {federation}
    return parse({"built_by": federation}, overrides, own_code=allowed)


def parse(table: Mapping[str, Any], overrides: Iterable[str] = (), own_code: Allowed = False) -> Experiment:
    """The experiment that the content of a file describes, after `overrides`. See `load` for `own_code`.

    It is a `NetworkExperiment` if the table has `network` or `scheduler`, and an `OwnExperiment` if it has `built_by`.
    Raises `ConfigError`, with the key, for anything that is wrong.
    """
    if "axes" in table:
        raise ConfigError("this is a sweep: train it with fedsash sweep", "axes")
    changes = list(overrides)
    if changes:
        table = _overridden(table, changes)
    check_content(table)
    kind = Experiment
    if "network" in table or "scheduler" in table:
        kind = NetworkExperiment
    if "built_by" in table:
        kind = OwnExperiment
        others = [key for key in table if key not in OWN_KEYS]
        if others:
            known = ", ".join(key for key in OWN_KEYS if key != "built_by")
            why = f"the function in built_by decides it, its arguments are options; beside it there are {known}"
            raise ConfigError(f"{shortened(others[0])}: {why}", others[0])
    with allowed_only(own_code):
        experiment: Experiment = tables.build(kind, table, "")
    return experiment


def _overridden(table: Mapping[str, Any], overrides: list[str]) -> Mapping[str, Any]:
    """The table after `overrides`. If they choose a thing by another name, nothing of the table's own is left of it."""
    changes: dict[str, Any] = reduce(overridden, overrides, {})
    for address in _addresses(changes):
        allow(address)
    new_engine = _engine(changes)
    if new_engine and new_engine != (_engine(table) or "local"):
        table = {key: value for key, value in table.items() if key != "engine"}
    if "built_by" not in table:  # whose options are its author's
        experiment = NetworkExperiment() if "scheduler" in table else Experiment()
        usual = experiment.table()
        usual["engine"] = {"name": _engine(table) or "local"}
        table = without_others(table, changes, usual)
    return reduce(overridden, overrides, table)


def _addresses(table: Mapping[str, Any]) -> Iterator[str]:
    """All addresses of trackers in a table."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _addresses(value)
        elif key == "uri" and isinstance(value, str):
            yield value


def _engine(table: Mapping[str, Any]) -> str | None:
    """The name of the engine that a table chooses, if it chooses one."""
    engine = table.get("engine")
    if not isinstance(engine, Mapping):
        return None
    with located("engine"):
        return engine.get("name") or REGISTRIES["engines"].chosen(engine)
