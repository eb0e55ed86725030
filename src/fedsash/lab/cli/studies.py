"""The commands for studies of finished runs: one for each of `STUDIES`. Its options are the study's settings."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import zlib
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import MISSING, Field, fields
from functools import partial
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from ...runs import terminal
from ...settings.errors import SettingError, shortened
from ..studies import STUDIES
from .arguments import Parser, add_options
from .common import OK

if TYPE_CHECKING:
    from ..studies.opened import OpenRun
    from ..studies.study import Findings, OnProgress, Study

RUNS = {
    "one": "a run's folder",
    "each": "folders of runs; each is studied separately",
    "together": "folders of runs, which are studied together",
}
WRITTEN = """
The results are written to RUN/analyses/NAME.json, with the complete command, and to NAME.png and NAME.pdf.
"""


def add(parser: Parser) -> None:
    """Add the arguments of a study's command: the study's settings."""
    study = STUDIES[parser.get_default("verb")].study()
    parser.epilog = f"examples:\n{study.examples}{WRITTEN}"
    parser.set_defaults(command=partial(_carry_out, study))
    number: Any = 1 if study.takes == "one" else "+"
    parser.add_argument("runs", nargs=number, type=Path, metavar="run", help=RUNS[study.takes])
    types = get_type_hints(study)
    for field in fields(study):
        _add_option(parser, field, types[field.name])
    parser.add_argument("--name", help="of the files in RUN/analyses/ (default: from all that is set)")
    add_options(parser, "--own-code", "--federation", "--json")


def _add_option(parser: Parser, field: Field[Any], kind: Any) -> None:
    """Add the option of one setting, which has this type."""
    option = f"--{field.name}"
    line = field.metadata["help"]
    if kind is bool:
        parser.add_argument(option, action="store_true", help=line)
        return
    metavar = field.metadata["metavar"] or None
    if metavar is None and get_origin(kind) is Literal:
        metavar = "|".join(get_args(kind))
    read = partial(_read, kind, field.metadata["none"])
    if field.default is MISSING:
        parser.add_argument(option, type=read, required=True, metavar=metavar, help=line)
        return
    default = _text(field.default, field)
    if default:
        line += f" (default: {default})"
    parser.add_argument(option, type=read, default=field.default, metavar=metavar, help=line)


def _read(kind: Any, none: str, text: str) -> Any:
    """The text as a value of that type. `none` is the word for None."""
    from ..config.words import describe

    if none and text == none:
        return None
    try:
        return _value(kind, text)
    except ValueError:
        expected = f"{describe(kind)}, or {none}" if none else describe(kind)
        raise argparse.ArgumentTypeError(f"{shortened(text)!r} must be {expected}") from None


def _value(kind: Any, text: str) -> Any:
    """The text as a value of that type. Of a union, the first type that accepts the text is used."""
    arguments = get_args(kind)
    if get_origin(kind) is Literal:
        return arguments[arguments.index(text)]
    if get_origin(kind) is tuple:
        return tuple(_value(arguments[0], word.strip()) for word in text.split(","))
    for member in arguments:
        try:
            return _value(member, text)
        except ValueError:
            pass
    if arguments or kind is NoneType:
        raise ValueError(text)
    return kind(text)


def _carry_out(kind: type[Study], args: Namespace) -> int:
    """Make the study and show its findings."""
    groups = [[folder] for folder in args.runs]
    if kind.takes == "together":
        groups = [args.runs]
    written: dict[Path, Findings] = {}
    answers: list[Mapping[str, Any]] = []
    with _naming_options(kind):
        study = kind(**{field.name: getattr(args, field.name) for field in fields(kind)})
        for folders in groups:
            with _open_runs(folders, args) as runs:
                answer = study.answer(runs)
                if answer is None:
                    written |= _write(study, runs, args)
                else:
                    answers.append(answer.data)
                    terminal.say("\n".join(answer.lines))
    for path, findings in written.items():
        answers.append({"file": f"{path}.json", **findings})
    args.answer = answers
    _show(written)
    return OK


@contextmanager
def _naming_options(kind: type[Study]) -> Iterator[None]:
    """Make errors in settings name the options of the command."""
    options = {"name", *(field.name for field in fields(kind))}
    try:
        yield
    except SettingError as error:
        if error.owner in ("", kind.__name__) and error.field in options:
            raise SettingError("", f"--{error.field}", error.value, error.right) from error
        raise


@contextmanager
def _open_runs(folders: Sequence[Path], args: Namespace) -> Iterator[list[OpenRun]]:
    """The runs in the folders, opened for as long as the `with` block runs."""
    from ..studies.opened import open_run

    with ExitStack() as stack:
        runs = []
        for folder in folders:
            run = open_run(folder, args.own_code, args.federation)
            runs.append(stack.enter_context(closing(run)))
        yield runs


def _write(study: Study, runs: Sequence[OpenRun], args: Namespace) -> dict[Path, Findings]:
    """Write the findings of each part of a study; returns them by the path of their files, without its extension."""
    folder = runs[0].folder
    command = _full_command(study, args)
    parts = study.parts()
    written = {}
    for part in parts:
        name = args.name if args.name and len(parts) == 1 else _name(part, runs, args.name)
        path = folder / "analyses" / name
        try:
            with _bar(f"{folder.name}: {name}") as progress:
                written[path] = part.write(runs, name, command, progress)
        except KeyboardInterrupt:
            if path.with_name(f"{name}.npz").exists():
                raise KeyboardInterrupt("the same command continues from here") from None
            raise
    return written


def _name(study: Study, runs: Sequence[OpenRun], start: str | None) -> str:
    """A name for files, such as `plane_client-3-5_model` or `surface_model_split-train`.

    Several runs have a checksum of their folders: `decomposition_3-runs-1f0c29ab`.
    """
    words = [start or study.kind]
    if len(runs) > 1:
        folders = [str(run.folder.resolve()) for run in runs]
        words.append(_with_checksum(f"{len(runs)}-runs", folders))
    return "_".join(words + name_words(study))


def name_words(study: Study) -> list[str]:
    """What of a study is set otherwise than usual, as words of its files' name.

    Models, rounds and averages are named alone, and all other settings as NAME-VALUE.
    """
    words = list[str]()
    for setting in fields(study):
        value = getattr(study, setting.name)
        if value != setting.default:
            words += _words(setting, value)
    return [re.sub(r"[^\w-]", "-", word) for word in words]


def _words(setting: Field[Any], value: Any) -> list[str]:
    """A setting and its value as words."""
    if setting.name == "models":
        return _model_words(value)
    if setting.name == "rounds":
        return _round_words(value)
    if setting.name in ("average", "round"):
        return [str(value)]
    if value is True:
        return [setting.name]
    if value is None:
        value = setting.metadata["none"]
    values = value if isinstance(value, tuple) else (value,)
    return ["-".join([setting.name, *map(str, values)])]


def _model_words(models: Sequence[str]) -> list[str]:
    """The names of models; two files may have the same name, so a file's has a checksum of its path."""
    from ..studies.study import names_of

    words = []
    for name, model in zip(names_of(models), models, strict=True):
        if model.endswith(".safetensors"):
            name = _with_checksum(name, model)
        words.append(name)
    return words


