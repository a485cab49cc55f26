"""Requests one after the other: who saw what, what starts from what, and that it is the same as by hand."""

from __future__ import annotations

import json
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from safetensors.torch import load_file

from residuum.auditing import Counts
from residuum.core.errors import InputError
from residuum.core.seeds import child_seed
from residuum.data import make_splits
from residuum.models import head_of, load_weights
from residuum.record.run import Run
from residuum.reporting.request_report import forgotten
from residuum.studies import Study, plan, run_all, write_requests, write_run
from residuum.studies.maintenance import made_with
from residuum.studies.parsing import parse_request, read_requests
from residuum.studies.planning import outline
from residuum.studies.settings import ForgetSettings
from residuum.studies.stages import INITIAL, measured
from residuum.studies.store import Store
from residuum.unlearning import METHODS, Origin, unlearn

QUICK = {
    "data.train_size": 120,
    "train.epochs": 4,
    "relearn.epochs": 1,
    "audit.taus.gaussian": [0.0, 0.2],
    "audit.draws": 2,
    **{f"{name}.epochs": 1 for name in ("gd", "ngd", "ga", "neggrad", "eu_k", "cf_k", "scrub", "rurk")},
    "ntk.max_iterations": 5,
    "ntk.memory_mib": 1,
}
FIRST, SECOND = "class=8,fraction=0.5", "fraction=0.05"
SEED = 3


def chain(*requests, rows="gd,fisher", seeds=(SEED,)):
    return Study.create("tiny", methods=rows, seeds=list(seeds), overrides=QUICK, requests=requests)


@pytest.fixture(scope="module")
def everything():
    left = chain(FIRST, SECOND).splits().retain
    return chain(FIRST, SECOND, {"forget_ids": [left.ids[5], left.ids[0]]}, rows=",".join(METHODS))


@pytest.fixture(scope="module")
def done(everything, tmp_path_factory):
    folder = tmp_path_factory.mktemp("requests")
    seen = []
    results = run_all(everything.steps, store=folder / "store", report=lambda stage, k, n: seen.append((stage, k, n)))
    return results, folder, seen


@pytest.fixture(scope="module")
def plans(everything):
    return [plan(step)[0] for step in everything.steps]


def requested(everything):
    """Return the ids of each request."""
    totals = [set(step.splits().forget.ids) for step in everything.steps]
    return [after - before for before, after in zip([set(), *totals[:-1]], totals, strict=True)]


def ids_of(folder, stage):
    return set((Store(folder / "store").folder(stage) / "ids.txt").read_text().split())


def test_each_request_takes_its_own_samples(everything):
    first, second, third = requested(everything)
    assert (len(first), len(second), len(third)) == (6, 6, 2)
    assert not first & second | first & third | second & third
    assert everything.steps[0].splits().train.ids == everything.splits().train.ids


def test_retrain_and_control_never_saw_a_request_so_far(everything, plans, done):
    forgotten = set()
    for request, step in zip(requested(everything), plans, strict=True):
        forgotten |= request
        for role in ("retrain", "control"):
            assert ids_of(done[1], step.models[role]) == set(everything.splits().train.ids) - forgotten


def test_the_original_is_trained_once_and_every_stage_runs_once(plans, done):
    _, _, seen = done
    assert len({step.models["original"].key for step in plans}) == 1
    keys = [stage.key for stage, _, _ in seen]
    assert len(keys) == len(set(keys)) == seen[-1][1] == seen[-1][2]
    assert [stage.title for stage, _, _ in seen].count(f"train original (seed {SEED})") == 1
    assert f"unlearn gd (seed {SEED}, request 3)" in [stage.title for stage, _, _ in seen]


def test_each_request_is_unlearned_from_the_model_before_it(plans):
    for label in METHODS:
        first, second, third = (step.models[label] for step in plans)
        assert first.parents == {"original": plans[0].models["original"]}
        assert second.parents["previous"].key == first.key
        assert third.parents["previous"].key == second.key
        assert third.parents["original"].key == plans[0].models["original"].key


