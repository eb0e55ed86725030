"""Every method on real data, with and without WiMA and IMA.

    python -m benchmarks.methods DATA --out methods.md

DATA holds the folders `mnist10k` and `cifar10` with `train.parquet` and `test.parquet` (see docs/how-to/datasets.md).
Takes about 20 minutes on 2 cores, a run on each; runs that are in `runs/methods` already are not trained again.

One base run a method observes a window of 20 models (WiMA); IMA forks from it after three quarters of the rounds and
broadcasts the window of 5 back to the clients, whose rate now falls by 3 % a round. 100 clients that hold two classes
each (shards), 10 a round, SGD with rate 0.1 in batches of 20, for all methods alike. MNIST: 80 images a client, 5 local
epochs, an MLP of 64 units, 200 rounds. CIFAR-10: the first 10,000 training images, 100 a client, 2 local epochs,
LeNet-5, 60 rounds. Accuracy is the mean of the last ten rounds on the first 2,000 test images. The methods' own
settings (`METHODS`) are those of their papers, where these do not depend on scale.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import fedsash as fs
from fedsash import data, methods, models
from fedsash.data import FederatedData
from fedsash.methods import schedules, server_optimisers
from fedsash.runs.records import Records
from fedsash.runs.summaries import stuck_text

METHODS: dict[str, dict[str, Any]] = {
    "FedAvg": {},
    "FedAvgM": {"server": server_optimisers.ServerSGD(momentum=0.9)},
    "FedAdam": {"server": server_optimisers.FedAdam()},
    "FedYogi": {"server": server_optimisers.FedYogi()},
    "FedProx": {"method": methods.FedProx(0.01)},
    "EWC": {"method": methods.EWC(1.0)},
    "SCAFFOLD": {"method": methods.Scaffold()},
    "FedDyn": {"method": methods.FedDyn(0.01)},
    "AdaBest": {"method": methods.AdaBest(0.02, 0.8)},
    "FedCM": {"method": methods.FedCM(0.1)},
    "FedACG": {"method": methods.FedACG(0.85, 0.001)},
    "Mime (SGD)": {"method": methods.Mime(0.0)},
    "Mime (SGDm)": {"method": methods.Mime(0.9)},
    "MimeLite (SGDm)": {"method": methods.MimeLite(0.9)},
    "FedNova": {"aggregation": methods.FedNova()},
    "FedGMA": {"aggregation": methods.FedGMA(0.8)},
    "FedSAM": {"method": methods.FedSAM(0.1)},
    "FedASAM": {"method": methods.FedASAM(0.7, 0.2)},
    "MoFedSAM": {"method": methods.MoFedSAM(0.1, 0.1)},
    "FedLESAM": {"method": methods.FedLESAM(0.1)},
    "FedFA": {"method": methods.FedFA(0.1, 0.9)},
    "FedSWA": {"method": methods.FedSWA(0.1, 1.5)},
    "FedMoSWA": {"method": methods.FedMoSWA(0.1, 1.5, 0.2)},
}


@dataclass(frozen=True)
class Setting:
    """A data set, shared out, with its model and its length."""

    folder: str
    model: str
    options: dict[str, Any]
    samples: int
    epochs: int
    rounds: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def start(self) -> int:
        """The round after which IMA begins."""
        return self.rounds * 3 // 4

    def data(self, root: Path) -> FederatedData:
        source = data.Images(str(root / self.folder), mean=self.mean, std=self.std).load()
        assert source.test is not None
        train = source.train[torch.arange(self.samples)]
        test = source.test[torch.arange(2000)]
        return replace(source, train=train, test=test).partition(data.Shards(clients=100, classes=2), 0)

    def federation(self, root: Path, method: str, ima: bool) -> fs.Federation:
        federated = self.data(root)
        shape = tuple(federated.transform.prepare(federated.train.x[:1]).shape[1:])
        kind = "vectorised" if self.model == "mlp" else "sequential"
        block = 10 if kind == "vectorised" else 1
        schedule = schedules.Mild(self.start, decay=1.0) if ima else schedules.Constant()
        return fs.Federation(
            models.build(self.model, self.options, shape=shape, classes=10, seed=0),
            federated,
            local=fs.LocalTraining(lr=0.1, batch=20, epochs=self.epochs, schedule=schedule),
            averages={"wima": fs.Window(20), "ima": fs.Window(5)},
            broadcast=fs.Broadcast("ima", self.start + 1) if ima else None,
            evaluation=fs.Evaluation(every=self.rounds, last=10),
            engine=fs.LocalEngine(kind, 1, block, False, "channels_last", 1),
            device="cpu",
            **METHODS[method],
        )


SETTINGS = {
    "MNIST": Setting("mnist10k", "mlp", {"hidden": (64,)}, 8_000, 5, 200, (0.1307,), (0.3081,)),
    "CIFAR-10": Setting("cifar10", "lenet5", {}, 10_000, 2, 60, (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
}


def run(setting: str, method: str, root: Path, folder: Path) -> None:
    """The base run of a method, and its IMA run from the round at which that begins."""
    chosen = SETTINGS[setting]
    began = time.perf_counter()
    base = folder / "base"
    ima = folder / "ima"
    keep = fs.Checkpoint(every=chosen.rounds, keep=(chosen.start,))
    for out, broadcasts, fork in ((base, False, None), (ima, True, fs.Fork(base, chosen.start))):
        if not (out / "summary.json").exists():
            federation = chosen.federation(root, method, broadcasts)
            fs.run(federation, chosen.rounds, out=out, checkpoint=keep, progress=False, fork=fork)
    if not (folder / "seconds.json").exists():
        (folder / "seconds.json").write_text(json.dumps(time.perf_counter() - began))


def cells(folder: Path) -> Iterator[str]:
    """The model, the gains of WiMA and IMA over it, and what went wrong."""
    base, ima = (json.loads((folder / name / "summary.json").read_text()) for name in ("base", "ima"))
    model = base["models"]["model"]
    wima = base["models"]["wima"]
    ima_model = ima["models"]["ima"]
    yield f"{100 * model['last_mean']:.1f} ± {100 * model['last_std']:.1f}"
    for better in (wima, ima_model):
        yield f"{100 * (better['last_mean'] - model['last_mean']):+.1f} (± {100 * better['last_std']:.1f})"
    refused = sum(len(row.get("refused", ())) for row in Records(folder / "base").load().rows())
    if since := base["stuck"]:
        yield stuck_text(since)
    else:
        yield f"{refused} uploads left out" if refused else ""


def table(setting: str, runs: Path) -> Iterator[str]:
    """The results of one setting in Markdown."""
    yield f"| {setting} | model, % | WiMA | IMA | what went wrong |"
    yield "|---|---|---|---|---|"
    for method in METHODS:
        yield f"| {method} | {' | '.join(cells(runs / setting / method))} |"


def main(root: Path, out: Path | None, runs: Path) -> None:
    from rich.progress import Progress

    jobs = [(setting, method) for setting in reversed(SETTINGS) for method in METHODS]
    began = time.perf_counter()
    for setting in SETTINGS.values():  # decodes the images once, before there are two who would
        setting.data(root)
    with ProcessPoolExecutor(2, get_context("spawn")) as pool, Progress() as progress:  # torch's threads don't fork
        task = progress.add_task("methods", total=len(jobs))
        for done in [pool.submit(run, *job, root, runs / job[0] / job[1]) for job in jobs]:
            done.result()
            progress.advance(task)
    print(f"{time.perf_counter() - began:.0f} s")
    text = "\n\n".join("\n".join(table(setting, runs)) for setting in SETTINGS) + "\n"
    print(text)
    if out is not None:
        out.write_text(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/methods"))
    given = parser.parse_args()
    main(given.data, given.out, given.runs)
