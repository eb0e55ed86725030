"""Experiment files: every table round-trips, every error is one line that names the key."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from choices import AGGREGATIONS, METHODS
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedsash import EMA, SWA, Checkpoint, Client, Engine, Evaluation, FedAvg, FedProx, Feed, Mean, Scaffold, Window
from fedsash.averages import Average
from fedsash.config import ConfigError, Experiment, Model, Recording, load, parse
from fedsash.config.registry import ROOMS, describe, options
from fedsash.data import IID, Digits, Dirichlet, DirichletClasses, DirichletReuse, Flwr, Images, Shakespeare, Shards
from fedsash.data.named import Named
from fedsash.methods import Method, Step
from fedsash.sampling import Fixed, Function, Uniform, Weighted
from fedsash.schedules import Constant, Cosine, Cyclic, Exponential, Flat, Mild, SawTooth
from fedsash.schedules import Step as StepDecay
from fedsash.servers import SGD, Adagrad, Adam, Yogi

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
PAPERS = sorted((ROOT / "examples" / "papers").glob("*.toml"))
FROM_A_FOLDER = {
    "cifar10": "cifar10",
    "cifar10_ima": "cifar10",
    "cifar10_wima": "cifar10",
    "domains": "pacs",
    "hub": "fashion_mnist",
    "shakespeare": "shakespeare",
}
"""Examples whose data are not in the library, and the folder of FEDSASH_DATA that has them."""


@dataclass(frozen=True)
class Halved(Method):
    """A user's own method."""

    by: float = 2.0
    layers: tuple[str, ...] = ()

    def direction(self, step: Step) -> Tensor:
        return step.grad(step.w) / self.by


def linear(features: int, classes: int = 10, **more: Any) -> nn.Module:
    """A user's own model, which takes any option."""
    return nn.Linear(features, classes, **more)


def broken(features: int) -> nn.Module:
    raise ZeroDivisionError(features)


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
        st.just("test_config:linear"),
        st.fixed_dictionaries({"features": ints}, optional={"bias": st.booleans()}),
    ),
)
schedules = st.one_of(
    st.builds(Constant),
    st.builds(Exponential, st.floats(0.1, 1)),
    st.builds(Cosine, ints, small),
    st.builds(StepDecay, ints, st.floats(0.1, 1)),
    st.builds(Cyclic, ints, ints, small),
    st.builds(Mild, ints, st.sampled_from(["exponential", "constant", "cyclic", "epochs", "none"])),
)
clients = st.builds(
    Client,
    lr=positive,
    batch=ints | st.just("full"),
    steps=maybe(ints),
    momentum=small,
    clip=maybe(positive),
    drop_last=st.booleans(),
    schedule=schedules,
    local_schedule=st.builds(Flat) | st.builds(SawTooth, small),
)
weighting = st.sampled_from(["samples", "uniform"])
methods = st.one_of(
    st.builds(FedAvg, weighting=weighting),
    st.builds(FedProx, small, weighting=weighting),
    st.sampled_from(list(METHODS.values())),
    st.builds(Halved, positive, st.lists(text).map(tuple)),
)
servers = st.one_of(
    st.builds(SGD, positive, small),
    st.builds(Adagrad, positive, small, positive, small),
    st.builds(Adam, positive, small, small, positive, small, st.sampled_from(["none", "keras", "flower"])),
    st.builds(Yogi, positive, small, small, positive, small),
)
samplings = st.one_of(
    st.builds(Uniform, ints, dropout=small),
    st.builds(Uniform, fraction=st.floats(0.01, 1)),
    st.builds(Weighted, ints, dropout=small),
    st.builds(Fixed, st.lists(st.sets(st.integers(0, 99)).map(sorted), min_size=1, max_size=3).map(tuple)),
    st.builds(Function, st.just("math:hypot")),
)
parts = st.sampled_from(["all", "classifier", "extractor"]) | st.lists(text, min_size=1, max_size=2).map(tuple)
averages = st.one_of(
    st.builds(Window, ints, ints, ints, st.sampled_from(["auto", "device", "host", "disk"]), part=parts),
    st.builds(SWA, ints, ints, st.sampled_from(["bottom", "top"]), part=parts),
    st.builds(EMA, small, st.sampled_from(["first", "initial", "zero"]), part=parts),
)
engines = st.builds(
    Engine,
    kind=st.sampled_from(["auto", "vectorised"]),
    workers=ints | auto,
    block=ints | auto,
    compile=st.booleans() | auto,
    memory_format=st.sampled_from(["auto", "contiguous", "channels_last"]),
    threads=ints | auto,
)


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    observed: dict[str, Average] = draw(st.dictionaries(names, averages, max_size=3))
    one = st.sampled_from(sorted(observed) or [""])
    feeds = st.builds(Feed, one, ints, st.sampled_from(["after", "before", "code"])) | st.builds(
        Feed, one | st.just(tuple(observed)), ints | st.just("auto"), patience=ints
    )
    return draw(
        st.builds(
            Experiment,
            seed=st.integers(0, 2**40),
            rounds=ints,
            device=st.sampled_from(["auto", "cpu", "cuda:1", "mps"]),
            feed=maybe(feeds) if observed else st.none(),
            data=st.builds(Digits, small, st.booleans()) | images(),
            partition=partitions,
            model=models,
            client=clients,
            method=methods,
            aggregation=st.builds(Mean, limit=positive) | st.sampled_from(list(AGGREGATIONS.values())),
            server=servers,
            sampling=samplings,
            averages=st.just(observed),
            evaluation=st.builds(
                Evaluation, ints, ints, st.floats(0.01, 1), st.booleans(), ints, st.floats(0.01, 0.99)
            ),
            engine=engines,
            checkpoint=st.builds(Checkpoint, ints, st.lists(ints).map(tuple)),
            records=st.builds(Recording, st.booleans()),
        )
    )


