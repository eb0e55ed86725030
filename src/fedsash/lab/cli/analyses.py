"""`fedsash landscape`, `decompose`, `flatness` and `window`: looking at finished runs."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from .common import INTERRUPTED, OK, Commands

Finished = dict[Path, Mapping[str, Any]]
"""Analyses by the place of their files, which has no ending yet."""


def add(commands: Commands) -> None:
    """Add the commands."""
    landscape = _parser(commands, "landscape", "loss and error along a line, in a plane, around a model", _landscape)
    landscape.add_argument("runs", nargs="+", type=Path, metavar="run", help="a run's folder; each is looked at")
    landscape.add_argument("--models", type=_names, required=True, metavar="A[,B[,C]]", help="the models; see below")
    landscape.add_argument("--surface", action="store_true", help="the surface around each model, of several as well")
    landscape.add_argument("--points", type=int, default=21, help="points in each direction (default: 21)")
    _add_samples(landscape, "test", None)
    landscape.add_argument("--seed", type=int, default=0, help="of a surface's random directions (default: 0)")

    decompose = _parser(commands, "decompose", "bias, variance and covariance of the clients' models", _decompose)
    decompose.add_argument("runs", nargs="+", type=Path, metavar="run", help="runs that share out their data alike")
    decompose.add_argument(
        "--rounds", type=_numbers(int), metavar="N[,N...]", help="saved rounds (default: all of them)"
    )
    decompose.add_argument(
        "--samples", type=_count, metavar="N", help="N of the clients' samples, or all (default: all)"
    )

    flatness = _parser(commands, "flatness", "the Hessian's largest eigenvalues, and sharpness", _flatness)
    flatness.add_argument("runs", nargs=1, type=Path, metavar="run", help="a run's folder")
    flatness.add_argument("--models", type=_names, required=True, metavar="A[,B...]", help="the models; see below")
    flatness.add_argument("--eigenvalues", type=int, default=5, metavar="K", help="how many (default: 5)")
    flatness.add_argument(
        "--rho", type=_numbers(float), default=[0.05], metavar="R[,R...]", help="distances (default: 0.05)"
    )
    _add_samples(flatness, "train", 1000)

    window = _parser(commands, "window", "the weight of every round and client in a window's mean", _window)
    window.add_argument("runs", nargs=1, type=Path, metavar="run", help="a run's folder")
    window.add_argument("--average", required=True, metavar="NAME", help="the window's name in the experiment file")
    window.add_argument("--round", type=int, metavar="N", help="a saved round (default: the newest)")

    for parser in (landscape, decompose, flatness, window):
        parser.add_argument("--name", help="of the files in RUN/analyses/ (default: from what is looked at)")


def _landscape(given: argparse.Namespace) -> int:
    from ..studies.landscapes import KINDS, View, landscape

    view = View(given.points, given.split, given.samples, given.seed)
    groups = [[model] for model in given.models] if given.surface else [given.models]
    finished: Finished = {}
    for folder in given.runs:
        with opened([folder]) as (run,):
            for models in groups:
                kind = KINDS.get(len(models), "landscape")
                name = given.name or _name(kind, *models)
                if given.name and len(groups) > 1:
                    name = _name(given.name, *models)
                with bar(f"{folder.name}: {kind} of {', '.join(models)}") as tick:
                    try:
                        found = landscape(run, models, name, view, typed(given), tick)
                    except KeyboardInterrupt:
                        print("stopped; the same command goes on from here", file=sys.stderr)
                        return INTERRUPTED
                finished[folder / "analyses" / name] = found
    return show(finished)


def _decompose(given: argparse.Namespace) -> int:
    from ..studies.decompositions import decomposition

    name = given.name or "decomposition"
    with opened(given.runs) as runs, bar("decomposition, by round") as tick:
        found = decomposition(runs, name, given.rounds, given.samples, typed(given), tick)
    return show({given.runs[0] / "analyses" / name: found})


def _flatness(given: argparse.Namespace) -> int:
    from ..studies.flatness import flatness

    name = given.name or _name("flatness", *given.models)
    with opened(given.runs) as (run,), bar("products with the Hessian") as tick:
        found = flatness(
            run, given.models, name, given.split, given.samples, given.eigenvalues, given.rho, typed(given), tick
        )
    return show({run.folder / "analyses" / name: found})


def _window(given: argparse.Namespace) -> int:
    from ..studies.windows import window

    name = given.name or _name("window", given.average)
    with opened(given.runs) as (run,):
        found = window(run, given.average, name, given.round, typed(given))
    return show({run.folder / "analyses" / name: found})


@contextmanager
def opened(folders: list[Path]) -> Iterator[list[Any]]:
    from ..studies import open_run

    with ExitStack() as stack:
        yield [stack.enter_context(closing(open_run(folder))) for folder in folders]


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar, on a terminal: what it yields takes how much is done, and of how much."""
    from rich import progress
    from rich.markup import escape

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, transient=True, disable=not sys.stdout.isatty()) as bar:
        task = bar.add_task(escape(what), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def show(finished: Finished) -> int:
    """Draw what was found, on common scales where there is more than one, and say what and where it is."""
    import rich

    from ..report.pictures import draw_all

    pictures = (".png", ".pdf")
    draw_all({place.with_name(place.name + ending): found for place, found in finished.items() for ending in pictures})
    for place, found in finished.items():
        print(found["title"])
        rich.print(_table(found))
        print(f"\npictures: {place}.png, {place.name}.pdf\nnumbers:  {place}.json\n")
    return OK


def _table(found: Mapping[str, Any]) -> Any:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from ..studies.findings import findings

    heads, rows = findings(found)
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False, show_edge=False, header_style="bold")
    for i, head in enumerate(heads):
        table.add_column(head, justify="right" if i else "left", vertical="bottom", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _parser(commands: Commands, name: str, line: str, command: Callable[..., int]) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=line, epilog=EPILOGS[name])
    parser.set_defaults(command=command, verb=name)
    return parser


