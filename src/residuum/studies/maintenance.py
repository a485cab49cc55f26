"""Maintenance of a store: list, verify and clean it, and forget samples."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime
from functools import cached_property
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from filelock import Timeout

from residuum.auditing import Counts
from residuum.core.errors import InputError, plural
from residuum.core.files import ASIDE, file_sha256, write_whole
from residuum.data.ids import short_names
from residuum.record import Results
from residuum.record.folder import (
    DECOY_AUDIT,
    OWN_RUN,
    OWN_STORE,
    copied_hashes,
    half_written,
    has_run,
    noted_packs,
    remove_run,
    written_places,
)
from residuum.studies.artifacts import MANIFEST, SCRATCH_FOLDER, Manifest, broken_artifacts, noted_ids, unsealed_files
from residuum.studies.settings import ForgetSettings
from residuum.studies.stages import IDS, KINDS, code_of
from residuum.studies.store import WRITING, Store

STRAY = "not written by residuum"


@dataclass(frozen=True)
class Artifact:
    """A finished stage in a store."""

    folder: Path

    @property
    def key(self) -> str:
        """The stage's content key."""
        return self.folder.name

    @cached_property
    def manifest(self) -> Manifest | None:
        """What it was made from; None where the manifest is damaged or not this artifact's."""
        return Manifest.read(self.folder)

    @property
    def title(self) -> str:
        """What a person calls it."""
        unreadable = f"{self.folder.parent.name} {self.key}, whose manifest cannot be trusted"
        return self.manifest.title if self.manifest else unreadable

    @property
    def finished(self) -> datetime:
        """When it was finished."""
        return datetime.fromtimestamp((self.folder / MANIFEST).stat().st_mtime, UTC)

    @property
    def current(self) -> bool:
        """Whether the installed code would still give it this key."""
        if self.manifest is None or self.manifest.settings.get("unnamed"):
            return False
        try:
            return self.manifest.code == code_of(self.manifest.settings)
        except (InputError, KeyError):
            return False  # made by a method or a stage that is no longer installed

    @cached_property
    def ids(self) -> frozenset[str] | None:
        """The ids of all samples that the stage read; None where that cannot be told."""
        path = self.folder / IDS
        if self.manifest is None or not path.is_file() or file_sha256(path) != self.manifest.files.get(IDS):
            return None
        return frozenset(path.read_text(encoding="utf-8").splitlines())

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The deletion requests that the stage knows of, in order."""
        return list(self.manifest.settings.get("requests", ())) if self.manifest else []

    @property
    def named_ids(self) -> frozenset[str]:
        """The ids that it is known to have read, and those that its requests name."""
        return (self.ids or frozenset()).union(*(request.get("forget_ids") or () for request in self.requests))

    def record(self) -> dict[str, Any]:
        """Return the entry for machine-readable output."""
        size = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        finished = self.finished.isoformat(timespec="seconds")
        return {"key": self.key, "title": self.title, "bytes": size, "made": finished, "current": self.current}


def artifacts(root: Path) -> list[Artifact]:
    """Return what a store holds, oldest first; folders without a manifest are left to `leftovers`."""
    finished = [Artifact(folder) for folder in _folders(root) if _is_whole(folder)]
    return sorted(finished, key=lambda artifact: (artifact.finished, artifact.key))


def leftovers(root: Path) -> list[Path]:
    """Return the half-written folders that no run is working on: a killed run left them."""
    half = [folder for folder in _folders(root) if not _is_whole(folder)] + _unfinished(root)
    return [folder for folder in half if not Store(root).busy(key_in(folder))]


def strays(root: Path) -> list[Path]:
    """Return the files and links that stand where a store has folders only."""
    return [path for path in _entries(root) if path.is_symlink() or not path.is_dir()]


def _folders(root: Path) -> list[Path]:
    if not root.is_dir():
        raise InputError(f"expected a store folder, got {root}, which does not exist; name it with --store")
    return [path for path in _entries(root) if path.is_dir() and not path.is_symlink()]


def _entries(root: Path) -> list[Path]:
    return [path for kind in KINDS for path in sorted((root / kind).glob("*"))]


def _unfinished(root: Path) -> list[Path]:
    return [path for path in sorted((root / SCRATCH_FOLDER).glob("*")) if path.is_dir()]


def _is_whole(folder: Path) -> bool:
    return (folder / MANIFEST).is_file() and not folder.name.startswith(WRITING)


def key_in(folder: Path) -> str:
    """Return the key of the stage that a half-written folder belongs to."""
    return folder.name.removeprefix(WRITING).partition("-")[0]


def verify(root: Path) -> dict[str, list[str]]:
    """Return the broken files of every artifact and checkpoint that is not what was written, by key, and strays."""
    checked = {artifact.key: broken_artifacts(artifact.folder) for artifact in artifacts(root)}
    for folder in _unfinished(root):
        if broken := unsealed_files(folder):
            checked[folder.name] = [*checked.get(folder.name, []), *broken]
    checked |= {path.relative_to(root).as_posix(): [STRAY] for path in strays(root)}
    return {key: broken for key, broken in checked.items() if broken}


def collect_garbage(root: Path, *, dry_run: bool = False) -> list[str]:
    """Remove half-written folders and artifacts that the installed code would never use; return what they were.

    A run that is under way is an error: it could be about to use them. What a single stage is working on stays.
    """
    artifacts(root)  # a store that does not exist is not made
    store, removed = Store(root), []
    with nullcontext() if dry_run else store.alone(stages=True):
        half = {folder: f"half-written {key_in(folder)}" for folder in leftovers(root)}
        stale = {artifact.folder: artifact.title for artifact in artifacts(root) if not artifact.current}
        if dry_run:
            return [*half.values(), *stale.values()]
        for folder, title in (half | stale).items():
            with suppress(Timeout), store.lock(key_in(folder)).acquire(blocking=False):  # else somebody began with it
                if folder.exists() and (folder in stale or not _is_whole(folder)):
                    store.remove([folder])
                    removed.append(title)
    return removed


def remove_subject(root: Path, identity: str) -> None:
    """Remove what was computed for a request whose objects no other process can tell to be the same."""
    manifests = {one.folder: one.manifest for one in artifacts(root)}
    Store(root).remove(
        [folder for folder, one in manifests.items() if one and one.settings.get("identity") == identity]
    )


# Runs: every run notes in the store which artifacts its folder has copies of; other folders are read.

RUNS = "runs"
PICTURES = {"gallery", "pictures"}  # folders of .npz files that are no counts


@dataclass(frozen=True)
class Note:
    """What a store knows of a run: its folder, the stages it was made from, the hashes of what it copied.

    `store` is where the store was when the run was written: a copy of the store has not written it.
    """

    file: Path
    folder: Path
    store: str
    stages: frozenset[str]
    copies: frozenset[str]


@contextmanager
def noted(folder: Path, artifacts: AbstractSet[Path]) -> Iterator[None]:
    """Note that a folder gets copies of a store's artifacts; afterwards, that it has nothing else. It is locked."""
    manifests = [Manifest.read(artifact) for artifact in artifacts]
    if any(manifest and manifest.settings.get("unnamed") for manifest in manifests):  # which does not stay in the store
        yield
        return
    store, keys = min(artifacts).parents[1], {artifact.name for artifact in artifacts}
    copies = {digest for manifest in manifests if manifest for digest in manifest.files.values()}
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:32]
    file = store / RUNS / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    before = _read_note(file)
    _write_note(
        file, folder, keys | (before.stages if before else set()), copies | (before.copies if before else set())
    )
    yield
    _write_note(file, folder, keys, copies)


