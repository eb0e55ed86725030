"""The files of a run's models: `models/NAME.safetensors`, with their sizes and checksums in `files.json`, and
`model.json`, which has the sizes of the model's input and output.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from ..data.federated import FederatedData
from ..settings.errors import RunError, one_line
from ..system import files
from ..system.host import host, make_folders, sync_folder
from ..system.paths import plain_file
from .cures import remake

INDEX = "files.json"
SHAPE = "model.json"

Seal = tuple[int, int]
"""The size of a content in bytes, and its CRC-32 checksum."""


def write_models(folder: Path, contents: Iterable[tuple[str, bytes]]) -> None:
    """Write the model of each name, completely or not at all.

    While a model is replaced, `files.json` has its old seal and the new one. So whenever the process is killed, the
    models are as `files.json` says. Raises `OSError`, for example if the disk is full, and leaves whole models.
    """
    seals: dict[str, list[Seal]] = {}
    with suppress(RunError):  # a damaged index is written anew
        seals = _index(folder)
    make_folders(folder / "models")
    for name, content in contents:
        file = _file(name)
        seal = _seal(content)
        seals[file] = [*seals.get(file, []), seal]
        files.write_table(folder / INDEX, {"files": seals})
        files.replace_file(folder / file, content)
        seals[file] = [seal]
    files.write_table(folder / INDEX, {"files": seals})


def remove_other_models(folder: Path, names: Collection[str]) -> None:
    """Remove the models that sessions before have written under other names than these.

    Whenever the process is killed, the next call goes on: a name leaves `files.json` after its file is gone.
    """
    seals = _index(folder)
    others = seals.keys() - set(map(_file, names))
    if not others:
        return
    for path in (folder / "models").glob("*.safetensors"):
        if f"models/{path.name}" in others:
            host.disk.unlink(path)
    sync_folder(folder / "models")
    files.write_table(folder / INDEX, {"files": {file: seals[file] for file in seals if file not in others}})


def read_model(folder: Path, name: str) -> bytes:
    """The file of a model. Raises `FileNotFoundError`, and `RunError` if the file is not what was written.

    Without `files.json`, or without the model's seal there, the file is taken as it is.
    """
    file = _file(name)
    while True:
        seals = _index(folder).get(file)
        content = plain_file(folder / file).read_bytes()
        if seals is None or _seal(content) in seals:
            return content
        if seals == _index(folder).get(file):  # else it was replaced while it was read
            raise RunError(f"{folder / file} is damaged: {remake(folder)}")


def write_shape(folder: Path, data: FederatedData) -> None:
    """Write what a model must know of its data: the shape of one `input`, and the number of `outputs`."""
    files.write_table(folder / SHAPE, {"input": list(data.input_shape), "outputs": data.outputs})


def read_shape(folder: Path) -> tuple[list[int], int] | None:
    """The shape of one input, and the number of outputs; None if the run has not written them.

    Raises `RunError` if the file is damaged.
    """
    try:
        table = files.table(folder / SHAPE, sealed=True)
        return [int(length) for length in table["input"]], int(table["outputs"])
    except FileNotFoundError:
        return None
    except RunError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{folder / SHAPE} is damaged: {one_line(error)}") from error


def lost_models(folder: Path) -> list[str]:
    """The models that were written and are gone."""
    return [file for file in _index(folder) if not (folder / file).exists()]


def _file(name: str) -> str:
    return f"models/{name}.safetensors"


def _seal(content: bytes) -> Seal:
    return len(content), zlib.crc32(content)


def _index(folder: Path) -> dict[str, list[Seal]]:
    """The seals of a run's models, by the files' names: one, or also the one before while the model is replaced."""
    path = folder / INDEX
    try:
        listed = files.table(path, sealed=True)["files"]
        return {name: [(int(size), int(crc)) for size, crc in seals] for name, seals in listed.items()}
    except FileNotFoundError:
        return {}
    except (RunError, KeyError, TypeError, ValueError, AttributeError):
        raise RunError(f"{path} is damaged: remove it, and the models are no longer checked") from None
