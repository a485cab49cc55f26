"""The API reference: a page for each package with the names that it exports, from their docstrings."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from importlib import import_module
from pathlib import Path

import residuum
from website.pages import Page

SOURCE = Path(__file__).parents[1] / "src" / "residuum"
# what users import, from the inside out; methods have pages of their own
PACKAGES = (
    *("data", "models", "training", "unlearning", "perturbations", "auditing", "metrics"),
    *("request", "tuning", "studies", "studies.execution", "record", "record.run", "judging", "reporting", "pack"),
    *("export", "lightning", "theory", "testing", "core.samples", "core.devices", "core.errors"),
)


GROUPS = {
    "Your own model": ("Request", "wrap", "report", "plot", "to_frame"),
    "Data": ("load_dataset", "Dataset", "make_splits", "Samples", "Splits"),
    "Train and unlearn": ("Recipe", "build_model", "train", "unlearn", "tune"),
    "Audit and measure": ("audit", "evaluate", "ResidualKnowledge"),
    "Studies and runs": ("Study", "run", "run_requests", "Run"),
    "Errors": ("InputError",),
}


LAST = "---\nsearch:\n  boost: 0.1\n---\n\n"  # who searches for a word wants a guide first, then a signature


@cache
def pages() -> list[Page]:
    """Return the page of public names and one page for each package."""
    listed = [Page("api/index.md", "Public names", LAST + _index())]
    return listed + [Page(f"api/{package}.md", package, LAST + _text(package)) for package in PACKAGES]


def _index() -> str:
    """Return the public names in groups, and the packages, each with the first line of its docstring."""
    grouped = [name for group in GROUPS.values() for name in group]
    assert sorted(grouped) == sorted(public_names()), "expected every public name once in GROUPS"
    parts = ["# Python API", "`import residuum` loads nothing; each name loads on first use."]
    for title, group in GROUPS.items():
        lines = [
            f"| [`residuum.{name}`][residuum.{public_names()[name]}.{name}] | {_first_line(getattr(residuum, name))} |"
            for name in group
        ]
        parts += [f"## {title}", "\n".join(["| name | what it is |", "|---|---|", *lines])]
    lines = [
        f"| [`residuum.{package}`]({package}.md) | {_first_line(import_module(f'residuum.{package}'))} |"
        for package in PACKAGES
    ]
    parts += ["## Packages", "\n".join(["| package | what it has |", "|---|---|", *lines])]
    return "\n\n".join(parts) + "\n"


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0].replace("|", "\\|")


@cache
def public_names() -> dict[str, str]:
    """Return name -> package of everything that `residuum` itself exports, but for modules."""
    tree = ast.parse((SOURCE / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module != "residuum"]
    return {alias.name: str(node.module).split(".", 1)[1] for node in imports for alias in node.names}


def exported(package: str) -> list[str]:
    """Return the names that a package imports to export them, or that a module defines, without private ones."""
    folder = SOURCE.joinpath(*package.split("."))
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    names: list[str] = []
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and folder.is_dir() and str(node.module).startswith(f"residuum.{package}"):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.append(node.name)
    names += [name for name, home in public_names().items() if home == package]
    return [name for name in dict.fromkeys(names) if not name.startswith("_") and not _left_out(package, name)]


def _left_out(package: str, name: str) -> bool:
    """Tell whether a name in capitals is a constant, or a method, which has a page of its own."""
    return name.isupper() and (
        package == "unlearning" or not callable(getattr(import_module(f"residuum.{package}"), name))
    )


def _text(package: str) -> str:
    home = f"residuum.{package}"
    blocks = [f"::: {home}.{name}" for name in exported(package)]
    whole = f"::: {home}\n    options:\n      show_root_heading: false\n      members: false"
    return "\n\n".join([f"# residuum.{package}", whole, *blocks]) + "\n"
