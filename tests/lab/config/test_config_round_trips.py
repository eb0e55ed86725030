"""Every experiment, written as a file, loads as an equal experiment, and its table is complete."""

from __future__ import annotations

import tomllib
from dataclasses import fields, is_dataclass
from typing import Any

import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsash import (
    EMA,
    SGD,
    SWA,
    Broadcast,
    Checkpoint,
    Evaluation,
    FedAvg,
    FedProx,
    LocalEngine,
    LocalTraining,
    Window,
)
from fedsash.averages import Average
from fedsash.data import IID, Digits, Dirichlet, DirichletClasses, DirichletReuse, Flwr, Images, Shards
from fedsash.evaluation import FineTuning
from fedsash.lab.config import Experiment, Model, parse
from fedsash.lab.config.registries import REGISTRIES
from fedsash.lab.config.words import describe
from fedsash.methods import WeightedMean
from fedsash.methods.sampling import FixedClients, Function, Uniform, Weighted
from fedsash.methods.schedules import (
    Chained,
    Constant,
    Cosine,
    Cyclic,
    Exponential,
    Flat,
    Mild,
    SawTooth,
    StepDecay,
    Warmup,
)
from fedsash.methods.server_optimisers import FedAdagrad, FedAdam, FedYogi, ServerSGD
from fedsash.optimisers import Adagrad, Adam, AdamW, RMSprop
from fedsash.runs import RunningSums
from fedsash.runs.callbacks import EarlyStopping, ExportBest, MLflow, TensorBoard, Track, Trackio, WandB
from fedsash.tasks import (
    F1,
    R2,
    Accuracy,
    Binary,
    Classification,
    MeanIoU,
    MultiLabel,
    NextCharacter,
    NextToken,
    Perplexity,
    Regression,
    RootMeanSquaredError,
    Segmentation,
)
from support.choices import AGGREGATIONS, METHODS
from support.experiments import Halved

# Strategies for every class that an experiment file can name.

ints = st.integers(1, 1000)
small = st.floats(0, 0.99)
positive = st.floats(1e-6, 1e6)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = st.from_regex(r"[a-z][a-z0-9_-]{0,6}", fullmatch=True).filter(lambda name: name != "model")
auto = st.just("auto")


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


@st.composite
def images(draw: st.DrawFn) -> Images:
    channels = draw(st.integers(0, 3))
    mean = draw(st.lists(st.floats(0, 1), min_size=channels, max_size=channels))
    std = draw(st.lists(positive, min_size=channels, max_size=channels))
    return draw(
        st.builds(
            Images,
            path=text.filter(bool),
            image=maybe(text.filter(bool)),
            domain=maybe(text.filter(bool)),
            channels=st.sampled_from([None, 1, 3]),
            test=small,
            mean=st.just(tuple(mean)),
            std=st.just(tuple(std)),
            crop=st.integers(0, 4),
            flip=st.booleans(),
        )
    )