@settings(max_examples=60, deadline=None)
@given(experiments())
def test_an_experiment_written_as_a_file_loads_as_an_equal_experiment(experiment: Experiment) -> None:
    file = tomli_w.dumps(experiment.table())
    assert parse(tomllib.loads(file)) == experiment


@settings(max_examples=30, deadline=None)
@given(experiments())
def test_the_table_of_an_experiment_is_complete(experiment: Experiment) -> None:
    def check(thing: Any, table: Any) -> None:
        if isinstance(thing, Model):
            assert set(table) == {"name"} | {k for k in options(ROOMS["models"].find(thing.name)) if k != "**"} | {
                *thing.options
            }
        elif is_dataclass(thing):
            given = {f.name: getattr(thing, f.name) for f in fields(thing) if getattr(thing, f.name) is not None}
            assert set(table) - {"name"} == set(given)
            for name, value in given.items():
                check(value, table[name])
        elif isinstance(thing, dict):
            assert set(table) == set(thing)
            for name, value in thing.items():
                check(value, table[name])

    check(experiment, experiment.table())


def test_every_registered_thing_has_options_that_a_file_can_hold() -> None:
    for room in ROOMS.values():
        for make in room.things.values():
            for option in options(make).values():
                assert not describe(option.kind).startswith("of type"), (make, option)


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
    assert parse({"sampling": {"dropout": 0.5}}).sampling == Uniform(10, dropout=0.5)
    assert parse({"sampling": {"fraction": 0.5}}).sampling == Uniform(fraction=0.5)
    assert parse({"model": {"hidden": [3, 4]}}).model == Model("mlp", {"hidden": (3, 4)})
    assert parse({"client": {"schedule": {"name": "cosine", "rounds": 9}}}).client == Client(schedule=Cosine(9))


def test_whole_numbers_are_numbers_too() -> None:
    lr = parse({"client": {"lr": 1}}).client.lr
    assert lr == 1.0 and isinstance(lr, float)


def test_feed_may_be_the_name_of_an_average() -> None:
    window = {"w": {"name": "window", "size": 3}}
    assert parse({"feed": "w", "averages": window}).feed == Feed("w")
    assert parse({"feed": {"average": "w", "start": 4}, "averages": window}).feed == Feed("w", 4)


