"""Tables of measured.csv, calibration.json and docs/reproduction, in pages from <!-- table NAME --> to <!-- end -->.

python -m website.tables

writes them into the pages anew; `make site-figures` does so after its runs.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from benchmarks import reproduction

from residuum import Run

ROOT = Path(__file__).parents[1]
MEASURED = Path(__file__).with_name("measured.csv")
CALIBRATION = Path(__file__).with_name("calibration.json")  # benchmarks/calibration.py writes it
BASELINES = ("original", "retrain", "control")
SCENARIOS = {
    "digits": "half of the eights forgotten: most of what stays is knowledge of the class",
    "digits-random": "5 % of all digits forgotten: what stays is memory of the samples",
}
COLUMNS = {
    **{"row": "model", "verdict": "verdict", "r": "r", "G": "G", "M": "M"},
    **{"unlearn_accuracy": "unlearn acc. %", "test_accuracy": "test acc. %"},
}


@cache
def measured() -> dict[tuple[str, str], dict[str, str]]:
    """Return the lines of measured.csv by scenario and row."""
    with MEASURED.open(newline="", encoding="utf-8") as file:
        return {(line["scenario"], line["row"]): line for line in csv.DictReader(file)}


@cache
def labels(scenario: str) -> list[str]:
    """Return the rows of a scenario in the order of the file."""
    return [row for name, row in measured() if name == scenario]


def results(scenario: str, rows: Sequence[str]) -> str:
    """Return these rows of a scenario, and last what retraining explains."""
    floor = {"row": "*retraining explains*"} | dict(zip("rGM", _explained(scenario, "rGM"), strict=True))
    found = [measured()[scenario, row] for row in labels(scenario) if row in rows]
    head = [_line(COLUMNS.values()), "|---" * len(COLUMNS) + "|"]
    return "\n".join([*head, *(_line(line.get(column, "") for column in COLUMNS) for line in (*found, floor))])


def on_both_scenarios() -> str:
    """Return verdict, r and M of every row on both scenarios of digits, and last what retraining explains."""
    first, second = ("digits-random", "digits")
    head = ["model", "verdict", "5 % of all: r", "half of the eights: r", "half of the eights: M", "cost %"]
    lines = []
    for row in labels(first):
        memory, knowledge = measured()[first, row], measured()[second, row]
        verdict = " / ".join(dict.fromkeys((memory["verdict"], knowledge["verdict"])))
        lines.append(_line([row, verdict, memory["r"], knowledge["r"], knowledge["M"], memory["cost"]]))
    floor = ["*retraining explains*", "", *_explained(first, "r"), *_explained(second, "rM"), ""]
    return "\n".join([_line(head), "|---" * len(head) + "|", *lines, _line(floor)])


def selected(
    folder: str,
    columns: Sequence[str] | None = None,
    rows: Sequence[str] | None = None,
    table: Sequence[str] = ("rows",),
) -> str:
    """Return these columns and rows, or all, of a table of a recorded run."""
    table_lines = [line.strip("|").split("|") for line in reproduced(folder, *table).split("\n")]
    head, _, *lines = [[cell.strip() for cell in line] for line in table_lines]
    by_model = {line[0]: dict(zip(head, line, strict=True)) for line in lines}
    columns = columns or head
    shown = [_line(by_model[row][column] for column in columns) for row in rows or by_model]
    return "\n".join([_line(columns), "|---" * len(columns) + "|", *shown])


def _explained(scenario: str, quantities: str | tuple[str, ...]) -> list[str]:
    return [measured()[scenario, "original"][f"{quantity} explained"] for quantity in quantities]


@cache
def calibrated(table: str) -> dict[str, dict[str, float]]:
    """Return the numbers of one table of calibration.json by row and column."""
    rows = json.loads(CALIBRATION.read_text(encoding="utf-8"))[table]
    return {row: {name: value for name, value in cells.items() if name != "trials"} for row, cells in rows.items()}


def percentages(first: str, rows: Mapping[str, Mapping[str, float]]) -> str:
    """Return a table of percentages, whose head starts with this cell; nothing where a row lacks a column."""
    columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
    head = [_line([first, *columns]), "|---" * (1 + len(columns)) + "|"]
    return "\n".join(
        [
            *head,
            *(
                _line([name, *(f"{cells[c]:.1f}" if c in cells else "" for c in columns)])
                for name, cells in rows.items()
            ),
        ]
    )


def by_design(table: str) -> str:
    """Return the rates of one table by pool and perturbation, for every design."""
    return percentages("pool, perturbation", calibrated(table))


def differing() -> str:
    """Return how often retrained models, originals, and short and long trainings differ in each further measure."""
    return percentages("measure, pool", {name: _of_kinds(cells) for name, cells in calibrated("differs").items()})


def trained_otherwise() -> str:
    """Return how often short and long trainings were found, the largest rate over all designs."""
    rows: dict[str, dict[str, float]] = {}
    for name, cells in calibrated("epochs").items():
        largest = rows.setdefault(name.rpartition(", ")[0], {})
        for column, value in cells.items():
            largest[_epochs(column)] = max(value, largest.get(_epochs(column), 0.0))
    return percentages("pool, perturbation", rows)


def methods_found() -> str:
    """Return how often each method was found at three seeds and one control under Gaussian noise, by pool."""
    rows: dict[str, dict[str, float]] = {}
    for name, cells in calibrated("methods").items():
        pool, perturbation = name.split(", ")
        if perturbation == "gaussian":
            for method, value in cells.items():
                rows.setdefault(f"`{method}`", {})[pool] = value
    return percentages("method", rows)


def probes_found() -> str:
    """Return how often each probe says "found" of retrained models, originals, and short and long trainings."""
    return percentages("probe, pool", {name: _of_kinds(cells) for name, cells in calibrated("probes").items()})


def _of_kinds(cells: Mapping[str, float]) -> dict[str, float]:
    kinds = {"retrained" if label == "unlearned" else _epochs(label): value for label, value in cells.items()}
    return {kind: value for kind, value in kinds.items() if kind in ("retrained", "original") or "epochs" in kind}


def probe_by_row(probe: str, pools: Sequence[str], digits: int) -> str:
    """Return the mean value of a probe for every row of these pools, and how often it says "found"."""
    labels = list(dict.fromkeys(label for pool in pools for label in calibrated("values")[f"{probe}, {pool}"]))
    lines = [
        _line(["row", *(head for pool in pools for head in (f"{pool}: mean", "found, %"))]),
        "|---" * (1 + 2 * len(pools)) + "|",
    ]
    for label in labels:
        cells = []
        for pool in pools:
            value = calibrated("values")[f"{probe}, {pool}"].get(label)
            found = calibrated("probes")[f"{probe}, {pool}"].get("unlearned" if label == "retrain" else label)
            cells += ["" if value is None else f"{value:.{digits}f}", "" if found is None else f"{found:.1f}"]
        if not label.startswith("control"):
            lines.append(_line([f"`{label}`" if "_" not in label or "epochs" not in label else _epochs(label), *cells]))
    return "\n".join(lines)


def _epochs(label: str) -> str:
    return label.replace("epochs_", "") + " epochs" if label.startswith("epochs_") else label


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


SHORT = ["model", "verdict", "r", "M", "unlearn acc. %", "test acc. %", "average gap"]
THREE_SEEDS = [*SHORT[:3], "G", *SHORT[3:], "cost %"]
FULL_SIZE = ["model", "verdict", "r", "M", "average gap", "unlearn acc. %", "retain acc. %", "test acc. %", "cost %"]
FIVE = ["original", "scrub", "rurk", "soft_reset", "control"]
TABLES: dict[str, Callable[[], str]] = {
    "digits": on_both_scenarios,
    "calibration-null": partial(by_design, "null"),
    "calibration-originals": partial(by_design, "originals"),
    "calibration-epochs": trained_otherwise,
    "calibration-methods": methods_found,
    "calibration-probes": probes_found,
    "calibration-differs": differing,
    "calibration-durability": partial(probe_by_row, "durability", ("digits-random", "fashion"), 4),
    "calibration-features": partial(probe_by_row, "features", ("digits-class", "digits"), 3),
    "cifar10-five": lambda: selected(
        "small-cifar5-seeds", ["model", "verdict", "r", "M", "test acc. %", "cost %"], FIVE
    ),
    "small-cifar5 short": partial(selected, "small-cifar5", SHORT),
    "cifar10-seeds": partial(selected, "small-cifar5-seeds", THREE_SEEDS),
    "cifar10-full": partial(selected, "cifar10", FULL_SIZE, table=("beside",)),
    "cifar10-fgsm": partial(
        selected, "small-cifar5-fgsm", rows=[*FIVE, "*retraining explains*"], table=["radii", "fgsm:target=true"]
    ),
}
PAGES = (
    ROOT / "README.md",
    *(ROOT / "docs" / "benchmarks" / name for name in ("digits.md", "cifar10.md", "cifar10-details.md")),
    ROOT / "docs" / "reference" / "calibration.md",
)
INTERVAL = re.compile(r"[+-]?[\d.]+ (?:\[[^]|]*\]|to [\d.]+|\([\d.]+\)|± [\d.]+)")


@cache
def recorded(folder: str) -> Run:
    """Return a run whose record is kept in docs/reproduction."""
    return Run.load(ROOT / "docs" / "reproduction" / folder)


def reproduced(folder: str, part: str, perturbation: str = "gaussian") -> str:
    """Return a table of such a run: its rows, r at every radius, the findings, or published values beside ours."""
    return "\n".join(reproduction.TABLES[part](recorded(folder), perturbation))


def table(name: str) -> str:
    """Return the table of this name, or FOLDER PART [PERTURBATION] of docs/reproduction; intervals do not break."""
    return unbroken(TABLES[name]() if name in TABLES else reproduced(*name.split()))


def unbroken(text: str) -> str:
    r"""Return a text whose intervals stay on one line.

    >>> unbroken("| 1.05 [1.02, 1.08] | not detected |")
    '| 1.05\xa0[1.02,\xa01.08] | not detected |'
    """
    return INTERVAL.sub(lambda found: found[0].replace(" ", "\u00a0"), text)


def with_tables(page: str) -> str:
    """Return a page's text with every table as measured, indented as its mark is."""
    return re.sub(
        r"^( *)(<!-- table ([^>]+) -->)\n.*?\n *(<!-- end -->)$",
        lambda found: "\n".join(
            (found[1] + line).rstrip() for line in [found[2], "", *table(found[3]).split("\n"), "", found[4]]
        ),
        page,
        flags=re.S | re.M,
    )


def write() -> None:
    """Write the tables into the pages that show them."""
    for page in PAGES:
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write()
