"""Where stages leave their artefacts: a folder per content key, hashed, written aside, renamed, never edited."""

import errno
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from residuum.experiments.settings import StageSettings
from residuum.experiments.stages import SCRATCH, STAGES, code_of, read_record
from residuum.files import file_sha256, write_whole
from residuum.parallel import SINGLE_PROCESS, Team
from residuum.plugins import add_plugins
from residuum.types import InputError, warn

VERSION = 1
MANIFEST = "manifest.json"
WRITING = ".writing-"
LOG = "log.txt"
FINISHED, TO_DO = "finished", "to do"


@dataclass(frozen=True)
class Stage:
    """A node of the plan: settings, whose class says which function, and the stages that come before it."""

    settings: StageSettings
    parents: Mapping[str, "Stage"] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """What is done: train, unlearn, evaluate, audit or picture."""
        return self.settings.kind

    @property
    def name(self) -> str:
        """What it works on, whatever the seed: a role, a row or a perturbation."""
        return self.settings.name

    @cached_property
    def key(self) -> str:
        """Hash of everything the result depends on: settings, data, parents, code and library versions."""
        return _digest(self.content)[:32]

    @cached_property
    def content(self) -> dict[str, Any]:
        """What the key is the hash of."""
        return {
            "kind": self.kind,
            "settings": (settings := self.settings.content()),
            "parents": {name: parent.key for name, parent in self.parents.items()},
            "code": code_of(self.kind, settings),
        }

    @property
    def title(self) -> str:
        """What a person calls this stage."""
        number = len(self.settings.requests)
        which = f", request {number}" if number > 1 else ""
        return f"{self.kind} {self.name} (seed {self.settings.seed}{which})"


@dataclass(frozen=True)
class Store:
    """A folder of finished stages that any number of runs may share."""

    root: Path

    def folder(self, stage: Stage) -> Path:
        """Return where the stage's artefacts are, or will be."""
        return self.root / stage.kind / stage.key

    def has(self, stage: Stage) -> bool:
        """Tell whether the stage is finished; whether its artefacts are sound is looked at when they are used."""
        return (self.folder(stage) / MANIFEST).is_file()

    def compute(self, stage: Stage, team: Team = SINGLE_PROCESS) -> Path:
        """Run the stage unless it is finished and sound, and return its folder.

        The lock is the operating system's and belongs to this key only: a second run waits for the first and finds its
        artefacts, and a killed run leaves no lock behind. Of a team, the leader looks and writes, the others are told.
        """
        add_plugins(stage.settings.plugins)  # a worker process knows only its own
        target = self.folder(stage)
        if not team.leads:
            if team.broadcast(FINISHED) == TO_DO:
                with tempfile.TemporaryDirectory() as folder:  # for this process's share, which nobody needs
                    self._call(stage, Path(folder), team)
            return target
        with _clear_errors(self.root):
            self.prepare()
            with self.lock(stage.key):
                if self.has(stage):
                    if not (broken := broken_artefacts(target)):
                        team.broadcast(FINISHED)
                        return target
                    _report_broken(target, broken)
                    shutil.rmtree(target)
                team.broadcast(TO_DO)
                self._run(stage, target, team)
        return target

    def _call(self, stage: Stage, folder: Path, team: Team) -> None:
        if team.size > 1:
            team.log = lambda share: self._log("shared", stage, f": rank {team.rank} of {team.size} has {share}")
        parents = {name: self.folder(parent) for name, parent in stage.parents.items()}
        scratch = self.root / SCRATCH / stage.key
        STAGES[stage.kind](stage.settings, {SCRATCH: scratch, **parents}, folder, team)

    def known_seconds(self) -> dict[tuple[str, str], float]:
        """Return how long the newest finished stage of each kind and name took."""
        manifests = [path for kind in STAGES for path in (self.root / kind).glob(f"[!.]*/{MANIFEST}")]
        newest_last = sorted(manifests, key=lambda path: path.stat().st_mtime)
        return dict(found for path in newest_last if (found := _seconds_of(path.parent)))

    def _run(self, stage: Stage, target: Path, team: Team) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f"{WRITING}{stage.key}-", dir=target.parent))
        scratch = self.root / SCRATCH / stage.key
        scratch.mkdir(parents=True, exist_ok=True)
        self._log("started", stage)
        try:
            self._call(stage, aside, team)
            _write_manifest(stage, aside)
            shutil.rmtree(scratch)
            shutil.rmtree(target, ignore_errors=True)
            os.rename(aside, target)
            self._log("finished", stage)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
            if scratch.is_dir() and not any(scratch.iterdir()):
                scratch.rmdir()

    def _log(self, event: str, stage: Stage, details: str = "") -> None:
        """Append one line to the store's log; what was computed when, and by which process, can be read there."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with (self.root / LOG).open("a", encoding="utf-8") as log:
            log.write(f"{now} {os.getpid()} {event} {stage.key} {stage.title}{details}\n")

    def lock(self, key: str) -> FileLock:
        """Return the lock of one key."""
        return FileLock(self.root / "locks" / key)

    def busy(self, key: str) -> bool:
        """Tell whether some run is working on this key now."""
        if not (self.root / "locks" / key).is_file():
            return False
        try:
            with self.lock(key).acquire(blocking=False):
                return False
        except Timeout:
            return True

    def prepare(self) -> None:
        """Create the store's folders; refuse a store that a newer version of Residuum wrote."""
        (self.root / "locks").mkdir(parents=True, exist_ok=True)
        mark = self.root / "store.json"
        if not mark.is_file():
            write_whole(mark, json.dumps({"version": VERSION}))
        found = json.loads(mark.read_text(encoding="utf-8"))["version"]
        if found > VERSION:
            text = f"the store {self.root} has version {found}, this Residuum knows {VERSION}"
            raise InputError(f"{text}; update Residuum or choose another folder with --store")


