"""Replies that were altered on the way, and disks: each alteration is one that must be seen."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from safetensors import SafetensorError
from safetensors.torch import load, save

from fedsash.flower.nodes import wire

from .disk import Content

WAYS = {
    "bytes": ("is not an array",),
    "shape": (": must be ",),
    "type": (": must be ",),
    "nan": (),
    "fingerprint": ("it trains another model",),
    "records": ("its answer has no record 'upload'",),
    "samples": ("samples instead of",),
    "places": ("it has no clients at the places",),
    "half": ("is not an array",),
}
"""How a reply may be altered, and the words of the reasons why it is of no use then; what is not finite is refused."""


def altered(reply: Any, way: str) -> Any:
    """A reply as a faulty or lying node would send it; one that is an error stays as it is."""
    if reply.has_error():
        return reply
    content = RecordDict(dict(reply.content))
    if wire.REPLY not in content:
        return Message(_of_strategy(content, way), metadata=reply.metadata)
    facts = dict(content[wire.REPLY])
    if wire.UPLOAD not in content:
        return Message(_roll_call(content, facts, way), metadata=reply.metadata)
    if way == "records":
        del content[wire.UPLOAD]
    else:
        content[wire.UPLOAD] = ArrayRecord({name: _array(array, way) for name, array in content[wire.UPLOAD].items()})
    if way == "fingerprint":
        facts["fingerprint"] = "another"
    elif way == "samples":
        facts["sizes"] = [size + 1 for size in facts["sizes"]]
    elif way == "places":
        facts |= {"without": [7], "why": ["because"]}
    content[wire.REPLY] = ConfigRecord(facts)
    return Message(content, metadata=reply.metadata)


def _of_strategy(content: Any, way: str) -> Any:
    """A reply to Flower's own strategy, which itself trusts all shapes and types."""
    if way == "nan" and "arrays" in content:  # a score has none
        content["arrays"] = ArrayRecord({name: _array(array, way) for name, array in content["arrays"].items()})
    return content


def _roll_call(content: Any, facts: dict[str, Any], way: str) -> Any:
    """An answer to a roll call that can't be right."""
    if "numbers" not in facts:
        return content
    table = json.loads(facts["numbers"])
    if way == "samples":
        table["sizes"] = [size + 1 for size in table["sizes"]]
    elif way == "places":
        table["clients"] = [99 for _ in table["clients"]]
    else:
        table = ["nothing"]
    facts["numbers"] = json.dumps(table)
    content[wire.REPLY] = ConfigRecord(facts)
    return content


def _array(array: Any, way: str) -> Any:
    """An altered array; if the alteration is elsewhere, one with other numbers, so that it must not be used."""
    if way == "bytes":
        return Array(array.dtype, array.shape, array.stype, b"nonsense")
    if way == "half":
        return Array(array.dtype, array.shape, array.stype, array.data[: len(array.data) // 2])
    values = array.numpy()
    if way == "shape":
        return Array(np.concatenate([values, values]))
    if way == "type":
        return Array(values.astype(np.float16))
    if way == "nan" and values.dtype.kind == "f":
        return Array(np.full_like(values, np.nan))
    return Array(values + 1)


def without_finite_state(content: Content) -> Content:
    """What is on a node's disk, with NaN for every number of its clients' state."""
    without: Content = {}
    for name, inner in content.items():
        if not isinstance(inner, bytes):
            without[name] = without_finite_state(inner)
        elif name.endswith(".safetensors"):
            without[name] = _not_finite(inner)
        else:
            without[name] = inner
    return without


def _not_finite(file: bytes) -> bytes:
    """A file with NaN for all its numbers, unless it can't be read anyway."""
    try:
        vectors = load(file)
    except SafetensorError:
        return file
    return save({name: torch.full_like(value, torch.nan) for name, value in vectors.items()})
