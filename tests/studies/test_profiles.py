"""Scenario files: both profiles load, the paper profile is the published one, and what was left open is said."""

import dataclasses
import time

import numpy as np
import pytest

from residuum.core.errors import InputError
from residuum.metrics import Relearning
from residuum.models import MODELS
from residuum.perturbations import PGD
from residuum.studies import SCENARIOS, Study, execution, load_scenario, run_all, write_run
from residuum.studies.scenario_files import merged, scenario_tree
from residuum.training import Recipe
from residuum.unlearning import METHODS

FORMS = {"small-cifar5": 0, "vgg11": 0, "digits": 0, "tiny": 0, "small-cifar5-class": 1, "cifar10": 2}
FORMS |= {"cifar10-class": 3}
SHARED = {"momentum": 0.9, "batch_size": 128}
# Published values; four columns where they depend on the form: small sample, small class, CIFAR-10 sample, class.
PUBLISHED = {
    "gd": {**SHARED, "lr": 0.01, "weight_decay": 1e-4, "epochs": 10},
    "ngd": {**SHARED, "lr": (0.1, None, 0.1, None), "weight_decay": 1e-4, "sigma": (0.03, None, 0.03, None),
            "epochs": (10, None, 2, None)},
    "ga": {**SHARED, "lr": 1e-5, "weight_decay": 1e-4, "clip": 1.0, "epochs": (1, 1, 1, 3)},
    "neggrad": {**SHARED, "lr": 0.01, "weight_decay": 1e-4, "clip": 1.0, "beta": 0.001, "epochs": (1, 1, 1, 3)},
    "eu_k": {**SHARED, "lr": 0.01, "weight_decay": 1e-4, "epochs": 10, "blocks": ["layer4", "fc"]},
    "cf_k": {**SHARED, "lr": 0.01, "weight_decay": 1e-4, "epochs": 10, "blocks": ["layer4", "fc"]},
    "scrub": {**SHARED, "lr": 5e-4, "weight_decay": 5e-4, "alpha": 0.001, "gamma": (1, 1, 0.6, 75), "epochs": None,
              "msteps": None, "temperature": None},
    "ssd": {"dampening": 1.0, "alpha": (100, 100, 10, 10)},
    "fisher": {"alpha": None},
    "ntk": {"weight_decay": None, "scale": "predicted", "guard": None, "tolerance": None, "max_iterations": None},
    "cr": {"l2": 0.1, "step_size": None},
    "rurk": {**SHARED, "lr": 0.01, "weight_decay": 5e-4, "clip": 1.0, "tau": 0.03, "v": 1, "attack": "gaussian",
             "aim": "random_wrong_label", "penalty": "ce", "spread": "fixed", "keep": 1, "schedule": "cosine",
             "schedule_epochs": 200, "epochs": (2, None, 2, None),
             "lambda_f": (0.03, None, 0.03, None), "lambda_a": (0.03, None, 0.00045, None)},
}  # fmt: skip


@pytest.mark.parametrize("profile", ["cpu", "paper"])
@pytest.mark.parametrize("name", list(SCENARIOS))
def test_every_scenario_has_both_profiles_and_names_what_exists(name, profile):
    study = Study.create(name, profile=profile)
    scenario = study.scenario
    assert scenario.profile == profile
    assert scenario.model.name in MODELS
    assert study.rows
    assert scenario.description
    for label, fields in scenario.left_open.items():
        kinds = dict(METHODS) | {"train": Recipe, "relearn": Relearning, "audit": PGD}
        kind = kinds[label]
        names = kind.setting_owners() if label in METHODS else [field.name for field in dataclasses.fields(kind)]
        assert set(fields) <= set(names)
        assert len(set(fields)) == len(fields)
    assert bool(scenario.left_open) == (profile == "paper")


def test_the_wanted_scenarios_are_there():
    small = "tiny digits digits-random fashion-mnist small-cifar5 small-cifar5-class vgg11"
    assert {*small.split(), "cifar10", "cifar10-class", "imagenet100"} <= set(SCENARIOS)


