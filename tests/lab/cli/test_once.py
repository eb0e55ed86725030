"""Options that take one value are refused when they are given twice; those that may be repeated are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsash.lab.cli import main


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(list(map(str, words)))
    assert stopped.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("run", "x.toml", "--out", "a", "--out", "b"), ("resume", "a", "--rounds", 1, "--rounds", 2)]
)
def test_no_option_keeps_its_last_value_silently(words: tuple[object, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert "is given twice, and takes one value" in refused(capsys, *words)


def test_settings_may_be_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "digits.toml").write_text(
        "rounds = 3\n[data]\nname = 'digits'\n[partition]\nname = 'iid'\nclients = 4\n"
    )
    changes = ("--set", "rounds=1", "--set", "local.lr=0.1")
    assert main(["run", str(tmp_path / "digits.toml"), "--out", str(tmp_path / "run"), *changes]) == 0


def test_a_value_that_is_the_default_counts_as_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("init", tmp_path / "new.toml", "--path", "", "--path", tmp_path)
    assert "argument --path: is given twice" in refused(capsys, *words)
