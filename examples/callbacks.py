"""A callback of one's own: it shows a line after every evaluation, and stops the run when its time is over.

python examples/callbacks.py
"""

import time
from dataclasses import dataclass
from pathlib import Path

import fedsash as fs


@dataclass(frozen=True)
class Within(fs.Callback):
    """Stops the run when it has been trained for so many `seconds`, in all of its sessions."""

    seconds: float = 60.0

    def evaluation(self, run: fs.extend.LiveRun, scores: list[fs.Score]) -> None:
        values = {score.model: score["accuracy"] for score in scores if score.split == "test"}
        print(f"round {run.round}:", ", ".join(f"{name} {value:.3f}" for name, value in values.items()))
        if run.tally.seconds > self.seconds:
            run.stop(f"{self.seconds:g} seconds are over")


if __name__ == "__main__":
    experiment = fs.load(Path(__file__).parent / "digits.toml")
    began = time.perf_counter()
    stopping = [Within(seconds=2), fs.EarlyStopping(patience=10, model="window50", on="test")]
    print(fs.run(experiment.federation(), experiment.rounds, progress=False, callbacks=stopping))
    print(f"{time.perf_counter() - began:.0f} s")