plain = st.recursive(st.booleans() | ints | small | text, lambda inner: st.lists(inner) | st.dictionaries(text, inner))
partitions = st.one_of(
    st.builds(IID, ints),
    st.builds(Shards, ints, ints),
    st.builds(Dirichlet, ints, st.just(0) | positive),
    st.builds(DirichletClasses, ints, positive, maybe(ints), ints),
    st.builds(DirichletReuse, ints, positive),
    st.builds(Flwr, ints, text, st.dictionaries(text, plain, max_size=3)),
)
models = st.one_of(
    st.builds(Model, st.just("mlp"), st.fixed_dictionaries({}, optional={"hidden": st.lists(ints, max_size=3)})),
    st.builds(Model, st.sampled_from(["cifar_cnn", "fmnist_cnn", "resnet20_gn"])),
    st.builds(
        Model,
        st.just("support.experiments:linear"),
        st.fixed_dictionaries({"features": ints}, optional={"bias": st.booleans()}),
    ),
)
simple = st.one_of(
    st.builds(Constant),
    st.builds(Warmup, ints),
    st.builds(Exponential, st.floats(0.1, 1)),
    st.builds(Cosine, ints, small),
    st.builds(StepDecay, ints, st.floats(0.1, 1)),
    st.builds(Cyclic, ints, ints, small),
    st.builds(Mild, ints, st.sampled_from(["exponential", "constant", "cyclic", "epochs", "none"])),
)
schedules = simple | st.builds(Chained, st.lists(simple, min_size=1, max_size=3).map(tuple))
optimisers = st.one_of(
    st.builds(SGD, small, small, weight_decay=small),
    st.builds(SGD, st.floats(0.1, 0.9), nesterov=st.just(True)),
    st.builds(Adam, small, small, positive, small),
    st.builds(AdamW, small, small, positive, small),
    st.builds(Adagrad, small, small, positive, small),
    st.builds(RMSprop, small, positive, small, st.booleans(), small),
)
local: Any = {
    "lr": positive,
    "batch": ints | st.just("full"),
    "optimiser": optimisers,
    "keep_moments": st.booleans(),
    "clip": maybe(positive),
    "drop_last": st.booleans(),
    "local_schedule": st.builds(Flat) | st.builds(SawTooth, small),
}
clients = st.builds(LocalTraining, **local, epochs=ints, stragglers=small, schedule=schedules) | st.builds(
    LocalTraining,
    **local,
    steps=ints | st.tuples(ints, ints).map(sorted).map(tuple),
    schedule=schedules.filter(lambda schedule: not schedule.moves_epochs),
)
weighting = st.sampled_from(["samples", "uniform"])
methods = st.one_of(
    st.builds(FedAvg, weighting=weighting),
    st.builds(FedProx, small, weighting=weighting),
    st.sampled_from(list(METHODS.values())),
    st.builds(Halved, positive, st.lists(text).map(tuple)),
)
servers = st.one_of(
    st.builds(ServerSGD, positive, small),
    st.builds(FedAdagrad, positive, small, positive, small),
    st.builds(FedAdam, positive, small, small, positive, small, st.sampled_from(["none", "keras", "flower", "both"])),
    st.builds(FedYogi, positive, small, small, positive, small),
)
samplings = st.one_of(
    st.builds(Uniform, ints, dropout=small),
    st.builds(Uniform, fraction=st.floats(0.01, 1)),
    st.builds(Weighted, ints, dropout=small),
    st.builds(FixedClients, st.lists(st.sets(st.integers(0, 99)).map(sorted), min_size=1, max_size=3).map(tuple)),
    st.builds(Function, st.just("support.experiments:broken")),
)
parts = st.sampled_from(["all", "classifier", "extractor"]) | st.lists(text, min_size=1, max_size=2).map(tuple)
averages = st.one_of(
    st.builds(Window, ints, ints, ints, st.sampled_from(["auto", "device", "host", "disk"]), part=parts),
    st.builds(SWA, ints, ints, st.sampled_from(["bottom", "top"]), part=parts),
    st.builds(EMA, small, st.sampled_from(["first", "initial", "zero"]), part=parts),
)
engines = st.builds(
    LocalEngine,
    pieces=ints,
    start=st.sampled_from(["auto", "fork", "spawn"]),
    kind=st.sampled_from(["auto", "vectorised"]),
    workers=ints | auto,
    block=ints | auto,
    compile=st.booleans() | auto,
    memory_format=st.sampled_from(["auto", "contiguous", "channels_last"]),
    threads=ints | auto,
)
tasks = st.one_of(
    st.builds(Classification, st.lists(positive, max_size=3).map(tuple), small),
    st.builds(Binary, positive) | st.builds(MultiLabel, positive) | st.builds(NextToken, st.integers(-100, 100)),
    st.builds(Regression, st.sampled_from(["squared", "absolute", "huber"]), positive),
    st.builds(Segmentation, maybe(ints)) | st.just(NextCharacter()),
)
metrics = st.builds(Accuracy, ints) | st.sampled_from([F1(), MeanIoU(), RootMeanSquaredError(), R2(), Perplexity()])
evaluations = st.builds(
    Evaluation,
    *(ints, ints, text, maybe(st.floats(-1e6, 1e6)), st.booleans(), st.booleans()),
    fine_tuning=maybe(st.builds(FineTuning, st.integers(0, 9)) | st.builds(FineTuning, steps=ints, lr=positive)),
    batch=ints,
    held_out=st.floats(0.01, 0.9),
    best_on=st.sampled_from(["held_out", "test"]),
)

