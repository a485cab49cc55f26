"""The stages of a run: values that know their settings and the stages before them, and how to fill a folder.

The settings decide the result, so they are part of the key by which a store finds it. Several processes that share a
stage compute it in separate folders; the store gets that of the leader.
"""

from __future__ import annotations

import json
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from pydantic_core import to_jsonable_python
from safetensors.torch import load_file, save
from torch import nn

from residuum.auditing import Auditor, AuditResult, Counts, audit, first_radius, make_gallery, of_unaffected_classes
from residuum.auditing.heldout import choose_heldout
from residuum.auditing.probes import Evidence, log_odds
from residuum.core import devices
from residuum.core.console import say
from residuum.core.devices import Compute
from residuum.core.errors import InputError, MethodError, ResiduumWarning
from residuum.core.files import read_arrays, write_arrays
from residuum.core.roles import Role
from residuum.core.samples import Samples
from residuum.core.seeds import child_seed, request_seed
from residuum.metrics import Relearning, accuracy, evaluate, mean_loss
from residuum.models import MODELS, build_model, forward, init_from, save_weights
from residuum.models.weights import state_hash
from residuum.perturbations import PERTURBATIONS
from residuum.studies.artifacts import code_fingerprint, key_of
from residuum.studies.parsing import build_probe
from residuum.studies.pretrained import KnownFile, Pretrained
from residuum.studies.retraining import MadeModel
from residuum.studies.settings import AuditSettings, ModelSettings
from residuum.studies.subjects import MODEL, LiveSubject, Subject
from residuum.training import Progress, Recipe, TrainingPhase, cross_entropy, fit
from residuum.training.checkpoint import Checkpoint
from residuum.unlearning import METHODS, Origin, make_method, unlearn

Record = dict[str, Any]

INITIAL = "initial.safetensors"
GALLERY, MARGINS, RECORD = "gallery.npz", "margins.npz", "record.json"
MARGIN_PARTS = ("forget", "heldout", "retain", "validation")
IDS = "ids.txt"
EARLIER = ".earlier"  # among the parents: the audit that this one continues; no row can be called so


@dataclass(frozen=True)
class Setup:
    """What the stages of one seed share: the subject of the study, and what they are computed with.

    `plugins` are what the process that computes must add to its tables.
    """

    subject: Subject
    seed: int
    threads: int
    compute: Compute
    plugins: tuple[tuple[str, str], ...] = ()

    def content(self) -> dict[str, Any]:
        """Return what a result depends on as plain values."""
        return {"seed": self.seed, "threads": self.threads, "compute": asdict(self.compute), **self.subject.content()}


@dataclass(frozen=True)
class Workspace:
    """The folders of a stage under way: an empty one to fill, those of its parents, one that outlives an interrupt."""

    folder: Path
    parents: Mapping[str, Path]
    scratch: Path

    def checkpoint(self, name: str) -> Checkpoint:
        """Return the file that says how far the stage is."""
        return Checkpoint(self.scratch / f"{name}.pt", key=self.scratch.name)

    def write(self, record: Mapping[str, Any], *read: Samples | Counts) -> None:
        """Write the stage's record as JSON, which has no NaN or Infinity, and the ids of all samples that it read.

        By the ids a store can find what was made with them.
        """
        text = json.dumps(record, indent=1, sort_keys=True, allow_nan=False)
        (self.folder / RECORD).write_text(text + "\n", encoding="utf-8")
        ids = sorted({sample_id for part in read for sample_id in part.ids})
        (self.folder / IDS).write_text("".join(f"{sample_id}\n" for sample_id in ids), encoding="utf-8")


def read_record(folder: Path) -> Record:
    """Return the record that a stage left in its folder."""
    record: Record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    return record


