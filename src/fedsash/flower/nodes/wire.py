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

REQUEST = "request"
MODEL = "model"
SERVER = "server_state"
CLIENTS = "client_state"
"""The records of a request: its numbers, the model, the method's vectors, and the clients' state if it travels."""

REPLY = "reply"
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


class TensorForm(NamedTuple):
    """The shape and the type of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> TensorForm:
        """The form of a tensor."""
        return cls(tuple(tensor.shape), tensor.dtype)

    def __str__(self) -> str:
        return f"{_name(self.dtype)} {list(self.shape)}"


TensorForms = Mapping[str, TensorForm]
"""The forms of some tensors by name."""


def packed(vectors: Vectors) -> Any:
    """Tensors by name as an `ArrayRecord`."""
    from flwr.app import ArrayRecord

    return ArrayRecord({name: _array(value) for name, value in vectors.items()})


def unpacked(record: Any, forms: TensorForms | None = None, device: torch.device = CPU) -> Vectors:
    """The tensors of an `ArrayRecord`, as new tensors on a device.

    Raises `WireError` for bytes that are no array, and unless names, shapes and types are those of `forms`.
    """
    if forms is not None and record.keys() != forms.keys():
        raise WireError(f"sent {_listed(record)}: must be {_listed(forms)}")
    tensors = {}
    for name, array in record.items():
        form = None if forms is None else forms[name]
        tensors[name] = _tensor(name, array, form).to(device)
    return tensors


def reply_facts(message: Any) -> Any:
    """The record `REPLY` of a node's message. Raises `WireError` if there is none: Flower or the node says that it
    failed, or it is no node of fedsash."""
    if message.has_error():
        raise WireError(f"failed: {message.error.reason}")
    record = record_of(message.content, REPLY)
    if "failed" in record:
        raise WireError(f"failed: {record['failed']}")
    return record


def record_of(content: Any, name: str) -> Any:
    """The record of this name in the content of a node's message. Raises `WireError` if there is none."""
    if name not in content:
        raise WireError(f"failed: its answer has no record {name!r}")
    return content[name]


def request_content(request: Request, model: Any, server: Any, settings: str) -> Any:
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
    facts = ConfigRecord({"numbers": json.dumps(numbers), "settings": settings})
    client_state = packed(request.clients.own)
    return RecordDict({REQUEST: facts, MODEL: model, SERVER: server, CLIENTS: client_state})


def read_request(content: Any, device: torch.device = CPU) -> tuple[Request, str]:
    """The request in a `RecordDict`, with its vectors on a device, and its settings."""
    facts = content[REQUEST]
    numbers = json.loads(facts["numbers"])
    server_steps = numbers["server_steps"]
    if server_steps is not None:
        server_steps = int(server_steps)
    request = Request(
        job=numbers["job"],
        round=int(numbers["round"]),
        ids=np.array(numbers["ids"], dtype=np.int64),
        sent=WholeModel(unpacked(content[MODEL], device=device)["w"]),
        server_state=Download(unpacked(content[SERVER], device=device)),
        clients=_ticket_of(numbers["versions"], content[CLIENTS], device),
        server_steps=server_steps,
    )
    return request, str(facts["settings"])


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


def reply_content(replies: list[Reply], fingerprint: str, sizes: list[int], without: Mapping[int, str]) -> Any:
    """The replies of a node's clients as a `RecordDict`, in the order of its request, without those at some places.

    It says why they do not answer, and how many samples all clients have.
    """
    from flwr.app import ConfigRecord, RecordDict

    facts = ConfigRecord({"fingerprint": fingerprint, "sizes": sizes})
    if without:
        facts["without"] = list(without)
        facts["why"] = list(without.values())
    uploads = joined([reply.upload for reply in replies])
    client_states = joined([reply.client_state for reply in replies])
    return RecordDict({REPLY: facts, UPLOAD: packed(uploads), CLIENTS: packed(client_states)})


def failure_content(why: str) -> Any:
    """The answer of a node that can't do what it was asked, and why, as a `RecordDict`."""
    from flwr.app import ConfigRecord, RecordDict

    return RecordDict({REPLY: ConfigRecord({"failed": why})})


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _array(tensor: Tensor) -> Any:
    from flwr.app import Array

    values = tensor.detach().cpu().contiguous()
    if values.dtype not in _AS_INTEGERS:
        return Array(values.numpy())
    integers = Array(values.view(_AS_INTEGERS[values.dtype]).numpy())
    return Array(dtype=_name(values.dtype), shape=integers.shape, stype=integers.stype, data=integers.data)


def _tensor(name: str, array: Any, form: TensorForm | None) -> Tensor:
    """The tensor in an array. Its header is read first, so that no memory is taken for a wrong shape or type."""
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
    sent_form = TensorForm(tuple(shape), dtype)
    if form is not None and sent_form != form:
        raise WireError(f"{name} is {sent_form}: must be {form}")
    size = int(np.prod(shape, dtype=object)) * kind.itemsize  # Python's integers: a hostile shape may be huge
    complete = size == len(array.data) - stream.tell()
    if not complete or fortran or plain != _AS_INTEGERS.get(dtype, dtype):
        raise WireError(f"{name} is not an array: its bytes are not those of {sent_form}")
    values = np.frombuffer(array.data, dtype=kind, offset=stream.tell()).reshape(shape).copy()
    return torch.from_numpy(values).view(dtype)
