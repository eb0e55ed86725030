"""The samples that a window's rounds have seen: by hand, against sets, against what is expected, and in a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsash.lab.studies.coverage import CoverageStudy, covered, expected, label_distance
from fedsash.lab.studies.opened import OpenRun
from fedsash.methods.sampling import Poisson, Uniform, Weighted
from support.studies import ROUNDS, analysis, fedsash, refused
from support.worlds import SIZES, data, federation

CLIENTS = [np.array([0, 1]), np.array([2]), np.array([1, 3])]  # sample 1 has two holders
THERE = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 1]], dtype=np.bool_)


def test_windows_of_one_round_have_its_clients_samples() -> None:
    seen = covered(CLIENTS, THERE, 1)
    assert [np.flatnonzero(row).tolist() for row in seen] == [[0, 1], [2], [], [1, 3], [0, 1, 3]]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9])
def test_a_window_has_the_union_of_its_rounds(size: int) -> None:
    for t, row in enumerate(covered(CLIENTS, THERE, size)):
        who = THERE[max(t + 1 - size, 0) : t + 1].any(0)
        union = {int(sample) for i in np.flatnonzero(who) for sample in CLIENTS[i]}
        assert set(np.flatnonzero(row).tolist()) == union


def test_the_distance_of_labels_is_their_total_variation_by_hand() -> None:
    """Of labels 5, 5, 7, 9 all four have shares 1/2, 1/4, 1/4; the first two alone differ by (1/2 + 1/4 + 1/4) / 2."""
    seen = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0]], dtype=np.bool_)
    assert label_distance(np.array([5, 5, 7, 9]), seen).tolist() == [0.5, 0, 0.5, 1]


def test_the_expected_share_is_one_less_the_chance_to_be_missed_in_every_round() -> None:
    f = federation(sampling=Uniform(3, dropout=0.5))
    asked = 3 / len(SIZES) / 2
    assert expected(f, 1) == pytest.approx(asked) and expected(f, 4) == pytest.approx(1 - (1 - asked) ** 4)
    assert expected(federation(sampling=Poisson(0.2)), 2) == pytest.approx(0.36)


def test_nothing_is_expected_where_clients_are_preferred_follow_a_trace_or_share_samples() -> None:
    assert expected(federation(sampling=Weighted(2)), 5) is None
    trace = np.ones((2, len(SIZES)), dtype=np.bool_)
    assert expected(federation(sampling=Uniform(2, trace=trace)), 5) is None
    shared = replace(data(), clients=[[0, 1], [1, 2], [3]])
    assert expected(federation(data=shared, sampling=Uniform(1)), 5) is None


def test_uniform_sampling_covers_what_is_expected_over_many_rounds() -> None:
    clients, rng = [np.array([i]) for i in range(20)], np.random.default_rng(0)
    there = np.array([rng.permutation(20) < 4 for _ in range(4_000)])
    for size in (1, 3, 10):
        share = covered(clients, there, size)[size - 1 :].mean()
        assert share == pytest.approx(1 - 0.8**size, abs=0.01)


# --- in a run -----------------------------------------------------------------------------------------------------


def test_a_run_with_clients_of_equal_size_covers_the_share_of_its_clients(opened: OpenRun) -> None:
    """Five clients hold every fifth sample, three take part in a round."""
    found = CoverageStudy().measure([opened])
    n = len(opened.federation.training_data.train)
    assert found["sizes"] == [1, 2, 5] and found["rounds"] == list(range(1, ROUNDS + 1))
    assert found["share"][0] == pytest.approx([0.6] * ROUNDS, abs=2 / n)
    assert (np.diff(found["share"], axis=0) >= 0).all(), "a longer window sees no less"
    assert found["expected"] == pytest.approx([0.6, 0.84, 1 - 0.4**5])
    assert 0 < found["distance"][0].max() < 0.1, "every client has a fifth of each label"


def test_the_command_writes_what_the_study_finds(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedsash("coverage", run, "--sizes", "1,3", "--name", "c") == 0
    assert "samples" in capsys.readouterr().out
    assert analysis(run, "c")["sizes"] == [1, 3] and (run / "analyses" / "c.png").exists()
    assert "--sizes = 7: must be at most the run's 6 rounds" in refused(capsys, "coverage", run, "--sizes", "3,7")
    assert "--sizes = 0: must be" in refused(capsys, "coverage", run, "--sizes", 0)
