"""The whole surface of the product in one text: whatever disappears from it disappears on purpose.

`python tests/test_surface.py` writes the text anew; read its difference line by line before you commit it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer.main

SURFACE = Path(__file__).with_name("surface.txt")


def _commands(command: Any, path: str) -> list[str]:
    if hasattr(command, "commands"):  # a group; typer has its own class for it
        inner = sorted(command.commands.items())
        return [line for name, part in inner for line in _commands(part, f"{path} {name}")]
    options = sorted(text for parameter in command.params for text in (*parameter.opts, *parameter.secondary_opts))
    return [f"{path}: {' '.join(options)}"]


def surface() -> str:
    """Return public names, commands with options, and every component with its settings, one a line."""
    import residuum
    from residuum.auditing.probes import PROBES
    from residuum.cli import make_app
    from residuum.core.components import SCENARIOS
    from residuum.data import DATASETS
    from residuum.models import MODELS
    from residuum.perturbations import PERTURBATIONS
    from residuum.studies.parsing import perturbation_defaults
    from residuum.unlearning import METHODS

    perturbations = {
        name: sorted(perturbation_defaults(PERTURBATIONS[name])) for name in sorted(PERTURBATIONS.built_in)
    }
    parts = {
        "public names": residuum.__all__,
        "commands": _commands(typer.main.get_command(make_app()), "residuum"),
        "methods": [f"{name}: {' '.join(sorted(METHODS[name]().settings))}" for name in sorted(METHODS.built_in)],
        "perturbations": [f"{name}: {' '.join(settings)}" for name, settings in perturbations.items()],
        "probes": sorted(PROBES),
        "networks": sorted(MODELS.built_in),
        "data sets": sorted(DATASETS.built_in),
        "scenarios": sorted(SCENARIOS.built_in),
    }
    return "".join(f"# {title}\n" + "".join(f"{line}\n" for line in lines) + "\n" for title, lines in parts.items())


def test_nothing_disappears_unnoticed():
    assert surface() == SURFACE.read_text(encoding="utf-8")


if __name__ == "__main__":
    SURFACE.write_text(surface(), encoding="utf-8")