callbacks: Any = st.one_of(
    st.builds(EarlyStopping, ints, names, better=st.sampled_from(["higher", "lower", ""])),
    st.builds(ExportBest, st.lists(names).map(tuple)),
    st.builds(WandB, text, text),
    st.builds(Trackio, text, text),
)
trackers = st.builds(MLflow, text, text, text)


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    observed: dict[str, Average] = draw(st.dictionaries(names, averages, max_size=3))
    one = st.sampled_from(sorted(observed) or [""])
    broadcasts = st.builds(Broadcast, one, ints, st.sampled_from(["after", "before", "code"])) | st.builds(
        Broadcast, one | st.just(tuple(observed)), st.just("auto"), patience=ints
    )
    return draw(
        st.builds(
            Experiment,
            seed=st.integers(0, 2**40),
            rounds=ints,
            device=st.sampled_from(["auto", "cpu", "cuda:1", "mps"]),
            broadcast=maybe(broadcasts) if observed else st.none(),
            data=st.builds(Digits, small, st.booleans()) | images(),
            partition=partitions,
            model=models,
            local=clients,
            method=methods,
            aggregation=st.builds(WeightedMean, limit=positive) | st.sampled_from(list(AGGREGATIONS.values())),
            server=servers,
            sampling=samplings,
            averages=st.just(observed),
            task=maybe(tasks),
            metrics=st.dictionaries(names, metrics, max_size=3),
            evaluation=evaluations,
            engine=engines,
            checkpoint=st.builds(Checkpoint, ints, st.lists(ints).map(tuple)),
            trajectory=st.builds(RunningSums, st.integers(0, 1000)),
            callbacks=st.dictionaries(names, callbacks, max_size=3),
            track=st.builds(Track, maybe(st.builds(TensorBoard)), maybe(st.builds(WandB, text)), maybe(trackers)),
        )
    )


@settings(max_examples=25, deadline=None)
@given(experiments())
def test_an_experiment_written_as_a_file_loads_as_an_equal_experiment(experiment: Experiment) -> None:
    file = tomli_w.dumps(experiment.table())
    assert parse(tomllib.loads(file), own_code=True) == experiment


@settings(max_examples=15, deadline=None)
@given(experiments())
def test_the_table_of_an_experiment_is_complete(experiment: Experiment) -> None:
    def check(thing: Any, table: Any) -> None:
        if isinstance(thing, Model):
            assert set(table) == {"name"} | {k for k in REGISTRIES["models"].options(thing.name) if k != "**"} | {
                *thing.options
            }
        elif is_dataclass(thing):
            values = {f.name: getattr(thing, f.name) for f in fields(thing) if f.init}
            given = {name: value for name, value in values.items() if value is not None}
            assert set(table) - {"name"} == set(given)
            for name, value in given.items():
                check(value, table[name])
        elif isinstance(thing, tuple) and any(map(is_dataclass, thing)):
            assert len(table) == len(thing)
            for one, inner in zip(thing, table, strict=True):
                check(one, inner)
        elif isinstance(thing, dict):
            assert set(table) == set(thing)
            for name, value in thing.items():
                check(value, table[name])

    check(experiment, experiment.table())


def test_every_registered_thing_has_options_that_a_file_can_hold() -> None:
    for room in REGISTRIES.values():
        for name in room.things:
            assert "name" not in room.options(name), "in a file, name chooses the thing"
            for option in room.options(name).values():
                assert not describe(option.kind).startswith("of type"), (name, option)
