"""A private run: what it records of its clients' privacy, what it says, and which runs may go on from it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsash import Checkpoint, Evaluation, Federation, Fork, Private, RunError, Window, resume, run
from fedsash.lab.report.collect import collect
from fedsash.lab.report.page.document import document
from fedsash.methods import Adaptive
from fedsash.methods.sampling import Poisson
from fedsash.methods.server_optimisers import FedAdam
from fedsash.vector.saved import StateError
from support.private import UNIFORM
from support.worlds import federation

EVERY = Evaluation(every=2, last=1, target=0.3)


def private(**settings: Any) -> Federation:
    defaults = {"method": UNIFORM, "aggregation": Private(0.2, 2.0), "sampling": Poisson(0.5), "evaluation": EVERY}
    return federation(**defaults | settings)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [row for row in rows if row["split"] == "privacy"]


def test_every_evaluation_records_what_all_rounds_so_far_have_spent(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    world = private(averages={"w2": Window(2)})
    result = run(world, 5, out=tmp_path, progress=False)
    rows = rows_of(tmp_path)
    assert [row["round"] for row in rows] == [2, 4, 5]
    for row in rows:
        spent = world.aggregation.privacy(world.sampling, 6, row["round"])
        assert spent is not None and (row["epsilon"], row["delta"]) == (spent.epsilon, spent.delta)
    last = {name: rows[-1][name] for name in ("round", "epsilon", "delta", "neighbours")}
    assert result.summary["privacy"] == last == json.loads((tmp_path / "summary.json").read_text())["privacy"]
    line = f"privacy after round 5: epsilon = {last['epsilon']:.3g} at delta = 0.14, for one client more or fewer"
    assert line in repr(result)


def test_the_page_has_a_table_of_private_runs(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    run(private(aggregation=Private(0.2, 0.0)), 2, out=tmp_path / "loud", progress=False)
    run(federation(evaluation=EVERY), 2, out=tmp_path / "open", progress=False)
    page = document(collect([tmp_path / "loud", tmp_path / "open"]), "")
    assert "Privacy of the clients" in page and page.count("infinite") == 1
    assert "Privacy of the clients" not in document(collect([tmp_path / "open"]), "")


def test_without_noise_the_run_says_that_nobody_is_protected(tmp_path: Path) -> None:
    result = run(private(aggregation=Private(0.2, 0.0)), 2, out=tmp_path, progress=False)
    assert rows_of(tmp_path)[0]["epsilon"] is None and result.history[-1].epsilon == math.inf
    assert "no client is protected: the noise is 0" in repr(result)


@pytest.mark.parametrize("private_run", [True, False])
def test_scores_of_the_clients_samples_are_said_to_be_unprotected(
    private_run: bool, caplog: pytest.LogCaptureFixture
) -> None:
    shown = Evaluation(every=2, last=1, clients=True, client_test=True, held_out=0.25)
    settings: dict[str, Any] = {"evaluation": shown}
    run(
        private(aggregation=Private(0.2, 0.0), **settings) if private_run else federation(**settings), 1, progress=False
    )
    more = "its scores come from the clients' own samples without noise, so epsilon does not cover them"
    settings_of_it = ("clients = true", "client_test = true", "held_out = 0.25")
    expected = [f"evaluation.{setting}: {more}" for setting in settings_of_it]
    assert caplog.messages == (expected if private_run else [])


@pytest.mark.parametrize("private_run", [True, False])
def test_means_and_deviations_of_the_clients_samples_are_said_to_be_unprotected(
    private_run: bool, caplog: pytest.LogCaptureFixture
) -> None:
    scaled = replace(federation().training_data, feature_scales=((0.0, 1.0),) * 4, feature_names=tuple("abcd"))
    run(private(data=scaled) if private_run else federation(data=scaled), 1, progress=False)
    shown = "its means and deviations come from the clients' own samples without noise, so epsilon does not cover them"
    assert caplog.messages == ([f"data.standardise = true: {shown}"] if private_run else [])


def test_a_resumed_run_goes_on_with_noise_and_clip_norm(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    rule = Private(0.2, 1.0, Adaptive(noise=1.0))
    whole = run(private(aggregation=rule), 6, out=tmp_path / "whole", progress=False)
    run(private(aggregation=rule), 6, out=tmp_path / "cut", until=3, progress=False)
    again = resume(private(aggregation=rule), 6, tmp_path / "cut", progress=False)
    assert whole.state.aggregation == again.state.aggregation and whole.state.w.equal(again.state.w)
    assert rows_of(tmp_path / "whole") == rows_of(tmp_path / "cut")


def test_a_fork_goes_on_counting(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    run(private(), 4, out=tmp_path / "a", progress=False)
    fork = private(server=FedAdam(lr=0.01), local=private().local)
    with pytest.raises(StateError, match="optimiser"):
        run(fork, 6, out=tmp_path / "adam", fork=Fork(tmp_path / "a", 4), progress=False)
    result = run(
        private(averages={"w": Window(2)}), 6, out=tmp_path / "b", fork=Fork(tmp_path / "a", 4), progress=False
    )
    assert result.summary["privacy"] == run(private(), 6, progress=False).summary["privacy"]


@pytest.mark.parametrize(
    ("noise", "seed", "round", "said"), [(1.0, 3, 2, True), (1.0, 4, 2, False), (1.0, 3, 4, False), (0.0, 3, 2, False)]
)
def test_a_fork_that_draws_its_sources_noise_again_says_so(
    noise: float, seed: int, round: int, said: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("dp_accounting")
    source = private(aggregation=Private(0.2, noise), seed=3)
    run(source, 4, out=tmp_path / "a", checkpoint=Checkpoint(keep=(2,)), progress=False)
    run(replace(source, seed=seed), 4, out=tmp_path / "b", fork=Fork(tmp_path / "a", round), progress=False)
    line = f"the fork draws the noise of {tmp_path / 'a'}'s later rounds again: whoever sees models of both can "
    assert any(message.startswith(line) for message in caplog.messages) == said


@pytest.mark.parametrize(
    "settings, what",
    [({"aggregation": Private(0.2, 0.0, delta=0.1)}, "aggregation"), ({"sampling": Poisson(0.9)}, "sampling")],
)
def test_a_fork_with_other_noise_or_sampling_is_refused(settings: dict[str, Any], what: str, tmp_path: Path) -> None:
    base: dict[str, Any] = {"aggregation": Private(0.2, 0.0)}
    run(private(**base), 2, out=tmp_path / "a", progress=False)
    with pytest.raises(RunError, match=f"a fork of a private run must keep its {what}: the accountant adds up equal"):
        run(private(**base | settings), 4, out=tmp_path / "b", fork=Fork(tmp_path / "a", 2), progress=False)
    assert not (tmp_path / "b" / "state").exists()


def test_a_fork_with_other_clients_on_nodes_is_refused() -> None:
    """Of clients on nodes no partition is known, and a share of 10 in 20 is not one of 10 in 100."""
    with pytest.raises(RunError, match="a fork of a private run must keep its clients: the accountant adds up equal"):
        Private(0.2, 1.0).check_composed({"clients": "20 clients"}, {"clients": "100 clients"})


def test_a_run_that_was_not_private_cannot_become_private(tmp_path: Path) -> None:
    run(federation(method=UNIFORM, evaluation=EVERY), 2, out=tmp_path / "a", progress=False)
    with pytest.raises(StateError, match="is of another experiment: aggregation/clip is missing there"):
        run(private(aggregation=Private(0.2, 0.0)), 4, out=tmp_path / "b", fork=Fork(tmp_path / "a", 2), progress=False)
