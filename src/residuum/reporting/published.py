"""Published values beside ours: which cells agree, which differ, and which published rows contradict themselves."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from residuum.errors import InputError
from residuum.record import Spread
from residuum.reporting.run import Run

PUBLISHED_SEEDS = 3
ROUNDING = 0.005
NAMES = {"negradplus": "neggrad", "neggrad+": "neggrad", "re-train": "retrain", "eu-k": "eu_k", "cf-k": "cf_k"}
METRICS = {
    "retain_acc": "retain_accuracy",
    "unlearn_acc": "unlearn_accuracy",
    "test_acc": "test_accuracy",
    "mia_acc": "mia_accuracy",
}
PERTURBED = {
    "prevalence": ("prevalence", 0.01),
    "disagreement": ("disagreement", 1.0),
    "unlearn_accuracy_perturbed": ("unlearn_accuracy", 1.0),
}
Record = Mapping[str, Any]
AGREES, DIFFERS, CANNOT_SAY = "agrees", "differs", "cannot say"


@dataclass(frozen=True)
class Comparison:
    """One published value beside ours."""

    label: str
    metric: str
    ours: Spread
    theirs: Spread
    mark: str
    source: str
    doubt: str = ""


def load_published(path: Path) -> Record:
    """Read published values: {"tables": {TABLE: {"caption", "results": {SCENARIO: {METHOD: {METRIC: {...}}}}}}}."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{path}: expected JSON with published values, got something else") from None
    tables = content.get("tables") if isinstance(content, dict) else None
    if not isinstance(tables, dict) or any("results" not in table for table in tables.values()):
        raise InputError(f"{path}: expected {{'tables': {{TABLE: {{'results': ...}}}}}}, see docs/report.md")
    return dict(content)


def compare(run: Run, published: Record) -> list[Comparison]:
    """Return every published value that a row of this run has a counterpart for, in the order of the rows."""
    found = [*_table_values(run, published), *_perturbed_values(run, published)]
    order = list(run.rows)
    return sorted(found, key=lambda entry: order.index(entry.label))


def plain_name(name: str) -> str:
    """Return our name of a published method.

    >>> plain_name("Re-train"), plain_name("NegGrad+"), plain_name("RURK")
    ('retrain', 'neggrad', 'rurk')
    """
    return NAMES.get(name.lower(), name.lower())


def agreement(ours: Spread, theirs: Spread) -> str:
    """Return whether two means over seeds differ by more than Welch's 95 % interval allows (and rounding).

    A missing published spread counts as none, so that only ours is allowed for.

    >>> theirs = Spread(mean=95.4, std=0.8, n=3)
    >>> [agreement(Spread(mean=mean, std=0.8, n=3), theirs) for mean in (95.0, 80.0)]
    ['agrees', 'differs']
    """
    from scipy.special import stdtrit

    if ours.n < 2 or ours.std is None:
        return CANNOT_SAY
    a, b = ours.std**2 / (ours.n - 1), (theirs.std or 0.0) ** 2 / (theirs.n - 1)
    parts = a**2 / (ours.n - 1) + b**2 / (theirs.n - 1)
    allowed = 0.0 if parts == 0 else float(stdtrit((a + b) ** 2 / parts, 0.975)) * math.sqrt(a + b)
    return AGREES if abs(ours.mean - theirs.mean) <= allowed + ROUNDING else DIFFERS


