"""The code keeps to docs/design/architecture.md: who may use whom."""

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


WHOLE = [room for row in rows("room") for room in row]
LAB = WHOLE.index("lab/")
IN_LAB = [f"lab/{room}" for row in rows("room of `lab/`") for room in row]
ROOMS = [*WHOLE[:LAB], *IN_LAB, *WHOLE[LAB + 1 :]]
LEVEL = {room: level for level, room in enumerate(ROOMS)}
"""Every room's row on the page, those of the laboratory in its place; a higher number is further down."""

GATHERED = {f"{name}.py" for name in ("errors", "extend", "optimisers", "partitions", "sampling", "schedules")}
"""Files that only gather names for users; the code itself imports none of them."""

BY_MESSAGES = {"client/messages.py", "client/store.py", "client/settings.py"}
"""By what the server knows clients."""

BY_ROUNDS = {"server/broadcast.py", "server/federation.py", "server/state.py"}
"""By what runs know who makes the rounds."""

FRONT = [Path(name) for name in ("__init__.py", "__main__.py", "lab/__init__.py", *GATHERED)]
FILES = sorted(file for path in PACKAGE.rglob("*.py") if (file := path.relative_to(PACKAGE)) not in FRONT)


def room(file: Path) -> str:
    """The room in which a file of the package lies: `"methods/"`, or a room of `lab/`."""
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
    """The file that defines what an import names, also if a package's `__init__.py` or its stub passes it on."""
    parts = name.split(".")[1:]
    for count in range(len(parts), 0, -1):
        place = Path(*parts[:count])
        if (PACKAGE / place).with_suffix(".py").is_file():
            return place.with_suffix(".py").as_posix()
        front = place / "__init__.py"
        if (PACKAGE / front).is_file():
            names = (
                imports(front.with_suffix(".pyi"))
                if (PACKAGE / front).with_suffix(".pyi").is_file()
                else imports(front)
            )
            passed_on = [other for _, other in names if other.rpartition(".")[2] in parts[count : count + 1]]
            return file_of(passed_on[0]) if passed_on else front.as_posix()
    raise LookupError(name)


def test_the_page_has_every_room_in_one_row() -> None:
    assert len(ROOMS) == len(set(ROOMS))
    assert set(ROOMS) == {room(file) for file in FILES}
    assert len(WHOLE) <= 17 and len(IN_LAB) <= 10


def test_imports_point_downwards_only() -> None:
    wrong = []
    for file in FILES:
        own = room(file)
        for line, name in imports(file):
            if name.split(".")[0] == "fedsash" and (used := room_of(name)) != own and LEVEL[used] <= LEVEL[own]:
                wrong.append(f"{file}:{line} imports {name}, and {used} is not below {own}")
    assert not wrong, "\n".join(wrong)


def imported_from(importers: str, room: str) -> set[str]:
    """The files of a room that the files of another room import."""
    used: set[str] = set()
    for file in FILES:
        if file.as_posix().startswith(importers):
            names = [name for _, name in imports(file)]
            used |= {file_of(name) for name in names if name.startswith(f"fedsash.{room}")}
    return used


def test_the_server_knows_clients_by_messages_and_settings_alone() -> None:
    assert imported_from("server/", "client") == BY_MESSAGES


def test_runs_know_who_makes_the_rounds_by_a_few_files() -> None:
    assert imported_from("runs/", "server") == BY_ROUNDS
    assert not imported_from("runs/", "network")
    assert not imported_from("runs/", "engines")


def test_the_check_on_imports_sees_them_all() -> None:
    """At the top, in a function, for type checking; relative to the file's own folder and to those above it."""
    seen = {file.as_posix(): {name for _, name in imports(file)} for file in FILES}
    assert "fedsash.methods.base.Method" in seen["methods/fedprox.py"]
    assert "fedsash.settings.limits.Count" in seen["data/partitions/by_size.py"]
    assert "fedsash.models" in seen["lab/config/model.py"]
    assert "fedsash.runs.table.tables" in seen["lab/cli/run.py"]
    assert "fedsash.runs.Result" in seen["lab/cli/run.py"]
    assert file_of("fedsash.engines.Training") == "engines/training.py"
    assert file_of("fedsash.vector.saved.cut") == "vector/saved.py"
    assert [room_of(name) for name in ("fedsash.models", "fedsash.runs.Result")] == ["models/", "runs/"]


def test_nothing_below_the_federation_knows_of_the_command_line_or_a_progress_bar() -> None:
    """But for the bar of `data/sources/formats/pixels.py`, while images are decoded for the first time, and for the
    class of the arguments that other people's trainings leave in their checkpoints.
    """
    below = [file for file in FILES if LEVEL[room(file)] > LEVEL["network/"]]
    found = {(file.as_posix(), name.split(".")[0]) for file in below for _, name in imports(file)}
    assert {(file, name) for file, name in found if name in ("argparse", "rich", "tomllib")} == {
        ("averages/checkpoints/formats.py", "argparse"),
        ("data/sources/formats/pixels.py", "rich"),
    }


def test_only_runs_and_the_checks_of_them_save_and_load_states() -> None:
    users = {
        file.as_posix(): {name for _, name in imports(file) if f"{name}.".startswith("fedsash.runs.checkpoints.")}
        for file in FILES
    }
    assert {file: names for file, names in users.items() if names} == {
        "runs/recorder.py": {"fedsash.runs.checkpoints"},
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
    assert calls == {
        "runs/terminal.py",
        "lab/sweeps/job.py",
        "data/sources/formats/pixels.py",
    }


def test_what_page_and_picture_name_is_there() -> None:
    """Files, and folders, which end with a slash."""
    path = r"((?:\w+/)*\w+(?:\.py|/))"
    named = {*re.findall(f"`{path}`", PAGE), *re.findall(f">{path}<", PICTURE)} - {"state/"}  # state/ is a run's
    assert named > {room.removeprefix("lab/") for room in LEVEL}
    folders = [PACKAGE, PACKAGE / "lab", ROOT]
    assert not {name for name in named if not any((folder / name).exists() for folder in folders)}