@dataclass(frozen=True, kw_only=True, eq=False)
class Stage(ABC):
    """A node of the plan: what to compute, and the stages that come before it. Fields of a subclass are its settings.

    `name` is what it works on, whatever the seed: a role, a row or a perturbation.
    """

    kind: ClassVar[str]
    setup: Setup
    name: str
    parents: Mapping[str, Stage] = field(default_factory=dict)

    @abstractmethod
    def compute(self, work: Workspace) -> None:
        """Fill the folder of the workspace."""

    @property
    def subject(self) -> Subject:
        """Where samples, networks and perturbations come from."""
        return self.setup.subject

    @cached_property
    def key(self) -> str:
        """Hash of everything the result depends on: settings, data, parents, code and library versions."""
        return key_of(self.content)

    @cached_property
    def content(self) -> dict[str, Any]:
        """What the key is the hash of."""
        names = [part.name for part in fields(self) if part.name not in ("setup", "parents")]
        settings = to_jsonable_python({name: getattr(self, name) for name in names}) | self.setup.content()
        parents = {name: parent.key for name, parent in self.parents.items()}
        return {"kind": self.kind, "settings": settings, "parents": parents, "code": code_of(settings)}

    @property
    def title(self) -> str:
        """What a person calls this stage."""
        number = len(self.subject.requests)
        which = f", request {number}" if number > 1 else ""
        return f"{self.kind} {self.name} (seed {self.setup.seed}{which})"

    def load(self, label: str, folder: Path) -> nn.Module:
        """Return the model of a row from the folder of the stage that made it, on the device of the run."""
        return self.subject.load(label, folder).to(devices.device())

    def progress(self) -> Progress | None:
        """Return a callback that says now and then how much is left."""
        return printed_progress(f"{self.kind} {self.name} (seed {self.setup.seed})")


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainStage(Stage):
    """Train the model of one role from fresh weights, or from those of `init_from`."""

    kind = "train"
    model: ModelSettings
    mean: tuple[float, ...]
    std: tuple[float, ...]
    init_from: KnownFile | None
    recipe: Recipe

    def compute(self, work: Workspace) -> None:
        """Train the original on the whole training set, the others on the retain set."""
        splits, seed = self.subject.splits(), child_seed(self.setup.seed, self.name)
        shape, classes, width = splits.train.shape, splits.classes, self.model.width
        model = build_model(self.model.name, shape, classes, width=width, seed=seed, mean=self.mean, std=self.std)
        if self.init_from is not None:
            model = init_from(model, self.init_from.checked_path())
        weights = {name: value.contiguous() for name, value in model.state_dict().items()}
        (work.folder / INITIAL).write_bytes(save(weights))  # so that a full disk is an OSError
        model.to(devices.device())
        samples = splits.train if self.name == "original" else splits.retain
        phases, checkpoint = [TrainingPhase(cross_entropy, main_stream="train")], work.checkpoint("training")
        with measured(self.setup.threads, checkpoint) as record:
            options: dict[str, Any] = {"checkpoint": checkpoint, "progress": self.progress()}
            record["passes"] = fit(model, {"train": samples}, self.recipe, phases, seed=seed, **options)
        save_weights(model.cpu(), work.folder / MODEL)
        work.write(record, samples)


@dataclass(frozen=True, kw_only=True, eq=False)
class UnlearnStage(Stage):
    """Unlearn the last request with one method; `recipe` is the original's."""

    kind = "unlearn"
    method: str
    settings: dict[str, Any]
    recipe: Recipe
    pretrained: Pretrained | None

    def compute(self, work: Workspace) -> None:
        """Unlearn from the original, or from what the method made of it so far."""
        splits = self.subject.splits(combined=False)
        method = make_method(self.method, self.settings)
        start = self.subject.load(self.name, work.parents.get("previous", work.parents["original"]))
        start.to(devices.device() if method.accelerated else "cpu")
        seed = request_seed(self.setup.seed, len(self.subject.requests))
        origin = Origin(self.recipe, load_file(work.parents["original"] / INITIAL))
        if self.pretrained:
            origin = replace(origin, seen=self.pretrained.ids_seen())
        with measured(self.setup.threads) as record:
            try:
                done = unlearn(start, splits, method, seed=seed, origin=origin, progress=self.progress())
            except InputError as error:  # what the method does not like is its row's failure, not the run's
                raise MethodError(str(error)) from error
        record |= {"passes": done.passes, "notes": done.notes, "unchanged": done.unchanged}
        save_weights(done.model.cpu(), work.folder / MODEL)
        work.write(record, *(getattr(splits, part) for part in method.parts_read))


