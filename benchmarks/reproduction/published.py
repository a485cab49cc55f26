"""Published values beside ours: which cells agree, which differ, and which published rows contradict themselves.

published.json has the tables of the publication that defines residual knowledge, as printed.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator

from residuum.record import Spread
from residuum.record.run import Run

LITERATURE = Path(__file__).with_name("published.json")
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


class Value(BaseModel):
    """A published mean over seeds, its standard deviation, and the gap to re-train printed beside it."""

    mean: float
    std: float | None = None
    printed_gap: float | None = None


def _known(value: Any) -> Any:  # noqa: ANN401 (whatever the file has)
    """Return None for what is printed as a bound, such as a re-learn time of "> 30": there is nothing to compare."""
    return None if isinstance(value, dict) and isinstance(value.get("mean"), str) else value


Methods = dict[str, dict[str, Annotated[Value | None, BeforeValidator(_known)]]]  # method -> metric or radius -> value


class Table(BaseModel):
    """A published table: scenario -> method -> metric -> value."""

    caption: str = ""
    results: dict[str, Methods]


class Published(BaseModel):
    """All tables, by name."""

    tables: dict[str, Table]


def load_published() -> Published:
    """Return the tables of published.json."""
    return Published.model_validate_json(LITERATURE.read_bytes())


def compare(run: Run, published: Published) -> list[Comparison]:
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


def matching_tables(run: Run, published: Published) -> Iterator[tuple[str, str, Methods]]:
    """Yield (table, scenario, methods) of the tables about this scenario, form and kind of network."""
    name, network = _plain(run.record.scenario.name), run.record.scenario.settings.model.name
    for table, content in published.tables.items():
        about = f"{table} {content.caption}".lower()
        if ("class_unlearning" in table) != (run.form == "class") or ("vgg" in about) != network.startswith("vgg"):
            continue
        fitting = [scenario for scenario in content.results if _plain(scenario) in name]
        if fitting:
            scenario = max(fitting, key=len)
            yield table, scenario, content.results[scenario]


def published_row(run: Run, method: str) -> Mapping[str, Value | None]:
    """Return the first published row of this method for this scenario, by metric; empty where there is none."""
    for _, _, methods in matching_tables(run, load_published()):
        for name, values in methods.items():
            if plain_name(name) == method:
                return values
    return {}


def _plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


def _table_values(run: Run, published: Published) -> Iterator[Comparison]:
    seen: set[tuple[str, str]] = set()
    for table, _, methods in matching_tables(run, published):
        for method, values in methods.items():
            doubt = row_doubt(values, methods.get("Re-train"))
            for metric, ours in METRICS.items():
                for label in _labels(run, method):
                    mine = run.rows[label].summary.metric(ours)
                    if (theirs := values.get(metric)) and mine and (label, metric) not in seen:
                        seen.add((label, metric))
                        yield _compared(label, ours, mine, theirs, table, doubt)


def _labels(run: Run, published_method: str) -> list[str]:
    return [label for label, row in run.rows.items() if row.method == plain_name(published_method)]


def _compared(
    label: str, metric: str, ours: Spread, value: Value, table: str, doubt: str, scale: float = 1.0
) -> Comparison:
    std = None if value.std is None else scale * value.std
    theirs = Spread(mean=scale * value.mean, std=std, n=PUBLISHED_SEEDS)
    return Comparison(label, metric, ours, theirs, agreement(ours, theirs), table, doubt)


def row_doubt(values: Mapping[str, Value | None], reference: Mapping[str, Value | None] | None) -> str:
    """Return why a published row contradicts itself: its printed gaps do not follow from its printed values."""
    pairs = {metric: (values.get(metric), (reference or {}).get(metric)) for metric in METRICS}
    known = {metric: (mine, theirs) for metric, (mine, theirs) in pairs.items() if mine and theirs}
    if len(known) < len(METRICS):
        return ""
    gaps = {metric: abs(mine.mean - theirs.mean) for metric, (mine, theirs) in known.items()}
    mean, printed = statistics.fmean(gaps.values()), values.get("avg_gap")
    if printed and abs(printed.mean - mean) > 0.02:
        return f"its printed average gap is {printed.mean:g}, its own columns give {mean:.2f}"
    stated = {metric: mine.printed_gap for metric, (mine, _) in known.items()}
    wrong = [m for m, gap in stated.items() if gap is not None and abs(gap - gaps[m]) > 0.015]
    names = ", ".join(METRICS[m].replace("_", " ") for m in wrong)
    return f"its printed gap of {names} does not follow from its values" if wrong else ""


def _perturbed_values(run: Run, published: Published) -> Iterator[Comparison]:
    if "gaussian" not in run.perturbations:
        return
    for table, scenario, methods in matching_tables(run, published):
        measure, scale = next((found for start, found in PERTURBED.items() if table.startswith(start)), ("", 1.0))
        for method, values in methods.items() if measure else ():
            doubt = zero_radius_doubt(published, table, scenario, method)
            for label in _labels(run, method):
                for tau, ours in _at_radii(run, label, measure, list(values)):
                    if theirs := values[tau]:
                        yield _compared(label, f"{measure} at {float(tau):g}", ours, theirs, table, doubt, scale)


def _at_radii(run: Run, label: str, measure: str, radii: Sequence[str]) -> Iterator[tuple[str, Spread]]:
    audits = run.rows[label].audits("gaussian")
    for text in radii:
        near = [k for k, tau in enumerate(audits[0].taus) if abs(tau - float(text)) < 0.0006]
        values = [audit.curve(measure).value[k] for audit in audits for k in near[:1]]
        known = [value for value in values if value is not None]
        if known:
            yield text, Spread(mean=statistics.fmean(known), std=statistics.pstdev(known), n=len(known))


def zero_radius_doubt(published: Published, table: str, scenario: str, method: str) -> str:
    """Return why a row over radii cannot stem from the runs of the main table.

    At radius 0 both print the same quantity, and no seed of three can lie further than sqrt(2) std from their mean.
    """
    if not table.startswith("unlearn_accuracy"):
        return ""
    radii = published.tables[table].results[scenario][method]
    zero = next((100 * value.mean for tau, value in radii.items() if float(tau) == 0 and value), None)
    for content in published.tables.values():
        main = content.results.get(scenario, {}).get(method, {}).get("unlearn_acc")
        if main and zero is not None:
            std = main.std or 0.0
            far = abs(zero - main.mean) > math.sqrt(PUBLISHED_SEEDS - 1) * std + 0.05
            return f"at radius 0 it prints {zero:g} %, the main table {main.mean:g} ± {std:g}" if far else ""
    return ""
