"""Metrics to MLflow or Weights & Biases: a callback gets `(round, metrics)` after every evaluation.

python examples/callbacks.py mlflow    (pip install mlflow)
python examples/callbacks.py wandb     (pip install wandb)
"""

import sys
from collections.abc import Callable
from pathlib import Path

import fedsash as fs
from fedsash.evaluation import Metrics
from fedsash.lab.config import load


def numbers(metrics: list[Metrics]) -> dict[str, float]:
    """All metrics of all models by name, such as "window50/test/accuracy"."""
    return {f"{m.model}/{m.split}/{name}": value for m in metrics for name, value in m.values.items()}


def to_mlflow() -> Callable[[int, list[Metrics]], None]:
    import mlflow

    mlflow.start_run()
    return lambda round, metrics: mlflow.log_metrics(numbers(metrics), step=round)


def to_wandb() -> Callable[[int, list[Metrics]], None]:
    import wandb

    run = wandb.init(project="fedsash")
    return lambda round, metrics: run.log(numbers(metrics), step=round)


if __name__ == "__main__":
    callback = {"mlflow": to_mlflow, "wandb": to_wandb}[sys.argv[1]]()
    experiment = load(Path(__file__).parent / "digits.toml")
    fs.run(experiment.federation(), experiment.rounds, callbacks=[callback])
