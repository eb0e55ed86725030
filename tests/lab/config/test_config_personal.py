"""A personal part in an experiment file."""

from __future__ import annotations

from typing import Any

import pytest

from fedsash.lab.config import ConfigError, parse
from fedsash.vector.sharing import Personal


@pytest.mark.parametrize(
    "given, part",
    [
        ("classifier", Personal("classifier")),
        (["features.1"], Personal(("features.1",))),
        ({"part": "extractor", "alone": 2}, Personal("extractor", 2)),
    ],
    ids=str,
)
def test_a_file_names_the_part_or_has_a_table(given: Any, part: Personal) -> None:
    experiment = parse({"personal": given})
    assert experiment.personal == part and parse(experiment.table()) == experiment
    assert experiment.federation().personal == part


@pytest.mark.parametrize(
    "table, line",
    [
        ({"personal": "head"}, r"personal.part = 'head': nothing that trains is called \['head'\]; there are features"),
        ({"personal": 3}, r"personal = 3: must be a table, \[personal\], or a string or a list of strings$"),
        ({"personal": ["features", 3]}, r"must be a table, \[personal\], or a string or a list of strings$"),
        ({"personal": ""}, "personal.part = '': must name a part of the model; leave it out if nothing stays"),
        ({"personal": {"alone": 1}}, r"personal.part = \(\): must not be empty: it trains alone"),
        ({"personal": {"part": "all", "alone": 1}}, "personal.part = 'all': must leave something to share"),
        (
            {"personal": "classifier", "averages": {"w": {"name": "window", "size": 3, "part": "classifier"}}},
            "averages.w.part = 'classifier': stays with the clients: name a part that they share",
        ),
    ],
)
def test_an_error_is_one_line_that_names_the_key(table: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        parse(table).federation()
