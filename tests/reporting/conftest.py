"""Small runs made by hand: counts drawn with known probabilities, measured by the audit's own functions."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field

import numpy as np
import pytest

from residuum.auditing.measures import measure
from residuum.core.counts import Counts
from residuum.core.roles import Role, trained_roles
from residuum.data import DATASETS
from residuum.judging import judged_record
from residuum.metrics import summarize
from residuum.record import Results
from residuum.record.run import Run, load_runs

TAUS = [0.0, 0.1, 0.2]
HOSTILE_CLASS = "<script>alert(1)</script>"
HOSTILE_ROW = '<img src=x onerror="alert(1)">'


@dataclass(frozen=True)
class Row:
    """One row: how often it is right on perturbed forgotten samples, its metrics (per cent) and its passes."""

    right: float = 0.6
    test: float = 95.0
    unlearn: float = 8.0
    passes: int = 100
    relearn: int | None = 3


ROWS = {
    "original": Row(0.8, unlearn=0.0, relearn=None),
    "retrain": Row(),
    "control": Row(),
    "gd": Row(0.78, passes=25),
    "rurk": Row(0.6, passes=30),
}


@dataclass(frozen=True)
class Made:
    """What to make a run of."""

    rows: dict = field(default_factory=lambda: dict(ROWS))
    seeds: tuple = (1, 2, 3)
    form: str = "sample"
    draws: int = 400
    samples: int = 40
    perturbations: tuple = ("gaussian",)
    enumerated: bool = False
    data: str = "digits"
    name: str = "digits"
    reference: float = 0.6
    class_names: tuple = ()
    gallery: bool = False


def made_counts(made, label, rng_seed):
    """Reference and model see the same draws: an unlearned model agrees with the reference where it can."""
    rng = np.random.default_rng(rng_seed)
    shape = (made.samples, len(TAUS), made.draws)
    luck = rng.random(shape)
    reference = luck < made.reference
    model = luck < made.rows[label].right
    draws = np.full(shape[:2], made.draws)
    draws[:, 0] = 1
    first = np.zeros(shape, bool)
    first[:, 0, :1] = True
    first[:, 1:] = True
    model, reference = model & first, reference & first
    return Counts.of(
        [f"train/{made.class_names[0] if made.class_names else 'eight'}/{i:04d}" for i in range(made.samples)],
        np.zeros(made.samples, int),
        TAUS,
        draws=draws,
        method_right=model.sum(2),
        reference_right=reference.sum(2),
        both_right=(model & reference).sum(2),
        same_prediction=((model == reference) & first).sum(2),
    )


def made_metrics(row, seed):
    relearn = None if row.relearn is None else {"value": row.relearn, "censored": False, "threshold": 0.1}
    return {
        "retain_accuracy": 99.0 + seed / 10,
        "unlearn_accuracy": row.unlearn,
        "test_accuracy": row.test + seed / 7,
        "mia_accuracy": 30.0 - seed,
        "mia_entropy_accuracy": 30.0,
        "relearn_epochs": relearn,
    }


def write_gallery(made, folder, seed):
    rng = np.random.default_rng(seed)
    n, shape = 6, (6, 2, 6)
    folder.mkdir(exist_ok=True)
    labels = list(made.rows)
    np.savez(
        folder / f"{seed}.npz",
        ids=np.array([f"train/{made.class_names[0] if made.class_names else 'eight'}/{i:04d}" for i in range(n)]),
        labels=np.zeros(n, int),
        taus=np.array(TAUS[1:]),
        rows=np.array(labels),
        images=rng.integers(0, 256, (*shape, 1, 8, 8), dtype=np.uint8),
        reference_right=rng.random(shape) < 0.3,
        right=rng.random((len(labels), *shape)) < 0.7,
    )


def write_made(made, folder):
    """Write a run as `residuum run` does, without any weights; return its folder."""
    metrics = {label: {str(s): made_metrics(row, s) for s in made.seeds} for label, row in made.rows.items()}
    methods = {}
    for label, row in made.rows.items():
        per_seed = {}
        for seed in made.seeds:
            audits = {}
            for place, name in enumerate(made.perturbations):
                counts = made_counts(made, label, 100 * seed + place)
                path = folder / "counts" / str(seed) / file_label(label) / f"{name}.npz"
                path.parent.mkdir(parents=True, exist_ok=True)
                counts.save(path)
                settings = {"confidence": 0.95, "enumerated": made.enumerated, "noise_check": f"check{seed}"}
                measured = measure(counts, bootstrap_seed=7, exact=made.enumerated)
                audits[name] = {"settings": settings, **measured, "counts": path.relative_to(folder).as_posix()}
            per_seed[str(seed)] = {
                "metrics": metrics[label][str(seed)],
                "seconds": 1.0,
                "passes": row.passes,
                "audits": audits,
            }
        methods[label] = {
            "role": trained_roles(9).get(label, Role.METHOD),
            "method": label,
            "settings": {"lr": 0.1},
            "summary": summarize(metrics[label], metrics["retrain"]),
            "per_seed": per_seed,
        }
        if made.gallery:
            for seed in made.seeds:
                write_gallery(made, folder / "gallery", seed)
    record = {
        "schema": Results.SCHEMA,
        "created": "2026-01-01T00:00:00+00:00",
        "versions": {"residuum": "0.1.0"},
        "scenario": {
            "name": made.name,
            "form": made.form,
            "class_names": list(made.class_names),
            "public_data": made.data in DATASETS,
            "settings": {
                "data": {"name": made.data},
                "forget": {"forget_class": 0, "forget_fraction": None if made.form == "class" else 0.5},
                "model": {"name": "cnn", "width": 2},
                "audit": {"perturbations": list(made.perturbations)},
            },
        },
        "seeds": list(made.seeds),
        "warnings": ["gd: a warning"],
        "notes": [],
        "methods": methods,
    }
    (folder / "results.json").write_text(judged_record(Results.model_validate(record)).text())
    return folder


def changed(run, edit):
    """Return the run with its record, as plain values, edited, and judged as it then is."""
    record = run.record.as_dict()
    edit(record)
    return Run(run.folder, run.name, judged_record(Results.model_validate(record)))


def file_label(label):
    return "".join(c if c.isalnum() else "_" for c in label)


@pytest.fixture
def change():
    """Return a function that edits a run's record."""
    return changed


