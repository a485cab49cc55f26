"""The stages of a run: pure functions `stage(settings, parents, folder)` that leave artefacts in a folder.

`settings` are typed and decide the result, `parents` are the folders of earlier stages, `folder` is an empty one to
write to. Of several processes, each runs the stage in a folder of its own; the leader's is kept.
"""

import json
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import nn

from residuum.auditing import AuditResult, Counts, audit, first_radius, make_gallery, of_unaffected_classes
from residuum.auditing.heldout import choose_heldout
from residuum.auditing.probes import Evidence, log_odds
from residuum.core import devices
from residuum.core.console import say
from residuum.core.errors import InputError, MethodError, ResiduumWarning
from residuum.core.files import read_arrays, write_arrays
from residuum.core.samples import Samples, Splits
from residuum.core.seeds import child_seed, request_seed
from residuum.metrics import Relearning, accuracy, evaluate, mean_loss
from residuum.models import MODELS, build_model, forward, init_from, save_weights
from residuum.perturbations import PERTURBATIONS
from residuum.studies.artifacts import SealedCheckpoint as Checkpoint
from residuum.studies.artifacts import code_fingerprint
from residuum.studies.parsing import build_probe
from residuum.studies.settings import (
    AuditStageSettings,
    EnsembleSettings,
    EvaluateSettings,
    GivenSettings,
    MarginsSettings,
    ProbeSettings,
    RetrainSettings,
    ScoreSettings,
    Subject,
    TrainSettings,
    UnlearnSettings,
)
from residuum.studies.subjects import MODEL, LiveSubject, Made
from residuum.training import Progress, TrainingPhase, cross_entropy, fit
from residuum.unlearning import METHODS, Origin, make_method, unlearn

Folders = Mapping[str, Path]
Record = dict[str, Any]

INITIAL = "initial.safetensors"
GALLERY, MARGINS, RECORD = "gallery.npz", "margins.npz", "record.json"
MARGIN_PARTS = ("forget", "heldout", "retain", "validation")
IDS = "ids.txt"
EARLIER = ".earlier"  # among the parents: the audit that this one continues; no row can be called so
SCRATCH = ".scratch"  # among the parents, too: a folder that outlives an interrupted stage, where the store has one


def train_stage(settings: TrainSettings, parents: Folders, folder: Path) -> None:
    """Train the model of one role: original on the whole training set, the others on the retain set."""
    splits, seed = settings.subject.splits(), child_seed(settings.seed, settings.name)
    model = _fresh_model(settings, splits, seed)
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    (folder / INITIAL).write_bytes(save(weights))  # so that a full disk is an OSError
    model.to(devices.device())
    samples = splits.train if settings.name == "original" else splits.retain
    checkpoint = _checkpoint(parents, "training")
    with measured(settings.threads, checkpoint) as record:
        record["passes"] = fit(
            model,
            {"train": samples},
            settings.recipe,
            [TrainingPhase(cross_entropy, main_stream="train")],
            seed=seed,
            checkpoint=checkpoint,
            progress=printed_progress(f"train {settings.name} (seed {settings.seed})"),
        )
    save_weights(model.cpu(), folder / MODEL)
    write_record(folder, record, samples)


def unlearn_stage(settings: UnlearnSettings, parents: Folders, folder: Path) -> None:
    """Unlearn one request with one method, from the original or from what the method made of it so far."""
    splits = settings.subject.splits(combined=False)
    start = settings.subject.load(settings.name, parents.get("previous", parents["original"]))
    method = make_method(settings.method, settings.settings)
    start.to(devices.device() if method.accelerated else "cpu")
    seed = request_seed(settings.seed, len(settings.subject.requests))
    origin = Origin(settings.recipe, load_file(parents["original"] / INITIAL))
    if settings.pretrained:
        origin = replace(origin, seen=settings.pretrained.ids_seen())
    progress = printed_progress(f"unlearn {settings.name} (seed {settings.seed})")
    with measured(settings.threads) as record:
        try:
            done = unlearn(start, splits, method, seed=seed, origin=origin, progress=progress)
        except InputError as error:  # what the method does not like is its row's failure, not the run's
            raise MethodError(str(error)) from error
    record |= {"passes": done.passes, "notes": done.notes, "unchanged": done.unchanged}
    save_weights(done.model.cpu(), folder / MODEL)
    write_record(folder, record, *(getattr(splits, part) for part in method.parts_read))


