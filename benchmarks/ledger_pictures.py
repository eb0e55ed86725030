"""Two pictures of the papers' pages, from the rows in `results/`.

    python -m benchmarks.ledger_pictures gains docs/papers/ima-table-1.png      what IMA gains: print and ours
    python -m benchmarks.ledger_pictures curves docs/papers/wima-figure-2.png   FedAvg, its window and an early SWA

Of a cell with several rows the first one counts, which has seed 0.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from fedsash.lab.papers.ledger import CLAIMS
from fedsash.runs.drawn import draw
from fedsash.runs.pictures import Axis, Bars, Line, Panel, Picture, look

RESULTS = Path(__file__).parents[1] / "results"
ROWS = {
    "FMNIST #C=2": "Fashion-MNIST, #C = 2",
    "FMNIST a=0.1": "Fashion-MNIST, alpha = 0.1",
    "CIFAR-10 CNN #C=2": "CIFAR-10, #C = 2",
}
"""The rows of IMA's Table 1 that have been run with all eight methods."""
LINES = {"FedAvg": "FedAvg", "WiMA": "window of 10", "SWA c=10 from 25 %": "SWA from 25 % on"}
ROUNDS_APART = 20
"""Evaluations are so many rounds apart, but at the end of a run."""


def gains() -> Picture:
    """What IMA adds to each method, in points, by row of Table 1: in print and in our rows."""
    ends: dict[str, dict[str, dict[str, tuple[float, float]]]] = defaultdict(lambda: defaultdict(dict))
    for file in sorted((RESULTS / "ima-table-1").glob("*.json")):
        cell = json.loads(file.read_text())
        ours = fmean(cell["rows"][0]["values"].values())
        ends[cell["row"]][cell["column"]][cell["cell"]] = float(cell["printed"]), ours
    panels = []
    for row, title in ROWS.items():
        methods = ends[row]
        heights = []
        for place in (0, 1):
            heights.append([both["+IMA"][place] - both["base"][place] for both in methods.values()])
        names = dict(enumerate(methods))
        bars = Bars(["print", "ours"], range(len(methods)), heights, [look(0).colour, look(1).colour])
        panels.append(
            Panel(title, Axis(ticks=names), Axis("points that IMA adds", low=0), [bars], width=7.0, height=3.0)
        )
    return Picture("IMA's gain by method", panels, caption="Ours: seed 0.")


def curves() -> Picture:
    """Accuracy by round of FedAvg, a window and an early SWA: means over three seeds."""
    values: dict[str, dict[int, list[float]]] = defaultdict(dict)
    for claim in ("W5", "W30"):
        row = json.loads((RESULTS / CLAIMS / f"WiMA-{claim}.json").read_text())["rows"][0]
        for number in row["evidence"]["curves"]["numbers"]:
            line, round = number["at"]
            if round % ROUNDS_APART == 0:
                values[line][round] = number["values"]
    layers = []
    for k, (line, name) in enumerate(LINES.items()):
        rounds = sorted(values[line])
        layers.append(Line(name, rounds, [fmean(values[line][round]) for round in rounds], look(k)))
    panel = Panel("accuracy by round", Axis("rounds"), Axis("accuracy in %"), layers, width=7.0, height=3.5)
    return Picture("WiMA's Figure 2, cut down", [panel], caption="Means over three seeds.")


def main(kind: str, path: str) -> None:
    """Draw one of the pictures into a file."""
    pictures = {"gains": gains, "curves": curves}
    draw(pictures[kind](), path)


if __name__ == "__main__":
    main(*sys.argv[1:])
