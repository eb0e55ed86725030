"""Next-character prediction from the loss to a run: padding is neither learned nor counted, on any engine."""

from __future__ import annotations

from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedsash.averages import Window
from fedsash.client import LocalTraining
from fedsash.data import Samples, Source, Users
from fedsash.data.federated import FederatedData
from fedsash.data.transform import PLAIN
from fedsash.engines import LocalEngine
from fedsash.methods import FedFA, Mime, Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.models import build
from fedsash.runs import checkpoints
from fedsash.server.federation import Federation
from fedsash.tasks import PAD, Accuracy, NextCharacter
from support.by_default import full
from support.worlds import SEQUENTIAL, VECTORISED, WORKERS, after, identical

CHARACTERS = 6
T = 8
USERS = (3, 5, 1, 4)


def sequences(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Characters that mostly count upwards, with padding at the end of every third sequence."""
    rng = np.random.default_rng(seed)
    steps = np.where(rng.random((n, T + 1)) < 0.8, 1, 2)
    text = 1 + (rng.integers(0, 5, (n, 1)) + steps.cumsum(1)) % (CHARACTERS - 1)
    text[::3, 5:] = PAD
    return torch.from_numpy(text[:, :-1].copy()), torch.from_numpy(text[:, 1:].copy())


def data() -> FederatedData:
    train = Samples(*sequences(sum(USERS), 0), user=torch.arange(len(USERS)).repeat_interleave(torch.tensor(USERS)))
    source = Source(train, Samples(*sequences(7, 1)), CHARACTERS, PLAIN, task=NextCharacter())
    return source.partition(Users())


def federation(**settings: Any) -> Federation:
    model = build("shakespeare_lstm", {"embedding": 3, "width": 5}, shape=(T,), classes=CHARACTERS, seed=0).double()
    defaults: dict[str, Any] = {
        "model": model,
        "data": data(),
        "local": LocalTraining(lr=0.5, batch=2, epochs=1),
        "sampling": Uniform(3),
        "averages": {"wima": Window(2)},
        "engine": SEQUENTIAL,
        "device": "cpu",
        "seed": 1,
    }
    return Federation(**defaults | settings)


def test_without_padding_the_loss_is_the_mean_cross_entropy_over_all_positions() -> None:
    output = torch.randn(3, T, CHARACTERS, dtype=torch.float64)
    y = torch.randint(1, CHARACTERS, (3, T))
    each = [F.cross_entropy(output[i], y[i]) for i in range(3)]
    torch.testing.assert_close(NextCharacter().loss(output, y), torch.stack(each))


def test_the_loss_divides_by_all_positions_also_with_padding() -> None:
    """A guess that knows nothing costs log(characters) for each real character; a sequence has 80 positions."""
    y = torch.ones(2, 80, dtype=torch.int64)
    y[1, 20:] = PAD
    loss = NextCharacter().loss(torch.zeros(2, 80, 90, dtype=torch.float64), y)
    assert loss.tolist() == pytest.approx([log(90), log(90) * 20 / 80], rel=1e-14)


def test_what_is_said_about_padding_changes_neither_loss_nor_gradient() -> None:
    output = torch.randn(1, T, CHARACTERS, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([[3, 1, 2, 5, PAD, PAD, PAD, PAD]])
    (gradient,) = torch.autograd.grad(NextCharacter().loss(output, y).sum(), output)
    assert gradient[:, :4].any() and not gradient[:, 4:].any()
    other = output.detach().clone()
    other[:, 4:] = -torch.inf
    assert torch.equal(NextCharacter().loss(other, y), NextCharacter().loss(output, y).detach())


def test_only_real_characters_are_counted_and_padding_that_is_predicted_is_not_right() -> None:
    y = torch.tensor([[3, 1, PAD, PAD], [2, 2, 2, 2], [PAD, PAD, PAD, PAD]])
    predicted = torch.tensor([[3, 2, PAD, PAD], [2, 2, 2, PAD], [PAD, PAD, PAD, 1]])
    scored = NextCharacter().scored(F.one_hot(predicted, CHARACTERS).double(), y, torch.zeros(3))
    assert Accuracy().sums(scored).tolist() == [[1, 2], [3, 4], [0, 0]]


@pytest.mark.parametrize("method", [full(None), full(Scaffold("I")), Mime(0.5)], ids=["fedavg", "scaffold", "mime"])
def test_engines_agree(method: Any) -> None:
    chosen = {} if method is None else {"method": method}
    one = after(federation(**chosen), 3)
    assert identical(one, after(federation(**chosen, engine=WORKERS), 3))
    for (name, a), (_, b) in zip(
        one.tensors(), after(federation(**chosen, engine=VECTORISED), 3).tensors(), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.slow
def test_compiled_steps_agree() -> None:
    compiled = after(federation(engine=LocalEngine("vectorised", 1, 3, True, "contiguous", 1)), 3).w
    torch.testing.assert_close(compiled, after(federation(), 3).w, rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", [full(SEQUENTIAL), VECTORISED], ids=["sequential", "vectorised"])
def test_a_saved_state_trained_on_is_the_run_bitwise(engine: LocalEngine, tmp_path: Path) -> None:
    place = checkpoints.save(after(federation(engine=engine), 2), tmp_path)
    again = federation(engine=engine)
    resumed = after(again, 2, checkpoints.load(place, again.start()))
    assert identical(resumed, after(federation(engine=engine), 4))


@pytest.mark.full
def test_training_learns_to_count() -> None:
    """Four in five characters are the one after the last; guessing the most frequent one is right in about a fifth."""
    f = federation(local=LocalTraining(lr=3.0, batch=2, epochs=5), sampling=Uniform(4))
    assert f.data.test is not None
    real = f.data.test.y[f.data.test.y != PAD]
    guess = int(real.bincount().max()) / len(real)
    learned = f.evaluate(after(f, 10))[0]["accuracy"]
    assert learned > 0.6 > guess


def test_fedfas_anchors_are_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"task = 'NextCharacter': FedFA needs one class for each sample") as refused:
        after(federation(method=FedFA()), 1)
    assert "\n" not in str(refused.value)