def test_the_plan_of_a_request_has_all_its_parents_before_their_children(plans):
    for step in plans:
        planned = set()
        for stage in step.stages:
            assert {parent.key for parent in stage.parents.values()} <= planned, stage.title
            planned.add(stage.key)


def test_what_a_method_reads_is_its_request_and_what_is_still_kept(everything, plans, done):
    first, second, third = requested(everything)
    known = set(everything.splits().train.ids)
    assert ids_of(done[1], plans[1].models["rurk"]) == known - first
    assert ids_of(done[1], plans[2].models["rurk"]) == known - first - second
    assert ids_of(done[1], plans[2].models["gd"]) == known - first - second - third


def test_all_requests_so_far_are_audited(everything, done):
    results, _, _ = done
    so_far = set()
    for request, found in zip(requested(everything), results, strict=True):
        so_far |= request
        for result in found:
            assert set(Counts.load(result.audits["gaussian"].counts).ids) == so_far
        assert [result.label for result in found] == everything.labels


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_sequence_is_what_unlearning_again_by_hand_gives(name, everything, plans, done, same_weights):
    store, scenario = Store(done[1] / "store"), everything.scenario
    requests = [request.model_dump() for request in (*scenario.earlier, scenario.forget)]
    sizes = {"train_size": 120, "validation_size": 60, "test_size": 60}
    row = next(row for row in everything.rows if row.label == name)
    original = store.folder(plans[0].models["original"])
    model, initial = load_weights(original / "model.safetensors"), load_file(original / INITIAL)
    seeds = (SEED, child_seed(SEED, "request_2"), child_seed(SEED, "request_3"))
    for number, seed in enumerate(seeds):
        splits = make_splits(everything.dataset(), **requests[number], earlier=requests[:number], **sizes)
        with measured(threads=1):
            origin = Origin(scenario.train, initial)
            done = unlearn(model, splits, row.build(), seed=seed, origin=origin)
            model = done.model
        stored = load_weights(store.folder(plans[number].models[name]) / "model.safetensors")
        assert same_weights(model, stored), f"request {number + 1}"


def test_noise_is_drawn_anew_for_each_request(plans, done):
    store = Store(done[1] / "store")
    weights = [
        load_weights(store.folder(plan.models[label]) / "model.safetensors").state_dict()
        for plan, label in ((plans[0], "original"), (plans[0], "fisher"), (plans[1], "fisher"))
    ]
    name = next(key for key in weights[0] if key.endswith("weight") and weights[0][key].ndim > 1)
    kicks = [(after[name] - before[name]).flatten() for before, after in pairwise(weights)]
    assert abs(float(kicks[0] @ kicks[1] / kicks[0].norm() / kicks[1].norm())) < 0.7


def test_a_second_run_computes_nothing(everything, done, monkeypatch):
    results, folder, _ = done

    def never(*arguments):
        raise AssertionError("a finished stage ran again")

    monkeypatch.setattr(Store, "_run", never)
    assert run_all(everything.steps, store=folder / "store") == results
    assert run_all([everything], store=folder / "store")[0] == results[2]
    alone = {"forget.forget_class": 8, "forget.forget_fraction": 0.5, **QUICK}
    single = Study.create("tiny", methods=",".join(METHODS), seeds=[SEED], overrides=alone)
    assert run_all([single], store=folder / "store")[0] == results[0]
    todo = outline([plan(step) for step in everything.steps], folder / "store")
    assert (todo.total, todo.finished) == (done[2][-1][2], done[2][-1][2])


def test_the_last_request_alone_brings_its_history_with_it(tmp_path):
    steps = chain(FIRST, SECOND, rows="gd").steps
    with ThreadPoolExecutor(2) as executor:
        last = run_all([steps[1]], store=tmp_path / "a", executor=executor)[0]
        both = run_all(steps, store=tmp_path / "b", executor=executor)
    assert [result.metrics for result in last] == [result.metrics for result in both[1]]
    assert [len(list((tmp_path / store / "audit").iterdir())) for store in ("a", "b")] == [1, 2]


