"""What a client remembers from one round to its next: all of it in one place."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..methods import Method
from ..vector.arrays import Vectors
from ..vector.sharing import OWN, Sharing
from ..vector.spaces import ClientState, WholeModel
from .settings import LocalTraining


@dataclass(frozen=True, kw_only=True, eq=False)
class ClientStateParts:
    """The client state of C clients in its parts.

    - `method` `[C, ...]`: the method's vectors;
    - `moments` `[C, D]`: those that the optimiser kept, by its own names; empty if they begin anew;
    - `steps` `[C, 1]`: how many steps clients have taken since these moments began, None if nobody counts them. If a
      personal part trains by itself, its steps are counted apart, `[C, 2]`, since it has moments of its own;
    - `own` `[C, d]`: the entries of the model that stay with the clients, None if nothing stays.
    """

    method: Vectors
    moments: Vectors
    steps: Tensor | None
    own: Tensor | None


class ClientMemory:
    """What clients remember: the method's state, the optimiser's moments if they are kept, their part of the model.

    In the client state all of it lies side by side, `[C, ...]` each. A kept moment is called `adamw_m`, so that no
    optimiser takes the moments of another.
    """

    def __init__(self, method: Method, local: LocalTraining, sharing: Sharing) -> None:
        self._method = method
        self._optimiser = local.optimiser
        self._keeps_moments = local.keep_moments
        self._sharing = sharing
        prefix = type(local.optimiser).__name__.lower()
        # The name of each kept moment in the client state, by the optimiser's own name.
        self._moments: dict[str, str] = {}
        if local.keep_moments:
            for name in local.optimiser.moments(torch.empty(1, 1)):
                self._moments[name] = f"{prefix}_{name}"
        self._counts = local.keep_moments and local.optimiser.counted
        self._steps = f"{prefix}_steps"
        self._others = {OWN, *self._moments.values()}
        if self._counts:
            self._others.add(self._steps)

    def first(self, w: WholeModel) -> ClientState:
        """The state of a client before its first round, given the initial model `w` `[D]`."""
        sharing = self._sharing
        state = ClientState(self._method.client_state(sharing.common_of(w)) | sharing.own_state(w))
        if self._keeps_moments:
            moments = self._optimiser.moments(w[: sharing.trained].unsqueeze(0))
            for name, rows in moments.items():
                state[self._moments[name]] = rows[0]
        if self._counts:
            counters = 1
            if sharing.personal.alone:
                counters = 2
            state[self._steps] = w.new_zeros(counters)
        return state

    def split(self, rows: ClientState) -> ClientStateParts:
        """The parts of a client state `[C, ...]`."""
        steps = None
        if self._counts:
            steps = rows[self._steps]
        return ClientStateParts(
            method={name: value for name, value in rows.items() if name not in self._others},
            moments={name: rows[state_name] for name, state_name in self._moments.items()},
            steps=steps,
            own=rows.get(OWN),
        )

    def moments(self, w: Tensor, remembered: ClientStateParts) -> Vectors:
        """The moments `[C, D]` before the first step of a round, as new tensors, for models `w` `[C, D]`."""
        if not self._keeps_moments:
            return self._optimiser.moments(w)
        return {name: rows.clone() for name, rows in remembered.moments.items()}

    def joined(
        self, method: Vectors, moments: Vectors, models: WholeModel, before: ClientStateParts, steps: Tensor
    ) -> ClientState:
        """The client state after a round, from its parts.

        The method's vectors, the optimiser's `moments`, and what stays of the `models` `[C, D]`. Clients have taken so
        many more `steps`, `[C, 1]` or `[C, 2]`, than `before`.
        """
        state = dict(method)
        for name, state_name in self._moments.items():
            state[state_name] = moments[name]
        if before.steps is not None:
            state[self._steps] = before.steps + steps
        if self._sharing.own_size:
            state |= self._sharing.own_state(models)
        return ClientState(state)
