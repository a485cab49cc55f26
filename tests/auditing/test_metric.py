"""The metric gives the audit's numbers, exactly, however the samples are cut into batches."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from residuum import InputError, ResidualKnowledge, audit
from residuum.auditing.predictor import Predictor
from residuum.core.errors import ResiduumWarning
from residuum.core.samples import Samples

TAUS = [0.0, 0.05, 0.2]


@pytest.fixture
def networks():
    torch.manual_seed(0)
    return [nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)) for _ in "ab"]


@pytest.fixture
def samples():
    torch.manual_seed(1)
    return Samples(torch.rand(23, 1, 4, 4), torch.randint(4, (23,)), tuple(f"mine/{row}" for row in range(23)))


def fed(metric, samples, size, *, named=True):
    for rows in torch.arange(len(samples)).split(size):
        x, y = samples.batch(rows)
        metric.update(x, y, [samples.ids[row] for row in rows] if named else None)
    return metric


@pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")
@pytest.mark.parametrize("size", [1, 7, 23])
@pytest.mark.parametrize("perturbation", ["gaussian", "fgsm", "pgd"])
def test_batches_give_the_numbers_of_one_audit(networks, samples, perturbation, size):
    model, reference = networks
    asked = {"taus": TAUS, "draws": 30, "seed": 5}
    whole = audit({"m": model}, reference, samples, perturbation, **asked)
    metric = fed(ResidualKnowledge(model.eval(), reference.eval(), perturbation, **asked), samples, size)
    assert metric.result.counts["the model"] == whole.counts["m"]
    assert metric.compute() == whole.measures("m")


@pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")
def test_samples_without_ids_are_numbered_over_all_batches(networks, samples):
    numbered = Samples(samples.x, samples.y, tuple(map(str, range(23))))
    model, reference = networks
    whole = audit({"m": model}, reference, numbered, "gaussian", taus=TAUS, draws=30, seed=5)
    metric = ResidualKnowledge(model, reference, taus=TAUS, draws=30, seed=5)
    assert fed(metric, samples, 4, named=False).compute() == whole.measures("m")


@pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")
def test_reset_starts_again(networks, samples):
    metric = ResidualKnowledge(*networks, taus=TAUS, draws=10)
    first = fed(metric, samples, 23).compute()
    metric.reset()
    with pytest.raises(InputError, match="at least one batch"):
        metric.compute()
    assert fed(metric, samples, 5).compute() == first


@pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")
def test_models_are_prepared_once_and_again_after_a_reset(networks, samples, monkeypatch):
    prepared, init = [], Predictor.__init__
    monkeypatch.setattr(Predictor, "__init__", lambda self, *given: prepared.append(1) or init(self, *given))
    metric = fed(ResidualKnowledge(*networks, taus=TAUS, draws=5), samples, 4)
    assert len(prepared) == 2
    metric.reset()
    fed(metric, samples, 4)
    assert len(prepared) == 4


def test_a_sample_counts_once(networks, samples):
    metric = fed(ResidualKnowledge(*(each.eval() for each in networks), taus=TAUS, draws=10), samples, 23)
    with pytest.raises(InputError, match="unique ids"):
        fed(metric, samples, 23)


def test_warnings_are_those_of_the_whole_and_come_once(networks, samples):
    model, reference = networks
    with warnings.catch_warnings(record=True) as of_audit:
        warnings.simplefilter("always")
        audit({"the model": model}, reference, samples, "gaussian", taus=TAUS, draws=2, seed=0)
    with warnings.catch_warnings(record=True) as of_batches:
        warnings.simplefilter("always")
        metric = fed(ResidualKnowledge(model, reference, taus=TAUS, draws=2), samples, 3)
        assert not of_batches
        metric.compute()
    texts = [sorted(str(each.message) for each in found) for found in (of_audit, of_batches)]
    assert texts[0] == texts[1]
    assert all(issubclass(each.category, ResiduumWarning) for each in of_batches)
    assert any("training mode" in text for text in texts[0])
