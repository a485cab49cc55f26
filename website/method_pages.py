"""One page for each method: its text in docs/methods/index.md, cost and what it leaves behind, its settings."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from residuum.cli.listing import SHARING, described, written
from residuum.core.components import METHODS
from website.pages import Page
from website.tables import SCENARIOS, measured, results

ROOT = Path(__file__).parents[1]
BASELINES = ("original", "retrain", "control")


@cache
def names() -> list[str]:
    """Return the methods that have a section in docs/methods/index.md."""
    return re.findall(r"^## (\w+)$", _guide(), re.M)


@cache
def pages() -> list[Page]:
    """Return a page for each method, in the order of docs/methods/index.md."""
    return [Page(f"methods/{name}.md", _title(name), _text(name)) for name in names()]


def overview(guide: str) -> str:
    """Return docs/methods/index.md without the sections that have pages of their own, with all results."""
    tables = "\n\n".join(f"## On {scenario}\n\n{results(scenario)}" for scenario in SCENARIOS)
    return f"{guide.split(chr(10) + '## ', 1)[0]}\n\n{tables}\n\n{_reading()}\n"


@cache
def _guide() -> str:
    return (ROOT / "docs" / "methods" / "index.md").read_text(encoding="utf-8")


def _section(name: str) -> str:
    """Return the text on a method, with a paragraph each for what to use it for and what the literature says."""
    text = _guide().split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0].strip()
    return re.sub(r"\s+(\*(?:Use it\*|Literature:\*))", r"\n\n\1", text)


def _title(name: str) -> str:
    found = re.match(r"\*\*([^*]+)\*\*", _section(name))
    return f"{found[1]}" if found else name


def _text(name: str) -> str:
    module, definition = _source(name)
    parts = [
        f"# {_title(name)}: `{name}`",
        _section(name),
        "## What it costs and reads",
        _cost(name),
        "## What it leaves behind",
        *(
            f"**{scenario}**: {SCENARIOS[scenario]}.\n\n{results(scenario, [*BASELINES, name])}"
            for scenario in SCENARIOS
        ),
        _reading(),
        "## Settings and defaults",
        _settings(name),
        "## In the source",
        f"::: {module}.{definition}\n    options:\n      heading_level: 3\n      members: false",
    ]
    return "\n\n".join(parts) + "\n"


def _cost(name: str) -> str:
    """Return the method's line of the table in docs/methods/index.md, with the table's head."""
    head = re.search(r"^\| name \|.*\n\|[-|]+\|$", _guide(), re.M)
    line = re.search(rf"^\| \[`{name}`\].*$", _guide(), re.M)
    assert head, "expected a table of the methods in docs/methods/index.md"
    assert line, f"expected a line for {name} in the table of docs/methods/index.md"
    return (
        f"{head[0]}\n{line[0]}\n\nA pass is one forward and backward through the network for one sample; P parameters."
    )


def _reading() -> str:
    seeds = next(iter(measured().values()))["seeds"]
    return f"""Means over {seeds} seeds with 95 % intervals, Gaussian noise. Unlearn accuracy: forgotten samples that
the model gets wrong. Cost: passes, retraining is 100. r: how much more often than the reference the model recognizes
noisy copies of forgotten samples; G: the same on samples of their classes that no model saw; M = r / G: memory of the
samples themselves. A number inside *retraining explains* is no evidence. [How the settings were
chosen](../benchmarks/digits-settings.md); methods that the scenario does not tune have their defaults."""


def _settings(name: str) -> str:
    entries = described("methods")
    settings, of_gd = entries[name].settings, entries[SHARING].settings
    shared = {key: value for key, value in settings.items() if key in of_gd and of_gd[key] == value}
    lines = [f"`{written({key: value})}`" for key, value in settings.items() if key not in shared]
    text = "- " + "\n- ".join(lines) if lines else "None of its own."
    return f"{text}\n\nAs in every gradient method: `{written(shared)}`" if shared else text


def _source(name: str) -> tuple[str, str]:
    """Return module and class of a method."""
    method = METHODS.find(name)
    return method.__module__, method.__name__
