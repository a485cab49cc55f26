"""Decision regions of re-trained and unlearned models around forgotten samples: a figure drawn from stored answers.

`querying` asks the models and is the only module here that loads one; `answers` keeps and counts what they said;
`figure` draws it to print (SVG, PNG) and to explore (one HTML page).
"""

from collections.abc import Sequence
from pathlib import Path

from residuum.decision_regions.answers import Answers, caption
from residuum.decision_regions.figure import page_text, write_drawings


def write_figure(answers: Sequence[Answers], folder: Path, name: str) -> list[Path]:
    """Write NAME.svg, .png, .html and .txt (the caption) into a folder, from the answers of each seed's models."""
    write_drawings(answers, folder, name)
    (folder / f"{name}.html").write_text(page_text(answers), encoding="utf-8")
    (folder / f"{name}.txt").write_text(caption(answers) + "\n", encoding="utf-8")
    return [folder / f"{name}.{ending}" for ending in ("svg", "png", "html", "txt")]
