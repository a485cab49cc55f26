"""Where stages leave their artifacts: a folder per content key, hashed, written aside, renamed, never edited."""

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from filelock import FileLock, Timeout

from residuum.core import devices
from residuum.core.console import say
from residuum.core.errors import InputError, warn
from residuum.core.files import ASIDE, acquired, clear_aside, read_json, remove, write_whole
from residuum.core.registry import add_plugins
from residuum.data.loaders import all_ids, refuse_changed_files
from residuum.studies.artifacts import MANIFEST, SCRATCH_FOLDER, Manifest, broken_artifacts, note_ids
from residuum.studies.stages import KINDS, Stage, Workspace

VERSION = 1
WRITING = ".writing-"
MARK, LOG = "store.json", "log.txt"
LOCKS = "locks"
EXCLUSIVE = "alone"  # the lock of whoever removes what is finished
RUN = "run-"  # begins the names of the locks of runs under way
UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG)
FINISHED, TO_DO = "finished", "to do"


@dataclass(frozen=True)
class Store:
    """A folder of finished stages that any number of runs may share."""

    root: Path

    def folder(self, stage: Stage) -> Path:
        """Return where the stage's artifacts are, or will be."""
        return self.root / stage.kind / stage.key

    def has(self, stage: Stage) -> bool:
        """Tell whether the stage is finished; whether its artifacts are sound is looked at when they are used."""
        return (self.folder(stage) / MANIFEST).is_file()

    def compute(self, stage: Stage) -> Path:
        """Run the stage unless it is finished and sound, and return its folder.

        The operating system holds the lock: a second run waits for the first and uses its artifacts, and a killed run
        leaves no lock behind. If several processes share a stage, the leader reads and writes, and each process saves
        its own progress.
        """
        add_plugins(stage.setup.plugins)  # a worker process knows only its own
        target = self.folder(stage)
        if not devices.leads():
            if devices.broadcast(FINISHED) == TO_DO:
                with tempfile.TemporaryDirectory() as folder:  # for this process's share, which nobody needs
                    self._call(stage, Path(folder))
            return target
        with _clear_errors(self.root):
            self.prepare()
            with acquired(self.lock(stage.key), f"another run that computes {stage.title}"):
                if self.has(stage):
                    if not (broken := broken_artifacts(target)):
                        devices.broadcast(FINISHED)
                        return target
                    text = f"{target}: {', '.join(broken)} is not what was written; the stage is computed again"
                    say(text)  # workers have no other way to say it at once
                    warn(text)
                    shutil.rmtree(target)
                devices.broadcast(TO_DO)
                self._run(stage, target)
        return target

    def _call(self, stage: Stage, folder: Path) -> None:
        def report(share: str) -> None:
            self._log("shared", stage, f": rank {devices.rank()} of {devices.world_size()} has {share}")

        parents = {name: self.folder(parent) for name, parent in stage.parents.items()}
        dataset = stage.subject.dataset()
        with devices.shares_reported(report) if devices.world_size() > 1 else nullcontext():
            stage.compute(Workspace(folder, parents, self.root / SCRATCH_FOLDER / stage.key))
        refuse_changed_files(dataset)

    def _run(self, stage: Stage, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.parent / f"{WRITING}{stage.key}-{uuid4().hex}"
        aside.mkdir()  # by the umask, which mkdtemp ignores: others may share the store
        unfinished = self.root / SCRATCH_FOLDER / stage.key
        unfinished.mkdir(parents=True, exist_ok=True)
        self._log("started", stage)
        try:
            note_ids(unfinished, all_ids(stage.subject.dataset()))
            self._call(stage, aside)
            Manifest.describe(aside, stage.content, title=stage.title).write(aside)
            if target.exists():  # without a manifest: nothing that was finished
                remove(target.rename(self.root / f"{ASIDE}{uuid4().hex}"))
            os.rename(aside, target)
            self._log("finished", stage)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
            if self.has(stage) or not any(unfinished.glob("*.pt")):  # no checkpoint to go on with
                shutil.rmtree(unfinished, ignore_errors=True)

    def _log(self, event: str, stage: Stage, details: str = "") -> None:
        """Append one line to the store's log; what was computed when, and by which process, can be read there."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with (self.root / LOG).open("a", encoding="utf-8") as log:
            log.write(f"{now} {os.getpid()} {event} {stage.key} {stage.title}{details}\n")

    def lock(self, key: str) -> FileLock:
        """Return the lock of one key."""
        return FileLock(self.root / LOCKS / key)

    def busy(self, key: str) -> bool:
        """Tell whether some run is working on this key now."""
        if not (self.root / LOCKS / key).is_file():
            return False
        try:
            with self.lock(key).acquire(blocking=False):
                return False
        except Timeout:
            return True

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Hold off `alone` while a run is under way, between its stages too; wait for one that has begun."""
        with _clear_errors(self.root):
            self.prepare()
            mine = self.lock(f"{RUN}{uuid4().hex}")
            with acquired(self.lock(EXCLUSIVE), f"a command that cleans the store {self.root}"):
                mine.acquire()
        try:
            yield
        finally:
            mine.release()
            Path(mine.lock_file).unlink(missing_ok=True)

    @contextmanager
    def alone(self, *, stages: bool = False) -> Iterator[None]:
        """Keep other cleaners and new runs away; a run that is under way is an error, for it could use what is removed.

        With `stages`, single stages that are computed now are none.
        """
        if not any((self.root / name).exists() for name in (MARK, *KINDS)):
            raise InputError(f"expected a store, got {self.root}, which holds no stages; name it with --store")
        with _clear_errors(self.root):
            self.prepare()
            try:
                mine = self.lock(EXCLUSIVE).acquire(blocking=False)
            except Timeout:
                raise InputError(f"another command is cleaning the store {self.root}; wait for its end") from None
            with mine:
                locks = (self.root / LOCKS).glob(f"{RUN}*" if stages else "*")
                if any(self.busy(path.name) for path in locks if path.name != EXCLUSIVE):
                    text = f"a run is using the store {self.root}"
                    raise InputError(f"{text}; wait for its end or stop it, then try again")
                yield

    def remove(self, folders: Sequence[Path]) -> None:
        """Remove folders one after the other, each renamed away first; also what an earlier call did not finish."""
        clear_aside(self.root)
        for folder in folders:
            remove(folder.rename(self.root / f"{ASIDE}{uuid4().hex}"))

    def prepare(self) -> None:
        """Create the store's folders, unless it has to be refused."""
        self.refuse_unusable()
        (self.root / LOCKS).mkdir(parents=True, exist_ok=True)
        if not (self.root / MARK).is_file():
            write_whole(self.root / MARK, json.dumps({"version": VERSION}))

    def refuse_unusable(self) -> None:
        """Refuse what is no folder, or what a newer version of Residuum wrote; write nothing."""
        with _clear_errors(self.root):
            place = next(path for path in (self.root.absolute(), *self.root.absolute().parents) if path.exists())
            if not place.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, f"{place} is no folder")
            if not (mark := self.root / MARK).exists():
                return
            content = read_json(mark)
            version = content.get("version") if isinstance(content, dict) else None
            if type(version) is not int:
                text = f'{mark}: expected {{"version": {VERSION}}}, got something else; if the folder is a store'
                raise InputError(f"{text} of yours, remove the file, else choose another with --store")
            if version > VERSION:
                text = f"the store {self.root} has version {version}, this Residuum knows {VERSION}"
                raise InputError(f"{text}; update Residuum or choose another folder with --store")


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
        elif isinstance(error, OSError) and code in UNWRITABLE:
            text = f"cannot write to the store {root}: {error.strerror}; choose another with --store"
        elif code == errno.ENOENT and not (root / MARK).exists():
            text = f"the store {root} was removed while it was in use; give the command again"
        else:
            raise
        raise InputError(text) from error
