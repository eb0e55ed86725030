"""A study of one's own is one file and one line: its command, table, pictures and place on the page follow."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from fedsash.lab.cli import main
from fedsash.lab.papers.figures import StudyFigure
from fedsash.lab.studies import STUDIES, Entry
from fedsash.lab.studies.opened import OpenRun
from support.places import DOCS
from support.studies import analysis, refused

FILE, LINE = re.findall(r"```python\n(.*?)```", (DOCS / "studies" / "index.md").read_text(), re.S)[-2:]
"""The code of the page."""


@pytest.fixture(autouse=True)
def own_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lengths.py").write_text(FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "lengths", raising=False)
    (name, entry), *_ = eval(f"{{{LINE}}}", {"Entry": Entry}).items()
    monkeypatch.setitem(STUDIES, name, entry)


def test_its_command_writes_tells_and_draws(run: Path, opened: OpenRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["length", str(run), "--models", "model,w"]) == 0
    found, out = analysis(run, "lengths_model_w"), capsys.readouterr().out
    assert found["command"] == f"fedsash length {run} --models model,w --power 2"
    length = float(opened.model("w").norm())
    assert found["lengths"]["w"] == pytest.approx(length) and f"{length:.4g}" in out
    endings = {path.suffix for path in (run / "analyses").iterdir()}
    assert endings == {".json", ".png", ".pdf"}


def test_its_command_has_a_help_and_refuses_what_the_study_refuses(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["--help"], ["length", "--help"]):
        with pytest.raises(SystemExit):
            main(arguments)
    out = capsys.readouterr().out
    assert "how long models are" in out and "of the norm (default: 2)" in out and "fedsash length runs/a" in out
    assert "--power = 0: must be at least 1" in refused(capsys, "length", run, "--models", "model", "--power", 0)


def test_it_stands_on_the_page_and_among_pictures_for_papers(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    assert main(["length", str(run), "--models", "model,w"]) == 0
    page, figures = tmp_path / "page.html", tmp_path / "figures"
    assert main(["report", str(run), "--out", str(page), "--figures", str(figures)]) == 0
    assert "run: lengths" in page.read_text() and "How long they are." in page.read_text()
    assert (figures / "run-lengths_model_w.pdf").exists()


def test_it_can_be_a_figure_of_a_reproduction() -> None:
    study = STUDIES["length"].study()
    figure = StudyFigure("name", "a title", study=study(models=("model",), power=2)).changed({"power": 1})  # type: ignore[call-arg]
    assert repr(figure.study) == "LengthStudy(models=('model',), power=1)"
