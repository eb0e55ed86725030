"""FedWindow's bound on gradient norms (eq. 17) beside the norms of runs, by the study `fedsash bound`.

    python -m benchmarks.bound logistic OUT           exact L and F*: even or odd, on scikit-learn's digits
    python -m benchmarks.bound noiseless OUT          the same, with all samples of a client in each step
    python -m benchmarks.bound lenet5 FOLDER OUT      measured L, and 0 for F*: MNIST in the parquet form of the hub

Prints a table for each split and window: trips, the mean squared norm, the bound, and its terms. OUT keeps the runs,
over `--seeds` (3) seeds, and the pictures in OUT/NAME-0/analyses.

The two-class model has its largest Hessian eigenvalue where both classes have equal weights, which is where it begins:
there each sample's p(1 - p) is 1/4. So the L that the study measures is exact. F* is Newton's.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import fedsash.runs
from fedsash.data import Digits, Source
from fedsash.evaluation import Curvature
from fedsash.lab.config import parse
from fedsash.lab.studies.bound import BoundStudy
from fedsash.lab.studies.opened import OpenRun, open_run
from fedsash.server.federation import Federation


@dataclass(frozen=True)
class Parity:
    """The digits, labelled even (0) or odd (1)."""

    def load(self, seed: int = 0) -> Source:
        digits = Digits().load(seed)
        for samples in (digits.train, digits.test):
            if samples is not None:
                samples.y.remainder_(2)
        return Source(digits.train, digits.test, 2, digits.transform, ("even", "odd"))


def logistic() -> nn.Module:
    """Logistic regression in float64 that begins at 0."""
    layer = nn.Linear(64, 2, dtype=torch.float64)
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


def least(federation: Federation, w: Tensor, steps: int = 30) -> float:
    """The least training loss, by Newton's method from the model `w` `[D]`, to about 1e-9 (half the decrement).

    Adding the same to both classes' logits changes nothing, so the Hessian is singular and its pseudo-inverse is used.
    """
    loss = Curvature(federation.module, federation.training_data, federation.training_data.train)
    for _ in range(steps):
        gradient = loss.gradient(w)
        hessian = torch.stack([loss.hessian_times(w, v) for v in torch.eye(len(w), dtype=w.dtype)])
        step = torch.linalg.pinv(hessian, hermitian=True, rtol=1e-10) @ gradient
        if gradient @ step < 2e-9:
            return loss.loss(w)
        w = w - step
    raise RuntimeError(f"Newton's method has not converged in {steps} steps: can the classes be separated?")


ENGINE = {"kind": "sequential", "workers": 1, "threads": 1, "compile": False, "memory_format": "contiguous"}
LOGISTIC: dict[str, Any] = {
    "rounds": 300,
    "data": {"name": "benchmarks.bound:Parity"},
    "model": {"name": "benchmarks.bound:logistic"},
    "checkpoint": {"keep": [30, 100]},
}
BASES: dict[str, dict[str, Any]] = {
    "logistic": LOGISTIC | {"local": {"lr": 0.2, "batch": 32, "steps": 5}},
    "noiseless": LOGISTIC | {"local": {"lr": 0.2, "batch": "full", "steps": 5}},
    "lenet5": {
        "rounds": 60,
        "model": {"name": "lenet5"},
        "local": {"lr": 0.05, "batch": 32, "epochs": 2},
        "checkpoint": {"keep": [5, 20]},
    },
}
IID = {"iid": {"name": "iid"}}
SHARDS = {"shards": {"name": "shards", "classes": 1}}
SPLITS: dict[str, dict[str, dict[str, Any]]] = {"logistic": IID | SHARDS, "noiseless": IID, "lenet5": IID}
WINDOWS: dict[str, dict[str, Any]] = {
    "W = 2, own": {"window": 2},
    "W = 2, newest": {"window": 2, "start": "newest"},
    "W = 4": {"window": 4},
    "W = 2, both train": {"window": 2, "start": "newest", "slide": 2},
}


def trained(name: str, table: dict[str, Any], out: Path, seeds: int, open_runs: ExitStack) -> list[OpenRun]:
    """The runs of a cell, one for each seed, opened."""
    runs = []
    for seed in range(seeds):
        folder = out / f"{name.replace(' ', '').replace(',', '-')}-{seed}"
        if not (folder / "summary.json").exists():
            experiment = parse(table | {"seed": seed}, own_code=True)
            driver = experiment.driver()
            fedsash.runs.run(driver, experiment.rounds, out=folder, **experiment.settings(driver), progress=False)
        runs.append(open_runs.enter_context(closing(open_run(folder, own_code=True))))
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind in BASES:
        command = kinds.add_parser(kind)
        if kind == "lenet5":
            command.add_argument("folder")
        command.add_argument("out", type=Path)
    given = parser.parse_args()
    base = BASES[given.kind] | {"evaluation": {"every": 1, "last": 1}, "engine": ENGINE, "network": {"gradients": True}}
    if given.kind == "lenet5":
        base["data"] = {"name": "mnist", "path": given.folder}
    print("| split | cell | trips | mean squared norm | bound | start | local | window |\n" + "|---" * 8 + "|")
    for (split, partition), (cell, window) in product(SPLITS[given.kind].items(), WINDOWS.items()):
        rule = {"partition": partition | {"clients": 5}, "scheduler": {"name": "fedwindow", **window}}
        with ExitStack() as open_runs:
            runs = trained(f"{split}, {cell}", base | rule, given.out, given.seeds, open_runs)
            federation = runs[0].federation
            measured = given.kind == "lenet5"
            lowest = 0.0 if measured else least(federation, federation.start().w)
            study = BoundStudy(least=lowest, samples=1000 if measured else None)
            found = study.write(runs, "bound", f"python -m benchmarks.bound {given.kind}")
            study.picture(found).save(runs[0].folder / "analyses" / "bound.png")
            _, *rows = study.table(found)
            for row in rows:
                print(f"| {split} | {cell} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