def test_a_users_own_dataclass_and_function_are_named_by_their_module() -> None:
    own = {"name": "test_config:Halved", "by": 4, "layers": ["a"]}
    experiment = parse({"method": own, "model": {"name": "test_config:linear", "features": 64, "bias": False}})
    assert experiment.method == Halved(4.0, ("a",))
    assert experiment.table()["method"] == own | {"weighting": "samples"}
    assert experiment.model.options == {"features": 64, "classes": 10, "bias": False}
    assert experiment.federation().layout.size == 640


def file_with(content: str, folder: Path) -> Path:
    path = folder / "experiment.toml"
    path.write_text(content)
    return path


WINDOW = 'averages.w = { name = "window", size = 3 }\n'


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('client.lr = "fast"', 'client.lr = "fast": must be a number'),
        ('client.lr = "0.1"', 'client.lr = "0.1": must be a number'),
        ("client.lr = true", "client.lr = true: must be a number"),
        ("client.lr = [0.1]", "client.lr = [0.1]: must be a number"),
        ("client.lr = 1979-05-27", 'client.lr = "1979-05-27": must be a number'),
        ("client.lr = -1", "client.lr = -1.0: must not be negative"),
        ("client.clip = inf", "client.clip = inf: must be finite"),
        ('client.batch = "half"', 'client.batch = "half": must be an integer or "full"'),
        ("client.epochs = 1.5", "client.epochs = 1.5: must be an integer"),
        ("client.drop_last = 1", "client.drop_last = 1: must be true or false"),
        ("client.learning_rate = 1", "unknown key client.learning_rate; did you mean client.lr?"),
        ("client.batch_size = 1", "unknown key client.batch_size; did you mean client.batch?"),
        ("client = 3", "client = 3: must be a table, [client]"),
        ('client.schedule = "mild"', 'client.schedule = "mild": must be a table, [client.schedule] with name = "mild"'),
        ('client.schedule.name = "step"', "client.schedule.every is missing: must be an integer"),
        ("client.schedule.pace = 3", "unknown key client.schedule.pace; known are name"),
        ("seed = true", "seed = true: must be an integer"),
        ("rounds = 0", "rounds = 0: must be at least 1"),
        ("sed = 3", "unknown key sed; did you mean seed?"),
        ('method.name = "fedpro"', "did you mean fedprox?"),
        ("method.name = 3", "method.name = 3: must be one of fedavg, fedprox, ewc, scaffold, "),
        ('method.name = "fednova"', 'package.module:Class"; there is aggregation.name = "fednova"'),
        ('aggregation.name = "fedsam"', 'package.module:Class"; there is method.name = "fedsam"'),
        ('method.name = "nowhere:Method"', 'method.name = "nowhere:Method": can\'t be imported: No module named'),
        ('method.name = "test_config:linear"', "must be a dataclass that extends fedsash.methods.base.Method"),
        ('method = { name = "fedprox", wight = 1 }', "unknown key method.wight; did you mean method.weighting?"),
        ('method = { name = "fedprox", weighting = "size" }', 'must be "samples" or "uniform"'),
        ("partition = { name = 'iid', alpha = 1 }", "unknown key partition.alpha; known are clients, name"),
        ("partition.alpha = -1", "partition.alpha = -1.0: must be positive"),
        ('data.name = "images"', "data.path is missing: must be a string"),
        ("model.hidden = 64", "model.hidden = 64: must be a list of integers"),
        ("model.depth = 3", "unknown key model.depth; known are hidden, name"),
        ('model.name = "resnet"', "must be one of mlp, fmnist_cnn, "),
        ('model.name = "math:pi"', 'model.name = "math:pi": must be a function that returns an nn.Module'),
        ("averages.w.size = 3", "averages.w.name is missing: must be one of window, swa, ema"),
        ('averages.w.name = "windows"', 'averages.w.name = "windows": must be one of window, swa, ema, or "package'),
        ("averages = 3", "averages = 3: must be a table, [averages]"),
        ('averages.w = { name = "window", size = 0 }', "averages.w.size = 0: must be at least 1"),
        ('averages.w = { name = "window", size = 3, part = 3 }', "must be a string or a list of strings"),
        ('averages."a/b" = { name = "window", size = 3 }', "averages = 'a/b': must be a name of letters"),
        ('averages.model = { name = "window", size = 3 }', "averages = 'model': must be a name"),
        ('feed = "w"', "feed.average = 'w': must be an average; there is none, add one"),
        ('feed = "x"\n' + WINDOW, "feed.average = 'x': must be an average; there is w"),
        ('feed = { average = "w", start = "auto" }\n' + WINDOW, "feed.start: to be chosen it needs held-out data"),
        ("feed = { start = 3 }\n" + WINDOW, "feed.average is missing: must be a string"),
        ('feed = { average = "w", start = -3 }\n' + WINDOW, 'feed.start = -3: must be 0 or more, or "auto"'),
        ("sampling = { count = 5, fraction = 0.5 }", "sampling.count, fraction = (5, 0.5): must be a count"),
        ('sampling.name = "fixed"', "sampling.rounds is missing: must be a list of lists of integers"),
        ('engine = { kind = "sequential", block = 4 }', 'compile and block go with kind = "vectorised"'),
        ("checkpoint.keep = [0]", "checkpoint.keep = (0,): must be rounds, 1 or more"),
        ("client.lr = ", "is not TOML: Invalid value (at end of document)"),
        ("client.lr = 1\nclient.lr = 2", "is not TOML: Cannot overwrite a value (at end of document)"),
    ],
)
def test_an_error_is_one_line_that_names_the_key(content: str, line: str, tmp_path: Path) -> None:
    path = file_with(content, tmp_path)
    with pytest.raises(ConfigError) as error:
        load(path)
    message = str(error.value)
    assert message.startswith(f"{path}: ") and line in message and "\n" not in message


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("sampling.count = 101", "sampling.count = 101: must be at most the number of clients, 100"),
        ("sampling.trace = 'none.csv'", "sampling.trace = 'none.csv': can't be read"),
        ("partition.clients = 2000", "partition.clients = 2000: must be at most 1438, for 1438 samples"),
        ('data = { name = "images", path = "./nowhere" }', "data.path = './nowhere': there is no such folder"),
        ('model.name = "cifar_cnn"', "shape of one input = (64,): must be (channels, height, width)"),
        (
            'model = { name = "test_config:linear", features = 63 }',
            'model.name = "test_config:linear": does not take the data\'s samples of shape (64,): mat1 and mat2',
        ),
        (
            'model = { name = "test_config:linear", features = 64, classes = 9 }',
            "must answer [samples, classes] for 10 classes; 2 samples give [2, 9]",
        ),
        ('model.name = "torch.nn:ReLU"', "model: ReLU has no trainable parameters"),
        (
            'averages.w = { name = "window", size = 3, part = "head" }',
            "averages.w.part = 'head': nothing",
        ),
        ('device = "abacus"', "device = 'abacus': not available here"),
    ],
)
def test_what_does_not_fit_together_is_found_before_training(content: str, line: str, tmp_path: Path) -> None:
    try:
        load(file_with(content, tmp_path)).federation()
    except ConfigError as error:
        assert line in str(error) and "\n" not in str(error)
    else:
        pytest.fail("nothing was found")


