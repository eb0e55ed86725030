"""A checkpoint of any format: a file, an index and its shards, or a folder of `torch.distributed.checkpoint`."""

from __future__ import annotations

from pathlib import Path

from .distributed import METADATA, DistributedFolder
from .formats import INDICES, Checkpoint, ShardedCheckpoint, check_no_key, open_file, shard_of, weight_map_of


def open_checkpoint(path: Path, key: str = "") -> Checkpoint:
    """The reader of a checkpoint, by its name. Raises `RunError` for one of no known format.

    Raises `ModelError` for a `key` that it does not have, and for any where there is a single state dictionary.
    """
    if path.name == METADATA:
        return DistributedFolder(path, key)
    if path.name.endswith(INDICES):
        check_no_key(path, key)
        return ShardedCheckpoint(path)
    return open_file(path, key)


def has_parts(path: Path) -> bool:
    """Whether a checkpoint of this name has several files, so that its mean is a folder."""
    return path.name == METADATA or path.name.endswith(INDICES)


def parts_of(path: Path) -> list[Path]:
    """All files of a checkpoint: one, or an index or metadata and the files that they name."""
    if path.name == METADATA:
        return [path, *sorted(path.parent.glob("*.distcp"))]
    if path.name.endswith(INDICES):
        names = dict.fromkeys(weight_map_of(path).values())
        return [path, *(shard_of(path, name) for name in names)]
    return [path]
