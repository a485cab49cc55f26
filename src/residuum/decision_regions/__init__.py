"""Decision regions of re-trained and unlearned models around forgotten samples: a figure drawn from stored answers.

`querying` asks the models and is the only module here that loads one; `answers` keeps and counts what they said;
`figure` draws it to print (SVG, PNG) and to explore (one HTML page).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from residuum.decision_regions.answers import Answers, caption
from residuum.decision_regions.figure import page_text, write_drawings


def write_figure(folder: Path, name: str, seeds: Sequence[int]) -> str:
    """Write figures/NAME.svg, .png, .html and .txt (the caption) from a run's pictures/SEED.npz; return the caption."""
    answers = [Answers.load(folder / "pictures" / f"{seed}.npz") for seed in seeds]
    out, words = folder / "figures", caption(answers)
    write_drawings(answers, out, name)
    (out / f"{name}.html").write_text(page_text(answers), encoding="utf-8")
    (out / f"{name}.txt").write_text(words + "\n", encoding="utf-8")
    return words