def matching_tables(run: Run, published: Record) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield (table, scenario, methods) of the tables about this scenario, form and kind of network."""
    name, network = _plain(run.record.scenario.name), run.record.scenario.settings.model.name
    for table, content in published["tables"].items():
        about = f"{table} {content.get('caption', '')}".lower()
        if ("class_unlearning" in table) != (run.form == "class") or ("vgg" in about) != network.startswith("vgg"):
            continue
        fitting = [scenario for scenario in content["results"] if _plain(scenario) in name]
        if fitting:
            scenario = max(fitting, key=len)
            yield table, scenario, content["results"][scenario]


def _plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


def _table_values(run: Run, published: Record) -> Iterator[Comparison]:
    seen: set[tuple[str, str]] = set()
    for table, _, methods in matching_tables(run, published):
        for method, values in methods.items():
            doubt = row_doubt(values, methods.get("Re-train"))
            for metric, ours in METRICS.items():
                for label in _labels(run, method):
                    mine = run.rows[label].summary.metric(ours)
                    if metric in values and mine and (label, metric) not in seen:
                        seen.add((label, metric))
                        yield _compared(label, ours, mine, values[metric], table, doubt)


def _labels(run: Run, published_method: str) -> list[str]:
    return [label for label, row in run.rows.items() if row.method == plain_name(published_method)]


def _compared(
    label: str, metric: str, ours: Spread, value: Record, table: str, doubt: str, scale: float = 1.0
) -> Comparison:
    std = value.get("std")
    theirs = Spread(mean=scale * value["mean"], std=None if std is None else scale * std, n=PUBLISHED_SEEDS)
    return Comparison(label, metric, ours, theirs, agreement(ours, theirs), table, doubt)


def row_doubt(values: Record, reference: Record | None) -> str:
    """Return why a published row contradicts itself: its printed gaps do not follow from its printed values."""
    if reference is None or any(metric not in values or metric not in reference for metric in METRICS):
        return ""
    gaps = {metric: abs(values[metric]["mean"] - reference[metric]["mean"]) for metric in METRICS}
    mean, printed = statistics.fmean(gaps.values()), (values.get("avg_gap") or {}).get("mean")
    if printed is not None and abs(printed - mean) > 0.02:
        return f"its printed average gap is {printed:g}, its own columns give {mean:.2f}"
    wrong = [m for m, gap in gaps.items() if abs(values[m].get("printed_gap", gap) - gap) > 0.015]
    return (
        f"its printed gap of {', '.join(METRICS[m].replace('_', ' ') for m in wrong)} does not follow from its values"
        if wrong
        else ""
    )


def _perturbed_values(run: Run, published: Record) -> Iterator[Comparison]:
    if "gaussian" not in run.perturbations:
        return
    for table, scenario, methods in matching_tables(run, published):
        measure, scale = next((found for start, found in PERTURBED.items() if table.startswith(start)), ("", 1.0))
        for method, values in methods.items() if measure else ():
            doubt = zero_radius_doubt(published, table, scenario, method)
            for label in _labels(run, method):
                for tau, ours in _at_radii(run, label, measure, list(values)):
                    yield _compared(label, f"{measure} at {float(tau):g}", ours, values[tau], table, doubt, scale)


def _at_radii(run: Run, label: str, measure: str, radii: Sequence[str]) -> Iterator[tuple[str, Spread]]:
    audits = run.rows[label].audits("gaussian")
    for text in radii:
        near = [k for k, tau in enumerate(audits[0].taus) if abs(tau - float(text)) < 0.0006]
        values = [audit.curve(measure).value[k] for audit in audits for k in near[:1]]
        known = [value for value in values if value is not None]
        if known:
            yield text, Spread(mean=statistics.fmean(known), std=statistics.pstdev(known), n=len(known))


def zero_radius_doubt(published: Record, table: str, scenario: str, method: str) -> str:
    """Return why a row over radii cannot stem from the runs of the main table.

    At radius 0 both print the same quantity, and no seed of three can lie further than sqrt(2) std from their mean.
    """
    if not table.startswith("unlearn_accuracy"):
        return ""
    radii = published["tables"][table]["results"][scenario][method]
    zero = next((100 * value["mean"] for tau, value in radii.items() if float(tau) == 0), None)
    for content in published["tables"].values():
        main = content["results"].get(scenario, {}).get(method, {}).get("unlearn_acc")
        if main and zero is not None:
            far = abs(zero - main["mean"]) > math.sqrt(PUBLISHED_SEEDS - 1) * main["std"] + 0.05
            return f"at radius 0 it prints {zero:g} %, the main table {main['mean']:g} ± {main['std']:g}" if far else ""
    return ""