def _write_note(file: Path, folder: Path, keys: AbstractSet[str], copies: AbstractSet[str]) -> None:
    where = {"folder": str(folder.resolve()), "store": store_path(file.parents[1])}
    write_whole(file, json.dumps(where | {"stages": sorted(keys), "copies": sorted(copies)}, indent=1))


def store_path(root: Path) -> str:
    """Return the path by which notes know their store."""
    return str(root.resolve())


def known_runs(root: Path) -> list[Note]:
    """Return the notes of runs whose folders still exist."""
    notes = [_read_note(file) for file in sorted((root / RUNS).glob("*.json"))]
    return [note for note in notes if note and note.folder.is_dir()]


def _read_note(file: Path) -> Note | None:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        stages, copies = (frozenset(map(str, content.get(name, ()))) for name in ("stages", "copies"))
        return Note(file, Path(content["folder"]), str(content.get("store")), stages, copies)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def run_folders(place: Path) -> set[Path]:
    """Return the folders below a place that have a run, or part of one."""
    homes = {path.parent for path in place.rglob(Results.FILE)}
    homes |= {path for path in place.rglob(f"{ASIDE}*") if half_written(path.parent)}
    return {_home(path, place) for path in homes}


def _home(folder: Path, place: Path) -> Path:
    parts = folder.relative_to(place).parts
    half = next((k for k, name in enumerate(parts) if name.startswith(ASIDE)), len(parts))
    return place.joinpath(*parts[:half]).resolve()


