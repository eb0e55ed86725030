"""A path of Windows in a TOML file."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsash.lab.config import ConfigError, load


@pytest.mark.parametrize("path", [r"C:\Users\me\data.csv", r"D:\data.csv"])
def test_backslashes_in_a_text_get_a_hint(path: str, tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(f'[data]\nname = "table"\npath = "{path}"\n')
    with pytest.raises(ConfigError, match="write a path of Windows with / or in single quotes"):
        load(file)
