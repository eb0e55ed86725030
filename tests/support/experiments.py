"""Experiment files for tests, and what users may name in them: a method and models of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fedsash import runs
from fedsash.lab.config import Experiment
from fedsash.methods import Method, Step
from fedsash.runs import Callback


@dataclass(frozen=True)
class Halved(Method):
    """A user's own method."""

    by: float = 2.0
    layers: tuple[str, ...] = ()

    def direction(self, step: Step) -> Tensor:
        return step.grad(step.w) / self.by


@dataclass(frozen=True)
class Named(Halved):
    """One with a field that a file can't set."""

    name: str = "mine"


def linear(features: int, classes: int = 10, **more: Any) -> nn.Module:
    """A user's own model, which takes any option."""
    return nn.Linear(features, classes, **more)


def broken(features: int) -> nn.Module:
    raise ZeroDivisionError(features)


def trained(experiment: Experiment, out: Path | None = None, callbacks: Sequence[Callback] = ()) -> runs.Result:
    """The result of the run of an experiment, with more callbacks than its own."""
    driver = experiment.driver()
    settings = experiment.settings(driver)
    settings["callbacks"] += callbacks
    return runs.run(driver, experiment.rounds, out=out, progress=False, **settings)


def file_with(content: str, folder: Path) -> Path:
    path = folder / "experiment.toml"
    path.write_text(content)
    return path


WINDOW = 'averages.w = { name = "window", size = 3 }\n'
