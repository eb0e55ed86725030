"""Which steps W&B has written into a run's folder while it was offline. Its library has no reader of these files."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

HEADER = 7
"""The bytes at the beginning of a file, and before each piece of a record: checksum, length and kind."""
BLOCK = 32768
"""A file is blocks of this length, as LevelDB's log: no header of a piece goes across the end of a block."""
WHOLE = 1
LAST = 4
"""The kinds of pieces with which a record ends."""


def logged_steps(folder: Path, id: str) -> set[int]:
    """The steps of the run `id` of W&B in the files of offline sessions below `folder`."""
    from google.protobuf.message import DecodeError

    messages: Any = import_module("wandb.proto.wandb_internal_pb2")
    steps = set()
    for file in sorted((folder / "wandb").glob(f"offline-run-*/run-{id}.wandb")):
        for content in records(file.read_bytes()):
            try:
                record = messages.Record.FromString(content)
            except DecodeError:  # a piece that a kill has left
                continue
            if record.HasField("history"):
                steps.add(int(record.history.step.num))
    return steps


def records(content: bytes) -> Iterator[bytes]:
    """The complete records in the content of a file of W&B."""
    at = HEADER
    record = b""
    while at + HEADER <= len(content):
        left = -at % BLOCK
        if 0 < left < HEADER:
            at += left
            continue
        length = int.from_bytes(content[at + 4 : at + 6], "little")
        kind = content[at + 6]
        end = at + HEADER + length
        if end > len(content):
            return
        record += content[at + HEADER : end]
        at = end
        if kind in (WHOLE, LAST):
            yield record
            record = b""