def given_stage(settings: GivenSettings, parents: Folders, folder: Path) -> None:
    """Take a model that the user brings as it is, with what is known of how it was made."""
    subject = _live(settings.subject)
    made, splits = subject.given[settings.name], subject.splits()
    save_weights(made.model, folder / MODEL)
    samples = splits.retain if settings.retrained else splits.train
    write_record(folder, _made_record(made, made.warnings), samples)


def retrain_stage(settings: RetrainSettings, parents: Folders, folder: Path) -> None:
    """Retrain a model without the forget set, as the user says."""
    subject = _live(settings.subject)
    with measured(settings.threads) as record:
        made = subject.training.retrain(settings.name)
    subject.save(settings.name, made, folder)
    write_record(folder, record | _made_record(made, record["warnings"]), subject.splits().retain)


def _live(subject: Subject) -> LiveSubject:
    if not isinstance(subject, LiveSubject):
        raise TypeError(f"expected the subject of a request, got {type(subject).__name__}")
    return subject


def _made_record(made: Made, warnings: Sequence[str]) -> Record:
    """Return what the record of a stage says of a model and its cost."""
    facts = {"seconds": made.seconds, "passes": made.passes, "notes": dict(made.notes), "unchanged": made.unchanged}
    return facts | {"warnings": list(warnings)}


def evaluate_stage(settings: EvaluateSettings, parents: Folders, folder: Path) -> None:
    """Measure accuracies, membership inference and, where it is defined, re-learn time of one model."""
    splits, model = (
        settings.subject.splits(),
        settings.subject.load(settings.name, parents["model"]).to(devices.device()),
    )
    with measured(settings.threads) as record:
        original_loss = None
        if settings.relearn is not None:
            original = settings.subject.load("original", parents["original"]).to(devices.device())
            original_loss = mean_loss(original, splits.forget)
        record["metrics"] = evaluate(
            model,
            splits,
            original_loss=original_loss,
            relearning=settings.relearn or Relearning(),
            seed=child_seed(settings.seed, "relearn"),
        )
    write_record(folder, record, splits.retain, splits.forget, splits.test, splits.forgotten_test)


def audit_stage(settings: AuditStageSettings, parents: Folders, folder: Path) -> None:
    """Audit the models of one seed under one perturbation against that seed's reference, in one pass.

    A further round adds its draws to those of the one before; what that says of decided rows stays as it is.
    """
    splits, taus = settings.subject.splits(), settings.audit.radii(settings.name)
    models = {label: settings.subject.load(label, parents[label]).to(devices.device()) for label in settings.labels}
    (perturbation, space), seed = settings.subject.perturbation(settings.name), child_seed(settings.seed, "audit")
    checkpoint = _checkpoint(parents, f"audit-rank-{devices.rank()}-of-{devices.world_size()}")
    with measured(settings.threads, checkpoint) as record:
        result = audit(
            {label: model for label, model in models.items() if label not in settings.decided},
            models["retrain"],
            splits.forget,
            perturbation,
            taus=taus,
            draws=settings.audit.budget(settings.first_draw),
            confidence=settings.audit.confidence,
            crafted_on=settings.audit.crafted_on,
            seed=seed,
            heldout=splits.heldout,
            original=models["original"],
            progress=printed_progress(f"audit {settings.name} (seed {settings.seed})"),
            checkpoint=checkpoint,
            seen={
                "the retain set": set(splits.retain.ids),
                **(settings.pretrained.seen() if settings.pretrained else {}),
            },
            space=space,
        )
        if not devices.leads():
            return
        audits: Record = {}
        if EARLIER in parents:
            earlier, audits = _earlier_audit(parents[EARLIER], settings.labels)
            result = earlier.followed_by(result)
        if len(splits.forget.shape) == 3 and max(taus) > 0 and space.at is None:
            pictures = make_gallery(
                models, models["retrain"], splits.forget, perturbation, result.counts, seed=seed, space=space
            )
            pictures.save(folder / GALLERY)
    for kind, by_label in (("counts", result.counts), ("heldout", result.heldout)):
        (folder / kind).mkdir()
        for label, counts in by_label.items():
            counts.save(folder / kind / f"{label}.npz")
    drawn = [label for label in settings.labels if label not in settings.decided]
    record["audits"] = audits | {label: audit_record(result, label, splits) for label in drawn}
    record["warnings"] = sorted({*record["warnings"], *result.warnings})
    write_record(folder, record, splits.forget, next(iter(result.heldout.values())))


