"""FedWindow on a simulated network: its empty table I, and delay and failed uploads against load.

    python -m benchmarks.network table mnist FOLDER       client trips to 90 % on MNIST, in the parquet form of the hub
    python -m benchmarks.network table cifar10 FOLDER     client trips to 60 % on CIFAR-10
    python -m benchmarks.network gradients                how long the training loss's gradient is, by client trips
    python -m benchmarks.network load                     10 to 10,000 clients on one link, events only
    python -m benchmarks.network speed                    events a minute

`--out FOLDER` keeps the runs of a table, and takes those that are there already. `--parts iid` and `--cells vanilla`
(or more of them) make a table of these alone, `--trips 40` with so many client trips at most; `--model resnet18_gn`
trains that instead of LeNet-5.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

from simpy import Environment

from fedsash import network, runs
from fedsash.lab import timing
from fedsash.lab.config import Experiment, NetworkExperiment, parse
from fedsash.methods.sampling import Uniform
from fedsash.network.simulated import begin

Table = dict[str, Any]

PARTS: dict[str, dict[str, Any]] = {
    "iid": {"name": "iid", "clients": 5},
    "shards": {"name": "shards", "clients": 5, "classes": 2},
    "dirichlet": {"name": "dirichlet_classes", "clients": 5, "alpha": 0.5},
}
CELLS: dict[str, dict[str, Any]] = {
    "vanilla": {"scheduler": {"name": "synchronous"}},
    **{f"W = {w}": {"scheduler": {"name": "fedwindow", "window": w}} for w in (2, 3, 4)},
    **{f"W = {w}, newest": {"scheduler": {"name": "fedwindow", "window": w, "start": "newest"}} for w in (2, 3)},
    "vanilla, rate 2": {"scheduler": {"name": "synchronous"}, "server": {"lr": 2.0}},
}
"""What is set in each cell of the tables; the last one's rounds move the model as far in five trips as W = 4."""
DATA: dict[str, dict[str, Any]] = {
    "mnist": {"data": {"name": "mnist"}, "lr": 0.05, "target": 0.9},
    "cifar10": {"data": {"name": "cifar10", "augment": False}, "lr": 0.05, "target": 0.6},
}


MODELS = ("lenet5", "resnet18_gn")


def experiment(name: str, folder: str, model: str, part: str, cell: str, trips: int) -> NetworkExperiment:
    """A cell of the table: five clients on a ring, two local epochs in batches of 32, plain ServerSGD."""
    chosen = DATA[name]
    return parse(
        {
            "rounds": trips // trips_a_round(cell),
            "data": chosen["data"] | {"path": folder},
            "partition": PARTS[part],
            "model": {"name": model},
            "local": {"lr": chosen["lr"], "batch": 32, "epochs": 2},
            "evaluation": {"every": 1, "target": chosen["target"]},
            "engine": {"kind": "sequential", "workers": 1, "threads": 1, "memory_format": "contiguous"},
            "network": {"link": {"rate": 1e5, "latency": 0.05}, "clients": {"seconds": 5.0, "spread": 0.5}},
        }
        | CELLS[cell]
    )


def trips_a_round(cell: str) -> int:
    """How many client trips a server step takes."""
    return 5 if CELLS[cell]["scheduler"]["name"] == "synchronous" else 1


def table(given: argparse.Namespace, folder: Path) -> None:
    """Client trips to the target, the speed-up over vanilla, and the best accuracy within the trips."""
    target = DATA[given.data]["target"]
    print(f"| partition | cell | trips to {100 * target:g} % (speed-up) | seconds | best accuracy | trips |")
    print("|---|---|---|---|---|---|")
    for part in given.parts:
        base = None
        for cell in given.cells:
            out = folder / f"{given.data}-{given.model}-{part}-{cell.replace(' ', '')}"
            summary = trained(experiment(given.data, given.folder, given.model, part, cell, given.trips), out)
            reached = summary["target"].get("model")
            best = summary["models"]["model"]["best"]["value"]
            base = (reached or {}).get("trips") if cell == "vanilla" else base
            trips = "not reached"
            seconds = "-"
            if reached:
                trips = str(reached["trips"])
                seconds = f"{reached['time']:.0f}"
                trips += f" ({base / reached['trips']:.1f})" if base else ""
            row = f"| {part} | {cell} | {trips} | {seconds} | {100 * best:.1f} % | {summary['network']['trips']} |"
            print(row, flush=True)


def run(cell: Experiment, out: Path | None = None) -> runs.Result:
    """The result of a run that goes on, or begins."""
    driver = cell.driver()
    settings = cell.settings(driver) | {"progress": False}
    if out is not None and (out / "metrics.jsonl").exists():
        return runs.resume(driver, cell.rounds, out, **settings)
    return runs.run(driver, cell.rounds, out=out, **settings)


def trained(cell: NetworkExperiment, out: Path) -> dict[str, Any]:
    """The summary of a run that is there, or goes on, or begins."""
    file = out / "summary.json"
    finished = file.exists() and json.loads(file.read_text())["rounds"] >= cell.rounds
    if not finished and run(cell, out).interrupted:
        raise KeyboardInterrupt
    summary: dict[str, Any] = json.loads(file.read_text())
    return summary


