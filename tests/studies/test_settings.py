"""Scenarios, overrides and rows: what is accepted, and what is refused with the nearest names."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from residuum.core.errors import InputError
from residuum.perturbations import FGSM, PGD, InputSpace
from residuum.studies import SCENARIOS, Study, load_scenario
from residuum.studies.parsing import build_perturbation, field_type, override, read_as
from residuum.studies.settings import AuditSettings, Scenario, Strict
from residuum.studies.study import parse_row
from residuum.training import Recipe
from residuum.unlearning import GD


class Part(Strict):
    radius: float = 0.1


class Holder(Strict):
    part: Part | None = None


def test_every_scenario_loads_and_its_rows_can_be_built():
    assert "digits" in SCENARIOS
    for name in SCENARIOS:
        study = Study.create(name)
        assert study.labels[:3] == ["original", "retrain", "control"]
        assert [row.build().name for row in study.rows] == [row.method for row in study.rows]


def test_digits_is_cut_as_documented():
    splits = Study.create("digits").splits()
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [897, 450, 450]
    eights = int((splits.train.y == 8).sum())
    assert set(splits.forget.y.tolist()) == {8}
    assert len(splits.forget) in (eights // 2, (eights + 1) // 2)
    assert set(splits.forget.ids).isdisjoint(splits.retain.ids)


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ("train = {lr = true}", "train.lr"),
        ("relearn = {tolerance = false}", "relearn.tolerance"),
        ("audit = {draws = true}", "audit.draws"),
        ("audit = {taus = {gaussian = [0, true]}}", "audit.taus.gaussian.1"),
        ("methods = {gd = {lr = true}}", "gd: lr"),
        ("methods = {soft_reset = {momentum = true}}", "soft_reset: momentum"),
        ("seeds = [true]", "seeds.0"),
    ],
)
def test_true_is_no_number_in_a_file(change, setting, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(f'based_on = "digits"\n{change}\n[forget]\nforget_fraction = 0.1\n')
    with pytest.raises(InputError, match=rf"^{setting}: expected a (number|whole number)"):
        load_scenario(str(file))


def test_true_is_no_number_in_python():
    for wrong in (lambda: Recipe(lr=True), lambda: GD(lr=True), lambda: AuditSettings(draws=True)):
        with pytest.raises(ValueError, match=r"valid (number|integer)"):
            wrong()
    assert Recipe(lr="0.1", augment=True).lr == 0.1


def test_the_forget_set_does_not_depend_on_the_run_seed():
    one, other = (Study.create("digits", seeds=[seed]).splits().forget.ids for seed in (1, 2))
    assert one == other


def test_overrides_reach_scenario_and_methods():
    changes = {"train.epochs": "5", "audit.taus.gaussian": "0,0.01", "rurk.tau": "0.02", "train.clip": "none"}
    study = Study.create("digits", methods="rurk,rurk:tau=0.5", overrides=changes)
    assert study.scenario.train.epochs == 5
    assert study.scenario.train.clip is None
    assert study.scenario.audit.taus["gaussian"] == [0, 0.01]
    assert [row.settings["tau"] for row in study.rows] == [0.02, 0.5]


def test_the_scenario_decides_what_the_command_line_leaves_open():
    digits = load_scenario("digits")
    row = parse_row("rurk", digits.methods)
    for key, value in digits.methods.get("rurk", {}).items():
        assert row.settings[key] == value


def test_labels_name_rows_and_keys_are_sorted():
    assert parse_row("strong=ga:lr=0.5").label == "strong"
    assert parse_row("rurk:v=2:tau=0.1").label == "rurk:tau=0.1:v=2"
    assert parse_row("ga:lr=0.5").settings["lr"] == 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scenario": "digit"}, "unknown scenario 'digit'; did you mean digits"),
        ({"methods": "rukr"}, "unknown method 'rukr'; did you mean rurk"),
        ({"methods": "rurk:tua=1"}, "unknown setting of rurk 'tua'; did you mean tau"),
        ({"methods": "rurk:tau"}, "expected NAME:key=value, got 'tau'"),
        ({"methods": "rurk:tau=-1"}, "rurk: tau: expected 0 or more, got -1"),
        ({"methods": "ga,ga"}, "two rows are called 'ga'; put LABEL= before one"),
        ({"methods": "a/b=ga"}, "label that can name a file, got 'a/b'"),
        ({"methods": "retrain"}, "retrain always runs"),
        ({"methods": "control_9"}, "control_9 always runs"),
        ({"methods": "control_9=gd"}, "a row label other than original, .* and control_..., got 'control_9'"),
        ({"methods": "control_fast=gd"}, "got 'control_fast'; rename it"),
        ({"methods": "original=gd"}, "a row label other than original"),
        ({"overrides": {"train.epoch": 3}}, "unknown setting 'train.epoch'; did you mean train.epochs"),
        ({"overrides": {"trian.epochs": 3}}, "unknown setting 'trian.epochs'; did you mean train.epochs"),
        ({"overrides": {"rurk.tua": 3}}, "unknown setting of rurk 'tua'"),
        ({"overrides": {"train.epochs": "many"}}, "train.epochs: expected a whole number, got 'many'"),
        ({"overrides": {"model.name": "cnnn"}}, "unknown model 'cnnn'; did you mean cnn"),
        ({"overrides": {"audit.perturbations": ["gausian"]}}, "unknown perturbation 'gausian'; did you mean gaussian"),
        ({"overrides": {"audit.taus.gaussian": []}}, "expected radii for gaussian"),
        (
            {"overrides": {"audit.perturbations": "fgsm:tarjet=true"}},
            "unknown setting of fgsm 'tarjet'; did you mean target",
        ),
        (
            {"overrides": {"audit.perturbations": ["gaussian:mean=1"]}},
            "unknown setting of gaussian 'mean'. Known: .*bounds|unknown setting of gaussian 'mean'; .*bounds",
        ),
        ({"overrides": {"audit.perturbations": ["fgsm:target=tru"]}}, "fgsm: target: .*'true'.*got 'tru'"),
        ({"overrides": {"audit.perturbations": ["pgd:steps=few"]}}, "pgd: steps: expected a whole number, got 'few'"),
        ({"overrides": {"audit.perturbations": ["pgd:steps=0"]}}, "pgd: .*expected steps >= 1"),
        ({"overrides": {"audit.half_width": 0.01}}, "expected either draws or a half-width"),
        (
            {"overrides": {"audit.half_width": 0.01, "audit.draws": None, "audit.until": "verdict"}},
            "expected draws with audit.until=verdict, got a half-width",
        ),
        ({"overrides": {"audit.until": "noon"}}, "audit.until: .*'verdict'.*got 'noon'"),
        ({"seeds": [1, 1]}, "at least one seed and none twice"),
        ({"seeds": []}, "at least one seed"),
    ],
)
def test_wrong_settings_are_refused_with_the_nearest_names(arguments, message):
    with pytest.raises(InputError, match=message):
        Study.create(**{"scenario": "digits", **arguments})


def test_a_row_made_by_hand_cannot_take_the_place_of_a_control():
    good = Study.create("digits", methods="gd")
    for changes in ({"label": "control_9"}, {"method": "control_2"}):
        row = good.rows[0].model_copy(update=changes)
        with pytest.raises(ValueError, match=r"other than original, retrain, control and control_\.\.\."):
            Study(scenario=good.scenario, rows=[row])


def test_an_override_below_a_plain_value_is_refused():
    with pytest.raises(InputError, match=r"unknown setting 'train.epochs.x'"):
        override({"train": {"epochs": 3}, "methods": {}}, "train.epochs.x", 1)


def test_wrong_data_is_refused_before_anything_runs():
    with pytest.raises(InputError, match="unknown data set 'digitz'"):
        Study.create("digits", overrides={"data.name": "digitz"}).splits()


def test_perturbations_take_settings_and_the_radii_of_their_name():
    changes = {"audit.perturbations": ["fgsm:target=random", "pgd:steps=3"], "audit.taus.pgd:steps=3": [0, 0.5]}
    audit = Study.create("digits", overrides=changes).scenario.audit
    assert audit.radii("fgsm:target=random") == audit.taus["fgsm"]
    assert audit.radii("pgd:steps=3") == [0, 0.5]
    assert build_perturbation("pgd:steps=3")[0].steps == 3


@pytest.mark.parametrize("target", ["untargeted", "true", "random"])
def test_every_target_of_an_attack_can_be_asked_for(target):
    spec = f"fgsm:target={target}"
    assert Study.create("digits", overrides={"audit.perturbations": [spec]}).scenario.audit.perturbations == (spec,)
    assert build_perturbation(spec) == (FGSM(target=target), InputSpace())
    assert build_perturbation("pgd:random_start=false")[0] == PGD(random_start=False)


def test_a_field_that_holds_text_keeps_text_whatever_it_looks_like():
    changes = {
        "data.classes": "3,8",
        "data.name": "1",
        "eu_k.blocks": "0,1",
        "cf_k.blocks": "none",
        "train.clip": "none",
    }
    study = Study.create("digits", methods=["eu_k", "cf_k", "eu_k:blocks=1", "eu_k:blocks=0+1"], overrides=changes)
    scenario = study.scenario
    assert (list(scenario.data.classes), scenario.data.name, scenario.train.clip) == (["3", "8"], "1", None)
    assert [row.settings["blocks"] for row in study.rows] == [("0", "1"), None, ("1",), ("0", "1")]
    assert list(load_scenario("digits", {"data.classes": "3"}).data.classes) == ["3"]


def test_the_type_of_a_field_decides_what_a_text_means():
    kinds = {
        "true": [str, Literal["true"], str | None],
        True: [bool, bool | None, Any],
        "7": [str | int],
        7: [int, float],
    }
    for expected, options in kinds.items():
        assert all(read_as(kind, str(expected).lower()) == expected for kind in options)
    assert read_as(Literal["predicted"] | float, "0.5") == 0.5
    assert field_type(Holder, ["part", "radius"]) != Any  # reached through "Part | None"
    assert field_type(Scenario, ["audit", "taus", "gaussian"]) == Any
