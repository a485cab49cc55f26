"""tune(): settings chosen without a retrained model, checked a second way and by cases that have an answer."""

from __future__ import annotations

import json

import numpy as np
import pytest

from residuum import Study, tune
from residuum.auditing import audit
from residuum.cli import run_command
from residuum.core.errors import InputError
from residuum.core.seeds import child_seed
from residuum.models import load_weights
from residuum.perturbations import PERTURBATIONS
from residuum.studies.store import Store
from residuum.tuning import Scores, Tried, Tuning, distance, planned, raised

ROWS = ["little=gd:epochs=1:lr=0.001", "soft=soft_reset:keep=0.3:epochs=6", "much=neggrad:beta=5:lr=0.1:epochs=3"]
SMALL = {"data.validation_size": 100, "audit.draws": 5}


def study(rows=ROWS, seeds=(1, 2), **overrides):
    return Study.create("tiny", methods=rows, seeds=list(seeds), overrides={**SMALL, **overrides})


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def found(store):
    return tune(study(), store=store, share=0.5)


def tuning(tried, **changes):
    known = {"untried": [], "validation": 90.0, "distance": 0.2, "floor": 0.05, "points": 2.0, "passes": 10}
    known |= {"surrogate_passes": 5, "surrogate_validation": 89.0, "retraining": 20, "seeds": [1]}
    return Tuning(tried=tried, **{**known, **changes})


def test_the_nearest_fitting_setting_is_chosen_and_of_equals_the_cheapest():
    rows = [
        Tried("damaged", {}, 1, 80.0, 0.01),
        Tried("dear", {}, 9, 90.0, 0.1),
        Tried("good", {}, 5, 88.0, 0.1),
        Tried("far", {}, 1, 91.0, 0.15),
        Tried("broken", {}, failed="diverged"),
    ]
    assert tuning(rows).chosen.label == "good"
    assert tuning(rows).remark is None
    assert tuning(rows, points=1.0).chosen.label == "dear"
    assert tuning(rows, points=20.0).chosen.label == "damaged"


def test_it_says_so_where_nothing_fits_or_the_surrogates_are_poor():
    assert (
        tuning([Tried("damaged", {}, 1, 80.0, 0.01)]).remark
        == "every setting loses more than 2 points of validation accuracy"
    )
    nothing = tuning([Tried("far", {}, 1, 90.0, 0.3)])
    assert nothing.chosen is None
    assert "than the original is" in nothing.remark
    poor = tuning([Tried("good", {}, 1, 90.0, 0.1)], surrogate_validation=80.0)
    assert poor.chosen.label == "good"
    assert "10.0 points below the original's" in poor.remark


def test_the_distances_are_those_of_a_slow_second_way(found, store):
    asked, splits = study(), study().splits()
    taus = asked.scenario.audit.taus["gaussian"]
    lost = np.bincount(splits.forget.y, minlength=splits.classes) / np.bincount(splits.train.y)
    rows = np.array([i for i, y in enumerate(splits.validation.y.tolist()) if lost[y] <= 0.1])
    unaffected = splits.validation.subset(rows)
    far = []
    for own in planned(asked, 2, 6):
        seed = child_seed(own["soft"].setup.seed, "score")
        names = ["original", ".surrogate 1", ".surrogate 2", "soft"]
        folders = {name: Store(store).folder(own[name].parents["model"]) for name in names}
        models = {name: load_weights(folder / "model.safetensors") for name, folder in folders.items()}

        def shares(samples, models=models, seed=seed):
            counted = audit(models, models["original"], samples, "gaussian", taus=taus, draws=5, seed=seed).counts
            return {name: c.method_right.sum(0) / c.draws.sum(0) for name, c in counted.items()}

        p, u = shares(splits.forget), shares(unaffected)
        for t in range(len(taus)):
            a = [min(1, p[k][t] * u["original"][t] / u[k][t]) for k in names[1:3]]
            far.append(abs(p["soft"][t] / (sum(a) / 2) - 1))
    soft = next(one for one in found.tried if one.label == "soft")
    assert soft.distance == pytest.approx(sum(far) / len(far))


def test_passes_are_counted_and_no_model_is_re_trained(found, store):
    retain = len(study().splits().retain)
    assert [one.passes for one in found.tried][:2] == [2 * retain, 12 * retain]
    assert found.surrogate_passes == 2 * 2 * 6 * retain
    assert found.passes == found.surrogate_passes + sum(one.passes for one in found.tried)
    assert found.retraining == 2 * 12 * retain
    log = (store / "log.txt").read_text(encoding="utf-8")
    assert "train original" in log
    assert "retrain" not in log
    assert "control" not in log


def test_it_prefers_forgetting_to_nothing_and_to_too_much(found):
    by_label = {one.label: one for one in found.tried}
    assert by_label["soft"].distance < by_label["little"].distance
    assert by_label["much"] not in found.fitting
    assert found.chosen == by_label["soft"]


def test_a_second_call_computes_nothing_and_finds_the_same(found, store):
    before = (store / "log.txt").read_text(encoding="utf-8")
    assert tune(study(), store=store, share=0.5) == found
    assert (store / "log.txt").read_text(encoding="utf-8") == before


