"""Remove from a store everything made with given samples, and say what of it may be elsewhere."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any
from uuid import uuid4

from residuum.experiments import scratch
from residuum.experiments.known_runs import KnownRun, known_runs, runs_naming
from residuum.experiments.maintenance import Artefact, artefacts, key_in, leftovers, strays
from residuum.experiments.settings import ForgetSettings
from residuum.experiments.store import Store
from residuum.files import ASIDE
from residuum.run_folder import noted_packs, remove_run
from residuum.types import InputError

BEGUN = "forgetting.json"  # the ids of a forgetting under way: whoever forgets next finishes it
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


@dataclass(frozen=True)
class Doomed:
    """What was made with some samples: artefacts, children first, and half-written folders."""

    artefacts: list[Artefact]
    half: list[Path]

    @property
    def folders(self) -> list[Path]:
        """Everything to remove, in an order in which what is left can always be found again."""
        return [*self.half, *(artefact.folder for artefact in self.artefacts)]

    @property
    def titles(self) -> list[str]:
        """What a person calls it."""
        return [*(f"half-written {key_in(folder)}" for folder in self.half), *(a.title for a in self.artefacts)]


def made_with(root: Path, ids: Collection[str]) -> Doomed:
    """Return what read one of these samples, names it in a request, or was made from what did.

    What cannot be read counts, and so does what was made from something that is no longer there: nobody can tell.
    """
    wanted, everything = frozenset(ids), {artefact.key: artefact for artefact in artefacts(root)}
    parents = {key: set(one.manifest.parents.values()) if one.manifest else set() for key, one in everything.items()}
    tainted = {key for key, one in everything.items() if _holds(one, wanted) or not parents[key] <= everything.keys()}
    while more := {key for key, own in parents.items() if own & tainted} - tainted:
        tainted |= more
    order = TopologicalSorter({key: parents[key] & tainted for key in sorted(tainted)}).static_order()
    half = [folder for folder in leftovers(root) if _may_hold(root, folder, wanted)]
    return Doomed([everything[key] for key in order][::-1], half)


def _holds(artefact: Artefact, wanted: frozenset[str]) -> bool:
    named = (sample_id for request in artefact.requests for sample_id in request.get("forget_ids") or ())
    return artefact.ids is None or not wanted.isdisjoint(artefact.ids) or not wanted.isdisjoint(named)


def _may_hold(root: Path, folder: Path, wanted: frozenset[str]) -> bool:
    known = scratch.read_ids(root / scratch.FOLDER / key_in(folder))
    return known is None or not wanted.isdisjoint(known)


def requested_ids(root: Path, request: Mapping[str, Any]) -> frozenset[str]:
    """Return the ids that a deletion request means: those it names, or those that a run of this store forgot for it."""
    asked = ForgetSettings.model_validate(request)
    if asked.forget_ids is not None:
        return frozenset(asked.forget_ids)
    everything = {artefact.key: artefact for artefact in artefacts(root)}
    audits = [one for one in everything.values() if one.requests and _same(one.requests[-1], asked)]
    pairs = [(one.manifest.parents.get(role) for role in ("original", "retrain")) for one in audits if one.manifest]
    found = [[everything[key].ids if key in everything else None for key in pair] for pair in pairs]
    ids = frozenset[str]().union(*(train - retain for train, retain in found if train and retain))
    if not ids and not (root / BEGUN).is_file():
        raise InputError(f"no run of the store {root} carried out this request; give the samples with --ids FILE")
    return ids


def _same(stored: Mapping[str, Any], asked: ForgetSettings) -> bool:
    wanted = asked.model_dump(mode="json")
    return stored == wanted | {"forget_class": None if asked.forget_class is None else str(asked.forget_class)}


def forget(
    root: Path, ids: Collection[str], *, runs: bool = False, dry_run: bool = False, place: Path | None = None
) -> Forgotten:
    """Remove everything made with these samples, and with `runs` from the folders of known runs too.

    Runs below `place` that counted such samples are known as well: those of models that were made elsewhere. Each
    folder is renamed away before it is removed, children before parents, and the ids are noted until all is done: after
    a kill, the next call goes on.
    """
    if not ids and not (root / BEGUN).is_file():
        raise InputError("expected at least one id to forget, got none")
    if dry_run:
        doomed = made_with(root, ids)
        return _described(root, ids, doomed, _runs_with(root, doomed, ids, place))
    artefacts(root)  # a store that does not exist is not made
    with Store(root).alone():
        begun = _begun(root)
        everyone = sorted({*ids, *begun})
        _begin(root, everyone)
        doomed = made_with(root, everyone)
        holding = _runs_with(root, doomed, everyone, place)
        found = _described(root, () if begun else ids, doomed, holding)
        _clean(holding if runs else [])
        Store(root).remove(doomed.folders)
        (root / BEGUN).unlink()
    return found


def _begin(root: Path, ids: Sequence[str]) -> None:
    aside = root / f"{ASIDE}{uuid4().hex}"  # cleared away if this is all that happens
    aside.write_text(json.dumps(ids), encoding="utf-8")
    aside.rename(root / BEGUN)


def _begun(root: Path) -> list[str]:
    try:
        return list(map(str, json.loads((root / BEGUN).read_text(encoding="utf-8"))))
    except (FileNotFoundError, ValueError, TypeError):
        return []


def _clean(holding: Sequence[KnownRun]) -> None:
    for run in holding:
        try:
            remove_run(run.folder)
            if run.note:
                run.note.unlink(missing_ok=True)
        except OSError as error:
            text = f"cannot clean {run.folder}: {error.strerror}"
            raise InputError(f"{text}; mend it, and the same command goes on") from error


def _runs_with(root: Path, doomed: Doomed, ids: Collection[str], place: Path | None) -> list[KnownRun]:
    """Return the known runs that were made from something doomed or no longer there, and those that counted samples."""
    sound = {artefact.key for artefact in artefacts(root)} - {artefact.key for artefact in doomed.artefacts}
    noted = [run for run in known_runs(root) if not run.stages <= sound]
    known = {run.folder for run in noted}
    return noted + [run for run in (runs_naming(place, ids) if place else []) if run.folder not in known]


def _described(root: Path, ids: Collection[str], doomed: Doomed, runs: Sequence[KnownRun]) -> Forgotten:
    known = frozenset[str]().union(*(artefact.ids or () for artefact in doomed.artefacts))
    named = (request.get("forget_ids") or () for artefact in doomed.artefacts for request in artefact.requests)
    noted = (scratch.read_ids(root / scratch.FOLDER / key_in(folder)) or () for folder in doomed.half)
    counted = (run.named for run in runs)
    unknown = sorted(set(ids) - known.union(*named, *noted, *counted))
    starts = (one.manifest.settings.get("init_from") for one in doomed.artefacts if one.manifest)
    out_of_reach = [
        *(f"{path}, which is not written by residuum" for path in strays(root)),
        *(f"{file}, the evidence pack of {run.folder}" for run in runs for file in noted_packs(run.folder)),
        *sorted({f"weights that models started from, SHA-256 {weights['sha256']}" for weights in starts if weights}),
        ELSEWHERE,
    ]
    return Forgotten(doomed.titles, [str(run.folder) for run in runs], out_of_reach, unknown)
