"""The memory that a process shares with its worker processes."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..client.messages import SCORES, Job, Reply, Request
from ..client.store import StateRows
from ..vector.arrays import Ints, Vectors
from ..vector.sharing import OWN
from ..vector.spaces import ClientState, Download, Uploaded, WholeModel

MOST_BYTES = 2**29
"""The most shared memory in bytes for the vectors of a round's clients."""

StartMethod = Literal["fork", "spawn"]
"""How worker processes begin (see `LocalEngine`)."""


Plain = tuple[str, list[int], bytes]
"""The type, the shape and the bytes of a tensor."""
Contents = list[tuple[str, Plain | None]]
"""The vectors of a message by name, in order: in the buffers (None), or with the message if they do not fit there.

A method may send and upload other vectors than in round 0, for which the buffers were made.
"""


class RequestHeader(NamedTuple):
    """What goes to a worker through its pipe of a request: all but the clients, and the vectors in the buffers."""

    job: Job
    round: int
    server_steps: int | None
    server_state: Contents


@dataclass(kw_only=True)
class Buffers:
    """Shared memory for the vectors of a request, and for the replies of up to `capacity` clients at a time.

    Forked processes inherit it; to spawned processes it can be sent. `sent` is `[D]`; `client_state`, the `uploads` of
    each job and `norms` have one row for each client, `[capacity, ...]`.
    """

    start: StartMethod
    sent: WholeModel
    server_state: Download
    client_state: Vectors
    uploads: dict[Job, Vectors]
    norms: Tensor

    @classmethod
    def like(
        cls,
        request: Request,
        replies: dict[Job, Reply],
        *,
        start: StartMethod,
        scored: dict[Job, Vectors],
        least: int,
        most: int,
    ) -> Buffers:
        """Buffers with the shapes of one client's request and replies, for `least` to `most` clients at a time.

        `scored` are the scores `[1, k]` of one client in a reply to each job of an evaluation.
        """
        row_bytes = 0
        for reply in replies.values():
            for rows in (*reply.upload.values(), *reply.client_state.values()):
                row_bytes += rows[0].numel() * rows.element_size()
        capacity = max(least, min(most, MOST_BYTES // row_bytes))

        def for_clients(vectors: Vectors) -> Vectors:
            return {name: _shared((capacity, *rows.shape[1:]), rows.dtype, start) for name, rows in vectors.items()}

        server_state = Download({})
        for name, vector in request.server_state.items():
            server_state[name] = _shared(vector.shape, vector.dtype, start)
        uploads: dict[Job, Vectors] = {}
        for job, reply in replies.items():
            uploads[job] = for_clients(reply.upload)
        for job, scores in scored.items():
            uploads[job] = for_clients(scores)
        return cls(
            start=start,
            sent=WholeModel(_shared(request.sent.shape, request.sent.dtype, start)),
            server_state=server_state,
            client_state=for_clients(replies["train"].client_state),
            uploads=uploads,
            norms=_shared((capacity,), request.sent.dtype, start),
        )

    @property
    def capacity(self) -> int:
        """The number of clients that fit into the buffers."""
        return len(self.norms)

    def put(self, request: Request) -> RequestHeader:
        """Write the vectors that all clients of a request receive; returns what else a worker must know of it."""
        self.sent.copy_(request.sent)
        server_state = _put(request.server_state, self.server_state)
        return RequestHeader(request.job, request.round, request.server_steps, server_state)

    def put_clients(self, request: Request, first: int = 0) -> None:
        """Write the client state of a request's clients into the rows from `first` on."""
        for name, rows in request.clients.own.items():
            self.client_state[name][first : first + len(rows)].copy_(rows)

    def request(self, header: RequestHeader, rows: slice, ids: Ints) -> Request:
        """The request as a worker reads it."""
        client_state = ClientState(_rows(self.client_state, rows))
        if header.job in SCORES:  # an evaluation reads only the client's part of the model
            client_state = ClientState({name: value for name, value in client_state.items() if name == OWN})
        return Request(
            job=header.job,
            round=header.round,
            server_steps=header.server_steps,
            ids=ids,
            sent=self.sent,
            server_state=Download(_received(header.server_state, self.server_state)),
            clients=StateRows(client_state),
        )

    def put_reply(self, job: Job, rows: slice, reply: Reply) -> Contents:
        """Write a worker's reply; returns its uploads."""
        for name, value in reply.client_state.items():
            self.client_state[name][rows] = value
        self.norms[rows] = reply.norms
        return _put(reply.upload, _rows(self.uploads[job], rows))

    def reply(self, job: Job, rows: slice, uploads: Contents, copied: bool) -> tuple[Uploaded, ClientState, Tensor]:
        """The replies in some rows: `uploads`, client state and norms; the rows themselves, or copies of them."""
        upload = _received(uploads, _rows(self.uploads[job], rows))
        client_state: Vectors = {}
        if job == "train":
            client_state = _rows(self.client_state, rows)
        if copied:
            upload = {name: value.clone() for name, value in upload.items()}
            client_state = {name: value.clone() for name, value in client_state.items()}
        return Uploaded(upload), ClientState(client_state), self.norms[rows].clone()


def _rows(vectors: Vectors, rows: slice) -> Vectors:
    """Views of some rows of each vector."""
    return {name: value[rows] for name, value in vectors.items()}


def _put(vectors: Vectors, places: Vectors) -> Contents:
    """Write vectors into their places in the buffers; returns what a message says of them."""
    contents: Contents = []
    for name, vector in vectors.items():
        place = places.get(name)
        if place is not None and place.shape == vector.shape and place.dtype == vector.dtype:
            place.copy_(vector)
            contents.append((name, None))
        else:
            contents.append((name, _plain(vector)))
    return contents


def _received(contents: Contents, places: Vectors) -> Vectors:
    """The vectors of a message, some of which lie in these places in the buffers."""
    vectors: Vectors = {}
    for name, plain in contents:
        if plain is None:
            vectors[name] = places[name]
        else:
            vectors[name] = _tensor(plain)
    return vectors


def _plain(tensor: Tensor) -> Plain:
    content = tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return str(tensor.dtype).removeprefix("torch."), list(tensor.shape), content


def _tensor(plain: Plain) -> Tensor:
    dtype, shape, content = plain
    tensor = torch.empty(shape, dtype=getattr(torch, dtype))
    tensor.flatten().view(torch.uint8).numpy()[:] = np.frombuffer(content, dtype=np.uint8)
    return tensor


def _shared(shape: tuple[int, ...] | torch.Size, dtype: torch.dtype, start: StartMethod) -> Tensor:
    """Zeros in memory that other processes share.

    With `"fork"` it is anonymous memory. Unlike the system's folder for shared memory, this has no limit of its own.
    """
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0 or start == "spawn":
        shared: Tensor = torch.zeros(shape, dtype=dtype).share_memory_()  # type: ignore[no-untyped-call]
        return shared
    return torch.frombuffer(mmap.mmap(-1, count * dtype.itemsize), dtype=dtype).view(shape)
