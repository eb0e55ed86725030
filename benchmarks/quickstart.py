"""What the averages of examples/flower/quickstart come to, with its server and its ten nodes in one process.

    python -m benchmarks.quickstart

Each trial chooses other nodes. The accuracies are means over the last ten of 40 rounds, in percent.
"""

from __future__ import annotations

import logging
import random
import sys
from pathlib import Path
from statistics import mean, stdev
from types import ModuleType
from typing import Any
from unittest.mock import patch

APP = Path(__file__).parents[1] / "examples" / "flower" / "quickstart"
SERVER = APP / "quickstart" / "server_app.py"
NODES = 10
ROUNDS = 40
LAST = 10
TRIALS = 3
SHOWN = {"model": "model/accuracy", "window": "accuracy", "EMA": "ema/accuracy"}


def run(source: str, trial: int) -> Any:
    """The result of a server app with this source, whose strategy chooses nodes by the number of the trial."""
    from flwr.app import Context, RecordDict
    from flwr.serverapp.strategy import Strategy

    from fedsash.testing.grid import InProcessGrid

    if str(APP) not in sys.path:
        sys.path.append(str(APP))
    from quickstart import client_app  # type: ignore[import-not-found]

    results: list[Any] = []
    start = Strategy.start
    server = ModuleType("server_app")
    exec(compile(source, str(SERVER), "exec"), vars(server))
    context = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={"num-server-rounds": ROUNDS})
    configs = {100 + node: {"partition-id": node, "num-partitions": NODES} for node in range(NODES)}
    random.seed(trial)
    with patch.object(Strategy, "start", lambda *given, **more: results.append(start(*given, **more)) or results[-1]):
        server.app(InProcessGrid(client_app.app, configs), context)
    return results[-1]


def accuracies(source: str, trial: int) -> dict[str, float]:
    """The mean accuracy over the last rounds, by the names that the server gives."""
    rows = run(source, trial).evaluate_metrics_serverapp
    return {name: mean(rows[round][name] for round in range(ROUNDS - LAST + 1, ROUNDS + 1)) for name in rows[ROUNDS]}


def main() -> None:
    logging.disable(logging.WARNING)  # Flower tells of each round
    found = [accuracies(SERVER.read_text(), trial) for trial in range(TRIALS)]
    print(f"{'':8} {' '.join(f'trial {trial}' for trial in range(TRIALS))}    mean   +-")
    for name, key in SHOWN.items():
        each = [100 * one[key] for one in found]
        print(f"{name:8} {' '.join(f'{value:7.1f}' for value in each)} {mean(each):7.1f} {stdev(each):5.1f}")


if __name__ == "__main__":
    main()