@dataclass(frozen=True)
class Named:
    """Which samples the counts and records of a run name, and whether all of these could be read."""

    ids: frozenset[str]
    whole: bool


def named_in(folder: Path) -> Named:
    """Return whom the run in a folder, or what is half-written there, names."""
    ids: set[str] = set()
    whole = True
    half = (path for place in half_written(folder) for path in place.rglob("*.npz"))
    files = {*folder.glob("counts/**/*.npz"), *(path for path in half if not PICTURES & set(path.parts))}
    if (folder / Results.FILE).exists():
        try:
            record = Results.load(folder)
            files |= {folder / audit.counts for *_, audit in record.each_audit()}
            ids |= {name for request in record.scenario.settings.requests for name in request.forget_ids or ()}
        except InputError:
            whole = False
    for file in sorted(files):
        try:
            ids |= set(Counts.load(file).ids)
        except (InputError, OSError):
            whole = False
    return Named(frozenset(ids), whole)


# Forgetting: remove everything that was made with given samples, and say what of it may be elsewhere.

NOT_TRAINED_ON = ("held_out/", "validation/")  # ids of such samples begin so
BEGUN = "forgetting.json"  # ids and findings of a forgetting under way: whoever forgets next finishes it
ELSEWHERE = (
    "the data themselves, backups, and copies of models, reports and evidence packs that were moved or sent elsewhere"
)


@dataclass(frozen=True)
class Forgotten:
    """What was removed (or would be), which known runs hold such samples, and what is out of reach."""

    removed: list[str]
    runs: list[str]
    unreachable: list[str]
    unknown: list[str] = field(default_factory=list)

    def statement(self, day: date, *, cleaned: bool) -> list[str]:
        """Return what the person may be told of it, in sentences; `cleaned` says whether the runs were removed too.

        >>> Forgotten(["train original"], [], ["backups"]).statement(date(2026, 11, 2), cleaned=True)[0]
        'On 2026-11-02 we deleted 1 stored model or measurement that was made with your data.'
        """
        sentences = []
        if number := len(self.removed):
            results = "models and measurements that were" if number > 1 else "model or measurement that was"
            if self.unknown:
                results = f"{results.rpartition(' ')[0]} may have been"
            sentences.append(f"On {day} we deleted {number} stored {results} made with your data.")
        if self.runs:
            reports = plural(len(self.runs), "report")
            sentences.append(f"We {'deleted' if cleaned else 'keep'} {reports} with results about your data.")
        if others := len(self.unreachable) - 1:  # the last is what no record leads to
            places = plural(others, "other place")
            sentences.append(f"We look by hand at {places} where something made with your data may be.")
        return [*sentences, f"This does not cover {ELSEWHERE}."]


@dataclass(frozen=True)
class MadeWith:
    """What a store holds that was made with some samples: artifacts, children first, and half-written folders.

    `unreadable`: of some of it, nobody can tell which samples it was made with.
    """

    root: Path
    artifacts: list[Artifact]
    half: list[Path]
    unreadable: bool = False

    @property
    def folders(self) -> list[Path]:
        """Everything to remove, in an order in which what is left can always be found again."""
        return [*self.half, *(artifact.folder for artifact in self.artifacts)]

    @property
    def titles(self) -> list[str]:
        """What a person calls it."""
        return [*(f"half-written {key_in(folder)}" for folder in self.half), *(a.title for a in self.artifacts)]

    @property
    def ids(self) -> frozenset[str]:
        """The samples that it is known to have been made with, or to name."""
        noted = (ids_of_half(self.root, folder) or () for folder in self.half)
        return frozenset[str]().union(*(artifact.named_ids for artifact in self.artifacts), *noted)


@dataclass(frozen=True)
class HeldRun:
    """The folder of a run that may hold samples to forget, and which of them it names.

    Where `untouched` says why, it is named and left as it is. `only_half`: nothing but what a killed command left there
    is removed. `lost`: the store no longer has the stages that it was made from.
    """

    folder: Path
    named: frozenset[str] = frozenset()
    notes: tuple[Path, ...] = ()  # files that say of the run where it is
    untouched: str = ""
    only_half: bool = False
    lost: bool = False

    @property
    def touched(self) -> bool:
        """Whether it may be cleaned."""
        return not self.untouched


