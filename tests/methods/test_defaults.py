"""The defaults of methods are the documented ones."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from fedsash.methods import METHODS as REGISTERED

DEFAULTS: dict[str, dict[str, Any]] = {
    "fedprox": {"mu": 0.01},
    "ewc": {"mu": 1.0},
    "scaffold": {"option": "II", "weighting": "uniform"},
    "feddyn": {"alpha": 0.01, "weighting": "uniform"},
    "adabest": {"mu": 0.02, "beta": 0.8, "variant": "paper", "weighting": "uniform"},
    "fedcm": {"alpha": 0.1, "weighting": "uniform"},
    "fedacg": {"lam": 0.85, "beta": 0.001, "weighting": "uniform"},
    "mime": {"beta": 0.9, "damped": True, "weighting": "uniform"},
    "mimelite": {"beta": 0.9, "damped": True, "weighting": "uniform"},
    "fedsam": {"rho": 0.1, "weighting": "samples"},
    "fedasam": {"rho": 0.7, "eta": 0.2, "weighting": "samples"},
    "mofedsam": {"alpha": 0.1, "rho": 0.1, "weighting": "uniform"},
    "fedlesam": {"rho": 0.1, "weighting": "uniform"},
    "fedfa": {"lam": 0.1, "momentum": 0.9, "calibration": 1e-3, "weighting": "samples"},
    "fedswa": {"rho": 0.1, "alpha": 1.5, "weighting": "uniform"},
    "fedmoswa": {"rho": 0.1, "alpha": 1.5, "gamma": 0.2, "option": "II", "weighting": "uniform"},
}
"""The papers' values, or those that the class says are ours."""


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_defaults_of_methods_are_the_documented_ones(name: str) -> None:
    parameters = inspect.signature(REGISTERED[name]).parameters
    assert {field: parameters[field].default for field in DEFAULTS[name]} == DEFAULTS[name]
