import copy

import pytest
import torch
from torch import nn

from residuum.auditing import predictor as module
from residuum.auditing.predictor import Predictor, decide
from residuum.types import InputError


def test_near_ties_are_decided_by_the_plain_model_in_float64(networks, samples):
    model = networks["m"]
    exact = copy.deepcopy(model).double()(samples.x.double()).argmax(1)
    predictor = Predictor(model, samples.x)
    predictor.margin = float("inf")
    predictor.fast = nn.Sequential(nn.Flatten(), nn.Linear(36, 4))  # answers nonsense, and must not be believed
    assert torch.equal(predictor(samples.x), exact)


def test_clear_cases_are_answered_by_the_fast_copy(networks, samples):
    predictor = Predictor(networks["m"], samples.x)
    predictor.margin = 0.0
    predictor.exact = predictor.plain = None
    assert len(predictor(samples.x)) == len(samples)


def test_the_margin_is_a_hundred_deviations(networks, samples):
    predictor = Predictor(networks["m"], samples.x)
    gap = (predictor.logits(samples.x).double() - predictor.exact_logits(samples.x)).abs().max()
    assert predictor.margin >= 100 * float(gap) > 0
    assert predictor.margin < 0.01


def test_equal_logits_go_to_the_smaller_class_whatever_the_batch():
    model = nn.Linear(3, 4)
    nn.init.zeros_(model.weight)
    nn.init.constant_(model.bias, 0.1)
    predictor = Predictor(model, torch.rand(4, 3))
    for rows in (1, 7):
        assert predictor(torch.rand(rows, 3)).tolist() == [0] * rows


def wide_network() -> nn.Module:
    torch.manual_seed(0)
    planes = module.WIDE
    return nn.Sequential(
        nn.Conv2d(3, planes, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(planes, 4)
    )


def test_bfloat16_answers_clear_cases_only(monkeypatch):
    monkeypatch.setattr(module, "GAIN", 0.0)  # whatever this processor gains by it
    model, x = wide_network(), torch.rand(200, 3, 8, 8)
    with torch.no_grad():
        model[-1].bias -= model(x).mean(0)  # no class is the usual one, so that some inputs are near a border
    predictor = Predictor(model, x[:16])
    gap = (predictor.half_logits(x[:16]).double() - predictor.exact_logits(x[:16])).abs().max()
    assert predictor.half_margin == pytest.approx(10 * float(gap))
    top = predictor.exact_logits(x).topk(2, dim=1).values
    clear = (top[:, 0] - top[:, 1]) >= predictor.half_margin
    assert 0 < clear.sum() < len(x)  # both kinds are among them
    assert torch.equal(predictor(x), predictor.exact_logits(x).argmax(1))
    predictor.half_margin, predictor.fast = 0.0, None
    assert len(predictor(x)) == len(x)  # nobody else was asked


def test_bfloat16_is_left_out_where_it_gains_nothing(monkeypatch, networks, samples):
    monkeypatch.setattr(module, "GAIN", float("inf"))
    assert Predictor(wide_network(), torch.rand(4, 3, 8, 8)).half is None
    monkeypatch.setattr(module, "GAIN", 0.0)
    assert Predictor(networks["m"], samples.x).half is None  # narrow
    without = nn.Sequential(wide_network(), InsistsOnFloat32())
    assert Predictor(without, torch.rand(4, 3, 8, 8)).half is None


class InsistsOnFloat32(nn.Module):
    def forward(self, x):
        return x @ torch.eye(4, dtype=torch.float32) if x.dtype != torch.float64 else x


def test_rounding_in_float64_does_not_decide():
    assert decide(torch.tensor([[1.0, 1.0 + 1e-14], [1.0, 1.0 + 1e-6]], dtype=torch.float64)).tolist() == [0, 1]


def test_nan_is_no_class(samples):
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 4))
    nn.init.constant_(model[1].weight, float("nan"))
    assert Predictor(model, samples.x)(samples.x).tolist() == [-1] * len(samples)


def test_outputs_that_are_not_logits_are_refused():
    class Pair(nn.Module):
        def forward(self, x):
            return x, x

    with pytest.raises(InputError, match="tensor of logits, got tuple"):
        Predictor(Pair(), torch.rand(2, 3))
    with pytest.raises(InputError, match="shape"):
        Predictor(nn.Flatten(0), torch.rand(2, 3))
