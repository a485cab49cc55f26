"""`residuum sweep` and `residuum tune`: one method over a grid of settings, measured or chosen from."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from residuum.cli import options
from residuum.cli.options import option
from residuum.errors import InputError, plural

if TYPE_CHECKING:
    from rich.table import Table

    from residuum.runs import Run
    from residuum.tuning import Tuning

ALIASES = {"rurk": {"lambda": ("lambda_f", "lambda_a")}}  # the ablations of the literature vary both at once
SEEDS = "1,2,3"  # not those that the scenarios report
NOTHING_FITS = 1
MOST_POINTS = 1000
# tried where no --grid is given; a text field=value,value,... each
GRIDS = {
    "gd": ["lr=0.01,0.03,0.1"],
    "neggrad": ["beta=0.001,0.01,0.03,0.1", "epochs=1,3", "cap=none,2.3"],
    "scrub": ["lr=0.0005,0.001,0.002", "epochs=3,5", "clip=none,1"],
    "rurk": ["lambda=0.001,0.003,0.01,0.03", "penalty=ce,capped", "spread=uniform"],
    "soft_reset": ["keep=0.1,0.3,0.5,0.7"],
}


@options.with_options
def sweep_method(
    study: options.LongStudy,
    scenario: options.Scenario,
    method: options.Method,
    grid: Annotated[list[str], option("field=value,value,...; repeat for a product of fields.")],
    out: Annotated[Path | None, option("Folder; default runs/SCENARIO-METHOD-sweep.")] = None,
    as_json: options.RecordJson = False,
) -> None:
    """Run one method over a grid of settings; write its table and the plot's data beside the usual results."""
    points = grid_points(method, grid)
    study.start_workers(scenario, wanted=study.devices is None)
    from residuum.execution import run
    from residuum.reporting import report
    from residuum.reporting.exports import csv_text
    from residuum.reporting.terminal import print_lines, print_tables, run_tables

    experiment = study.experiment(scenario, [row_text(method, point) for point in points], study.seeds)
    folder = out or options.RUNS / f"{experiment.scenario.name}-{method}-sweep"
    done = run(experiment, store=study.store, out=folder, resources=study.resources(), progress=True)
    labelled = zip((row.label for row in experiment.rows), points, strict=True)
    lines = sweep_lines(done, [pair for pair in labelled if pair[0] not in done.record.failed])
    (folder / "sweep.csv").write_text(csv_text(lines), encoding="utf-8")
    report(done)
    if as_json:
        options.print_json(done.record.as_dict())
    else:
        print_tables(partial(run_tables, done))
        print_lines([f"{folder}: results.json, sweep.csv (one line per setting, perturbation and radius), report.html"])
    options.exit_if_failed([done], None, done.record.failed)


@options.with_options
def tune_method(
    study: options.Study,
    scenario: options.Scenario,
    method: options.Method,
    grid: Annotated[
        list[str] | None, option("field=value,value,...; repeat for a product. Default: one for the method.")
    ] = None,
    budget: Annotated[
        str | None, option("Passes, or 150% of one re-training for each seed; default: the whole grid.")
    ] = None,
    points: Annotated[float, option("Of validation accuracy that may be lost.")] = 2.0,
    innocents: Annotated[int, option("Models trained briefly without the forgotten samples, per seed.")] = 2,
    share: Annotated[float, option("Of re-training's epochs that such a model gets.")] = 0.25,
    seeds: Annotated[str, option("Comma-separated seeds to average over.")] = SEEDS,
    as_json: options.Json = False,
) -> None:
    """Choose a method's settings without a re-trained model; exit with 1 where no setting fits."""
    rows = [row_text(method, point) for point in grid_points(method, grid or default_grid(method))]
    study.start_workers(scenario)
    from residuum.reporting.terminal import print_lines, print_tables
    from residuum.tuning import tune

    if "seeds" in study.overrides():
        raise InputError("expected the seeds of tune in --seeds, got --set seeds=; leave that out")
    experiment = study.experiment(scenario, rows, seeds)
    retraining = experiment.scenario.training("retrain").epochs * len(experiment.splits().retain)
    found = tune(
        experiment,
        budget=parse_budget(budget, retraining * len(experiment.scenario.seeds)),
        points=points,
        innocents=innocents,
        share=share,
        store=study.store,
        resources=study.resources(),
        progress=True,
    )
    paste = None if found.chosen is None else dict(row.split("=", 1) for row in rows)[found.chosen.label]
    if as_json:
        options.print_json(found.as_dict() | {"methods": paste})
    else:
        print_tables(lambda width: [tuning_table(found)])
        print_lines(closing_lines(found, paste))
    if found.chosen is None:
        raise typer.Exit(NOTHING_FITS)


