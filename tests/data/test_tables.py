"""Tables of numbers, from files, saved data sets and pandas frames."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsash.data import IID, Source, Table, Texts, Users
from fedsash.data.samples import Samples
from fedsash.data.sources import frames
from fedsash.data.sources.table import _standardised
from fedsash.methods.sampling import Uniform
from fedsash.server.federation import Federation
from fedsash.settings.errors import FedsashError
from fedsash.tasks import Regression
from support.libraries import Library
from support.worlds import SEQUENTIAL

pd = pytest.importorskip("pandas", reason="fedsash[data] is not installed")
datasets = Library("datasets")

N = 20
SIZE = np.random.default_rng(0).random(N)
FRAME = pd.DataFrame(
    {
        "size": SIZE,
        "rooms": np.arange(N) % 5,
        "owner": [f"owner {i % 4}" for i in range(N)],
        "kind": ["flat", "house"] * (N // 2),
        "price": 1 + 2 * SIZE**2,
    }
)
COLUMNS: dict[str, Any] = {"label": "price", "features": ("size", "rooms"), "user": "owner"}

WRITERS: dict[str, Callable[[Path], Path]] = {}


def writer(function: Callable[[Path], Path]) -> Callable[[Path], Path]:
    WRITERS[function.__name__] = function
    return function


@writer
def csv(at: Path) -> Path:
    FRAME.to_csv(at / "t.csv", index=False)
    return at / "t.csv"


@writer
def tsv(at: Path) -> Path:
    FRAME.to_csv(at / "t.tsv", index=False, sep="\t")
    return at / "t.tsv"


@writer
def jsonl(at: Path) -> Path:
    (at / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in FRAME.to_dict("records")))
    return at / "t.jsonl"


@writer
def parquet(at: Path) -> Path:
    FRAME.to_parquet(at / "t.parquet")
    return at / "t.parquet"


@writer
def saved(at: Path) -> Path:
    datasets.Dataset.from_pandas(FRAME).save_to_disk(at / "saved")
    return at / "saved"


def same(a: Source, b: Source) -> bool:
    assert a.test is not None and b.test is not None
    fields = [(s.x, s.y, s.user) for s in (a.train, a.test)], [(s.x, s.y, s.user) for s in (b.train, b.test)]
    return all(torch.equal(x, y) for p, q in zip(*fields, strict=True) for x, y in zip(p, q, strict=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("form", WRITERS)
def test_every_form_holds_the_samples_of_the_frame_to_the_last_digit(tmp_path: Path, form: str) -> None:
    table = Table(str(WRITERS[form](tmp_path)), **COLUMNS)
    assert same(table.load(3), Table(**COLUMNS).of(FRAME, seed=3))


def test_features_are_double_numbers_or_integers_and_texts_are_classes() -> None:
    assert Table(**COLUMNS).of(FRAME).train.x.dtype == torch.float64  # type: ignore[union-attr]
    source = Table(label="kind", features=("rooms",), test=0).of(FRAME)
    assert source.train.x.dtype == torch.int64 and source.test is None  # type: ignore[union-attr]
    assert (source.classes, source.label_names, source.train.y[:3].tolist()) == (2, ("flat", "house"), [0, 1, 0])
    several = Table(label=("size", "price"), features=("rooms",)).of(FRAME)
    assert several.train.y.shape == (16, 2) and several.classes == 0
    counts = Table(label=("casual", "registered"), features=("size",)).of(FRAME.assign(casual=range(N), registered=7))
    learned = counts.learning(Regression()).partition(IID(2))
    assert learned.train.y.is_floating_point() and learned.train.y.shape == (16, 2)


def test_standardised_features_have_mean_0_and_variance_1_over_the_training_samples() -> None:
    x = Table(**COLUMNS, standardise=True).of(FRAME).train.x
    assert isinstance(x, Tensor)
    assert torch.allclose(x.mean(0), torch.zeros(2).double(), atol=1e-12)
    assert torch.allclose(x.var(0, correction=0), torch.ones(2).double())


def test_each_user_keeps_a_row_to_train_on_however_large_the_test_set_is() -> None:
    data = Table(**COLUMNS, test=0.99).of(FRAME).partition(Users())
    assert data.sizes.tolist() == [1] * 4 and data.test is not None and len(data.test) == N - 4


def series(days: list[str], **more: Any) -> Any:
    """Rows whose only feature is their number."""
    return pd.DataFrame({"day": days, "row": range(len(days)), "price": [0.5] * len(days), **more})


def rows_of(samples: Samples | None) -> list[int]:
    assert samples is not None and isinstance(samples.x, Tensor)
    return samples.x[:, 0].long().tolist()


def test_with_a_column_of_time_the_test_set_is_the_latest_rows_and_time_is_no_feature() -> None:
    frame = series(["2026-03-01", "2025-12-31", "2026-01-01T10:00", "2026-02-01", "2024-05-05"])
    source = Table(label="price", time="day", test=0.4).of(frame)
    assert (rows_of(source.train), rows_of(source.test)) == ([1, 2, 4], [0, 3])
    assert source.feature_names == ("row",)
    numbers = Table(label="price", time="day", test=0.4).of(series([5, 1, 10, 4, 0]))  # type: ignore[list-item]
    assert rows_of(numbers.test) == [0, 2]


def test_dates_of_all_centuries_are_in_order() -> None:
    frame = series(["9999-12-31", "2026-01-01", "1500-01-01", "0001-01-01", "2500-06-01T10:00"])
    assert rows_of(Table(label="price", time="day", test=0.4).of(frame).test) == [0, 4]


def test_rows_of_one_time_stay_together_and_every_user_keeps_earlier_ones() -> None:
    same_day = series(["2026-01-01", "2026-01-02", "2026-01-02", "2026-01-02"])
    assert rows_of(Table(label="price", time="day", test=0.25).of(same_day).test) == [1, 2, 3]
    assert Table(label="price", time="day", test=0.5).of(series(["2026-01-01"] * 4)).test is None
    of_users = series(["2026-01-01", "2026-01-02", "2025-01-01", "2025-01-02"], shop=["a", "a", "b", "b"])
    assert rows_of(Table(label="price", user="shop", time="day", test=0.5).of(of_users).test) == [1, 3]


@pytest.mark.parametrize(
    ("days", "settings", "line"),
    [
        (["2026-01-01", "03/04/2026"], {}, r"column 'day', row 1 of the table: '03/04/2026' is no date: write dates"),
        (
            ["2026-01-01T10:00:00.123456789", "2500-01-01"],
            {},
            "column 'day', row 1 of the table: '2500-01-01' is before 1678 or after 2261, .*: write times as numbers",
        ),
        (["2026-01-01", None], {}, "column 'day', row 1 of the table: a value is missing"),
        (["2026-01-01"] * 2, {"time": "price"}, "Table.time = 'price': must not be the label or the user"),
        (["2026-01-01"] * 2, {"time": "date"}, "time = 'date': there is no such column"),
    ],
)
def test_what_is_no_time_is_refused_in_one_line(days: Any, settings: dict[str, str], line: str) -> None:
    with pytest.raises(FedsashError, match=line):
        Table(**{"label": "price", "time": "day"} | settings).of(series(days))
    with pytest.raises(FedsashError, match=r"Table.time = 'day': must be left out: the test set is given"):
        Table(label="price", time="day").of(series(["2026-01-01"]), series(["2026-01-02"]))


def test_a_folder_or_a_saved_data_set_may_have_a_test_split(tmp_path: Path) -> None:
    train = FRAME[:15]
    test = FRAME[15:]
    train.to_csv(tmp_path / "train.csv", index=False)
    test.to_csv(tmp_path / "test.csv", index=False)
    parts = {"train": datasets.Dataset.from_pandas(train), "test": datasets.Dataset.from_pandas(test)}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "saved")
    expected = Table(**COLUMNS).of(train, test.reset_index(drop=True))
    assert expected.test is not None and (len(expected.train), len(expected.test)) == (15, 5)
    assert same(Table(str(tmp_path), **COLUMNS).load(), expected)
    assert same(Table(str(tmp_path / "saved"), **COLUMNS).load(), expected)


def test_a_regression_with_natural_clients_is_learned_from_a_csv(tmp_path: Path) -> None:
    data = Table(str(csv(tmp_path)), **COLUMNS, standardise=True).load().partition(Users())
    data = type(data)(**{**vars(data), "task": Regression()})
    with Federation(nn.Linear(2, 1), data, sampling=Uniform(4), engine=SEQUENTIAL) as f:
        state = f.start()
        before = f.evaluate(state)[0]["rmse"]
        for _ in range(10):
            state, _ = f.round(state)
        assert f.evaluate(state)[0]["rmse"] < 0.7 * before
    assert len(data.clients) == 4


def gone(column: str, value: Any = None) -> Any:
    return FRAME.assign(**{column: [value, *FRAME[column][1:]]})


WRONG: dict[str, tuple[Any, dict[str, Any]]] = {
    "label = 'cost': there is no such column in the table, only size, rooms, owner": (FRAME, {"label": "cost"}),
    "features = 'rom': there is no such column": (FRAME, {"features": ("size", "rom")}),
    "user = 'who': there is no such column": (FRAME, {"user": "who"}),
    "column 'kind' holds .* such as 'flat', no numbers, in row 0 of the table: give each": (
        FRAME,
        {"features": ("kind",)},
    ),
    "column 'size', row 0 of the table: a value is missing: fill it, or drop the row; 1 of 20 ": (gone("size"), {}),
    "column 'size', row 0 of the table: inf is not finite: mend it, or drop": (gone("size", float("inf")), {}),
    "column 'owner', row 0 of the table: the user is missing": (gone("owner"), {}),
    "column 'price', row 0 of the table: the label is missing": (gone("price"), {}),
    "frame = 'dict': must be a pandas frame": ({}, {}),
    "the table: must hold at least one row below the columns' names": (FRAME[:0], {}),
    "'size' holds object such as Decimal.'20'., no numbers of 64 bits, in row 19 .*: make them floating-point": (
        FRAME.assign(size=[Decimal(i + 1) for i in range(N)]),
        {},
    ),
    "'size' holds object such as 10{30}, no numbers of 64 bits, in row 0 of the table: make them floating-point": (
        gone("size", 10**30),
        {},
    ),
    "there is no column besides labels and users": (FRAME[["price", "owner"]], {"features": ()}),
    "Table.label = '': must name the column of labels": (FRAME, {"label": ""}),
    "Table.user = 'price': must be another column than the label": (FRAME, {"user": "price"}),
    "Table.features = 'size': must be named once": (FRAME, {"features": ("size", "rooms", "size")}),
    "Table.label = 'price': must be named once": (FRAME, {"label": ("price", "price")}),
    "Table.features = 'price': must not be a feature: it is the label or": (FRAME, {"features": ("size", "price")}),
    "Table.features = 'owner': must not be a feature: it is the label or": (FRAME, {"features": ("size", "owner")}),
}


@pytest.mark.parametrize("line", WRONG)
def test_what_is_no_table_of_samples_is_refused_in_one_line(line: str) -> None:
    frame, settings = WRONG[line]
    with pytest.raises(FedsashError, match=line) as caught:
        Table(**COLUMNS | settings).of(frame)
    assert "\n" not in str(caught.value)


def files(at: Path) -> dict[str, Path]:
    csv(at)
    (at / "empty.csv").write_text("")
    (at / "list.jsonl").write_text("[1, 2]\n")
    (at / "bad.parquet").write_bytes(b"PAR1")
    (at / "t.xlsx").write_bytes(b"PK")
    (at / "none").mkdir()
    (at / "two").mkdir()
    (at / "two" / "train.csv").write_text("a")
    (at / "two" / "test.jsonl").write_text("{}")
    (at / "gone").mkdir()
    (at / "gone" / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    (at / "out").mkdir()
    (at / "out" / "state.json").write_text('{"_data_files": [{"filename": "../t.arrow"}]}')
    (at / "odd").mkdir()
    (at / "odd" / "state.json").write_text("[]")
    return {
        r"Table.path = '.*T.CSV': there is no such file or folder; did you mean .*t.csv\?": at / "T.CSV",
        "Table.path = '': must be a file or a folder": Path(""),
        "empty.csv can't be read": at / "empty.csv",
        "must be a JSON object": at / "list.jsonl",
        "bad.parquet can't be read": at / "bad.parquet",
        r"Table.path = '.*t.xlsx': must be a folder, or end in .csv, .tsv": at / "t.xlsx",
        "must hold train.csv, train.parquet or the like; there is no such file": at / "none",
        "must hold files of one kind, not .csv and .jsonl": at / "two",
        "data.arrow is missing; .*state.json names it": at / "gone",
        "names the file '../t.arrow', which is not in this folder": at / "out",
        "state.json can't be read: it must hold a table": at / "odd",
    }


@pytest.mark.parametrize("line", range(11))
def test_files_that_can_not_be_read_are_refused_in_one_line(tmp_path: Path, line: int) -> None:
    expected, path = list(files(tmp_path).items())[line]
    with pytest.raises(FedsashError, match=expected) as caught:
        Table("" if path == Path("") else str(path), **COLUMNS).load()
    assert "\n" not in str(caught.value)


def test_a_packed_table_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"size": np.zeros(10**6), "price": np.zeros(10**6)}), tmp_path / "t.parquet")
    table = Table(str(tmp_path / "t.parquet"), label="price", unpacked=0.001)
    with pytest.raises(FedsashError, match=r"size in memory = .* set unpacked = "):
        table.load()


@pytest.mark.parametrize("separator", ["", ",", ";", "|"])
def test_a_packed_csv_is_not_unpacked(separator: str, tmp_path: Path) -> None:
    """Nor read as a text whose fields some byte of its header separates: that has the time of packing."""
    packed = gzip.compress(b"size,price\n1,2\n", mtime=int.from_bytes(separator.encode()))
    (tmp_path / "t.csv").write_bytes(packed)
    with pytest.raises(FedsashError, match=r"t.csv can't be read: it is no text in UTF-8"):
        Table(str(tmp_path / "t.csv"), **COLUMNS).load()


def test_of_many_columns_the_first_ones_are_named() -> None:
    wide = pd.DataFrame({f"pixel_{i}": [1.0] for i in range(500)})
    with pytest.raises(FedsashError, match=r"there is no such column in the table, only pixel_0, .*\.\.\.$") as error:
        Table(label="cost").of(wide)
    assert len(str(error.value)) < 300


def test_users_with_leading_zeros_are_users_of_their_own(tmp_path: Path) -> None:
    lines = [f"{i},{i % 2},{user}" for i, user in enumerate(["01", "1", "001", "10"] * 3)]
    (tmp_path / "t.csv").write_text("\n".join(["x,label,user", *lines]) + "\n")
    assert Table(str(tmp_path / "t.csv"), user="user").load().user_names == ("001", "01", "1", "10")
    (tmp_path / "t.csv").write_text((tmp_path / "t.csv").read_text().replace(",01", ",2").replace(",001", ",3"))
    assert Table(str(tmp_path / "t.csv"), user="user").load().user_names == ("1", "2", "3", "10"), "as numbers"


def test_a_quotation_mark_in_a_tsv_file_joins_no_rows_and_quoted_texts_of_several_lines_are_read(
    tmp_path: Path,
) -> None:
    file = tmp_path / "t.tsv"
    texts = ["one", '"Hello, he said', "and left", 'the "end"', "five"]
    file.write_text("\n".join(["text\tlabel", *(f"{text}\t{i % 2}" for i, text in enumerate(texts))]) + "\n")
    line = r"column 'text', row 1 of .*t.tsv: 'Hello, he said.* begins with a quotation mark and goes on over several"
    with pytest.raises(FedsashError, match=line):
        Texts(str(file), text="text", label="label").load()
    quoted = ["a\nb", "c\td\ne\tf", '"Hello, he said', 'the "end"\n\tg']
    pd.DataFrame({"text": quoted, "label": [0, 1, 0, 1]}).to_csv(file, sep="\t", index=False)
    rows, _ = frames.read(str(file), {"text": "text", "label": "label"}, 0.5, "Texts.path")
    assert rows["text"].tolist() == quoted


@pytest.mark.parametrize(
    "test", ["test.csv", "Test.csv", "testing.csv", "TEST-00000-of-00001.csv", "Validation.csv", "test.CSV"]
)
def test_a_split_s_file_is_found_in_any_case_and_with_ing_behind_it(tmp_path: Path, test: str) -> None:
    FRAME.head(12).to_csv(tmp_path / "Train.csv", index=False)
    FRAME.tail(8).to_csv(tmp_path / test, index=False)
    source = Table(str(tmp_path), **COLUMNS).load()
    assert source.test is not None and (len(source.train), len(source.test)) == (12, 8)


def test_a_split_of_a_saved_data_set_is_found_in_any_case(tmp_path: Path) -> None:
    parts = {"Train": datasets.Dataset.from_pandas(FRAME[:12]), "Test": datasets.Dataset.from_pandas(FRAME[12:])}
    datasets.DatasetDict(parts).save_to_disk(tmp_path)
    source = Table(str(tmp_path), **COLUMNS).load()
    assert source.test is not None and (len(source.train), len(source.test)) == (12, 8)


def test_two_names_of_one_split_are_refused(tmp_path: Path) -> None:
    for name in ("train", "training"):
        FRAME.to_csv(tmp_path / f"{name}.csv", index=False)
    with pytest.raises(FedsashError, match="must call the split train by one name, not train and training"):
        Table(str(tmp_path), **COLUMNS).load()


def test_a_file_whose_name_only_begins_like_a_split_is_none_of_its_pieces_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, rows in {"train-0": 12, "train-1": 8, "train-backup": 20, "trainer": 20}.items():
        FRAME.head(rows).to_csv(tmp_path / f"{name}.csv", index=False)
    assert len(Table(str(tmp_path), **COLUMNS, test=0.0).load().train) == 20
    for name in ("test.csv.gz", "testing-0-of-1.xlsx", "table.csv.gz"):
        (tmp_path / name).touch()
    assert len(Table(str(tmp_path), **COLUMNS, test=0.0).load().train) == 20
    line = "train-backup.csv, trainer.csv are left out: they are not named as a split"
    unreadable = (
        "test.csv.gz, testing-0-of-1.xlsx are left out: only .csv, .tsv, .jsonl, .txt, .parquet, .arrow are read"
    )
    assert caplog.messages == [f"{tmp_path}: {line}", f"{tmp_path}: {line}", f"{tmp_path}: {unreadable}"]


@pytest.mark.parametrize(
    ("names", "requirement"),
    [
        (["train-00000-of-00003"], "all 3 pieces of train; there are only train-00000-of-00003.csv"),
        (["train", "train-00000-of-00001"], "the split train once; there are train-00000-of-00001.csv, train.csv"),
        (["train-0-of-2", "train-1-of-2", "train-0-of-3"], "the split train once"),
        (["train-0-of-2-ab", "train-0-of-2-cd"], "the split train once"),
    ],
)
def test_a_split_that_is_not_whole_or_is_there_twice_is_refused(
    tmp_path: Path, names: list[str], requirement: str
) -> None:
    for name in names:
        FRAME.to_csv(tmp_path / f"{name}.csv", index=False)
    with pytest.raises(FedsashError, match=f"must hold {requirement}"):
        Table(str(tmp_path), **COLUMNS).load()


def test_whole_numbers_beyond_int64_are_float64() -> None:
    big = np.array([2**63 + 2**20, *range(1, N)], dtype=np.uint64)
    x = Table(label="price", features=("size", "id")).of(FRAME.assign(id=big)).train.x
    assert isinstance(x, Tensor) and float(x[0, 1]) == 2.0**63 + 2.0**20
    alone = Table(label="price", features=("id",)).of(FRAME.assign(id=big)).train.x
    assert isinstance(alone, Tensor) and float(alone.max()) == 2.0**63 + 2.0**20


@pytest.mark.parametrize("count", [7, 33])
def test_a_feature_that_is_constant_in_training_has_no_scale(count: int) -> None:
    train = Samples(torch.full((count, 1), 0.1, dtype=torch.float64), torch.zeros(count))
    test = Samples(torch.tensor([[0.2]], dtype=torch.float64), torch.zeros(1))
    _, test, _ = _standardised(train, test, ["a"])
    assert test is not None and isinstance(test.x, Tensor) and float(test.x[0, 0]) == pytest.approx(0.1)
