"""Traces: tables of 0 and 1 that say which clients are available when."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..settings.errors import SettingError, check, one_line


def trace_of(owner: str, given: str | NDArray[Any], row: str) -> NDArray[np.bool_]:
    """The trace `[R, N]` in an array, or in the .npy or .csv file at a path.

    It has one row for each `row`, such as "round", and one column for each client: 1 if the client is available, 0 if
    not. Raises `SettingError`, which calls the setting `owner`.trace.
    """
    table = _load(owner, given) if isinstance(given, str) else np.asarray(given)
    valid = table.ndim == 2 and table.size > 0 and table.dtype.kind in "biuf" and bool(np.isin(table, (0, 1)).all())
    shown = given if isinstance(given, str) else f"array of shape {table.shape}"
    right = f"must hold only 0 and 1, with one row for each {row} and one column for each client"
    check(valid, f"{owner}.trace", shown, right)
    return table.astype(np.bool_)


def check_clients(owner: str, trace: NDArray[np.bool_], clients: int) -> None:
    """Raise `SettingError` unless the trace has a column for each of so many clients."""
    check(
        trace.shape[1] == clients,
        f"{owner}.trace: clients",
        trace.shape[1],
        f"must be the number of clients, {clients}",
    )


def _load(owner: str, path: str) -> NDArray[Any]:
    suffix = Path(path).suffix
    check(suffix in (".npy", ".csv"), f"{owner}.trace", path, "must be a .npy or .csv file")
    try:
        with warnings.catch_warnings(category=UserWarning, action="ignore"):  # a file without numbers is refused anyway
            if suffix == ".npy":
                return np.asarray(np.load(path))
            return np.loadtxt(path, delimiter=",", ndmin=2, encoding="utf-8-sig")  # with or without a byte order mark
    except (OSError, ValueError, EOFError) as error:
        raise SettingError(owner, "trace", path, f"can't be read: {one_line(error)}") from error