@dataclass(frozen=True, kw_only=True, eq=False)
class GivenStage(Stage):
    """Take a model that the user brings, by the hash of its weights; one `retrained` did not see the forget set."""

    kind = "given"
    weights: str
    retrained: bool

    def compute(self, work: Workspace) -> None:
        """Take the model as it is, with what is known of how it was made."""
        subject = cast(LiveSubject, self.subject)
        supplied, splits = subject.supplied[self.name], subject.splits()
        save_weights(supplied.model, work.folder / MODEL)
        work.write(_model_record(supplied, supplied.warnings), splits.retain if self.retrained else splits.train)


@dataclass(frozen=True, kw_only=True, eq=False)
class RetrainStage(Stage):
    """Retrain a model of the user's without the forget set; `how` is the hash of everything that decides it.

    `recipe` is None where a function of the user's trains.
    """

    kind = "retrain"
    how: str
    recipe: Recipe | None

    def compute(self, work: Workspace) -> None:
        """Retrain as the user says."""
        subject = cast(LiveSubject, self.subject)
        with measured(self.setup.threads) as record:
            result = subject.training.retrained(self.name)
        subject.save(self.name, result.model, work.folder)
        work.write(record | _model_record(result, record["warnings"]), subject.splits().retain)


def _model_record(source: MadeModel, warnings: Sequence[str]) -> Record:
    """Return what the record of a stage says of a model and its cost."""
    facts = {name: getattr(source, name) for name in ("seconds", "passes", "unchanged")}
    return facts | {"notes": dict(source.notes), "warnings": list(warnings)}


@dataclass(frozen=True, kw_only=True, eq=False)
class EvaluateStage(Stage):
    """Measure one model; `relearn` is None where re-learn time is not defined."""

    kind = "evaluate"
    relearn: Relearning | None

    def compute(self, work: Workspace) -> None:
        """Measure accuracies, membership inference and, where it is defined, re-learn time."""
        splits, model = self.subject.splits(), self.load(self.name, work.parents["model"])
        seed = child_seed(self.setup.seed, "relearn")
        with measured(self.setup.threads) as record:
            loss = None
            if self.relearn is not None:
                loss = mean_loss(self.load("original", work.parents["original"]), splits.forget)
            relearning = self.relearn or Relearning()
            record["metrics"] = evaluate(model, splits, original_loss=loss, relearning=relearning, seed=seed)
            record["weights"] = state_hash(model.state_dict())
        work.write(record, splits.retain, splits.forget, splits.test, splits.forgotten_test)


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditStage(Stage):
    """Audit all models of one seed under one perturbation, the stage's name.

    A further round makes `audit.draws` more, from `first_draw` on, of all rows but those that are `decided`.
    """

    kind = "audit"
    labels: tuple[str, ...]
    audit: AuditSettings
    first_draw: int = 0
    decided: tuple[str, ...] = ()
    pretrained: Pretrained | None

    def compute(self, work: Workspace) -> None:
        """Audit the models against their seed's reference, in one pass.

        A further round adds its draws to those of the one before; what that says of decided rows stays as it is.
        """
        splits, taus = self.subject.splits(), self.audit.radii(self.name)
        models = {label: self.load(label, work.parents[label]) for label in self.labels}
        (perturbation, space), seed = self.subject.perturbation(self.name), child_seed(self.setup.seed, "audit")
        checkpoint = work.checkpoint(f"audit-rank-{devices.rank()}-of-{devices.world_size()}")
        drawn = [label for label in self.labels if label not in self.decided]
        with measured(self.setup.threads, checkpoint) as record:
            auditor = Auditor(
                {label: models[label] for label in drawn},
                models["retrain"],
                perturbation,
                taus,
                seed,
                confidence=self.audit.confidence,
                crafted_on=self.audit.crafted_on,
                original=models["original"],
                space=space,
            )
            before = self.pretrained.seen() if self.pretrained else {}
            result = auditor.count(
                splits.forget,
                self.audit.budget(self.first_draw),
                heldout=splits.heldout,
                seen={"the retain set": set(splits.retain.ids), **before},
                progress=self.progress(),
                checkpoint=checkpoint,
            )
            if not devices.leads():
                return
            audits: Record = {}
            if EARLIER in work.parents:
                folder = work.parents[EARLIER]
                earlier = read_record(folder)
                audits = earlier["audits"]
                tables = [
                    {label: Counts.load(folder / kind / f"{label}.npz") for label in self.labels}
                    for kind in ("counts", "heldout")
                ]
                settings = audits["retrain"]["settings"]
                before_it = AuditResult(tables[0], settings, earlier["warnings"], settings["enumerated"], tables[1])
                result = before_it.followed_by(result)
            if len(splits.forget.shape) == 3 and max(taus) > 0 and space.at is None:
                shown = (models, models["retrain"], splits.forget, perturbation, result.counts)
                make_gallery(*shown, seed=seed, space=space).save(work.folder / GALLERY)
        for kind, by_label in (("counts", result.counts), ("heldout", result.heldout)):
            (work.folder / kind).mkdir()
            for label, counts in by_label.items():
                counts.save(work.folder / kind / f"{label}.npz")
        for label in drawn:
            first = first_radius(result.counts[label], exact=result.exact)
            audits[label] = result.measures(label) | {"first_radius": first}
            matched = audits[label]["heldout"]
            matched["left_out"] = [splits.class_names[int(number)] for number in matched["left_out"]]
        record["audits"] = audits
        record["warnings"] = sorted({*record["warnings"], *result.warnings})
        work.write(record, splits.forget, next(iter(result.heldout.values())))


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreStage(Stage):
    """Show one model perturbed copies of the forgotten samples, without any reference.

    With `level` it is shown held-out samples of unaffected classes, too.
    """

    kind = "score"
    perturbation: str
    taus: tuple[float, ...]
    draws: int
    level: bool

    def compute(self, work: Workspace) -> None:
        """Measure how often the model is right on perturbed copies, at each radius, and its validation accuracy."""
        splits, model = self.subject.splits(), self.load(self.name, work.parents["model"])
        unaffected = of_unaffected_classes(splits.validation, splits.train, splits.forget)
        shown = {"forgotten": splits.forget} | ({"unaffected": unaffected} if self.level and len(unaffected) else {})
        (perturbation, space), seed = self.subject.perturbation(self.perturbation), child_seed(self.setup.seed, "score")
        with measured(self.setup.threads) as record:
            record["validation_accuracy"] = accuracy(model, splits.validation)
            for name, samples in shown.items():
                counts = audit(
                    *({"": model}, model, samples, perturbation),
                    taus=self.taus,
                    draws=self.draws,
                    seed=seed,
                    space=space,
                ).counts[""]
                record[name] = (counts.method_right / counts.draws).mean(0).tolist()
        work.write(record, splits.forget, splits.validation)


