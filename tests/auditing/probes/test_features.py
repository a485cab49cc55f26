"""The probe of features: a second way to its number, what it cannot depend on, and when it has none."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from residuum.auditing.probes import Evidence, Features
from residuum.core.roles import Role
from residuum.core.samples import Samples, Splits
from residuum.models import head_features

SEED = 11


def samples_of(labels, prefix, shift=1.5, seed=0):
    rng = np.random.default_rng(seed)
    y = np.asarray(labels)
    x = rng.normal(size=(len(y), 6)) + shift * np.eye(3, 6)[y]
    return Samples(torch.tensor(x, dtype=torch.float32), torch.tensor(y), tuple(f"{prefix}{i}" for i in range(len(y))))


def splits_of(forgotten, *, form="sample"):
    train = samples_of([0, 1, 2] * 10, "train")
    test, nothing = samples_of([0, 1, 2] * 40, "test", seed=1), train.subset([])
    inside = np.isin(test.y.numpy(), forgotten)
    in_class = form == "class"
    return Splits(
        train=train,
        retain=train.subset(np.flatnonzero(~np.isin(train.y.numpy(), forgotten))),
        forget=train.subset(np.flatnonzero(np.isin(train.y.numpy(), forgotten))),
        validation=nothing,
        test=test.subset(np.flatnonzero(~inside)) if in_class else test,
        forgotten_test=test.subset(np.flatnonzero(inside)) if in_class else nothing,
        class_names=("a", "b", "c"),
        form=form,
    )


def network(seed=3):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def measured(splits, model, **settings):
    evidence = Evidence(splits, SEED, {"m": Role.METHOD}, {"m": model})
    return Features(**settings).measure(evidence)["m"]


def test_the_area_is_that_of_scikit_learns_cross_validation():
    splits, model = splits_of([1]), network()
    features, positive = head_features(model, splits.test).numpy(), splits.test.y.numpy() == 1
    cuts = StratifiedKFold(5, shuffle=True, random_state=SEED)
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    scores = cross_val_predict(classifier, features, positive, cv=cuts, method="decision_function")
    value = measured(splits, model)
    assert value.value == pytest.approx(roc_auc_score(positive, scores), abs=1e-9)
    assert value.low < value.value < value.high


def test_it_depends_on_the_features_and_not_on_the_head():
    splits, model, other = splits_of([1]), network(), network()
    with torch.no_grad():
        other[2].weight.normal_()
        other[2].bias.normal_()
    assert measured(splits, other) == measured(splits, model)
    with torch.no_grad():
        other[0].weight[0] = 0
    assert measured(splits, other).value != measured(splits, model).value


def test_a_class_that_was_forgotten_completely_is_read_from_its_own_part():
    in_class, in_test = (measured(splits_of([1], form=form), network()) for form in ("class", "sample"))
    assert in_class.details["samples"] == in_test.details["samples"] == 120
    assert in_class.value == pytest.approx(in_test.value, abs=0.05)  # other folds, the same samples


def test_several_classes_give_the_mean_in_the_mix_of_the_forget_set():
    splits = splits_of([0, 1])
    splits = replace(splits, forget=splits.forget.subset([0, 1, 2, 4]))  # classes 0, 1, 0, 0
    assert splits.forget.y.tolist() == [0, 1, 0, 0]
    one, other = (measured(splits_of([label]), network()).value for label in (0, 1))
    assert measured(splits, network()).value == pytest.approx(0.75 * one + 0.25 * other, abs=1e-12)


def test_features_without_the_class_tell_nothing():
    model = network()
    with torch.no_grad():
        model[0].weight[:, :3] = 0  # what tells the classes
    assert measured(splits_of([1]), model).value < 0.6 < 0.65 < measured(splits_of([1]), network()).value


def test_without_held_out_samples_or_a_head_there_is_a_note():
    splits = splits_of([1])
    few = replace(splits, test=splits.test.subset(range(12)))
    assert "at least 10 held-out samples" in measured(few, network()).note
    assert "at least 10" in measured(replace(splits, test=splits.test.subset([])), network()).note
    assert "no nn.Linear" in measured(splits, nn.Conv1d(6, 3, 1)).note