def grid_points(method: str, grid: Sequence[str]) -> list[dict[str, str]]:
    """Return every combination of the grid's values."""
    fields = dict(options.parse_setting(text) for text in grid)
    if len(fields) < len(grid):
        raise InputError(f"expected each field once in --grid, got {', '.join(grid)}")
    values = [[value.strip() for value in text.split(",")] for text in fields.values()]
    if not all(all(listed) for listed in values):
        raise InputError(f"expected field=value,value,... for --grid, none of them empty, got {', '.join(grid)}")
    if (many := math.prod(map(len, values))) > MOST_POINTS:
        raise InputError(f"expected at most {MOST_POINTS} settings in a grid, got {many}; leave some values out")
    return [dict(zip(fields, point, strict=True)) for point in itertools.product(*values)]


def row_text(method: str, point: Mapping[str, str]) -> str:
    """Return the row that a grid point means, under a label of its own.

    >>> row_text("rurk", {"lambda": "0.1"})
    'rurk lambda 0.1=rurk:lambda_f=0.1:lambda_a=0.1'
    """
    label = " ".join([method, *(f"{field} {value}" for field, value in point.items())])
    aliases = ALIASES.get(method, {})
    pairs = [f"{name}={value}" for field, value in point.items() for name in aliases.get(field, (field,))]
    return f"{label}={':'.join([method, *pairs])}"


def sweep_lines(run: Run, labelled: Sequence[tuple[str, Mapping[str, str]]]) -> Iterator[dict[str, Any]]:
    """Yield one line per setting, perturbation and radius, with means over the seeds."""
    from residuum.record import METRICS
    from residuum.reporting.summary import summary_of

    summary = summary_of(run)
    rows = {row.label: row for row in summary.rows}
    for label, point in labelled:
        row = rows[label]
        for perturbation, taus in summary.taus.items():
            for tau, r in zip(taus, row.curve(perturbation, "pooled").value, strict=True):
                yield {
                    **{f"setting {field}": value for field, value in point.items()},
                    **{name: row.cells[name].value for name in METRICS},
                    "average_gap": row.cells["average_gap"].value,
                    "perturbation": perturbation,
                    "radius": tau,
                    "residual_knowledge": r,
                }


def default_grid(method: str) -> list[str]:
    """Return the grid of a method for which none is given."""
    if method not in GRIDS:
        known = ", ".join(GRIDS)
        raise InputError(f"expected --grid field=value,value,... for {method}; there is one for {known} only")
    return GRIDS[method]


def parse_budget(text: str | None, retraining: int) -> float | None:
    """Return the passes that a budget means.

    >>> parse_budget("150%", 1000), parse_budget("2000", 1000), parse_budget(None, 1000)
    (1500.0, 2000.0, None)
    """
    if text is None:
        return None
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise InputError(f"expected passes such as 200000 or a share such as 150% for --budget, got {text!r}")
    return value * retraining / 100 if text.endswith("%") else value


def tuning_table(found: Tuning) -> Table:
    """Return the table of all settings, with the original and the innocents for comparison."""
    from rich.table import Table

    def cost(passes: int) -> tuple[str, str]:
        return f"{passes:,}", f"{100 * passes / found.retraining:.1f}"

    table = Table("setting", "validation acc.", "distance", "passes", "% of re-training", "")
    table.add_row("original", f"{found.validation:.2f}", f"{found.distance:.3f}")
    brief = (f"{found.innocent_validation:.2f}", f"{found.floor:.3f}", *cost(found.innocent_passes))
    table.add_row("innocents, each to the others", *brief, end_section=True)
    for one in found.tried:
        if one.validation is None or one.distance is None:
            table.add_row(one.label, "", "", "", "", f"failed: {one.failed}")
            continue
        word = "chosen" if one == found.chosen else "" if one in found.fitting else "loses too much accuracy"
        table.add_row(one.label, f"{one.validation:.2f}", f"{one.distance:.3f}", *cost(one.passes), word)
    return table


def closing_lines(found: Tuning, paste: str | None) -> Iterator[str]:
    """Yield what the distance is, what it cost, what was left out, and the line to paste."""
    seeds = plural(len(found.seeds), "seed")
    yield (
        f"distance: mean over radii and {seeds} of |p / a - 1|, how often perturbed copies of forgotten samples are "
        "recognised by the setting (p) and by models that never saw them (a)"
    )
    share = f"{100 * found.passes / found.retraining:.0f} % of one re-training for each seed"
    yield f"cost: {found.passes:,} passes, {share}"
    if found.untried:
        yield f"the budget left {plural(len(found.untried), 'setting')} untried: {', '.join(found.untried)}"
    if found.remark:
        yield f"{'warning' if paste else 'nothing chosen'}: {found.remark}"
    if paste:
        yield f"chosen: --methods {paste}"
