"""BatchNorm in a federation: statistics that clients share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedsash import Broadcast, Private, SettingError
from fedsash.averages import BEMA, EMA, Average, Window
from fedsash.client import LocalTraining
from fedsash.engines import LocalEngine
from fedsash.errors import ModelError
from fedsash.evaluation import Evaluation
from fedsash.methods import FedAvg, FedMoSWA, FedSAM, Mime, MimeLite, Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.methods.server_optimisers import FedAdam, ServerSGD
from fedsash.runs.checkpoints import load, save
from fedsash.testing import close, identical
from support.by_default import rotated, some
from support.norms import SIZES, alone, batch_norm_model, centrally_trained, with_norm
from support.worlds import ENGINES, EVERY_ENGINE, after, data, federation

STATISTICS = slice(-17, None)


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.3}, {"momentum": None}, {"affine": False}])
def test_one_client_is_central_training_of_the_same_module(settings: dict[str, Any]) -> None:
    model = batch_norm_model(**settings)
    world = alone(model)
    trained = world.module_of(after(world, 3).w).state_dict()
    plain = centrally_trained(model, world, 12).state_dict()
    assert trained.keys() == plain.keys()
    for name, value in plain.items():
        assert trained[name].dtype == value.dtype
        assert close(trained[name].double(), value.double(), 1e-12), name
    assert int(trained["1.num_batches_tracked"]) == 12


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
def test_a_batch_counts_once_though_a_method_computes_two_gradients_on_it(engine: str) -> None:
    world = alone(batch_norm_model(), method=FedSAM(0.05), engine=ENGINES[engine])
    assert int(world.module_of(after(world, 3).w)[1].num_batches_tracked) == 12  # type: ignore[index]


def test_statistics_of_large_features_are_no_reason_to_leave_an_upload_out() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)).double()
    large = data(SIZES)
    assert isinstance(large.train.x, Tensor)
    large = replace(large, train=replace(large.train, x=1e5 * large.train.x), test=None)
    with with_norm(model=model, data=large, averages={}) as world:
        state, report = world.round(world.start())
    assert report.moved and not report.refused
    assert float(state.w[-5:-1].max()) > world.aggregation.limit


def test_one_client_is_central_training_of_instance_norm_with_statistics() -> None:
    torch.manual_seed(0)
    norm = nn.InstanceNorm1d(2, affine=True, track_running_stats=True)
    model = nn.Sequential(nn.Linear(4, 8), nn.Unflatten(1, (2, 4)), norm, nn.Flatten(), nn.Linear(8, 3)).double()
    for engine in ENGINES.values():
        world = alone(model, engine=engine)
        trained = world.module_of(after(world, 2).w).state_dict()
        for name, value in centrally_trained(model, world, 8).state_dict().items():
            assert close(trained[name].double(), value.double(), 1e-12), name


def frozen() -> nn.Module:
    """A model whose BatchNorm was put into eval mode, with statistics that it was trained with before."""
    model = batch_norm_model()
    model[1].running_mean += 0.5
    model[1].eval().weight.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    "make, engine", rotated([frozen, lambda: batch_norm_model(track_running_stats=False)], ENGINES)
)
def test_a_frozen_norm_and_one_without_statistics_are_trained_as_pytorch_does(
    engine: str, make: Callable[[], nn.Module]
) -> None:
    model = make()
    world = alone(model, buffers="refuse", engine=ENGINES[engine])
    trained = world.module_of(after(world, 2).w)
    assert identical(trained[1].running_mean, model[1].running_mean)
    for name, value in centrally_trained(model, world, 8).state_dict().items():
        assert close(trained.state_dict()[name].double(), value.double(), 1e-12), name


@pytest.mark.parametrize(
    "engine, method",
    [
        *rotated(["vectorised", "workers"], [None, Scaffold(), FedSAM(), Mime()], turns=2),
        pytest.param("spawned", None, marks=pytest.mark.slow),
    ],
)
def test_every_engine_has_the_same_statistics(engine: str, method: Any) -> None:
    settings = {} if method is None else {"method": method}
    expected = after(with_norm(**settings), 2).w
    found = after(with_norm(engine=EVERY_ENGINE[engine], **settings), 2).w
    assert close(found, expected, 1e-12)
    assert engine == "vectorised" or torch.equal(found, expected)


def test_clients_with_batch_statistics_of_their_own_agree_though_their_batches_are_padded() -> None:
    model = batch_norm_model(track_running_stats=False)
    expected = after(with_norm(model=model), 3).w
    assert close(after(with_norm(model=model, engine=ENGINES["vectorised"]), 3).w, expected, 1e-12)


def test_equal_clients_have_the_statistics_of_one_of_them() -> None:
    same = data((12,))
    copies = type(same).from_arrays(same.train.x.numpy(), same.train.y.numpy(), [range(12)] * 3, classes=3)
    local = LocalTraining(lr=0.1, batch="full", steps=4)
    together = after(with_norm(data=copies, local=local, sampling=Uniform(3)), 3)
    single = after(with_norm(data=same, local=local, sampling=Uniform(1)), 3)
    assert close(together.w, single.w, 1e-12)


@pytest.mark.parametrize("server", [ServerSGD(lr=2.0, momentum=0.9), FedAdam()])
def test_the_statistics_are_the_weighted_mean_of_the_clients_whatever_the_server_optimiser_is(server: Any) -> None:
    means = []
    with with_norm(server=server) as world:
        state = world.start()
        request = world.ask(state)
        uploads = [reply.upload["statistics"] for reply in world.executor.work(request)]
        weights = torch.from_numpy(world.sizes[request.ids] / world.sizes[request.ids].sum())
        means.append(state.w[STATISTICS] + weights @ torch.cat(uploads))
        state, _ = world.server_round.step(state, request, world.collect(request))
    assert close(state.w[STATISTICS], means[0], 1e-14)
    assert state.optimiser["m" if isinstance(server, FedAdam) else "v"].shape == (len(state.w) - 17,)


@pytest.mark.parametrize("buffers", some(["average", "local", "local_norm"], "average", "local_norm"))
def test_a_resumed_run_has_the_bytes_of_an_unbroken_one(buffers: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"buffers": buffers, "averages": {"w2": Window(2)}, "method": Scaffold()}
    unbroken = after(with_norm(**settings), 4)
    save(after(with_norm(**settings), 2), tmp_path)
    world = with_norm(**settings)
    assert identical(after(world, 2, load(tmp_path / "00000002", world.start())), unbroken)


def four_rounds(average: Average) -> tuple[list[Tensor], Tensor]:
    """The models of four rounds, and the average of them."""
    models = []
    with with_norm(averages={"it": average}) as world:
        state = world.start()
        for _ in range(4):
            state, _ = world.round(state)
            models.append(state.w.clone())
        return models, world.models(state)["it"]


def test_a_window_has_the_mean_of_the_statistics_or_the_latest() -> None:
    models, mean = four_rounds(Window(3))
    assert close(mean, torch.stack(models[1:]).mean(0), 1e-14)
    _, latest = four_rounds(Window(3, buffers="latest"))
    assert torch.equal(latest[:-17], mean[:-17]) and torch.equal(latest[STATISTICS], models[-1][STATISTICS])


def test_an_ema_has_the_mean_of_the_statistics_or_the_latest() -> None:
    models, mean = four_rounds(EMA(0.5))
    _, latest = four_rounds(EMA(0.5, buffers="latest"))
    assert torch.equal(latest[:-17], mean[:-17]) and torch.equal(latest[STATISTICS], models[-1][STATISTICS])
    assert not close(mean[STATISTICS], latest[STATISTICS], 1e-3)


def test_an_average_that_extrapolates_has_the_latest_statistics() -> None:
    models, value = four_rounds(BEMA())
    assert torch.equal(value[STATISTICS], models[-1][STATISTICS])
    assert not close(value, models[-1], 1e-3)


def test_re_estimated_statistics_are_those_that_pytorch_finds() -> None:
    evaluation = Evaluation(batch=20, calibration=40)
    world = with_norm(averages={"it": Window(2, buffers="re-estimate")}, evaluation=evaluation)
    state = after(world, 3)
    found = world.module_of(world.models(state)["it"])
    x = world.training_data.train.x
    assert isinstance(x, Tensor)
    spaced = x[torch.arange(40) * len(x) // 40]
    plain = world.module_of(world.models(state)["it"])
    torch.optim.swa_utils.update_bn(spaced.split(20), plain)
    for name, value in plain.state_dict().items():
        assert close(found.state_dict()[name].double(), value.double(), 1e-14), name


@pytest.mark.parametrize(
    "batch, count, used",
    [
        (20, 41, 40),
        pytest.param(60, 70, 60, marks=pytest.mark.full),
        pytest.param(1, 8, 8, marks=pytest.mark.full),
        (1, 7, 6),
    ],
)
def test_one_sample_that_is_left_over_has_no_variance_and_is_left_out(batch: int, count: int, used: int) -> None:
    def statistics(batch: int, count: int) -> Tensor:
        evaluation = Evaluation(batch=batch, calibration=count)
        world = with_norm(averages={"it": Window(2, buffers="re-estimate")}, evaluation=evaluation)
        return world.models(after(world, 2))["it"][STATISTICS]

    assert identical(statistics(batch, count), statistics(max(batch, 2), used))
    with pytest.raises(SettingError, match=r"evaluation\.calibration = 1: must be at least 2"):
        statistics(batch, 1)


def test_an_exported_model_has_its_statistics_and_loads_into_the_plain_module() -> None:
    from safetensors.torch import load as tensors_of

    world = with_norm()
    state = after(world, 2)
    plain = batch_norm_model()
    plain.load_state_dict(tensors_of(world.export(state.w)))
    assert identical(plain.state_dict(), world.module_of(state.w).state_dict())
    (test,) = world.judge(state.w, 2, "model")
    samples = world.clients.problem.test
    assert samples is not None and isinstance(samples.x, Tensor)
    right = plain.eval()(samples.x).argmax(1) == samples.y
    assert test["accuracy"] == pytest.approx(right.double().mean().item())


def test_without_a_choice_a_model_with_statistics_is_refused_in_one_line_that_names_the_layers() -> None:
    with pytest.raises(ModelError, match=r"statistics of each client's data: 1; set buffers to 'average', ") as error:
        with_norm(buffers="refuse")
    assert "\n" not in str(error.value)


def test_a_batch_of_one_sample_is_refused_where_batch_norm_has_no_variance() -> None:
    line = r"over the batches of one sample of clients \[0, 2\]: set local.drop_last or another local.batch, and give"
    with pytest.raises(ModelError, match=line):
        with_norm(data=data((6, 12, 1)), sampling=Uniform(2))
    local = LocalTraining(batch=5, drop_last=True)
    assert with_norm(data=data((6, 12)), local=local, sampling=Uniform(2)).layout.norms == ("1",)
    with pytest.raises(ModelError, match=r"clients \[1\]"):
        with_norm(data=data((6, 1)), local=local, sampling=Uniform(2))


@pytest.mark.parametrize("method", [Scaffold(option="I"), FedMoSWA(option="I"), Mime(), MimeLite()])
def test_drop_last_does_not_drop_the_single_sample_of_a_full_gradient(method: Any) -> None:
    settings: dict[str, Any] = {"method": method, "sampling": Uniform(2)}
    local = LocalTraining(batch=5, drop_last=True)
    with pytest.raises(ModelError, match=r"one sample of clients \[0\]: set another local.batch, and give every"):
        with_norm(data=data((6, 12)), local=local, **settings)
    assert after(with_norm(data=data((6, 12)), local=replace(local, batch=4), **settings), 1).round == 1


@pytest.mark.slow
@pytest.mark.parametrize("buffers", ["average", "local", "local_norm"])
@pytest.mark.parametrize("method", [None, Scaffold(), FedSAM()])
def test_compiled_steps_have_the_same_statistics(buffers: str, method: Any) -> None:
    settings: dict[str, Any] = {"buffers": buffers} | ({} if method is None else {"method": method})
    compiled = after(with_norm(engine=LocalEngine("vectorised", 1, 4, True, "contiguous", 1), **settings), 2)
    assert close(compiled, after(with_norm(**settings), 2), 1e-12)


def test_an_adaptive_broadcast_does_not_compare_statistics_that_clients_do_not_receive() -> None:
    averages, evaluation = {"it": Window(2, buffers="re-estimate")}, Evaluation(held_out=0.3)
    settings: dict[str, Any] = {"averages": averages, "evaluation": evaluation, "data": data((20, 20, 20))}
    settings |= {"sampling": Uniform(2)}
    with pytest.raises(SettingError, match=r"averages\.it\.buffers = 're-estimate': an adaptive broadcast"):
        with_norm(broadcast=Broadcast("it", "auto"), **settings)
    with_norm(broadcast=Broadcast("it", 2), **settings)


def test_a_part_of_nothing_but_statistics_is_named() -> None:
    model = batch_norm_model(affine=False)
    with_norm(model=model, averages={"it": Window(2, part="1")})
    with pytest.raises(SettingError, match="part = '1': has nothing but running statistics"):
        with_norm(model=model, averages={"it": Window(2, part="1", buffers="latest")})


def test_a_model_without_statistics_may_be_private_whatever_becomes_of_them() -> None:
    federation(method=FedAvg(weighting="uniform"), aggregation=Private(1.0, 0.0), buffers="average")
