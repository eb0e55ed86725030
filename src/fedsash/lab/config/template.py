"""The text of a new experiment file: the data that a user names, and every other key with its default, commented."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...data.sources import frames
from ...data.sources.formats.memory import UNPACKED
from ...data.sources.images import kinds
from ...settings.errors import check, some
from ...settings.options import REQUIRED, Make, options
from ...tasks import are_classes
from .errors import check_known
from .experiment import Experiment
from .parsing import parse
from .registries import REGISTRIES, Registry, registry_of
from .tables import plain, table_in
from .words import ENDS, show

if TYPE_CHECKING:
    import pandas

WIDTH = 120
"""The longest line."""
SHORTEST = 30
"""At least so many letters of a remark stand behind a line; if there is less room, it is below."""
COLUMN = 32
"""Where remarks begin if there is room."""
NAMES = 60
"""The longest list of names in a remark."""

OPEN = "..."
"""Stands for a value that a key has no default for."""

HEAD = f"""\
#:schema ./fedsash.schema.json
# An experiment of fedsash. Train it with:  fedsash run FILE
#
# A line such as "# rounds = 300" shows a default: take its # away to change it. {OPEN} stands for a value of yours.
# More: `fedsash list local` explains a table, `fedsash list local.lr` a key, `fedsash list methods` all that a name
# can be. `fedsash partition FILE` shows who holds which samples. An editor checks this file with what
# `fedsash schema fedsash.schema.json` writes.
"""

AVERAGES = {"window20": {"name": "window", "size": 20}}
FEW = {"name": "iid", "clients": 10}
"""The partition of one's own data, which may be few samples, and whose labels need not be classes."""

EACH_USER: dict[str, dict[str, Any]] = {
    "partition": {"name": "users"},
    "sampling": {"fraction": 1.0},
    "evaluation": {"client_test": True},
}
"""What is set for data that name each sample's user."""

LARGE = 20
"""The largest numbers that the default model learns at the default rate. A linear model takes numbers of any size."""

LEFT = "# no feature, since it holds no numbers (pandas.get_dummies makes columns of categories): "
"""Begins a line on a column that is left out."""
SERIES = "# the test set is drawn at random; with time in [data] it is the latest rows, as a series needs it: time = "
"""Begins a line on a column that may be a time."""
TIME = re.compile(r"(.*[^a-z])?(date|datetime|timestamp)s?|time|year|month|week|day|hour", re.IGNORECASE)
"""The names of columns that may be times."""
GAPS = "# gaps: "
"""Begins a line on a column that lacks values."""
SIZES = "# the images differ: "
"""Begins a line on what makes them alike."""
SAID = (LEFT, GAPS, SERIES, SIZES)
"""The beginnings of lines that are printed, too, when the file is written."""
LOOKED_AT = 1000
"""So many images of a split are looked at, at most."""
WIDE = 64
"""The largest size to which images of different sizes are scaled."""
MODELS = {
    **dict.fromkeys(("texts", "shakespeare"), "shakespeare_lstm"),
    **dict.fromkeys(("mnist", "fashion_mnist"), "fmnist_cnn"),
    **dict.fromkeys(("cifar10", "cifar100"), "cifar_cnn"),
    "femnist": "femnist_cnn",
    "digit_five": "digit_five_cnn",
    "landmarks": "mobilenet_v2_gn",
    "pacs": "alexnet_gn",
    "tiny_imagenet": "resnet20_gn",
}
"""The models of published data, and of data that the default model can't learn."""
SMALLEST = 16
"""The smallest side of images for a convolutional network; below, the default model sees every pixel."""


