"""The client models of a round, and the answers of models to samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsash.averages import Window
from fedsash.client import LocalTraining
from fedsash.data.samples import Samples
from fedsash.engines import LocalEngine
from fedsash.lab.studies.client_models import client_models
from fedsash.lab.studies.outputs import features, outputs
from fedsash.methods import AdaBest, FedACG, FedAvg, FedDyn, FedMoSWA, FedSWA, Method, WeightedMean
from fedsash.methods.sampling import Uniform
from fedsash.server.broadcast import Broadcast
from fedsash.tasks import Classification
from fedsash.vector.layout import Layout
from fedsash.vector.sharing import Personal
from support.by_default import some
from support.choices import METHODS
from support.executors import Cluster
from support.worlds import ENGINES, SIZES, after, federation, identical, mlp, quadratic_federation, record

ADDS_ITS_MEAN = [
    name for name, method in METHODS.items() if not isinstance(method, FedDyn | AdaBest | FedSWA | FedMoSWA)
]
"""The methods whose update is the mean delta; the others add or scale at the server."""


def test_a_client_has_what_it_keeps_for_itself() -> None:
    with federation(personal=Personal(("3",))) as f:
        state = after(f, 3)
        models = client_models(f, state)
        own = f.round(state)[0]
    kept = models.w[:, f.sharing.own]
    assert torch.equal(kept, own.client_state["own"][torch.from_numpy(models.ids)]) and not torch.equal(
        kept[0], kept[1]
    )


@pytest.mark.parametrize("name", some(ADDS_ITS_MEAN, "fedavg", "scaffold-I", "mime", "fedlesam", "fedfa"))
def test_the_weighted_mean_of_a_rounds_client_models_is_the_next_model(name: str) -> None:
    with federation(method=METHODS[name]) as f:
        state = after(f, 3)
        models = client_models(f, state)
        state, outcome = f.round(state)
    assert models.ids.tolist() == outcome.clients.tolist()
    torch.testing.assert_close(models.mean, state.w, rtol=0, atol=1e-14)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_every_engine_gives_the_client_models(engine: LocalEngine) -> None:
    with federation(engine=engine) as f:
        models = client_models(f, f.start())
        state, _ = f.round(f.start())
    assert models.w.shape == (4, f.layout.size)
    torch.testing.assert_close(models.mean, state.w, rtol=0, atol=1e-14)


SEVERAL = ("scaffold-II", "mime")
"""Methods whose clients or servers remember other things."""


@pytest.mark.parametrize(
    "name", [name if name in SEVERAL else pytest.param(name, marks=pytest.mark.full) for name in METHODS]
)
def test_training_a_rounds_clients_leaves_the_state_and_the_round_as_they_were(name: str) -> None:
    with federation(method=METHODS[name], averages={"wima": Window(2)}) as f:
        state = after(f, 3)
        before = record(state)
        client_models(f, state)
        assert identical(state, before)
        watched = record(f.round(state)[0])
    assert identical(watched, after(federation(method=METHODS[name], averages={"wima": Window(2)}), 4))


def test_a_client_of_a_quadratic_arrives_where_its_closed_form_says() -> None:
    a, b, w = [1.0, 3.0], [0.0, 1.2], 0.7
    with quadratic_federation(a, b, start=w) as f:
        models = client_models(f, f.start())
    closed = [[b_i + (1 - 0.1 * a_i) ** 5 * (w - b_i)] for a_i, b_i in zip(a, b, strict=True)]
    torch.testing.assert_close(models.w, torch.tensor(closed, dtype=torch.float64), rtol=0, atol=1e-15)


@pytest.mark.parametrize("method", [FedAvg(), FedACG(0.8, 0.2)], ids=str)
def test_clients_that_take_no_step_are_the_model_that_was_sent_also_where_a_broadcast_sends_an_average(
    method: Method,
) -> None:
    chosen = {"method": method, "averages": {"ima": Window(3)}, "broadcast": Broadcast("ima")}
    state = after(federation(**chosen), 3)
    with federation(**chosen, local=LocalTraining(lr=0.0, batch=5)) as still:
        models, sent = client_models(still, state), still.server_round.send(state)[0]
    assert torch.equal(models.w, sent.expand(4, -1)) and not torch.equal(sent, state.w)


def test_the_weights_are_by_samples_or_uniform_and_sum_to_1() -> None:
    with federation() as f, federation(method=FedDyn(0.1)) as uniform:
        models, others = client_models(f, f.start()), client_models(uniform, uniform.start())
    n = np.array(SIZES)[models.ids]
    assert np.allclose(models.p.numpy(), n / n.sum(), rtol=0, atol=1e-16)
    assert others.p.tolist() == [1 / 4] * 4


def test_refused_clients_are_left_out_and_the_rest_are_the_next_model() -> None:
    plain = federation()
    with plain:
        models = client_models(plain, plain.start())
    moved = torch.linalg.vector_norm(models.w - plain.start().w, dim=1)
    with federation(aggregation=WeightedMean(limit=float(moved.median()))) as f:
        left = client_models(f, f.start())
        state, outcome = f.round(f.start())
    assert sorted([*left.ids.tolist(), *outcome.refused]) == outcome.clients.tolist() and outcome.refused
    assert torch.equal(left.w, models.w[torch.from_numpy(np.isin(models.ids, left.ids))])
    torch.testing.assert_close(left.mean, state.w, rtol=0, atol=1e-14)


def test_a_round_without_usable_models_is_refused() -> None:
    nobody = np.zeros((1, len(SIZES)), dtype=np.bool_)
    with federation(sampling=Uniform(4, trace=nobody)) as f, pytest.raises(ValueError, match="nobody answers"):
        client_models(f, f.start())
    unusable = pytest.raises(ValueError, match="round = 0: no client's upload can be used")
    for method in ("fedavg", "mime"):
        with federation(method=METHODS[method], aggregation=WeightedMean(limit=1e-30)) as f, unusable:
            client_models(f, f.start())


def test_an_engine_that_shows_only_sums_has_no_client_models() -> None:
    with federation(engine=Cluster(pieces=2)) as f, pytest.raises(ValueError, match="shows single uploads"):
        client_models(f, f.start())


def samples(n: int = 30) -> Samples:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(n, 4, dtype=torch.float64, generator=generator)
    return Samples(x, torch.randint(0, 3, (n,), generator=generator))


def vectors(*lead: int) -> Tensor:
    size = Layout(mlp()).size
    return torch.randn(*lead, size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_outputs_are_those_of_modules_with_these_parameters_and_without_dropout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedsash.lab.studies.outputs.BATCH", 7)
    net, w, x = mlp(dropout=0.5), vectors(2, 3), samples()
    before = Layout(net).flatten(net)
    found = outputs(net, w, x)
    assert found.shape == (2, 3, 30, 3)
    assert net.training and torch.equal(Layout(net).flatten(net), before)
    for r in range(2):
        for k in range(3):
            alone = mlp()
            Layout(alone).load(alone, w[r, k])
            torch.testing.assert_close(found[r, k], alone(x.x).detach(), rtol=0, atol=1e-14)


class Dictionary(nn.Module):
    """Says its logits in a dict, as models of Hugging Face do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.inner(x)}


def test_of_outputs_in_a_dict_those_count_that_the_task_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsash.lab.studies.outputs.BATCH", 7)
    w, x = vectors(2), samples()
    assert torch.equal(outputs(Dictionary(), w, x, task=Classification()), outputs(mlp(), w, x))


def test_the_last_layer_applied_to_the_features_is_the_output() -> None:
    net, w, x = mlp(dropout=0.5), vectors(3), samples()
    entered = features(net, w, x)
    weight, bias = Layout(net).linear(w)
    assert entered.shape == (3, 30, 8) and bias is not None
    torch.testing.assert_close(entered @ weight.mT + bias[:, None], outputs(net, w, x), rtol=0, atol=1e-14)


def test_a_model_without_a_linear_layer_has_no_features() -> None:
    net = nn.Conv2d(1, 2, 3)
    with pytest.raises(ValueError, match=r"no trainable nn\.Linear"):
        features(net, torch.zeros(1, 20), samples())
