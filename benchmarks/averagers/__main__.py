"""Averagers of a training module beside each other: what is right, a reproduction of each failure, speed.

    make averagers

or, with what `requirements.txt` names on the path, `python -m benchmarks.averagers [results] [reproductions] [speed]`.
The tables are written into `docs/reference/averagers.md`, between its markers; reproductions and their outputs are
printed. `adapters.py` says how each averager is driven and what its documentation promises.
"""

from __future__ import annotations

import logging
import re
import runpy
import sys
import warnings
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import torch

from fedsash.testing import TrackingResult, tracking_results

from .adapters import ADAPTERS
from .speed import speed_table

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reference" / "averagers.md"

PACKAGES = {
    "torch": "torch",
    "timm": "timm",
    "ema-pytorch": "ema-pytorch",
    "Lightning": "lightning",
    "TRL": "trl",
    "diffusers": "diffusers",
    "ultralytics": "ultralytics",
    "fs.Tracker": "fedsash",
}
"""The package of an averager by the first word of its name."""

OF_THE_CALLER = ("a step that a scaler skips", "accumulated gradients")
"""What whoever calls `update` decides, unless the library has a hook or a trainer that does."""

OF_THE_TRAINER = ("Lightning WeightAveraging", "Lightning EMAWeightAveraging", "TRL BEMACallback")
"""Those whose Trainer decides what a skipped step is; it is not run here."""


def results_table() -> str:
    """A row for each property, a column for each averager."""
    columns: dict[str, list[TrackingResult]] = {}
    for name, adapter in ADAPTERS.items():
        columns[name] = tracking_results(adapter)
        if name in OF_THE_TRAINER:
            columns[name] = [_not_of_a_trainer(result) for result in columns[name]]
        for result in columns[name]:
            if result.outcome in ("wrong", "error"):
                print(f"{name}: {result.name}: {result.sentence}", flush=True)
    heads: list[str] = []
    for name in ADAPTERS:
        heads.append(f"{name} {version(PACKAGES[name.split()[0]])}")
    lines = [f"| | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    for row in zip(*columns.values(), strict=True):
        lines.append(f"| {row[0].name} | {' | '.join(map(cell, row))} |")
    return "\n".join(lines)


def _not_of_a_trainer(result: TrackingResult) -> TrackingResult:
    """The result, unless a Trainer decides it."""
    if result.name == "a step that a scaler skips":
        return replace(result, outcome="not checked")
    return result


def cell(result: TrackingResult) -> str:
    """A result in a word: in bold what is not as promised."""
    if result.outcome == "right":
        return "yes"
    if result.outcome == "not checked":
        return "-"
    if result.name in OF_THE_CALLER and not result.promised:
        return "caller"
    word = "no" if result.outcome == "wrong" else "error"
    return f"**{word}**" if result.promised else word


def reproduce() -> None:
    """Run each reproduction and print its name and what it prints."""
    for path in sorted((HERE / "reproductions").glob("[a-z]*.py")):
        print(f"== {path.stem}", flush=True)
        try:
            runpy.run_path(str(path), run_name="__main__")
        except (Exception, SystemExit) as error:  # which is what it reproduces
            print(f"{type(error).__name__}: {error}")
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def put_into_page(name: str, table: str) -> None:
    """Replace what stands between the markers of this name."""
    begin = f"<!-- {name} -->"
    end = f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    text = PAGE.read_text()
    PAGE.write_text(pattern.sub(lambda _: f"{begin}\n\n{table}\n\n{end}", text))


def main(parts: list[str]) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if "results" in parts:
        put_into_page("results", results_table())
    if "reproductions" in parts:
        reproduce()
    if "speed" in parts:
        table = speed_table()
        print(table)
        put_into_page("speed", table)


if __name__ == "__main__":
    main(sys.argv[1:] or ["results", "reproductions", "speed"])