def made_with(root: Path, ids: Collection[str]) -> MadeWith:
    """Return what read one of these samples, names it in a request, or was made from what did.

    What cannot be read counts, and so does what was made from something that is no longer there: nobody can tell.
    """
    sample_ids, everything = frozenset(ids), {artifact.key: artifact for artifact in artifacts(root)}
    parents = {key: set(one.manifest.parents.values()) if one.manifest else set() for key, one in everything.items()}
    untold = {key for key, one in everything.items() if one.ids is None or not parents[key] <= everything.keys()}
    tainted = untold | {key for key, one in everything.items() if not sample_ids.isdisjoint(one.named_ids)}
    while more := {key for key, sources in parents.items() if sources & tainted} - tainted:
        tainted |= more
    order = TopologicalSorter({key: parents[key] & tainted for key in sorted(tainted)}).static_order()
    noted = {folder: ids_of_half(root, folder) for folder in leftovers(root)}
    half = [folder for folder, read in noted.items() if read is None or not sample_ids.isdisjoint(read)]
    return MadeWith(root, [everything[key] for key in order][::-1], half, bool(untold) or None in noted.values())


def ids_of_half(root: Path, folder: Path) -> frozenset[str] | None:
    """Return the ids of all samples that the stage of a half-written folder may have read; None if not known."""
    return noted_ids(root / SCRATCH_FOLDER / key_in(folder))


def requested_ids(roots: Sequence[Path], request: Mapping[str, Any]) -> frozenset[str]:
    """Return the ids that a deletion request means: those it names, or those that runs of the stores forgot for it."""
    forget = ForgetSettings.model_validate(request)
    if forget.forget_ids is not None:
        return frozenset(forget.forget_ids)
    everything = {artifact.key: artifact for root in roots for artifact in artifacts(root)}
    audits = [one for one in everything.values() if one.requests[-1:] == [forget.content()]]
    pairs = [(one.manifest.parents.get(role) for role in ("original", "retrain")) for one in audits if one.manifest]
    trained_on = [[everything[key].ids if key in everything else None for key in pair] for pair in pairs]
    ids = frozenset[str]().union(*(train - retain for train, retain in trained_on if train and retain))
    if not ids and not any((root / BEGUN).is_file() for root in roots):
        raise InputError(f"no run of {_listed(roots)} carried out this request; give the samples with --ids FILE")
    return ids


def known_stores(here: Path) -> list[Path]:
    """Return the store `here`, if there is one, and all that were noted by whatever computed in them."""
    noted = (written.path for written in written_places() if written.what == OWN_STORE)
    return sorted({path.resolve() for path in (here, *noted) if path.is_dir()})


def forget(
    stores: Path | Sequence[Path],
    ids: Collection[str],
    *,
    runs: bool = False,
    dry_run: bool = False,
    place: Path | None = None,
) -> Forgotten:
    """Remove everything made with these samples from stores, and with `runs` from folders of runs too.

    Runs below `place` and audits that were noted are looked at as well: those of models that were made elsewhere. An id
    that nothing was made with is an error, and then nothing is removed. Each folder is renamed away before it is
    removed, children before parents, and the ids are noted until all is done: after a kill, the next call goes on.
    """
    roots = [stores] if isinstance(stores, Path) else [*stores]
    if not ids and not any((root / BEGUN).is_file() for root in roots):
        raise InputError("expected at least one id to forget, got none")
    for root in roots:
        artifacts(root)  # a store that does not exist is not made
    ids = _whole_ids(ids, roots, place)
    with ExitStack() as alone:
        for root in roots if not dry_run else ():
            alone.enter_context(Store(root).alone())
        begun = [earlier for root in roots if (earlier := Begun.read(root))]
        everyone = sorted({*ids, *(name for earlier in begun for name in earlier.ids)})
        holdings = [made_with(root, everyone) for root in roots]
        held = _held_runs(holdings, everyone, place)
        answer = _described(() if begun else ids, holdings, held)
        for earlier in begun:
            answer = earlier.completed(answer)
        if (names := answer.unknown) and not any([*(one.unreadable for one in holdings), *(run.lost for run in held)]):
            text = f"nothing in {_listed(roots)} was made with {plural(len(names), 'id')} of those given"
            first = ", ".join([*names[:10], *(["..."] if len(names) > 10 else [])])
            raise InputError(f"{text}: {first}; nothing was removed, check how they are written")
        if not dry_run:
            for root in roots:
                Begun(everyone, answer).write(root)
            _clean([run for run in held if run.touched] if runs else [])
            for one in holdings:
                Store(one.root).remove(one.folders)
                (one.root / BEGUN).unlink()
    return answer


