"""A small run end to end: schema, files, repeatability, resuming, executors."""

from __future__ import annotations

import json
import math
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from residuum.auditing import AuditResult, Counts
from residuum.auditing.memory import completeness_above
from residuum.core.errors import InputError, MethodError, ResiduumWarning
from residuum.data import load_dataset
from residuum.metrics import accuracies, logits_of_parts
from residuum.models import load_weights
from residuum.studies import Study, claim_folder, plan, run_all, write_run
from residuum.studies.estimates import work_left
from residuum.studies.planning import outline
from residuum.studies.results import AuditOutcome, Result, merged_warnings, results_record
from residuum.studies.stages import measured
from residuum.studies.store import Store

LABELS = ["original", "retrain", "control", "gd", "loud"]


def without_times(value):
    if isinstance(value, dict):
        return {
            k: without_times(v) for k, v in value.items() if k not in ("created", "seconds", "files", "record_sha256")
        }
    return value


def test_results_json_has_the_documented_shape(finished):
    record, folder, _ = finished
    assert record == json.loads((folder / "out" / "results.json").read_text())
    assert record["schema"] == "residuum.results/4"
    assert list(record["methods"]) == LABELS
    assert record["seeds"] == [1, 2]
    assert record["scenario"]["form"] == "sample"
    assert record["scenario"]["public_data"] is True
    assert {"created", "versions", "warnings", "notes"} <= record.keys()
    floor = record["noise_floor"]["gaussian"]
    assert floor["taus"] == [0.0, 0.1, 0.2]
    assert floor["pairs"] == 2
    for row in record["methods"].values():
        assert {"method", "settings", "fields_left_open", "summary", "per_seed"} <= row.keys()
        assert {"average_gap", "average_gap_per_seed", "relearn_epochs", "test_accuracy"} <= row["summary"].keys()
        assert list(row["per_seed"]) == ["1", "2"]
        for seed in row["per_seed"].values():
            assert {"metrics", "seconds", "passes", "audits"} <= seed.keys()
            audit = seed["audits"]["gaussian"]
            for name in ("difference", "disagreement", "unlearn_accuracy", "prevalence"):
                assert {len(audit[name][part]) for part in ("value", "low", "high")} == {3}
    assert record["methods"]["original"]["per_seed"]["1"]["metrics"]["relearn_epochs"] is None
    assert record["methods"]["loud"]["method"] == "rurk"
    assert record["methods"]["loud"]["settings"]["lambda_a"] == 0.5


def test_no_number_is_nan_or_infinite(finished):
    def numbers(value):
        if isinstance(value, dict | list):
            for child in value.values() if isinstance(value, dict) else value:
                yield from numbers(child)
        elif isinstance(value, float):
            yield value

    assert all(math.isfinite(number) for number in numbers(finished[0]))


def test_every_audited_number_follows_from_the_counts_files(finished):
    record, folder, _ = finished
    for label in LABELS:
        for seed in ("1", "2"):
            audit = record["methods"][label]["per_seed"][seed]["audits"]["gaussian"]
            counts, heldout = (Counts.load(folder / "out" / part["counts"]) for part in (audit, audit["heldout"]))
            result = AuditResult({label: counts}, audit["settings"], heldout={label: heldout})
            again = completeness_above(result.measures(label), audit["completeness"]["floor"])
            again["heldout"]["counts"] = audit["heldout"]["counts"]
            for key, value in again.items():
                assert audit[key] == value, (label, key)
            assert len(counts) == audit["samples"]


def test_held_out_samples_are_test_samples_of_the_forgotten_class(finished, quick):
    record, folder, _ = finished
    audit, test = record["methods"]["gd"]["per_seed"]["1"]["audits"]["gaussian"], quick.splits().test
    eights = {sample_id for sample_id, label in zip(test.ids, test.y.tolist(), strict=True) if label == 8}
    assert set(Counts.load(folder / "out" / audit["heldout"]["counts"]).ids) == eights
    assert audit["heldout"]["samples"] == len(eights) == 12
    assert audit["heldout"]["left_out"] == []
    assert audit["memory"]["value"][0] is not None
    ids = next(folder.glob("store/**/ids.txt")).parent.parent.glob("*/ids.txt")
    assert any(eights <= set(path.read_text().split()) for path in ids)


def test_completeness_is_0_for_the_original_1_for_retrain_and_null_below_the_floor(finished):
    methods = finished[0]["methods"]
    controls = [seed["audits"]["gaussian"]["difference"] for seed in methods["control"]["per_seed"].values()]
    for label, value in (("original", 0.0), ("retrain", 1.0)):
        for seed in methods[label]["per_seed"].values():
            found = seed["audits"]["gaussian"]["completeness"]
            for k in range(3):
                floor = max(abs(control[end][k]) for control in controls for end in ("low", "high"))
                assert found["floor"][k] == floor
                assert found["value"][k] == (value if found["gap_low"][k] > floor else None)


def test_the_stored_weights_give_the_recorded_accuracies(finished, quick):
    record, folder, _ = finished
    splits = quick.splits()
    for label in LABELS:
        model = load_weights(folder / "out" / "models" / "1" / f"{label}.safetensors")
        recorded = record["methods"][label]["per_seed"]["1"]["metrics"]
        for name, value in accuracies(logits_of_parts(model, splits), splits).items():
            assert recorded[name] == pytest.approx(value)


