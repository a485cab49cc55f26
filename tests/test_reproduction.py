"""The records beside docs/reproduction.md: each has its log and the counts that all its numbers come from."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from residuum.pack import verify

FOLDER = Path(__file__).parents[1] / "docs" / "reproduction"
RUNS = sorted(path for path in FOLDER.iterdir() if path.is_dir())


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


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_every_number_of_a_record_comes_out_of_its_counts(folder):
    found = verify(folder / "evidence.zip")
    assert found.sound, found.differences[:5]
    record = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    with zipfile.ZipFile(folder / "evidence.zip") as pack:
        packed = json.loads(pack.read("results.json"))
    wanted, values = point_values(record), point_values(packed)
    assert values.keys() == wanted.keys()
    for where, expected in wanted.items():
        assert_allclose(np.array(values[where], float), np.array(expected, float), rtol=1e-9, err_msg=str(where))
    assert {label: verdict["word"] for label, verdict in packed["verdicts"].items()} == {
        label: verdict["word"] for label, verdict in record["verdicts"].items()
    }


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_a_record_has_the_log_of_its_run(folder):
    said = (folder / "log.txt").read_text(encoding="utf-8")
    assert said.splitlines()[-1].startswith(f"runs/{folder.name}: ")
    assert not any(path in said for path in ("/tmp/", "/root/", "/home/"))


def test_evidence_is_small_and_without_weights():
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 15e6
    assert {path.suffix for path in files} == {".json", ".svg", ".txt", ".zip"}
