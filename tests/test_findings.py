"""The findings' statistics by hand, and the steps from a sweep to its tables."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from benchmarks import classes, feedback, ten_rounds, zoo
from benchmarks.paired import Gain, gain, holm, picture
from benchmarks.zoo import Place, Settings
from examples.findings.published_draw import LEAST, Split, cohort
from examples.findings.small_shards import SmallShards
from examples.findings.summed import SummedScaffold

from fedsash.lab import sweeps
from fedsash.lab.papers.ima_claims import CLAIMS as IMA
from fedsash.lab.papers.ima_claims import lengths
from fedsash.lab.papers.ledger import Ledger
from fedsash.lab.papers.numbers import Numbers
from fedsash.methods.sampling import Function, Uniform
from fedsash.testing import check_partition, close
from support.places import ROOT
from support.studies import fedsash
from support.worlds import after, federation

PLACE = Place("digits", "0.5")


def test_in_one_setting_the_gain_is_students_paired_test() -> None:
    from scipy import stats

    apart = np.array([0.5, 1.5, 1.0, 2.0, 0.0])
    found, theirs = gain([apart]), stats.ttest_1samp(apart, 0)
    low, high = theirs.confidence_interval()
    assert (found.mean, found.p) == (pytest.approx(1.0), pytest.approx(theirs.pvalue))
    assert (found.mean - found.half, found.mean + found.half) == (pytest.approx(low), pytest.approx(high))


def test_settings_count_equally_and_equal_deviations_have_all_degrees_of_freedom() -> None:
    """Two settings of three seeds with deviation 1: the standard error is sqrt(1/3 + 1/3) / 2, with four degrees."""
    from scipy import stats

    found = gain([np.array([1.0, 2.0, 3.0]), np.array([5.0, 6.0, 7.0])])
    error = np.sqrt(2 / 3) / 2
    assert (found.mean, found.half) == (pytest.approx(4.0), pytest.approx(stats.t.ppf(0.975, 4) * error))
    assert found.p == pytest.approx(2 * stats.t.sf(4 / error, 4))


def test_a_picture_joins_no_places_and_has_each_gain_with_its_interval() -> None:
    rows = {"one": [Gain(1.0, 0.5, 0.1), Gain(2.0, 0.2, 0.1)], "other": [Gain(-1.0, 0.5, 0.1)] * 2}
    _, *lines = picture("t", ["a", "b"], rows).panels[0].layers
    assert [line.y for line in lines] == [[1.0, None, 2.0, None], [-1.0, None, -1.0, None]]  # type: ignore[union-attr]
    assert [line.errors for line in lines] == [[0.5, None, 0.2, None], [0.5, None, 0.5, None]]  # type: ignore[union-attr]


def test_what_never_varies_is_certain() -> None:
    assert gain([np.ones(3)]) == Gain(1.0, 0.0, 0.0) and gain([np.zeros(3)]) == Gain(0.0, 0.0, 1.0)


def test_holms_procedure_by_hand() -> None:
    """Ascending 0.01, 0.02, 0.03 of three: times 3, 2 and 1, none below the one before it; at most 1."""
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.6, 0.7]) == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(
    "without, windowed, found",
    [
        ((2.0, 1.0, 0.2), (2.0, 1.0, 0.001), "no gain shown"),
        ((-2.0, 1.0, 0.001), (2.0, 1.0, 0.001), "no gain shown"),
        ((2.0, 1.0, 0.01), (1.0, 0.5, 0.01), "left"),
        ((2.0, 1.0, 0.01), (0.1, 0.8, 0.9), "gone"),
        ((2.0, 1.0, 0.01), (-1.0, 0.5, 0.01), "gone"),
        ((2.0, 1.0, 0.01), (0.5, 0.6, 0.1), "undecided"),
    ],
)
def test_the_verdicts_are_those_of_the_plan(
    without: tuple[float, ...], windowed: tuple[float, ...], found: str
) -> None:
    (a, b, p), (c, d, q) = without, windowed
    assert zoo.verdict((Gain(a, b, p), p), (Gain(c, d, q), q)) == found


def test_the_final_sweep_has_what_was_chosen_once_with_other_seeds() -> None:
    prox = Settings("FedProx 0.1", "0.03")
    chosen = {
        (PLACE, "FedAvg", "model"): Settings("FedAvg", "0.3"),
        (PLACE, "FedProx", "model"): prox,
        (PLACE, "FedProx", "w20"): prox,
    }
    runs = sweeps.parse(zoo.final(chosen), ROOT).runs
    assert len(runs) == 2 * len(zoo.SEEDS)
    tuned = {run.labels["seed"] for run in sweeps.load(zoo.SWEEP, ["method=FedAvg", "data=digits"]).runs}
    assert tuned.isdisjoint({run.labels["seed"] for run in runs})
    experiment = runs[1].experiment
    assert experiment.method.mu == 0.1 and experiment.local.lr == 0.03  # type: ignore[attr-defined]
    assert experiment.partition.alpha == 0.5  # type: ignore[union-attr]


def test_the_published_draw_deals_each_sample_once_and_everybody_enough() -> None:
    labels = np.random.default_rng(0).integers(0, 5, 600)
    clients = Split(20, 0.5)(labels, seed=0)
    assert sorted(np.concatenate(clients)) == list(range(600)) and min(map(len, clients)) >= LEAST
    check_partition(Split(20, 0.5))
    assert len(Function(cohort).clients(0, np.ones(100, dtype=np.int64), 0)) == 10


def test_small_shards_have_one_class_each_and_as_many_images_as_they_are_told() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 100))
    clients = SmallShards(clients=10, shard=20)(labels, seed=0)
    assert [len(np.unique(client)) for client in clients] == [40] * 10
    assert all(set(np.bincount(labels[client])) <= {0, 20, 40} for client in clients)
    whole = np.concatenate(clients)
    assert len(np.unique(whole)) == 400 and set(np.bincount(labels[whole])) == {40}
    dealt = SmallShards(clients=10, shard=20, iid=True)(labels, seed=0)
    assert sorted(np.concatenate(dealt)) == sorted(whole) and min(map(len, dealt)) == 40


def test_summed_variates_are_n_times_their_mean() -> None:
    state = after(federation(method=SummedScaffold(), sampling=Uniform(2)), 3)
    assert close(state.server_state["c"], state.client_state["c"].sum(0), 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, count",
    [
        ("zoo", 2 * 3 * 2 * 4 * 50),
        ("feedback", 5 * 2 * 6 * 4),
        ("observing", 5 * 5 * 2 * 3 * 6),
        ("scaffold", 2 * 4 * 4),
        ("normalisation", 3 * 3),
        ("participation", 3 * 2),
        ("summed", 9),
        ("at_chance", 2 * 3 * 3),
    ],
)
def test_the_sweeps_load(name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # where a network of the project's examples is found
    assert len(sweeps.load(ROOT / "examples" / "findings" / f"{name}.toml", own_code=True).runs) == count


@pytest.mark.slow
def test_the_tables_of_the_zoo_follow_from_its_two_sweeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--no-progress", "--jobs", 1, "--set", "rounds=3", "--set", "evaluation.last=2"]
    only = ["data=digits", "alpha=0.5", "rate=0.03", "rate=0.1", "method=FedAvg", "method=FedProx 0.1"]
    chosen_from = [word for choice in only for word in ("--only", choice)]
    assert fedsash("sweep", zoo.SWEEP, "--out", tmp_path / "tuning", *chosen_from, *short) == 0
    found = zoo.chosen(tmp_path / "tuning")
    assert set(found) == {(PLACE, method, model) for method in ("FedAvg", "FedProx") for model in ("model", "w20")}
    assert {settings.rate for settings in found.values()} == {"0.1"}, "after three rounds the larger rate is ahead"
    (tmp_path / "final.toml").write_text(tomli_w.dumps(zoo.final(found)))
    assert fedsash("sweep", tmp_path / "final.toml", "--out", tmp_path / "final", *short) == 0
    results = zoo.Results(found, tmp_path / "final")
    assert results.accuracy(PLACE, "FedAvg", "w50").shape == (5,)
    rows = list(zoo.gains(results))
    assert [row.split(" | ")[0] for row in rows[2:]] == ["| FedProx", "| mean of all"]
    assert len(list(zoo.levels(results, PLACE))) == 4
    assert list(zoo.drawn(results).panels[0].x.ticks.values()) == ["FedProx"]  # type: ignore[union-attr]


@pytest.mark.slow
def test_the_differences_between_the_arms_follow_from_the_sweep(tmp_path: Path) -> None:
    file = ROOT / "examples" / "findings" / "feedback.toml"
    short = ["--no-progress", "--jobs", 1, "--set", "rounds=3", "--set", "evaluation.last=2"]
    only = [word for label in ("alpha=0.5", "method=FedAvg", "seed=0", "seed=1") for word in ("--only", label)]
    assert fedsash("sweep", file, "--out", tmp_path, *only, *short) == 0
    found = feedback.accuracies(tmp_path)
    assert len(found) == 4 * 3 and all(values.shape == (2,) for values in found.values())
    assert len(list(feedback.levels(found))) == 3
    rows = list(feedback.differences(found))
    assert len(rows) == 2 + len(feedback.COMPARED)
    assert "+0.00 ± 0.00 | 1" in rows[4], "arms with equal models until round 225"
    feedback.main(tmp_path, tmp_path / "x.png")
    assert (tmp_path / "x.png").exists()


def test_on_images_each_difference_is_paired_by_seed_and_averaged_over_places() -> None:
    found = {}
    for place, higher in (("MNIST", 1.0), ("Fashion-MNIST", 3.0)):
        for arm in ("off", "IMA", "mild", "feedback", "IMA early", "mild early"):
            for model in ("model", "window5", "window20", "swa_early", "swa_late"):
                more = higher if (arm, model) == ("off", "window20") else 0.0
                found["FedAvg", place, arm, model] = np.array([80.0, 85.0, 81.0]) + more
    rows = feedback.compared(found)
    assert list(rows) == list(feedback.COMPARED_ON_IMAGES)
    assert [str(whole) for whole, _ in rows.values()] == ["+2.00 ± 0.00", *["+0.00 ± 0.00"] * 6]


Cells = dict[feedback.Cell, np.ndarray]


def test_a_place_that_lacks_a_seed_or_an_arm_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    cells = product(["FedAvg", "FedProx"], ["MNIST", "CIFAR-10", "digits"], ["off", "IMA"], ["model"])
    found = {cell: np.zeros(3) for cell in cells}
    found["FedProx", "CIFAR-10", "IMA", "model"] = np.zeros(2)
    del found["FedAvg", "digits", "IMA", "model"]
    assert {place for _, place, _, _ in feedback.whole_places(found)} == {"MNIST"}
    assert capsys.readouterr().out.splitlines() == [
        f"left out, as it is not finished: {x}" for x in ("CIFAR-10", "digits")
    ]


def of_two_places(late: float, early: float) -> tuple[Cells, Cells]:
    """Accuracies of two seeds, one point higher with early IMA, and rounds: MNIST reaches the target first."""
    arms = ("IMA early", "mild early", "IMA", "mild")
    cells = list(product(["FedAvg"], ["MNIST", "Fashion-MNIST"], arms, ("model", "window5", "swa_early", "swa_late")))
    found = {cell: np.array([80.0, 85.0]) + (cell[2] == "IMA early") for cell in cells}
    reached = {cell: np.array([np.nan, early if cell[1] == "MNIST" else late]) for cell in cells}
    return found, reached


def test_what_is_fed_back_is_compared_with_the_same_window_that_observes() -> None:
    tables = feedback.evidence(*of_two_places(late=280.0, early=200.0), rounds=300)
    more = tables["D10"]["accuracy"].at(model="fed back") - tables["D10"]["accuracy"].at(model="observed")
    assert {key: quantity.mean for key, quantity in more.items()} == {("200",): 1.0, ("300",): 0.0}
    rounds = tables["D15"]["rounds"]
    assert rounds["200", "SWA"].values == (301.0, 240.0)
    assert rounds["300", "SWA"].values == (301.0, 280.0), "MNIST has reached it in round 200, before the start in 225"


def test_rounds_to_a_target_that_all_reach_before_the_start_are_not_known_and_decide_nothing(tmp_path: Path) -> None:
    tables = feedback.evidence(*of_two_places(late=100.0, early=100.0), rounds=300)
    assert np.isnan(tables["D10"]["rounds"]["300", "observed"].values).all()
    feedback.enter(tmp_path, tables, *of_two_places(100.0, 100.0)[:1], rounds=300)
    ((_, finding),) = Ledger(tmp_path).judged("IMA", IMA["D10"])
    assert finding.holds is None


def test_the_lengths_of_runs_go_through_a_ledger_with_their_seeds(tmp_path: Path) -> None:
    """Else rounds of several seeds, which are compared with them, would be left with one."""
    seeds = ("0", "1", "2")
    rounds = {
        ("FedAvg", start): dict(zip(seeds, values, strict=True))
        for start, values in (("150", (200.0, 210.0, 205.0)), ("FMA", (390.0, 391.0, 401.0)))
    }
    evidence = {"rounds": Numbers.measured(("method", "start"), rounds), "length": lengths(400, seeds)}
    finding = Ledger(tmp_path).enter_own("IMA", IMA["F8"], evidence, "ours: three seeds", "a command")
    assert "seeds that a verdict needs" not in finding.words


def test_a_seed_that_misses_the_target_is_the_slowest_in_the_median() -> None:
    found = {("FedAvg", "MNIST", *cell): np.array([30.0, np.nan, 10.0]) for cell in feedback.TIMED}
    found["FedAvg", "MNIST", "off", "model"] = np.array([np.nan, np.nan, 10.0])
    assert list(feedback.times(found))[2] == "| FedAvg | MNIST | not reached" + " | 30" * 8 + " |"


def test_means_of_ten_rounds_and_how_often_a_run_is_ahead() -> None:
    rising, other = np.arange(12.0), np.array([0.0] * 10 + [30.0, 60.0])
    assert ten_rounds.means(rising) == pytest.approx([4.5, 5.5, 6.5])
    assert ten_rounds.ahead(rising, other) == (2, 3, pytest.approx(4.5))


def test_the_lowest_class_is_that_of_each_round_and_the_deviation_that_of_a_class() -> None:
    values = np.array([[10.0, 50.0], [30.0, 20.0]])
    assert classes.summary(values) == (15.0, pytest.approx(12.5))
