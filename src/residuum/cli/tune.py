"""`residuum tune`: choose a method's settings from a grid, without a retrained model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from residuum.cli import options
from residuum.cli.grid import grid_points, row_text
from residuum.cli.options import option
from residuum.core.errors import InputError, plural

if TYPE_CHECKING:
    from rich.table import Table

    from residuum.tuning import Tuning

SEEDS = "1,2,3"  # not those that the scenarios report
NOTHING_FITS = 1
# tried where no --grid is given; a text field=value,value,... each
GRIDS = {
    "gd": ["lr=0.01,0.03,0.1"],
    "neggrad": ["beta=0.001,0.01,0.03,0.1", "epochs=1,3", "cap=none,2.3"],
    "scrub": ["lr=0.0005,0.001,0.002", "epochs=3,5", "clip=none,1"],
    "rurk": ["lambda=0.001,0.003,0.01,0.03", "penalty=ce,capped", "spread=uniform"],
    "soft_reset": ["keep=0.1,0.3,0.5,0.7"],
}


def tune_method(
    common: options.StudyOptions,
    scenario: options.Scenario,
    method: Annotated[str, option("Name of the method.")],
    grid: Annotated[
        list[str] | None, option("field=value,value,...; repeat for a product. Default: one for the method.")
    ] = None,
    budget: Annotated[
        str | None, option("Passes, or a share such as 150% of one retraining per seed; default: the whole grid.")
    ] = None,
    points: Annotated[float, option("Maximum loss of validation accuracy, in percentage points.")] = 2.0,
    surrogate_models: Annotated[int, option("Surrogates per seed: models trained briefly without the forget set.")] = 2,
    share: Annotated[float, option("Training epochs of a surrogate, as a share of a retraining.")] = 0.25,
    seeds: Annotated[str, option("Comma-separated seeds to average over.")] = SEEDS,
    as_json: options.Json = False,
) -> None:
    """Choose settings without a retrained model.

    Exits with 1 if no setting fits.
    """
    rows = [row_text(method, point) for point in grid_points(method, grid or default_grid(method))]
    common.start_workers()
    from residuum.reporting.terminal import print_lines, print_tables
    from residuum.tuning import tune

    if "seeds" in common.overrides():
        raise InputError("expected the seeds of tune in --seeds, got --set seeds=; leave that out")
    study = common.study(scenario, rows, seeds)
    retraining = study.scenario.training("retrain").epochs * len(study.splits().retain)
    tuning = tune(
        study,
        budget=parse_budget(budget, retraining * len(study.scenario.seeds)),
        points=points,
        surrogates=surrogate_models,
        share=share,
        store=common.store,
        resources=common.resources(),
        progress=True,
    )
    paste = None if tuning.chosen is None else dict(row.split("=", 1) for row in rows)[tuning.chosen.label]
    if as_json:
        options.print_json(tuning.as_dict() | {"methods": paste})
    else:
        print_tables(lambda width: [tuning_table(tuning)])
        print_lines(closing_lines(tuning, paste))
    if tuning.chosen is None:
        raise typer.Exit(NOTHING_FITS)


def default_grid(method: str) -> list[str]:
    """Return the default grid of a method."""
    if method not in GRIDS:
        names = ", ".join(GRIDS)
        raise InputError(f"expected --grid field=value,value,... for {method}; only {names} have a default grid")
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


def tuning_table(tuning: Tuning) -> Table:
    """Return the table of all settings, with the original and the surrogates for comparison."""
    from rich.table import Table

    def cost(passes: int) -> tuple[str, str]:
        return f"{passes:,}", f"{100 * passes / tuning.retraining:.1f}"

    table = Table("setting", "validation acc.", "distance", "passes", "% of retraining", "")
    table.add_row("original", f"{tuning.validation:.2f}", f"{tuning.distance:.3f}")
    brief = (f"{tuning.surrogate_validation:.2f}", f"{tuning.floor:.3f}", *cost(tuning.surrogate_passes))
    table.add_row("surrogates, each against the others", *brief, end_section=True)
    for setting in tuning.tried:
        if setting.validation is None or setting.distance is None:
            table.add_row(setting.label, "", "", "", "", f"failed: {setting.failed}")
            continue
        remark = (
            "chosen" if setting == tuning.chosen else "" if setting in tuning.fitting else "loses too much accuracy"
        )
        table.add_row(
            setting.label, f"{setting.validation:.2f}", f"{setting.distance:.3f}", *cost(setting.passes), remark
        )
    return table


def closing_lines(tuning: Tuning, paste: str | None) -> Iterator[str]:
    """Yield what the distance is, what it cost, what was left out, and the line to paste."""
    seeds = plural(len(tuning.seeds), "seed")
    yield (
        f"distance: mean over radii and {seeds} of |p / a - 1|, how often perturbed copies of forgotten samples are "
        "recognized by the setting (p) and by models that never saw them (a)"
    )
    share = f"{100 * tuning.passes / tuning.retraining:.0f} % of one retraining per seed"
    yield f"cost: {tuning.passes:,} passes, {share}"
    if tuning.untried:
        yield f"the budget left {plural(len(tuning.untried), 'setting')} untried: {', '.join(tuning.untried)}"
    if tuning.remark:
        yield f"{'warning' if paste else 'nothing chosen'}: {tuning.remark}"
    if paste:
        yield f"chosen: --methods {paste}"
