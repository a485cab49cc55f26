"""What a stage leaves in a store: finished, files under a sealed manifest; unfinished, ids and checkpoints."""

import ast
import hashlib
import inspect
import json
import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from residuum.core.files import file_sha256, read_json, read_sealed, write_sealed
from residuum.studies.engines import LIBRARIES

TYPES_ONLY = "TYPE_CHECKING"
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache  # a process runs the code that it loaded, whatever happens to the files meanwhile
def code_fingerprint(modules: tuple[str, ...]) -> str:
    """Return the hash of these modules, of all Residuum modules that they import, and of LIBRARIES.

    Comments, docstrings and layout do not count. A module outside Residuum (a third party's method) counts with its own
    file and what it imports of Residuum.
    """
    digest = hashlib.sha256()
    for name in sorted(import_closure(modules)):
        digest.update(f"{name}\0{_module(name)[0]}".encode())
    for library in LIBRARIES:
        digest.update(f"{library} {version(library)}\n".encode())
    return digest.hexdigest()


def meaning(source: str) -> tuple[str, set[str]]:
    r"""Return a source as text without comments, layout and docstrings, and the modules that it imports, late ones too.

    What it imports for type checkers only does not run.

    >>> documented = "def f(x):\n    'Double x.'\n    return 2 * x  # or x + x"
    >>> meaning(documented) == meaning("def f(x): return 2 * x")
    True
    """
    tree, imported = ast.parse(source), set()
    tree.body = [node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == TYPES_ONLY)]
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED):
            del node.body[: ast.get_docstring(node, clean=False) is not None]
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = node.module == "residuum"
            imported |= {f"residuum.{alias.name}" for alias in node.names} if whole else {node.module}
    return ast.dump(tree), imported


def import_closure(modules: Iterable[str]) -> set[str]:
    """Return these modules and all Residuum modules that they import, directly or not."""
    closure = waiting = set(modules)
    while waiting := {imported for name in waiting for imported in _module(name)[1]} - closure:
        closure = closure | waiting
    return closure


@cache
def _module(name: str) -> tuple[str, tuple[str, ...]]:
    """Return the hash of a module's meaning, and the Residuum modules that its import statements name."""
    module = sys.modules.get(name)
    file = inspect.getsourcefile(module) if module else getattr(find_spec(name), "origin", None)
    if file is None:
        raise ImportError(f"expected a module with a source file, got {name}")
    text, imported = meaning(Path(file).read_text(encoding="utf-8"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return digest, tuple(sorted(target for target in imported if target.startswith("residuum.") and find_spec(target)))


MANIFEST = "manifest.json"


def digest(content: Mapping[str, Any]) -> str:
    """Return the hash of plain values, whatever the order of their names."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def key_of(content: Mapping[str, Any]) -> str:
    """Return the key of a stage from everything its result depends on."""
    return digest(content)[:32]


class Manifest(BaseModel):
    """What is known of a finished stage; `kind`, `settings`, `parents` and `code` are the content of its key."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: str
    settings: dict[str, Any]
    parents: dict[str, str]
    code: str
    title: str
    files: dict[str, str]
    seal: str = ""

    @classmethod
    def describe(cls, folder: Path, content: Mapping[str, Any], *, title: str) -> Self:
        """Return the sealed manifest of the files that a stage left in a folder."""
        hashes = {file: file_sha256(folder / file) for file in sorted(file_names(folder))}
        plain = cls(**content, title=title, files=hashes)
        return plain.model_copy(update={"seal": plain.expected_seal})

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return the manifest of a folder if it is whole and belongs there; None if it cannot be trusted."""
        try:
            manifest = cls.model_validate(read_json(folder / MANIFEST))
        except ValueError:
            return None
        in_place = (manifest.kind, manifest.key) == (folder.parent.name, folder.name)
        return manifest if in_place and manifest.seal == manifest.expected_seal else None

    def write(self, folder: Path) -> None:
        """Write manifest.json, and see that all files of the folder are on the disk."""
        (folder / MANIFEST).write_text(json.dumps(self.model_dump(), indent=1), encoding="utf-8")
        for name in file_names(folder):
            with (folder / name).open("rb+") as file:
                os.fsync(file.fileno())

    @property
    def key(self) -> str:
        """The key that this content has."""
        return key_of(self.model_dump(include={"kind", "settings", "parents", "code"}))

    @property
    def expected_seal(self) -> str:
        """The hash of everything else, so that a manifest cannot change unseen either."""
        return digest(self.model_dump(exclude={"seal"}))

    def broken(self, folder: Path) -> list[str]:
        """Return the files that are missing, unknown, or not what was written."""
        there = file_names(folder) - {MANIFEST}
        written = self.files.keys()
        changed = {name for name in there & written if file_sha256(folder / name) != self.files[name]}
        return sorted(changed | (there ^ written))


def file_names(folder: Path) -> set[str]:
    """Return the paths of all files below a folder."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def broken_artifacts(folder: Path) -> list[str]:
    """Return the files of an artifact that are not what was written; its manifest, if that is not to be trusted."""
    manifest = Manifest.read(folder)
    return [MANIFEST] if manifest is None else manifest.broken(folder)


# What an unfinished stage keeps: the ids it may read and how far it is, in files sealed with its key.
SCRATCH_FOLDER = "scratch"  # in a store: a folder for each unfinished stage, named by its key
NOTED_IDS = "ids.txt"


def unsealed_files(folder: Path) -> list[str]:
    """Return the names of the files that are not what was written; those not finished begin with a dot."""
    return sorted(path.name for path in folder.glob("[!.]*") if read_sealed(path, folder.name) is None)


def note_ids(folder: Path, ids: Iterable[str]) -> None:
    """Note the ids of all samples that a stage may read, so that what it leaves when it is killed can be told."""
    write_sealed(folder / NOTED_IDS, "\n".join(ids).encode(), folder.name)


def noted_ids(folder: Path) -> frozenset[str] | None:
    """Return the ids that were noted; None where none are, or not as they were written."""
    content = read_sealed(folder / NOTED_IDS, folder.name) if (folder / NOTED_IDS).is_file() else None
    return None if content is None else frozenset(content.decode().splitlines())