def _add_samples(parser: argparse.ArgumentParser, split: str, count: int | None) -> None:
    default = "all" if count is None else count
    parser.add_argument("--split", choices=("test", "train"), default=split, help=f"default: {split}")
    parser.add_argument("--samples", type=_count, default=count, metavar="N", help=f"N, or all (default: {default})")


def typed(given: argparse.Namespace) -> str:
    """The command, complete."""
    words = ["fedsash", given.verb, *map(str, given.runs)]
    for key, value in vars(given).items():
        if key in ("command", "verb", "runs") or value is False or (value is None and key != "samples"):
            continue
        text = ",".join(map(str, value)) if isinstance(value, list) else "all" if value is None else str(value)
        words += [f"--{key}"] if value is True else [f"--{key}", text]
    return shlex.join(words)


def _name(kind: str, *models: str) -> str:
    """A name for files: `plane_client_3-5_model`."""
    stems = (Path(model).stem if model.endswith(".safetensors") else model for model in models)
    return "_".join(re.sub(r"[^\w-]", "-", word) for word in (kind, *stems))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """What reads numbers that commas separate."""

    def read(text: str) -> list[Any]:
        try:
            return [kind(number) for number in text.split(",")]
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} must be numbers, separated by commas") from None

    return read


def _count(text: str) -> int | None:
    if text != "all" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} must be a number, or all")
    return None if text == "all" else int(text)


MODELS = """
A model is `model`, an average's name or NAME-best (in RUN/models/), round:N or NAME@N (the model or the average NAME
after the saved round N), client:K@N (where client K arrives in the round after N), or a path to a .safetensors file.
All options together are in the analysis, as the command that made it; it is RUN/analyses/NAME.json, with .png and .pdf.
"""

EPILOGS = {
    "landscape": """\
examples:
  fedsash landscape runs/a --models model,window5                            the line through two models
  fedsash landscape runs/a --models round:10,round:20,round:30 --points 31   the plane through three
  fedsash landscape runs/a runs/b --models model                             surfaces, on common scales
  fedsash landscape runs/a --models model,window5 --surface --samples 1000   a surface around each

Ctrl-C loses nothing: the same command goes on.
"""
    + MODELS,
    "decompose": """\
examples:
  fedsash decompose runs/a                          biases, distances and likeness of clients, at every saved round
  fedsash decompose runs/a --rounds 10,100
  fedsash decompose runs/a runs/b runs/c            variance and covariance, too: over runs on the same partition
""",
    "flatness": """\
examples:
  fedsash flatness runs/a --models model,window5
  fedsash flatness runs/a --models model --eigenvalues 1 --rho 0.05,0.1 --samples all
"""
    + MODELS,
    "window": """\
examples:
  fedsash window runs/a --average window5
  fedsash window runs/a --average window5 --round 100
""",
}
