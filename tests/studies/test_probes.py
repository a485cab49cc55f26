"""Probes in a run: what they need is planned, their numbers stand in the record and in every view."""

import csv
import re
import subprocess
import sys

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from residuum import run
from residuum.auditing.heldout import choose_heldout
from residuum.core.errors import InputError
from residuum.models import forward, load_weights
from residuum.record import Results
from residuum.reporting import report
from residuum.studies import Study, plan
from residuum.studies.estimates import work_left

SMALL = {
    "data.train_size": 200,
    "data.test_size": 120,
    "data.validation_size": 30,
    "train.epochs": 8,
    "relearn.epochs": 1,
    "audit.draws": 5,
    "audit.taus.gaussian": [0.0, 0.1],
    "audit.taus.pgd": [0.0, 0.04],
    "gd.epochs": 1,
    "references": 2,
}
MEASURES = "recovery,depth,worst_case:restarts=1,features,durability:draws=3,rmia,klom,ulira"


@pytest.fixture(scope="module")
def asked():
    return Study.create("digits", methods="gd", seeds=[1, 2], overrides=SMALL | {"measures": MEASURES})


@pytest.fixture(scope="module")
def finished(asked, tmp_path_factory):
    folder = tmp_path_factory.mktemp("probes")
    done = run(asked, store=folder / "store", out=folder / "out")
    report(done)
    return done, folder


def test_every_row_has_every_probe_and_the_record_reads_back(finished, asked):
    _done, folder = finished
    record = Results.load(folder / "out")
    for label in asked.labels:
        assert list(record.methods[label].probes) == MEASURES.split(",")
    said = record.methods["gd"].probes
    assert said["recovery"].retrained == 6  # re-train and control of both seeds, and both further references
    assert said["depth"].retrained == 6
    assert said["worst_case:restarts=1"].retrained == 2  # controls alone: their values are against re-train
    assert said["features"].retrained == said["durability:draws=3"].retrained == said["rmia"].retrained == 6
    treated = said["durability:draws=3"].model_extra
    assert "finetune_recognition_retrained_after" in treated
    assert treated["distance"] > 0
    assert "average_recognition_p" not in treated
    assert said["klom"].note == "expected at least 50 unlearned and 50 retrained models, got 2 and 6"
    assert record.methods["control"].probes["ulira"].note.endswith("got 2 and 4")
    assert record.methods["retrain"].probes["worst_case:restarts=1"].value is None
    assert 0 <= record.methods["gd"].per_seed["1"].probes["recovery"].value <= 1


def test_rmia_is_that_of_a_script_that_reads_the_stored_models(finished, asked):
    done, folder = finished
    splits = asked.splits()
    heldout = choose_heldout(splits.heldout, splits.forget)

    def probabilities(path):
        model = load_weights(path)
        parts = [forward(model, s).double().softmax(1).gather(1, s.y[:, None])[:, 0] for s in (splits.forget, heldout)]
        return np.concatenate([part.numpy() for part in parts])

    models = {
        (label, seed): probabilities(folder / "out" / "models" / seed / f"{label}.safetensors")
        for label in ("gd", "retrain", "control")
        for seed in ("1", "2")
    }
    trained = {stage.setup.seed: stage for stage in _references(asked)}
    further = [
        probabilities(folder / "store" / "train" / stage.key / "model.safetensors") for stage in trained.values()
    ]
    innocent = [p for (label, _), p in models.items() if label != "gd"] + further
    q = models["gd", "1"] / (0.65 * np.mean(innocent, axis=0) + 0.35)
    wanted = roc_auc_score([1] * len(splits.forget) + [0] * len(heldout), q)
    assert done.record.methods["gd"].per_seed["1"].probes["rmia"].value == pytest.approx(wanted, abs=1e-9)


def _references(study):
    stages = [stage for own in plan(study) for stage in own.stages]
    return [stage for stage in stages if stage.kind == "train" and stage.name == "reference"]