def template(
    data: str, path: str = "", file: str = "experiment.toml", label: str | Sequence[str] = "", user: str = ""
) -> str:
    """The text of an experiment file for a data set of that name, at `path` if it has files.

    `file` is its name as a shell takes it. `label` and `user` are the columns of labels and of users, if the data have
    columns; a table may have several labels. With `user`, each user is a client, all of them train in each round, and
    each scores the models.
    Raises `ConfigError` if there is no such data set, and `SettingError` unless `path` and the columns fit it.
    """
    registry = REGISTRIES["datasets"]
    check_known(data, registry.things, "there is no data set")
    place = registry.options(data).get("path")
    needed = place is not None and place.default in (REQUIRED, "")
    check(bool(path) or not needed, "--path", path, f"must be the file or the folder of your {data}")
    check(place is not None or not path, "--path", path, f"must be left out: {data} need no files")
    labels = [label] if isinstance(label, str) else list(label)
    check(not user or user not in labels, "--user", user, "must be another column than --label")
    if len(labels) == 1:
        label = labels[0]
    else:
        check(data == "table", "--label", ", ".join(labels), f"must be one column: {data} have no several labels")
        check(len(set(labels)) == len(labels), "--label", ", ".join(labels), "must name each column once")
        label = labels
    settings: dict[str, dict[str, Any]] = {"data": {"name": data}, "averages": AVERAGES}
    chosen: dict[str, str | list[str]] = {"path": path, "label": label, "user": user}
    for name, value in chosen.items():
        if value:
            requirement = f"must be left out: {data} have no such column"
            check(name in registry.options(data), f"--{name}", value, requirement)
            settings["data"][name] = value
    check(
        data != "texts" or not label,
        "--label",
        label,
        "must be left out: no named model classifies texts; docs/how-to/texts.md has a small one, and a file for it",
    )
    remarks: list[str] = []
    if data == "table":
        features, learned, remarks = _columns(path, [name or "label" for name in labels], user)
        settings["data"] |= {"standardise": True} | features
        settings |= learned
    if data == "images" and Path(path).expanduser().is_dir():
        alike, smallest, remarks = _alike(path, labels[0], user)
        settings["data"] |= alike
        if smallest > WIDE:
            settings["model"] = {"name": "resnet20_gn"}
        elif smallest >= SMALLEST:
            settings["model"] = {"name": "cifar_cnn"}
    if user:
        settings |= EACH_USER
    elif needed:
        settings["partition"] = FEW
    if data in MODELS:
        settings["model"] = {"name": MODELS[data]}
    head = HEAD.replace("FILE", file)
    for remark in remarks:
        head += f"{remark}\n"
    lines = _lines(parse(settings), settings)
    return head + "\n" + "\n".join(lines) + "\n"


def _columns(
    path: str, labels: Sequence[str], user: str
) -> tuple[dict[str, Any], dict[str, dict[str, Any]], list[str]]:
    """The features of a table, if not all of its other columns hold numbers; what labels need that are no classes; and
    lines on the columns that are left out, that lack values, or that may be times.

    Raises `SettingError` without a label, or without a column of numbers.
    """
    columns = dict.fromkeys(labels, "--label")
    if user:
        columns[user] = "--user"
    rows, test = frames.read(path, columns, UNPACKED, "--path", rest=True)
    others = frames.others(list(rows.columns), columns)
    numbers = [name for name in others if rows[name].dtype.kind in "biuf"]
    check(bool(numbers), "--path", path, "holds no column of numbers besides its labels and users")
    learned: dict[str, dict[str, Any]] = {}
    for label in labels:
        if rows[label].dtype.kind in "iuf" and not are_classes(_without_gaps(rows[label])):
            learned["task"] = {"name": "regression"}
            if rows[label].abs().max() > LARGE:
                learned |= _linear(len(numbers))
    no_numbers = [name for name in others if name not in numbers]
    remarks = [f"{LEFT}{show(str(name))}" for name in no_numbers]
    tables = [rows] if test is None else [rows, test]
    remarks += _gaps(tables, [*columns, *numbers])
    if test is None:
        for name in others:
            if TIME.fullmatch(str(name)) or rows[name].dtype.kind == "M":
                remarks.append(f"{SERIES}{show(str(name))}")
                break
    features = {"features": numbers} if no_numbers else {}
    return features, learned, remarks


def _without_gaps(labels: pandas.Series[Any]) -> NDArray[Any]:
    """The labels that a column has. Whole numbers are integers again, which pandas makes floats beside a gap."""
    present: NDArray[Any] = labels.dropna().to_numpy()
    if len(present) < len(labels) and (present % 1 == 0).all():
        return present.astype(np.int64)
    return present


def _gaps(tables: Sequence[pandas.DataFrame], columns: Sequence[str]) -> list[str]:
    """A line on each column that lacks values in the rows for training or for testing: no run starts with it."""
    remarks = []
    total = sum(map(len, tables))
    for name in columns:
        missing = sum(int(table[name].isna().sum()) for table in tables)
        if missing:
            lack = f"{missing:,} of {total:,} rows lack {show(str(name))}"
            remarks.append(f"{GAPS}{lack}: fedsash run refuses it, so fill them, or drop the rows or the column")
    return remarks