def _earlier_audit(folder: Path, labels: Sequence[str]) -> tuple[AuditResult, Record]:
    """Return the audit that an earlier round left, and what its record says of each row."""
    record = read_record(folder)
    counts, heldout = (
        {label: Counts.load(folder / kind / f"{label}.npz") for label in labels} for kind in ("counts", "heldout")
    )
    settings = record["audits"]["retrain"]["settings"]
    return AuditResult(counts, settings, record["warnings"], settings["enumerated"], heldout), record["audits"]


def audit_record(result: AuditResult, label: str, splits: Splits) -> Record:
    """Return what results.json says of one row's audit."""
    found = result.measures(label) | {"first_radius": first_radius(result.counts[label], exact=result.exact)}
    left_out = [splits.class_names[int(number)] for number in found["heldout"]["left_out"]]
    return found | {"heldout": found["heldout"] | {"left_out": left_out}}


def score_stage(settings: ScoreSettings, parents: Folders, folder: Path) -> None:
    """Measure how often one model is right on perturbed copies, at each radius, and its validation accuracy."""
    splits, model = (
        settings.subject.splits(),
        settings.subject.load(settings.name, parents["model"]).to(devices.device()),
    )
    unaffected = of_unaffected_classes(splits.validation, splits.train, splits.forget)
    shown = {"forgotten": splits.forget} | ({"unaffected": unaffected} if settings.level and len(unaffected) else {})
    options: Record = settings.model_dump(include={"taus", "draws"}) | {"seed": child_seed(settings.seed, "score")}
    perturbation, options["space"] = settings.subject.perturbation(settings.perturbation)
    with measured(settings.threads) as record:
        record["validation_accuracy"] = accuracy(model, splits.validation)
        for name, samples in shown.items():
            alone = audit({"": model}, model, samples, perturbation, **options)
            record[name] = (alone.counts[""].method_right / alone.counts[""].draws).mean(0).tolist()
    write_record(folder, record, splits.forget, splits.validation)


def margins_stage(settings: MarginsSettings, parents: Folders, folder: Path) -> None:
    """Write the margins of one model on every part that probes read."""
    splits = settings.subject.splits()
    heldout = choose_heldout(splits.heldout, splits.forget)
    with measured(settings.threads) as record:
        model = settings.subject.load(settings.name, parents["model"])
        parts = dict(zip(MARGIN_PARTS, (splits.forget, heldout, splits.retain, splits.validation), strict=True))
        margins = {
            name: log_odds(forward(model, part), part.y).numpy() if len(part) else np.empty(0)
            for name, part in parts.items()
        }
        write_arrays(folder / MARGINS, margins)
    write_record(folder, record, splits.forget, splits.heldout, splits.retain, splits.validation)


def probe_stage(settings: ProbeSettings, parents: Folders, folder: Path) -> None:
    """Measure the models of one seed with one probe; the record has the values by label."""
    splits = settings.subject.splits()
    with measured(settings.threads) as record:
        models = {label: settings.subject.load(label, parents[label]) for label in settings.roles}
        _, space = settings.subject.perturbation(settings.perturbation)
        of_probe = child_seed(settings.seed, "witness")
        evidence = Evidence(splits, of_probe, settings.roles, models, settings.radii, space)
        values = build_probe(settings.name).measure(evidence)
        record["values"] = {label: value.record() for label, value in values.items()}
    write_record(folder, record, splits.forget, splits.heldout, splits.test)


