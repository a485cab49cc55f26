"""`residuum tune`: choose a method's settings without a re-trained model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from residuum.cli import options
from residuum.cli.sweep import grid_points, row_text
from residuum.errors import InputError, plural

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
    "rurk": ["lambda=0.001,0.003,0.01,0.03", "penalty=ce,capped", "cap_per=sample", "spread=uniform"],
    "soft_reset": ["keep=0.1,0.3,0.5,0.7"],
}


def tune_method(
    scenario: options.Scenario,
    method: Annotated[str, typer.Option(help="Name of the method.")],
    grid: Annotated[
        list[str] | None, typer.Option(help="field=value,value,...; repeat for a product. Default: one for the method.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Passes, or 150% of one re-training for each seed; default: the whole grid.")
    ] = None,
    points: Annotated[float, typer.Option(help="Of validation accuracy that may be lost.")] = 2.0,
    innocents: Annotated[int, typer.Option(help="Models trained briefly without the forgotten samples, per seed.")] = 2,
    share: Annotated[float, typer.Option(help="Of re-training's epochs that such a model gets.")] = 0.25,
    seeds: Annotated[str, typer.Option(help="Comma-separated seeds to average over.")] = SEEDS,
    perturbations: options.Perturbations = None,
    draws: options.Draws = None,
    store: options.Store = options.DEFAULT_STORE,
    profile: options.Profile = "cpu",
    data_root: options.DataRoot = None,
    init_from: options.InitFrom = None,
    manifest: options.Manifest = None,
    settings: options.Settings = None,
    workers: options.Workers = options.ALL_CORES,
    cluster: options.Cluster = None,
    as_json: options.PlainJson = False,
) -> None:
    """Choose a method's settings without a re-trained model; exit with 1 where no setting fits."""
    points_tried = grid_points(method, grid or default_grid(method))
    options.start_workers(scenario, workers, cluster)
    from residuum.execution import Resources
    from residuum.experiments import Experiment
    from residuum.reporting.terminal import print_lines, print_tables
    from residuum.tuning import tune

    rows = [row_text(method, point) for point in points_tried]
    experiment = Experiment.create(
        scenario,
        methods=rows,
        seeds=options.parse_seeds(seeds),
        overrides=options.gathered_overrides(settings, perturbations, draws, None, None),
        profile=profile,
        data_root=data_root,
        init_from=init_from,
        manifest=manifest,
    )
    retraining = experiment.scenario.training("retrain").epochs * len(experiment.splits().retain)
    found = tune(
        experiment,
        budget=parse_budget(budget, retraining * len(experiment.scenario.seeds)),
        points=points,
        innocents=innocents,
        share=share,
        store=store,
        resources=Resources(workers, cluster, apart=True),
        progress=True,
    )
    texts = dict(row.split("=", 1) for row in rows)
    paste = None if found.chosen is None else texts[found.chosen.label]
    if as_json:
        typer.echo(json.dumps(found.as_dict() | {"methods": paste}, indent=1))
    else:
        print_tables(lambda width: [tuning_table(found)])
        print_lines(closing_lines(found, paste))
    if found.chosen is None:
        raise typer.Exit(NOTHING_FITS)


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
