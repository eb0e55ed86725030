"""Which columns of a table are learned from, and what is said of a file that is no table of numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsash.data import Source, Table
from fedsash.data.sources import frames
from fedsash.settings.errors import DataError, FedsashError, SettingError
from support.libraries import Library

pd = pytest.importorskip("pandas", reason="fedsash[data] is not installed")
datasets = Library("datasets")

N = 20
FRAME = pd.DataFrame(
    {
        "a": np.random.default_rng(0).random(N),
        "b": np.arange(N) % 5,
        "label": np.arange(N) // 10,
        "user": [f"user {i % 4}" for i in range(N)],
    }
)
NO_NAME = r"Table.features = '{}': this column has no name: if it is an index, write the table without it"


def features(source: Source) -> tuple[int, ...]:
    return tuple(source.train.x.shape[1:])  # type: ignore[arg-type]


def test_the_index_that_pandas_writes_is_no_feature(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    FRAME.to_csv(file)
    with pytest.raises(SettingError, match=NO_NAME.format("Unnamed: 0")):
        Table(str(file), user="user").load()
    with pytest.raises(SettingError, match=NO_NAME.format("Unnamed: 0")):
        Table(user="user").of(pd.read_csv(file))
    assert features(Table(str(file), user="user", features=("a", "b")).load()) == (2,)


def test_a_comma_at_the_end_of_the_first_line_is_no_feature(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,label,\n1,0,\n2,1,\n")
    with pytest.raises(SettingError, match=NO_NAME.format("Unnamed: 2")):
        Table(str(tmp_path / "t.csv")).load()


def test_the_index_that_a_saved_data_set_has_as_a_column_is_no_feature(tmp_path: Path) -> None:
    datasets.Dataset.from_pandas(FRAME[FRAME.b != 3]).save_to_disk(tmp_path)
    with pytest.raises(SettingError, match=NO_NAME.format("__index_level_0__")):
        Table(str(tmp_path), user="user").load()


INDICES: dict[str, tuple[Callable[[Any], Any], dict[str, Any], int]] = {
    "asked for": (lambda frame: frame.set_index("user"), {"user": "user"}, 2),
    "asked for, with features": (lambda frame: frame.set_index("user"), {"user": "user", "features": ("a",)}, 1),
    "one of two": (lambda frame: frame.set_index(["user", "b"]), {"user": "user"}, 1),
    "not asked for": (lambda frame: frame.set_index("user"), {}, 2),
    "without a name": (lambda frame: frame[frame.b != 3], {"user": "user"}, 2),
}


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("packed", [False, True])
def test_an_index_is_a_column_where_it_is_asked_for_by_its_name(tmp_path: Path, index: str, packed: bool) -> None:
    change, settings, count = INDICES[index]
    frame = change(FRAME)
    frame.to_parquet(tmp_path / "t.parquet")
    source = Table(str(tmp_path / "t.parquet"), **settings).load() if packed else Table(**settings).of(frame)
    assert features(source) == (count,)
    assert source.user_names == (tuple(f"user {i}" for i in range(4)) if "user" in settings else ())


def both(at: Path, train: Any, test: Any) -> Table:
    train.to_csv(at / "train.csv", index=False)
    test.to_csv(at / "test.csv", index=False)
    return Table(str(at), user="user")


def test_a_missing_value_is_named_by_its_file_and_its_row_there(tmp_path: Path) -> None:
    test = FRAME[:6].assign(a=[0.1, 0.2, 0.3, None, 0.5, 0.6])
    with pytest.raises(DataError, match=r"column 'a', row 3 of .*test.csv: a value is missing: .*; 1 of 26 rows lack"):
        both(tmp_path, FRAME, test).load()
    with pytest.raises(DataError, match=r"column 'a', row 3 of the test table: a value is missing"):
        Table(user="user").of(FRAME, test)
    (tmp_path / "train-1.csv").write_text((tmp_path / "test.csv").read_text())
    with pytest.raises(DataError, match=r"column 'a', row 3 of .*train-1.csv: a value is missing"):
        Table(str(tmp_path), user="user").load()


def test_a_column_that_one_of_two_files_lacks_is_named_with_both(tmp_path: Path) -> None:
    lacking = FRAME.drop(columns="b")
    with pytest.raises(DataError, match=r"train.csv has no column 'b', and .*test.csv has it: give both the same"):
        both(tmp_path, lacking, FRAME).load()
    with pytest.raises(DataError, match=r"the test table has no column 'b', and the table has it"):
        Table(user="user").of(FRAME, lacking)
    assert features(Table(user="user", features=("a",)).of(FRAME, lacking)) == (1,), "it is not needed"


def test_two_columns_of_one_name_are_refused() -> None:
    frame = FRAME.set_axis(["a", "a", "label", "user"], axis=1)
    with pytest.raises(SettingError, match=r"columns of the table = \['a'\]: must have a name of its own each"):
        Table(user="user").of(frame)


SPLITS: dict[str, tuple[list[str], list[str], tuple[str, ...]]] = {
    "codes": (["01", "02", "X9"], ["01", "02", "01"], ("01", "02", "X9")),
    "codes, first as numbers": (["01", "02", "01"], ["01", "X9", "02"], ("01", "02", "X9")),
    "truth values": (["TRUE", "FALSE", "unknown"], ["TRUE", "FALSE", "TRUE"], ("FALSE", "TRUE", "unknown")),
    "truth values and numbers": (["True", "False", "True"], ["1", "0", "True"], ("0", "1", "False", "True")),
    "fractions": (["1.0", "2.50", "other"], ["1.0", "2.50", "1.0"], ("1.0", "2.50", "other")),
}


@pytest.mark.parametrize("kind", SPLITS)
def test_a_label_that_is_written_the_same_in_two_files_is_one_class(tmp_path: Path, kind: str) -> None:
    train, test, names = SPLITS[kind]
    for name, labels in {"train": train, "test": test}.items():
        rows = [f"{row},{label}" for row, label in enumerate(labels)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,label", *rows]) + "\n")
    source = Table(str(tmp_path)).load()
    assert source.label_names == names and source.test is not None
    for samples, written in [(source.train, train), (source.test, test)]:
        assert [names[label] for label in samples.y.tolist()] == written


@pytest.mark.parametrize(
    ("common", "last"), [(["001", "002", "010"], "V10"), (["TRUE", "FALSE"], "unknown"), (["1.0", "2.50"], "other")]
)
def test_a_label_is_one_class_through_the_whole_of_a_long_file(tmp_path: Path, common: list[str], last: str) -> None:
    """pandas guesses types by parts of the file, of fewer rows where it has many columns."""
    features = 500
    rows = 8_000
    lines = [",".join([*(f"f{i}" for i in range(features)), "label"])]
    lines += ["," * features + common[row % len(common)] for row in range(rows)]
    lines.append("," * features + last)
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    frame, _ = frames.read(str(tmp_path / "t.csv"), {"label": "label"}, 1.0, "Table.path")
    y, classes, names = frames.labels(frame, ["label"])
    assert classes == len(names) and names == (*sorted(common), last)
    assert [names[label] for label in y.tolist()[:3]] == [common[row % len(common)] for row in range(3)]


def test_labels_of_two_types_in_frames_are_refused_with_a_row_of_each() -> None:
    train = pd.DataFrame({"a": [1, 2, 3], "label": ["01", "02", "X9"]})
    test = pd.DataFrame({"a": [1, 2], "label": [1, 2]})
    line = "column 'label' holds str and int, such as '01' in row 0 of the table and 1 in row 0 of the test table"
    with pytest.raises(DataError, match=f"{line}: .*: give all labels one type"):
        Table().of(train, test)


NO_TABLES: dict[str, tuple[str, str]] = {
    r"t.csv: its fields look separated by ';': save it with ',' between the fields": ("a;label\n1;0\n2;1\n", "utf-8"),
    r"separated by ';': .*, and a point in numbers": ("a;b;label\n1,5;2,5;0\n3,5;4,5;1\n", "utf-8"),
    r"such as '0,126', no numbers, in row 1 of .*: make them numbers, with a dec": (
        'a,label\n5,0\n"0,126",1\n',
        "utf-8",
    ),
    r"such as '1_000', no numbers, in row 1 of .*: make them numbers, with a dec": ("a,label\n5,0\n1_000,1\n", "utf-8"),
    r"such as 98446744073709551615, no numbers of 64 bits, in row 1 of .*: make them floating-point numbers: in a": (
        "a,label\n5,0\n98446744073709551615,1\n",
        "utf-8",
    ),
    r"t.csv: must hold at least one row below the columns' names$": ("a,label\n", "utf-8"),
    r"such as 'x', no numbers, in row 1 of .*: give each category a number": ("a,label\n5,0\nx,1\n", "utf-8"),
    r"t.csv can't be read: it is no text in UTF-8: save it as UTF-8$": ("a,label\n5,0\n6,1\n", "utf-16"),
    r"t.csv can't be read: it is no text in UTF-8: save": ("a,label\n5,süß\n6,bitter\n", "latin-1"),
    r"the label is missing \(of a CSV, NA, None and null are read as": ("a,label\n5,NA\n6,EU\n", "utf-8"),
    r"no such column in .*t.csv, only 'a', ' label'$": ("a, label\n5,0\n6,1\n", "utf-8"),
    r"no such column in .*t.csv, only 5, 0, -1.5: its first line looks like data, and must give the columns' names$": (
        "5,0,-1.5\n6,1,2.5\n7,1,3.5\n",
        "utf-8",
    ),
    r"no such column in .*t.csv, only 5.1, setosa: its first line looks like data": ("5.1,setosa\n4,b\n", "utf-8"),
    r"no such column in .*t.csv, only 3, 4: its first line looks like data": ("3,4\n", "utf-8"),
    r"no such column in .*t.csv, only name, 2026$": ("name,2026\n1,2\n", "utf-8"),
    r"no such column in .*t.csv, only name, kind$": ("name,kind\na,b\n", "utf-8"),
    r"columns of .*t.csv = \['1'\]: must have a name of its own each: its first line looks like data": (
        "1,1,0\n2,3,1\n",
        "utf-8",
    ),
}


@pytest.mark.parametrize("line", NO_TABLES)
def test_a_csv_that_can_not_be_read_is_told_how_to_be_saved(tmp_path: Path, line: str) -> None:
    text, encoding = NO_TABLES[line]
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    with pytest.raises(FedsashError, match=line) as caught:
        Table(str(tmp_path / "t.csv")).load()
    assert "\n" not in str(caught.value)


def test_a_table_of_one_column_needs_no_separator(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("label\n1\n0\n")
    with pytest.raises(SettingError, match="there is no column besides labels and users"):
        Table(str(tmp_path / "t.csv")).load()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "label,a,label\n1,5,1\n0,6,0\n"),
        ("t.tsv", "label\ta\ta\n1\t5\t1\n0\t6\t0\n"),
        ("t.jsonl", '{"label": 1, "a": 5, "a": 6}\n{"label": 0, "a": 6, "a": 5}\n'),
    ],
)
def test_two_columns_of_one_name_in_a_file_are_refused(tmp_path: Path, name: str, content: str) -> None:
    """pandas calls the second one `label.1`, which would be a feature."""
    (tmp_path / name).write_text(content)
    with pytest.raises(SettingError, match=r"columns of .* = \['(label|a)'\]: must have a name of its own each"):
        Table(str(tmp_path / name)).load()


def test_two_columns_of_one_name_in_a_parquet_file_are_refused(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table([[1, 0], [5, 6], [1, 0]], names=["label", "a", "label"]), tmp_path / "t.parquet")
    with pytest.raises(SettingError, match=r"columns of .*t\.parquet = \['label'\]: must have a name"):
        Table(str(tmp_path / "t.parquet")).load()


@pytest.mark.parametrize(
    "a", [[1e200, -1e200, 3e200, 1e200], [1e-200, 2e-200, 3e-200, 4e-200], [1.7e308] * 3 + [1e308]]
)
def test_numbers_that_can_not_be_standardised_are_refused_by_their_column(a: list[float]) -> None:
    frame = pd.DataFrame({"a": a, "b": [1.0, 2.0, 3.0, 5.0], "label": [0, 1, 0, 1]})
    with pytest.raises(DataError, match="column 'a': its numbers are too large or too small to be standardised"):
        Table(standardise=True, test=0.0).of(frame)
