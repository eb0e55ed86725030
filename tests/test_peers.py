"""The comparison with other simulators: what all are given, how a round is timed, what the measurements come to."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import gpu
from benchmarks.peers import table
from benchmarks.peers.clock import Clock, Enough
from benchmarks.peers.modules import MODULES, Shakespeare, final_loss, trained
from benchmarks.peers.processes import Failed, Peer
from benchmarks.peers.works import WORKS, Given

from fedsash import models


@pytest.fixture
def given(tmp_path: Path) -> Given:
    WORKS["W1"].write(tmp_path)
    np.savez(tmp_path / "weights.npz", *(p.detach().numpy() for p in trained(MODULES["W1"]())))
    return Given("W1", str(tmp_path))


def test_the_arrays_of_a_work_are_the_same_each_time() -> None:
    for name in ("W1", "W6"):
        first, second = WORKS[name].arrays(), WORKS[name].arrays()
        assert all(np.array_equal(first[part], second[part]) for part in first)


def test_w5_has_long_tailed_sizes_like_femnist() -> None:
    sizes = np.array(WORKS["W5"].sizes)
    assert (len(sizes), sizes.min(), sizes.max()) == (3400, 20, 400)
    assert abs(sizes.mean() - 225) < 5 and np.median(sizes) < sizes.mean()


def test_an_epoch_has_every_sample_of_a_client_once(given: Given) -> None:
    batches = list(given.orders(3, np.random.default_rng(0)))
    assert [len(batch) for batch in batches] == [10, 8]
    assert sorted(np.concatenate(batches)) == list(range(18))


def test_the_lstm_of_pytorchs_layers_is_the_same_function_as_fedsashs() -> None:
    torch.manual_seed(0)
    theirs, ours = Shakespeare().double(), models.MODELS["shakespeare_lstm"]((80,), 90).double()
    for p, value in zip(ours.parameters(), trained(theirs), strict=True):
        i, f, g, o = value.detach().chunk(4) if len(value) == 1024 else [None] * 4
        p.data.copy_(value if i is None else torch.cat([i, g, f - 1 if value.dim() == 1 else f, o]))
    x = torch.randint(90, (3, 7))
    assert torch.allclose(theirs(x), ours(x), atol=1e-12)


def test_the_clock_leaves_out_warm_rounds_and_the_time_of_saving(
    given: Given, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = iter(np.arange(0, 1000, 0.5))
    clock = Clock(given, str(tmp_path / "model.npz"), 1.0, lambda: float(next(now)))
    with pytest.raises(Enough):
        for _ in range(1000):
            clock.round(180, lambda: given.weights)
    found = json.loads(capsys.readouterr().out)
    assert found["samples/s"] == pytest.approx(180 * found["rounds/s"])
    assert found["rounds/s"] == pytest.approx(2.0)
    with np.load(tmp_path / "model.npz") as saved:
        assert final_loss(given, list(saved.values())) == pytest.approx(final_loss(given, given.weights))


def runs(*pairs: tuple[float, float]) -> list[dict[str, float]]:
    return [
        {"samples/s": s, "rounds/s": s / 100, "loss": loss, "peak MB": 300, "windows s": 0.001} for s, loss in pairs
    ]


WORK = {
    table.PLAIN: runs((100, 0.5), (110, 0.51)),
    table.FASTEST: runs((150, 0.5), (165, 0.5)),
    table.OWN: runs((300, 0.5), (319, 0.5)),
    "Flower": runs((150, 0.5), (143, 0.5)),
    "Idle": runs((900, 2.3), (900, 2.3)),
}


def test_a_ratio_is_to_the_plain_loop_of_the_same_turn() -> None:
    assert table.ratios(WORK, table.OWN) == pytest.approx([3.0, 2.9])
    assert table.cell(table.ratios(WORK, table.OWN)) == "2.95 (2.90 to 3.00)"


def test_a_peer_that_learns_nothing_is_told_from_those_that_learn_the_same() -> None:
    assert table.same(2.3, WORK, table.OWN) and table.same(2.3, WORK, "Flower")
    assert not table.same(2.3, WORK, "Idle")


def test_the_tables_name_what_differs_and_what_did_not_run() -> None:
    text = table.markdown({"W1": WORK}, {"W1": 2.3}, {"W1": {"FLSim": "not installed: no such version"}})
    assert "2.300 **differs**" in text
    assert "- FLSim did not run W1: not installed: no such version" in text


def test_fedsash_is_set_beside_the_best_peer_and_two_of_the_fastest_threads() -> None:
    without = {peer: found for peer, found in WORK.items() if peer != "Idle"}
    assert table.goals({"W1": without}).splitlines()[-1] == "| W1 | 2.11 | 98% | - | 0.3% |"
    alone = {peer: found for peer, found in without.items() if peer != "Flower"}
    assert table.goals({"W1": alone}).splitlines()[-1] == "| W1 | - | 98% | - | 0.3% |"
    beside = {**alone, table.BOUND: WORK[table.OWN]}
    assert table.goals({"W1": beside}).splitlines()[-1] == "| W1 | - | 98% | 100% | 0.3% |"


def test_a_peer_that_ends_without_a_result_gives_the_reason(given: Given, tmp_path: Path) -> None:
    with pytest.raises(Failed, match="No module named 'benchmarks\\.peers\\.nobody'"):
        Peer("nobody").measure(tmp_path, "W1", str(tmp_path), str(tmp_path / "m.npz"), "1", "0")


@pytest.mark.slow
def test_a_plain_loop_and_fedsash_train_a_work_on_the_device_that_is_there(given: Given, device: str) -> None:
    for rounds in (gpu.plain(given, device), gpu.ours(given, device)):
        assert [next(rounds), next(rounds)] == [180, 180]


def test_without_a_gpu_the_measurement_says_so_and_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("a GPU is here")
    gpu.main(tmp_path)
    assert capsys.readouterr().out == "no GPU is here: nothing is measured\n"


@pytest.mark.slow
def test_the_run_on_random_images_comes_to_its_end(device: str) -> None:
    assert gpu.cifar(device, samples=1000, rounds=2) > 0


@pytest.mark.slow
def test_every_engine_is_timed_in_both_precisions(device: str) -> None:
    lines = list(gpu.engines(device, samples=1000, rounds=1))
    assert [line.split(":")[0] for line in lines][:2] == [
        "one client at a time, full",
        "one client at a time, bfloat16",
    ]
    assert len(lines) == 6 and all(line.endswith("ms a round of 500 samples") for line in lines)
