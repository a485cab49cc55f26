"""Durability: the treatments by a second way, what is measured before and after, and who comes back."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from residuum.auditing.auditor import audit
from residuum.auditing.probes import Durability, Evidence
from residuum.auditing.probes.durability import (
    POINTS,
    NotTreatableError,
    measures_of,
    recognition_rates,
    relearned_rows,
    trained_further,
    treat,
    way_to_original,
)
from residuum.core.roles import Role
from residuum.core.samples import Samples, Splits
from residuum.models import forward
from residuum.record import Row
from residuum.reporting.durability import durability_chip
from residuum.studies.probes import _of_columns
from residuum.training import Recipe, train

RECIPE = Recipe(epochs=20, lr=0.1, batch_size=16, schedule="cosine")


def samples_of(number, prefix, seed):
    source = torch.Generator().manual_seed(seed)
    y = torch.arange(number) % 3
    x = (torch.rand((number, 4), generator=source) + torch.eye(3, 4)[y]).clamp(0, 2) / 2
    return Samples(x, y, tuple(f"{prefix}{i:03d}" for i in range(number)))


def made_splits():
    train_set, test = samples_of(90, "train", 0), samples_of(60, "test", 1)
    rows = np.arange(90) % 3 == 1
    rows[45:] = False
    return Splits(
        train=train_set,
        retain=train_set.subset(np.flatnonzero(~rows)),
        forget=train_set.subset(np.flatnonzero(rows)),
        validation=train_set.subset([]),
        test=test,
        forgotten_test=train_set.subset([]),
        class_names=("a", "b", "c"),
    )


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).eval()


@pytest.fixture(scope="module")
def evidence():
    splits = made_splits()
    models = {"original": network(0), "m": network(1), "again": network(1)}
    roles = {"original": Role.ORIGINAL, "m": Role.METHOD, "again": Role.METHOD}

    def further(model, ids, seed):
        return trained_further(model, splits, RECIPE, ids, seed)

    return Evidence(splits, 5, roles, models, taus=[0.0, 0.1], further_training=further)


def weights_of(model):
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("name", ["finetune", "relearn", "round8", "round4", "prune", "average"])
def test_a_treatment_changes_a_copy_and_does_the_same_twice(evidence, name):
    model = evidence.models["m"]
    before = weights_of(model)
    one, other = treat(name, model, evidence), treat(name, evidence.models["again"], evidence)
    assert all(torch.equal(a, b) for a, b in zip(before, weights_of(model), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(weights_of(one), weights_of(other), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(before, weights_of(one), strict=True))


def test_rounding_leaves_so_many_values_and_pruning_half_of_the_weights(evidence):
    model = evidence.models["m"]
    for name, bits in (("round4", 4), ("round8", 8)):
        rounded = treat(name, model, evidence)
        for now, then in zip(rounded.parameters(), model.parameters(), strict=True):
            if then.ndim == 1:
                assert torch.equal(now, then)
                continue
            step = float(then.detach().abs().max()) / (2 ** (bits - 1) - 1)
            wanted = [[round(float(value) / step) * step for value in row] for row in then.detach()]
            assert now.detach().numpy() == pytest.approx(np.array(wanted), abs=1e-6)
    pruned = treat("prune", model, evidence)
    for now, then in zip(pruned.parameters(), model.parameters(), strict=True):
        if then.ndim > 1:
            order = np.argsort(np.abs(then.detach().numpy()).ravel())
            wanted = then.detach().numpy().ravel().copy()
            wanted[order[: then.numel() // 2]] = 0
            assert now.detach().numpy().ravel().tolist() == wanted.tolist()


def test_averaging_is_the_mean_and_refuses_another_network(evidence):
    mean = treat("average", evidence.models["m"], evidence)
    ends = [evidence.models[label].parameters() for label in ("m", "original")]
    for now, one, other in zip(mean.parameters(), *ends, strict=True):
        assert torch.allclose(now, (one + other) / 2)
    with pytest.raises(NotTreatableError, match="not the original's"):
        treat("average", nn.Linear(4, 3), evidence)
    with pytest.raises(NotTreatableError, match="not among"):
        treat("average", network(1), replace(evidence, models={}, roles={}))


def test_further_training_is_a_tenth_of_the_recipe_on_the_retained_samples(evidence):
    splits, model = evidence.splits, evidence.models["m"]
    wanted = train(model, splits.retain, replace(RECIPE, epochs=2), seed=3)
    now = trained_further(model, splits, RECIPE, [], 3)
    assert all(torch.equal(a, b) for a, b in zip(weights_of(now), weights_of(wanted), strict=True))
    again = [splits.forget.ids[row] for row in relearned_rows(evidence)]
    assert len(again) == 2
    with_some = trained_further(model, splits, RECIPE, again, 3)
    assert not torch.equal(weights_of(with_some)[0], weights_of(now)[0])


def test_recognition_without_noise_is_accuracy_and_held_out_samples_have_the_mix(evidence):
    splits, model = evidence.splits, evidence.models["m"]
    rows = np.arange(3, len(splits.forget))
    rates = recognition_rates({"m": model}, replace(evidence, taus=[0.0]), 3)["m"]
    measures = measures_of(rates, rows, "sample")
    right = forward(model, splits.forget).argmax(1).eq(splits.forget.y).double().numpy()
    assert measures["recognition"] == pytest.approx(right[rows].mean())
    held = evidence.heldout
    assert set(held.y.tolist()) == {1}
    held_right = forward(model, held).argmax(1).eq(held.y).double().mean().item()
    half = 0.5 / len(rows)
    assert measures["memory"] == pytest.approx(np.log((right[rows].mean() + half) / (held_right + half)))
    assert list(measures_of(rates, rows, "class")) == ["recognition"]


def test_the_value_is_the_change_by_fine_tuning_and_equal_models_get_equal_numbers(evidence):
    values = Durability(draws=5).measure(evidence)
    details = values["m"].details
    change = details["finetune_recognition_after"] - details["finetune_recognition_before"]
    assert values["m"].value == pytest.approx(change)
    assert values["m"] == values["again"]
    assert values["original"].details["average_recognition_after"] == pytest.approx(
        values["original"].details["average_recognition_before"]
    )
    assert "distance" not in values["original"].details
    assert details["relearn_recognition_before"] != details["finetune_recognition_before"]  # of fewer samples


def test_without_a_way_to_train_there_is_a_note(evidence):
    value = Durability().measure(replace(evidence, further_training=None))["m"]
    assert value.value is None
    assert "way to train a model further" in value.note


def test_distance_and_barrier_of_a_line_that_is_known(evidence):
    near = network(0)
    with torch.no_grad():
        near[2].bias += 0.5  # all logits alike: another place, the same answers
    hints = way_to_original(near, evidence)
    norm = torch.cat([p.detach().flatten() for p in evidence.models["original"].parameters()]).norm().item()
    assert hints["distance"] == pytest.approx(0.5 * 3**0.5 / norm, rel=1e-5)
    assert hints["barrier"] == pytest.approx(0, abs=1e-6)
    assert way_to_original(nn.Linear(4, 3), evidence) == {}


def recorded(before, after):
    return {"value": after - before, "finetune_recognition_before": before, "finetune_recognition_after": after}


RETRAINED = [recorded(0.80 + 0.01 * k, 0.80 + 0.01 * k + 0.002 * (-1) ** k) for k in range(6)]
COLUMNS = {"finetune_recognition": 0.5}


def summary(before, after):
    return _of_columns(COLUMNS, [recorded(before, after)], RETRAINED, 0.0)


def test_a_row_comes_back_if_it_rises_and_ends_above_retrained_models():
    assert summary(0.81, 0.95)["found"]
    assert not summary(0.60, 0.82)["found"]  # trained for too short a time: it rises and ends among them
    assert not summary(0.95, 0.95)["found"]  # it never forgot
    assert not summary(0.81, 0.81)["found"]


def test_p_of_a_column_is_the_larger_one_over_its_share():
    from scipy.stats import ttest_ind

    changes = [value["value"] for value in RETRAINED]
    ends = [value["finetune_recognition_after"] for value in RETRAINED]
    tests = [ttest_ind([x], of, alternative="greater").pvalue for x, of in ((0.04, changes), (0.86, ends))]
    assert summary(0.82, 0.86)["p"] == pytest.approx(min(1.0, max(tests) / 0.5), rel=1e-6)


@pytest.mark.parametrize(
    ("before", "after", "label"),
    [(0.81, 0.95, "comes back"), (0.95, 0.95, "not forgotten to begin with"), (0.81, 0.82, "stays forgotten")],
)
def test_the_chip_says_it_in_a_few_words(before, after, label):
    probe = {"value": after - before, **summary(before, after)}
    row = Row.model_validate({"role": "method", "method": "m", "per_seed": {}, "probes": {"durability": probe}})
    chip = durability_chip(row)
    assert chip.label == label
    assert chip.sentence.endswith(".")
    assert label != "comes back" or "from 81.0 to 95.0 %" in chip.sentence


def test_the_chip_knows_when_it_cannot_tell():
    row = Row.model_validate(
        {"role": "method", "method": "m", "per_seed": {}, "probes": {"durability": {"value": None, "note": "why"}}}
    )
    assert durability_chip(row).label == "durability: cannot tell"
    assert durability_chip(Row.model_validate({"role": "method", "method": "m", "per_seed": {}})) is None


def test_the_cost_that_is_said_counts_every_perturbed_input(evidence, monkeypatch):
    shown = []

    def counted(models, reference, samples, perturbation, *, taus, draws, heldout, **options):
        moved = sum(tau > 0 for tau in taus)
        shown.append(len(models) * (len(samples) + len(heldout)) * draws * moved)
        return audit(models, reference, samples, perturbation, taus=taus, draws=draws, heldout=heldout, **options)

    with monkeypatch.context() as patch:
        patch.setattr("residuum.auditing.probes.durability.audit", counted)
        Durability(draws=4).measure(evidence)
    on_the_way = POINTS * len(evidence.splits.retain)
    said = Durability(draws=4).predictions(evidence.splits, sum(tau > 0 for tau in evidence.taus))
    assert sum(shown) == len(evidence.models) * (said - on_the_way)
