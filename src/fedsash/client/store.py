"""Where client state is between two rounds: rows at the server, objects in a cluster, or versions at the clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..vector.arrays import Ints, Objects, Vectors, stacked
from ..vector.shown import Shown
from ..vector.spaces import ClientRows, ClientState
from ..vector.storage import client_rows

Lineage: TypeAlias = tuple[tuple[int, str], ...]
"""The runs that a run consists of, since a fork continues another run: the first round of each, and its id.

Where clients keep their state themselves, each later session of a run is named, too, as `RUN.2` and so on.
"""


def run_and_session(name: str) -> tuple[str, int]:
    """The id of the run, and the number of the session, that a name in a lineage stands for.

    Raises `ValueError` if what follows the point is no number.
    """
    run, _, session = name.partition(".")
    return run, int(session or 1)


@dataclass(eq=False)
class Handle(ABC):
    """A handle on the state of one client that stays where clients train, for as long as this object lives.

    `saved` reads the server's copy of it; None if it was not saved since it was made.
    """

    saved: Callable[[], ClientState] | None = None

    @abstractmethod
    def vectors(self) -> ClientState:
        """The state, brought to this process. Raises `WorkerError` if it was lost before it was saved."""


@dataclass(eq=False)
class ServerCopy(Handle):
    """A handle on a state of which only the server has a copy, `saved`."""

    def vectors(self) -> ClientState:
        assert self.saved is not None
        return self.saved()


class ClientTicket(Shown, ABC):
    """With what a request's clients find their state: the state itself, or where it is.

    `own` is the client state `[s, ...]` that the ticket contains; nothing if it is elsewhere.
    """

    own: ClientState

    @abstractmethod
    def only(self, places: slice | Ints) -> ClientTicket:
        """The ticket of the clients at these places of the request."""

    def gathered(self) -> ClientTicket:
        """The same ticket with the state behind handles, brought to this process."""
        return self


@dataclass(frozen=True, eq=False, repr=False)
class StateRows(ClientTicket):
    """The client state itself: `own` `[s, ...]`, empty if clients remember nothing."""

    own: ClientState = field(default_factory=lambda: ClientState({}))

    def only(self, places: slice | Ints) -> StateRows:
        return StateRows(ClientState({name: rows[places] for name, rows in self.own.items()}))


@dataclass(frozen=True, eq=False, repr=False)
class StateHandles(ClientTicket):
    """`handles` `[s]` on client state that stays where clients train."""

    handles: Objects
    own: ClientState = field(default_factory=lambda: ClientState({}), init=False, repr=False)

    def only(self, places: slice | Ints) -> StateHandles:
        return StateHandles(self.handles[places])

    def gathered(self) -> StateRows:
        return StateRows(ClientState(stacked([handle.vectors() for handle in self.handles])))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StateVersions(ClientTicket):
    """The versions of the state that clients keep themselves.

    - `last` `[s]`: the version of each client's state, the round after which it was last accepted, 0 if never. The
      client continues from this version. Anything later was refused or lost, and does not count;
    - `oldest`: the run is never set back to a round before this one;
    - `lineage`: the runs and sessions that this run consists of; that of a fork begins with the lineage of its source.
    """

    last: Ints
    oldest: int = 0
    lineage: Lineage = ()
    own: ClientState = field(default_factory=lambda: ClientState({}), init=False, repr=False)

    def only(self, places: slice | Ints) -> StateVersions:
        return StateVersions(last=self.last[places], oldest=self.oldest, lineage=self.lineage)

    def maker(self, version: int) -> tuple[str, int]:
        """The run and the session that made a version of client state, so that no two of them mix their versions.

        The run is empty for version 0, the state before the first round. Raises `ValueError` as `run_and_session`.
        """
        for first, name in reversed(self.lineage):
            if first < version:
                return run_and_session(name)
        return "", 1


@dataclass(repr=False)
class ClientStore(Shown):
    """The state of all N clients between two rounds, and who has it.

    - `rows` `[N, ...]`: the state of the clients, on the device, in memory or on the disk; empty if they keep it
      themselves;
    - `last` int64 `[N]`: the round after which client i's state was last accepted, 0 if never. It is the version of the
      client state. Empty if the method has no client state;
    - `handles` `[N]`: handles on the client state if it stays where clients train; then `rows` has types and shapes,
      but no values (see `gathered`);
    - `count`: the number N;
    - `lineage`: the ids of the runs that have made the versions; `oldest`: the earliest round that the run can be set
      back to. Clients that keep their state themselves keep the versions that may be asked for.
    """

    rows: ClientRows
    last: Tensor
    handles: Objects | None = None
    count: int = 0
    lineage: Lineage = field(default=(), repr=False)
    oldest: int = field(default=0, repr=False)

    @classmethod
    def start(
        cls, client_state: ClientState, last: Tensor, clients: int, folder: Path | None, at_engine: bool
    ) -> ClientStore:
        """The store in which all N `clients` have the same `client_state`.

        It has rows in memory or on a disk in `folder`; or handles, if the state stays where the engine trains clients.
        """
        if not at_engine:
            rows = {name: client_rows(value, clients, folder) for name, value in client_state.items()}
            return cls(ClientRows(rows), last, count=clients)
        shapes = ClientRows({})
        for name, value in client_state.items():
            shapes[name] = value.new_empty(clients, *value.shape, device="meta")
        handles = np.full(clients, ServerCopy(lambda: client_state), dtype=object)
        return cls(shapes, last, handles, clients)

    def recall(self, ids: Ints, device: torch.device) -> ClientTicket:
        """With what the clients `ids` `[s]` find their state; of rows a copy on a device."""
        if not len(self.last):
            return StateRows(ClientState({}))  # clients remember nothing
        if self.handles is not None:
            return StateHandles(self.handles[ids])
        if self._elsewhere:
            return self._versions(self.last.numpy()[ids])
        clients = torch.from_numpy(ids)
        copies = {name: rows[clients].to(device) for name, rows in self.rows.items()}
        return StateRows(ClientState(copies))

    def everybody(self, name: str) -> ClientTicket:
        """With what all clients find one vector `[N, ...]` of their state; of rows the vector itself, not a copy."""
        if self.handles is not None:
            return StateHandles(self.handles)
        if self._elsewhere:
            return self._versions(self.last.numpy())
        return StateRows(ClientState({name: self.rows[name]}))

    def accept(self, ids: Ints, answers: Iterable[tuple[Ints, ClientState | Objects]], round: int) -> None:
        """Take over the new client state of the accepted clients `ids`, in place: its version is `round`.

        `answers` are the numbers `[b]` of clients with their rows `[b, ...]` or handles `[b]`; nothing of clients that
        keep it themselves.
        """
        for clients, answer in answers:
            if isinstance(answer, dict):
                self._write(torch.from_numpy(clients), answer)
            else:
                assert self.handles is not None
                self.handles[clients] = answer
        if len(self.last):
            self.last[torch.from_numpy(ids)] = round

    def files(self) -> dict[str, int]:
        """The clients that have taken part, by the names of the files in which their state is saved."""
        files: dict[str, int] = {}
        if self.rows:
            for client, version in enumerate(self.last.tolist()):
                if version > 0:
                    files[f"client-{client}.{version:08d}.safetensors"] = client
        return files

    def of_client(self, client: int) -> ClientState:
        """The state of a client: views, or a copy that is brought here."""
        if self.handles is not None:
            return self._handle(client).vectors()
        return ClientState({name: rows[client] for name, rows in self.rows.items()})

    def saved(self) -> dict[str, Callable[[], Vectors]]:
        """The state of each client that has taken part, when it is called, by the name of its file."""
        return {file: partial(self.of_client, client) for file, client in self.files().items()}

    def note_saved(self, read: Callable[[str], ClientState]) -> None:
        """Note that the client state is saved, in files that `read` reads by their names."""
        if self.handles is None:
            return
        for file, client in self.files().items():
            self._handle(client).saved = partial(read, file)

    def load(self, read: Callable[[str], ClientState]) -> None:
        """Fill in the saved state, from files that `read` reads by their names: at once, or with handles when needed.

        `last` must be that of the saved state. Clients that have not taken part then keep their state of the start.
        """
        for file, client in self.files().items():
            if self.handles is not None:
                self.handles[client] = ServerCopy(partial(read, file))
                continue
            for name, tensor in read(file).items():
                self.rows[name][client].copy_(tensor)

    def gathered(self) -> ClientStore:
        """The same store with the state of all clients in this process."""
        if self.handles is None:
            return self
        gathered = ClientRows({name: torch.empty_like(rows, device="cpu") for name, rows in self.rows.items()})
        for client in range(len(self.handles)):
            for name, value in self.of_client(client).items():
                gathered[name][client] = value
        return replace(self, rows=gathered, handles=None)

    @property
    def _elsewhere(self) -> bool:
        """Whether clients keep their state themselves: there are versions of it, and none of it is here."""
        return len(self.last) > 0 and not self.rows

    def _versions(self, last: Ints) -> StateVersions:
        return StateVersions(last=last, oldest=self.oldest, lineage=self.lineage)

    def _write(self, clients: Tensor, client_state: ClientState) -> None:
        """Write the rows of these clients, in place."""
        for name, rows in client_state.items():
            of_all = self.rows[name]
            of_all[clients] = rows.to(of_all.device)

    def _handle(self, client: int) -> Handle:
        assert self.handles is not None
        handle: Handle = self.handles[client]
        return handle
