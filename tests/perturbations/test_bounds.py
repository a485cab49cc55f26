"""Bounds: inputs outside are refused by id, perturbed ones stay inside, and without bounds nothing is clamped."""

import numpy as np
import pytest
import torch
from torch import nn

from residuum import audit, make_splits, unlearn
from residuum.core.errors import InputError
from residuum.core.samples import Samples
from residuum.core.seeds import generator
from residuum.data import Dataset
from residuum.perturbations import FGSM, PERTURBATIONS, PGD, Gaussian, InputSpace, Substitution
from residuum.studies.parsing import build_perturbation
from residuum.unlearning import RURK

ALL = [kind for kind in PERTURBATIONS.values() if kind is not Substitution]  # whose inputs are token ids


def features(n=60, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return (rng.standard_normal((n, 5)) + 2.0 * y[:, None]).astype(np.float32), y


@pytest.fixture(scope="module")
def standardized():
    x, y = features()
    data = Dataset.from_arrays((x - x.mean(0)) / x.std(0), y, unbounded=True)
    return make_splits(data, forget_fraction=0.3, test_size=10)


def called(perturbation, x, tau, bounds=(0, 1)):
    model = nn.Linear(x.shape[1], 3)
    with torch.no_grad():
        model.weight.copy_(torch.linspace(-1, 1, model.weight.numel()).view_as(model.weight))
    return perturbation(model, x, torch.zeros(len(x), dtype=torch.long), generator(3), tau, InputSpace(bounds))


@pytest.mark.parametrize("kind", ALL)
def test_inputs_outside_are_refused_and_never_moved_inside(kind):
    x = torch.tensor([[0.2, 0.4], [0.3, -0.7]])
    with pytest.raises(
        InputError, match=rf"{kind.name}: expected inputs within \[0, 1\], got -0.7; give .*bounds=None"
    ):
        called(kind(), x, 1e-9)
    assert torch.allclose(called(kind(), x, 1e-9, None), x, atol=1e-6)
    assert torch.allclose(called(kind(), x, 1e-9, (-1, 0.5)), x, atol=1e-6)


@pytest.mark.parametrize("kind", ALL)
def test_perturbed_inputs_stay_within_the_bounds_of_each_feature(kind):
    low, high = np.array([-2.0, 0.0, 10.0]), np.array([-1.0, 1.0, 300.0])
    x = torch.tensor([[-1.0, 0.0, 12.0], [-2.0, 1.0, 299.0]])
    moved = called(kind(), x, 5.0, (low, high))
    low, high = torch.tensor(low), torch.tensor(high)
    assert bool(((moved >= low) & (moved <= high)).all())
    assert not torch.equal(moved, x)
    free = called(kind(), x, 5.0, None)
    assert bool(((free < low) | (free > high)).any())
    if kind is not PGD:  # its later steps depend on where the earlier ones were clamped
        assert torch.allclose(moved, torch.minimum(torch.maximum(free.double(), low), high).float())


def test_the_unit_interval_is_what_was_clamped_to_before():
    x = torch.rand(20, 4, generator=generator(1))
    for perturbation in (Gaussian(), FGSM(), PGD(target="random")):
        if not isinstance(perturbation, PGD):
            assert torch.equal(called(perturbation, x, 0.4), called(perturbation, x, 0.4, None).clamp(0, 1))
        assert 1 in called(perturbation, x, 0.4)


@pytest.mark.parametrize("bounds", [(1, 0), (0,), 3, "ab", (0, float("nan")), ([0, 0], [1, 0])])
def test_bounds_that_are_none_are_refused(bounds):
    with pytest.raises(InputError, match=r"expected bounds \(low, high\) with low < high, or None, got"):
        InputSpace(bounds)


@pytest.mark.parametrize("text", ["1,0", "0,", "3", "ab"])
def test_bounds_of_a_text_that_are_none_are_refused(text):
    with pytest.raises(InputError, match=r"gaussian: expected bounds \(low, high\) with low < high, or None, got"):
        build_perturbation(f"gaussian:bounds={text}")


def test_bounds_of_another_shape_are_refused():
    with pytest.raises(InputError, match=r"bounds for inputs of shape \(2,\), got shapes \(3,\) and \(3,\)"):
        called(Gaussian(), torch.rand(1, 2), 0.1, ([0, 0, 0], [1, 1, 1]))


def test_bounds_are_recorded_and_can_be_asked_for():
    assert InputSpace(([0, -1], 2)).settings() == {"bounds": ((0.0, -1.0), 2.0)}
    assert build_perturbation("pgd:steps=3:bounds=none") == (PGD(steps=3), InputSpace(None))
    assert hash(InputSpace((np.zeros(2), np.ones(2)))) == hash(InputSpace(((0, 0), (1, 1))))


def test_an_audit_refuses_samples_outside_by_their_id_before_it_counts(standardized):
    model = nn.Linear(5, 2).eval()
    first = next(i for i, x in zip(standardized.forget.ids, standardized.forget.x, strict=True) if x.min() < 0)
    with pytest.raises(InputError, match=rf"gaussian: expected inputs within \[0, 1\], got .* in '{first}'"):
        audit({"m": model}, model, standardized.forget, "gaussian", taus=[0, 0.1], draws=30, seed=1)


def accuracy(model, samples):
    return model(samples.x).argmax(1).eq(samples.y).double().mean().item()


def test_standardized_features_are_audited_as_they_are(standardized):
    forget = standardized.forget
    model = nn.Linear(5, 2).eval()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-1.0] * 5, [1.0] * 5]))
        model.bias.zero_()
    taus = [0.0, 1e-9]
    for own in (Gaussian(), FGSM(target="true"), PGD(target="true")):
        asked = {"taus": taus, "draws": 30, "seed": 1, "space": InputSpace(None)}
        counts = audit({"m": model}, model, forget, own, **asked).counts["m"]
        shares = (counts.method_right / counts.draws).mean(0)
        assert shares == pytest.approx([accuracy(model, forget)] * 2)  # clamped, 1e-9 would already cost points
    clamped = Samples(forget.x.clamp(0, 1), forget.y, forget.ids)
    assert accuracy(model, clamped) != accuracy(model, forget)


@pytest.mark.parametrize("attack", ["gaussian", "fgsm", "pgd"])
def test_rurk_unlearns_on_standardized_features_with_the_bounds_it_is_told(standardized, attack):
    model = nn.Linear(5, 2)
    with pytest.raises(InputError, match=r"expected inputs within \[0, 1\], got .*bounds=None"):
        unlearn(model, standardized, RURK(attack=attack, tau=0.1), seed=1)
    after = unlearn(model, standardized, RURK(attack=attack, tau=0.1, bounds=None), seed=1).model
    assert not torch.equal(after.weight, model.weight)


def test_a_dataset_takes_standardized_features_only_if_told():
    x, y = features()
    with pytest.raises(InputError, match="or say unbounded=True"):
        Dataset.from_arrays(-x.clip(0), y)
    with pytest.raises(InputError, match="holds nan"):
        Dataset.from_arrays(np.where(x > 2, np.nan, x), y, unbounded=True)
    data = Dataset.from_arrays(x, y, unbounded=True, test=(x, y))
    assert torch.equal(data.train.x, torch.from_numpy(x))
    assert torch.equal(data.test.x, torch.from_numpy(x))
