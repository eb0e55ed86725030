"""Bad configurations, made from the schema: each is refused in one line, or trains a round."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from .frame import Bench, Case, Ended, Finding
from .schema import NAMES, Key, Place, keys

SIZES = {"full": 1500, "short": 80}
LIMIT = 120.0
LONGEST = 400
"""The most characters of a refusal, without the paths of the campaign's own folders."""
OK, REFUSED, DIVERGED = 0, 2, 3
BASE: dict[Place, Any] = {
    ("rounds",): 1,
    ("partition", "name"): "iid",
    ("partition", "clients"): 4,
    ("model", "name"): "mlp",
    ("model", "hidden"): [4],
    ("local", "batch"): 64,
    ("sampling", "count"): 2,
    ("evaluation", "last"): 1,
    ("engine", "kind"): "sequential",
    ("engine", "workers"): 1,
    ("engine", "threads"): 1,
}
"""A round of training that takes a moment. A key of another class takes the place of these."""


class Raw(str):
    """A value as it is written in the file."""


def nested(depth: int) -> Raw:
    """Lists in lists."""
    return Raw("[" * depth + "]" * depth)


NUMBERS = (-1, 0, 1, 3.7, -0.0, 1e-320, 1e9, 1e18, 1e308, 10**6, 2**31, 2**63 - 1, -(2**63), 2**63, 2**64)
ODD: tuple[Any, ...] = (
    *NUMBERS,
    *map(Raw, ("nan", "inf", "-inf", "1e400", "0x7fffffff", "1979-05-27", "00:00:00", "9" * 5000, "-" + "9" * 5000)),
    *(
        True,
        "",
        "x",
        " ",
        "x" * 100_000,
        "\x00",
        "\x1b]0;x\x07",
        "a\nb\r\n",
        "\u202egnp.exe",
        "日本語 עברית",
        "../../x",
        "/",
    ),
    *("None", "nan", "1", "os:system", "subprocess:run", "builtins:print", "auto", "all", "model", "a"),
    *([], [[]], [0], [1, "x"], [[1], [2, 3]], ["x" * 300], [-1, -1], [0] * 10_000, {}, {"name": "x"}, {"name": {}}),
    *({"name": []}, {"": 1}, {"name": "x", "x": 1}, {"a": {"name": "window", "size": 2}}, nested(15), nested(900)),
    nested(20_000),
)
TINY = (1, 2, 3, 5, 0.5, 0.999999, 1.0, 1e-9, 1e-30, 7, 64, 1000, 4096, 65_536)
"""Values that look valid."""


