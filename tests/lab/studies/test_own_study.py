"""A study of one's own is one file and one line: its command, table, pictures and place on the page follow."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fedsash.lab.cli import main
from fedsash.lab.reproductions.figures import Figure
from fedsash.lab.studies import STUDIES, Entry
from fedsash.lab.studies.opened import Opened
from support.studies import analysis, refused

FILE = """
from dataclasses import dataclass, field

from fedsash.basics.errors import check
from fedsash.lab.pictures import Axis, Bars, Panel, Picture
from fedsash.lab.studies.study import Study, number, option, unseen


@dataclass(frozen=True)
class LengthStudy(Study):
    kinds = ("lengths",)
    examples = "  fedsash length runs/a --models model,window5\\n"

    models: tuple[str, ...] = field(metadata=option("the models", "A[,B...]"))
    power: int = field(default=2, metadata=option("of the norm"))

    def __post_init__(self):
        check(self.power >= 1, "LengthStudy.power", self.power, "must be at least 1")

    def about(self):
        return self.models

    def make(self, runs, progress=unseen, draft=None):
        (run,) = runs
        found = {name: run.model(name).norm(p=self.power) for name in self.models}
        return {"kind": self.kind, "title": f"{run.folder.name}: lengths", "lengths": found}

    @staticmethod
    def rows(found):
        yield ["model", "length"]
        for name, length in found["lengths"].items():
            yield [name, number(length)]

    @staticmethod
    def picture(found):
        names, lengths = list(found["lengths"]), list(found["lengths"].values())
        bars = Bars([""], range(len(names)), [lengths], ["#333333"])
        axis = Axis("model", ticks=dict(enumerate(names)))
        return Picture(found["title"], [Panel("lengths", axis, Axis("length"), [bars])], caption="How long they are.")
"""
LINE = Entry("own_study:LengthStudy", "how long models are")


@pytest.fixture(autouse=True)
def own_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_study.py").write_text(FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_study", raising=False)
    monkeypatch.setitem(STUDIES, "length", LINE)


def test_its_command_writes_tells_and_draws(run: Path, opened: Opened, capsys: pytest.CaptureFixture[str]) -> None:
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
    table = {"kind": "lengths", "models": ["model"], "power": 1}
    figure = Figure.of(table, {}, "name", "figures[0]")
    assert repr(figure.study) == "LengthStudy(models=('model',), power=1)"
