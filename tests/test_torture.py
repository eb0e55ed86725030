"""The campaign at its short scale finds nothing. Its full scale is `make torture`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.places import ROOT

FILES = [*(ROOT / "torture").glob("*.py"), *(ROOT / "torture").glob("*/__init__.py")]
KINDS = sorted(
    file.parent.name if file.stem == "__init__" else file.stem for file in FILES if "\nSIZES = " in file.read_text()
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_short_campaign_finds_nothing(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torture", "--scale", "short", "--only", kind, "--out", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_kind_of_the_campaign_can_be_chosen() -> None:
    from torture.__main__ import KINDS as chosen

    assert sorted(chosen) == KINDS


def test_a_kind_that_was_run_replaces_its_own_row_of_the_page() -> None:
    from torture.__main__ import PAGE, with_rows

    page = PAGE.read_text()
    (before,) = [line for line in page.splitlines() if line.startswith("| settings |")]
    row = ["settings", "1", "1", "2", "3", "4", "5", "6", "7", "8.0 s", "9 s"]
    changed = with_rows(page, [row])
    assert changed == page.replace(before, "| settings | 1 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8.0 s | 9 s |")
    assert with_rows(page, []) == page


@pytest.mark.parametrize(
    ("trial", "refusal"),
    [
        (("aggregation", "clip"), "method.weighting = 'samples': must be 'uniform': the update of every client counts"),
        (("track",), "wandb is needed for Weights & Biases"),
    ],
)
def test_a_refusal_of_a_valid_value_names_its_setting_or_the_library_that_is_missing(
    trial: tuple[str, ...], refusal: str, tmp_path: Path
) -> None:
    """The campaign once called these two unclear; without their last words they are."""
    from torture.settings import Trial, _wrong

    last_words = {"aggregation": " the same in a private aggregation", "track": ': pip install "fedsash[wandb]"'}
    whole = refusal + last_words[trial[0]]
    found = {}
    for words in (refusal, whole):
        end = {"code": 2, "err": f"fedsash: experiment.toml: {words}\n", "seconds": 0.0}
        found[words] = list(_wrong(tmp_path, Trial("a case", b"", "run", trial), end))
    assert [sort for sort, _ in found[refusal]] == ["unclear"]
    assert found[whole] == []


def test_a_kind_without_a_row_gets_one_in_its_place() -> None:
    from torture.__main__ import BEGIN, END, HEADINGS, with_rows

    head = f"| kind | cases | {' | '.join(HEADINGS)} | slowest refusal | time |\n"
    rule = f"| --- |{' ---: |' * (len(HEADINGS) + 3)}\n"
    zeros = ["0"] * len(HEADINGS)
    kills = f"| {' | '.join(['kills', '1', *zeros, '0.0 s', '1 s'])} |\n"
    pages = f"| {' | '.join(['pages', '1', *zeros, '0.0 s', '1 s'])} |\n"
    page = f"text\n{BEGIN}{head}{rule}{pages}{END}\nmore\n"
    changed = with_rows(page, [["kills", "1", *zeros, "0.0 s", "1 s"]])
    assert changed == f"text\n{BEGIN}{head}{rule}{kills}{pages}{END}\nmore\n"
