"""`fedsash init`, `fedsash partition` and `fedsash schema`: experiment files, and the data that they divide."""

from __future__ import annotations

import shlex
from argparse import Namespace
from pathlib import Path
from typing import Any

from ...runs import terminal
from ...settings.errors import RunError, printable
from ...system.paths import check_folder
from .arguments import Parser, add_options, nonempty_path
from .common import OK, check_picture, load_experiment


def add_init(parser: Parser) -> None:
    """Add the arguments of `fedsash init`."""
    parser.epilog = INIT
    parser.set_defaults(command=_init)
    line = "the new file (default: experiment.toml); a file that is there is never changed"
    parser.add_argument("file", type=Path, nargs="?", default=Path("experiment.toml"), help=line)
    line = "digits (default), images, table, texts, npy, cifar10, ...: see fedsash list data"
    parser.add_argument("--data", default="digits", metavar="NAME", help=line)
    parser.add_argument("--path", default="", help="the file or the folder that holds the data")
    line = "the column to learn (default of a table: label); more than once, if rows have several labels"
    parser.add_argument("--label", action="append", metavar="COLUMN", help=line)
    line = "the column that says whose sample it is; each user is a client that trains in every round"
    parser.add_argument("--user", default="", metavar="COLUMN", help=line)


def _init(args: Namespace) -> int:
    from ...system.files import replace_file
    from ..config.template import SAID, template

    file = args.file
    if file.exists() or file.is_symlink():
        raise RunError(f"{file} is there already: name another file, such as fedsash init mine.toml")
    check_folder(file.parent)
    quoted = printable(shlex.quote(str(file)))
    text = template(args.data, args.path, quoted, args.label or "", args.user)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, text.encode())
    for line in text.splitlines():
        if line.startswith(SAID):
            terminal.complain(line.removeprefix("# "))
    terminal.say(f"{file} is written; look at it, then train it: fedsash run {quoted}")
    return OK


def add_partition(parser: Parser) -> None:
    """Add the arguments of `fedsash partition`."""
    parser.epilog = PARTITION
    parser.set_defaults(command=_partition)
    parser.add_argument("experiment", type=Path, nargs="?", help="experiment file (TOML), or a run's folder")
    add_options(parser, "--set", "--own-code", "--federation")
    line = "also draw a picture into this file (.png, .svg, .pdf)"
    parser.add_argument("--out", dest="picture", type=nonempty_path, help=line)
    add_options(parser, "--json")


def _partition(args: Namespace) -> int:
    from ...runs import plot_clients
    from ...runs.partition import record, table
    from ..config import load_run
    from ..config.errors import prefixed

    if args.picture is not None:
        check_picture(args.picture, "--out")
    of_run = args.experiment is not None and args.experiment.is_dir()
    if of_run:
        experiment = load_run(args.experiment, args.set, args.own_code, args.federation)
    else:
        experiment = load_experiment(args)
    with prefixed(args.experiment or args.federation):
        data = experiment.federated_data()
    args.answer = record(data)
    if of_run and not args.set:
        _check_recorded(args.experiment, args.answer)
    terminal.say(table(data))
    if args.picture is not None:
        plot_clients(data).save(args.picture)
        terminal.say(f"\npicture: {args.picture}")
    return OK


def _check_recorded(folder: Path, partition: dict[str, Any]) -> None:
    """Raise `RunError` if the run in a folder had another partition, since its data were other ones.

    What only one of the two has says nothing: another fedsash may have recorded it.
    """
    from ...runs.summaries import run_table

    recorded = run_table(folder / "partition.json") or {}
    if any(recorded[name] != value for name, value in partition.items() if name in recorded):
        raise RunError(f"{folder} was trained on other data than those that are there now: see its partition.json")


def add_schema(parser: Parser) -> None:
    """Add the arguments of `fedsash schema`."""
    parser.epilog = SCHEMA
    parser.set_defaults(command=_schema)
    line = "the file to write (default: standard output)"
    parser.add_argument("file", type=nonempty_path, nargs="?", metavar="FILE", help=line)


def _schema(args: Namespace) -> int:
    from ...system.files import replace_file
    from ..sweeps.schema import text

    file = args.file
    if file is None:
        terminal.say(text().rstrip())
        return OK
    check_folder(file.parent)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, text().encode())
    terminal.say(f"{file} is written; a file whose first line is #:schema ./{file.name} is checked by it in an editor")
    return OK


INIT = """\
examples:
  fedsash init                                                   a small experiment on handwritten digits
  fedsash init --data images --path photos                       a folder of images for each class
  fedsash init --data table --path houses.csv --label price      a table: CSV, JSON lines, Parquet
  fedsash init --data table --path patients.csv --label disease --user hospital
  fedsash init --data table --path scans.csv --label left --label right      several labels of each row
  fedsash init --data texts --path book.txt                      texts, whose next tokens are learned
  fedsash init --data npy --path arrays                          NumPy's files x.npy and y.npy, and perhaps more
  fedsash init --data cifar10 --path data/cifar10                a data set of the papers

The file is complete: what your data need is set, and every other key stands there as a comment, with its default.
"""

PARTITION = """\
examples:
  fedsash partition experiment.toml
  fedsash partition experiment.toml --out clients.png
  fedsash partition experiment.toml --set partition.alpha=0.01
  fedsash partition runs/a
"""

SCHEMA = """\
examples:
  fedsash schema fedsash.schema.json      beside your experiment files; fedsash init writes their line #:schema
  fedsash schema > schema.json            the same, on standard output

Editors with Taplo (Even Better TOML for VS Code, helix, neovim, zed) then complete keys, show what they mean, and mark
wrong ones. What only the whole file can tell is checked by fedsash run.
"""
