"""The notebooks run as they stand; what is stored in them is small and came from a run in order."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 100_000  # bytes


def code_cells(path):
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stored_in_order_and_small(path):
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert any(cell["outputs"] for cell in cells)
    assert not [output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"]
    assert path.stat().st_size < LARGEST


def texts(cells):
    """What the cells printed or returned as text, without the places of objects in memory."""
    return [
        "".join(output.get("text") or output.get("data", {}).get("text/plain", ""))
        for cell in cells
        for output in cell["outputs"]
        if "image/png" not in output.get("data", {})
    ]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_and_show_what_is_stored(path):
    pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
    sys.path.insert(0, str(FOLDER))
    try:
        from execute import executed
    finally:
        sys.path.remove(str(FOLDER))
    book = executed(path)
    assert texts([cell for cell in book.cells if cell.cell_type == "code"]) == texts(code_cells(path))


def test_every_notebook_has_a_picture_and_exercises():
    assert len(NOTEBOOKS) == 7
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.get("outputs", ()))
        assert "**Exercises.**" in "".join(cells[-1]["source"]), path.name


def test_own_models_end_in_a_success_on_a_model_that_remembered():
    for name in ("02-your-own-model", "06-a-deletion-request", "07-hugging-face"):
        *_, last = (text for text in texts(code_cells(FOLDER / f"{name}.ipynb")) if text.startswith("original "))
        verdicts = dict(re.split(r" {2,}", line, maxsplit=1) for line in last.splitlines())
        assert verdicts["original"] == "residual knowledge found"
        assert verdicts["soft_reset"] == "not detected"
