"""Execute notebooks, each in an empty folder, and keep small outputs: python notebooks/execute.py [NOTEBOOK...]."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent


def executed(path: Path) -> nbformat.NotebookNode:
    """Return the notebook with the outputs of a fresh run, without times and counts that differ between runs."""
    book = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            book,
            timeout=900,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
        )
        client.execute(
            env=os.environ | {"XDG_STATE_HOME": folder}
        )  # `forget` in a notebook finds its own runs only
    for cell in book.cells:
        cell.metadata.clear()
        if (
            cell.cell_type == "code"
        ):  # what goes to standard error is progress and warnings
            cell.outputs = [
                output
                for output in cell.outputs
                if output.get("name") != "stderr"
            ]
    return book


def main(names: list[str]) -> None:
    """Execute these notebooks, or all, and write them."""
    for path in map(Path, names) if names else sorted(HERE.glob("*.ipynb")):
        nbformat.write(executed(path), path)
        print(path.name, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
