"""What is made of stored runs: `residuum report`, `residuum card` and `residuum log`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from residuum.cli import options
from residuum.errors import plural, tell

Folder = Annotated[Path, typer.Argument(help="Folder of a finished run.")]


def report_runs(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of finished runs; several are compared.")
    ],
    paper: Annotated[bool, typer.Option("--paper", help="Show the literature's values beside ours.")] = False,
    paper_file: Annotated[Path | None, typer.Option(help="JSON file of other published values.")] = None,
    gallery: options.Gallery = None,
    samples: options.SampleList = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to; default: the run's own.")] = None,
    fail_if: options.FailIf = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the written files as JSON.")] = False,
) -> None:
    """Write report.html, table.tex, table.csv, samples.csv and figures from stored results; no model is loaded."""
    from residuum.reporting import write_report
    from residuum.reporting.writing import loaded_runs

    for run in loaded_runs(list(runs)) if fail_if else []:
        options.check_conditions(fail_if, run.rows)
    found = write_report(list(runs), paper=paper_file or paper, gallery=gallery, samples=samples, out=out)
    files = [str(path) for path in found]
    typer.echo(json.dumps(files, indent=1) if as_json else "\n".join(files))
    options.exit_if_failed(loaded_runs(list(runs)) if fail_if else [], fail_if)


def write_card(
    run: Folder,
    row: Annotated[str, typer.Argument(help="Row of the run, for instance rurk.")],
    out: Annotated[Path, typer.Argument(help="Folder to write model.safetensors and README.md into.")],
    seed: Annotated[int | None, typer.Option(help="Seed of the model; default: the run's first.")] = None,
) -> None:
    """Write the weights of an unlearned model and a model card in Hugging Face's format."""
    from residuum.reporting import Run
    from residuum.reporting.card import write_model

    tell("\n".join(map(str, write_model(Run.load(run), row, out, seed=seed))))


def log_stored_run(
    run: Folder,
    tracker: Annotated[str, typer.Argument(help="tensorboard, mlflow or wandb; its package must be installed.")],
    place: Annotated[str | None, typer.Argument(help="Folder, or for mlflow a tracking URI; default: its own.")] = None,
) -> None:
    """Give every row of a stored run to a tracker, with settings, metrics, curves and verdict."""
    from residuum.loggers import log_run, make_logger
    from residuum.reporting import Run

    found = Run.load(run)
    log_run(found, make_logger(tracker, place))
    tell(f"{tracker}: {plural(len(found.rows), 'row')} of {found.name}")
