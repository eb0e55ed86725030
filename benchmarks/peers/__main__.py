"""fedsash beside other simulators: the works W1 to W6 with the same samples, clients and initial weights.

    python -m benchmarks.peers [--only W1,W2] [--peers fedsash,FedJAX] [--seconds 5] [--repetitions 3] [--out FOLDER]

Ten clients a round, FedAvg by samples, no evaluation. Each run is a process of its own, alone on the machine; the ways
to train take turns. A peer has an environment of its own below `--envs`, with the versions of `environments/`, and the
settings that its documentation recommends; its file says which. A ratio is that of samples a second to the plain loop
in the same turn. All must learn the same: the loss of the global model after `Work.rounds` rounds is compared.

What has been measured is kept in `peers.json` and not repeated; `peers.md` and `peers.svg` are made of it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import table
from .modules import MODULES, final_loss, trained
from .processes import Failed, Peer
from .works import WORKS, Given

TWO_WORKERS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
PEERS = {
    table.PLAIN: Peer("plain", threads=1),
    "plain, 2 threads": Peer("plain", threads=2),
    table.FASTEST: Peer("fastest", threads=1),
    table.BOUND: Peer("fastest", threads=1, copies=2),
    table.OWN: Peer("own"),
    "pfl-research": Peer("pfl", "pfl", threads=1, launch=TWO_WORKERS),
    "FedJAX": Peer("fedjax", "fedjax"),
    "Flower": Peer("flower", "flower", threads=1),
    "FLSim": Peer("flsim", "flsim", threads=2),
    "BlazeFL": Peer("blazefl", "blazefl", threads=1, pip=("--ignore-requires-python",)),
}


def prepared(name: str, folder: Path) -> Given:
    """The work's folder, which is written first if need be."""
    WORKS[name].write(folder)
    if not (folder / "weights.npz").exists():
        torch.manual_seed(0)
        np.savez(folder / "weights.npz", *(p.detach().numpy() for p in trained(MODULES[name]())))
    return Given(name, str(folder))


def measured(peer: str, given: Given, turn: int, settings: argparse.Namespace) -> dict[str, Any]:
    """One run of a peer, with the loss of its model."""
    saved = settings.out / "model.npz"
    arguments = given.work.name, str(given.folder), str(saved), str(settings.seconds), str(turn)
    found = PEERS[peer].measure(settings.envs, *arguments)
    with np.load(saved) as file:
        loss = final_loss(given, list(file.values()))
    saved.unlink()
    return found | {"loss": loss}


def main(settings: argparse.Namespace) -> None:
    settings.out.mkdir(parents=True, exist_ok=True)
    kept = settings.out / "peers.json"
    results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {"initial": {}, "works": {}}
    given = {name: prepared(name, settings.out / "works" / name) for name in settings.only}
    failed: dict[str, dict[str, str]] = {}
    for name in given:
        results["initial"].setdefault(name, final_loss(given[name], given[name].weights))
    for turn in range(settings.repetitions):
        for name in given:
            runs = results["works"].setdefault(name, {})
            for peer in settings.peers:
                if peer in failed.get(name, {}) or len(runs.get(peer, [])) > turn:
                    continue
                try:
                    run = measured(peer, given[name], turn, settings)
                except Failed as reason:
                    failed.setdefault(name, {})[peer] = str(reason)
                    print(f"{name} {peer}: {reason}", flush=True)
                    continue
                runs.setdefault(peer, []).append(run)
                kept.write_text(json.dumps(results, indent=1))
                print(f"{name} {peer:18} {run['samples/s']:10.0f} samples/s, loss {run['loss']:.4f}", flush=True)
    text = table.markdown(results["works"], results["initial"], failed)
    (settings.out / "peers.md").write_text(text)
    table.picture(results["works"], settings.out / "peers.svg")
    print(text)


def arguments() -> argparse.Namespace:
    def among(known: Any) -> Any:
        """A list of these names, in their order; a peer's first word will do."""

        def chosen(text: str) -> list[str]:
            found = [name for name in known if any(name.lower().startswith(one.lower()) for one in text.split(","))]
            if not found:
                raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(known)}")
            return found

        return chosen

    parser = argparse.ArgumentParser("python -m benchmarks.peers")
    parser.add_argument("--only", type=among(WORKS), default=list(WORKS), help="works")
    parser.add_argument("--peers", type=among(PEERS), default=list(PEERS), help="ways to train")
    parser.add_argument("--seconds", type=float, default=5.0, help="a run is timed for so long at least")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/peers"))
    parser.add_argument("--envs", type=Path, default=Path.home() / ".cache" / "fedsash" / "peers")
    return parser.parse_args()


if __name__ == "__main__":
    main(arguments())
