import copy
import itertools
import time

import pytest
import torch
from torch import nn

from residuum.auditing.predictor import Predictor, decide
from residuum.core import devices
from residuum.core.errors import InputError


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


def test_bfloat16_answers_the_clear_cases_and_changes_no_prediction(monkeypatch):
    torch.manual_seed(0)
    model, x = wide_network(), torch.rand(4000, 3, 8, 8) * torch.rand(4000, 3, 1, 1)
    with torch.no_grad():
        model[-1].bias -= model(x).mean(0)  # so that no class wins everywhere
    wanted = copy.deepcopy(model).double()(x.double()).argmax(1)
    rows: dict[torch.dtype, int] = {}
    monkeypatch.setattr(devices, "compute_of", lambda fabric: devices.Compute(precision="bf16-mixed"))
    predictor = Predictor(model, x[:16])
    predictor.fast.register_forward_hook(
        lambda module, given, answer: rows.update({answer.dtype: rows.get(answer.dtype, 0) + len(answer)})
    )
    assert torch.equal(predictor(x), wanted)
    assert rows[torch.bfloat16] == 4000 > rows.get(torch.float32, 0)
    predictor.coarse_margin = 0.0
    assert not torch.equal(predictor(x), wanted)  # without its margin bfloat16 would be wrong here


def test_equal_logits_go_to_the_smaller_class_whatever_the_batch():
    model = nn.Linear(3, 4)
    nn.init.zeros_(model.weight)
    nn.init.constant_(model.bias, 0.1)
    predictor = Predictor(model, torch.rand(4, 3))
    for rows in (1, 7):
        assert predictor(torch.rand(rows, 3)).tolist() == [0] * rows


def wide_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 128, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 4))


def test_the_precision_of_an_answer_does_not_depend_on_a_stopwatch(monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks) ** 0.5)  # each span is shorter than the one before
    model, x = wide_network(), torch.rand(200, 3, 8, 8)
    asked = set()
    for module in model.modules():
        module.register_forward_hook(lambda module, given, answer: asked.add(answer.dtype))
    Predictor(model, x[:16])(x)
    assert asked == {torch.float32, torch.float64}


def test_a_network_with_a_tensor_of_its_last_training_step_on_itself_is_copied():
    class Stateful(nn.Linear):
        def forward(self, x):
            self.last = super().forward(x)
            return self.last

    model, x = Stateful(3, 4), torch.rand(5, 3)
    model(x).sum().backward()
    assert torch.equal(Predictor(model, x)(x), model(x).argmax(1))
    assert model.last.requires_grad  # the model itself is left alone

    model.all = [model.last * 2]
    with pytest.raises(InputError, match="expected a network that can be copied, got Stateful"):
        Predictor(model, x)


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
