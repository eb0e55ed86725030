"""Hostile data: damaged files of every form, bombs, crafted pickles, and things that are no files.

Each is read by a process of its own. It must give the data that are there, or one line that refuses them: no traceback,
no hang, no crash, no gigabytes of memory, no code of theirs, nothing left in the cache. Bytes whose change no form
notices, such as those of pixels without a checksum, give other data; such cases are counted in `unnoticed.json`.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from .data_bombs import BOMBS
from .data_forms import CANARY, CHECKED, FORMS, SWAPPED, TEXTS, damage
from .frame import Bench, Case, Finding

SIZES = {"full": 1000 + len(BOMBS), "short": 60}
EQUAL = 0
REFUSED = 2
OTHER = 3
LINES = 4
LIMIT, MEMORY = 0.1, 5e8
"""The limit for one file in GB, and what reading a small data set may take in bytes.

Of a Parquet file that holds a value once for many rows so much is unpacked before it is refused.
"""


def cases(bench: Bench, size: int) -> Iterator[Case]:
    """Bombs and random damage to the forms by turns, until all bombs were tried."""
    unnoticed: Counter[str] = Counter()
    bombs = Random(0).sample(sorted(BOMBS), len(BOMBS))
    forms = [*FORMS]
    for number in range(size):
        if number % 2 == 0 and number // 2 < len(bombs):
            name = bombs[number // 2]
            yield Case(name, partial(_bomb, bench, name))
        else:
            form = forms[number % len(forms)]
            yield Case(f"damaged {form}", partial(_damaged, bench, number, form, unnoticed))


def _bomb(bench: Bench, name: str, folder: Path) -> list[Finding]:
    form, spoil = BOMBS[name]
    FORMS[form](folder / "data")
    spoil(folder / "data")
    return _read(bench, folder, form, name, (REFUSED, OTHER))[1]


def _damaged(bench: Bench, number: int, form: str, unnoticed: Counter[str], folder: Path) -> list[Finding]:
    for name in ("data", "good"):
        FORMS[form](folder / name)
    what = damage(folder / "data", bench.random(number))
    code, found = _read(bench, folder, form, what, (EQUAL, REFUSED, OTHER))
    if code == OTHER and form in CHECKED and not what.startswith(SWAPPED):
        found.append(Finding("wrong", f"{what}: other data in spite of a checksum"))
    elif code == OTHER:
        unnoticed[form] += 1
        (bench.folder / "unnoticed.json").write_text(json.dumps(unnoticed))
    return found


def _read(bench: Bench, folder: Path, form: str, what: str, codes: tuple[int, ...]) -> tuple[int, list[Finding]]:
    """Read the data in a process of its own; its exit code, and what is wrong with its end."""
    cache = folder / "cache"
    size = folder / "memory"
    running = bench.start(folder, form, entry="torture.data_files:read", environment={"FEDSASH_CACHE": str(cache)})
    ended = running.wait(30)
    findings = ended.findings(*codes)
    taken = int(size.read_text()) if size.exists() else 0
    if taken > MEMORY or "MemoryError" in ended.err:
        findings.append(Finding("crash", f"took {taken / 1e9:.1f} GB of memory", ended.output))
    if (folder / CANARY).exists():
        findings.append(Finding("wrong", "code in the data was run", ended.output))
    if ended.code == REFUSED and cache.exists() and any(cache.iterdir()):
        findings.append(Finding("leftover", "the cache holds what was refused", ended.output))
    return ended.code, [replace(found, what=f"{what}: {found.what}") for found in findings]


def read(form: str) -> int:
    """Read `data`, in a process of its own, and compare them with those in `good`, if they are there."""
    import resource

    from fedsash.settings.errors import FedsashError

    most = 2**33 + int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        found = _content(form, "data")
    except FedsashError as error:
        print(f"fedsash: {error}", file=sys.stderr)
        return REFUSED if str(error).isprintable() else LINES
    finally:
        taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        Path("memory").write_text(str(taken * 1024))
    return EQUAL if Path("good").exists() and found == _content(form, "good") else OTHER


def _content(form: str, folder: str) -> list[Any]:
    """All that a data set holds, as plain data."""
    from fedsash.data import IID, Images, Shakespeare

    source = (
        Shakespeare(folder).load() if form in TEXTS else Images(folder, test=0.5, decode="once", unpacked=LIMIT).load()
    )
    source.partition(IID(1))
    parts = [vars(part) for part in (source.train, source.test) if part is not None]
    arrays = [(key, value) for part in parts for key, value in part.items() if value is not None]
    numbers = [[key, list(value.shape), value.tolist()] for key, value in arrays]
    return [source.classes, source.label_names, source.domain_names, numbers]
