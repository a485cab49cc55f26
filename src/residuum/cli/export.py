"""`residuum export`: give a stored run to other tools, as a model card or to an experiment tracker."""

from pathlib import Path
from typing import Annotated

import typer

from residuum.cli.options import option
from residuum.core.console import tell
from residuum.core.errors import plural

Folder = Annotated[Path, typer.Argument(help="Folder of a finished run.")]


def write_card(
    run: Folder,
    row: Annotated[str, typer.Argument(help="Row of the run, for instance rurk.")],
    out: Annotated[Path, option("Folder to write model.safetensors and README.md into.")],
    seed: Annotated[int | None, option("Seed of the model; default: the run's first.")] = None,
) -> None:
    """Write the weights of an unlearned model and a model card in Hugging Face's format."""
    from residuum.record.run import Run
    from residuum.reporting.exports import write_model

    tell("\n".join(map(str, write_model(Run.load(run), row, out, seed=seed))))


def log_to_tensorboard(
    run: Folder, out: Annotated[Path | None, option("Folder of the event files; default: TensorBoard's own.")] = None
) -> None:
    """Log every row of a run to TensorBoard: settings, metrics, curves and verdict."""
    _log(run, "tensorboard", None if out is None else str(out))


def log_to_mlflow(
    run: Folder, uri: Annotated[str | None, option("Tracking URI; default: MLflow's own.")] = None
) -> None:
    """Log every row of a run to MLflow: settings, metrics, curves and verdict."""
    _log(run, "mlflow", uri)


def log_to_wandb(
    run: Folder, out: Annotated[Path | None, option("Folder of the logs; default: that of wandb.")] = None
) -> None:
    """Log every row of a run to Weights & Biases: settings, metrics, curves and verdict."""
    _log(run, "wandb", None if out is None else str(out))


def _log(folder: Path, tracker: str, place: str | None) -> None:
    from residuum.export import log_run, make_logger
    from residuum.record.run import Run

    run = Run.load(folder)
    log_run(run, make_logger(tracker, place))
    tell(f"{tracker}: {plural(len(run.rows), 'row')} of {run.name}")