def test_forgetting_a_sample_finds_the_models_of_later_requests(everything, plans, done):
    _, folder, _ = done
    first, second, third = (sorted(request)[:1] for request in requested(everything))

    def doomed(ids):
        return {artifact.key for artifact in made_with(folder / "store", ids).artifacts}

    keys = [{label: stage.key for label, stage in step.models.items()} for step in plans]
    for ids in (first, second, third):
        for step in keys:
            assert {step["original"], *(step[name] for name in METHODS)} <= doomed(ids)
    assert [step["retrain"] in doomed(first) for step in keys] == [False, False, False]
    assert [step["retrain"] in doomed(second) for step in keys] == [True, False, False]
    assert [step["control"] in doomed(third) for step in keys] == [True, True, True]  # the last request names it


def test_the_record_has_a_run_for_each_request_and_follows_the_first(everything, done, tmp_path):
    results, _, _ = done
    runs = write_requests(everything.steps, results, tmp_path / "out")
    records = [json.loads((tmp_path / "out" / f"request-{k}" / "results.json").read_text()) for k in (1, 2, 3)]
    assert [run.record.as_dict() for run in runs] == records
    assert [record["sequence"] for record in records] == [{"number": k, "of": 3} for k in (1, 2, 3)]
    assert forgotten(runs) == [(6, 6), (6, 12), (2, 14)]
    settings = [record["scenario"]["settings"] for record in records]
    assert "earlier" not in settings[0]
    assert [len(each["earlier"]) for each in settings[1:]] == [1, 2]
    for label, row in records[0]["methods"].items():
        audit = row["per_seed"][str(SEED)]["audits"]["gaussian"]
        first, so_far = audit["first_request"], audit["residual_knowledge"]
        assert first["difference"] == audit["difference"], label
        assert first["residual_knowledge"] == {name: so_far[name] for name in ("pooled", "low", "high")}, label
    later = records[2]["methods"]["ga"]["per_seed"][str(SEED)]["audits"]["gaussian"]["first_request"]
    counts = next(r for r in results[2] if r.label == "ga").audits["gaussian"].counts
    own = Counts.load(counts).subset(sorted(requested(everything)[0]))
    by_hand = ((own.method_right - own.reference_right) / own.draws).mean(0)
    assert later["difference"]["value"] == pytest.approx(by_hand.tolist())
    assert any(by_hand)


def test_the_sequence_and_the_page_of_each_request_show_one_noise_floor(tmp_path):
    steps = chain(FIRST, SECOND, rows="gd", seeds=(1, 2)).steps
    results = run_all(steps, store=tmp_path / "store")
    for run in write_requests(steps, results, tmp_path / "out"):
        floor = Run.load(run.folder).record.noise_floor["gaussian"]
        for judgment in run.verdicts.values():
            columns = judgment.finding_of("gaussian").columns[1:]
            drawn = dict(zip(floor.taus, zip(floor.low, floor.high, strict=True), strict=True))
            judged = {column.tau: column.floor for column in columns if column.share}  # a blind radius is not judged
            assert 0.0 in judged
            assert {tau: drawn[tau] for tau in judged} == {tau: pytest.approx(ends) for tau, ends in judged.items()}


def test_whole_classes_one_after_the_other_are_audited_in_class_form(tmp_path):
    steps = chain("class=8", "class=3", rows="fisher").steps
    runs = write_requests(steps, run_all(steps, store=tmp_path / "store"), tmp_path / "out")
    assert [run.form for run in runs] == ["class", "class"]
    labels = set(
        Counts.load(tmp_path / "out/request-2/counts" / str(SEED) / "retrain" / "gaussian.npz").labels.tolist()
    )
    assert labels == {3, 8}
    models = [load_weights(tmp_path / f"out/request-{k}/models/{SEED}/fisher.safetensors") for k in (1, 2)]
    heads = [head_of(model)[1].weight.detach() for model in models]
    assert float(heads[1][3].norm()) < 0.4 * float(heads[0][3].norm())  # Fisher clears the row of request 2's class