def _whole_ids(ids: Collection[str], roots: Sequence[Path], place: Path | None) -> set[str]:
    """Return the ids that are meant, each as it is written or by a file's name or stem, as a request may name it.

    What nothing was made with stays as it is. Held-out samples are nobody's whom a request names.
    """
    named = set[str]().union(*(artifact.named_ids for root in roots for artifact in artifacts(root)))
    if named >= {*ids}:
        return {*ids}
    noted = {written.path for written in written_places() if written.what == OWN_RUN and written.path.is_dir()}
    named |= set[str]().union(*(named_in(folder).ids for folder in noted | (run_folders(place) if place else set())))
    wanted, meant = {*ids} - named, dict[str, set[str]]()
    for name in named if wanted else ():
        for short in short_names(name) & wanted if not name.startswith(NOT_TRAINED_ON) else ():
            meant.setdefault(short, set()).add(name)
    for name, matches in meant.items():
        if len(matches) > 1:
            first, second = sorted(matches)[:2]
            raise InputError(f"{name!r} can mean {first!r} or {second!r}; give the whole id")
    return {next(iter(meant[name])) if name in meant else name for name in ids}


def _listed(roots: Sequence[Path]) -> str:
    """Return what a sentence calls the stores that were looked at."""
    if not roots:
        return "any run that was found (there is no store)"
    return f"the store{'s' if roots[1:] else ''} {', '.join(map(str, roots))}"


@dataclass(frozen=True)
class Begun:
    """A forgetting under way: its ids, and the answer from before anything was removed."""

    ids: list[str]
    answer: Forgotten

    def write(self, root: Path) -> None:
        """Write it into a store, from which it is removed at the end."""
        aside = root / f"{ASIDE}{uuid4().hex}"  # cleared away if this is all that happens
        aside.write_text(json.dumps(asdict(self)), encoding="utf-8")
        aside.rename(root / BEGUN)

    @classmethod
    def read(cls, root: Path) -> Self | None:
        """Return what a killed process began in a store, if anything."""
        try:
            content = json.loads((root / BEGUN).read_text(encoding="utf-8"))
            return cls(list(map(str, content["ids"])), Forgotten(**content["answer"]))
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None

    def completed(self, answer: Forgotten) -> Forgotten:
        """Return the answer together with the first one, parts of which may be removed by now."""
        rest = Counter(answer.removed) - Counter(self.answer.removed)
        cleaned = tuple(f"{folder}, " for folder in self.answer.runs)
        unreachable = [line for line in answer.unreachable if not line.startswith(cleaned)]
        return Forgotten(
            [*self.answer.removed, *rest.elements()],
            list(dict.fromkeys([*self.answer.runs, *answer.runs])),
            list(dict.fromkeys([*self.answer.unreachable[:-1], *unreachable])),  # the last is what no record leads to
            answer.unknown,
        )


def _clean(runs: Sequence[HeldRun]) -> None:
    for run in runs:
        try:
            remove_run(run.folder, only_half=run.only_half, unreadable=bool(run.named))
            for note in run.notes if not has_run(run.folder) else ():
                note.unlink(missing_ok=True)
        except OSError as error:
            text = f"cannot clean {run.folder}: {error.strerror}"
            raise InputError(f"{text}; correct that and give the same command again") from error


def _held_runs(holdings: Sequence[MadeWith], ids: Collection[str], place: Path | None) -> list[HeldRun]:
    """Return the runs that were made from these artifacts or from lost ones, and those that name the samples."""
    gone = {one.root: one.artifacts for one in holdings}
    left = {root: _without(artifacts(root), removed) for root, removed in gone.items()}
    copies = _hashes(chain(*gone.values())) - _hashes(chain(*left.values()))
    held: dict[Path, HeldRun] = {}
    notes = {written.path: written.note for written in written_places() if written.what == OWN_RUN}
    for folder in sorted({*(run_folders(place) if place else ()), *(path for path in notes if path.is_dir())}):
        if run := _held_by_itself(folder, frozenset(ids), copies):
            held[folder] = replace(run, notes=(notes[folder],) if folder in notes else ())
    for root, removed in gone.items():
        sound = {artifact.key for artifact in left[root]}
        for note in known_runs(root):
            if not note.stages <= sound and note.folder not in held:
                lost = not note.stages <= sound | {artifact.key for artifact in removed}
                held[note.folder] = replace(_held_by_note(root, note, frozenset(ids)), lost=lost)
            if note.folder in held and note.store == store_path(root):
                held[note.folder] = replace(held[note.folder], notes=(*held[note.folder].notes, note.file))
    return list(held.values())


