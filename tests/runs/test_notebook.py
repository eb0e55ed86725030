"""Notebooks: one bar for a run, a table for its result, a picture for its curves, and no flood of lines."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from fedsash import Callback, Result, RunError, open_run, run
from fedsash.extend import LiveRun
from fedsash.runs.pictures import Picture
from fedsash.runs.pictures.curves import curves
from support.worlds import federation

MAKE = """
import fedsash as fs
from fedsash.testing import small_federation
federation = small_federation(averages={"window": fs.Window(5)}, evaluation=fs.Evaluation(every=2, last=1))
"""


@pytest.fixture(scope="module")
def result() -> Result:
    return run(federation(), 4, progress=False)


def test_a_run_that_goes_on_or_is_opened_is_shown_by_its_facts(tmp_path: Path) -> None:
    shown = []

    class Looks(Callback):
        def end(self, run: LiveRun, result: Result | None) -> None:
            shown.append(repr(run))

    run(federation(), 2, out=tmp_path, progress=False, callbacks=[Looks()])
    assert shown[0].startswith("LiveRun(round=2, rounds=2, models=[model")
    opened = repr(open_run(tmp_path, federation=federation()))
    assert opened.startswith(f"OpenRun(folder={tmp_path}"[:60]) and "experiment" not in opened and len(opened) < 250


@pytest.mark.slow
def test_a_real_notebook_has_a_line_of_a_run_a_table_and_a_picture() -> None:
    client, form = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    cells = [MAKE, "result = fs.run(federation, 200)\nresult", "result.plot()"]
    notebook: Any = form.v4.new_notebook(cells=[form.v4.new_code_cell(cell) for cell in cells])
    client.NotebookClient(notebook, timeout=None).execute()
    trained, drawn = (cell.outputs for cell in notebook.cells[1:])
    *lines, shown = trained  # without ipywidgets rich draws no bar
    said = "".join(line.text for line in lines)
    assert "round 200/200" in said and "data: " in said and "window " in said
    table = shown.data["text/html"]
    assert table.startswith("<table><caption>Result: 200 rounds")
    (picture,) = drawn
    assert base64.b64decode(picture.data["image/png"]).startswith(b"\x89PNG")


@pytest.mark.pictures
def test_plot_gives_the_picture_of_the_curves_which_can_be_saved(result: Result, tmp_path: Path) -> None:
    picture = result.plot()
    assert isinstance(picture, Picture)
    assert picture == curves(result.history.curves(result.federation.goal.criterion))
    assert picture._repr_png_().startswith(b"\x89PNG") and "save(path)" in repr(picture)
    for name, begin in {"a.png": b"\x89PNG", "a.pdf": b"%PDF"}.items():
        picture.save(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(begin)


def test_a_split_on_which_nothing_was_evaluated_is_refused_in_one_line(result: Result) -> None:
    with pytest.raises(RunError, match=r"no model was evaluated on held_out; there are: \w+"):
        result.plot("held_out")