def test_a_folder_has_one_kind_of_run(everything, done, tmp_path):
    steps, (results, _, _) = everything.steps, done
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "results.json").write_text("{}")
    write_requests(steps[:1], results[:1], tmp_path / "sequence")
    with pytest.raises(InputError, match=r"has a results.json, so it holds another kind of run; choose another folder"):
        write_requests(steps, results, tmp_path / "run")
    with pytest.raises(InputError, match=r"has the runs of a sequence of requests, so it holds another kind of run"):
        write_run(steps[0], results[0], tmp_path / "sequence")


def test_a_method_that_cannot_is_refused_before_anything_is_computed():
    with pytest.raises(InputError, match=r"cr cannot remove a whole class \(8\)"):
        plan(chain(FIRST, "class=8", rows="gd,cr"))


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([], "expected at least one request, got none"),
        ([f"id=digits/{k:04d}" for k in range(101)], "expected at most 100 requests, got 101; .*one list of ids"),
        (["clas=8"], "unknown key of a request 'clas'; did you mean class"),
        (["class"], "expected a request such as class=8,fraction=0.5"),
        (["class=8,class=3"], "expected class= once in a request"),
        (["fraction=half"], "forget_fraction: .*valid number.*got 'half'"),
        (["ids=nowhere.txt"], "nowhere.txt"),
        ([{"forget_clas": 8}], "unknown field of request 1 'forget_clas'; did you mean forget_class"),
    ],
)
def test_requests_that_mean_nothing_are_refused(requests, message):
    with pytest.raises(InputError, match=message):
        chain(*requests)


def test_the_most_requests_can_be_planned_and_sent_to_a_worker():
    ids = chain(FIRST).splits().train.ids[:100]
    last = plan(chain(*(f"id={name}" for name in ids), rows="gd"))[0]
    assert last.models["gd"].subject.requests[98] == ForgetSettings(forget_ids=[ids[98]])
    sent = pickle.loads(pickle.dumps(last.audits["gaussian"]))
    assert sent.key == last.audits["gaussian"].key


def test_requests_and_the_setting_exclude_each_other():
    with pytest.raises(InputError, match=r"expected requests or the setting forget.forget_class, got both"):
        Study.create("tiny", requests=[FIRST], overrides={"forget.forget_class": 3})


def test_a_file_has_one_request_a_line_and_names_lists_beside_it(tmp_path):
    (tmp_path / "ticket-7.txt").write_text("# of Monday\ndigits/0001\n\ndigits/0002\n")
    (tmp_path / "tickets.txt").write_text(
        "# all of this week\nids=ticket-7.txt\n\nclass=8, fraction=0.5\nid=digits/0003\n"
    )
    assert read_requests(tmp_path / "tickets.txt") == [
        {"forget_ids": ["digits/0001", "digits/0002"]},
        {"forget_class": "8", "forget_fraction": 0.5},
        {"forget_ids": ["digits/0003"]},
    ]
    (tmp_path / "empty.txt").write_text("# nothing yet\n")
    with pytest.raises(InputError, match=r"empty.txt has no requests; expected one a line"):
        read_requests(tmp_path / "empty.txt")
    with pytest.raises(InputError, match=r"empty.txt has no ids"):
        parse_request("ids=empty.txt", tmp_path)


DOCUMENT = (Path(__file__).parents[2] / "docs" / "guides" / "requests.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("block", re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.M | re.S))
def test_the_guide_s_examples_run(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "requests.md", "exec"), {"__name__": "guide"})
    assert capsys.readouterr().out.strip() in ("[2, 3]", "[10, 14]", "17 61")


def test_the_guide_s_requests_can_be_read():
    texts = [text for text in re.findall(r"(?:--request |^\\| `)([a-z]+=[^ `]+)", DOCUMENT, re.M) if "FILE" not in text]
    assert len(texts) >= 8
    assert all(parse_request(text) for text in texts)