def test_unlearn_accuracy_at_radius_zero_is_the_metric(finished):
    record, _, _ = finished
    for row in record["methods"].values():
        for seed in row["per_seed"].values():
            at_zero = seed["audits"]["gaussian"]["unlearn_accuracy"]["value"][0]
            assert 100 * at_zero == pytest.approx(seed["metrics"]["unlearn_accuracy"])


def test_retrain_against_itself_is_one_everywhere(finished):
    for seed in finished[0]["methods"]["retrain"]["per_seed"].values():
        assert seed["audits"]["gaussian"]["residual_knowledge"]["pooled"] == [1.0, 1.0, 1.0]
        assert seed["audits"]["gaussian"]["disagreement"]["value"] == [0.0, 0.0, 0.0]


def test_a_second_run_elsewhere_gives_the_same_record_but_for_times(finished, quick, tmp_path):
    record, _, _ = finished
    with ThreadPoolExecutor(2) as executor:
        results = run_all([quick], store=tmp_path / "store", executor=executor)[0]
    assert without_times(results_record(quick, results).as_dict()) == without_times(record)


def test_running_again_computes_nothing(finished, quick, monkeypatch):
    _, folder, results = finished

    def never(*arguments):
        raise AssertionError("a finished stage ran again")

    monkeypatch.setattr(Store, "_run", never)
    assert run_all([quick], store=folder / "store")[0] == results


def test_the_data_are_read_once_in_a_process(quick, tmp_path, monkeypatch):
    loads = []

    def load(*arguments, **options):
        loads.append(arguments)
        return load_dataset(*arguments, **options)

    monkeypatch.setattr("residuum.data.loaders.load_dataset", load)
    steps = Study.create("tiny", seeds=[1], methods="gd", requests=["class=8", "fraction=0.1"]).steps
    plans = [plan(step) for step in steps]
    outline(plans, tmp_path / "store")
    assert work_left(steps, tmp_path / "store", plans).passes > 0
    results = run_all(steps, store=tmp_path / "store", plans=plans)
    write_run(steps[1], results[1], tmp_path / "out")
    assert loads == [("digits",)]
    run_all([steps[1]], store=tmp_path / "store")[0]  # a new run looks again
    assert len(loads) == 2


def test_a_changed_setting_is_a_different_stage():
    first = plan(Study.create("digits", methods="gd,rurk", seeds=[1]))[0]
    second = plan(Study.create("digits", methods="gd:lr=0.5,rurk", seeds=[1]))[0]
    assert second.models["original"].key == first.models["original"].key
    assert second.models["rurk"].key == first.models["rurk"].key
    assert second.models["gd:lr=0.5"].key != first.models["gd"].key


def test_a_failing_stage_leaves_nothing_and_fails_its_row(quick, tmp_path):
    broken = Study.create("digits", methods="ga:lr=1e30:clip=none:epochs=5", seeds=[1])
    stage = plan(broken)[0].models["ga:clip=none:epochs=5:lr=1e30"]
    store = Store(tmp_path)
    store.compute(stage.parents["original"])
    with pytest.raises(MethodError, match="finite loss"):
        store.compute(stage)
    assert not store.has(stage)
    assert list((tmp_path / "unlearn").iterdir()) == []


def test_warnings_of_a_stage_are_recorded():
    with measured(threads=1) as record:
        warnings.warn("too few draws", ResiduumWarning, stacklevel=1)
    assert record["warnings"] == ["too few draws"]
    assert record["seconds"] >= 0


def test_stage_titles_say_what_they_do(stage):
    assert stage("train", "control").title == "train control (seed 1)"
    assert stage("audit", "gaussian").title == "audit gaussian (seed 1)"


def test_an_output_folder_that_cannot_be_written_is_refused(finished, quick, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(InputError, match=r"cannot write to .*choose another folder with --out"):
        claim_folder(blocked / "run")
    with pytest.raises(InputError, match="cannot write to"):
        write_run(quick, finished[2], blocked)


def result(label, seed, warnings=(), audit=()):
    audits = {"gaussian": AuditOutcome({}, counts=Path(), warnings=audit)}
    return Result(
        label, seed, metrics={}, audits=audits, seconds=0.0, passes=0, warnings=list(warnings),
        unchanged=False, model=Path(), notes={}, weights="",
    )  # fmt: skip


def test_equal_warnings_become_one_line_that_names_rows_and_seeds():
    results = [
        result("gd", 1, ["every sample seen"], ["few draws"]),
        result("ssd", 1, ["nothing dampened", "every sample seen"], ["few draws"]),
        result("gd", 2, ["every sample seen"]),
        result("ssd", 2),
    ]
    assert list(merged_warnings(results)) == [
        "gd, ssd (seed 1): every sample seen",
        "audit gaussian (seed 1): few draws",
        "ssd (seed 1): nothing dampened",
    ]


def test_a_method_that_changes_nothing_is_recorded(tmp_path):
    study = Study.create("tiny", methods="ssd:alpha=1e9,gd", seeds=[1])
    record = results_record(study, run_all([study], store=tmp_path)[0]).as_dict()
    rows = {row["method"]: row["per_seed"]["1"] for row in record["methods"].values()}
    assert rows["ssd"]["unchanged"] is True
    assert "unchanged" not in rows["gd"]
    text = "no weight was dampened, the model is the original; lower alpha (now 1e+09)"
    assert text in rows["ssd"]["warnings"]
    assert f"ssd:alpha=1e9: {text}" in record["warnings"]