def test_the_budget_ends_the_search_before_it_is_exceeded(found, store):
    retain = len(study().splits().retain)
    brief = found.surrogate_passes
    first = tune(study(), budget=brief + 1, store=store, share=0.5)  # the first always
    assert [one.label for one in first.tried] == ["little"]
    assert first.untried == ["soft", "much"]
    two = tune(study(), budget=brief + 14 * retain, store=store, share=0.5)
    assert [one.label for one in two.tried] == ["little", "soft"]
    with pytest.raises(InputError, match=rf"expected a budget above the {brief} passes of 2 surrogates per seed"):
        tune(study(), budget=brief, store=store, share=0.5)


def test_a_setting_that_diverges_is_reported_and_not_chosen(store):
    diverging = "wild=ga:lr=1e30:epochs=30:clip=none"
    one = tune(study([diverging, ROWS[1]], seeds=[1]), store=store, share=0.5).tried[0]
    assert "expected a finite loss" in one.failed
    with pytest.raises(InputError, match=r"every setting failed; the first one: .*expected a finite loss"):
        tune(study([diverging], seeds=[1]), store=store, share=0.5)


def test_requests_that_cannot_choose_are_refused(store):
    with pytest.raises(InputError, match="expected validation samples"):
        tune(study(**{"data.validation_size": 0}), store=store)
    with pytest.raises(InputError, match="at least one setting"):
        tune(study([]), store=store)
    chain = Study.create("tiny", methods="gd", requests=["class=8,fraction=0.5", "fraction=0.02"])
    with pytest.raises(InputError, match="expected one deletion request"):
        tune(chain, store=store)
    for wrong in ({"surrogates": 1}, {"share": 1.0}, {"points": -1}):
        with pytest.raises(InputError, match="expected at least 2 surrogates"):
            tune(study(), store=store, **wrong)


def test_levels_are_raised_and_class_form_takes_differences():
    low, high = (Scores(90.0, np.array([0.6, 0.9]), np.array(u), 0) for u in ([0.5, 0.5], [0.6, 0.9]))
    np.testing.assert_allclose(raised(low, high), [0.72, 1.0])
    without = Scores(90.0, np.array([0.6]), np.array([]), 0)
    assert raised(without, without).tolist() == [0.6]
    assert distance(np.array([0.5]), np.array([[0.25]])) == 1.0
    assert distance(np.array([0.5]), np.array([[0.25]]), True) == 0.25


COMMAND = ["tune", "tiny", "--method", "soft_reset", "--grid", "keep=0.3", "--grid", "epochs=6", "--seeds", "1"]
COMMAND += ["--set", "data.validation_size=100", "--draws", "5", "--share", "0.5", "--workers", "1"]


def test_the_command_prints_a_line_to_paste(store, capsys):
    assert run_command([*COMMAND, "--store", str(store), "--budget", "300%"]) == 0
    out = capsys.readouterr().out
    assert "chosen: --methods soft_reset:keep=0.3:epochs=6" in out
    assert "cost: 3,420 passes, 150 % of one retraining" in out


def test_trainings_of_another_precision_are_others(store, capsys):
    asked = [*COMMAND, "--store", str(store), "--json"]
    distances = []
    for precision in ("32-true", "bf16-mixed"):
        run_command([*asked, "--precision", precision])
        distances.append(json.loads(capsys.readouterr().out)["distance"])
    assert distances[0] != distances[1]
    assert distances[0] == pytest.approx(distances[1], rel=0.5)


def test_the_command_writes_json_and_exits_with_1_where_nothing_fits(store, capsys):
    keys = ["--grid", "lr=0", "--json", "--store", str(store)]
    assert run_command([*COMMAND, *keys]) == 1
    content = json.loads(capsys.readouterr().out)
    assert content["chosen"] is None
    assert content["methods"] is None
    assert content["remark"] == "every setting loses more than 2 points of validation accuracy"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--budget", "much"], "expected passes such as 200000 or a share such as 150% for --budget, got 'much'"),
        (["--budget", "1%"], "expected a budget above the"),
        (["--surrogate-models", "1"], "expected at least 2 surrogates"),
        (["--set", "data.validation_size=0"], "expected validation samples"),
    ],
)
def test_wrong_input_is_one_line_and_code_2(arguments, words, store, capsys):
    assert run_command([*COMMAND, "--store", str(store), *arguments]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("residuum: error:")
    assert words in error


def test_a_method_without_a_grid_of_its_own_needs_one(capsys):
    assert run_command(["tune", "tiny", "--method", "fisher"]) == 2
    assert "expected --grid field=value,value,... for fisher" in capsys.readouterr().err


PLUG_IN = """
from dataclasses import dataclass
from typing import ClassVar

from residuum.perturbations import Gaussian


@dataclass(frozen=True)
class Mine(Gaussian):
    name: ClassVar[str] = "mine"

    def apply(self, *given):
        return super().apply(*given)
"""


def test_a_plug_in_s_perturbation_is_part_of_the_keys_of_scores(tmp_path, monkeypatch):
    keys = []
    for k, text in enumerate((PLUG_IN, PLUG_IN.replace("apply(*given)\n", "apply(*given) * 0\n"))):
        file = tmp_path / str(k) / "mine.py"
        file.parent.mkdir()
        file.write_text(text)
        with monkeypatch.context() as patch:
            patch.setattr(PERTURBATIONS, "data", dict(PERTURBATIONS.data))
            patch.setattr(PERTURBATIONS, "sources", dict(PERTURBATIONS.sources))
            asked = {"audit.perturbations": f"{file}:Mine", "audit.taus.mine": "0,0.1"}
            keys.append(planned(study(["gd"], seeds=[1], **asked), 2, 3)[0]["gd"].key)
    assert keys[0] != keys[1]
