"""`fedsash init`."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from ...basics.errors import RunError
from ...basics.paths import check_folder
from .. import terminal
from .common import OK, Commands


def add(commands: Commands) -> None:
    """Add the command."""
    init = commands.add_parser("init", help="write an experiment file for your data, with every setting", epilog=INIT)
    line = "the new file (default: experiment.toml); a file that is there is never changed"
    init.add_argument("file", type=Path, nargs="?", default=Path("experiment.toml"), help=line)
    line = "digits (default), images, table, texts, npy, cifar10, ...: see fedsash list data"
    init.add_argument("--data", default="digits", metavar="NAME", help=line)
    init.add_argument("--path", default="", help="the file or the folder that holds the data")
    init.set_defaults(command=_init)


def _init(given: argparse.Namespace) -> int:
    from ..config.template import template

    check_folder(given.file.parent)
    text = template(given.data, given.path, str(given.file))
    given.file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with given.file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise RunError(f"{given.file} is there already: name another file, such as fedsash init mine.toml") from None
    terminal.say(f"{given.file} is written; look at it, then train it: fedsash run {shlex.quote(str(given.file))}")
    return OK


INIT = """\
examples:
  fedsash init                                                   a small experiment on handwritten digits
  fedsash init --data images --path photos                       a folder of images for each class
  fedsash init houses.toml --data table --path houses.csv        a table: CSV, JSON lines, Parquet
  fedsash init --data texts --path book.txt                      texts, whose next tokens are learned
  fedsash init --data npy --path arrays                          NumPy's files x.npy and y.npy, and perhaps more
  fedsash init --data cifar10 --path data/cifar10                a data set of the papers

The file is complete: what your data need is set, and every other key stands there as a comment, with its default.
"""