def test_margins_are_log_odds_of_the_true_label(finished, asked):
    _, folder = finished
    last = plan(asked)[-1]
    stage = last.margins["1/gd"]
    splits = asked.splits()
    with np.load(folder / "store" / "margins" / stage.key / "margins.npz") as stored:
        found = stored["forget"]
    model = load_weights(folder / "out" / "models" / "1" / "gd.safetensors")
    p = forward(model, splits.forget).double().softmax(1).gather(1, splits.forget.y[:, None])[:, 0].numpy()
    assert expit(found) == pytest.approx(p, abs=1e-12)


def test_other_seeds_share_the_references(asked):
    other = Study.create("digits", methods="rurk", seeds=[5], overrides=SMALL | {"measures": "rmia"})
    assert {stage.key for stage in _references(other)} == {stage.key for stage in _references(asked)}
    assert len({stage.key for stage in _references(asked)}) == 2


def test_table_csv_and_page_show_them(finished):
    done, folder = finished
    page = (folder / "out" / "report.html").read_text(encoding="utf-8")
    assert "Other probes" in page
    regions = re.findall(r'<(?:section|nav|[^<>]* role="region")[^<>]* aria-label="([^"]+)"', page)
    assert {"Other probes", "Values of the probes", "Treatments of durability"} <= set(regions)
    assert sorted(regions) == sorted(set(regions))  # a screen reader lists them by name
    assert "averaging with the original" in page
    assert "Whether it stays forgotten" in page or "recognition goes from" in page
    with (folder / "out" / "table.csv").open(encoding="utf-8") as file:
        lines = {line["model"]: line for line in csv.DictReader(file)}
    assert float(lines["gd"]["depth"]) == done.record.methods["gd"].probes["depth"].value
    assert lines["gd"]["rmia_found"] in ("True", "False")


def test_the_cost_is_known_before(asked, tmp_path):
    work = work_left([asked], tmp_path / "store", [plan(asked)])
    assert work.seconds["probe"] > 0
    assert "probe" in str(work)


def test_a_run_without_them_plans_and_shows_nothing():
    plain = Study.create("digits", methods="gd", seeds=[1], overrides={**SMALL, "references": 3})
    kinds = {stage.kind for own in plan(plain) for stage in own.stages}
    assert kinds == {"train", "unlearn", "evaluate", "audit"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"measures": "recovry"}, "unknown measure 'recovry'; did you mean recovery"),
        ({"measures": "rmia:d=1"}, "unknown setting of rmia 'd'"),
        ({"measures": "recovery", "audit.taus.pgd": [0.0], "audit.taus.fgsm": [0.0]}, "expected radii above 0"),
        ({"measures": "tow"}, "unknown measure 'tow'"),
    ],
)
def test_what_cannot_be_asked_is_refused(changes, words):
    with pytest.raises(InputError, match=words):
        Study.create("digits", methods="gd", overrides=changes)


def test_few_held_out_samples_leave_membership_without_a_value(tmp_path):
    few = SMALL | {"data.test_size": 20, "measures": "recovery,rmia", "references": 0}
    done = run(Study.create("digits", methods="gd", seeds=[1], overrides=few), store=tmp_path, out=tmp_path / "o")
    for name in ("recovery", "rmia"):
        assert done.record.methods["gd"].probes[name].value is None
        assert "at least 10 held-out samples" in done.record.methods["gd"].probes[name].note


MEMORY = """
import resource, sys
from residuum import Study, run

small = {"data.train_size": 200, "data.test_size": 120, "train.epochs": 1, "relearn.epochs": 0, "gd.epochs": 1,
         "audit.draws": 1, "audit.taus.gaussian": [0.0, 0.1], "measures": "rmia",
         "model.name": "mlp", "model.width": 16384}  # large weights, small activations
for references in (2, 22):
    asked = Study.create("digits", methods="gd", seeds=[1], overrides=small | {"references": references})
    run(asked, store=sys.argv[1], out=sys.argv[1] + "/out")
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.long
def test_memory_does_not_grow_with_the_number_of_retrained_models(tmp_path):
    done = subprocess.run([sys.executable, "-c", MEMORY, str(tmp_path)], capture_output=True, text=True, check=True)
    few, many = map(int, done.stdout.split())
    assert many - few < 20  # MiB; the weights of the twenty models more have 94
