"""The code keeps to docs/design/architecture.md: who may use whom, how long a file is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from support.places import DOCS, ROOT

PACKAGE = ROOT / "src" / "fedsash"
PAGE = (DOCS / "design" / "architecture.md").read_text()
PICTURE = (DOCS / "design" / "architecture.svg").read_text()


def rows(heading: str) -> list[list[str]]:
    """The rooms of each row of the table with that heading, from the page."""
    table = PAGE.split(f"| {heading} |")[1].split("\n\n")[0]
    return [re.findall(r"`([\w./]+)`", line.split("|")[1]) for line in table.splitlines()[2:]]


WHOLE = rows("room")
LAB = WHOLE.index(["lab/"])
ROWS = [*WHOLE[:LAB], *([f"lab/{room}" for room in rooms] for rooms in rows("room of `lab/`")), *WHOLE[LAB + 1 :]]
LEVEL = {room: level for level, rooms in enumerate(ROWS) for room in rooms}
"""Every room's row on the page, those of the laboratory in its place; a higher number is further down."""

SEVENTEEN = {
    "settings": ["settings/"],
    "system": [
        *("system/__init__.py", "system/checksum.py", "system/subprocesses.py", "system/lazy.py", "system/lock.py"),
        *("system/machine.py", "system/paths.py", "system/posix.py", "system/subprocesses.py", "system/files.py"),
    ],
    "vector": [
        *("vector/exact_sums.py", "vector/pieces.py", "vector/arrays.py", "vector/layout.py", "vector/norms.py"),
        *("vector/private_torch.py", "vector/randomness.py", "vector/saved.py", "vector/sharing.py"),
        *("vector/shown.py", "vector/spaces.py", "vector/storage.py", "vector/vector_files.py", "vector/wrapped.py"),
    ],
    "tasks": ["tasks/"],
    "data": ["data/"],
    "models": ["models/"],
    "methods": ["methods/", "methods/schedules.py"],
    "averages": ["averages/", "averages/trainers/lightning.py", "averages/trainers/transformers.py"],
    "scoring": ["evaluation/"],
    "client": ["client/store.py", "client/messages.py", "local/"],
    "engines": ["executors/"],
    "server": [
        *("aggregation/", "methods/sampling.py", "server/broadcast.py", "server/federation.py", "methods/sampling.py"),
        *("server/round.py", "methods/server_optimisers.py", "server/state.py"),
    ],
    "network": ["network/"],
    "flower": ["flower/"],
    "runs": ["runs/"],
    "lab": ["lab/"],
    "testing": ["testing/"],
}
"""The rooms that the code is moving into, from the top, and what of today belongs in each; the longest name decides."""

BY_MESSAGES = {"client/store.py", "client/messages.py"}
"""By what the server knows clients."""

BY_ROUNDS = {"client/messages.py", "server/federation.py", "server/state.py"}
"""By what runs know who makes the rounds: the protocol of drivers speaks of no others."""

EXCEPTIONS = {
    ("server/evaluator.py", "client/messages.py"),
    ("evaluation/settings.py", "client/messages.py"),
    ("executors/cluster/actor.py", "methods/rules.py"),
    ("executors/cluster/actor.py", "engines/uploads.py"),
    ("executors/cluster/on_ray.py", "engines/uploads.py"),
    ("executors/training.py", "methods/rules.py"),
    ("server/federation.py", "local/settings.py"),
    ("runs/ledger.py", "server/broadcast.py"),
    ("runs/opening.py", "methods/rules.py"),
    ("runs/opening.py", "methods/server_optimisers.py"),
    ("runs/warned.py", "server/broadcast.py"),
    ("runs/warned.py", "local/optimisers.py"),
    ("local/settings.py", "methods/rules.py"),
}
"""Which file imports which against the order of the seventeen rooms; the list only becomes shorter."""

FRONT = [Path("__init__.py"), Path("__main__.py"), Path("lab/__init__.py")]
FILES = sorted(file for path in PACKAGE.rglob("*.py") if (file := path.relative_to(PACKAGE)) not in FRONT)


def room(file: Path) -> str:
    """The room in which a file of the package lies: `"methods/"`, a file's own name, or a room of `lab/`."""
    parts = file.parts
    if parts[0] == "lab":
        return f"lab/{parts[1]}" if len(parts) == 2 else f"lab/{parts[1]}/"
    return file.name if len(parts) == 1 else f"{parts[0]}/"


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements in a node, at any depth."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield child
            yield from statements(child)