def _round_words(rounds: Sequence[int]) -> list[str]:
    """The rounds; of many, the first, the last, and their number with a checksum of them all."""
    if len(rounds) <= 5:
        return [str(round) for round in rounds]
    return [f"{rounds[0]}-{rounds[-1]}", _with_checksum(f"{len(rounds)}-rounds", rounds)]


def _with_checksum(name: str, value: object) -> str:
    """An abbreviation, told apart from others by a checksum of the value that it stands for."""
    return f"{name}-{zlib.crc32(repr(value).encode()):08x}"


def _full_command(study: Study, args: Namespace) -> str:
    """The command with the values of all its options."""
    words = ["fedsash", args.verb, *map(str, args.runs)]
    for field in fields(study):
        value = getattr(args, field.name)
        if value is True:
            words.append(f"--{field.name}")
        elif value is not False and _text(value, field):
            words += [f"--{field.name}", _text(value, field)]
    if args.own_code:
        words.append("--own-code")
    if args.name:
        words += ["--name", args.name]
    if args.federation:
        words += ["--federation", args.federation]
    return shlex.join(words)


def _text(value: Any, field: Field[Any]) -> str:
    """A value as the user types it."""
    if value is None:
        return str(field.metadata["none"])
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)


@contextmanager
def _bar(what: str) -> Iterator[OnProgress]:
    """A progress bar, if there is a terminal. It yields a function `progress(done, total)`."""
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, transient=True, disable=not terminal.is_terminal(sys.stdout)) as bar:
        task = bar.add_task(terminal.visible(what), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _show(written: Mapping[Path, Findings]) -> None:
    """Draw the findings, on common scales if there are several, and print the tables and the paths."""
    from ...runs.pictures.paper import draw
    from ...runs.table import with_names
    from ..studies import pictures, study_of

    for path, picture in zip(written, pictures(list(written.values())), strict=True):
        for ending in ("png", "pdf"):
            draw(picture, path.with_name(f"{path.name}.{ending}"))
    for path, findings in written.items():
        terminal.say(findings["title"])
        heads, *rows = study_of(findings).table(findings)
        terminal.show(with_names(heads, rows))
        terminal.say(f"\npictures: {path}.png, {path.name}.pdf\nnumbers:  {path}.json\n")
