"""Where stages leave their artefacts: a folder per content key, written aside and renamed into place."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from residuum.experiments.stages import STAGES

LIBRARIES = ("torch", "numpy", "scikit-learn")


@dataclass(frozen=True)
class Stage:
    """A node of the plan: which function, with which settings, after which other stages."""

    kind: str
    settings: Mapping[str, Any]
    parents: Mapping[str, Stage] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """Hash of everything the result depends on: settings, parents, code and library versions."""
        content = {
            "kind": self.kind,
            "settings": self.settings,
            "parents": {name: parent.key for name, parent in self.parents.items()},
            "code": code_fingerprint(),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]

    @property
    def title(self) -> str:
        """What a person calls this stage."""
        what = self.settings.get("label") or self.settings.get("role") or self.settings.get("perturbation", "")
        return f"{self.kind} {what} (seed {self.settings['seed']})"


@cache
def code_fingerprint() -> str:
    """Return the hash of Residuum's sources and of the versions of the libraries that compute."""
    digest = hashlib.sha256()
    package = Path(__file__).parents[1]
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    digest.update(json.dumps({name: version(name) for name in LIBRARIES}).encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Store:
    """A folder of finished stages."""

    root: Path

    def folder(self, stage: Stage) -> Path:
        """Return where the stage's artefacts are, or will be."""
        return self.root / stage.kind / stage.key

    def has(self, stage: Stage) -> bool:
        """Tell whether the stage is finished."""
        return self.folder(stage).is_dir()

    def compute(self, stage: Stage) -> Path:
        """Run the stage unless it is finished, and return its folder.

        The artefacts are written aside and renamed into place, so that a stage is there entirely or not at all.
        """
        target = self.folder(stage)
        if target.is_dir():
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".writing-", dir=target.parent))
        try:
            STAGES[stage.kind](stage.settings, {k: self.folder(p) for k, p in stage.parents.items()}, aside)
            _rename(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return target


def _rename(aside: Path, target: Path) -> None:
    try:
        os.rename(aside, target)
    except OSError:
        if not target.is_dir():  # another run finished the same stage first: its artefacts are as good
            raise
