"""`residuum card`: an unlearned model of a run, with its model card, in a folder of its own."""

from pathlib import Path
from typing import Annotated

import typer

from residuum.errors import tell


def write_card(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    row: Annotated[str, typer.Argument(help="Row of the run, for instance rurk.")],
    out: Annotated[Path, typer.Argument(help="Folder to write model.safetensors and README.md into.")],
    seed: Annotated[int | None, typer.Option(help="Seed of the model; default: the run's first.")] = None,
) -> None:
    """Write the weights of an unlearned model and a model card in Hugging Face's format."""
    from residuum.reporting import Run
    from residuum.reporting.card import write_model

    tell("\n".join(map(str, write_model(Run.load(run), row, out, seed=seed))))
