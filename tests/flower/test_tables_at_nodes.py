"""Tables at the server and at nodes: labels and features are what their names say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

pytest.importorskip("flwr")
pytest.importorskip("pandas")

from fedsash.flower import Waiting
from fedsash.lab.config import load
from fedsash.lab.served.apps import node_app, serve
from fedsash.testing.grid import InProcessGrid
from support.by_default import some

KINDS = np.array(["1", "2", "x"])
"""The labels. A node without the last one reads a column of integers."""


def table(seed: int, rows: int, kinds: int = 3) -> Any:
    import pandas

    rng = np.random.default_rng(seed)
    y = np.arange(rows) % kinds
    x = np.eye(3)[y] + rng.normal(size=(rows, 3)).round(3)
    return pandas.DataFrame(x, columns=list("abc")).assign(kind=KINDS[y])


SERVER, NODES = table(0, 12), [table(1, 10, kinds=2), table(2, 15)]


def same(frame: Any) -> Any:
    return frame


def named(*kinds: object) -> Callable[[Any], Any]:
    """A table whose labels have these names."""
    return lambda frame: frame.assign(kind=frame.kind.map(dict(zip(KINDS, kinds, strict=True))))


def trained(
    folder: Path, server: Callable[[Any], Any] = same, first: Callable[[Any], Any] = same, **rest: Callable[[Any], Any]
) -> tuple[bytes, list[str]]:
    """The model of two rounds over two nodes, and why the first was missing. The tables have been changed so."""
    own = {"server": server(SERVER), "0": first(NODES[0]), "1": rest.get("second", server)(NODES[1])}
    for name, frame in own.items():
        (folder / name).mkdir(parents=True)
        frame.to_csv(folder / name / "train.csv", index=False)
        data = {"name": "table", "path": str(folder / name), "label": "kind", "test": 0.0}
        more = {"rounds": 2, "sampling": {"fraction": 1.0}} if name == "server" else {}
        (folder / f"{name}.toml").write_text(tomli_w.dumps({"data": data} | more))
    shared = {"own-code": "", "state": str(folder / "state")}
    config = {7 + n: {"partition-id": n, "data": str(folder / f"{n}.toml")} | shared for n in range(2)}
    asked = {"experiment": json.dumps(load(folder / "server.toml").table()), "out": str(folder / "out"), "clients": 2}
    waiting = json.dumps(vars(Waiting(deadline=0.01, roll_call=0.1, poll=0.001)))
    serve(InProcessGrid(node_app(), config), asked | {"waiting": waiting, "limit": 0, "fork": ""})
    rows = [json.loads(line) for line in (folder / "out" / "metrics.jsonl").read_text().splitlines()]
    why = [row["missing"]["0"] for row in rows if row["split"] == "guard"]
    return (folder / "out" / "models" / "model.safetensors").read_bytes(), why


def test_labels_that_are_texts_at_the_server_and_integers_at_a_node_are_the_same_labels(tmp_path: Path) -> None:
    """The first node's rows are of "1" and "2" only, so that its column is one of integers."""
    found, missing = trained(tmp_path / "a")
    letters = named("l", "m", "x")
    assert not missing and found == trained(tmp_path / "b", server=letters, first=letters)[0]


def test_features_have_the_servers_order_whatever_the_order_of_a_nodes_columns(tmp_path: Path) -> None:
    found, missing = trained(tmp_path / "a", first=lambda frame: frame[["c", "kind", "a", "b"]])
    assert not missing and found == trained(tmp_path / "b")[0]


REFUSED: dict[str, tuple[dict[str, Callable[[Any], Any]], str]] = {
    "texts of integers": (
        {"server": named(0, 1, 2), "first": named("cat", "dog", "emu")},
        "labels = 'cat, dog': must be among the server's integers: 0, 1, 2",
    ),
    "integers of texts": (
        {"server": named("cat", "dog", "emu"), "first": named(1, 0, 2)},
        "labels = '0, 1': must be among the server's: cat, dog, emu",
    ),
    "decimals of texts": ({"first": named(1.5, 2.0, 0.0)}, "labels = '1.5, 2.0': must be among the server's: 1, 2, x"),
    "other columns": (
        {"first": lambda frame: frame.rename(columns={"a": "v"})},
        "features = 'v, b, c': must be the server's: a, b, c",
    ),
    "one column more": (
        {"first": lambda frame: frame.assign(d=1.0)},
        "features = 'a, b, c, d': must be the server's: a, b, c",
    ),
}


@pytest.mark.parametrize("name", some(REFUSED, *list(REFUSED)[::2]))
def test_a_node_with_other_labels_or_features_than_the_server_is_missing_by_name(name: str, tmp_path: Path) -> None:
    changed, line = REFUSED[name]
    _, missing = trained(tmp_path, **changed)
    assert missing == [f"failed: SettingError: {line}"] * 2
