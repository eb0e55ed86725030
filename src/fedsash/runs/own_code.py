"""The permit of a run's folder: which code outside fedsash it may name again, on this machine only.

A run that was started with `--own-code` goes on without it. So its folder holds `own_code.json`: the places that its
config.toml names, and a signature, an HMAC over them, the folder's path and the working directory. The key is a random
secret in the user's own folder. In a folder that was copied, moved, downloaded or changed the signature is wrong, and
from another working directory other code could be meant. There the user is asked again. Beside them it has checksums of
the files, by which a later session warns that the code has changed.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import secrets
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..settings.resolve import was_resolved
from ..system.files import json_of
from ..system.host import NEW, host, make_folders, opened, unlink_if_there, write_all
from ..system.paths import beside, plain_file

log = logging.getLogger("fedsash")

NAME = "own_code.json"
KEY_BYTES = 32


def permit(folder: Path, config: Mapping[str, Any]) -> dict[str, bytes]:
    """The file that allows the run in `folder` to name the code that its `config` names and this process has used.

    There is no file if there is no such code, or no key, for example because the user's folder can't be written. A
    warning names each module that is another one than in an earlier session of the run.
    """
    places = sorted({text for text in _texts(config) if was_resolved(text)})
    if not places:
        return {}
    key = _key(make=True)
    if key is None:
        return {}
    code = _checksums(places)
    _warn_of_changes(_read(folder).get("code"), code)
    return {NAME: json_of({"places": places, "signature": _sign(key, folder, places), "code": code})}


def _warn_of_changes(before: object, code: Mapping[str, int]) -> None:
    """Warn of files whose checksums differ from those `before`, which anybody may have written."""
    if not isinstance(before, dict):
        return
    for file, checksum in before.items():
        if file in code and code[file] != checksum:
            log.warning("%s has changed since rounds of this run were trained with it", file)


def of(folder: Path) -> list[str]:
    """The places that the run in `folder` may name. None of them without a permit that holds here."""
    content = _read(folder)
    try:
        places = [str(place) for place in content["places"]]
        signature = str(content["signature"])
    except (KeyError, TypeError):
        return []
    key = _key(make=False)
    if key is None:
        return []
    signed = hmac.compare_digest(signature.encode(), _sign(key, folder, places).encode())
    return places if signed else []


def _read(folder: Path) -> dict[str, Any]:
    """The content of the permit in a folder; nothing if it can't be read."""
    try:
        return dict(json.loads(plain_file(folder / NAME).read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


def _checksums(places: Iterable[str]) -> dict[str, int]:
    """The checksums of the files that hold these places, without those that can't be read."""
    files = set()
    for place in places:
        module = place.partition(":")[0]
        files.add(str(getattr(sys.modules.get(module), "__file__", "")))
    files.discard("")
    checksums = {}
    for file in sorted(files):
        with suppress(OSError):
            checksums[file] = zlib.crc32(Path(file).read_bytes())
    return checksums


def _sign(key: bytes, folder: Path, places: list[str]) -> str:
    content = json.dumps([str(folder.resolve()), os.getcwd(), places])
    return hmac.new(key, content.encode(), "sha256").hexdigest()


def _key(make: bool) -> bytes | None:
    """The user's key. None if there is none, or if others could have read or written it."""
    from platformdirs import user_state_path

    try:
        file = user_state_path("fedsash", appauthor=False) / "key"
        if make and not file.exists():
            _make_key(file)
        status = plain_file(file).stat()
        if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o077):
            return None
        key = file.read_bytes()
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return None
    return key if len(key) == KEY_BYTES else None


def _make_key(file: Path) -> None:
    """Write a new key, completely or not at all. If another process is quicker, its key stays."""
    make_folders(file.parent)
    writing = beside(file)
    try:
        with opened(writing, NEW, 0o600) as handle:
            write_all(handle, secrets.token_bytes(KEY_BYTES))
            host.disk.sync(handle)  # a power cut leaves it whole, or none: half a key would stay for ever
        host.disk.link(writing, file)
    except FileExistsError:
        pass
    finally:
        unlink_if_there(writing)


def _texts(value: Any) -> Iterator[str]:
    """All texts in a table."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
