"""Weights to start from: who gets them, what the cache knows of them, and what the audit asks their manifest."""

import json

import pytest
import torch
from safetensors.torch import load_file

from residuum.core.errors import InputError, MethodError
from residuum.data import load_dataset
from residuum.models import build_model, save_weights
from residuum.record.run import Run
from residuum.studies import Study, plan, run_all, write_run
from residuum.studies.pretrained import KnownFile, find_manifest
from residuum.studies.stages import INITIAL
from residuum.studies.store import Store

FAST = {"train.epochs": 1, "relearn.epochs": 0, "audit.draws": 2, "audit.taus.gaussian": [0.0, 0.1]}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "digits.safetensors"
    save_weights(build_model("cnn", (1, 8, 8), 7, width=2, mean=(0.4,), std=(0.6,), seed=3), path)
    return path


def tiny(weights, **options):
    return Study.create("tiny", methods="gd", seeds=[1], overrides=FAST, init_from=weights, **options)


def initial(study, store, role):
    stage = plan(study)[0].models[role]
    return load_file(Store(store).folder(stage) / INITIAL)


def test_all_but_the_head_is_loaded_and_shared(weights, tmp_path):
    study = tiny(weights)
    results = run_all([study], store=tmp_path)[0]
    given = load_file(weights)
    starts = [initial(study, tmp_path, role) for role in ("original", "retrain", "control")]
    head = [name for name in starts[0] if starts[0][name].shape != given[name].shape]
    assert len(head) == 2  # weight and bias
    for start in starts:
        for name in set(start) - set(head):
            assert torch.equal(start[name], given[name]), name
    first, second, third = (start[head[0]] for start in starts)
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)
    record = write_run(study, results, tmp_path / "out").as_dict()
    assert record["scenario"]["init_from"] == {
        "weights": {"file": "digits.safetensors", "sha256": KnownFile.read(weights).sha256},
        "manifest": None,
    }
    assert any("have no manifest" in text for text in record["warnings"])


def test_other_weights_are_another_key(weights, tmp_path):
    keys = {plan(tiny(weights))[0].models["original"].key}
    keys.add(plan(Study.create("tiny", methods="gd", seeds=[1], overrides=FAST))[0].models["original"].key)
    other = tmp_path / "digits.safetensors"
    save_weights(build_model("cnn", (1, 8, 8), 7, width=2, seed=4), other)
    first = plan(tiny(other))[0].models["original"].key
    save_weights(build_model("cnn", (1, 8, 8), 7, width=2, seed=5), other)
    keys |= {first, plan(tiny(other))[0].models["original"].key}
    assert len(keys) == 4


def test_weights_that_change_after_planning_are_refused(weights, tmp_path):
    other = tmp_path / "w.safetensors"
    other.write_bytes(weights.read_bytes())
    known = KnownFile.read(other)
    assert known.checked_path() == other
    other.write_bytes(b"other")
    with pytest.raises(InputError, match=r"w\.safetensors has changed since the run was planned"):
        known.checked_path()


def test_weights_that_do_not_fit_are_refused_before_anything_runs(weights, tmp_path):
    with pytest.raises(InputError, match=r"gone\.safetensors"):
        plan(tiny(tmp_path / "gone.safetensors"))
    wide = Study.create("tiny", methods="gd", overrides={"model.width": 4}, init_from=weights)
    with pytest.raises(InputError, match=r"has shape .* the model needs"):
        plan(wide)


def manifest(path, **lists):
    path.write_text(json.dumps({"schema": "residuum.manifest/1", **lists}))
    return path


def test_a_manifest_is_given_or_found_beside_the_weights(weights, tmp_path):
    copy = tmp_path / "w.safetensors"
    copy.write_bytes(weights.read_bytes())
    assert tiny(copy).manifest is None
    (tmp_path / "w.json").write_text('{"layers": 3}')
    assert tiny(copy).manifest is None
    (tmp_path / "w.json").write_text("not json")
    assert tiny(copy).manifest is None
    beside = manifest(tmp_path / "w.json", seen_ids=[])
    assert tiny(copy).manifest == beside
    given = manifest(tmp_path / "other.json", seen_ids=["digits/0001"])
    assert tiny(copy, manifest=given).manifest == given
    with pytest.raises(InputError, match=r"none\.json"):
        tiny(copy, manifest=tmp_path / "none.json")
    with pytest.raises(InputError, match="expected schema"):
        tiny(copy, manifest=manifest(tmp_path / "empty.json"))
    with pytest.raises(InputError, match="give them with --init-from"):
        find_manifest(None, given)


def test_the_audit_doubts_a_reference_that_saw_the_forgotten_samples(weights, tmp_path):
    forgotten = tiny(weights).splits().forget.ids
    leaky = manifest(tmp_path / "leaky.json", seen_ids=list(forgotten[:2]))
    clean = manifest(tmp_path / "clean.json", unseen_ids=list(forgotten))
    for file, doubted, word in ((leaky, True, "NOT_COMPARABLE"), (clean, False, "INCONCLUSIVE")):
        study = tiny(weights, manifest=file)
        results = run_all([study], store=tmp_path / "store")[0]
        record = write_run(study, results, tmp_path / file.stem).as_dict()
        assert {row["verdict"] for row in record["judgments"].values()} == {word, None}
        gates = {gate.name: gate.passed for gate in Run.load(tmp_path / file.stem).record.gates}
        assert gates["seen"] is not doubted
        assert any("seen 2 of" in text and "pre-training" in text for text in record["warnings"]) == doubted
        assert not any("no manifest" in text for text in record["warnings"])
        assert record["scenario"]["init_from"]["manifest"]["file"] == file.name


def test_methods_walk_back_to_weights_only_if_these_have_not_seen_the_forgotten_samples(weights, tmp_path):
    forgotten = tiny(weights).splits().forget.ids
    leaky = manifest(tmp_path / "leaky.json", seen_ids=list(forgotten[:2]))
    clean = manifest(tmp_path / "clean.json", unseen_ids=list(forgotten))
    options = {"methods": "soft_reset:fresh=initial:epochs=1", "seeds": [1], "overrides": FAST, "init_from": weights}
    for file in (None, leaky):
        with pytest.raises(MethodError, match="have seen samples to forget, or it is not known whether they have"):
            run_all([Study.create("tiny", **options, manifest=file)], store=tmp_path / "store")
    [done] = run_all([Study.create("tiny", **options, manifest=clean)], store=tmp_path / "store")
    assert not any("is not known" in text for result in done for text in result.warnings)


def test_ranks_restrict_training_and_validation():
    study = Study.create("tiny", overrides={"data.train_ranks": "100,149"})
    splits = study.splits()
    data = load_dataset("digits")
    rank = {}
    for name, label in zip(data.train.ids, data.train.y.tolist(), strict=True):
        rank[name] = sum(1 for other in rank.values() if other[0] == label)
        rank[name] = (label, rank[name])
    for part in (splits.train, splits.validation, splits.test):
        assert all(100 <= rank[name][1] <= 149 for name in part.ids)
    with pytest.raises(InputError, match="no class has a sample of rank 5000; the largest has 183 samples"):
        Study.create("tiny", overrides={"data.train_ranks": "5000,6000"}).splits()
    with pytest.raises(InputError, match="the first not above the last, got 9 to 2"):
        Study.create("tiny", overrides={"data.train_ranks": "9,2"}).splits()