def test_an_error_in_a_users_own_code_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        parse({"model": {"name": "test_config:broken", "features": 1}}).federation()


def test_a_file_that_is_missing_or_unreadable_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: there is no such file$"):
        load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=r"can't be read: .*directory"):
        load(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9")
    with pytest.raises(ConfigError, match=r"latin\.toml: can't be read: 'utf-8' codec"):
        load(tmp_path / "latin.toml")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("seed=3", Experiment(seed=3)),
        ("client.lr=1e-3", Experiment(client=Client(lr=1e-3))),
        (" client.lr = 2 ", Experiment(client=Client(lr=2.0))),
        ("client.batch=full", Experiment(client=Client(batch="full"))),
        ('client.batch="full"', Experiment(client=Client(batch="full"))),
        ("model.hidden=[8, 8]", Experiment(model=Model("mlp", {"hidden": (8, 8)}))),
        ("client.drop_last=true", Experiment(client=Client(drop_last=True))),
        ("data={name='images', path='a=b'}", Experiment(data=Images("a=b"))),
        ("averages.w={name='ema', decay=0.5}", Experiment(averages={"w": EMA(0.5)})),
        ("method.name=scaffold", Experiment(method=Scaffold())),
    ],
)
def test_an_override_is_a_toml_value_or_a_bare_word(override: str, expected: Experiment, tmp_path: Path) -> None:
    assert load(file_with("", tmp_path), [override]) == expected