@cache
def imports(file: Path) -> list[tuple[int, str]]:
    """Line and full name of all that a file imports, at any depth and for type checking as well."""
    package = ("fedsash", *file.parent.parts)
    found: list[tuple[int, str]] = []
    for node in statements(ast.parse((PACKAGE / file).read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join((*base, *filter(None, [node.module])))
            found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
    return found


def room_of(name: str) -> str:
    """The room that an import names: `fedsash.data.federated.Samples` is of `data/`."""
    parts = name.split(".")[1:]
    first = "/".join(parts[:2]) if parts[0] == "lab" and len(parts) > 1 else parts[0]
    return f"{first}/" if (PACKAGE / first).is_dir() else f"{first}.py"


@cache
def file_of(name: str) -> str:
    """The file that defines what an import names, also if a package's `__init__.py` passes it on."""
    parts = name.split(".")[1:]
    for count in range(len(parts), 0, -1):
        place = Path(*parts[:count])
        if (PACKAGE / place).with_suffix(".py").is_file():
            return place.with_suffix(".py").as_posix()
        front = place / "__init__.py"
        if (PACKAGE / front).is_file():
            passed_on = [other for _, other in imports(front) if other.rpartition(".")[2] in parts[count : count + 1]]
            return file_of(passed_on[0]) if passed_on else front.as_posix()
    raise LookupError(name)


def place_of(file: str) -> int:
    """The place among the seventeen rooms of the one to which a file belongs."""
    fitting = {
        entry: place
        for place, entries in enumerate(SEVENTEEN.values())
        for entry in entries
        if file == entry or (entry.endswith("/") and file.startswith(entry))
    }
    return fitting[max(fitting, key=len)]


def in_order(file: str, used: str) -> bool:
    """Whether a file may import another one once both are in their rooms."""
    rooms = list(SEVENTEEN)
    here, there = rooms[place_of(file)], rooms[place_of(used)]
    if here == there:
        return True
    if here == "server" and there == "client":
        return used in BY_MESSAGES
    if here == "runs" and there in ("client", "engines", "server", "network"):
        return used in BY_ROUNDS
    if there == "lab":
        return here == "testing"
    return place_of(used) < place_of(file)


def test_the_page_has_every_room_in_one_row() -> None:
    rooms = [name for rooms in ROWS for name in rooms]
    assert len(rooms) == len(set(rooms))
    assert set(rooms) == {room(file) for file in FILES}


def test_imports_point_downwards_only() -> None:
    wrong = []
    for file in FILES:
        own = room(file)
        for line, name in imports(file):
            if name.split(".")[0] == "fedsash" and (used := room_of(name)) != own and LEVEL[used] <= LEVEL[own]:
                wrong.append(f"{file}:{line} imports {name}, and {used} is not below {own}")
    assert not wrong, "\n".join(wrong)


def test_every_file_has_a_place_among_the_seventeen_rooms() -> None:
    entries = [entry for of in SEVENTEEN.values() for entry in of]
    assert len(SEVENTEEN) == 17 and len(entries) == len(set(entries))
    assert not [entry for entry in entries if not (PACKAGE / entry).exists()]
    for file in FILES:
        place_of(file.as_posix())


def test_imports_follow_the_order_of_the_seventeen_rooms_but_for_the_exceptions() -> None:
    """An exception that is no longer needed must be taken off the list."""
    against = {
        (file.as_posix(), used)
        for file in FILES
        for _, name in imports(file)
        if name.split(".")[0] == "fedsash" and not in_order(file.as_posix(), used := file_of(name))
    }
    new = sorted(against - EXCEPTIONS)
    gone = sorted(EXCEPTIONS - against)
    assert not new, f"against the order: {new}"
    assert not gone, f"no longer needed: {gone}"


def test_the_check_on_imports_sees_them_all() -> None:
    """At the top, in a function, for type checking; relative to the file's own folder and to those above it."""
    seen = {file.as_posix(): {name for _, name in imports(file)} for file in FILES}
    assert "fedsash.methods.base.Method" in seen["methods/fedprox.py"]
    assert "fedsash.settings.limits.Count" in seen["data/partitions/by_size.py"]
    assert "fedsash.models" in seen["lab/config/model.py"]
    assert "fedsash.runs.table.tables" in seen["lab/cli/run.py"]
    assert "fedsash.runs.Result" in seen["lab/cli/run.py"]
    assert file_of("fedsash.engines.Training") == "executors/training.py"
    assert file_of("fedsash.vector.saved.cut") == "vector/saved.py"
    assert [room_of(name) for name in ("fedsash.models", "fedsash.runs.Result")] == ["models/", "runs/"]


def test_nothing_below_the_federation_knows_of_the_command_line_or_a_progress_bar() -> None:
    """But for the bar of `data/formats/pixels.py`, which the page names."""
    below = [file for file in FILES if LEVEL[room(file)] > LEVEL["network/"]]
    found = {(file.as_posix(), name.split(".")[0]) for file in below for _, name in imports(file)}
    assert {(file, name) for file, name in found if name in ("argparse", "rich", "tomllib")} == {
        ("data/formats/pixels.py", "rich")
    }


def test_only_runs_and_the_checks_of_them_save_and_load_states() -> None:
    users = {
        file.as_posix(): {name for _, name in imports(file) if f"{name}.".startswith("fedsash.runs.checkpoints.")}
        for file in FILES
    }
    assert {file: names for file, names in users.items() if names} == {
        "runs/ledger.py": {"fedsash.runs.checkpoints"},
        "runs/folder.py": {"fedsash.runs.checkpoints"},
        "lab/studies/opened.py": {"fedsash.runs.checkpoints"},
        "testing/federations.py": {"fedsash.runs.checkpoints"},
    }


def test_only_the_terminal_prints_so_that_no_name_from_a_file_can_command_it() -> None:
    """But for a sweep's process, whose output the sweep reads, and the bar of `pixels.py`, which names nothing."""
    texts = {file.as_posix(): (PACKAGE / file).read_text() for file in FILES}
    calls = {
        file
        for file, text in texts.items()
        if "print" in text or "Console" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "rich.print", "Console")
    }
    assert calls == {"runs/terminal.py", "lab/sweeps/job.py", "data/formats/pixels.py"}


def test_what_page_and_picture_name_is_there() -> None:
    """Files, and folders, which end with a slash."""
    path = r"((?:\w+/)*\w+(?:\.py|/))"
    named = {*re.findall(f"`{path}`", PAGE), *re.findall(f">{path}<", PICTURE)} - {"state/"}  # state/ is a run's
    assert named > {room.removeprefix("lab/") for room in LEVEL}
    folders = [PACKAGE, PACKAGE / "lab", ROOT]
    assert not {name for name in named if not any((folder / name).exists() for folder in folders)}
