"""Answers that take their time, and scores that can't be right."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("flwr")

from fedsash.client.messages import Missing, Reply
from fedsash.evaluation import Evaluation
from fedsash.flower.nodes import wire
from fedsash.server.federation import Federation
from support.by_default import full
from support.flower import assert_same, grid, here, there

LOSS = "clients/loss"
EVERYBODY = Evaluation(clients=True)
LIAR = 2


def test_an_answer_that_comes_before_the_deadline_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, looks = grid(tmp_path), Counter[str]()
    at_once = nodes.pull_messages

    def slowly(message_ids: Iterable[str]) -> list[Any]:
        """Each answer is there at the fifth look."""
        looks.update(ids := list(message_ids))
        return at_once([one for one in ids if looks[one] >= 5])

    with here() as simulated, there(nodes, simulated, deadline=60.0) as world:
        monkeypatch.setattr(nodes, "pull_messages", slowly)
        state, report = world.round(world.start())
        expected, _ = simulated.round(simulated.start())
    assert not report.missing
    assert_same(state, expected)


def answers(folder: Path, change: Callable[[Tensor], Tensor]) -> dict[int, Reply | Missing]:
    """What the server takes of an evaluation in which one node changes its losses, by client."""

    def mod(message: Any, context: Any, call: Any) -> Any:
        reply = call(message, context)
        if message.metadata.message_type == wire.ACTIONS["evaluate"] and context.node_config["partition-id"] == LIAR:
            scores = wire.unpacked(reply.content[wire.UPLOAD])
            reply.content[wire.UPLOAD] = wire.packed(scores | {LOSS: change(scores[LOSS])})
        return reply

    with there(grid(folder, mods=[mod]), here(evaluation=EVERYBODY)) as world:
        found = list(world.executor.work(_evaluation(world)))
    return {int(place): one for one in found for place in one.places if isinstance(one, Reply | Missing)}


def _evaluation(world: Federation) -> Any:
    """The request of an evaluation of the first model."""
    requests: list[Any] = []

    def ask(request: Any) -> Any:
        requests.append(request)
        return world.executor.work(request)

    world._evaluator.evaluate(world.start().w, 0, "model", ask)
    return requests[0]


def test_scores_of_which_a_metric_makes_nothing_do_not_end_the_run_if_all_nodes_send_them(tmp_path: Path) -> None:
    def mod(message: Any, context: Any, call: Any) -> Any:
        reply = call(message, context)
        if message.metadata.message_type == wire.ACTIONS["evaluate"]:
            scores = wire.unpacked(reply.content[wire.UPLOAD])
            reply.content[wire.UPLOAD] = wire.packed({n: v if n == LOSS else v[:, :0] for n, v in scores.items()})
        return reply

    with there(grid(tmp_path, mods=[mod]), here(evaluation=EVERYBODY)) as world:
        assert [metrics.split for metrics in world.evaluate(world.start())] == ["test"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda losses: losses + torch.tensor([0.0, 1e6]), "has scored other numbers of samples in clients"),
        (lambda losses: losses * torch.tensor([float("nan"), 1.0]), "sent scores that are not finite"),
        full(lambda losses: losses.repeat(1, 2), "has scored other numbers of samples in clients"),
        (lambda losses: losses.float(), r"clients/loss is float32 \[1, 2\]: must be float64"),
        full(lambda losses: losses.sum(), r"clients/loss is float64 \[\]: must be float64"),
    ],
    ids=["more samples", "nan", "longer", "type", "shape"],
)
def test_scores_that_can_not_be_right_are_missing_by_reason(
    change: Callable[[Tensor], Tensor], why: str, tmp_path: Path
) -> None:
    found = answers(tmp_path, change)
    (missing,) = (one for one in found.values() if isinstance(one, Missing))
    assert found[LIAR] is missing and re.search(why, missing.why), missing.why
