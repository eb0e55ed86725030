"""`Averaged` around every strategy that Flower ships, against arithmetic by hand in float64."""

from __future__ import annotations

import random

import numpy as np
import pytest

from support.apps import Nodes, arrays, scores, strategies, strategy, vector
from support.by_default import rotated, some
from support.by_hand import NODES, REFUSED, STRATEGIES, Floats

# isort: split
from fedsash import EMA, Broadcast, SettingError, Window
from fedsash.flower import Averaged

ROUNDS = 7
AVERAGES = {"wima": Window(3), "ema": EMA(0.9)}


def by_hand(kind: str, broadcast: Broadcast | None) -> tuple[list[Floats], list[dict[str, Floats]]]:
    """What clients receive in each round, and all models after it."""
    step, model, past, ema = STRATEGIES[kind][1](), np.zeros(5), [], np.zeros(5)
    sent, found = [], []
    for round in range(1, ROUNDS + 1):
        send = model
        if broadcast is not None and round > broadcast.start:  # type: ignore[operator]
            send = found[-1][broadcast.averages[0]]
        sent.append(send)
        model = step(send, round)
        past = [*past, model][-3:]
        ema = model if round == 1 else 0.9 * ema + 0.1 * model
        found.append({"model": model, "wima": np.mean(past, axis=0), "ema": ema})
    return sent, found


def test_each_strategy_that_this_flower_ships_is_tested_or_refused() -> None:
    shipped = [name for name in strategies.__all__ if isinstance(getattr(strategies, name), type)]
    found = {n for n in shipped if issubclass(getattr(strategies, n), strategies.Strategy)} - {"Strategy"}
    assert found == {*STRATEGIES, *REFUSED}


@pytest.mark.parametrize(
    "kind, broadcast", rotated(STRATEGIES, [None, Broadcast("wima"), Broadcast("ema", start=3)], turns=9)
)
def test_clients_receive_and_everybody_evaluates_what_arithmetic_by_hand_says(
    kind: str, broadcast: Broadcast | None
) -> None:
    nodes, averaged = Nodes(kind), Averaged(strategy(kind), AVERAGES, "wima", broadcast)
    result = averaged.start(nodes.grid, arrays(np.zeros(5)), ROUNDS, evaluate_fn=scores)
    sent, found = by_hand(kind, broadcast)
    for round, (send, models) in enumerate(zip(sent, found, strict=True), start=1):
        received = nodes.received[(round - 1) * NODES : round * NODES]
        seen = result.evaluate_metrics_serverapp[round]
        at_clients = nodes.evaluated[(round - 1) * NODES : round * NODES]
        assert np.allclose(received, send, rtol=1e-12, atol=1e-12)
        assert np.allclose(at_clients, models["wima"], rtol=1e-12, atol=1e-12)
        assert set(seen) == {"z", "model/z", "ema/z"}
        for name, key in {"wima": "z", "model": "model/z", "ema": "ema/z"}.items():
            assert np.allclose(seen[key], models[name], rtol=1e-12, atol=1e-12)
    assert np.array_equal(vector(result.arrays), result.evaluate_metrics_serverapp[ROUNDS]["z"])
    for name in ("model", "wima", "ema"):
        assert np.allclose(vector(averaged.value(name)), found[-1][name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", some(STRATEGIES, "FedAdam", "Krum"))
def test_without_a_broadcast_the_training_is_bitwise_that_without_averages(kind: str) -> None:
    alone, observed = Nodes(kind), Nodes(kind)
    random.seed(1)  # Flower draws the order of the nodes, on which the last digits of a sum depend
    plain = strategy(kind).start(alone.grid, arrays(np.zeros(5)), ROUNDS, evaluate_fn=scores)
    random.seed(1)
    result = Averaged(strategy(kind), Window(3), serve="model").start(
        observed.grid, arrays(np.zeros(5)), ROUNDS, evaluate_fn=scores
    )
    assert np.array_equal(alone.received, observed.received)
    assert np.array_equal(alone.evaluated, observed.evaluated)
    assert np.array_equal(vector(plain.arrays), vector(result.arrays))
    assert plain.train_metrics_clientapp == result.train_metrics_clientapp


@pytest.mark.parametrize("kind", REFUSED)
def test_trees_are_refused_also_inside_a_wrapper(kind: str) -> None:
    trees = getattr(strategies, kind)()
    wrapped = strategies.DifferentialPrivacyServerSideFixedClipping(trees, 0.0, 1.0, 2)
    for each in (trees, wrapped):
        with pytest.raises(SettingError, match=f"^Averaged.strategy = {kind}: its model is trees in bytes"):
            Averaged(each, Window(3))
