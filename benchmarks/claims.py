"""Two claims of the FedWindow paper: how many times fewer client trips one scheme needs than another.

    python -m benchmarks.claims window digits         FedWindow against synchronous rounds: "1.5 times"
    python -m benchmarks.claims window mnist FOLDER   the same with LeNet-5, on MNIST in the parquet form of the hub
    python -m benchmarks.claims buffer                FedBuff against FedAsync: "2.5 times" (V34)

Every scheme is run with each value of a small grid, over `--seeds` (5) seeds. The value with the fewest trips to the
target, in the geometric mean over the seeds, is the scheme's. The gain is the quotient of the first scheme's mean and
its own, with the 95 % interval of Student's t for the logarithms, paired by seed. A run that does not reach the target
counts with all the trips that it may make. The last column says how many these are. `buffer --rows FOLDER` enters its
trips with IID clients there, for `fedsash reproduce --merge FOLDER`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import fedsash as fs
from fedsash import runs
from fedsash.lab.config import Experiment, parse
from fedsash.lab.papers.fedwindow_claims import CLAIMS
from fedsash.lab.papers.ledger import Ledger
from fedsash.lab.papers.numbers import Numbers
from fedsash.vector.arrays import Floats

Table = dict[str, Any]

IID: Table = {"name": "iid"}
PARTS: dict[str, Table] = {
    "iid": IID,
    "shards": {"name": "shards", "classes": 2},
    "dirichlet": {"name": "dirichlet_classes", "alpha": 0.3},
}
MODELS: dict[str, Table] = {
    "digits": {
        "model": {"name": "mlp", "hidden": [64]},
        "engine": {"kind": "sequential", "workers": 1, "threads": 1, "compile": False},
    },
    "mnist": {
        "model": {"name": "lenet5"},
        "engine": {"kind": "sequential", "workers": 1, "threads": 1, "memory_format": "contiguous"},
    },
}


@dataclass(frozen=True)
class Setting:
    """What all schemes of a table share. A run makes at most `trips`, and is evaluated after every `every` of them."""

    data: Table
    batch: int
    clients: int
    part: str
    target: float
    trips: int
    every: int

    def run(self, seed: int, scheme: Scheme, value: Any) -> tuple[int, float]:
        """The trips and the simulated seconds until the target; all trips and infinity without it."""
        experiment: Any = parse(
            {
                **MODELS[self.data["name"]],
                "data": self.data,
                "seed": seed,
                "rounds": self.trips // scheme.trips,
                "partition": PARTS[self.part] | {"clients": self.clients},
                "local": {"lr": 0.05, "batch": self.batch, "epochs": 2},
                "evaluation": {"every": max(self.every // scheme.trips, 1), "last": 1, "target": self.target},
                "network": {"clients": {"seconds": 5.0, "spread": 0.5, "noise": "exponential"}},
                "scheduler": scheme.scheduler,
            },
            [f"{scheme.key}={value}"],
        )
        found = until_target(experiment, self.target)
        return (found["trips"], found["time"]) if found else (self.trips, np.inf)


@dataclass(frozen=True)
class Scheme:
    """A scheduler that takes `trips` client trips for a step, and the `grid` of the setting `key` that is tried."""

    scheduler: Table
    key: str
    grid: tuple[float, ...]
    trips: int = 1


@dataclass(frozen=True)
class Enough(fs.Callback):
    """Ends a run at the target."""

    target: float

    def evaluation(self, run: fs.extend.LiveRun, metrics: list[fs.Score]) -> None:
        if any(m.split == "test" and m["accuracy"] >= self.target for m in metrics):
            run.stop("the target is reached")


def until_target(experiment: Experiment, target: float) -> dict[str, Any] | None:
    """Where a run has reached the accuracy, at which it ends; None if it has not."""
    result = runs.run(experiment.driver(), experiment.rounds, callbacks=[Enough(target)], progress=False)
    reached: dict[str, Any] | None = result.summary["target"].get("model")
    return reached


@dataclass(frozen=True)
class Found:
    """The best value of a scheme's grid; its `trips` and simulated `seconds` to the target, `[seeds]`."""

    value: float
    trips: Floats
    seconds: Floats

    def row(self, first: Found, most: int) -> list[str]:
        """The cells of the table, compared with the first scheme."""
        logs = np.log(first.trips / self.trips)
        gain = np.exp(logs.mean())
        missed = int(np.isinf(self.seconds).sum())
        between = ""
        if logs.any():
            low, high = np.exp(stats.ttest_1samp(logs, 0).confidence_interval())
            between = f" ({low:.2f} to {high:.2f})"
        mean = f"{stats.gmean(self.trips):.0f}"
        time = "-" if missed else f"{stats.gmean(self.seconds):.0f}"
        return [f"{self.value:g}", mean, f"{gain:.2f}{between}", time, f"{missed} of {len(self.trips)}"]


