"""Load what a run needs in as little time as it takes."""

from __future__ import annotations

import gc
import tomllib
from importlib import import_module
from importlib.resources import files

from residuum.workers import worker_context

MANY = 10_000  # samples times epochs of training: fewer are done before other processes are there


def load_libraries(scenario: str, workers: int, cluster: str | None) -> None:
    """Load the libraries of a run; the server of local worker processes does so meanwhile where it looks worth it."""
    if workers > 1 and cluster is None and looks_long(scenario):
        worker_context()
    gc.disable()  # libraries make many objects and keep them: looking for garbage among them finds none
    try:
        import_module("residuum.execution")
    finally:
        gc.freeze()
        gc.enable()


def looks_long(scenario: str) -> bool:
    """Tell from a scenario's file alone whether worker processes will be wanted, before there is code to say it better.

    >>> looks_long("digits"), looks_long("tiny"), looks_long("no such scenario")
    (True, False, False)
    """
    file = files("residuum") / "experiments" / "scenarios" / f"{scenario}.toml"
    if not file.is_file():
        return False
    tree = tomllib.loads(file.read_text(encoding="utf-8"))
    seeds, samples = len(tree.get("seeds", (131, 42, 7))), tree["data"].get("train_size", MANY)
    return bool(seeds * tree["train"].get("epochs", 10) * samples > MANY)
