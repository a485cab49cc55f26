"""Accuracies, membership inference and re-learn time against hand-made answers."""

from __future__ import annotations

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.stats import entropy
from sklearn.svm import SVC
from torch import nn

from residuum.core.errors import InputError, ResiduumWarning
from residuum.core.samples import Samples, Splits
from residuum.metrics import (
    ATTACK_PARTS,
    MOST_TRAINED,
    Relearning,
    accuracies,
    accuracy,
    attack_failure,
    evaluate,
    logits_of_parts,
    margins,
    mean_loss,
    membership_accuracy,
    relearn_time,
    softmax_feature,
)


def logits_as_samples(rows, labels):
    x = torch.tensor(rows)
    return Samples(x, torch.tensor(labels), tuple(str(i) for i in range(len(labels))))


def test_accuracy_counts_right_answers():
    samples = logits_as_samples([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [0, 1, 1])
    assert accuracy(nn.Identity(), samples) == pytest.approx(200 / 3)


def test_unlearn_accuracy_is_what_the_forget_accuracy_leaves(original, splits):
    values = accuracies(logits_of_parts(original, splits), splits)
    assert values["unlearn_accuracy"] == pytest.approx(100 - accuracy(original, splits.forget))
    assert values["retain_accuracy"] == accuracy(original, splits.retain)
    assert values["test_accuracy"] == accuracy(original, splits.test)


def test_class_form_tests_without_the_forgotten_class_and_asks_about_its_test_images(class_splits):
    assert 0 not in class_splits.test.y
    assert ATTACK_PARTS[class_splits.form] == ("retain", "forget", "forgotten_test")
    assert len(class_splits.forgotten_test) > 0
    assert set(class_splits.forgotten_test.y.tolist()) == {0}


def test_sample_form_asks_about_the_forget_set(splits):
    assert ATTACK_PARTS[splits.form] == ("retain", "test", "forget")


def test_features_agree_with_scipy():
    samples = logits_as_samples([[2.0, 0.0, -1.0], [0.0, 0.0, 0.0]], [0, 2])
    p = np.exp(samples.x.double().numpy())
    p /= p.sum(1, keepdims=True)
    np.testing.assert_allclose(softmax_feature(samples.x, samples.y, "entropy"), entropy(p, axis=1), atol=1e-12)
    np.testing.assert_allclose(softmax_feature(samples.x, samples.y, "true_prob"), [p[0, 0], p[1, 2]], atol=1e-12)


def test_the_attack_is_the_literatures_svm():
    rng = np.random.default_rng(0)
    seen, unseen, asked = rng.beta(8, 1, 60), rng.beta(2, 1, 40), rng.beta(4, 1, 30)
    machine = SVC(C=3, gamma="auto", kernel="rbf")
    machine.fit(np.r_[seen, unseen].reshape(-1, 1), np.r_[np.ones(60), np.zeros(40)])
    expected = 100 * np.mean(machine.predict(asked.reshape(-1, 1)) == 0)
    assert 0 < expected < 100
    assert attack_failure(seen, unseen, asked) == pytest.approx(expected)


def test_an_attack_that_says_the_same_of_everyone_is_flagged():
    with pytest.warns(ResiduumWarning, match="calls every sample unseen"):
        assert attack_failure(np.ones(30), np.zeros(30), np.zeros(5)) == 100


def test_relearn_time_is_the_first_epoch_below_the_threshold(original, splits):
    fresh = copy.deepcopy(original)
    nn.init.zeros_(fresh.fc.weight)
    nn.init.zeros_(fresh.fc.bias)
    recipe = Relearning(lr=0.05, epochs=30, batch_size=4)
    target = 2 * mean_loss(original, splits.forget)
    time = relearn_time(fresh, target, splits, recipe, seed=1)
    assert time["value"] is not None
    assert time["value"] > 0
    assert time["threshold"] == pytest.approx(1.05 * target)
    sooner = dataclasses.replace(recipe, epochs=time["value"] - 1)
    assert relearn_time(fresh, target, splits, sooner, seed=1)["censored"]
    exact = dataclasses.replace(recipe, epochs=time["value"])
    assert relearn_time(fresh, target, splits, exact, seed=1)["value"] == time["value"]


def test_relearn_time_zero_before_the_first_epoch_and_model_untouched(original, splits, same_weights):
    before = copy.deepcopy(original)
    time = relearn_time(original, mean_loss(original, splits.forget), splits, seed=1)
    assert (time["value"], time["censored"]) == (0, False)
    assert same_weights(original, before)


def test_relearning_on_the_full_training_set_reads_it(original, splits):
    fresh = copy.deepcopy(original)
    nn.init.zeros_(fresh.fc.weight)
    poisoned = dataclasses.replace(splits.train, x=torch.full_like(splits.train.x, torch.nan))
    canary = dataclasses.replace(splits, train=poisoned)
    with pytest.warns(UserWarning, match="beyond the cap: expected a finite loss, got nan in epoch 1"):
        assert relearn_time(fresh, 1e-9, canary, Relearning(data="full"), seed=1)["censored"]
    assert relearn_time(fresh, 1e-9, canary, Relearning(data="forget", epochs=1), seed=1)["censored"]


@pytest.mark.filterwarnings("ignore:the membership attack calls every sample")
def test_evaluate_gathers_everything_and_changes_nothing(original, splits, same_weights):
    before = copy.deepcopy(original)
    values = evaluate(original, splits, original_loss=mean_loss(original, splits.forget), seed=1)
    assert values["relearn_epochs"]["value"] == 0
    assert values["mia_accuracy"] == membership_accuracy(logits_of_parts(original, splits), splits)
    assert evaluate(original, splits)["relearn_epochs"] is None
    assert same_weights(original, before)


@pytest.mark.parametrize("form", ["sample", "class"])
def test_margins_compare_forgotten_with_held_out_samples_of_their_classes(form):
    """In loops over pairs; class 2 has no held-out sample, class 0 no forgotten one. Equal margins count half."""
    rng = np.random.default_rng(4)

    def part(labels):
        x = torch.tensor(rng.integers(0, 4, (len(labels), 3)) / 2)
        return Samples(x, torch.tensor(labels), tuple(f"{len(labels)}/{i}" for i in range(len(labels))))

    forget, test, empty = part([1, 1, 1, 2, 3, 3]), part([0, 0, 1, 1, 3, 3, 3]), part([])
    forget, test = (Samples(torch.cat([p.x, p.x[:, :1]], 1), p.y, p.ids) for p in (forget, test))
    parts = {"test": empty, "forgotten_test": test} if form == "class" else {"test": test, "forgotten_test": empty}
    splits = Splits(test, test, forget, test, **parts, class_names=tuple("abcd"), form=form)
    names = ("forget", "test", "forgotten_test")
    logits = {name: getattr(splits, name).x for name in names if len(getattr(splits, name))}
    found = margins(logits, splits)

    def margin(samples, row):
        others = [float(samples.x[row, c]) for c in range(4) if c != samples.y[row]]
        return float(samples.x[row, samples.y[row]]) - max(others)

    ours, theirs = ([(int(p.y[i]), margin(p, i)) for i in range(len(p))] for p in (forget, test))
    pairs = [(a, b) for label, a in ours for other, b in theirs if label == other]
    assert found["forget_margin"] == pytest.approx(np.mean([a for _, a in ours]))
    assert found["heldout_auc"] == pytest.approx(np.mean([(a > b) + (a == b) / 2 for a, b in pairs]))
    assert found["heldout_auc_error"] == pytest.approx(math.sqrt((3 * 2 * 6 + 2 * 3 * 6) / 12) / 12)
    matched = [(a, np.mean([b for other, b in theirs if other == label])) for label, a in ours if label != 2]
    assert found["margin_gap"] == pytest.approx(np.mean([a - b for a, b in matched]))
    alone = dataclasses.replace(splits, test=empty, forgotten_test=empty)
    assert margins({"forget": forget.x}, alone) == {"forget_margin": found["forget_margin"]}


def test_the_error_of_the_auc_is_its_standard_deviation_where_both_are_alike():
    rng, aucs = np.random.default_rng(2), []
    labels = torch.tensor([0, 1]).repeat_interleave(torch.tensor([12, 8]))
    for _ in range(400):
        x = torch.tensor(rng.normal(size=(60, 2)))
        forget = Samples(x[:20], labels, tuple(map(str, range(20))))
        test = Samples(x[20:], torch.arange(40) % 2, tuple(map(str, range(40))))
        splits = Splits(test, test, forget, test, test, test, class_names=("a", "b"))
        found = margins({"forget": x[:20], "test": x[20:]}, splits)
        aucs.append(found["heldout_auc"])
    assert np.mean(aucs) == pytest.approx(0.5, abs=0.02)
    assert np.std(aucs) == pytest.approx(found["heldout_auc_error"], rel=0.15)


def test_evaluate_refuses_a_model_with_the_wrong_number_of_classes(splits):
    with pytest.raises(InputError, match="classes"):
        evaluate(nn.Sequential(nn.Flatten(), nn.Linear(36, 5)), splits)


def test_the_attacker_is_fitted_on_so_many_samples_at_most_chosen_by_seed_and_says_so(monkeypatch):
    assert MOST_TRAINED == 10_000
    monkeypatch.setattr("residuum.metrics.MOST_TRAINED", 1_000)
    fitted = []
    fit = SVC.fit

    def counted(self, x, y):
        fitted.append((len(x), y.sum(), x.sum()))
        return fit(self, x[::50], y[::50])  # what is chosen matters here, not what comes out

    monkeypatch.setattr(SVC, "fit", counted)
    rng = np.random.default_rng(0)
    seen, unseen, asked = rng.beta(6, 1, 1_601), rng.beta(1, 1, 400), rng.random(50)
    text = "the membership attack is fitted on 1,000 of 2,001 samples, chosen by seed"
    for seed in (1, 1, 2):
        with pytest.warns(ResiduumWarning, match=text):
            attack_failure(seen, unseen, asked, seed=seed)
    attack_failure(seen[:700], unseen[:300], asked)
    assert [size[:2] for size in fitted] == [(1_000, 800)] * 3 + [(1_000, 700)]  # both kinds in proportion
    assert fitted[0] == fitted[1] != fitted[2]


def test_evaluate_chooses_the_attackers_samples_by_its_seed(original, splits, monkeypatch):
    seeds = []
    monkeypatch.setattr("residuum.metrics.membership_accuracy", lambda *_, seed, **options: seeds.append(seed) or 0.0)
    for seed in (1, 1, 2):
        evaluate(original, splits, seed=seed)
    assert len(set(seeds[:4])) == 1
    assert seeds[0] != seeds[4]