def cases(bench: Bench, size: int) -> Iterator[Case]:
    """Three quarters change one or two keys to odd or extreme values; the others damage the text, or the command."""
    known = keys()
    for number in range(size):
        random = bench.random(number)
        kind = number % 8
        if kind == 7:
            yield Case("a damaged file", partial(_damaged, bench, random))
        elif kind == 6:
            yield Case("a pair of extreme values", partial(_pair, bench, known, random))
        else:
            key = known[(number - number // 8 * 2) % len(known)]
            yield Case(f"{'.'.join(key.place)}", partial(_odd, bench, key, random))


def _odd(bench: Bench, key: Key, random: Random, place: Path) -> Iterator[Finding]:
    yield from _tried(bench, place, _table(key.needs, {key.place: random.choice((*ODD, *NAMES))}), (key,))


def _pair(bench: Bench, known: Sequence[Key], random: Random, place: Path) -> Iterator[Finding]:
    first, second = random.choices(known, k=2)
    values = {first.place: random.choice(TINY), second.place: random.choice((*TINY, *NUMBERS))}
    yield from _tried(bench, place, _table({**first.needs, **second.needs}, values), (first, second))


def _tried(bench: Bench, place: Path, table: Mapping[Place, Any], by: Sequence[Key]) -> Iterator[Finding]:
    simulated = any(key.place[0] in ("network", "scheduler") for key in by)
    if simulated:
        table = {key: value for key, value in table.items() if key[0] != "sampling"}
        if ("network",) not in table:
            table.setdefault(("network", "learning"), True)
    file = place / "experiment.toml"
    file.write_text(_text(table))
    ended = bench.command(place, "network" if simulated else "run", file.name, "--out", "out", limit=LIMIT)
    yield from judged(ended, place, {part for key in by for part in key.place})


def judged(ended: Ended, place: Path, names: set[str]) -> Iterator[Finding]:
    """What is wrong with the end of a command: it must train, or refuse in one line that has one of the `names`."""
    file = place / "experiment.toml"
    text = file.read_text(errors="replace")[:2000] if file.exists() else ""
    for finding in ended.findings(OK, REFUSED, DIVERGED):
        yield Finding(finding.sort, finding.what, f"{finding.output}\n{text}")
    if ended.code != REFUSED or ended.hung:
        return
    lines = ended.err.strip().splitlines()
    if len(lines) != 1 or len(lines[0]) > LONGEST or not lines[0].isprintable():
        yield Finding("unclear", f"{len(lines)} lines, {len(ended.err)} characters", f"{ended.output}\n{text}")
    elif names and not any(name in lines[0] for name in names):
        yield Finding("unclear", f"names none of {', '.join(sorted(names))}", f"{ended.output}\n{text}")
    if (place / "out").exists():
        left = ", ".join(sorted(str(path.relative_to(place)) for path in (place / "out").rglob("*"))) or "out"
        yield Finding("leftover", f"a refused command leaves {left}", f"{ended.output}\n{text}")


def _damaged(bench: Bench, random: Random, place: Path) -> Iterator[Finding]:
    """The file itself is damaged: cut, twice the same key, bytes that are no text, a pipe, an empty table."""
    text = _text(BASE)
    damages = (
        text[: random.randrange(len(text))].encode(),
        (text + text).encode(),
        text.encode() + bytes(random.randrange(256) for _ in range(20)),
        text.encode("utf-16"),
        b"\xef\xbb\xbf" + text.encode(),
        text.replace("=", random.choice(("==", ":", "", "\x00"))).encode(),
        text.replace(".", random.choice(("..", ".a.b.c.d.", "[")), 3).encode(),
        (".".join(["a"] * 5000) + " = 1").encode(),
        ("".join(f"[{'a.' * n}a]\n" for n in range(200))).encode(),
        b"\n" * 100_000,
        ("local.lr = " + "1" * 5000).encode(),
        ("local." + "x" * 100_000 + " = 1").encode(),
    )
    (place / "experiment.toml").write_bytes(random.choice(damages))
    ended = bench.command(place, "run", "experiment.toml", "--out", "out", limit=LIMIT)
    yield from judged(ended, place, {"experiment.toml"})
    shutil.rmtree(place / "out", ignore_errors=True)


def _table(needs: Mapping[Place, Any], values: Mapping[Place, Any]) -> dict[Place, Any]:
    """The base with the keys that a case needs and its values. They replace what can't stand beside them."""
    table = dict(BASE)
    for place, value in {**needs, **values}.items():
        chosen = place[:-1] if place[-1] == "name" else ()
        for other in list(table):
            below = other[: len(place)] == place or place[: len(other)] == other
            if below or (
                chosen and other[: len(chosen)] == chosen and table.get(place) != value and other not in needs
            ):
                del table[other]
        table[place] = value
    return table


def _text(table: Mapping[Place, Any]) -> str:
    return "".join(f"{'.'.join(map(json.dumps, place))} = {_written(value)}\n" for place, value in table.items())


def _written(value: Any) -> str:
    """A value as in TOML."""
    if isinstance(value, Raw):
        return value
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_written(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    return json.dumps(value).replace("\\/", "/") if isinstance(value, str | bool) else repr(value)
