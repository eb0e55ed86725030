"""Bad configurations, made from the schema: each is refused in one line, or trains a round."""

from __future__ import annotations

import io
import json
import math
import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from .frame import SLOW, Bench, Case, Finding, Sort
from .schema import NAMES, Key, Place, example, keys

SIZES = {"full": 1500, "short": 50}
BATCH = 25
LIMIT = 600.0
"""The seconds that a batch may take."""
LONGEST = 400
"""The most characters of a refusal, without the paths of the campaign's own folders."""
OF_THE_FILE = ("experiment.toml: is not TOML", "experiment.toml: is nested", "experiment.toml: can't be read")
"""Refusals of the whole file, which need not name a key."""
MISSING_LIBRARY = ': pip install "fedsash['
"""What a refusal says that names a library in place of a key."""
OK = 0
REFUSED = 2
DIVERGED = 3
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


INTEGERS = (-1, 0, 1, 2, 3, 7, 64, 1000, 4096, 10**6, 10**9, 2**31, 2**62, 2**63 - 1, -(2**63))
FLOATS = (-1.0, -0.0, 0.5, 1.0, 3.7, 0.999999, 1e-9, 1e-30, 1e-320, 1e6, 1e9, 1e18, 1e308)
NUMBERS = (*INTEGERS, *FLOATS, 2**63, 2**64)
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
WORDS = ("a", "model", "all", "classifier", "auto", "cpu", "train", "features.1.weight", "ω", *NAMES)


@dataclass(frozen=True)
class Trial:
    """One configuration: what is changed in words, the file, the command, and words of which a refusal has one."""

    what: str
    content: bytes
    command: str
    names: tuple[str, ...]


def cases(bench: Bench, size: int) -> Iterator[Case]:
    """`size` configurations, in batches: a batch is one process, and one case."""
    known = keys()
    for first in range(0, size, BATCH):
        trials = [_trial(known, number, bench.random(number)) for number in range(first, min(first + BATCH, size))]
        bench.figures.cases += len(trials) - 1
        yield Case(f"configurations from {first}", partial(_batch, bench, trials))


