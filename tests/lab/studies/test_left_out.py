"""Studies of a run on a network know whose upload arrived: late clients are in no mean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedsash.lab.studies.client_studies import shared_rounds, trained_alike
from fedsash.lab.studies.coverage import CoverageStudy
from fedsash.lab.studies.opened import OpenRun, open_run
from fedsash.lab.studies.window import WindowStudy, client_weights, participation
from fedsash.runs.records import Records
from fedsash.settings.errors import RunError
from support.studies import ENGINE, fedsash, refused

ROUNDS = 8
LATE = f"""
rounds = {ROUNDS}
checkpoint.keep = {list(range(1, ROUNDS))}
partition = {{ name = "shards", clients = 10, classes = 1 }}
sampling.count = 4
averages.w = {{ name = "window", size = {ROUNDS} }}
scheduler = {{ name = "synchronous", deadline = 5.0 }}
network.clients = {{ seconds = 1.0, stragglers = 0.4, slower = 100 }}
{ENGINE}"""
"""Stragglers need a hundred times as long as the deadline allows: none of their uploads arrives."""


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenRun]:
    folder = tmp_path_factory.mktemp("late")
    (folder / "late.toml").write_text(LATE)
    assert fedsash("network", folder / "late.toml", "--out", folder / "run", "--no-progress") == 0
    run = open_run(folder / "run")
    yield run
    run.close()


def arrived(run: OpenRun, t: int) -> list[int]:
    """The clients whose upload round t used, by the run's own records."""
    federation = run.federation
    row = next((row for row in Records(run.folder).load().rows() if (row["split"], row["round"]) == ("guard", t)), {})
    asked = federation.sampling.clients(t - 1, federation.sizes, federation.seed).tolist()
    return [client for client in asked if str(client) not in row.get("missing", {})]


def test_the_mean_of_the_clients_that_arrived_is_the_next_model(late: OpenRun) -> None:
    """Where all are late, the model stays."""
    for t in range(1, ROUNDS):
        if not arrived(late, t + 1):
            assert torch.equal(late.model(f"round:{t}"), late.model(f"round:{t + 1}"))
            continue
        clients = late.client_models(t)
        assert clients.ids.tolist() == arrived(late, t + 1)
        torch.testing.assert_close(clients.mean, late.model(f"round:{t + 1}"))
    assert any(late.left_out.values()), "without late clients this says nothing"


def test_late_clients_have_no_weight_in_a_window(late: OpenRun) -> None:
    p = participation(late.federation, ROUNDS, late.left_out)
    assert [np.flatnonzero(row).tolist() for row in p.numpy()] == [sorted(arrived(late, t + 1)) for t in range(ROUNDS)]
    weights = client_weights(range(1, ROUNDS + 1), p).sum(0)
    torch.testing.assert_close(WindowStudy("w").measure([late])["clients"], weights)
    ever = {client for t in range(ROUNDS) for client in arrived(late, t + 1)}
    assert 0 < len(ever) < len(late.federation.sizes)
    assert set(np.flatnonzero(weights.numpy()).tolist()) == ever


def test_the_samples_of_late_clients_are_not_seen(late: OpenRun) -> None:
    sizes = late.federation.sizes
    ever = sorted({client for t in range(ROUNDS) for client in arrived(late, t + 1)})
    found = CoverageStudy(sizes=(ROUNDS,)).measure([late])
    assert found["share"][0][-1] == pytest.approx(sizes[ever].sum() / sizes.sum())


def test_runs_train_alike_without_the_late_clients(late: OpenRun) -> None:
    first, second = trained_alike([late, late], 1)
    assert first.ids.tolist() == second.ids.tolist() == arrived(late, 2)


def test_a_round_that_nobody_reached_is_left_out_and_named_where_it_is_asked_for(late: OpenRun) -> None:
    other = replace(late)
    other.__dict__["left_out"] = late.left_out | {3: set(range(10))}
    assert set(shared_rounds([late], None)) - set(shared_rounds([other], None)) == {2}
    with pytest.raises(RunError, match="round 3 used no client's upload"):
        other.client_models(2)


def test_a_late_client_is_not_among_a_rounds_clients(late: OpenRun, capsys: pytest.CaptureFixture[str]) -> None:
    t, client = next((t, min(out)) for t, out in late.left_out.items() if t > 1 and arrived(late, t))
    message = refused(capsys, "landscape", late.folder, "--models", f"model,client:{client}@{t - 1}", "--points", 2)
    assert "take part" in message
