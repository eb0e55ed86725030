"""The engine in an experiment file: its kind says which one it is, and which keys it has."""

from __future__ import annotations

from typing import Any

import pytest

from fedsash.engines import LocalEngine, RayEngine
from fedsash.lab.config import ConfigError, parse


@pytest.mark.parametrize(
    "table, engine",
    [
        ({}, LocalEngine()),
        ({"kind": "vectorised", "block": 4}, LocalEngine("vectorised", block=4)),
        ({"kind": "ray", "actors": 4}, RayEngine(actors=4)),
        ({"name": "ray", "pieces": 8}, RayEngine(pieces=8)),
        ({"name": "local", "workers": 2}, LocalEngine(workers=2)),
    ],
)
def test_the_kind_chooses_the_engine_as_its_name_does(table: dict[str, Any], engine: Any) -> None:
    found = parse({"engine": table})
    assert found.engine == engine
    assert parse(found.table()) == found


@pytest.mark.parametrize(
    "table, line",
    [
        ({"kind": "ray", "workers": 2}, "unknown key engine.workers; known are pieces, precision, kind, actors"),
        ({"kind": "sequential", "actors": 2}, "unknown key engine.actors; known are pieces, precision, kind, workers"),
        ({"name": "local", "kind": "ray"}, 'engine.kind = "ray": must be "auto" or "sequential" or "vectorised"'),
        ({"kind": "ry"}, "engine.kind = 'ry': must be 'auto' or 'sequential' or 'vectorised' or 'ray'"),
        ({"kind": ["ray"]}, "engine.kind = ['ray']: must be 'auto' or 'sequential' or 'vectorised' or 'ray'"),
    ],
)
def test_settings_of_another_engine_are_refused(table: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse({"engine": table})
    assert str(error.value).startswith(line)


@pytest.mark.parametrize(
    "overrides, engine",
    [
        (["engine.kind=ray"], RayEngine()),
        (["engine.kind=ray", "engine.actors=2"], RayEngine(actors=2)),
        (["engine.actors=2", "engine.kind=ray"], RayEngine(actors=2)),
        (["engine.kind=vectorised"], LocalEngine("vectorised", threads=3, pieces=2)),
    ],
)
def test_another_engine_leaves_nothing_of_that_in_the_file(overrides: list[str], engine: Any) -> None:
    """As when a run's own config.toml, which has all settings of its engine, is trained again on a cluster."""
    table = {"kind": "sequential", "threads": 3, "pieces": 2}
    assert parse({"engine": table}, overrides).engine == engine
    assert parse({"engine": {"name": "local"} | table}, overrides).engine == engine


@pytest.mark.parametrize("table", [{"kind": "ray", "actors": 4}, {"name": "ray", "kind": "ray", "actors": 4}])
def test_nor_of_that_of_a_cluster(table: dict[str, Any]) -> None:
    assert parse({"engine": table}, ["engine.kind=auto"]).engine == LocalEngine()
    there = parse({"engine": table}, ["engine.kind=sequential", "engine.threads=1", "engine.pieces=64"])
    assert there.engine == LocalEngine("sequential", threads=1, pieces=64)
    assert parse({"engine": table}, ["engine.actors=2"]).engine == RayEngine(actors=2)