def _trial(known: Sequence[Key], number: int, random: Random) -> Trial:
    """Six of eight change one key to an odd or extreme value, one changes two keys, and one damages the text."""
    if number % 8 == 7:
        return Trial("a damaged file", _damaged(random), "run", ("experiment.toml",))
    if number % 8 == 6:
        changed: tuple[Key, ...] = _compatible(known, random)
        values = {key.place: _fitting(key, random) for key in changed}
    else:
        key = known[(number - number // 8 * 2) % len(known)]
        changed = (key,)
        values = {key.place: random.choice((*ODD, *NAMES)) if number % 2 else _fitting(key, random)}
    needs: dict[Place, Any] = {}
    names: set[str] = set()
    for key in changed:
        needs |= key.needs
        names |= set(key.place)
    table = _table(needs, values)
    command = "run"
    if any(key.place[0] in ("network", "scheduler") for key in changed):
        command = "network"
        table = {place: value for place, value in table.items() if place[0] != "sampling"}
        if ("network",) not in table:
            table.setdefault(("network", "learning"), True)
    what = " and ".join(".".join(key.place) for key in changed)
    return Trial(what, _text(table).encode(), command, tuple(sorted(names)))


def _compatible(known: Sequence[Key], random: Random) -> tuple[Key, Key]:
    """Two keys that can stand in one file: neither needs another value of what the other needs."""
    first = random.choice(known)
    compatible = []
    for key in known:
        if key.needs.items() >= first.needs.items() or not key.needs.keys() & first.needs.keys():
            compatible.append(key)
    return first, random.choice(compatible)


def _fitting(key: Key, random: Random) -> Any:
    """A value that fits a key's type as far as one can see; of a number with a limit, often one at an end or beyond."""
    if key.limit is None or random.random() < 0.5:
        return _extreme(key.kind, random)
    end = random.choice([end for end in key.limit.ends if end is not None])
    if key.limit.number is int:
        return int(end) + random.choice((-1, 0, 1))
    return random.choice((math.nextafter(end, -math.inf), float(end), math.nextafter(end, math.inf)))


def _extreme(kind: Any, random: Random) -> Any:
    """A value that fits a type as far as one can see, however senseless."""
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin in (Union, UnionType):
        return _extreme(random.choice([one for one in arguments if one is not NoneType]), random)
    if origin is Literal:
        return random.choice(arguments)
    if origin is tuple and Ellipsis not in arguments:
        return [_extreme(arguments[0], random) for _ in arguments]
    if origin in (tuple, list):
        return [_extreme(arguments[0], random) for _ in range(random.choice((0, 1, 2, 3, 500)))]
    choices = {int: INTEGERS, float: FLOATS, bool: (True, False), str: WORDS}
    if kind not in choices:
        return example(kind)
    return random.choice(choices[kind])


def _damaged(random: Random) -> bytes:
    """A file that is itself damaged: cut, each key twice, bytes that are no text, keys that are no keys."""
    text = _text(BASE)
    return random.choice(
        (
            text[: random.randrange(len(text))].encode(),
            (text + text).encode(),
            text.encode() + bytes(random.randrange(256) for _ in range(20)),
            text.encode("utf-16"),
            b"\xef\xbb\xbf" + text.encode(),
            text.replace("=", random.choice(("==", ":", "", "\x00"))).encode(),
            text.replace(".", random.choice(("..", ".a.b.c.d.", "[")), 3).encode(),
            (".".join(["a"] * 5000) + " = 1").encode(),
            "".join(f"[{'a.' * n}a]\n" for n in range(200)).encode(),
            b"\n" * 100_000 + b"x",
            ("local.lr = " + "1" * 5000).encode(),
            ("local." + "x" * 100_000 + " = 1").encode(),
        )
    )


def _batch(bench: Bench, trials: Sequence[Trial], folder: Path) -> Iterator[Finding]:
    """Carry out a batch in one process, and judge each end. A process that is gone, or hangs, did not end the next."""
    for number, trial in enumerate(trials):
        (folder / f"{number}").mkdir()
        (folder / f"{number}" / "experiment.toml").write_bytes(trial.content)
    ended = bench.command(
        folder, [trial.command for trial in trials], entry="torture.settings:carry_out_all", limit=LIMIT
    )
    results = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    slowest = max((result["seconds"] for result in results if result["code"] == REFUSED), default=0.0)
    bench.figures.slowest_refusal = max(bench.figures.slowest_refusal, slowest)
    for number, (trial, result) in enumerate(zip(trials, results, strict=False)):
        text = f"{result['err']}\n{trial.content[:2000].decode(errors='replace')}"
        for sort, what in _wrong(folder / f"{number}", trial, result):
            yield Finding(sort, f"{trial.what}: {what}", text)
    if len(results) < len(trials):
        trial = trials[len(results)]
        text = f"{ended.output}\n{trial.content[:2000].decode(errors='replace')}"
        yield Finding("hang" if ended.hung else "crash", f"{trial.what}: exit code {ended.code}", text)


def _wrong(place: Path, trial: Trial, result: Mapping[str, Any]) -> Iterator[tuple[Sort, str]]:
    """What is wrong with the end of a command: it must train, or refuse in one line that has one of the names."""
    code = result["code"]
    lines = result["err"].strip().splitlines()
    if code not in (OK, REFUSED, DIVERGED):
        yield "traceback", lines[-1] if lines else f"exit code {code}"
    if code != REFUSED:
        return
    if len(lines) != 1 or len(lines[0]) > LONGEST or not lines[0].isprintable():
        yield "unclear", f"{len(lines)} lines, {len(result['err'])} characters"
    elif not any(name in lines[0] for name in (*trial.names, *OF_THE_FILE, MISSING_LIBRARY)):
        yield "unclear", f"names none of {', '.join(trial.names)}"
    if result["seconds"] > SLOW:
        yield "slow", f"refused after {result['seconds']:.1f} s of work"
    if (place / "out").exists():
        yield "leftover", "a refused command leaves the folder out"


def carry_out_all(commands: Sequence[str]) -> None:
    """Carry out a command in each of the folders 0, 1, ... of this one, and write how it ended, line by line."""
    from fedsash.lab.cli import main

    folder = Path.cwd()
    with (folder / "results.jsonl").open("w") as results:
        for number, command in enumerate(commands):
            os.chdir(folder / f"{number}")
            errors = io.StringIO()
            begin = time.process_time()
            with redirect_stderr(errors), redirect_stdout(io.StringIO()):
                try:
                    code = main([command, "experiment.toml", "--out", "out"])
                except BaseException:  # also what a library raises to end the process
                    code = 1
                    traceback.print_exc()
            result = {"code": code, "err": errors.getvalue()[-3000:], "seconds": time.process_time() - begin}
            print(json.dumps(result), file=results, flush=True)


def _table(needs: Mapping[Place, Any], values: Mapping[Place, Any]) -> dict[Place, Any]:
    """The base with the keys that a case needs and its values. They replace what can't stand beside them."""
    table = dict(BASE)
    for place, value in {**needs, **values}.items():
        for other in list(table):
            inside = other[: len(place)] == place or place[: len(other)] == other
            if inside or (_of_another_thing(other, place, value, table) and other not in needs):
                del table[other]
        table[place] = value
    return table


def _of_another_thing(other: Place, place: Place, value: Any, table: Mapping[Place, Any]) -> bool:
    """Whether a key is one of the thing whose `name`, at `place`, is to be another `value`."""
    if len(place) < 2 or place[-1] != "name":
        return False
    return other[: len(place) - 1] == place[:-1] and table.get(place) != value


def _text(table: Mapping[Place, Any]) -> str:
    """A table as TOML, a line for each key."""
    lines = []
    for place, value in table.items():
        key = ".".join(json.dumps(part) for part in place)
        lines.append(f"{key} = {_written(value)}\n")
    return "".join(lines)


def _written(value: Any) -> str:
    """A value as in TOML."""
    if isinstance(value, Raw):
        return value
    if isinstance(value, Mapping):
        pairs = [f"{json.dumps(key)} = {_written(inner)}" for key, inner in value.items()]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(_written(inner) for inner in value)}]"
    if isinstance(value, str | bool):
        return json.dumps(value).replace("\\/", "/")
    return repr(value)
