"""Every error in an experiment file or an override is one line that names the key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedsash.lab.config import ConfigError, load, parse
from fedsash.lab.config.tables import form_of
from support.experiments import WINDOW, file_with


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('local.lr = "fast"', 'local.lr = "fast": must be a number'),
        ('local.lr = "0.1"', 'local.lr = "0.1": must be a number'),
        ("local.lr = true", "local.lr = true: must be a number"),
        ("local.lr = [0.1]", "local.lr = [0.1]: must be a number"),
        ("local.lr = 1979-05-27", "local.lr = 1979-05-27: is a date or a time, which no setting is"),
        ("local.lr = -1", "local.lr = -1: must be at least 0 and at most 1,000,000,000"),
        ("local.clip = inf", "local.clip = inf: must be finite"),
        ('local.batch = "half"', 'local.batch = "half": must be an integer or "full"'),
        ("local.epochs = 1.5", "local.epochs = 1.5: must be an integer"),
        ("local.momentum = 0.9", "unknown key local.momentum; did you mean local.optimiser.momentum?"),
        (
            'local.schedule = {name = "chained", schedules = [{name = "constant"}, {name = "warmup", rounds = 0}]}',
            "local.schedule.schedules.1.rounds = 0: must be at least 1",
        ),
        (
            'local.schedule = {name = "chained", schedules = 3}',
            "local.schedule.schedules = 3: must be a list of tables",
        ),
        ("local.drop_last = 1", "local.drop_last = 1: must be true or false"),
        ("local.learning_rate = 1", "unknown key local.learning_rate; did you mean local.lr?"),
        ("local.batch_size = 1", "unknown key local.batch_size; did you mean local.batch?"),
        ("local = 3", "local = 3: must be a table, [local], with the keys lr, batch, epochs, steps, stragglers, "),
        ("evaluation.fine_tuning = 2", "[evaluation.fine_tuning], with the keys epochs, steps, lr"),
        ('local.schedule = "mild"', 'local.schedule = "mild": must be a table, [local.schedule] with name = "mild"'),
        ('local.schedule.name = "step"', "local.schedule.every is missing: must be an integer"),
        ("local.schedule.pace = 3", "unknown key local.schedule.pace; known are name"),
        ("count = 3", "unknown key count; did you mean sampling.count?"),
        ("seed = true", "seed = true: must be an integer"),
        ("sed = 3", "unknown key sed; did you mean seed?"),
        ('method.name = "fedpro"', "did you mean fedprox?"),
        ("method.name = 3", "method.name = 3: must be one of ewc, fedacg, fedavg, "),
        ('method.name = "fednova"', 'package.module:Class"; there is aggregation.name = "fednova"'),
        ('aggregation.name = "fedsam"', 'package.module:Class"; there is method.name = "fedsam"'),
        ('method.name = "nowhere:Method"', 'method.name = "nowhere:Method": can\'t be imported: No module named'),
        ('method.name = "support.experiments:linear"', "must be a dataclass that extends fedsash.methods.base.Method"),
        (
            'method.name = "support.experiments:Named"',
            "must have no field called name: in a file, name chooses the class",
        ),
        ('method = { name = "fedprox", wight = 1 }', "unknown key method.wight; did you mean method.weighting?"),
        ('method = { name = "fedprox", weighting = "size" }', 'must be "samples" or "uniform"'),
        ("partition = { name = 'iid', alpha = 1 }", "unknown key partition.alpha; known are clients, name"),
        ('data.name = "images"', "data.path is missing: must be a string"),
        ("model.hidden = 64", "model.hidden = 64: must be a list of integers"),
        ("local.epochs = [2]", "local.epochs = [2]: must be an integer or a list of 2 integers"),
        ("local.steps = [1, 2, 3]", "local.steps = [1, 2, 3]: must be an integer or a list of 2 integers"),
        ("broadcast = 3", "broadcast = 3: must be a table, [broadcast], or a string"),
        ("model.depth = 3", "unknown key model.depth; known are hidden, name"),
        ('model.name = "resnet"', "must be one of mlp, fmnist_cnn, "),
        ('model.name = "numpy:pi"', 'model.name = "numpy:pi": must be a class or a function that is written in Python'),
        ("averages.w.size = 3", "averages.w.name is missing: must be one of ema, swa, bema, power_ema, window"),
        (
            'averages.w.name = "windows"',
            'averages.w.name = "windows": must be one of ema, swa, bema, power_ema, window, or "package',
        ),
        ("averages = 3", "averages = 3: must be a table, [averages]"),
        ('averages.w = { name = "window", size = 3, part = 3 }', "must be a string or a list of strings"),
        ('averages."a/b" = { name = "window", size = 3 }', "averages = 'a/b': must be a name of letters"),
        ('averages.model = { name = "window", size = 3 }', "averages = 'model': must be a name"),
        ('broadcast = "w"', "broadcast.average = 'w': must be an average; there is none, add one"),
        ('broadcast = "x"\n' + WINDOW, "broadcast.average = 'x': must be an average; there is w"),
        (
            'broadcast = { average = "w", start = "auto" }\n' + WINDOW,
            "broadcast.start = 'auto': needs held-out samples",
        ),
        ("broadcast = { start = 3 }\n" + WINDOW, "broadcast.average is missing: must be a string"),
        ("sampling = { count = 5, fraction = 0.5 }", "sampling.count, fraction = (5, 0.5): must be one of them"),
        ('sampling.name = "fixed"', "sampling.rounds is missing: must be a list of lists of integers"),
        ('engine = { kind = "sequential", block = 4 }', 'compile and block need kind = "vectorised"'),
        ("checkpoint.keep = [0]", "checkpoint.keep = 0: must be at least 1"),
        ("local.lr = ", "is not TOML: Invalid value (at end of document)"),
        ("local.lr = 1\nlocal.lr = 2", "is not TOML: Cannot overwrite a value (at end of document)"),
    ],
)
def test_an_error_is_one_line_that_names_the_key(content: str, line: str, tmp_path: Path) -> None:
    path = file_with(content, tmp_path)
    with pytest.raises(ConfigError) as error:
        load(path, own_code=True)
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
            'model = { name = "support.experiments:linear", features = 63 }',
            "model: the model does not take samples of shape [64]: mat1",
        ),
        (
            'model = { name = "support.experiments:linear", features = 64, classes = 9 }',
            "model: the model's outputs have the shape [2, 9]: the task Classification needs outputs of shape [2, 10]",
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
        load(file_with(content, tmp_path), own_code=True).federation()
    except ConfigError as error:
        assert line in str(error) and "\n" not in str(error)
    else:
        pytest.fail("nothing was found")


def test_an_error_in_a_users_own_code_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        parse({"model": {"name": "support.experiments:broken", "features": 1}}, own_code=True).federation()


def test_a_file_that_is_missing_or_unreadable_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: there is no such file$"):
        load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=r"can't be read: .* is a folder, and must be a file"):
        load(tmp_path)
    (tmp_path / "marked.toml").write_bytes(b"\xef\xbb\xbfrounds = 7")  # as editors of Windows write it
    assert load(tmp_path / "marked.toml").rounds == 7
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9")
    with pytest.raises(ConfigError, match=r"latin\.toml: can't be read: 'utf-8' codec"):
        load(tmp_path / "latin.toml")


def test_a_path_that_is_no_text_is_refused_since_no_config_could_hold_it() -> None:
    path = os.fsdecode(b"caf\xe9.csv")
    with pytest.raises(ConfigError, match=r"data.path = .*: is no text in UTF-8, as an experiment must be: rename the"):
        parse({"data": {"name": "table", "path": "x.csv"}}, [f"data.path={path}"])


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("local.lr", "--set local.lr: must be KEY=VALUE, such as local.lr=0.05"),
        ("=3", "--set =3: must be KEY=VALUE"),
        ("local..lr=3", "--set local..lr=3: must be KEY=VALUE"),
        ("local.lr=", 'local.lr = "": must be a number'),
        ("local.lr=1 2", 'local.lr = "1 2": must be a number'),
        ("seed.lr=1", "seed = {lr = 1}: must be an integer"),
        ("local.rate=1", "unknown key local.rate"),
    ],
)
def test_a_wrong_override_is_one_line(override: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load(file_with("", tmp_path), [override])
    assert line in str(error.value)


def test_a_number_is_named_as_it_was_written_whatever_was_read_before() -> None:
    """Types that are equal need not be the same object: what is kept by type gives either."""
    form_of(float | None)
    with pytest.raises(ConfigError, match=r"^local\.clip = 0: must be positive$"):
        parse({"local": {"clip": 0}})
