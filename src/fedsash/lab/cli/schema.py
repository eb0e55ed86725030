"""`fedsash schema`."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...basics.paths import check_folder
from ...runs import terminal
from .common import OK, Commands, place


def add(commands: Commands) -> None:
    """Add the command."""
    line = "write a JSON schema, with which an editor completes and checks experiment files"
    schema = commands.add_parser("schema", help=line, epilog=SCHEMA)
    line = "the file to write (default: standard output)"
    schema.add_argument("file", type=place, nargs="?", metavar="FILE", help=line)
    schema.set_defaults(command=_schema)


def _schema(given: argparse.Namespace) -> int:
    from ...basics.files import replace_file
    from ..sweeps.schema import text

    if given.file is None:
        terminal.say(text().rstrip())
        return OK
    path: Path = given.file
    check_folder(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text().encode())
    terminal.say(f"{path} is written; a file whose first line is #:schema ./{path.name} is checked by it in an editor")
    return OK


SCHEMA = """\
examples:
  fedsash schema fedsash.schema.json      beside your experiment files; fedsash init writes their line #:schema
  fedsash schema > schema.json            the same, on standard output

Editors with Taplo (Even Better TOML for VS Code, helix, neovim, zed) then complete keys, show what they mean, and mark
wrong ones. What only the whole file can tell is checked by fedsash run.
"""
