"""`residuum log`: what a run found, for TensorBoard, MLflow or Weights & Biases."""

from pathlib import Path
from typing import Annotated

import typer

from residuum.errors import plural, tell


def log_stored_run(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    tracker: Annotated[str, typer.Argument(help="tensorboard, mlflow or wandb; its package must be installed.")],
    place: Annotated[str | None, typer.Argument(help="Folder, or for mlflow a tracking URI; default: its own.")] = None,
) -> None:
    """Give every row of a stored run to a tracker, with settings, metrics, curves and verdict."""
    from residuum.loggers import log_run, make_logger
    from residuum.reporting import Run

    found = Run.load(run)
    log_run(found, make_logger(tracker, place))
    tell(f"{tracker}: {plural(len(found.rows), 'row')} of {found.name}")
