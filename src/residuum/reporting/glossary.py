"""What is measured and how it is read: the columns of the results table and the measures of the audit.

The words stand in glossary.toml: titles, units, which direction is good, and what each quantity means.
"""

import tomllib
from dataclasses import dataclass
from importlib.resources import files

_WORDS = tomllib.loads((files("residuum.reporting") / "glossary.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Column:
    """A column of the results table."""

    key: str
    title: str
    short: str
    unit: str
    direction: str
    meaning: str


@dataclass(frozen=True)
class Measure:
    """A quantity of the audit, by its name in the record; `neutral` is its value for a second retrained model."""

    key: str
    title: str
    axis: str
    meaning: str
    neutral: float | None = None
    ratio: bool = False


@dataclass(frozen=True)
class Answer:
    """How the page says a verdict: in two words, in a sentence about the samples, and over a group of methods."""

    headline: str
    sentence: str
    group: str


COLUMNS = tuple(Column(**words) for words in _WORDS["columns"])
METRICS, (RELEARN, GAP, RESIDUAL, COST) = COLUMNS[:4], COLUMNS[4:]
MIA = METRICS[-1]
MEASURES = tuple(Measure(**words) for words in _WORDS["measures"])
AXES: dict[str, str] = _WORDS["axes"]
PICTURE: dict[str, str] = _WORDS["picture"]
PAGE: dict[str, str] = _WORDS["page"]
SECTION_WORDS: dict[str, dict[str, str]] = _WORDS["sections"]
NEXT: dict[str, dict[str, str]] = _WORDS["next"]
ANSWERS = {verdict: Answer(**words) for verdict, words in _WORDS["answers"].items()}
