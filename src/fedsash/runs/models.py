"""The models of a run, by their names."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ..server.federation import Federation
from ..server.state import State
from ..settings.errors import FedsashError
from .tally import Tally


class UnknownModelError(FedsashError, KeyError):
    """A run has no model of that name. The message lists the names that exist, or says `why` there are none."""

    def __init__(self, name: str, names: Sequence[str], why: str = "") -> None:
        super().__init__(name, names, why)

    def __str__(self) -> str:
        name, names, why = self.args
        if not why:
            why = f"there are: {', '.join(names) or 'none'}"
        return f"there is no model {name!r} in this run; {why}"


class RunModels:
    """The models of a run, from its `state`, its `tally` and its `federation`. A `Result` and a `LiveRun` have them.

    An unknown name raises `UnknownModelError`.
    """

    state: State
    tally: Tally
    federation: Federation

    @property
    def models(self) -> tuple[str, ...]:
        """The names of all models of the run."""
        return tuple(self.vectors())

    def vectors(self) -> dict[str, Tensor]:
        """Each model `[D]`, by its name."""
        best = {f"{name}-best": best.w for name, best in self.tally.best.items()}
        return self.federation.models(self.state) | best

    def model(self, name: str) -> nn.Module:
        """A model as a new module, with the buffers of the module that was given to the federation."""
        vectors = self.vectors()
        if name not in vectors:
            raise UnknownModelError(name, list(vectors))
        return self.federation.module_of(vectors[name])

    def state_dict(self, name: str) -> dict[str, Tensor]:
        """The state dict of a model. The plain module can load it."""
        return self.model(name).state_dict()