def _seconds_of(folder: Path) -> tuple[tuple[str, str], float] | None:
    """Return kind, name and seconds of a finished stage; None where they cannot be read (its user will complain)."""
    try:
        return (folder.parent.name, str(manifest_of(folder)["name"])), float(read_record(folder)["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def manifest_of(folder: Path) -> dict[str, Any]:
    """Return what is known of an artefact: its stage's content, the hash of every file, and when it was made."""
    manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return manifest


def broken_artefacts(folder: Path) -> list[str]:
    """Return the files that are missing, unknown, or not what was written."""
    try:
        manifest = manifest_of(folder)
        files, sound = manifest["files"], manifest.pop("seal") == _digest(manifest)
    except (OSError, ValueError, KeyError):
        sound = False
    if not sound:
        return [MANIFEST]
    there = _names(folder) - {MANIFEST}
    changed = {name for name in there & files.keys() if file_sha256(folder / name) != files[name]}
    return sorted(changed | (there ^ files.keys()))


def _names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def _write_manifest(stage: Stage, folder: Path) -> None:
    hashes = {name: file_sha256(folder / name) for name in sorted(_names(folder))}
    manifest = {**stage.content, "title": stage.title, "name": stage.name, "files": hashes}
    sealed = {**manifest, "seal": _digest(manifest)}
    (folder / MANIFEST).write_text(json.dumps(sealed, indent=1), encoding="utf-8")
    for name in _names(folder):
        with (folder / name).open("rb+") as file:
            os.fsync(file.fileno())


def _digest(content: Mapping[str, Any]) -> str:
    """Return the hash of plain values; a manifest carries that of itself, so that it cannot change unseen either."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _report_broken(folder: Path, broken: list[str]) -> None:
    text = f"{folder}: {', '.join(broken)} is not what was written; the stage is computed again"
    print(f"residuum: {text}", file=sys.stderr)  # noqa: T201 (workers have no other way to say it at once)
    warn(text, stacklevel=3)


@contextmanager
def _clear_errors(root: Path) -> Iterator[None]:
    """Turn a full disk and a folder that cannot be written into one clear line."""
    try:
        yield
    except (OSError, InputError) as error:
        # who writes a file may have put it in words already, but knows nothing of the store
        reason = error if isinstance(error, OSError) else error.__context__
        code = reason.errno if isinstance(reason, OSError) else None
        if code in (errno.ENOSPC, errno.EDQUOT):
            text = f"no space left for the store {root}; free some, or choose another with --store"
        elif isinstance(error, OSError) and code in (errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            text = f"cannot write to the store {root}: {error.strerror}; choose another with --store"
        else:
            raise
        raise InputError(text) from error
