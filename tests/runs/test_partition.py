from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from fedsash.data import IID, PARTITIONS, Dirichlet, DirichletReuse, Domains, FederatedData, Samples, Source, Transform
from fedsash.lab.cli import main
from fedsash.runs import plot_clients
from fedsash.runs.partition import record, table
from fedsash.runs.pictures import Bars, Dots
from fedsash.runs.pictures.paper import draw
from fedsash.runs.pictures.partition import DRAWN, partition
from fedsash.settings.errors import SettingError
from support.places import HOW_TO


def some_data(clients: int, classes: int = 10, names: tuple[str, ...] = ()) -> FederatedData:
    labels = np.arange(2000) % classes
    return FederatedData.from_arrays(np.zeros((2000, 1)), labels, Dirichlet(clients, 0.1)(labels, 0), label_names=names)


def domain_data(names: tuple[str, ...], classes: int = 4) -> Source:
    domain = torch.arange(1200) % 3
    return Source(
        Samples(torch.zeros(1200, 1), torch.arange(1200) % classes, domain), None, classes, Transform(), (), names
    )


def test_a_table_holds_the_counts() -> None:
    data = some_data(10, 4, ("cat", "dog", "frog", "a rather long name"))
    lines = table(data).splitlines()
    assert lines[0] == "10 clients, 4 classes, 2,000 training samples"
    assert lines[1] == "samples a client: 200 to 200, median 200"
    held = (data.counts() > 0).sum(axis=1)
    assert lines[2] == f"classes a client: {held.min()} to {held.max()}, mean {held.mean():.2f}"
    assert lines[3].startswith("a class's 3 largest holders have ")
    assert lines[5].split() == ["client", "samples", "cat", "dog", "frog", "a", "rather…"]
    rows = [[int(cell.replace(",", "").replace("·", "0")) for cell in line.split()] for line in lines[6:]]
    assert rows == [[i, 200, *row] for i, row in enumerate(data.counts().tolist())]
    assert len({len(line) for line in lines[5:]}) == 1


