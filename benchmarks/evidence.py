"""What the programs share that measure evidence for claims which no reproduction decides."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from fedsash.lab.papers.claims import Claim, Claims, Evidence
from fedsash.lab.papers.ledger import Ledger


def arguments(description: str | None, rounds: int) -> argparse.Namespace:
    """The command's arguments: the folders `data` and `folder`, `--seeds`, and `--rounds`, by default so many."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="SEED")
    parser.add_argument("--rounds", type=int, default=rounds)
    return parser.parse_args()


def enter(
    options: argparse.Namespace,
    program: str,
    paper: str,
    claims: Claims | Mapping[str, Claim],
    evidence: Mapping[str, Evidence],
    setting: str,
) -> None:
    """Put the evidence for each claim into the ledger in `options.folder`, and print what it says."""
    seeds = " ".join(map(str, options.seeds))
    source = f"python -m benchmarks.{program} DATA FOLDER --seeds {seeds} --rounds {options.rounds}"
    for name, numbers in evidence.items():
        whole = f"{setting}, {options.rounds} rounds"
        finding = Ledger(options.folder).enter_own(paper, claims[name], numbers, whole, source)
        print(f"{name}: {finding}")


def show(evidence: Mapping[str, Evidence]) -> None:
    """Print each number of the evidence, as the mean over the seeds."""
    for claim, numbers in evidence.items():
        for name, table in numbers.items():
            for key, quantity in table.items():
                print(f"{claim} {name} {' '.join(map(str, key))}: {quantity.mean:.2f}")
