"""A federation whose averages are now better than its model, now worse, and broadcasts that choose among them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fedsash.averages import EMA, Window
from fedsash.client import LocalTraining
from fedsash.evaluation import Evaluation
from fedsash.runs.tally import Best, best_after
from fedsash.server.broadcast import Broadcast
from fedsash.server.federation import Federation
from fedsash.server.state import State
from support.worlds import federation

AVERAGES = {"wima": Window(3), "ema": EMA(0.7)}
EVERY = Evaluation(every=1, last=1, held_out=0.4)
ALONE = Broadcast("wima", "auto", patience=2)
BOTH = Broadcast(("wima", "ema"), "auto", patience=2)
EITHER = Broadcast(("wima", "ema"), 3)
ADAPTIVE = {"start": ALONE, "start and average": BOTH, "average": EITHER}


def noisy(**settings: Any) -> Federation:
    """A federation whose model jumps about, so that an average of it is now better than it, now worse."""
    defaults = {"local": LocalTraining(lr=2.0, batch=5, epochs=2), "averages": AVERAGES, "evaluation": EVERY}
    return federation(**defaults | settings)


def best_models(f: Federation, rounds: int) -> dict[str, Best]:
    """The best model of each name in a run that evaluates every round."""
    best: dict[str, Best] = {}
    with f:
        state = f.start()
        for _ in range(rounds):
            state, _ = f.round(state)
            metrics = f.evaluate(state)
            best = best_after(best, f, state, metrics)
            state, _ = f.learn(state, metrics)
    return best


def walk(f: Federation, rounds: int, evaluations: int = 1) -> tuple[list[Tensor], list[list[Any]], State]:
    """The model after each round, what each evaluation gave, and the last state."""
    models, results = [], []
    with f:
        state = f.start()
        for _ in range(rounds):
            state, _ = f.round(state)
            models.append(state.w.clone())
            for _ in range(evaluations):
                metrics = f.evaluate(state)
                state, more = f.learn(state, metrics)
                results.append(metrics + more)
    return models, results, state
