"""What an analysis found, as the few numbers of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

Analysis = Mapping[str, Any]
Rows = Iterator[list[str]]
"""The heads, then a row each."""

MISSING = "-"

HEADS = {
    "squared_error": "squared\nerror",
    "bias": "squared\nbias",
    "train_bias": "own\nbias",
    "heterogeneous_bias": "others'\nbias",
    "variance": "vari-\nance",
    "covariance": "covari-\nance",
    "locality_mean": "distance\nmean",
    "locality_max": "\nlargest",
    "cka": "\nCKA",
}
SEVERAL = ("bias", "variance", "covariance")
"""What it takes several runs to see."""


def findings(analysis: Analysis) -> tuple[list[str], list[list[str]]]:
    """The heads and the rows of a table of what the analysis found."""
    heads, *rows = KINDS[analysis["kind"]](analysis)
    return heads, rows


def _line(analysis: Analysis) -> Rows:
    yield ["on the line", "loss", "error"]
    yield from _at_models(analysis)
    yield _lowest(analysis, lambda i: f"lowest, at beta = {analysis['beta'][i[0]]:.3g}")


def _terrain(analysis: Analysis) -> Rows:
    yield ["on the surface" if analysis["kind"] == "surface" else "in the plane", "loss", "error"]
    yield from _at_models(analysis)
    if mean := analysis.get("at_mean"):
        yield ["their mean", _number(mean["loss"]), _share(mean["error"])]
    yield _lowest(analysis, lambda i: f"lowest, at ({analysis['x'][i[1]]:.3g}, {analysis['y'][i[0]]:.3g})")


def _decomposition(analysis: Analysis) -> Rows:
    heads = HEADS if analysis["runs"] > 1 else {name: head for name, head in HEADS.items() if name not in SEVERAL}
    yield ["saved\nround", *heads.values()]
    for i, round in enumerate(analysis["rounds"]):
        yield [str(round), *(_number(analysis[name][i], 3) for name in heads)]


def _flatness(analysis: Analysis) -> Rows:
    models = analysis["models"]
    first = next(iter(models.values()))
    yield ["model", "eigenvalues", *(f"sharpness\nat {rho}" for rho in first["sharpness"])]
    for name, found in models.items():
        values = "  ".join(_number(value) for value in found["eigenvalues"])
        yield [name, values, *(_number(value) for value in found["sharpness"].values())]


def _window(analysis: Analysis) -> Rows:
    weights, clients = np.array(analysis["weights"]), np.array(analysis["clients"])
    held, away = list(analysis["distance_rounds"]), np.array(analysis["distances"])
    yield ["in the window", ""]
    yield ["models", f"{len(held)}, of rounds {held[0]} to {held[-1]}"]
    yield ["rounds with their whole weight", str(int((weights == 1).sum()))]
    yield ["weight of the newest round", _number(float(weights[-1]))]
    yield ["sum of all weights", _number(float(weights.sum()))]
    yield ["clients with a weight", f"{int((clients > 0).sum())} of {len(clients)}"]
    yield ["largest weight of a client", f"{_number(float(clients.max()))} (client {int(clients.argmax())})"]
    yield ["distance of a model from the mean", f"{_number(float(away.mean()))} (largest {_number(float(away.max()))})"]


def _averages(analysis: Analysis) -> Rows:
    windows, emas = analysis["windows"], analysis["emas"]
    held_out = analysis["chosen"] is not None
    shown = ["held\nout"] if held_out else []
    yield ["models", "window", "loss", *shown, "EMA of\ndecay", "\nEMA", "loss", "profile's\nerror"]
    for i, size in enumerate(analysis["sizes"]):
        mark = " (chosen)" if size == analysis["chosen"] else ""
        yield [
            f"{size}{mark}",
            *(_share(windows["accuracy"][i]), _number(windows["loss"][i])),
            *([_share(windows["held_out"][i])] if held_out else []),
            *(f"{emas['decay'][i]:.4f}", _share(emas["accuracy"][i]), _number(emas["loss"][i])),
            _share(emas["error"][i]),
        ]


KINDS: dict[str, Callable[[Analysis], Rows]] = {
    "line": _line,
    "plane": _terrain,
    "surface": _terrain,
    "decomposition": _decomposition,
    "flatness": _flatness,
    "window": _window,
    "averages": _averages,
}


def _at_models(analysis: Analysis) -> Rows:
    for name, found in analysis["at_models"].items():
        yield [name, _number(found["loss"]), _share(found["error"])]


def _lowest(analysis: Analysis, named: Callable[[tuple[int, ...]], str]) -> list[str]:
    """The point with the lowest loss; a loss that is not finite is no candidate."""
    loss, error = np.array(analysis["loss"], dtype=float), np.array(analysis["error"], dtype=float)
    if not np.isfinite(loss).any():
        return ["lowest", MISSING, MISSING]
    index = np.unravel_index(int(np.argmin(np.where(np.isfinite(loss), loss, np.inf))), loss.shape)
    return [named(tuple(map(int, index))), _number(loss[index]), _share(error[index])]


def _number(value: float | None, digits: int = 4) -> str:
    return MISSING if value is None else f"{value:.{digits}g}"


def _share(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.2f} %"
