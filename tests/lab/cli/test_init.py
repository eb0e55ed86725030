"""`fedsash init`: the file that it writes runs as it is, and its comments are the defaults."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedsash.data.partitions import Users
from fedsash.data.sources.table import Table
from fedsash.lab.cli import main
from fedsash.lab.config import Experiment, load, parse
from fedsash.lab.config.registries import REGISTRIES
from fedsash.lab.config.template import OPEN
from fedsash.methods.sampling import Uniform
from fedsash.settings.options import options
from fedsash.tasks import Regression
from support.limits import short_files

ENGINE = ["--set", "engine.kind=sequential", "--set", "engine.workers=1", "--set", "engine.threads=1"]
DATA = REGISTRIES["datasets"].things
NEED_A_PATH = [name for name in DATA if name not in ("digits", *(n for n in DATA if getattr(DATA[n], "path", "")))]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1
    return error


def test_digits_are_written_and_train(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    assert "train it: fedsash run experiment.toml" in capsys.readouterr().out
    assert load("experiment.toml") == parse({"averages": {"window20": {"name": "window", "size": 20}}})
    assert main(["run", "experiment.toml", "--rounds", "2", *ENGINE]) == 0
    assert (here / "runs" / "experiment" / "summary.json").exists()


def test_a_tables_columns_are_looked_at(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{i % 5},{'ab'[i % 2]},{i % 7},{('Basel', 'Bern')[i % 2]},{i % 3}" for i in range(60)]
    Path("p.csv").write_text("\n".join(["age,sex,weight,hospital,ill", *rows]))
    named = ["--data", "table", "--path", "p.csv"]
    error = refused(capsys, "init", *named)
    assert "--label = 'label': there is no such column in p.csv, only age, sex, weight, hospital, ill" in error
    assert "--user = 'house': there is no such column" in refused(
        capsys, "init", *named, "--label", "ill", "--user", "house"
    )
    assert not Path("experiment.toml").exists()
    capsys.readouterr()
    assert main(["init", *named, "--label", "ill", "--user", "hospital"]) == 0
    line = 'no feature, since it holds no numbers (pandas.get_dummies makes columns of categories): "sex"'
    assert capsys.readouterr().err.splitlines() == [line] and f"# {line}\n" in Path("experiment.toml").read_text()
    found = load("experiment.toml")
    features = ("age", "weight")
    assert found.data == Table(path="p.csv", label="ill", user="hospital", features=features, standardise=True)
    assert found.partition == Users() and found.evaluation.client_test
    assert found.sampling == Uniform(fraction=1.0)
    data = found.federated_data()
    assert data.client_names == ("Basel", "Bern") and data.train.x.shape == (48, 2)


@pytest.mark.parametrize("price", [lambda i: i / 4, lambda i: 200_000 + 993 * i, lambda i: i - 30])
def test_labels_that_are_no_classes_are_a_regression(price: Callable[[int], float], here: Path) -> None:
    lines = [f"{i},{i % 7},{price(i)}" for i in range(60)]
    Path("houses.csv").write_text("\n".join(["size,rooms,price", *lines]) + "\n")
    assert main(["init", "--data", "table", "--path", "houses.csv", "--label", "price"]) == 0
    assert load("experiment.toml").task == Regression()


@pytest.mark.parametrize(
    ("price", "hidden"),
    [
        pytest.param(lambda i: i / 4, (64,), marks=pytest.mark.full),
        (lambda i: 300_000 + 1_700 * i, ()),
    ],
)
def test_large_numbers_are_learned_by_a_linear_model_and_a_run_comes_near_them(
    price: Callable[[int], float], hidden: tuple[int, ...], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"{i},{i % 7},{price(i)}" for i in range(60)]
    Path("houses.csv").write_text("\n".join(["size,rooms,price", *lines]) + "\n")
    assert main(["init", "--data", "table", "--path", "houses.csv", "--label", "price"]) == 0
    assert load("experiment.toml").model.options["hidden"] == hidden
    assert main(["run", "experiment.toml", "--rounds", "100", "--no-progress", *ENGINE]) == 0
    assert "diverge" not in capsys.readouterr().err
    found = json.loads((here / "runs" / "experiment" / "summary.json").read_text())["models"]["model"]["value"]
    assert found < 0.2 * np.std([price(i) for i in range(60)])


def test_whole_numbers_that_count_nothing_are_no_classes_without_being_told(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("houses.csv").write_text("\n".join(["size,price", *(f"{i},{200_000 + 993 * i}" for i in range(60))]) + "\n")
    data = "data = { name = 'table', path = 'houses.csv', label = 'price' }"
    Path("e.toml").write_text(f"{data}\npartition = {{ name = 'iid', clients = 4 }}\n")
    assert "of numbers up to 258,587 name the task, such as regression" in refused(capsys, "partition", "e.toml")


def test_a_table_without_a_column_of_numbers_or_with_one_column_for_two_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("p.csv").write_text("name,ill\na,1\nb,0\n")
    named = ["init", "--data", "table", "--path", "p.csv", "--label", "ill"]
    assert "holds no column of numbers besides its labels and users" in refused(capsys, *named)
    assert "--user = 'ill': must be another column than --label" in refused(capsys, *named, "--user", "ill")


def test_whatever_a_column_is_called_it_stays_a_comment(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["two\nlines", "x\nrounds = 7", "tab\tand\x07bell"]
    head = ",".join(f'"{name}"' for name in names)
    Path("p.csv").write_text("\n".join([f"{head},age,ill", *(f"a,b,c,{30 + i},{i % 2}" for i in range(40))]) + "\n")
    assert main(["init", "--data", "table", "--path", "p.csv", "--label", "ill"]) == 0
    assert load("experiment.toml").rounds != 7
    comments = [
        line for line in Path("experiment.toml").read_text().splitlines() if "left out" in line or "x\\n" in line
    ]
    assert any('"x\\nrounds = 7"' in line for line in comments)


def test_a_table_with_the_index_that_pandas_writes_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("p.csv").write_text(",age,ill\n0,31,1\n1,52,0\n")
    error = refused(capsys, "init", "--data", "table", "--path", "p.csv", "--label", "ill")
    assert "features = 'Unnamed: 0': this column has no name: if it is an index" in error


def test_columns_are_refused_for_data_that_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--user = 'who': must be left out: digits have no such column" in refused(capsys, "init", "--user", "who")


@pytest.mark.parametrize("data", DATA)
def test_every_form_of_data_is_written_and_parses(data: str) -> None:
    path = ["--path", 'a "folder"'] if data in NEED_A_PATH else []
    if data == "table":
        table(Path('a "folder".csv'))
        path = ["--path", 'a "folder".csv']
    assert main(["init", "--data", data, *path]) == 0
    experiment = load("experiment.toml")
    assert REGISTRIES["datasets"].name_of(experiment.data) == data
    if path:
        assert getattr(experiment.data, "path", None) == path[1]


@pytest.mark.parametrize("data", ["digits", "images", "table", "texts", "npy"])
def test_what_is_commented_is_what_holds_without_it(data: str) -> None:
    """The file with its comments taken away is the same experiment, and no key of any table is left out."""
    table(Path("x.csv"))
    path = {"digits": [], "table": ["--path", "x.csv"]}.get(data, ["--path", "x"])
    main(["init", "--data", data, *path])
    text = Path("experiment.toml").read_text()
    lines = [re.sub(r"  +#.*", "", line) for line in text.splitlines()]
    bare = [line.removeprefix("# ") for line in lines if re.match(r"(# )?[\w.]+ = |\[", line)]
    whole = "\n".join(line for line in bare if OPEN not in line)
    Path("whole.toml").write_text(whole)
    assert load("whole.toml") == load("experiment.toml")
    written = [line.split(" = ")[0].strip("[]").split(".")[0] for line in bare]
    assert set(options(Experiment)) <= set(written)
    assert max(map(len, text.splitlines())) <= 120
    assert not [line for line in text.splitlines() if line.endswith("...")]


def arrays(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    folder.mkdir()
    np.save(folder / "x.npy", rng.normal(size=(60, 4)))
    np.save(folder / "y.npy", rng.integers(0, 3, 60))
    return folder


def table(file: Path) -> Path:
    rows = [f"{i % 5},{i % 7},{'ab'[i % 2]}" for i in range(60)]
    file.write_text("\n".join(["one,two,label", *rows]))
    return file


def texts(file: Path) -> Path:
    file.write_text("all work and no play makes a dull boy. " * 80)
    return file


def images(folder: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    for i in range(60):
        place = folder / "ab"[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        image.fromarray(np.full((4, 4), 4 * i, dtype=np.uint8)).save(place / f"{i}.png")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("data", "make"), [("npy", arrays), ("table", table), ("texts", texts), ("images", images)])
def test_a_file_for_data_of_ones_own_trains_as_it_is(
    data: str, make: object, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDSASH_CACHE", str(here / "cache"))
    assert callable(make)
    place = make(here / ("data" + {"table": ".csv", "texts": ".txt"}.get(data, "")))
    assert main(["init", "mine.toml", "--data", data, "--path", str(place)]) == 0
    assert main(["run", "mine.toml", "--rounds", "1", *ENGINE]) == 0


def photos(folder: Path, sizes: list[tuple[int, int]], modes: str = "L") -> None:
    image = pytest.importorskip("PIL.Image")
    for i, (width, height) in enumerate(sizes):
        place = folder / "ab"[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        shape = (height, width, 3) if modes[i % len(modes)] == "R" else (height, width)
        image.fromarray(np.full(shape, i, dtype=np.uint8)).save(place / f"{i}.png")


@pytest.mark.parametrize(
    ("sizes", "modes", "options", "lines"),
    [
        ([(9, 6), (4, 5), (20, 12), (7, 7)] * 5, "L", {"size": 6}, ["sizes go from 4x5 to 20x12, so size = 6 scales"]),
        ([(900, 600), (401, 500)] * 10, "L", {"size": 64}, ["scales them all; larger ones take longer"]),
        ([(8, 8)] * 20, "LR", {"channels": 3}, ["their modes are L, RGB, so channels = 3 makes them all RGB"]),
        ([(8, 8)] * 20, "R", {}, []),
    ],
)
def test_images_that_differ_get_one_size_and_the_same_channels(
    sizes: list[tuple[int, int]],
    modes: str,
    options: dict[str, int],
    lines: list[str],
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FEDSASH_CACHE", str(here / "cache"))
    photos(here / "photos", sizes, modes)
    assert main(["init", "--data", "images", "--path", "photos"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(lines) and all(line in found for line, found in zip(lines, said, strict=True))
    found = load("experiment.toml")
    assert REGISTRIES["models"].name_of(found.model) == ("cifar_cnn" if 64 in options.values() else "mlp")
    assert all(f"# {line}\n" in Path("experiment.toml").read_text() for line in said)
    assert found.data == REGISTRIES["datasets"].things["images"]("photos", **options)
    assert len(found.federated_data().train.x) == 18


def test_the_image_network_is_one_for_the_size_of_the_images(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSASH_CACHE", str(here / "cache"))
    for side, model in ((8, "mlp"), (16, "cifar_cnn"), (64, "cifar_cnn"), (65, "resnet20_gn")):
        photos(here / str(side), [(side, side)] * 4)
        assert main(["init", f"{side}.toml", "--data", "images", "--path", str(here / str(side))]) == 0
        assert REGISTRIES["models"].name_of(load(f"{side}.toml").model) == model


def test_several_labels_are_the_labels_of_a_row_and_no_features(capsys: pytest.CaptureFixture[str]) -> None:
    Path("p.csv").write_text("\n".join(["x,a,b", *(f"{i % 7},{i % 2},{i % 3 // 2}" for i in range(40))]))
    named = ["--data", "table", "--path", "p.csv", "--label", "a", "--label", "b"]
    assert main(["init", *named]) == 0
    capsys.readouterr()
    data = load("experiment.toml").federated_data()
    assert data.train.y.shape[1] == 2 and data.feature_names == ("x",)
    error = refused(capsys, "init", "x.toml", "--data", "npy", "--path", "p", "--label", "a", "--label", "b")
    assert "--label = 'a, b': must be one column" in error


def test_a_folder_without_images_and_a_file_that_is_none_are_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "photos" / "a").mkdir(parents=True)
    words = ["init", "--data", "images", "--path", "photos"]
    assert "it holds no data that can be read" in refused(capsys, *words)
    (here / "photos" / "a" / "1.png").write_text("no picture")
    assert "1.png: the image can't be decoded" in refused(capsys, *words)
    assert not Path("experiment.toml").exists()


@pytest.mark.parametrize(("name", "said"), [("date", 1), ("Order_Date", 1), ("year", 1), ("hours", 0), ("update", 0)])
def test_a_table_with_times_is_told_that_its_test_set_is_drawn_at_random(
    name: str, said: int, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "\n".join([f"{name},x,label", *(f"{i},{i % 7},{i % 2}" for i in range(40))]) + "\n"
    Path("p.csv").write_text(text)
    assert main(["init", "a.toml", "--data", "table", "--path", "p.csv"]) == 0
    assert capsys.readouterr().err.count("it is the latest rows, as a series needs it: time = ") == said
    (here / "cut").mkdir()
    for split in ("train", "test"):
        (here / "cut" / f"{split}.csv").write_text(text)
    assert main(["init", "b.toml", "--data", "table", "--path", "cut"]) == 0
    assert capsys.readouterr().err == ""


def test_gaps_are_told_by_column_before_a_run_refuses_them(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{i % 5},{i % 7},{'ab'[i % 2]},{i % 2}" for i in range(40)]
    lines[3] = ",3,a,1"
    lines[5] = "NA,,,"
    (here / "cut").mkdir()
    (here / "cut" / "train.csv").write_text("\n".join(["age,weight,sex,ill", *lines[:20]]))
    (here / "cut" / "test.csv").write_text("\n".join(["age,weight,sex,ill", *lines[20:39], "1,,b,1"]))
    assert main(["init", "--data", "table", "--path", "cut", "--label", "ill"]) == 0
    left_out, *gaps = capsys.readouterr().err.splitlines()
    assert "no feature" in left_out and '"sex"' in left_out
    cure = "fedsash run refuses it, so fill them, or drop the rows or the column"
    assert gaps == [
        f"gaps: {lack}: {cure}"
        for lack in ('1 of 40 rows lack "ill"', '2 of 40 rows lack "age"', '2 of 40 rows lack "weight"')
    ]
    assert load("experiment.toml").task is None
    assert "a value is missing" in refused(capsys, "partition", "experiment.toml")


def test_prices_beside_a_gap_are_a_regression(here: Path) -> None:
    lines = [f"{i % 5},{200_000 + 993 * i}" for i in range(40)]
    Path("p.csv").write_text("\n".join(["age,price", *lines, "3,"]))
    assert main(["init", "--data", "table", "--path", "p.csv", "--label", "price"]) == 0
    assert load("experiment.toml").task == Regression()
    assert load("experiment.toml").model.options["hidden"] == ()


def test_a_file_that_is_there_is_never_changed(capsys: pytest.CaptureFixture[str]) -> None:
    Path("experiment.toml").write_text("mine")
    assert "experiment.toml is there already: name another file" in refused(capsys, "init")
    assert Path("experiment.toml").read_text() == "mine"


def test_a_link_that_leads_nowhere_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    Path("experiment.toml").symlink_to("gone")
    assert "experiment.toml is there already" in refused(capsys, "init")
    assert not Path("gone").exists()


def test_a_full_disk_leaves_no_half_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with short_files(1000):
        assert "experiment.toml" in refused(capsys, "init")
    assert not list(here.iterdir())
    assert main(["init"]) == 0


def test_the_command_in_the_file_can_be_pasted_whatever_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "my first.toml"]) == 0
    assert "fedsash run 'my first.toml'\n" in Path("my first.toml").read_text().splitlines(keepends=True)[1]
    assert main(["init", "two\nlines.toml"]) == 0
    assert load("two\nlines.toml") == load("my first.toml")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--data", "images"], "--path = '': must be the file or the folder of your images"),
        (["--data", "digits", "--path", "x"], "--path = 'x': must be left out: digits need no files"),
        (["--data", "imges", "--path", "x"], "there is no data set imges; did you mean images?"),
        (
            ["--data", "texts", "--path", "x", "--label", "y"],
            "--label = 'y': must be left out: no named model classifies",
        ),
        (["sub/file/x.toml", "--data", "table"], "--path = ''"),
    ],
)
def test_what_does_not_fit_is_one_line_and_writes_nothing(
    words: list[str], line: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert line in refused(capsys, "init", *words)
    assert not list(here.iterdir())