@pytest.mark.parametrize("name", FORMS)
def test_the_paper_profile_has_the_published_values_and_lists_the_others(name):
    for row in Study.create(name, profile="paper").rows:
        for field, value in PUBLISHED[row.method].items():
            if field == "blocks" and name == "digits":
                assert field in row.left_open  # its network has no layer4
                continue
            published = value[FORMS[name]] if isinstance(value, tuple) else value
            if published is None:
                assert field in row.left_open, (row.method, field)
            else:
                own = row.settings[field]
                assert (list(own) if isinstance(own, tuple) else own) == published, (row.method, field)
                assert field not in row.left_open or field == "batch_size"


@pytest.mark.parametrize("name", ["small-cifar5", "small-cifar5-class", "cifar10", "cifar10-class", "vgg11"])
def test_the_paper_profile_audits_as_published(name):
    scenario = load_scenario(name, profile="paper")
    assert scenario.audit.draws == 100
    assert list(scenario.audit.perturbations) == ["gaussian", "fgsm:target=random", "pgd:target=random"]
    assert scenario.left_open["audit"] == ["target"]  # "targeted", and no word about the target
    assert (scenario.relearn.epochs, scenario.relearn.tolerance) == (30, 0.05)
    for kind in ("gaussian", "fgsm", "pgd"):
        assert scenario.audit.radii(kind) == pytest.approx(np.linspace(0, 8 / 255, 11).tolist(), abs=1e-15)
    assert scenario.seeds == [131, 42, 7]
    assert scenario.data.split_seed == 7
    assert scenario.model.width == 64


def test_sizes_are_the_published_ones():
    small, large = load_scenario("small-cifar5", profile="paper"), load_scenario("cifar10", profile="paper")
    assert (small.data.train_size, small.data.test_size, len(small.data.classes)) == (1000, 1000, 5)
    assert (small.train.epochs, small.retrain_epochs, small.train.lr) == (25, 100, 0.01)
    assert (large.data.train_size, large.data.validation_size, large.data.test_size) == (40000, 10000, None)
    assert (large.train.epochs, large.train.schedule_epochs, large.retrain_epochs) == (137, 200, None)


def test_what_the_paper_leaves_open_of_training_and_re_learning_is_listed():
    for name in ("cifar10", "cifar10-class"):
        assert {"momentum", "weight_decay", "schedule"} <= set(load_scenario(name, profile="paper").left_open["train"])
    for name in SCENARIOS:
        listed = load_scenario(name, profile="paper").left_open["relearn"]
        assert {"lr", "momentum", "weight_decay", "batch_size", "bn_mode", "data"} <= set(listed)
        assert not {"epochs", "tolerance"} & set(listed)  # published: 30 and 5 %


def test_random_digits_are_the_digits_with_another_request():
    own, base = (Study.create(name) for name in ("digits-random", "digits"))
    splits, eights = own.splits(), base.splits()
    assert (len(splits.forget), len(splits.retain), splits.form) == (45, 852, "sample")  # 5 % of 897
    assert len(set(splits.forget.y.tolist())) == 10
    assert set(splits.train.ids) == set(eights.train.ids)
    assert list(splits.test.ids) == list(eights.test.ids)
    fields = {"name", "description", "forget"}
    assert own.scenario.model_dump(exclude=fields) == base.scenario.model_dump(exclude=fields)
    assert (own.scenario.forget.forget_class, own.scenario.forget.forget_fraction) == (None, 0.05)


def test_a_scenario_based_on_another_changes_what_it_says_and_keeps_the_rest():
    whole, half = scenario_tree("cifar10-class", "paper"), scenario_tree("cifar10", "paper")
    assert whole["forget"] == {"forget_class": "airplane"}
    assert (whole["methods"]["ga"]["epochs"], half["methods"]["ga"]["epochs"]) == (3, 1)
    assert whole["methods"]["gd"] == half["methods"]["gd"]