def test_overrides_change_the_file_in_order(tmp_path: Path) -> None:
    path = file_with('seed = 1\nfeed = "w"\nclient.lr = 1\n' + WINDOW, tmp_path)
    experiment = load(path, ["seed=2", "seed=3", "feed.start=7", "averages.w.size=9", "client={epochs=2}"])
    assert experiment.seed == 3
    assert experiment.feed == Feed("w", 7)
    assert experiment.averages == {"w": Window(9)}
    assert experiment.client == Client(epochs=2)


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("client.lr", "--set client.lr: must be KEY=VALUE, such as client.lr=0.05"),
        ("=3", "--set =3: must be KEY=VALUE"),
        ("client..lr=3", "--set client..lr=3: must be KEY=VALUE"),
        ("client.lr=", 'client.lr = "": must be a number'),
        ("client.lr=1 2", 'client.lr = "1 2": must be a number'),
        ("seed.lr=1", "seed = {lr = 1}: must be an integer"),
        ("client.rate=1", "unknown key client.rate"),
    ],
)
def test_a_wrong_override_is_one_line(override: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load(file_with("", tmp_path), [override])
    assert line in str(error.value)


@pytest.mark.parametrize("path", [p for p in EXAMPLES if p.stem not in FROM_A_FOLDER], ids=lambda p: p.stem)
def test_examples_train(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT)
    if path.stem == "flwr":
        pytest.importorskip("flwr_datasets")
    engine = ["engine.kind=sequential", "engine.workers=1", "engine.threads=1", "engine.compile=false"]
    experiment = load(path, engine)
    assert parse(experiment.table()) == experiment
    with experiment.federation() as federation:
        state, outcome = federation.round(federation.start())
    assert outcome.moved and state.round == 1


@pytest.mark.parametrize("path", PAPERS, ids=lambda p: p.stem)
def test_the_papers_experiments_load(path: Path) -> None:
    experiment = load(path)
    assert parse(experiment.table()) == experiment
    assert f"fedsash run examples/papers/{path.name} --out" in path.read_text()


@pytest.mark.parametrize("path", [p for p in EXAMPLES if p.stem in FROM_A_FOLDER], ids=lambda p: p.stem)
def test_examples_on_data_from_a_folder_load(path: Path) -> None:
    experiment = load(path)
    assert isinstance(experiment.data, Images | Named | Shakespeare)
    assert parse(experiment.table()) == experiment


@pytest.mark.slow
@pytest.mark.parametrize("name", FROM_A_FOLDER)
def test_examples_on_data_from_a_folder_fit_them(
    name: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "FEDSASH_DATA" not in os.environ:
        pytest.skip("FEDSASH_DATA names no folder with data")
    monkeypatch.setenv("FEDSASH_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    path = Path(os.environ["FEDSASH_DATA"]) / FROM_A_FOLDER[name]
    federation = load(ROOT / "examples" / f"{name}.toml", [f"data.path={path}"]).federation()
    assert len(federation.data.clients) in (80, 100, 299)


def test_runs_with_one_partition_seed_have_the_same_clients_whatever_their_seed() -> None:
    def clients(**table: int) -> list[list[int]]:
        return [client.tolist() for client in parse(table).federated_data().clients]

    assert clients(seed=1, partition_seed=0) == clients(seed=2, partition_seed=0) == clients(seed=0)
    assert clients(seed=1) != clients(seed=0)
    with pytest.raises(ConfigError, match="partition_seed = -1: must not be negative"):
        parse({"partition_seed": -1})
