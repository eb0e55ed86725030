"""Where a mean is written: a new file or a new folder, which is whole or absent, and the card beside it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError

from ...settings.errors import RunError, SettingError, one_line
from ...system.host import sync_folder
from ...system.paths import beside, check_folder, clear_beside, naming
from .formats import ENDINGS
from .order import CARD, card_of, folder_of
from .readers import has_parts

COPIED = (
    "*config*.json",
    "*token*",
    "vocab*",
    "merges.txt",
    "*.model",
    "*.spm",
    "*.codes",
    "*.jinja",
    "*.tiktoken",
    "*.py",
)
"""The configuration, the tokenizer and the code of a model, which lie beside a checkpoint."""

MODULES = "modules.json"
"""Where Sentence Transformers names the modules of a model, each but the first with a folder of its own."""


def check_new(out: Path) -> None:
    """Raise `RunError` if something is at the path of the output, and `OSError` if nothing can be written there."""
    if out.exists() or out.is_symlink():
        raise RunError(f"{out} is there already: name a new file or folder")
    check_folder(out.parent)


@contextmanager
def whole(out: Path, newest: Path) -> Iterator[tuple[Path, Path]]:
    """The paths at which the mean and its card are written; they get their names when all is there.

    Raises `RunError` if another process has written `out` meanwhile, and `OSError` that names it if the disk is full.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    clear_beside(out)
    with naming(out, beside(out)), _causes(out):
        if out.name.endswith(ENDINGS):
            with _new_file(out, newest) as paths:
                yield paths
        else:
            with _new_folder(out, newest) as paths:
                yield paths
        sync_folder(out.parent)


@contextmanager
def _new_file(out: Path, newest: Path) -> Iterator[tuple[Path, Path]]:
    _check_ending(out, newest)
    card = card_of(out)
    clear_beside(card)
    try:
        yield beside(out), beside(card)
        check_new(out)
        beside(card).replace(card)
        beside(out).replace(out)
    finally:
        beside(out).unlink(missing_ok=True)
        beside(card).unlink(missing_ok=True)
        if not out.is_file():
            card.unlink(missing_ok=True)


@contextmanager
def _new_folder(out: Path, newest: Path) -> Iterator[tuple[Path, Path]]:
    unfinished = beside(out)
    unfinished.mkdir()
    try:
        _copy_beside(folder_of(newest), unfinished)
        file = unfinished / newest.absolute().relative_to(folder_of(newest))
        file.parent.mkdir(exist_ok=True)
        yield file, unfinished / CARD
        sync_folder(file.parent)
        sync_folder(unfinished)
        check_new(out)
        unfinished.rename(out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _check_ending(out: Path, newest: Path) -> None:
    """Raise `SettingError` if a file's ending is that of another format than the newest checkpoint's."""
    if has_parts(newest):
        raise SettingError.at("out", str(out), f"must name a folder, without an ending: {newest} has several files")
    if (out.suffix == ".safetensors") != (newest.suffix == ".safetensors"):
        raise SettingError.at("out", str(out), f"must end in {newest.suffix}, as {newest} does")


def _copy_beside(source: Path, target: Path) -> None:
    """Copy what lies beside a checkpoint and is needed to load it. Raises `RunError` if there are weights among it."""
    _copy(source, target, [*COPIED, MODULES])
    for folder in _module_folders(source):
        weights = [path for path in sorted(folder.iterdir()) if path.name.endswith(ENDINGS)]
        if weights:
            raise RunError(f"{weights[0]} is a part of the model that a merge does not average: merge files instead")
        (target / folder.name).mkdir()
        _copy(folder, target / folder.name, ["*.json"])


def _copy(source: Path, target: Path, patterns: Iterable[str]) -> None:
    """Copy the files in a folder whose names have one of the patterns, and wait until they are on the disk."""
    for pattern in patterns:
        for path in source.glob(pattern):
            if path.is_file():
                with path.open("rb") as original, (target / path.name).open("wb") as copy:
                    shutil.copyfileobj(original, copy)
                    sync(copy)


def _module_folders(source: Path) -> list[Path]:
    """The folders of the further modules of a Sentence Transformers model, such as its pooling."""
    listing = source / MODULES
    if not listing.is_file():
        return []
    try:
        names = [module["path"] for module in json.loads(listing.read_bytes())]
    except (ValueError, TypeError, KeyError):
        raise RunError(f"{listing} does not say the path of each module") from None
    return [source / name for name in names if name and (source / name).is_dir()]


def save_pickled(path: Path, content: Any) -> None:
    """Write a new file of `torch.save`, and wait until it is on the disk."""
    with path.open("xb") as file:
        torch.save(content, file)
        sync(file)


def sync(file: IO[bytes]) -> None:
    """Wait until what was written into a file is on the disk."""
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def _causes(out: Path) -> Iterator[None]:
    """Raise the cause of what libraries make of Ctrl-C or a full disk.

    PyTorch can't end its archive then, and raises that in place of the cause. safetensors has it in its text.
    """
    try:
        yield
    except RuntimeError as error:
        cause = error.__context__
        if isinstance(cause, KeyboardInterrupt | OSError):
            raise cause from None
        raise
    except SafetensorError as error:
        raise OSError(f"{out}: {one_line(error)}") from None
