"""The stages of a run: pure functions `stage(settings, parents, folder, team)` that leave artefacts in a folder.

`settings` are plain JSON values, `parents` the folders of earlier stages, `folder` an empty one to write to. Every
process of the `team` runs the stage, each in a folder of its own; the leader's is kept.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import nn

from residuum.auditing import audit, first_radius, make_gallery
from residuum.checkpoint import Checkpoint
from residuum.data import load_dataset
from residuum.decision_regions.querying import query_models
from residuum.experiments.parsing import build_perturbation
from residuum.experiments.pretrained import same_file, seen_in_pretraining
from residuum.experiments.settings import DataSettings, ForgetSettings, split_data
from residuum.methods import Context, make_method, unlearn
from residuum.methods import methods as methods_table
from residuum.metrics import Relearning, evaluate, mean_loss
from residuum.models import build_model, init_from, load_weights, save_weights
from residuum.parallel import SINGLE_PROCESS, Team
from residuum.training import Progress, Recipe, TrainingPhase, cross_entropy, fit
from residuum.types import InputError, ResiduumWarning, Samples, Splits, child_seed, request_seed

Settings = Mapping[str, Any]
Folders = Mapping[str, Path]
StageFunction = Callable[[Settings, Folders, Path, Team], None]

MODEL, INITIAL, GALLERY, RECORD = "model.safetensors", "initial.safetensors", "gallery.npz", "record.json"
IDS = "ids.txt"
SCRATCH = "scratch"  # a place that outlives an interrupted stage, where the store offers one
PICTURE = "picture.npz"


def train_stage(settings: Settings, parents: Folders, folder: Path, team: Team = SINGLE_PROCESS) -> None:
    """Train the model of one role: original on the whole training set, the others on the retain set."""
    splits, recipe = _splits(settings), Recipe(**settings["train"])
    seed = child_seed(settings["seed"], settings["role"])
    model = _fresh_model(settings, splits, seed)
    (folder / INITIAL).write_bytes(save(_contiguous(model.state_dict())))  # so that a full disk is an OSError
    model.to(team.device)
    samples = splits.train if settings["role"] == "original" else splits.retain
    with measured(settings["threads"]) as record:
        phases = [TrainingPhase(cross_entropy, main_stream="train")]
        checkpoint = Checkpoint(folder / SCRATCH / "training.pt") if (folder / SCRATCH).is_dir() else None
        record["passes"] = fit(
            model,
            {"train": samples},
            recipe,
            phases,
            seed=seed,
            checkpoint=checkpoint,
            progress=spoken_progress(f"train {settings['role']} (seed {settings['seed']})", team),
            team=team,
        )
    save_weights(model.cpu(), folder / MODEL)
    write_ids(folder, samples)
    write_record(folder, record)


def unlearn_stage(settings: Settings, parents: Folders, folder: Path, team: Team = SINGLE_PROCESS) -> None:
    """Unlearn one request with one method, from the original or from what the method made of it so far."""
    splits = _splits(settings, so_far=False)
    start = load_weights(parents.get("previous", parents["original"]) / MODEL)
    method = make_method(settings["method"], settings["settings"])
    start.to(team.device if method.accelerated else "cpu")
    seed = request_seed(settings["seed"], len(settings.get("earlier", ())) + 1)
    context = Context(seed, initial=load_file(parents["original"] / INITIAL), team=team)
    context.progress = spoken_progress(f"unlearn {settings['label']} (seed {settings['seed']})", team)
    with measured(settings["threads"]) as record:
        model = unlearn(start, splits, method, seed=seed, context=context)
    record |= {"passes": context.passes, "notes": context.notes}
    save_weights(model.cpu(), folder / MODEL)
    write_ids(folder, *(getattr(splits, part) for part in method.reads))
    write_record(folder, record)


def evaluate_stage(settings: Settings, parents: Folders, folder: Path, team: Team = SINGLE_PROCESS) -> None:
    """Measure accuracies, membership inference and, where it is defined, re-learn time of one model."""
    splits, model = _splits(settings), load_weights(parents["model"] / MODEL).to(team.device)
    with measured(settings["threads"]) as record:
        original_loss = None
        if settings["relearn"] is not None:
            original = load_weights(parents["original"] / MODEL).to(team.device)
            original_loss = mean_loss(original, splits.forget, team)
        record["metrics"] = evaluate(
            model,
            splits,
            original_loss=original_loss,
            relearning=Relearning(**(settings["relearn"] or {})),
            seed=child_seed(settings["seed"], "relearn"),
            team=team,
        )
    write_ids(folder, splits.retain, splits.forget, splits.test, splits.forgotten_test)
    write_record(folder, record)


def audit_stage(settings: Settings, parents: Folders, folder: Path, team: Team = SINGLE_PROCESS) -> None:
    """Audit all models of one seed under one perturbation against that seed's re-train, in one pass."""
    splits = _splits(settings)
    models = {label: load_weights(parents[label] / MODEL).to(team.device) for label in settings["labels"]}
    perturbation, seed = build_perturbation(settings["perturbation"]), child_seed(settings["seed"], "audit")
    with measured(settings["threads"]) as record:
        result = audit(
            models,
            models["retrain"],
            splits.forget,
            perturbation,
            **settings["audit"],
            seed=seed,
            progress=spoken_progress(f"audit {settings['perturbation']} (seed {settings['seed']})", team),
            seen={"the retain set": set(splits.retain.ids), **seen_in_pretraining(settings["pretrained"])},
            team=team,
        )
        if not team.leads:
            return
        if len(splits.forget.shape) == 3 and max(settings["audit"]["taus"]) > 0:
            pictures = make_gallery(models, models["retrain"], splits.forget, perturbation, result.counts, seed=seed)
            pictures.save(folder / GALLERY)
    (folder / "counts").mkdir()
    for label, counts in result.counts.items():
        counts.save(folder / "counts" / f"{label}.npz")
    record["audits"] = {
        label: result.measures(label) | {"first_radius": first_radius(counts, exact=result.exact)}
        for label, counts in result.counts.items()
    }
    write_ids(folder, splits.forget)
    write_record(folder, record)


