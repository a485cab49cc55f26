"""A page for each notebook, with the outputs that are stored in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from website.pages import Page

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


@cache
def pages() -> list[Page]:
    """Return the notebooks as pages, in their order."""
    return [_page(path) for path in sorted(NOTEBOOKS.glob("*.ipynb"))]


def _page(path: Path) -> Page:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    title = "".join(cells[0]["source"]).partition("\n")[0].removeprefix("# ")
    parts = [part for cell in cells for part in _parts(cell)]
    note = f"This page is the notebook `notebooks/{path.name}` with the outputs of its last run."
    return Page(f"notebooks/{path.stem}.md", title, "\n\n".join([parts[0], note, *parts[1:]]) + "\n")


def _parts(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        yield _shown(output)


def _shown(output: dict[str, Any]) -> str:
    """Return an output as Markdown: a picture, a table, or text."""
    found = output.get("data", {})
    if "image/png" in found:
        return (
            f'<img alt="the figure that the cell above draws" src="data:image/png;base64,{found["image/png"].strip()}">'
        )
    if "text/html" in found:
        return f"<div>{''.join(found['text/html'])}</div>"
    text = "".join(output.get("text") or found.get("text/plain", ""))
    return f"```text\n{text.rstrip()}\n```"
