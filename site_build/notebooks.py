"""The tutorials: notebooks, which are executed and become pages."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from nbformat import NO_CONVERT, NotebookNode, read

SECONDS = 300
"""A cell that takes longer fails."""
TEMPLATE = """\
{%- extends "markdown/index.md.j2" -%}
{% block outputs %}
<div class="result" markdown>
{{ super() }}
</div>
{% endblock outputs %}
{% block data_png %}
![What the code above draws]({{ output.metadata.filenames["image/png"] }})
{% endblock data_png %}
"""
"""What a cell puts out stands in a box below its code."""


def pages(file: Path, place: Path) -> dict[str, str | bytes]:
    """What becomes of a notebook `file` that is at `place` on the site: its page, and its pictures, by their places.

    Raises nbclient's `CellExecutionError` if a cell fails.
    """
    text, pictures = _page(executed(file), place.stem)
    contents: dict[str, str | bytes] = {}
    contents[place.with_suffix(".md").as_posix()] = f"---\nnotebook: {place.name}\n---\n{text}"
    for name, picture in pictures.items():
        contents[(place.parent / name).as_posix()] = picture
    return contents


def executed(file: Path) -> NotebookNode:
    """A notebook with what all its cells put out. It is executed in a new folder, which is removed afterwards."""
    notebook = read(file, NO_CONVERT)
    own = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}
    with TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, timeout=SECONDS, coalesce_streams=True, resources=place)
        client.execute(env=os.environ | own)
    return notebook


def _page(notebook: NotebookNode, name: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures by their names, which begin with `name`."""
    exporter = MarkdownExporter(raw_template=TEMPLATE)
    exporter.register_preprocessor("nbconvert.preprocessors.HighlightMagicsPreprocessor", enabled=True)
    text, resources = exporter.from_notebook_node(notebook, {"unique_key": name})
    return text, resources["outputs"]
