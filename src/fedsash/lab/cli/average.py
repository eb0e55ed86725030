"""`fedsash average`: windows and EMAs of a run, any of them, after the fact."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...basics.errors import RunError
from .analyses import bar, opened, show, typed
from .common import OK, Commands

if TYPE_CHECKING:
    from ..studies.averages import Afterwards


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser("average", help="any window or EMA of a run, after the fact", epilog=EPILOG)
    parser.set_defaults(command=_average, verb="average")
    parser.add_argument("runs", nargs=1, type=Path, metavar="run", help="a run's folder, with running sums")
    one = parser.add_mutually_exclusive_group()
    line = "the mean of the last W models, exactly; auto: the W that is best on held-out data"
    one.add_argument("--window", type=_size, metavar="W", help=line)
    one.add_argument("--ema", type=float, metavar="DECAY", help="the exponential moving average, nearly")
    one.add_argument("--power", type=float, metavar="SIGMA", help="the power-function EMA of this sigma_rel, nearly")
    parser.add_argument("--at", type=int, metavar="N", help="a round whose sum was kept (default: the last one)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the average there, as safetensors")
    line = "of the files in RUN/analyses/, for all averages (default: averages)"
    parser.add_argument("--name", help=line)


def _average(given: argparse.Namespace) -> int:
    if (given.window, given.ema, given.power) != (None, None, None):
        return _one(given)
    if given.out is not None:
        raise RunError(f"--out = {given.out}: needs --window, --ema or --power, which say what to write")
    from ..studies.averages import averages

    name = given.name or "averages"
    with opened(given.runs) as (run,), bar("averages") as tick:
        found = averages(run, name, given.at, typed(given), tick)
    return show({run.folder / "analyses" / name: found})


def _one(given: argparse.Namespace) -> int:
    from ..studies.averages import Afterwards, save

    with opened(given.runs) as (run,):
        trail = Afterwards(run, given.at)
        what, judged = _judged(trail, given)
        print(f"{run.folder.name}: {what}")
        print(f"accuracy  {100 * judged.test.accuracy:.2f} %\nloss      {judged.test.loss:.4g}")
        if given.window is None:
            print(f"error     {100 * judged.error:.3g} % of the weight lies on other models of the same block")
        if given.out is not None:
            save(run, judged.w, given.out)
            print(f"model:    {given.out}")
    return OK


def _judged(trail: Afterwards, given: argparse.Namespace) -> tuple[str, Any]:
    """What was asked for, in words, and what it comes to."""
    from ...averages import profiles
    from ..studies.averages import best_window

    if given.window is not None:
        size = best_window(trail) if given.window == "auto" else given.window
        since, chosen = trail.begins(size), ", the best on held-out data," if given.window == "auto" else ","
        which = f"of rounds {since + 1} to {trail.round}" if since else f"all there are up to round {trail.round}"
        return f"the window of {size} models{chosen} {which}", trail.judge(trail.window(size))
    if given.ema is not None:
        what, profile = f"the EMA of decay {given.ema:g}", profiles.ema(given.ema, trail.count)
    else:
        what = f"the power-function EMA of sigma_rel {given.power:g}"
        profile = profiles.power(given.power, trail.count)
    ((w, error),) = trail.weighted([profile])
    return f"{what} after round {trail.round}", trail.judge(w, error)


def _size(text: str) -> int | str:
    if text != "auto" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} must be a number, or auto")
    return "auto" if text == "auto" else int(text)


EPILOG = """\
examples:
  fedsash run experiment.toml --out runs/a --set trajectory.every=10    keeps the sum of its models, every 10 rounds
  fedsash average runs/a                                    every window and EMA that can end after the last of them
  fedsash average runs/a --window 40 --at 290               the mean of the models of rounds 251 to 290
  fedsash average runs/a --ema 0.95 --out ema.safetensors
  fedsash average runs/a --window auto                      the window that held-out data choose

A window begins and ends where a sum was kept, and is exact. An EMA is put together from the means of the blocks between
sums; its error says how much of its weight that moves to another model of the same block.
"""
