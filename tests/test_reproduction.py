"""The records beside docs/benchmarks/cifar10.md: each has its log and the counts that all its numbers come from."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from benchmarks import reproduction
from numpy.testing import assert_allclose

from residuum import Run
from residuum.pack import verify

FOLDER = Path(__file__).parents[1] / "docs" / "reproduction"
RUNS = sorted(path for path in FOLDER.iterdir() if path.is_dir())
TRAINED = ("original", "retrain", "control", "control_2")
ACCURACIES = ("unlearn", "retain", "test")


def record_of(name):
    return json.loads((FOLDER / name / "results.json").read_text(encoding="utf-8"))


def point_values(record):
    """Return r, G, M and accuracies of each row and seed; intervals of resampled samples depend on their order."""
    return {
        (label, seed, audit): [
            *one["audits"][audit]["residual_knowledge"]["pooled"],
            *one["audits"][audit]["class_knowledge"]["value"],
            *one["audits"][audit]["memory"]["value"],
            *(one["metrics"][name] for name in ("retain_accuracy", "unlearn_accuracy", "test_accuracy")),
        ]
        for label, row in record["methods"].items()
        for seed, one in row["per_seed"].items()
        for audit in one["audits"]
    }


SHORT = ("cifar10", "vgg11")  # the other packs are read by the long tests
PACKS = [pytest.param(run, marks=() if run.name in SHORT else pytest.mark.long, id=run.name) for run in RUNS]


@pytest.mark.parametrize("folder", PACKS)
def test_every_number_of_a_record_comes_out_of_its_counts(folder):
    found = verify(folder / "evidence.zip", accept_page=True)  # pages are of the version that made them
    assert found.sound, found.differences[:5]
    record = record_of(folder.name)
    with zipfile.ZipFile(folder / "evidence.zip") as pack:
        packed = json.loads(pack.read("results.json"))
    wanted, values = point_values(record), point_values(packed)
    assert values.keys() == wanted.keys()
    for where, expected in wanted.items():
        assert_allclose(np.array(values[where], float), np.array(expected, float), rtol=1e-9, err_msg=str(where))
    assert {label: row["verdict"] for label, row in packed["judgments"].items()} == {
        label: row["verdict"] for label, row in record["judgments"].items()
    }


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_a_record_has_the_log_of_its_run(folder):
    said = (folder / "log.txt").read_text(encoding="utf-8")
    assert said.splitlines()[-1].startswith(f"runs/{folder.name}: ")
    assert not any(path in said for path in ("/tmp/", "/root/", "/home/"))


def test_evidence_is_small_and_without_weights():
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 10e6
    assert {path.suffix for path in files} == {".json", ".svg", ".txt", ".zip"}


def test_a_setting_changes_an_accuracy_that_it_moves_by_more_than_re_trained_models_differ():
    record = record_of("small-cifar5-left-open")
    rows = record["methods"]
    means = {
        label: np.array([row["summary"][f"{name}_accuracy"]["mean"] for name in ACCURACIES])
        for label, row in rows.items()
    }
    apart = np.maximum(1.0, np.ptp([means[label] for label in TRAINED[1:]], axis=0))
    by_method = {}
    for label, row in rows.items():
        if label not in TRAINED:
            by_method.setdefault(row["method"], []).append(label)
    expected = [
        (
            method,
            {name for name, far in zip(ACCURACIES, abs(means[label] - means[labels[0]]) > apart, strict=True) if far},
        )
        for method, labels in by_method.items()
        for label in labels
    ]
    expected += [(label.partition(":")[0], set()) for label in record.get("failed", {})]
    run = Run.load(FOLDER / "small-cifar5-left-open")
    lines = [line.split(" | ") for line in reproduction.TABLES["changes"](run, "gaussian")]
    found = [(line[0].strip("| "), {*line[-1].strip(" |").split(", ")} & {*ACCURACIES}) for line in lines[2:]]
    assert found == expected
    assert any(changed for _, changed in expected)
    assert any("nothing" in line[-1] for line in lines)
