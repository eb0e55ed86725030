"""The model in an experiment file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ... import models
from ...data import FederatedData
from ...settings.errors import check
from .errors import located
from .registry import REQUIRED, Make, Option, Registry, options


@dataclass(frozen=True)
class Model:
    """A model: its name, which is a key of `models.MODELS` or `"package.module:function"`, and its options.

    The options are complete: an option that is not given has its default. Lists become tuples.
    """

    name: str = "mlp"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with located("model"):
            known = options_of(self.name)
        defaults = {o.name: o.default for o in known.values() if o.name != "**" and o.default is not REQUIRED}
        object.__setattr__(self, "options", _tuples(defaults | dict(self.options)))

    def table(self) -> dict[str, Any]:
        """The model's table, as in an experiment file."""
        return {"name": self.name, **self.options}

    def build(self, data: FederatedData, seed: int) -> nn.Module:
        """The model for these data, with initial values that depend on `seed`. `ConfigError` if it doesn't fit."""
        width = data.problem.task.width(data.train.y, data.classes)
        with located("model"):
            return models.build(self.name, self.options, shape=self.shape(data), classes=width, seed=seed)

    def shape(self, data: FederatedData) -> tuple[int, ...]:
        """The shape of one input without the batch; empty if there are several."""
        x = data.transform.prepare(data.train.x[:2])
        return tuple(x.shape[1:]) if isinstance(x, Tensor) else ()


class ModelRegistry(Registry):
    """The models: functions that are called when the data are loaded. A table becomes a `Model`."""

    def find(self, name: Any) -> Make:
        """The function that makes the model. Raises `SettingError` if there is none."""
        check(isinstance(name, str) and (":" in name or name in self.things), "name", name, self.right)
        return models.find_model(name)

    def options(self, name: Any) -> dict[str, Option]:
        """The options that a table may give to the model of that name."""
        return options_of(name)

    def made(self, name: str, arguments: Mapping[str, Any]) -> Model:
        """The `Model` for a name and options."""
        return Model(name, arguments)

    def name_of(self, thing: Model) -> str:
        """The name of the model's function."""
        return thing.name

    def settings(self, thing: Model | None) -> None:
        """None: an option that a table leaves out has the function's own default, never that of an earlier model."""

    @property
    def right(self) -> str:
        """What a name must be."""
        return f'must be one of {", ".join(self.things)}, or "package.module:function"'


def options_of(name: str) -> dict[str, Option]:
    """The options of a model. The input shape and the number of classes are not options: they come from the data."""
    known = options(models.find_model(name))
    given = () if models.is_own(name) else ("shape", "classes")
    return {key: option for key, option in known.items() if key not in given}


def _tuples(value: Any) -> Any:
    """The value with every list in it replaced by a tuple."""
    if isinstance(value, Mapping):
        return {key: _tuples(inner) for key, inner in value.items()}
    return tuple(_tuples(inner) for inner in value) if isinstance(value, tuple | list) else value
