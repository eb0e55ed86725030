"""The tutorials: as they are committed, and what they find when they are executed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.places import ROOT

pytest.importorskip("nbclient")

from nbclient.exceptions import CellExecutionError
from nbformat import NO_CONVERT, read, validate, write
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from site_build import notebooks, plain

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))


def written(folder: Path, *cells: str) -> Path:
    """A notebook with a heading and these cells of code."""
    notebook = new_notebook(cells=[new_markdown_cell("# Title\n\nText."), *map(new_code_cell, cells)])
    write(notebook, folder / "a.ipynb")
    return folder / "a.ipynb"


def found(name: str, expression: str, folder: Path) -> Any:
    """The value of an expression after all cells of a tutorial."""
    notebook = read(ROOT / "docs" / "tutorials" / f"{name}.ipynb", NO_CONVERT)
    notebook.cells.append(new_code_cell(f"import json\nprint(json.dumps({expression}))"))
    write(notebook, folder / "a.ipynb")
    return json.loads(notebooks.executed(folder / "a.ipynb").cells[-1].outputs[0].text)


@pytest.mark.parametrize("file", TUTORIALS, ids=lambda file: file.stem)
def test_a_tutorial_is_committed_without_outputs_and_tells_before_it_computes(file: Path) -> None:
    notebook = read(file, NO_CONVERT)
    validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) > 3
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert notebook.cells[0].source.startswith("# ")


def test_there_are_the_tutorials_of_the_index() -> None:
    index = (ROOT / "docs" / "tutorials" / "index.md").read_text()
    assert len(TUTORIALS) == 4 and all(f"]({file.name})" in index for file in TUTORIALS)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The page of a notebook that prints, calls the shell and draws, and its picture."""
    cells = ["print(6 * 7)", "%%sh\nfedsash --version", "import matplotlib.pyplot as plt\nplt.plot([1, 2]);"]
    file = written(tmp_path_factory.mktemp("notebook"), *cells)
    return dict(notebooks.pages(file, Path("tutorials/a.ipynb")))


def test_a_notebook_becomes_a_page_with_what_its_cells_put_out(made: dict[str, Any]) -> None:
    page = str(made["tutorials/a.md"])
    assert page.startswith("---\nnotebook: a.ipynb\n---\n")
    assert "```python\nprint(6 * 7)\n```" in page and "\n    42\n" in page
    assert "\n    fedsash 0." in page
    assert "<div" not in plain.written(page) and "\n    42\n" in plain.written(page)


def test_a_picture_of_a_notebook_lies_beside_its_page(made: dict[str, Any]) -> None:
    (picture,) = set(made) - {"tutorials/a.md"}
    assert f"]({Path(picture).name})" in str(made["tutorials/a.md"])
    assert bytes(made[picture]).startswith(b"\x89PNG")


def test_a_cell_that_fails_ends_the_build(tmp_path: Path) -> None:
    with pytest.raises(CellExecutionError, match="no such thing"):
        notebooks.pages(written(tmp_path, "raise ValueError('no such thing')"), Path("a.ipynb"))


@pytest.mark.slow
def test_the_window_of_the_first_tutorial_gains_what_its_text_says(tmp_path: Path) -> None:
    curves = found("averages", "curves", tmp_path)
    model, window = curves["model"][-10:], curves["window"][-10:]
    assert sum(window) > sum(model) and max(window) - min(window) < max(model) - min(model)


@pytest.mark.slow
def test_the_offices_of_the_second_tutorial_gain_from_the_window(tmp_path: Path) -> None:
    rows = found(
        "own-data", "{name: [result[name].last_mean, result[name].last_std] for name in ('model', 'window')}", tmp_path
    )
    assert rows["window"][0] > rows["model"][0] and rows["window"][1] < rows["model"][1]


@pytest.mark.slow
def test_the_table_of_the_third_tutorial_is_there(tmp_path: Path) -> None:
    table = found("papers-table", "filled", tmp_path)
    assert "| paper |" in table and "| here |" in table and "not comparable" in table


@pytest.mark.slow
def test_nodes_of_the_fourth_tutorial_give_the_bytes_of_the_simulation(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    expression = "[simulated.history == federated.history, bool(torch.equal(simulated.state.w, federated.state.w))]"
    assert found("flower", expression, tmp_path) == [True, True]
