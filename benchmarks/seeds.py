"""The main job over five seeds: does the gain hold, whatever the draw of clients, data split and first model?

    python -m benchmarks.seeds

Prints, for the model, each average and IMA, the mean over the seeds of the last ten rounds' mean accuracy, its range,
and the mean of the deviation over those ten rounds.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

import fedsash as fs
from fedsash.lab.config import load

EXAMPLES = Path(__file__).parents[1] / "examples"
SEEDS = range(5)
START = 225


def last_rounds(seed: int, folder: Path) -> dict[str, tuple[float, float]]:
    """Each model's mean and deviation over the last rounds, in per cent; `ima` is what the second run broadcasts."""
    found = {}
    for name, fork in (("digits", None), ("digits_ima", fs.Fork(folder / "digits", START))):
        experiment = load(EXAMPLES / f"{name}.toml", [f"seed={seed}"])
        result = fs.run(
            experiment.federation(),
            experiment.rounds,
            out=folder / name,
            checkpoint=experiment.checkpoint,
            fork=fork,
            progress=False,
        )
        models = result.summary["models"]
        models = {"ima": models["window5"]} if fork else models
        found |= {name: (100 * m["last_mean"], 100 * m["last_std"]) for name, m in models.items()}
    return found


def main() -> None:
    means = defaultdict(list)
    deviations = defaultdict(list)
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            for name, (mean, deviation) in last_rounds(seed, Path(folder)).items():
                means[name].append(mean)
                deviations[name].append(deviation)
    print(f"{'':10} accuracy  (lowest to highest)  deviation over rounds  gain over the model")
    for name, values in means.items():
        gain = np.subtract(values, means["model"])
        print(
            f"{name:10} {np.mean(values):6.1f} %  ({min(values):.1f} to {max(values):.1f} %)"
            f" {np.mean(deviations[name]):18.1f} {np.mean(gain):+17.1f} ({min(gain):+.1f} to {max(gain):+.1f})"
        )


if __name__ == "__main__":
    main()
