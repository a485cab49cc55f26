"""Residuum: machine unlearning that can be checked."""

from importlib import import_module
from typing import Any

# Public names load on first use: importing residuum costs little more than importing nothing; __init__.pyi types them.
_NAMES = {
    "residuum": ["perturbations"],
    "residuum.auditing": ["ResidualKnowledge", "audit"],
    "residuum.data": ["Dataset", "load_dataset", "make_splits"],
    "residuum.studies.execution": ["run", "run_requests"],
    "residuum.studies": ["Study"],
    "residuum.unlearning": ["unlearn"],
    "residuum.metrics": ["evaluate"],
    "residuum.models": ["build_model", "wrap"],
    "residuum.reporting": ["plot", "report", "to_frame"],
    "residuum.record.run": ["Run"],
    "residuum.request": ["Request"],
    "residuum.training": ["Recipe", "train"],
    "residuum.tuning": ["tune"],
    "residuum.core.errors": ["InputError"],
    "residuum.core.samples": ["Samples", "Splits"],
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
__all__ = sorted(_HOMES)  # noqa: PLE0605 (the list is the table above)


def __getattr__(name: str) -> Any:  # noqa: ANN401 (module attributes are of any type)
    if name == "__version__":
        from importlib.metadata import version

        return version("residuum")
    if name not in _HOMES:
        raise AttributeError(f"module 'residuum' has no attribute {name!r}")
    if _HOMES[name] == "residuum":
        return import_module(f"residuum.{name}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
