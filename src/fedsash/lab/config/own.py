"""An experiment whose federation a function of one's own makes: own data, model and loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...data import FederatedData
from ...federation import Federation
from ...runs import Driver
from ...settings.errors import check
from ...settings.resolve import resolve
from . import tables
from .errors import ConfigError, located
from .experiment import Experiment

KEYS = ("rounds", "built_by", "options", "checkpoint", "trajectory", "callbacks", "track")
"""The keys of such an experiment. The function decides all the others."""


@dataclass(frozen=True)
class OwnExperiment(Experiment):
    """An experiment with `built_by = "package.module:function"`: the function returns the federation.

    Its run shares no rounds with other runs of a sweep.
    """

    built_by: str = ""
    """the function that makes the federation, as package.module:function; empty in the folder of a run that was made in
    Python, since only its author knows the function"""
    options: Mapping[str, Any] = field(default_factory=dict)
    """the arguments of this function"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.built_by:
            make = resolve(self.built_by, field="built_by")
            with located(""):  # while only the code that the user allows can be named
                tables.check_arguments(make, self.options, "options")

    @property
    def alone(self) -> bool:
        return True

    def driver(self) -> Driver:
        """What the function returns: a `Federation`, or another driver of rounds. Raises `ConfigError` for others."""
        if not self.built_by:
            how = "name the function that makes the federation, --federation package.module:function"
            raise ConfigError(f"built_by is empty: the run was made in Python: {how}", "built_by")
        with located(""):
            made = tables.build(resolve(self.built_by, field="built_by"), self.options, "options")
            right = f"must return a Federation, returned {type(made).__name__}"
            check(hasattr(made, "federation") and hasattr(made, "round"), "built_by", self.built_by, right)
        driver: Driver = made
        return driver

    def federation(self) -> Federation:
        made = self.driver()
        with located(""):
            right = f"must return a Federation here, returned {type(made).__name__}"
            check(isinstance(made, Federation), "built_by", self.built_by, right)
        assert isinstance(made, Federation)
        return made

    def federated_data(self) -> FederatedData:
        return self.federation().training_data

    def table(self) -> dict[str, Any]:
        """The experiment as the complete content of a file."""
        table = super().table()
        return {key: table[key] for key in KEYS}
