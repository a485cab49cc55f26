"""The table of scenarios: the .toml files beside this one, and those of installed packages."""

from importlib.resources import files
from importlib.resources.abc import Traversable

from residuum.plugins import Table
from residuum.types import InputError


def _accepted(thing: object) -> Traversable:
    if isinstance(thing, Traversable) and thing.name.endswith(".toml"):
        return thing
    raise InputError(f"expected the path of a scenario's .toml file, got {thing!r}")


SCENARIOS: Table[Traversable] = Table(
    "scenario",
    "residuum.scenarios",
    {
        file.name.removesuffix(".toml"): file
        for file in sorted(
            (files("residuum.experiments") / "scenarios").iterdir(), key=lambda file: file.name.removesuffix(".toml")
        )
        if file.name.endswith(".toml")
    },
    _accepted,
)
