from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fedsash import Checkpoint, Evaluation, LocalEngine, Window, run
from fedsash.methods import WeightedMean
from support.observing import AVERAGES, EVERY, final, observed, rows, start
from support.worlds import SEQUENTIAL, federation

# A run and its folder.


def test_a_run_without_a_folder_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(observed(), 3, progress=False)
    assert result.folder is None and result.state.round == 3 and not result.interrupted
    assert [row["round"] for row in result.history.rows() if row["model"] == "model"] == [1, 2, 3]
    assert not list(tmp_path.iterdir())


def test_the_summary(tmp_path: Path) -> None:
    world = observed(evaluation=Evaluation(every=1, last=3, target=0.01))
    result = start(world, 5, tmp_path)
    summary = result.summary
    assert set(summary["models"]) == {"model", *AVERAGES}
    test = [row["accuracy"] for row in result.history.rows() if row["model"] == "ema"]
    own = summary["models"]["ema"]
    assert own["value"] == test[-1] and own["last_mean"] == pytest.approx(sum(test[-3:]) / 3)
    assert own["best"] == {"round": 1 + test.index(max(test)), "value": max(test), "chosen_on": "test"}
    assert own["rounds_to_target"] == 1 and own["last_std"] >= 0
    assert summary["rounds"] == 5 and summary["seed"] == 3 and summary["device"] == "cpu"
    assert summary["seconds"] == result.tally.seconds > result.tally.training_seconds > 0
    trained = sum(2 * world.data.sizes[world.sampling.clients(t, world.data.sizes, 3)].sum() for t in range(5))
    assert result.tally.samples == trained
    assert summary["samples_per_second"] == trained / result.tally.training_seconds
    assert 10**7 < summary["peak_memory_bytes"] < 10**11
    assert summary["versions"]["torch"] == torch.__version__
    assert summary["versions"].keys() == {"python", "fedsash", "torch", "numpy"}
    assert LocalEngine(**summary["engine"]) == SEQUENTIAL


def test_the_guards_findings_are_in_the_log_and_in_the_metrics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = federation(aggregation=WeightedMean(limit=1e-9), evaluation=EVERY)
    result = start(world, 2, tmp_path)
    guard = [row for row in rows(tmp_path) if row["split"] == "guard"]
    assert [row["round"] for row in guard] == [1, 2]
    assert all(
        sorted(row["refused"]) == sorted(world.sampling.clients(row["round"] - 1, world.data.sizes, 3)) for row in guard
    )
    assert "round 1: left out the uploads of clients" in caplog.text and "round 1: skipped" in caplog.text
    assert "round 2" not in caplog.text, "what goes on is said once"
    assert torch.equal(result.state.w, world.start().w)


class Network(nn.Module):
    """A network with a frozen layer, a tied weight and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.frozen, self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)
        self.frozen.requires_grad_(False)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.tensor(2.0))
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(self.frozen(x) * self.scale)))))


def test_the_final_models_load_into_the_plain_module(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    world = federation(model=Network(), averages={"w": Window(2)}, evaluation=EVERY)
    result = start(world, 4, tmp_path)
    plain, untrained = Network(), Network()
    for name, w in world.models(result.state).items():
        plain.load_state_dict(load_file(tmp_path / "models" / f"{name}.safetensors"), strict=True)
        assert torch.equal(world.layout.flatten(plain), w)
        assert plain.second.weight is plain.first.weight
        assert torch.equal(plain.frozen.weight, untrained.frozen.weight)
        assert not torch.equal(plain.first.weight, untrained.first.weight)
        test = world.data.test
        assert test is not None
        accuracy = float((plain(test.x).argmax(1) == test.y).double().mean())
        assert accuracy == result.summary["models"][name]["value"]


def test_checkpoint_settings() -> None:
    with pytest.raises(ValueError, match=r"Checkpoint.keep = 0: must be at least 1"):
        Checkpoint(keep=(3, 0))
    with pytest.raises(ValueError, match="rounds = 0: must be at least 1"):
        run(federation(), 0)
    assert [r for r in range(1, 12) if Checkpoint(4, keep=(3,)).due(r, 11)] == [3, 4, 8, 11]


def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path) -> None:
    start(federation(), 2, tmp_path)
    before = final(tmp_path)
    with pytest.raises(
        ValueError, match=r"holds a run already: go on with it \(fedsash resume .*or choose another folder"
    ):
        start(federation(), 4, tmp_path)
    assert final(tmp_path) == before
