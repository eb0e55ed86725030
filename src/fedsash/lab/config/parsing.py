"""Experiment files, read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...basics.resolve import Allowed, allowed_only
from .. import own_code as permits
from . import tables
from .errors import prefixed
from .experiment import Experiment
from .files import check_content, overridden, read
from .network import NetworkExperiment


def load(path: str | Path, overrides: Iterable[str] = (), own_code: Allowed = False) -> Experiment:
    """The experiment in a TOML file, after `overrides` such as `"local.lr=0.05"`, in order.

    The value of an override is written as in TOML. If it is not TOML, it is a string. An experiment that names code
    outside fedsash, as `"package.module:name"`, is refused before anything is imported, unless `own_code` allows it:
    True, or the names that are allowed. Raises `ConfigError`.
    """
    with prefixed(path):
        return parse(read(path), overrides, own_code)


def load_run(folder: Path, overrides: Iterable[str] = (), own_code: bool = False) -> Experiment:
    """The experiment of the run in `folder`, after `overrides`.

    The code that was allowed when the run was made here is allowed (see `own_code.py`), and all code with `own_code`.
    Raises `FileNotFoundError` if the folder holds no run, and `ConfigError`.
    """
    file = folder / "config.toml"
    if not file.exists():
        raise FileNotFoundError(f"{folder} holds no run: there is no {file}")
    return load(file, overrides, own_code or permits.of(folder))


def parse(table: Mapping[str, Any], overrides: Iterable[str] = (), own_code: Allowed = False) -> Experiment:
    """The experiment that the content of a file describes, after `overrides`. See `load` for `own_code`.

    It is a `NetworkExperiment` if the table has `network` or `scheduler`. Raises `ConfigError`.
    """
    for override in overrides:
        table = overridden(table, override)
    check_content(table)
    kind = NetworkExperiment if "network" in table or "scheduler" in table else Experiment
    with allowed_only(own_code):
        experiment: Experiment = tables.build(kind, table, "", kind())
    return experiment
