"""The state of a node's clients on its disk, by version: the server says which version counts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...client.messages import Request
from ...client.store import StateRows, StateVersions
from ...system.files import replace_file
from ...system.host import make_folders, sync_folders, unlink_if_there
from ...vector.arrays import Vectors, stacked
from ...vector.spaces import ClientState

RUN = re.compile(r"[0-9a-zA-Z]{1,64}")
"""What the id of a run may be: it names a folder."""


class NoVersion(LookupError):
    """A version of a client's state is not here, or can't be used. The text says which."""


@dataclass(frozen=True)
class Versions:
    """The states of clients in `folder`, each in a file `run/client/version-from-session.safetensors`.

    `run` is the id of the run of fedsash that made the version, and not Flower's, which changes when a run is resumed;
    `session` counts how often the run was. A client that trains in round r starts `from` the version that the request
    names, and writes version r + 1. Whether that version counts the server says with the next request. So nothing needs
    to be put back when an upload was refused, late or lost, or when the server was set back: the file is ignored.

    A request may come late from a server that was killed, for a round that a later session has made anew. Its version
    has another session in its name; and once the later session has asked the client, it is refused.
    """

    folder: Path

    def read(self, request: Request, start: ClientState) -> tuple[Request, StateRows, dict[int, str]]:
        """The request to its clients whose state is on this disk, their state `[C, ...]`, and why others have none.

        The states are of the versions that the request names; 0 stands for the `start`. The others are named by their
        places in the request.
        """
        named = _named(request)
        states: dict[int, ClientState] = {}
        reasons: dict[int, str] = {}
        for place, (client, version) in enumerate(zip(request.ids.tolist(), named.last.tolist(), strict=True)):
            try:
                self._check_session(named, client, request.round + 1)
                states[place] = self._read_client(named, client, version, start)
            except NoVersion as error:
                reasons[place] = str(error)
        answerable = request.only(np.array(list(states), dtype=np.int64))
        rows = StateRows(ClientState(stacked(list(states.values()))))
        return answerable, rows, reasons

    def write(self, request: Request, client_state: ClientState) -> None:
        """Write the new state `[C, ...]` of the clients of a request, and remove what no saved state needs any more.

        One that is not finite is not written: its upload is refused. If the request came twice, and the client's
        samples have broken since, it would replace the version that counts.
        """
        named = _named(request)
        version = request.round + 1
        _, session = named.maker(version)
        for place, (client, before) in enumerate(zip(request.ids.tolist(), named.last.tolist(), strict=True)):
            state = {name: rows[place] for name, rows in client_state.items()}
            if not _is_finite(state):
                continue
            folder = self._client_folder(named, version, client)
            make_folders(folder)
            others = _files(folder)
            if not others:
                sync_folders(folder)  # a process that was killed may have made it
            file = folder / _name(version, before, session)
            replace_file(file, _content(state))
            for other in others:
                if _session(other) > session:  # it has asked meanwhile
                    continue
                same_version = _version(other) == version and other.name != file.name
                uncounted = before < _version(other) <= request.round  # its upload was late, lost or refused
                if same_version or uncounted:
                    unlink_if_there(other)
            self._prune(folder, before, named.oldest)

    def _check_session(self, named: StateVersions, client: int, version: int) -> None:
        """Raise `NoVersion` if a later session of the run has asked the client than the one that asks for `version`."""
        _, session = named.maker(version)
        for file in _files(self._client_folder(named, version, client)):
            if _session(file) > session:
                raise NoVersion(f"client {client} was asked by a server that has been started again since")

    def _read_client(self, named: StateVersions, client: int, version: int, start: ClientState) -> ClientState:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        if version == 0:
            return start
        _, session = named.maker(version)
        files = sorted(self._client_folder(named, version, client).glob(f"{version:08d}-*-{session}.safetensors"))
        try:
            state = load_file(files[0])
        except (IndexError, OSError, SafetensorError) as error:
            raise NoVersion(f"client {client} has no state of round {version} here") from error
        shapes = {name: value.shape for name, value in state.items()}
        if shapes != {name: value.shape for name, value in start.items()}:
            raise NoVersion(f"client {client} has the state of another method or model of round {version}")
        if not _is_finite(state):
            raise NoVersion(f"client {client} has a state of round {version} that is not finite")
        return ClientState({name: state[name].to(value) for name, value in start.items()})

    def _client_folder(self, named: StateVersions, version: int, client: int) -> Path:
        run, _ = named.maker(version)
        run = run or "run"
        if not RUN.fullmatch(run):
            raise NoVersion(f"{run[:80]!r} can't be the id of a run")
        return self.folder / run / f"{int(client)}"

    def _prune(self, folder: Path, newest: int, oldest: int) -> None:
        """Remove the versions before the one that counted in round `oldest`, to which the server may be set back.

        It is found from the `newest` that counts, since each version names the one before it.
        """
        before = {_version(file): _before(file) for file in _files(folder)}
        while newest > oldest and newest in before:
            newest = before[newest]
        unfinished = folder.glob(".[0-9]*-*")
        for file in (*_files(folder), *unfinished):
            if _version(file) < newest:
                unlink_if_there(file)


def _named(request: Request) -> StateVersions:
    """The versions that a request names to clients that keep their state."""
    assert isinstance(request.clients, StateVersions)
    return request.clients


def _name(version: int, before: int, session: int) -> str:
    return f"{version:08d}-{before:08d}-{session}.safetensors"


def _version(file: Path) -> int:
    """The version in a file, also in one that a killed process left unfinished: its name begins with a dot."""
    return int(file.name.lstrip(".").split("-")[0])


def _before(file: Path) -> int:
    """The version from which the one in a file was made."""
    return int(file.stem.split("-")[1])


def _session(file: Path) -> int:
    """The session that made the version in a file."""
    return int(file.stem.split("-")[2])


def _files(folder: Path) -> list[Path]:
    """The versions in a client's folder, without what a killed process was writing."""
    return sorted(folder.glob("[0-9]*-[0-9]*-[0-9]*.safetensors"))


def _is_finite(state: Vectors) -> bool:
    """Whether no number of a client's state is infinite or NaN."""
    return all(bool(torch.isfinite(value).all()) for value in state.values())


def _content(vectors: dict[str, Tensor]) -> bytes:
    """The bytes of a file with these vectors."""
    from safetensors.torch import save

    return save({name: value.detach().cpu().contiguous() for name, value in vectors.items()})