@dataclass(frozen=True, kw_only=True, eq=False)
class MarginsStage(Stage):
    """Take the margins of one model on forgotten, held-out, retained and validation samples."""

    kind = "margins"

    def compute(self, work: Workspace) -> None:
        """Write the margins on every part that probes read."""
        splits = self.subject.splits()
        heldout = choose_heldout(splits.heldout, splits.forget)
        parts = dict(zip(MARGIN_PARTS, (splits.forget, heldout, splits.retain, splits.validation), strict=True))
        with measured(self.setup.threads) as record:
            model = self.subject.load(self.name, work.parents["model"])
            margins = {
                name: log_odds(forward(model, part), part.y).numpy() if len(part) else np.empty(0)
                for name, part in parts.items()
            }
            write_arrays(work.folder / MARGINS, margins)
        work.write(record, splits.forget, splits.heldout, splits.retain, splits.validation)


@dataclass(frozen=True, kw_only=True, eq=False)
class ProbeStage(Stage):
    """Measure the models of one seed with one probe, the stage's name; `roles` has the role of every label.

    `perturbation` is the one whose bounds the data have, `taus` are its radii, and `radii` those of searches. `recipe`
    is the original's.
    """

    kind = "probe"
    roles: dict[str, Role]
    radii: tuple[float, ...]
    perturbation: str
    taus: tuple[float, ...]
    recipe: Recipe

    def compute(self, work: Workspace) -> None:
        """Measure; the record has the values by label."""
        splits = self.subject.splits()
        with measured(self.setup.threads) as record:
            models = {label: self.subject.load(label, work.parents[label]) for label in self.roles}
            perturbation, space = self.subject.perturbation(self.perturbation)
            evidence = Evidence(
                splits,
                child_seed(self.setup.seed, "witness"),
                self.roles,
                models,
                self.radii,
                space,
                perturbation=perturbation,
                taus=self.taus,
                further_training=self.subject.further_training(self.recipe),
            )
            values = build_probe(self.name).measure(evidence)
            record["values"] = {label: value.record() for label, value in values.items()}
        work.write(record, splits.forget, splits.heldout, splits.test)