def test_the_summary_says_how_much_of_a_class_its_largest_holders_have() -> None:
    """Four clients: 5 samples of class 0 each, and 1, 2, 3 and 4 of class 2. Nobody has class 1."""
    labels = np.array([0] * 20 + [2] * 10)
    clients = [[*range(5 * i, 5 * i + 5), *range(20 + i * (i + 1) // 2, 21 + i + i * (i + 1) // 2)] for i in range(4)]
    data = FederatedData.from_arrays(np.zeros((30, 1)), labels, clients, label_names=("cat", "dog", "frog"))
    assert table(data).splitlines()[3] == "a class's 3 largest holders have 75% (cat) to 90% (frog) of it"
    of_three = FederatedData.from_arrays(np.zeros((30, 1)), labels, IID(3)(labels, 0))
    assert "holders" not in table(of_three)


def test_clients_with_names_are_named() -> None:
    names = ["Basel", "Bern", "Centre hospitalier universitaire", "line\nfeed"]
    data = FederatedData.from_arrays(np.zeros((8, 1)), np.arange(8) % 2, users=[*names, *names])
    rows = table(data).splitlines()[5:]
    assert [row[:24].strip() for row in rows] == ["client", "Basel", "Bern", "Centre hospitalier un...", r"line\nfeed"]
    assert len({len(row) for row in rows}) == 1 and record(data)["clients"] == names
    assert [*partition(record(data)).panels[0].x.ticks.values()][:2] == ["Basel", "Bern"]  # type: ignore[union-attr]


def test_a_table_of_many_clients_shows_the_first_and_the_last() -> None:
    rows = table(some_data(300)).splitlines()[6:]
    assert [row.split()[0] for row in rows] == [*map(str, range(10)), "...", *map(str, range(290, 300))]


def test_a_table_of_many_classes_names_the_largest_of_each_client() -> None:
    labels = np.array([0] * 7 + [3] * 9 + list(range(20, 30)))
    data = FederatedData.from_arrays(np.zeros((26, 1)), labels, IID(1)(labels, 0))
    assert table(data).splitlines()[-1].split(maxsplit=3)[3] == "3: 9, 0: 7, 20: 1, 21: 1, 22: 1, …"


def test_a_table_tells_of_samples_that_are_shared_or_not_used() -> None:
    labels = np.arange(2000) % 10
    parts = DirichletReuse(10, 0.1)(labels, 0)
    used = np.bincount(np.concatenate(parts), minlength=2000)
    text = table(FederatedData.from_arrays(np.zeros((2000, 1)), labels, parts))
    assert f"not used: {(used == 0).sum()} samples; used more than once: {(used > 1).sum()}" in text
    assert "not used" not in table(some_data(10))


@pytest.mark.pictures
@pytest.mark.parametrize(
    ("clients", "classes"), [(1, 1), (250, 40), *(pytest.param(n, 10, marks=pytest.mark.full) for n in (10, 100))]
)
def test_a_picture_shows_the_counts_of_the_first_clients(tmp_path: Path, clients: int, classes: int) -> None:
    data = some_data(clients, classes)
    picture = partition(record(data))
    samples, held = picture.panels
    (bars,), (dots,) = samples.layers, held.layers
    assert isinstance(bars, Bars) and isinstance(dots, Dots)
    counts = data.counts()[:DRAWN].T.tolist()
    assert [list(row) for row in bars.heights] == [list(row) for row in dots.counts] == counts
    assert f"{clients:,} clients" in picture.title and ("the first 200 drawn" in picture.title) == (clients == 250)
    draw(picture, tmp_path / "clients.png")


@pytest.mark.parametrize("classes", [4, 40])
def test_a_table_names_a_clients_largest_domain_and_counts_the_others(classes: int) -> None:
    source = domain_data(("photo", "sketch", "art"), classes)
    alone = source.partition(Domains(2))
    lines = table(alone).splitlines()
    assert lines[4] == "domains a client: 1 to 1, mean 1.00"
    assert lines[6].split()[:3] == ["client", "samples", "domain"]
    assert alone.train.domain is not None
    homes = [("photo", "sketch", "art")[int(alone.train.domain[client[0]])] for client in alone.clients]
    assert [line.split()[:3] for line in lines[7:]] == [[str(i), "200", home] for i, home in enumerate(homes)]
    mixed = table(source.partition(lambda labels, seed: [np.array([0, 3, 1]), np.array([2, 5])])).splitlines()
    assert [re.split(r"  +", line.strip())[2] for line in mixed[-2:]] == ["photo +1", "art"]


def test_heads_stand_above_their_columns_where_domains_have_short_names() -> None:
    head, first, *_ = table(domain_data(("a", "b", "c")).partition(Domains(2))).splitlines()[6:]
    assert len(head) == len(first)


@pytest.mark.parametrize("names", [("photo", "sketch", "art"), ()])
def test_a_picture_of_domains_has_dots_for_them(names: tuple[str, ...]) -> None:
    data = domain_data(names).partition(Domains(5))
    panel = partition(record(data)).panels[2]
    (dots,) = panel.layers
    assert data.train.domain is not None and isinstance(dots, Dots)
    of_clients = [np.bincount(data.train.domain[client], minlength=3) for client in data.clients]
    assert np.array(dots.counts).T.tolist() == np.stack(of_clients).tolist()
    assert panel.y.ticks == dict(enumerate(names or ("0", "1", "2")))
    samples = Samples(data.train.x, data.train.y)
    assert len(partition(record(FederatedData(samples, None, data.clients, 4))).panels) == 2


@pytest.mark.parametrize("counts", [[], [[1, 2]], [[1], [1, 2]]])
def test_a_client_must_have_a_count_for_each_class(counts: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="a count for each class"):
        partition({"classes": ["a"], "counts": counts})


def test_a_picture_of_labels_that_are_no_classes_counts_none() -> None:
    numbers = FederatedData.from_arrays(np.zeros((8, 1)), np.linspace(0, 1, 8), partition=IID(2))
    assert partition(record(numbers)).title == "2 clients"
    assert partition(record(some_data(2, 2))).title.endswith("of 2 classes each on average")


def test_the_page_of_partitions_shows_every_rule_in_small_pictures() -> None:
    page = (HOW_TO / "partitions.md").read_text(encoding="utf-8")
    assert {*re.findall(r"^\| `(\w+)`", page, re.MULTILINE)} == {*PARTITIONS}
    shown = {HOW_TO / file for file in re.findall(r"\]\((partitions/\w+.png)\)", page)}
    assert shown == {*(HOW_TO / "partitions").iterdir()}
    sizes = [file.stat().st_size for file in shown]
    assert max(sizes) < 60_000 and sum(sizes) < 500_000


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("x.xyz", "--out = 'x.xyz': must be a file that ends in .png, .svg, .pdf"),
        ("nowhere/x.png", "--out = 'nowhere/x.png': is in a folder that is not there: nowhere"),
        ("folder.png", "--out = 'folder.png': is a folder, and must be a file"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_refused_before_the_data_are_read(
    file: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "e.toml").write_text("partition.clients = 10")
    assert main(["partition", "e.toml", "--out", file]) == 2
    out, said = capsys.readouterr()
    assert line in said and said.count("\n") == 1 and not out


def test_a_picture_of_something_else_than_a_partition_is_refused() -> None:
    with pytest.raises(SettingError, match="must be a FederatedData"):
        plot_clients([1, 2])  # type: ignore[arg-type]