def picture_stage(settings: Settings, parents: Folders, folder: Path, team: Team = SINGLE_PROCESS) -> None:
    """Ask one seed's re-train, unlearned model and control about the plane and about copies of the forget samples."""
    splits = _splits(settings)
    models = {label: load_weights(parents[label] / MODEL) for label in settings["models"]}
    with measured(settings["threads"]) as record:
        picture = query_models(models, splits, seed=settings["seed"], **settings["picture"])
    picture.save(folder / PICTURE)
    write_ids(folder, splits.train)
    write_record(folder, record)


STAGES: dict[str, StageFunction] = {
    "train": train_stage,
    "unlearn": unlearn_stage,
    "evaluate": evaluate_stage,
    "audit": audit_stage,
    "picture": picture_stage,
}


_ONE_AT_A_TIME = threading.Lock()  # torch's thread count and the warnings filter belong to the whole process


# what each stage runs beside its own function; the key follows the imports from here
MODULES = {
    "train": ("residuum.training", "residuum.models", "residuum.data"),
    "unlearn": ("residuum.methods.base", "residuum.data"),
    "evaluate": ("residuum.metrics", "residuum.data"),
    "audit": ("residuum.auditing", "residuum.models", "residuum.data"),
    "picture": ("residuum.decision_regions.querying", "residuum.models", "residuum.data"),
}


def modules_of(kind: str, settings: Settings) -> tuple[str, ...]:
    """Return the modules whose code decides a stage's result; for unlearning, the method's own file among them."""
    own = (methods_table()[settings["method"]].__module__,) if kind == "unlearn" else ()
    return (*MODULES[kind], *own)


def write_ids(folder: Path, *parts: Samples) -> None:
    """Write the ids of all samples that a stage read, so that a store can find what was made with them."""
    ids = sorted({sample_id for part in parts for sample_id in part.ids})
    (folder / IDS).write_text("".join(f"{sample_id}\n" for sample_id in ids), encoding="utf-8")


@contextmanager
def measured(threads: int) -> Iterator[dict[str, Any]]:
    """Run the body with `threads` torch threads; the yielded record gets its seconds and Residuum's warnings."""
    record: dict[str, Any] = {}
    with _ONE_AT_A_TIME, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResiduumWarning)
        before, start = torch.get_num_threads(), time.perf_counter()
        torch.set_num_threads(threads)
        try:
            yield record
        finally:
            torch.set_num_threads(before)
    record["seconds"] = time.perf_counter() - start
    record["warnings"] = sorted({str(w.message) for w in caught if issubclass(w.category, ResiduumWarning)})


def spoken_progress(what: str, team: Team = SINGLE_PROCESS, every: float = 30.0) -> Progress | None:
    """Return a callback by which the leader says, at most once in `every` seconds, how much of it is left."""
    if not team.leads:
        return None
    start = last = time.monotonic()

    def speak(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= every and 0 < done < total:
            last, left = now, (now - start) / done * (total - done)
            print(f"residuum: {what}: {100 * done // total} %, about {left:.0f} s left", file=sys.stderr)  # noqa: T201

    return speak


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Write the stage's record as JSON; NaN and Infinity are refused."""
    text = json.dumps(record, indent=1, sort_keys=True, allow_nan=False)
    (folder / RECORD).write_text(text + "\n", encoding="utf-8")


def read_record(folder: Path) -> dict[str, Any]:
    """Return the record that a stage left in its folder."""
    record: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    return record


def _splits(settings: Settings, so_far: bool = True) -> Splits:
    requests = [*settings.get("earlier", ()), settings["forget"]]
    cut, asked = (json.dumps(part, sort_keys=True) for part in (settings["data"], requests))
    return _cached_splits(cut, asked, so_far or len(requests) == 1, settings["root"], settings["fingerprint"])


@lru_cache(maxsize=2)
def _cached_splits(data: str, asked: str, so_far: bool, root: str | None, fingerprint: str) -> Splits:
    cut = DataSettings.model_validate_json(data)
    dataset = load_dataset(cut.name, root=root, size=cut.size)
    if dataset.fingerprint != fingerprint:  # written to since, or another machine's
        raise InputError(f"data set {cut.name} is not the one the run was planned with; put it back or start again")
    *earlier, forget = (ForgetSettings.model_validate(request) for request in json.loads(asked))
    return split_data(dataset, cut, forget, earlier, so_far=so_far)


def _fresh_model(settings: Settings, splits: Splits, seed: int) -> nn.Module:
    spec = settings["model"]
    constants: dict[str, Any] = {"mean": tuple(spec["mean"]), "std": tuple(spec["std"])}
    model = build_model(spec["name"], splits.train.shape, splits.classes, width=spec["width"], seed=seed, **constants)
    weights = spec["init_from"]
    return model if weights is None else init_from(model, same_file(weights))


def _contiguous(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.contiguous() for name, value in state.items()}
