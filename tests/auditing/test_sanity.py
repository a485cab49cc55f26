import copy
import json
import warnings

import pytest
import torch
from tests.auditing.conftest import counted
from torch import nn

from residuum.auditing import Counts, Manifest, read_manifest
from residuum.auditing.sanity import result_warnings
from residuum.core.errors import InputError, ResiduumWarning
from residuum.perturbations import FGSM, InputSpace


def run(model, reference, samples, perturbation="gaussian", draws=400, **more):
    return counted({"m": model}, reference, samples, perturbation, taus=[0, 0.02], draws=draws, seed=5, **more)


def doubts(model, reference, samples, *rest, **more):
    with pytest.warns(ResiduumWarning) as shown:
        result = run(model, reference, samples, *rest, **more)
    assert [str(warning.message) for warning in shown] == result.warnings
    return result.warnings


def test_a_sound_audit_has_no_doubts(reference, samples):
    assert run(reference, reference, samples).warnings == []


def test_training_mode(networks, reference, samples):
    model = copy.deepcopy(reference)
    model[1].train()
    assert doubts(model, reference, samples) == ["m is in training mode; it is audited in eval mode"]
    assert "the reference is in training mode" in doubts(reference, model, samples)[0]


def test_probabilities(reference, samples):
    model = nn.Sequential(copy.deepcopy(reference), nn.Softmax(1)).eval()
    assert "m returns probabilities" in doubts(model, reference, samples)[0]


def test_nan(reference, samples):
    model = copy.deepcopy(reference)
    nn.init.constant_(model[-1].bias, float("nan"))
    result = run_silently(model, reference, samples)
    assert any("NaN" in message for message in result.warnings)
    assert result.counts["m"].method_right.sum() == 0
    assert result.counts["m"].reference_right.sum() > 0


def run_silently(*arguments, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResiduumWarning)
        return run(*arguments, **more)


def test_zero_gradients(reference, samples):
    model = copy.deepcopy(reference)
    model[3].bias.data -= 1000  # no unit is ever active
    found = run_silently(model, reference, samples, FGSM(target="true")).warnings
    assert "m has zero input gradients on 100% of the probe; the attack does not move these inputs" in found


def test_attacks_that_lower_r_by_construction(reference, samples):
    for target in ("untargeted", "random"):
        assert "lowers r by construction" in doubts(reference, reference, samples, FGSM(target=target))[0]
        silent = run_silently(reference, reference, samples, FGSM(target=target), crafted_on="reference")
        assert silent.warnings == []
    assert run(reference, reference, samples, FGSM(target="true")).warnings == []


def test_a_reference_that_has_seen_the_samples(reference, samples, tmp_path):
    unknown = run(reference, reference, samples, seen={"the retain set": frozenset(["other"])})
    assert unknown.warnings == []
    assert "seen" not in unknown.settings
    with pytest.warns(ResiduumWarning, match="has seen 2"):
        known = run(reference, reference, samples, seen={"a": set(samples.ids[:2]), "b": {"other"}})
    assert known.settings["seen"] == {"a": 2}
    message = doubts(reference, reference, samples, seen={"the retain set": {samples.ids[0], "other"}})[0]
    assert "has seen 1 of 9 audited samples in the retain set" in message
    file = tmp_path / "weights.json"
    file.write_text(json.dumps({"schema": "residuum.manifest/1", "unseen_ids": list(samples.ids[:6])}))
    message = doubts(reference, reference, samples, seen={"pre-training": read_manifest(file)})[0]
    assert "has seen 3 of 9 audited samples in pre-training" in message
    file.write_text(json.dumps({"schema": "residuum.manifest/1", "seen_ids": list(samples.ids[:2])}))
    assert read_manifest(file) == Manifest(seen=frozenset(samples.ids[:2]))


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": "residuum.manifest/1"}', '{"schema": "x", "seen_ids": []}'])
def test_files_that_are_no_manifest_are_refused(tmp_path, content):
    (tmp_path / "m.json").write_text(content)
    with pytest.raises(InputError, match="expected"):
        read_manifest(tmp_path / "m.json")


def test_too_few_draws(networks, reference, samples):
    found = doubts(networks["m"], reference, samples, draws=4)
    assert any("4 draws are too few for any sample's sign test" in message for message in found)


def test_intervals_that_say_nothing():
    def counts(draws, method, reference):
        columns = {"draws": draws, "method_right": method, "reference_right": reference, "both_right": 0}
        table = {name: [[value]] for name, value in columns.items()}
        return Counts.of(["a"], [0], [0.1], **table, same_prediction=[[0]])

    tables = {"unclear": counts(20, 9, 8), "clear": counts(20, 18, 2), "narrow": counts(20_000, 9000, 9010)}
    assert list(result_warnings(tables, 0.95, exact=False)) == [
        "too few draws to tell r from 1 within +-0.1: unclear; ask for more draws or for a half-width"
    ]
    assert list(result_warnings(tables, 0.95, exact=True)) == []


def test_a_model_that_cannot_run_in_float64(reference, samples):
    class Single(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 36))

        def forward(self, x):
            return torch.nn.functional.linear(x.flatten(1), self.weight.float())

    assert any("cannot run in float64" in message for message in run_silently(Single(), reference, samples).warnings)


def test_a_model_in_eval_mode_is_not_said_to_be_in_training_mode_at_a_layer(reference, samples):
    assert run(reference, reference, samples, space=InputSpace(at="1")).warnings == []