def _without(every: Sequence[Artifact], removed: Sequence[Artifact]) -> list[Artifact]:
    gone = {artifact.key for artifact in removed}
    return [artifact for artifact in every if artifact.key not in gone]


def _hashes(stages: Iterable[Artifact]) -> frozenset[str]:
    return frozenset(digest for one in stages if one.manifest for digest in one.manifest.files.values())


def _held_by_itself(folder: Path, ids: frozenset[str], copies: frozenset[str]) -> HeldRun | None:
    """Return the run in a folder if its record or its counts name the samples, or it has copies of what is removed."""
    named, half = named_in(folder), half_written(folder)
    if not ids.isdisjoint(named.ids) or not copies.isdisjoint(copied_hashes(folder)):
        return HeldRun(folder, named.ids & ids)
    if half:
        return HeldRun(folder, only_half=True)
    return None if named.whole else HeldRun(folder, untouched="whose record or counts cannot be read")


def _held_by_note(root: Path, note: Note, ids: frozenset[str]) -> HeldRun:
    """Return the run that a note of the store names; it is ours to clean only if what is there bears the note out."""
    if note.store != store_path(root):
        return HeldRun(note.folder, untouched=f"a run of the store {note.store}: forget it there")
    named = named_in(note.folder).ids & ids
    if named or not note.copies.isdisjoint(copied_hashes(note.folder)):
        return HeldRun(note.folder, named)
    if half_written(note.folder):
        return HeldRun(note.folder, only_half=True)
    return HeldRun(note.folder, untouched="which the store notes as a run's, but no run of these stages is there")


def _described(ids: Collection[str], holdings: Sequence[MadeWith], runs: Sequence[HeldRun]) -> Forgotten:
    unknown = sorted(set(ids).difference(*(one.ids for one in holdings), *(run.named for run in runs)))
    stages = [artifact for one in holdings for artifact in one.artifacts]
    starts = (one.manifest.settings.get("init_from") for one in stages if one.manifest)
    out_of_reach = [
        *(f"{path}, which is not written by residuum" for one in holdings for path in strays(one.root)),
        *(f"{run.folder}, {run.untouched}" for run in runs if run.untouched),
        *(f"{file}, the evidence pack of {run.folder}" for run in runs for file in noted_packs(run.folder)),
        *_copies(holdings, {run.folder for run in runs}),
        *sorted({f"weights that models started from, SHA-256 {weights['sha256']}" for weights in starts if weights}),
        ELSEWHERE,
    ]
    where = {one.root: f" ({one.root})" if holdings[1:] else "" for one in holdings}
    titles = [f"{title}{where[one.root]}" for one in holdings for title in one.titles]
    return Forgotten(titles, [str(run.folder) for run in runs if run.touched], out_of_reach, unknown)


def _copies(holdings: Sequence[MadeWith], folders: AbstractSet[Path]) -> Iterator[str]:
    """Yield what was written outside of runs' folders and may hold such samples."""
    roots, without = {one.root.resolve() for one in holdings}, set[Path]()
    for one in holdings:  # a run that a store made without them is no such place
        left = {artifact.key for artifact in _without(artifacts(one.root), one.artifacts)}
        without |= {note.folder for note in known_runs(one.root) if note.stages and note.stages <= left}
    for copy in written_places():
        if copy.what == OWN_STORE:
            if copy.path not in roots:
                yield f"{copy.path}, another store: give the same command with --store {copy.path}"
        elif copy.what == OWN_RUN:
            if copy.path not in folders | without and copy.path.is_dir():
                yield f"{copy.path}, a run that names none of them; its models may have been trained on them"
        elif copy.run is None:
            if copy.what == DECOY_AUDIT and copy.path.parent in folders:  # it goes with the run
                continue
            yield f"{copy.path}, {copy.what} that may have been made with them"
        elif not folders.isdisjoint({copy.run, *copy.run.parents}) or not has_run(copy.run):
            yield f"{copy.path}, the {copy.what} of {copy.run}"
