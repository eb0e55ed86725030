"""Experiment files: what they leave out is as in the default, whole numbers, users' own things, overrides."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsash import EMA, Broadcast, LocalTraining, Scaffold, Window
from fedsash.data import IID, Dirichlet, Images
from fedsash.lab.config import Experiment, Model, load, parse
from fedsash.methods import Adaptive, Private
from fedsash.methods.sampling import Poisson, Uniform
from fedsash.methods.schedules import Cosine
from support.experiments import WINDOW, Halved, file_with


def test_an_empty_file_is_the_default_experiment_on_digits(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.touch()
    experiment = load(file)
    assert experiment == Experiment()
    federation = experiment.federation()
    assert len(federation.data.clients) == 100 and federation.data.classes == 10


def test_what_a_table_leaves_out_is_as_in_the_default_experiment() -> None:
    assert parse({"partition": {"alpha": 2}}).partition == Dirichlet(clients=100, alpha=2.0)
    assert parse({"partition": {"name": "iid"}}).partition == IID(clients=100)
    assert parse({"sampling": {"dropout": 0.5}}).sampling == Uniform(dropout=0.5)
    assert parse({"sampling": {"fraction": 0.5}}).sampling == Uniform(fraction=0.5)
    assert parse({"model": {"hidden": [3, 4]}}).model == Model("mlp", {"hidden": (3, 4)})
    assert parse({"local": {"schedule": {"name": "cosine", "rounds": 9}}}).local == LocalTraining(schedule=Cosine(9))


def test_whole_numbers_are_numbers_too() -> None:
    lr = parse({"local": {"lr": 1}}).local.lr
    assert lr == 1.0 and isinstance(lr, float)


def test_a_private_aggregation_may_have_a_table_for_its_clip_norm() -> None:
    table = {"name": "private", "clip": 1, "noise": 2.0, "adaptive": {"quantile": 0.3}}
    experiment = parse(
        {"aggregation": table, "method": {"weighting": "uniform"}, "sampling": {"name": "poisson", "rate": 1}}
    )
    assert experiment.aggregation == Private(1.0, 2.0, Adaptive(0.3)) and experiment.sampling == Poisson(1.0)
    assert parse(experiment.table()) == experiment


def test_broadcast_may_be_the_name_of_an_average() -> None:
    window = {"w": {"name": "window", "size": 3}}
    assert parse({"broadcast": "w", "averages": window}).broadcast == Broadcast("w")
    assert parse({"broadcast": {"average": "w", "start": 5}, "averages": window}).broadcast == Broadcast("w", 5)


def test_a_users_own_dataclass_and_function_are_named_by_their_module() -> None:
    own = {"name": "support.experiments:Halved", "by": 4, "layers": ["a"]}
    experiment = parse(
        {"method": own, "model": {"name": "support.experiments:linear", "features": 64, "bias": False}}, own_code=True
    )
    assert experiment.method == Halved(4.0, ("a",))
    assert experiment.table()["method"] == own | {"weighting": "samples"}
    assert experiment.model.options == {"features": 64, "classes": 10, "bias": False}
    assert experiment.federation().layout.size == 640


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("seed=3", Experiment(seed=3)),
        ("local.lr=1e-3", Experiment(local=LocalTraining(lr=1e-3))),
        (" local.lr = 2 ", Experiment(local=LocalTraining(lr=2.0))),
        ("local.batch=full", Experiment(local=LocalTraining(batch="full"))),
        ('local.batch="full"', Experiment(local=LocalTraining(batch="full"))),
        ("model.hidden=[8, 8]", Experiment(model=Model("mlp", {"hidden": (8, 8)}))),
        ("local.drop_last=true", Experiment(local=LocalTraining(drop_last=True))),
        ("data={name='images', path='a=b'}", Experiment(data=Images("a=b"))),
        ("averages.w={name='ema', decay=0.5}", Experiment(averages={"w": EMA(0.5)})),
        ("method.name=scaffold", Experiment(method=Scaffold())),
    ],
)
def test_an_override_is_a_toml_value_or_a_bare_word(override: str, expected: Experiment, tmp_path: Path) -> None:
    assert load(file_with("", tmp_path), [override]) == expected


def test_overrides_change_the_file_in_order(tmp_path: Path) -> None:
    path = file_with('seed = 1\nbroadcast = "w"\nlocal.lr = 1\n' + WINDOW, tmp_path)
    experiment = load(path, ["seed=2", "seed=3", "broadcast.start=7", "averages.w.size=9", "local={epochs=2}"])
    assert experiment.seed == 3
    assert experiment.broadcast == Broadcast("w", 7)
    assert experiment.averages == {"w": Window(9)}
    assert experiment.local == LocalTraining(lr=1, epochs=2)


def test_runs_with_one_partition_seed_have_the_same_clients_whatever_their_seed() -> None:
    def clients(**table: int) -> list[list[int]]:
        return [client.tolist() for client in parse(table).federated_data().clients]

    assert clients(seed=1, partition_seed=0) == clients(seed=2, partition_seed=0) == clients(seed=0)
    assert clients(seed=1) != clients(seed=0)