@dataclass(frozen=True, kw_only=True, eq=False)
class EnsembleStage(Stage):
    """Measure all rows and seeds together with a probe that reads margins; the parents are SEED/LABEL.

    `roles` has the role of every label.
    """

    kind = "ensemble"
    roles: dict[str, Role]

    def compute(self, work: Workspace) -> None:
        """Measure; the record has "models" by label and seed, or "rows"."""
        splits, probe = self.subject.splits(), build_probe(self.name)
        with measured(self.setup.threads) as record:
            margins: dict[tuple[str, str], dict[str, Any]] = {}
            for name, folder in work.parents.items():
                seed, _, label = name.partition("/")
                margins[label, seed] = read_arrays(folder / MARGINS, MARGIN_PARTS, "margins")
            evidence = Evidence(splits, child_seed(self.setup.seed, "witness"), self.roles, margins=margins)
            if probe.per_seed:
                record["models"] = {}
                for seed, of_seed in evidence.seeds().items():
                    for label, value in probe.measure(of_seed).items():
                        record["models"].setdefault(label, {})[seed] = value.record()
            else:
                record["rows"] = {label: value.record() for label, value in probe.measure(evidence).items()}
        work.write(record, splits.forget, splits.heldout, splits.test, splits.retain, splits.validation)


KINDS = tuple(stage.kind for stage in Stage.__subclasses__())  # the folders of a store


def code_of(settings: Mapping[str, Any]) -> str:
    """Return the fingerprint of the code that decides a stage's result, given what its settings say.

    It is all code that any stage imports: a stage that is computed again in vain costs less than an old number. The
    file of its method, network or perturbation counts too, which may be a plug-in's.
    """
    if "identity" in settings:  # which covers code of the user's
        return code_fingerprint((__name__,))
    components: list[object] = []
    if "method" in settings:
        components.append(METHODS.find(settings["method"]))
    if "model" in settings:
        components.append(MODELS.find(settings["model"]["name"]))
    perturbation = settings.get("perturbation", settings["name"] if "audit" in settings else None)
    if perturbation is not None:
        components.append(PERTURBATIONS.find(perturbation.partition(":")[0]))
    return code_fingerprint((__name__, *(thing.__module__ for thing in components)))


_ONE_AT_A_TIME = threading.Lock()  # torch's thread count and the warnings filter belong to the whole process


@contextmanager
def measured(threads: int, checkpoint: Checkpoint | None = None) -> Iterator[Record]:
    """Run the body with `threads` torch threads; the yielded record gets its seconds and Residuum's warnings.

    Of a stage that went on from its checkpoint they are those of all its sessions.
    """
    record: Record = {}
    with _ONE_AT_A_TIME, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResiduumWarning)
        before, start = torch.get_num_threads(), time.perf_counter()
        torch.set_num_threads(threads)
        try:
            yield record
        finally:
            torch.set_num_threads(before)
    record["seconds"] = time.perf_counter() - start + (checkpoint.before if checkpoint else 0.0)
    record["warnings"] = sorted({str(w.message) for w in caught if issubclass(w.category, ResiduumWarning)})


def printed_progress(what: str, every: float = 30.0) -> Progress | None:
    """Return a callback by which the leader prints, at most once in `every` seconds, how much of it is left."""
    if not devices.leads():
        return None
    then, before = time.monotonic(), -1

    def print_line(done: int, total: int) -> None:
        nonlocal then, before
        now = time.monotonic()
        if before < 0 or done <= before:  # it begins, or goes on from a checkpoint; or a method trains twice
            then, before = now, done
        elif now - then >= every and done < total:
            left = (now - then) / (done - before) * (total - done)
            then, before = now, done
            say(f"{what}: {100 * done // total} %, about {left:.0f} s left")

    return print_line