@pytest.mark.parametrize("name", ["small-cifar5", "small-cifar5-class", "vgg11"])
def test_a_profile_that_needs_pretrained_weights_says_so_where_there_are_none(name, tmp_path):
    (tmp_path / "weights.safetensors").touch()
    (text,) = Study.create(name, profile="paper").warnings
    assert text.startswith(f"{name} is meant for weights pre-trained on CIFAR-10, and none were given (--init-from)")
    assert Study.create(name, profile="paper", init_from=tmp_path / "weights.safetensors").warnings == []
    assert Study.create("cifar10", profile="paper").warnings == []


def test_the_run_says_first_that_pretrained_weights_are_missing(tmp_path, capsys):
    study = Study.create("tiny", methods="gd", seeds=[1], overrides={"pretrained_on": "digits"})
    record = execution.run(study, store=tmp_path / "store", out=tmp_path / "out", progress=True).record
    assert record.warnings[0].startswith("tiny is meant for weights pre-trained on digits")
    said = capsys.readouterr().err
    assert said.index("warning: tiny is meant for") < said.index("[1/")


def test_epochs_of_retrain_are_its_own():
    scenario = load_scenario("tiny", {"retrain_epochs": 3})
    assert scenario.training("original").epochs == 12
    assert scenario.training("retrain").epochs == scenario.training("control_2").epochs == 3
    assert load_scenario("tiny").training("retrain") == load_scenario("tiny").training("original")


def test_an_unknown_profile_names_the_nearest():
    with pytest.raises(InputError, match=r"unknown profile of tiny 'papr'; did you mean paper\? Known: cpu, paper"):
        load_scenario("tiny", profile="papr")
    with pytest.raises(InputError, match="unknown scenario 'tinny'; did you mean tiny"):
        scenario_tree("tinny")


def test_overrides_come_after_the_profile():
    assert load_scenario("tiny", profile="paper").methods["gd"]["lr"] == 0.01
    study = Study.create("tiny", profile="paper", overrides={"gd.lr": "0.5", "train.epochs": 1})
    row = next(row for row in study.rows if row.method == "gd")
    assert (row.settings["lr"], row.settings["epochs"]) == (0.5, 10)
    assert study.scenario.train.epochs == 1
    assert row.left_open == ["augment", "bn_mode", "drop_last"]


def test_changes_reach_inside_and_leave_the_base_alone():
    base = {"a": {"b": {"c": 1, "d": 2}}, "e": [1]}
    assert merged(base, {"a.b": {"c": 5}, "e": [2], "a.f": 3}) == {"a": {"b": {"c": 5, "d": 2}, "f": 3}, "e": [2]}
    assert merged(base, {"a": {"b.d": 7}}) == {"a": {"b": {"c": 1, "d": 7}}, "e": [1]}
    assert merged({}, {"x.y": 1}) == {"x": {"y": 1}}
    assert base == {"a": {"b": {"c": 1, "d": 2}}, "e": [1]}


def test_tiny_takes_seconds_and_records_what_was_left_open(tmp_path):
    start = time.process_time()
    study = Study.create("tiny", profile="paper", methods="gd")
    record = write_run(study, run_all([study], store=tmp_path / "store")[0], tmp_path / "out").as_dict()
    assert time.process_time() - start < 8
    assert record["scenario"]["settings"]["profile"] == "paper"
    assert record["methods"]["gd"]["fields_left_open"] == ["augment", "bn_mode", "drop_last"]
    assert "epochs" in record["methods"]["retrain"]["fields_left_open"]
    assert "init_from" not in record["scenario"]


def test_a_method_table_with_a_wrong_field_is_refused(monkeypatch):
    tree = scenario_tree("tiny")
    tree["methods"]["gd"]["leraning_rate"] = 1
    monkeypatch.setattr("residuum.studies.scenario_files.scenario_tree", lambda name, profile: tree)
    with pytest.raises(InputError, match="unknown setting of gd 'leraning_rate'"):
        load_scenario("tiny")
