"""Which code a stage runs: its sources, followed through the imports, and the versions of the libraries below them."""

import ast
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

from residuum.engines import LIBRARIES


@cache  # a process runs the code that it loaded, whatever happens to the files meanwhile
def code_fingerprint(function: Callable[..., Any], modules: tuple[str, ...]) -> str:
    """Return the hash of a function's own code, of all Residuum modules that `modules` import, and of LIBRARIES.

    Comments, docstrings and layout do not count. A module outside Residuum (a third party's method) counts with its own
    file and what it imports of Residuum.
    """
    digest = hashlib.sha256(meaning(ast.parse(dedent(inspect.getsource(function)))).encode())
    for name in sorted(import_closure(modules)):
        digest.update(f"{name}\0{_module(name)[0]}".encode())
    for library in LIBRARIES:
        digest.update(f"{library} {version(library)}\n".encode())
    return digest.hexdigest()


def meaning(tree: ast.Module) -> str:
    r"""Return a syntax tree as text, without comments and layout, after removing its docstrings in place.

    >>> documented = "def f(x):\n    'Double x.'\n    return 2 * x  # or x + x"
    >>> meaning(ast.parse(documented)) == meaning(ast.parse("def f(x): return 2 * x"))
    True
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            del node.body[: ast.get_docstring(node, clean=False) is not None]
    return ast.dump(tree)


def import_closure(modules: Iterable[str]) -> set[str]:
    """Return these modules and all Residuum modules that they import, directly or not."""
    found = waiting = set(modules)
    while waiting := {imported for name in waiting for imported in _module(name)[1]} - found:
        found = found | waiting
    return found


@cache
def _module(name: str) -> tuple[str, tuple[str, ...]]:
    """Return a module's meaning, and the Residuum modules that its import statements name, late ones included."""
    tree = ast.parse(_source(name).read_text(encoding="utf-8"))
    named = (target for node in ast.walk(tree) for target in _targets(node))
    imported = {target for target in named if target.startswith("residuum.") and find_spec(target)}
    return meaning(tree), tuple(sorted(imported))


def _targets(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module == "residuum":
        yield from (f"residuum.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module


def _source(name: str) -> Path:
    module = sys.modules.get(name)
    found = inspect.getsourcefile(module) if module else getattr(find_spec(name), "origin", None)
    if found is None:
        raise ImportError(f"expected a module with a source file, got {name}")
    return Path(found)
