"""`fedsash init`."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from ...basics.paths import check_folder
from ...runs import terminal
from ...settings.errors import RunError, printable
from .common import OK, Commands


def add(commands: Commands) -> None:
    """Add the command."""
    init = commands.add_parser("init", help="write an experiment file for your data, with every setting", epilog=INIT)
    line = "the new file (default: experiment.toml); a file that is there is never changed"
    init.add_argument("file", type=Path, nargs="?", default=Path("experiment.toml"), help=line)
    line = "digits (default), images, table, texts, npy, cifar10, ...: see fedsash list data"
    init.add_argument("--data", default="digits", metavar="NAME", help=line)
    init.add_argument("--path", default="", help="the file or the folder that holds the data")
    init.add_argument("--label", default="", metavar="COLUMN", help="the column to learn (default of a table: label)")
    line = "the column that says whose sample it is; each user is a client that trains in every round"
    init.add_argument("--user", default="", metavar="COLUMN", help=line)
    init.set_defaults(command=_init)


def _init(given: argparse.Namespace) -> int:
    from ...basics.files import replace_file
    from ..config.template import SAID, template

    if given.file.exists() or given.file.is_symlink():
        raise RunError(f"{given.file} is there already: name another file, such as fedsash init mine.toml")
    check_folder(given.file.parent)
    quoted = printable(shlex.quote(str(given.file)))
    text = template(given.data, given.path, quoted, given.label, given.user)
    given.file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(given.file, text.encode())
    for line in text.splitlines():
        if line.startswith(SAID):
            terminal.complain(line.removeprefix("# "))
    terminal.say(f"{given.file} is written; look at it, then train it: fedsash run {quoted}")
    return OK


INIT = """\
examples:
  fedsash init                                                   a small experiment on handwritten digits
  fedsash init --data images --path photos                       a folder of images for each class
  fedsash init --data table --path houses.csv --label price      a table: CSV, JSON lines, Parquet
  fedsash init --data table --path patients.csv --label disease --user hospital
  fedsash init --data texts --path book.txt                      texts, whose next tokens are learned
  fedsash init --data npy --path arrays                          NumPy's files x.npy and y.npy, and perhaps more
  fedsash init --data cifar10 --path data/cifar10                a data set of the papers

The file is complete: what your data need is set, and every other key stands there as a comment, with its default.
"""
