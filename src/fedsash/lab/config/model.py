"""The model in an experiment file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from ... import models
from ...data import FederatedData
from ...settings.options import REQUIRED, Option, options
from .errors import located


@dataclass(frozen=True)
class Model:
    """A model, which is built when the data are known."""

    name: str = "mlp"
    """the model's name: a key of `models.MODELS`, "timm:NETWORK" or "torchvision:NETWORK", or "package.module:function"
    of your own"""
    options: Mapping[str, Any] = field(default_factory=dict)
    """the arguments of the model's function, all of them: one that is not given has its default, and lists become
    tuples"""

    def __post_init__(self) -> None:
        with located("model"):
            known = options_of(self.name)
        values = {}
        for option in known.values():
            if option.name != "**" and option.default is not REQUIRED:
                values[option.name] = option.default
        values |= self.options
        object.__setattr__(self, "options", _tuples(values))

    def table(self) -> dict[str, Any]:
        """The model's table, as in an experiment file."""
        return {"name": self.name, **self.options}

    def build(self, data: FederatedData, seed: int) -> nn.Module:
        """The model for these data, with initial values that depend on `seed`. `ConfigError` if it doesn't fit."""
        return self.build_for(data.input_shape, data.outputs, seed)

    def build_for(self, shape: Sequence[int], outputs: int, seed: int) -> nn.Module:
        """The model for inputs of this shape, with so many outputs. Raises `ConfigError` as `build` does."""
        with located("model"):
            return models.build(self.name, self.options, shape=shape, classes=outputs, seed=seed)


def options_of(name: str) -> dict[str, Option]:
    """The options of a model. The input shape and the number of classes are not options: they come from the data."""
    known = dict(options(models.find_model(name)))
    if not models.is_own(name):
        known.pop("shape", None)
        known.pop("classes", None)
    return known


def _tuples(value: Any) -> Any:
    """The value with every list in it replaced by a tuple."""
    if isinstance(value, Mapping):
        return {key: _tuples(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return tuple(_tuples(inner) for inner in value)
    return value
