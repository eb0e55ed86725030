"""Evidence for two claims of FedWindow, on delays (V3) and failed uploads (V4) from congestion, for a ledger.

    python -m benchmarks.congestion FOLDER      then fedsash reproduce --merge FOLDER

The link carries 10 uploads a second, and a client trains for about 10 s; an upload has 30 s, and is tried once more.
`--seeds` (5) seeds. Waiting and failures are of simulated events alone, at each load of `benchmarks.network load`. The
time to an accuracy is of `CLIENTS` clients that train an MLP on scikit-learn's digits on the same link, at the scheme's
rate of `RATES`. FedWindow is judged in two readings: as the paper writes it, where one client trains at a time, and in
ours, where W do.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.claims import until_target
from benchmarks.network import LOADS, Table, measures, on_link
from fedsash import network
from fedsash.lab.config import parse
from fedsash.lab.papers.fedwindow_claims import CLAIMS
from fedsash.lab.papers.ledger import Ledger
from fedsash.lab.papers.numbers import Key, Numbers

PAPER = "FedWindow"
CLIENTS = 300
"""At this load the link of synchronous rounds is congested."""
TARGET = 0.9
MOST_TRIPS = 20_000
SYNCHRONOUS = "synchronous"
AS_WRITTEN = "W = 3, one client trains at a time, as written"
PIPELINED = "W by the link's capacity, W clients train at a time, our reading"
SCHEDULERS: dict[str, network.Scheduler] = {
    SYNCHRONOUS: network.Synchronous(),
    AS_WRITTEN: network.FedWindow(network.ConstantWindow(3), start="newest"),
    PIPELINED: network.FedWindow(network.CapacityWindow(), start="newest", pipelined=True),
}
TABLES: dict[str, Table] = {
    SYNCHRONOUS: {"name": "synchronous"},
    AS_WRITTEN: {"name": "fedwindow", "window": 3, "start": "newest"},
    PIPELINED: {"name": "fedwindow", "window": {"name": "capacity"}, "start": "newest", "pipelined": True},
}
RATES = {SYNCHRONOUS: 1.6, AS_WRITTEN: 0.4, PIPELINED: 0.4}
"""The quickest over five seeds of 0.4, 0.8 and 1.6 for the first, of 0.2, 0.4 and 0.8 for the second, and of 0.2 and
0.4 for the third."""
LINK = "simulated, 10 uploads a second, a training of 10 s, a timeout of 30 s"


def seconds_to_target(scheme: str, seed: int) -> float:
    """The simulated seconds until the accuracy, of an MLP on the digits dealt out at random."""
    trips = CLIENTS if scheme == SYNCHRONOUS else 1
    experiment: Any = parse(
        {
            "seed": seed,
            "rounds": MOST_TRIPS // trips,
            "partition": {"name": "iid", "clients": CLIENTS},
            "model": {"name": "mlp", "hidden": [64]},
            "local": {"lr": RATES[scheme], "batch": 16, "epochs": 2},
            "evaluation": {"every": max(30 // trips, 1), "last": 1, "target": TARGET},
            "engine": {"kind": "sequential", "workers": 1, "threads": 1, "compile": False},
            "network": {
                "link": {"rate": 1e6, "latency": 0.05},
                "clients": {"seconds": 10.0, "spread": 0.3, "noise": "exponential"},
                "bytes": 100_000,
                "timeout": 30.0,
                "retries": 1,
            },
            "scheduler": TABLES[scheme],
        }
    )
    reached = until_target(experiment, TARGET)
    if reached is None:
        raise RuntimeError(f"{scheme}, seed {seed}: {TARGET:.0%} was not reached in {MOST_TRIPS} trips")
    return float(reached["time"])


def evidence(seeds: int) -> dict[str, dict[str, dict[Key, dict[str, float]]]]:
    """The numbers of each scheme by seed: `waiting` and `failures` by number of clients, and `time`."""
    numbers: dict[str, dict[str, dict[Key, dict[str, float]]]] = {}
    for scheme, scheduler in SCHEDULERS.items():
        of_scheme: dict[str, dict[Key, dict[str, float]]] = {"waiting": {}, "failures": {}, "time": {}}
        for seed in map(str, range(seeds)):
            for clients in LOADS:
                load = measures(on_link(clients), scheduler, clients, int(seed))
                failures = load["failed_uploads"] / max(load["trips"], 1)
                of_scheme["waiting"].setdefault((clients,), {})[seed] = load["waiting"]
                of_scheme["failures"].setdefault((clients,), {})[seed] = failures
            of_scheme["time"].setdefault((), {})[seed] = seconds_to_target(scheme, int(seed))
        print(f"{scheme}: {of_scheme['time']}", flush=True)
        numbers[scheme] = of_scheme
    return numbers


def enter(ledger: Ledger, numbers: dict[str, dict[str, dict[Key, dict[str, float]]]], source: str) -> None:
    """Enter the evidence for both claims, in each reading of FedWindow."""
    dims = {"waiting": ("scheme", "clients"), "failures": ("scheme", "clients"), "time": ("scheme",)}
    for reading in (AS_WRITTEN, PIPELINED):
        for name, needs in (("V3", ("waiting", "time")), ("V4", ("failures",))):
            tables = {}
            for what in needs:
                values: dict[Key, dict[str, float]] = {}
                for label, scheme in ((SYNCHRONOUS, SYNCHRONOUS), (PAPER, reading)):
                    for key, by_seed in numbers[scheme][what].items():
                        values[label, *key] = by_seed
                tables[what] = Numbers.measured(dims[what], values)
            setting = f"ours: {LINK}; {reading}"
            if "time" in needs:
                setting += f"; the time is of {CLIENTS} clients, an MLP, the digits"
            finding = ledger.enter_own(PAPER, CLAIMS[name], tables, setting, source)
            print(f"{name}, {reading}: {finding}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    enter(Ledger(given.folder), evidence(given.seeds), f"python -m benchmarks.congestion FOLDER --seeds {given.seeds}")


if __name__ == "__main__":
    main()