def _alike(path: str, label: str, user: str) -> tuple[dict[str, Any], int, list[str]]:
    """The options that give the images in a folder one size and the same channels, if they differ; their smaller side
    then; and lines on them.

    Raises `SettingError` or `DataError` for a folder without images, and for one that can't be read.
    """
    sizes = []
    modes = set()
    for size, mode in kinds(path, {"y": label or None, "user": user or None}, LOOKED_AT):
        sizes.append(size)
        modes.add(mode)
    alike: dict[str, Any] = {}
    remarks = []
    if len(modes) > 1 or not modes <= {"L", "RGB"}:
        alike["channels"] = 3
        remarks.append(f"{SIZES}their modes are {some(sorted(modes))}, so channels = 3 makes them all RGB")
    if len(set(sizes)) > 1:
        alike["size"] = min(int(statistics.median(map(min, sizes))), WIDE)
        smallest = "{}x{}".format(*min(sizes, key=min))
        largest = "{}x{}".format(*max(sizes, key=min))
        remark = f"their sizes go from {smallest} to {largest}, so size = {alike['size']} scales them all"
        if alike["size"] == WIDE:
            remark += "; larger ones take longer, and may be told apart better"
        remarks.append(f"{SIZES}{remark}")
    return alike, alike.get("size", min(sizes[0])), remarks


def _linear(features: int) -> dict[str, dict[str, Any]]:
    """A linear model of so many standardised features, with a rate that is stable however they are correlated."""
    lr = min(0.05, 0.5 / features)
    rounded = float(f"{lr:.1g}")
    return {"model": {"name": "mlp", "hidden": []}, "local": {"lr": rounded}}


def _lines(experiment: Experiment, settings: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The lines of the file: first the keys that are no tables, which TOML wants there, then the tables."""
    tables: list[str] = []
    for option in options(Experiment).values():
        name = option.name
        value = getattr(experiment, name)
        kind, place = table_in(option.kind, name)
        if kind is None:
            yield _line(name, value, option.meaning)
        elif not value:
            yield _line(place, None, option.meaning, names_a_thing=registry_of(kind) is not None)
        elif place == name:
            tables += ["", *_table(name, value, kind, option.meaning, settings.get(name, ()))]
        else:
            for key, inner in value.items():
                tables += ["", *_table(f"{name}.{key}", inner, kind, option.meaning, settings[name][key])]
    yield from tables


def _table(place: str, value: Any, kind: Any, remark: str, active: Collection[str]) -> Iterator[str]:
    """The lines of a table; keys that are not `active` are commented."""
    registry = registry_of(kind)
    table = plain(value, kind)
    yield _remarked(f"[{place}]", remark)
    make: Make = type(value)
    known = options(make)
    if registry is not None:
        known = registry.options(table["name"])
        yield _line("name", table["name"], _names(registry), active="name" in active)
    for name, option in known.items():
        yield _line(name, table.get(name), option.meaning, active=name in active)


def _line(key: str, value: Any, remark: str, *, names_a_thing: bool = False, active: bool = False) -> str:
    """The line of one key, commented unless it is `active`.

    Without a value, what `names_a_thing` is a table with a name.
    """
    text = OPEN
    if value is not None:
        text = show(value)
    elif names_a_thing:
        text = f"{{ name = {OPEN} }}"
    line = f"{key} = {text}"
    if not active:
        line = f"# {line}"
    return _remarked(line, remark)


def _names(registry: Registry) -> str:
    """What a name can be: all names, or the command that lists them, if they are many."""
    names = ", ".join(registry.things)
    if len(names) <= NAMES:
        return names
    title = next(title for title, one in REGISTRIES.items() if one is registry)
    return f"fedsash list {title}"


def _remarked(line: str, remark: str) -> str:
    """A line with the first sentence of a remark behind it, which goes on below where the line is full."""
    if not remark:
        return line
    start = f"{line:<{COLUMN}}  # "
    sentence = re.split(ENDS, remark)[0].rstrip(".")
    below = f"{'#':<{COLUMN}}  # "
    if len(start) > WIDTH - SHORTEST:  # there is no room behind the line
        start = f"{line}\n{below}"
        return start + textwrap.fill(sentence, WIDTH - len(below)).replace("\n", f"\n{below}")
    first, *rest = textwrap.wrap(sentence, WIDTH - len(start))
    lines = [start + first]
    if rest:
        lines += [below + text for text in textwrap.wrap(" ".join(rest), WIDTH - len(below))]
    return "\n".join(lines)
