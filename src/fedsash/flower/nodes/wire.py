"""What travels: tensors, requests and replies as records of Flower.

Nothing is pickled. A tensor is an `Array` with the bytes of `numpy.save`, so that Flower's own tools can read it; types
that NumPy does not have, such as bfloat16, are integers of the same width there, and the array names the type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...client.messages import Reply, Request
from ...client.store import ClientTicket, StateRows, StateVersions
from ...vector.arrays import Vectors, joined
from ...vector.spaces import ClientState, Download, WholeModel

ASKED = "request"
MODEL = "model"
SERVER = "server_state"
CLIENTS = "client_state"
"""The records of a request: its numbers, the model, the method's vectors, and the clients' state if it travels."""

SAID = "reply"
UPLOAD = "upload"
"""The records of a reply: what it says, and the uploads; the clients' state as in a request."""

ACTIONS = {"train": "train", "probe": "train.probe", "evaluate": "evaluate", "tune": "evaluate.tune"}
"""The type of Flower's message for each job."""

ROLL_CALL = "query.roll_call"
"""The type of the message that asks a node who it is."""

CPU = torch.device("cpu")

_AS_INTEGERS = {torch.bfloat16: torch.int16, torch.float8_e4m3fn: torch.uint8, torch.float8_e5m2: torch.uint8}


class WireError(ValueError):
    """A record does not hold what it should hold. The text says what is wrong."""


class Form(NamedTuple):
    """The shape and the type of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> Form:
        """The form of a tensor."""
        return cls(tuple(tensor.shape), tensor.dtype)

    def __str__(self) -> str:
        return f"{_name(self.dtype)} {list(self.shape)}"


Forms = Mapping[str, Form]
"""The forms of some tensors by name."""


def packed(vectors: Vectors) -> Any:
    """Tensors by name as an `ArrayRecord`."""
    from flwr.app import ArrayRecord

    return ArrayRecord({name: _array(value) for name, value in vectors.items()})


def unpacked(record: Any, forms: Forms | None = None, device: torch.device = CPU) -> Vectors:
    """The tensors of an `ArrayRecord`, as new tensors on a device.

    Raises `WireError` for bytes that are no array, and unless names, shapes and types are those of `forms`.
    """
    if forms is not None and record.keys() != forms.keys():
        raise WireError(f"sent {_listed(record)}: must be {_listed(forms)}")
    right = dict.fromkeys(record) if forms is None else forms
    return {name: _tensor(name, array, right[name]).to(device) for name, array in record.items()}


def said(message: Any) -> Any:
    """What a node says of its answer. Raises `WireError` if Flower or the node says that it failed."""
    if message.has_error():
        raise WireError(f"failed: {message.error.reason}")
    found = message.content[SAID]
    if "failed" in found:
        raise WireError(f"failed: {found['failed']}")
    return found


def asked(request: Request, model: Any, server: Any, settings: str) -> Any:
    """A request as a `RecordDict`; `model` and `server` are the packed vectors that all nodes of a round receive.

    `settings` is what a node must know to answer it (see `settings.py`).
    """
    from flwr.app import ConfigRecord, RecordDict

    numbers = {
        "job": request.job,
        "round": request.round,
        "ids": request.ids.tolist(),
        "versions": _versions(request.clients),
        "server_steps": request.server_steps,
    }
    own = packed(request.clients.own)
    said = ConfigRecord({"numbers": json.dumps(numbers), "settings": settings})
    return RecordDict({ASKED: said, MODEL: model, SERVER: server, CLIENTS: own})


def request_of(content: Any, device: torch.device = CPU) -> tuple[Request, str]:
    """The request in a `RecordDict`, with its vectors on a device, and its settings."""
    said = content[ASKED]
    numbers = json.loads(said["numbers"])
    request = Request(
        job=numbers["job"],
        round=int(numbers["round"]),
        ids=np.array(numbers["ids"], dtype=np.int64),
        sent=WholeModel(unpacked(content[MODEL], device=device)["w"]),
        server_state=Download(unpacked(content[SERVER], device=device)),
        clients=_ticket_of(numbers["versions"], content[CLIENTS], device),
        server_steps=None if numbers["server_steps"] is None else int(numbers["server_steps"]),
    )
    return request, str(said["settings"])


def _versions(ticket: ClientTicket) -> dict[str, Any] | None:
    """The versions of the state that clients keep themselves; None if it travels."""
    if not isinstance(ticket, StateVersions):
        return None
    return {"last": ticket.last.tolist(), "oldest": ticket.oldest, "lineage": ticket.lineage}


def _ticket_of(versions: Mapping[str, Any] | None, rows: Any, device: torch.device) -> ClientTicket:
    """The ticket of a request: its versions, or else the rows that came with it."""
    if versions is None:
        return StateRows(ClientState(unpacked(rows, device=device)))
    return StateVersions(
        last=np.array(versions["last"], dtype=np.int64),
        oldest=int(versions["oldest"]),
        lineage=tuple((int(first), str(run)) for first, run in versions["lineage"]),
    )


def replied(replies: list[Reply], fingerprint: str, sizes: list[int], without: Mapping[int, str]) -> Any:
    """The replies of a node's clients as a `RecordDict`, in the order of its request, without those at some places.

    It says why they do not answer, and how many samples all clients have.
    """
    from flwr.app import ConfigRecord, RecordDict

    why = {"without": list(without), "why": list(without.values())} if without else {}
    said = ConfigRecord({"fingerprint": fingerprint, "sizes": sizes, **why})
    uploads, own = (joined(of) for of in ([r.upload for r in replies], [r.client_state for r in replies]))
    return RecordDict({SAID: said, UPLOAD: packed(uploads), CLIENTS: packed(own)})


def refused(why: str) -> Any:
    """The answer of a node that can't do what it was asked, and why, as a `RecordDict`."""
    from flwr.app import ConfigRecord, RecordDict

    return RecordDict({SAID: ConfigRecord({"failed": why})})


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _array(tensor: Tensor) -> Any:
    from flwr.app import Array

    own = tensor.detach().cpu().contiguous()
    if own.dtype not in _AS_INTEGERS:
        return Array(own.numpy())
    made = Array(own.view(_AS_INTEGERS[own.dtype]).numpy())
    return Array(dtype=_name(own.dtype), shape=made.shape, stype=made.stype, data=made.data)


def _tensor(name: str, array: Any, form: Form | None) -> Tensor:
    """The tensor in an array. Its header is read first, so that no memory is taken for a form that is not right."""
    dtype = getattr(torch, str(array.dtype), None)
    if not isinstance(dtype, torch.dtype):
        raise WireError(f"{name} is {str(array.dtype)[:40]!r}, which is no type of PyTorch")
    stream = BytesIO(array.data)
    try:
        np.lib.format.read_magic(stream)
        shape, fortran, kind = np.lib.format.read_array_header_1_0(stream)
        plain = torch.from_numpy(np.empty(0, dtype=kind)).dtype
    except (ValueError, TypeError) as error:
        raise WireError(f"{name} is not an array: {error}") from error
    found = Form(tuple(shape), dtype)
    if form is not None and found != form:
        raise WireError(f"{name} is {found}: must be {form}")
    whole = int(np.prod(shape, dtype=object)) * kind.itemsize == len(array.data) - stream.tell()
    if not whole or fortran or plain != _AS_INTEGERS.get(dtype, dtype):
        raise WireError(f"{name} is not an array: its bytes are not those of {found}")
    values = np.frombuffer(array.data, dtype=kind, offset=stream.tell()).reshape(shape).copy()
    return torch.from_numpy(values).view(dtype)
