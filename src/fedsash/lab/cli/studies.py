"""The commands for studies of finished runs: one for each of `STUDIES`. Its options are the study's settings."""

from __future__ import annotations

import argparse
import shlex
import sys
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
from .common import OK, Commands, add_federation, add_json, add_own_code

if TYPE_CHECKING:
    from ..studies.opened import OpenRun
    from ..studies.study import Found, OnProgress, Study

RUNS = {
    "one": "a run's folder",
    "each": "folders of runs; each is studied separately",
    "together": "folders of runs, which are studied together",
}
WRITTEN = """
The results are written to RUN/analyses/NAME.json, with the complete command, and to NAME.png and NAME.pdf.
"""


def add(commands: Commands) -> None:
    """Add a command for each study. It gets its options when it is used."""
    for name, entry in STUDIES.items():
        commands.add_parser(name, help=entry.summary, later=partial(_fill, name))


def _fill(name: str, parser: argparse.ArgumentParser) -> None:
    """Give a study's command its options."""
    study = STUDIES[name].study()
    hints = get_type_hints(study)
    parser.epilog = f"examples:\n{study.examples}{WRITTEN}"
    count: Any = 1 if study.takes == "one" else "+"
    parser.add_argument("runs", nargs=count, type=Path, metavar="run", help=RUNS[study.takes])
    for field in fields(study):
        _option(parser, field, hints[field.name])
    parser.add_argument("--name", help="of the files in RUN/analyses/ (default: from all that is set)")
    add_own_code(parser)
    add_federation(parser)
    add_json(parser)
    parser.set_defaults(command=partial(_carry_out, study), verb=name)


def _option(parser: argparse.ArgumentParser, field: Field[Any], kind: Any) -> None:
    """The option of one setting."""
    option, line = f"--{field.name}", field.metadata["help"]
    if kind is bool:
        parser.add_argument(option, action="store_true", help=line)
        return
    required = field.default is MISSING
    default = "" if required else _text(field.default, field)
    parser.add_argument(
        option,
        type=partial(_read, kind, field.metadata["none"]),
        default=None if required else field.default,
        required=required,
        metavar=field.metadata["metavar"] or ("|".join(get_args(kind)) if get_origin(kind) is Literal else None),
        help=f"{line} (default: {default})" if default else line,
    )


def _read(kind: Any, none: str, text: str) -> Any:
    """The text as a value of that type. `none` is the word for None."""
    from ..config.words import describe

    try:
        return None if none and text == none else _value(kind, text)
    except ValueError:
        right = f"{describe(kind)}, or {none}" if none else describe(kind)
        raise argparse.ArgumentTypeError(f"{shortened(text)!r} must be {right}") from None


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


def _carry_out(kind: type[Study], given: argparse.Namespace) -> int:
    """Make the study and show its findings."""
    finished: dict[Path, Found] = {}
    answers: list[Mapping[str, Any]] = []
    with _naming_options(kind):
        study = kind(**{field.name: getattr(given, field.name) for field in fields(kind)})
        for folders in [given.runs] if kind.takes == "together" else [[folder] for folder in given.runs]:
            with _opened(folders, given) as runs:
                if answer := study.answer(runs):
                    answers.append(answer.data)
                    terminal.say("\n".join(answer.lines))
                else:
                    finished |= _found(study, runs, given)
    given.answer = [*answers, *({"file": f"{place}.json", **found} for place, found in finished.items())]
    _show(finished)
    return OK


def _found(study: Study, runs: Sequence[OpenRun], given: argparse.Namespace) -> dict[Path, Found]:
    """The findings of a study by the path of their files, without its extension."""
    finished, parts, folder = {}, study.parts(), runs[0].folder
    for part in parts:
        name = _name(part, len(runs), given.name, len(parts) > 1)
        place = folder / "analyses" / name
        try:
            with _bar(f"{folder.name}: {name}") as tick:
                finished[place] = part.write(runs, name, _typed(type(study), given), tick)
        except KeyboardInterrupt:
            if place.with_name(f"{name}.npz").exists():
                raise KeyboardInterrupt("the same command continues from here") from None
            raise
    return finished


@contextmanager
def _naming_options(kind: type[Study]) -> Iterator[None]:
    """Make errors in settings name the options of the command."""
    try:
        yield
    except SettingError as error:
        if error.owner in ("", kind.__name__) and error.field in ("name", *(field.name for field in fields(kind))):
            raise SettingError("", f"--{error.field}", error.value, error.right) from error
        raise


@contextmanager
def _opened(folders: Sequence[Path], given: argparse.Namespace) -> Iterator[list[OpenRun]]:
    from ..studies.opened import open_run

    with ExitStack() as stack:
        yield [stack.enter_context(closing(open_run(folder, given.own_code, given.federation))) for folder in folders]


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


def _show(finished: Mapping[Path, Found]) -> None:
    """Draw the findings, on common scales if there are several, and print the tables and the paths."""
    from ...runs.pictures.paper import draw
    from ...runs.table import with_names
    from ..studies import pictures, study_of

    for place, picture in zip(finished, pictures(list(finished.values())), strict=True):
        for ending in ("png", "pdf"):
            draw(picture, place.with_name(f"{place.name}.{ending}"))
    for place, found in finished.items():
        terminal.say(found["title"])
        heads, *rows = study_of(found).rows(found)
        terminal.show(with_names(heads, rows))
        terminal.say(f"\npictures: {place}.png, {place.name}.pdf\nnumbers:  {place}.json\n")


def _typed(kind: type[Study], given: argparse.Namespace) -> str:
    """The command, complete."""
    words = ["fedsash", given.verb, *map(str, given.runs)]
    for field in fields(kind):
        value = getattr(given, field.name)
        text = _text(value, field)
        if value is True:
            words.append(f"--{field.name}")
        elif value is not False and text:
            words += [f"--{field.name}", text]
    words += ["--own-code"] if given.own_code else []
    more = {"--name": given.name, "--federation": given.federation}
    return shlex.join([*words, *(word for option, text in more.items() if text for word in (option, text))])


def _text(value: Any, field: Field[Any]) -> str:
    """A value as the user types it."""
    if value is None:
        return str(field.metadata["none"])
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _name(study: Study, runs: int, wanted: str | None, several: bool) -> str:
    """A name for files, such as `plane_client-3-5_model`, `surface_model_split-train` or `decomposition_3-runs`."""
    from ..studies.study import words

    if wanted and not several:
        return wanted
    together = [f"{runs}-runs"] if runs > 1 else []
    return "_".join([wanted or study.kind, *together, *words(study)])