def ensemble_stage(settings: EnsembleSettings, parents: Folders, folder: Path) -> None:
    """Measure the models of all seeds by their margins; the record has "models" by label and seed, or "rows"."""
    splits, probe = settings.subject.splits(), build_probe(settings.name)
    with measured(settings.threads) as record:
        margins: dict[tuple[str, str], dict[str, Any]] = {}
        for name in (name for name in parents if name != SCRATCH):
            seed, _, label = name.partition("/")
            margins[label, seed] = read_arrays(parents[name] / MARGINS, MARGIN_PARTS, "margins")
        evidence = Evidence(splits, child_seed(settings.seed, "witness"), settings.roles, margins=margins)
        if probe.per_seed:
            record["models"] = {}
            for seed, of_seed in evidence.seeds().items():
                for label, value in probe.measure(of_seed).items():
                    record["models"].setdefault(label, {})[seed] = value.record()
        else:
            record["rows"] = {label: value.record() for label, value in probe.measure(evidence).items()}
    write_record(folder, record, splits.forget, splits.heldout, splits.test, splits.retain, splits.validation)


STAGES: dict[str, Callable[..., None]] = {
    "train": train_stage,
    "unlearn": unlearn_stage,
    "given": given_stage,
    "retrain": retrain_stage,
    "evaluate": evaluate_stage,
    "audit": audit_stage,
    "score": score_stage,
    "margins": margins_stage,
    "probe": probe_stage,
    "ensemble": ensemble_stage,
}
_ONE_AT_A_TIME = threading.Lock()  # torch's thread count and the warnings filter belong to the whole process


def code_of(settings: Mapping[str, Any]) -> str:
    """Return the fingerprint of the code that decides a stage's result, given what its settings say (`content`).

    It is all code that any stage imports: a stage that is computed again in vain costs less than an old number. The
    file of its method, network or perturbation counts too, which may be a plug-in's.
    """
    if "identity" in settings:  # which covers code of the user's
        return code_fingerprint((__name__,))
    own: list[object] = []
    if "method" in settings:
        own.append(METHODS.find(settings["method"]))
    if "model" in settings:
        own.append(MODELS.find(settings["model"]["name"]))
    perturbation = settings.get("perturbation", settings["name"] if "audit" in settings else None)
    if perturbation is not None:
        own.append(PERTURBATIONS.find(perturbation.partition(":")[0]))
    return code_fingerprint((__name__, *(thing.__module__ for thing in own)))


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


def write_record(folder: Path, record: Mapping[str, Any], *read: Samples | Counts) -> None:
    """Write the stage's record as JSON, which has no NaN or Infinity, and the ids of all samples that it read.

    By the ids a store can find what was made with them.
    """
    text = json.dumps(record, indent=1, sort_keys=True, allow_nan=False)
    (folder / RECORD).write_text(text + "\n", encoding="utf-8")
    ids = sorted({sample_id for part in read for sample_id in part.ids})
    (folder / IDS).write_text("".join(f"{sample_id}\n" for sample_id in ids), encoding="utf-8")


def read_record(folder: Path) -> Record:
    """Return the record that a stage left in its folder."""
    record: Record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    return record


def _checkpoint(parents: Folders, name: str) -> Checkpoint | None:
    return Checkpoint(parents[SCRATCH] / f"{name}.pt") if SCRATCH in parents else None


def _fresh_model(settings: TrainSettings, splits: Splits, seed: int) -> nn.Module:
    model = build_model(
        settings.model.name,
        splits.train.shape,
        splits.classes,
        width=settings.model.width,
        seed=seed,
        mean=settings.mean,
        std=settings.std,
    )
    return model if settings.init_from is None else init_from(model, settings.init_from.checked_path())