MEASURED = (10, 20, 50, 100)
"""After so many client trips."""


def gradients() -> None:
    """||grad F|| of the training loss at the global model: digits, an MLP, five clients, 100 client trips."""
    print(f"| partition | cell | {' | '.join(f'after {trips} trips' for trips in MEASURED)} |")
    print("|---|---|" + "---|" * len(MEASURED))
    for part, cell in product(("iid", "shards"), CELLS):
        each = trips_a_round(cell)
        table = {
            "rounds": 100 // each,
            "partition": PARTS[part],
            "model": {"name": "mlp", "hidden": [64]},
            "local": {"lr": 0.05, "batch": 10, "epochs": 2},
            "evaluation": {"every": 5 // each, "last": 1},
            "engine": {"kind": "sequential", "workers": 1, "threads": 1, "compile": False},
            "network": {"gradients": True},
        }
        rows = [row for row in run(parse(table | CELLS[cell])).history.rows() if row["split"] == "network"]
        norms = {row["trips"]: f"{row['gradient_norm']:.2f}" for row in rows}
        print(f"| {part} | {cell} | {' | '.join(norms[trips] for trips in MEASURED)} |", flush=True)


LOADS = (10, 30, 100, 300, 1000, 3000, 10_000)
SCHEDULERS: dict[str, network.Scheduler] = {
    "synchronous, all": network.Synchronous(),
    "fedasync": network.FedAsync(),
    "fedwindow": network.FedWindow(network.ConstantWindow(3), start="newest"),
    "fedwindow, W = capacity": network.FedWindow(network.CapacityWindow(), start="newest", pipelined=True),
    "fedwindow, W adaptive": network.FedWindow(
        network.AIMDWindow(10, increase=5, delay=10), start="newest", pipelined=True
    ),
}


def on_link(clients: int) -> network.Network:
    """The network of `load` with so many clients."""
    return network.Network(
        network.Link(1e6, 0.05),
        clients=network.SimulatedClients(clients, seconds=10, spread=0.3, noise="exponential"),
        bytes=100_000,
        timeout=30,
        retries=1,
        learning=False,
        seconds=1000,
    )


def measures(on: network.Network, scheduler: network.Scheduler, clients: int, seed: int = 0) -> Table:
    """What a scheduler's clients did on a network on which nothing is trained."""
    learner = network.Timing(clients, 100_000, Uniform(fraction=1.0), 0)
    summary: Table = timing.simulate(on, scheduler, learner, rounds=10**9, seed=seed).summary["network"]
    return summary


def load() -> None:
    """1,000 simulated seconds of clients that train for 10 s, on a link of 10 uploads per second, each given 30 s."""
    print("| clients | scheduler | uploads per second | failed uploads per trip | waiting, s | link in use |")
    print("|---|---|---|---|---|---|")
    for clients in LOADS:
        for name, scheduler in SCHEDULERS.items():
            found = measures(on_link(clients), scheduler, clients)
            print(
                f"| {clients:,} | {name} | {found['arrived'] / found['time']:.2f} "
                f"| {found['failed_uploads'] / max(found['trips'], 1):.2f} | {found['waiting']:.2f} "
                f"| {100 * found['link_use']:.0f} % |",
                flush=True,
            )


TRIPS = 20_000
"""How many trips the speed is measured on, at least."""


class Counting(Environment):
    """An environment that counts its events."""

    events = 0

    def step(self) -> None:
        self.events += 1
        super().step()


def speed() -> None:
    """Events a minute of processor time, at four fifths of the link's capacity."""
    print("| clients | scheduler | million events per minute | trips a second |")
    print("|---|---|---|---|")
    for clients in (10, 1000, 100_000):
        size = 8_000_000 // clients
        on = network.Network(
            network.Link(1e6),
            clients=network.SimulatedClients(clients, seconds=10, spread=0.3, noise="exponential"),
            bytes=size,
            timeout=60,
            learning=False,
        )
        for scheduler, each in ((network.FedAsync(), 1), (network.FedBuff(10), 10), (network.Synchronous(), clients)):
            steps = max(TRIPS // each, 1)
            env = Counting()
            learner = network.Timing(clients, size, Uniform(fraction=1.0), 0)
            site = begin(env, on, learner, rounds=steps, seed=0)
            began = time.process_time()
            site.env.process(scheduler.run(site))
            site.advance(lambda: False)
            spent = time.process_time() - began
            pace = 60e-6 * env.events / spent
            print(
                f"| {clients:,} | {type(scheduler).__name__} | {pace:.1f} | {site.log.trips / spent:,.0f} |", flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    of_table = commands.add_parser("table")
    of_table.add_argument("data", choices=DATA)
    of_table.add_argument("folder")
    of_table.add_argument("--model", choices=MODELS, default=MODELS[0])
    of_table.add_argument("--out", type=Path)
    of_table.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    of_table.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    of_table.add_argument("--trips", type=int, default=100)
    commands.add_parser("gradients")
    commands.add_parser("load")
    commands.add_parser("speed")
    given = parser.parse_args()
    if given.command != "table":
        {"gradients": gradients, "load": load, "speed": speed}[given.command]()
        return
    with tempfile.TemporaryDirectory() as folder:
        table(given, given.out or Path(folder))


if __name__ == "__main__":
    main()
