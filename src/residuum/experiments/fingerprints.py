"""Which code a stage runs: its sources, followed through the imports, and the versions of the libraries below them."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

LIBRARIES = ("torch", "numpy", "scikit-learn")


@cache  # a process runs the code that it loaded, whatever happens to the files meanwhile
def code_fingerprint(function: Callable[..., Any], modules: tuple[str, ...]) -> str:
    """Return the hash of a function's own source, of all Residuum sources that `modules` import, and of LIBRARIES.

    A module outside Residuum (a third party's method) counts with its own file and what it imports of Residuum.

    >>> from residuum.experiments.stages import train_stage
    >>> len(code_fingerprint(train_stage, ("residuum.training",)))
    64
    """
    digest = hashlib.sha256(inspect.getsource(function).encode())
    for name in sorted(import_closure(modules)):
        digest.update(name.encode() + b"\0" + _source(name).read_bytes())
    for library in LIBRARIES:
        digest.update(f"{library} {version(library)}\n".encode())
    return digest.hexdigest()


def library_versions() -> dict[str, str]:
    """Return the versions of Residuum and of the libraries that compute, in this process."""
    return {library: version(library) for library in ("residuum", *LIBRARIES)}


def import_closure(modules: Iterable[str]) -> set[str]:
    """Return these modules and all Residuum modules that they import, directly or not.

    >>> "residuum.types" in import_closure(["residuum.training"])
    True
    >>> "residuum.auditing" in import_closure(["residuum.training"])
    False
    """
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _imports(name)
    return found


@cache
def _imports(name: str) -> tuple[str, ...]:
    """Return the Residuum modules that a module's source names in import statements, late ones included."""
    tree = ast.parse(_source(name).read_text(encoding="utf-8"))
    named = (target for node in ast.walk(tree) for target in _targets(node))
    return tuple(sorted({target for target in named if target.startswith("residuum.") and find_spec(target)}))


def _targets(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module == "residuum":
        yield from (f"residuum.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module


@cache
def _source(name: str) -> Path:
    module = sys.modules.get(name)
    found = inspect.getsourcefile(module) if module else getattr(find_spec(name), "origin", None)
    if found is None:
        raise ImportError(f"expected a module with a source file, got {name}")
    return Path(found)