def best(setting: Setting, scheme: Scheme, seeds: int) -> Found:
    """The value of the grid with the fewest trips."""
    tried = []
    for value in scheme.grid:
        trips, seconds = np.array([setting.run(seed, scheme, value) for seed in range(seeds)]).T
        tried.append(Found(value, trips, seconds))
    return min(tried, key=lambda found: float(stats.gmean(found.trips)))


RATES = (0.2, 0.4, 0.8, 1.6)


def windows() -> dict[str, Scheme]:
    """Synchronous rounds of five clients, and FedWindow in both readings."""
    schemes = {"synchronous": Scheme({"name": "synchronous"}, "local.lr", RATES, trips=5)}
    for start, size in (("own", 2), ("own", 3), ("newest", 2), ("newest", 3), ("own", 4)):
        reading = "" if size == 4 else f", {start}"  # with five clients and W = 4 both are the same
        table = {"name": "fedwindow", "window": size, "start": start}
        schemes[f"FedWindow, W = {size}{reading}"] = Scheme(table, "local.lr", RATES)
    return schemes


MIXES = (0.3, 0.6, 0.9)
BUFFERS: dict[str, Scheme] = {
    "FedAsync, polynomial": Scheme({"name": "fedasync", "weight": "polynomial"}, "scheduler.alpha", MIXES),
    "FedAsync, constant": Scheme({"name": "fedasync"}, "scheduler.alpha", MIXES),
    "FedBuff, K = 10": Scheme({"name": "fedbuff", "size": 10}, "scheduler.lr", (1.0, 2.0, 4.0), trips=10),
}


def print_table(setting: Setting, schemes: Mapping[str, Scheme], seeds: int) -> dict[str, Found]:
    """Print the rows of a table, the first scheme's first, and return what is in them."""
    rows: dict[str, Found] = {}
    for name, scheme in schemes.items():
        rows[name] = best(setting, scheme, seeds)
        first = next(iter(rows.values()))
        cells = [f"{setting.part}, {100 * setting.target:g} %", name, *rows[name].row(first, setting.trips)]
        print("| " + " | ".join(cells) + " |", flush=True)
    return rows


def enter(folder: Path, rows: Mapping[str, Found]) -> None:
    """Enter the trips of FedBuff and of the better of both FedAsyncs as evidence for V34."""
    fedasync = [found for name, found in rows.items() if name.startswith("FedAsync")]
    of_scheme = {
        "FedAsync": min(fedasync, key=lambda found: float(stats.gmean(found.trips))),
        "FedBuff": rows["FedBuff, K = 10"],
    }
    trips = Numbers.measured(("scheme",), {(name,): list(found.trips) for name, found in of_scheme.items()})
    setting = "ours: an MLP on IID digits, 30 clients to 90 %, each scheme with the best of three rates"
    source = "python -m benchmarks.claims buffer --rows FOLDER"
    print(f"V34: {Ledger(folder).enter_own('FedWindow', CLAIMS['V34'], {'trips': trips}, setting, source)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    claims = parser.add_subparsers(dest="claim", required=True)
    window = claims.add_parser("window")
    window.add_argument("data", choices=MODELS)
    window.add_argument("folder", nargs="?")
    buffer = claims.add_parser("buffer")
    buffer.add_argument("--rows", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    print("| split, target | scheme | rate | trips | gain (95 %) | seconds | not reached |\n" + "|---" * 7 + "|")
    digits: Table = {"name": "digits"}
    if given.claim == "buffer":
        schemes = BUFFERS
        alike = Setting(digits, 16, 30, "iid", 0.9, 1500, 10)
        settings = [alike, replace(alike, part="dirichlet", target=0.85)]
    elif given.data == "digits":
        schemes = windows()
        alike = Setting(digits, 32, 5, "iid", 0.95, 200, 5)
        settings = [alike, replace(alike, part="shards", target=0.8)]
    else:
        mnist: Table = {"name": "mnist", "path": given.folder}
        schemes = windows()
        settings = [Setting(mnist, 32, 5, "iid", 0.95, 100, 5)]
    for setting in settings:
        rows = print_table(setting, schemes, given.seeds)
        if given.claim == "buffer" and given.rows and setting.part == "iid":
            enter(given.rows, rows)


if __name__ == "__main__":
    main()
