"""`residuum list`: what there is to choose from."""

import inspect
import json
from typing import Annotated

import typer

from residuum.cli import options
from residuum.errors import unknown_name


def first_line(thing: object) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(thing) or "").split("\n", maxsplit=1)[0]


def catalogue() -> dict[str, dict[str, str]]:
    """Return every table of names with a line on each."""
    from residuum.auditing.own_measures import OWN_MEASURES
    from residuum.data import DATASETS
    from residuum.experiments import load_scenario, scenario_names
    from residuum.methods import methods
    from residuum.models import MODELS
    from residuum.perturbations import PERTURBATIONS

    return {
        "methods": {name: first_line(method) for name, method in methods().items()},
        "scenarios": {name: load_scenario(name).description for name in scenario_names()},
        "datasets": {name: first_line(loader) for name, loader in DATASETS.items()},
        "models": {name: first_line(blueprint.network) for name, blueprint in MODELS.items()},
        "perturbations": {name: first_line(perturbation) for name, perturbation in PERTURBATIONS.items()},
        "measures": {name: measure.words["meaning"] for name, measure in OWN_MEASURES.items()},
    }


def list_names(
    kind: Annotated[
        str | None, typer.Argument(help="methods, scenarios, datasets, models, perturbations or measures")
    ] = None,
    as_json: options.PlainJson = False,
) -> None:
    """List methods, scenarios, data sets, models, perturbations, and measures of your own."""
    from residuum.reporting.terminal import console, names_table

    tables = catalogue()
    if kind is not None and kind not in tables:
        raise unknown_name("list", kind, tables)
    chosen = tables if kind is None else {kind: tables[kind]}
    if as_json:
        typer.echo(json.dumps(chosen, indent=1))
        return
    for title, rows in chosen.items():
        console().print(names_table(title, list(rows.items())))