@pytest.fixture
def make_run(tmp_path):
    """Return a function that writes a run and reads it back."""
    made = []

    def make(**changes):
        folder = tmp_path / f"run{len(made)}"
        made.append(folder)
        folder.mkdir()
        return load_runs([write_made(Made(**changes), folder)])[0]

    make.rows = ROWS
    return make


@pytest.fixture(scope="session")
def demo_folder(tmp_path_factory):
    """A run with all fifteen kinds of rows, two perturbations, a gallery, and names that try to be markup."""
    folder = tmp_path_factory.mktemp("demo")
    extra = {f"method_{k}": Row(0.55 + 0.02 * k, test=94 + 0.1 * k, passes=3 * k) for k in range(9)}
    rows = ROWS | extra | {HOSTILE_ROW: Row(0.7)}
    return write_made(
        Made(
            rows=rows,
            perturbations=("gaussian", "fgsm"),
            class_names=(HOSTILE_CLASS,),
            gallery=True,
            draws=40,
            samples=30,
        ),
        folder,
    )


@pytest.fixture
def demo_run(demo_folder):
    """The same, read back."""
    return Run.load(demo_folder)


def browser_problem():
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "playwright is not installed: pip install playwright"
    return None if chromium() else "no chromium found: apt-get install chromium"


def chromium():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def browser():
    """Return a real browser; without one the tests are skipped, but never on CI."""
    problem = browser_problem()
    if problem:
        if os.environ.get("CI") == "true":
            pytest.fail(f"browser tests must run on CI: {problem}")
        pytest.skip(problem)
    from playwright.sync_api import sync_playwright

    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=chromium(), args=flags)
        yield opened
        opened.close()
