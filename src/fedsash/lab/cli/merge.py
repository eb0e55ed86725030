"""`fedsash merge`: the mean of checkpoints. It needs nothing but the libraries of the core."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ...runs import terminal
from ...settings.errors import RunError
from .arguments import Parser, add_options, nonempty_path
from .common import OK

if TYPE_CHECKING:
    from ...averages.checkpoints import Merged


def add(parser: Parser) -> None:
    """Add the arguments."""
    parser.epilog = MERGE
    parser.set_defaults(command=_merge, core=True)
    line = "checkpoints (.safetensors, .pt, .pth, .bin, .ckpt, torch.distributed.checkpoint), or folders of them"
    parser.add_argument("paths", nargs="+", type=nonempty_path, metavar="path", help=line)
    line = "the new file, or the new folder if its name has no ending"
    parser.add_argument("--out", type=nonempty_path, required=True, metavar="PATH", help=line)
    parser.add_argument("--last", type=int, metavar="N", help="only the N newest checkpoints")
    line = "only every Nth checkpoint, counted back from the newest"
    parser.add_argument("--every", type=int, default=1, metavar="N", help=line)
    line = "only the N best by a metric, which names (val_loss=0.12) or trainer_state.json say"
    parser.add_argument("--best", type=int, metavar="N", help=line)
    parser.add_argument("--by", default="", metavar="METRIC", help="the metric of --best, such as eval_loss")
    line = "which of its values are better, where the metric's name does not say it"
    parser.add_argument("--mode", choices=("min", "max"), default="", help=line)
    line = "a JSON that says the metric: an object of objects by name or step, or a list of rows with a step"
    parser.add_argument("--scores", type=nonempty_path, metavar="FILE", help=line)
    line = "weights D^(n-i), so that the newest counts most"
    parser.add_argument("--ema", type=float, metavar="D", help=line)
    line = "weights that stand in for a learning rate that decays: linear (the plain mean), cosine or 1-sqrt"
    parser.add_argument("--decay", metavar="SHAPE", help=line)
    line = "a file with a number for each checkpoint, from the oldest on"
    parser.add_argument("--weights", type=nonempty_path, metavar="FILE", help=line)
    line = "the bias-corrected EMA of the checkpoints and the model --initial, by their steps"
    parser.add_argument("--bema", action="store_true", help=line)
    line = "the model with which the training began"
    parser.add_argument("--initial", type=nonempty_path, metavar="PATH", help=line)
    line = "which state dictionary of each file, such as state_dict_ema"
    parser.add_argument("--key", default="", help=line)
    line = "of LoRA's adapters: exact, the mean of the products of their factors; a RANK to which it is cut; or factors"
    parser.add_argument("--lora", type=_how_of_lora, default="", metavar="HOW", help=line)
    add_options(parser, "--no-progress", "--json")


def _merge(args: Namespace) -> int:
    from ...averages.bema import BEMA
    from ...averages.checkpoints import merge_checkpoints

    for path in args.paths:
        _check_no_run(path)
    weights = None
    if args.weights is not None:
        weights = _numbers(args.weights)
    progress = None
    if args.progress:
        progress = _progress()
    merged = merge_checkpoints(
        args.paths,
        args.out,
        last=args.last,
        every=args.every,
        best=args.best,
        by=args.by,
        mode=args.mode,
        scores=args.scores,
        ema=args.ema,
        decay=args.decay,
        weights=weights,
        bema=BEMA() if args.bema else None,
        initial=args.initial,
        key=args.key,
        lora=args.lora,
        progress=progress,
    )
    args.answer = _answer(merged)
    terminal.say("\n".join(_lines(merged)))
    return OK


def _how_of_lora(text: str) -> str | int:
    """A number is a rank; the averager refuses other words than it knows."""
    if text.isdecimal():
        return int(text)
    return text


def _check_no_run(path: Path) -> None:
    """Raise `RunError` for a run's folder. Trainers, too, leave metrics and a config beside checkpoints."""
    from ...averages.checkpoints.order import holds_checkpoints
    from ...runs.records import Records

    if path.is_dir() and Records(path).begun and not holds_checkpoints(path):
        raise RunError(f"{path} is a run's folder: fedsash average {path} averages its models")


def _numbers(path: Path) -> list[float]:
    """The numbers in a file, with spaces, commas or line ends between them."""
    words = path.read_text().replace(",", " ").split()
    try:
        return [float(word) for word in words]
    except ValueError as error:
        raise RunError(f"{path} must hold numbers alone: {error}") from None


def _progress() -> Callable[[int, int], None]:
    """What shows the progress of a merge: a line on standard error now and then, if that is a terminal."""
    from ...averages.progress import ProgressLines

    lines = ProgressLines(terminal.complain)

    def show(done: int, total: int) -> None:
        if terminal.is_terminal(sys.stderr):
            lines.show(f"{100 * done // total} % of {total:,} entries")

    return show


def _answer(merged: Merged) -> dict[str, object]:
    rows = []
    for file, step, share in zip(merged.files, merged.steps, merged.weights, strict=True):
        rows.append({"file": str(file), "step": step, "share": share})
    return {"out": str(merged.out), "rule": merged.rule, "checkpoints": rows, "notes": list(merged.notes)}


def _lines(merged: Merged) -> list[str]:
    """What was averaged, from the oldest to the newest, and what should be known of it."""
    lines = list(merged.notes)
    lines.append(f"{merged.rule} of {len(merged.files)}, from the oldest to the newest:")
    for file, step, share in zip(merged.files, merged.steps, merged.weights, strict=True):
        number = "-" if step is None else str(step)
        lines.append(f"  {number:>8}  {share:.6f}  {file}")
    lines.append(f"written: {merged.out}")
    return lines


MERGE = """\
The mean has the layout, the names and the types of the newest checkpoint, and loads where that loads. A card beside it
(merge.json) says what it is made of. The models of a run of fedsash are averaged by fedsash average RUN.

examples:
  fedsash merge outputs --out merged                            all checkpoint-N in outputs, with the newest's config
  fedsash merge outputs --last 5 --out merged                   the five newest
  fedsash merge outputs --best 5 --by eval_loss --out merged    the five best by their trainer's record
  fedsash merge a-500.pt a-1000.pt --out mean.pt                two files, of which a-1000.pt is the newer
  fedsash merge outputs --decay 1-sqrt --out merged             as if the learning rate had decayed
"""
