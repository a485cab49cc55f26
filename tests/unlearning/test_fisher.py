"""Fisher: information by hand and by a slow loop, variances by the published rules (T7)."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from residuum.core.errors import InputError
from residuum.core.samples import Samples
from residuum.core.seeds import generator
from residuum.models import forward
from residuum.unlearning import Fisher, make_method, unlearn
from residuum.unlearning.fisher import fisher_information, noise_variance, squared_gradients


def logistic() -> tuple[nn.Module, Samples]:
    x = torch.rand(50, 3, generator=generator(1))
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 2))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[1.0, -2.0, 0.5], [0.0, 1.0, 2.0]]))
        model[1].bias.copy_(torch.tensor([0.3, -0.3]))
    return model, Samples(x, torch.zeros(50, dtype=torch.long), tuple(str(i) for i in range(50)))


def test_information_of_logistic_regression_by_hand():
    model, samples = logistic()
    p = F.softmax(model(samples.x), 1).detach()
    expected = (p * (1 - p)).T[:, :, None] * samples.x[None] ** 2
    information = fisher_information(model, samples, memory_mib=1)
    assert torch.allclose(information["1.weight"], expected.mean(1), rtol=1e-5)
    assert torch.allclose(information["1.bias"], (p * (1 - p)).mean(0), rtol=1e-5)


@pytest.mark.parametrize("memory_mib", [1e-6, 0.05, 256])
def test_information_equals_a_slow_loop_over_samples_and_labels_in_any_chunks(memory_mib, original, splits):
    model = copy.deepcopy(original).eval()
    few = splits.retain.subset(range(0, len(splits.retain), 11))
    slow = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for x in few.x:
        p = F.softmax(model(x[None]), 1)[0].detach()
        for label in range(3):
            loss = F.cross_entropy(model(x[None]), torch.tensor([label]))
            for name, gradient in zip(slow, torch.autograd.grad(loss, list(model.parameters())), strict=True):
                slow[name] += p[label] * gradient**2 / len(few)
    fast = fisher_information(model, few, memory_mib=memory_mib)
    for name, value in slow.items():
        assert torch.allclose(fast[name], value, rtol=1e-3, atol=1e-8)


def test_labels_of_the_data_do_not_matter(original, splits):
    shifted = Samples(splits.retain.x, (splits.retain.y + 1) % 3, splits.retain.ids)
    a, b = (fisher_information(original, samples, memory_mib=64) for samples in (splits.retain, shifted))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_variances_follow_the_published_rules():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    information = {
        "0.weight": torch.tensor([[1.0, 0.25], [0.0, 1.0], [2.0, 2.0]]),
        "0.bias": torch.tensor([0.5, 0.0, 1.0]),
        "1.weight": torch.tensor([[0.0, 0.1, 0.1], [1.0, 1.0, 1.0]]),
        "1.bias": torch.tensor([0.0, 0.5]),
    }
    variance = noise_variance(model, information, alpha=1e-3)
    first = [1e-3 * (1 + 4) / 2, 1e-3 * (1000 + 1) / 2, 1e-3 * 0.5]
    assert torch.allclose(variance["0.weight"], torch.tensor(first)[:, None].expand(3, 2), rtol=1e-5)
    assert torch.allclose(variance["0.bias"], torch.tensor([2e-2, 10.0, 1e-2]), rtol=1e-5)
    head = [1e-2 * (100 + 10 + 10) / 3, 1e-2]
    assert torch.allclose(variance["1.weight"], torch.tensor(head)[:, None].expand(2, 3), rtol=1e-5)
    assert torch.allclose(variance["1.bias"], torch.tensor([1.0, 2e-2]), rtol=1e-5)
    gone = noise_variance(model, information, alpha=1e-3, forgotten=1)
    assert torch.allclose(gone["1.weight"][1], torch.full((3,), 1e-3))
    assert gone["1.bias"][1].item() == pytest.approx(1e-3)
    assert torch.equal(gone["0.weight"], variance["0.weight"])
    assert torch.equal(gone["1.weight"][0], variance["1.weight"][0])


def test_without_noise_it_is_the_original_in_sample_form(original, splits):
    after = unlearn(original, splits, Fisher(alpha=0), seed=1).model
    assert all(
        torch.equal(a, b) for a, b in zip(original.state_dict().values(), after.state_dict().values(), strict=True)
    )


def test_class_form_starts_the_forgotten_row_at_zero(original, class_splits):
    rows = []
    for seed in range(40):
        after = unlearn(original, class_splits, Fisher(alpha=0), seed=seed).model
        for name, value in original.state_dict().items():
            kept = value if not name.startswith("fc.") else value[:2]
            new = after.state_dict()[name]
            assert torch.equal(kept, new if not name.startswith("fc.") else new[:2])
        rows.append(torch.cat([after.fc.weight[2], after.fc.bias[2:]]).detach())
    drawn = torch.stack(rows).flatten().double()
    assert drawn.mean().abs() < 5 * (1e-3 / len(drawn)) ** 0.5
    assert drawn.var().item() == pytest.approx(1e-3, rel=5 * (2 / len(drawn)) ** 0.5)


def test_drawn_noise_has_the_variance_it_should_have(splits):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    few = replace(splits, retain=splits.retain.subset(range(5)))
    information = fisher_information(model, few.retain, memory_mib=64)
    variance = noise_variance(model, information, alpha=1e-4)
    names = list(variance)
    scaled = []
    for seed in range(60):
        after = dict(unlearn(model, few, Fisher(alpha=1e-4), seed=seed).model.named_parameters())
        before = dict(model.named_parameters())
        scaled += [((after[name] - before[name]) / variance[name].sqrt()).detach().flatten() for name in names]
    z = torch.cat(scaled).double()
    assert z.mean().abs() < 5 / len(z) ** 0.5
    assert z.var().item() == pytest.approx(1, abs=5 * (2 / len(z)) ** 0.5)
    assert z.pow(4).mean().item() == pytest.approx(3, abs=5 * (96 / len(z)) ** 0.5)


def test_more_noise_costs_accuracy_on_average(original, splits):
    def right(alpha: float) -> float:
        models = [unlearn(original, splits, Fisher(alpha=alpha), seed=seed).model for seed in range(5)]
        return sum(forward(m, splits.retain).argmax(1).eq(splits.retain.y).double().mean().item() for m in models)

    assert right(1e-9) > right(1e-4) + 0.1 > right(1e-2) + 0.2


def test_the_forget_set_is_never_read(original, splits):
    nan = replace(splits, forget=Samples(splits.forget.x * float("nan"), splits.forget.y, splits.forget.ids))
    a, b = (unlearn(original, part, Fisher(), seed=1).model.state_dict() for part in (splits, nan))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_statistics_stay_and_passes_count_every_label(original, splits):
    done = unlearn(original, splits, Fisher(), seed=1)
    after = done.model
    assert all(torch.equal(a, b) for a, b in zip(original.buffers(), after.buffers(), strict=True))
    assert done.passes == len(splits.retain) * 3
    assert done.notes["noise_std_largest"] >= done.notes["noise_std_mean_square"] > 0


@pytest.mark.parametrize("settings", [{"alpha": -1}, {"memory_mib": 0}])
def test_wrong_settings_are_refused_with_the_range(settings):
    with pytest.raises(InputError, match=r"expected (more than 0|[01] or more), got"):
        make_method("fisher", settings)


class LooksAtValues(nn.Module):
    """A network whose code branches on its input, as masks of transformers do: torch cannot vectorize it."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))

    def forward(self, x):
        return self.net(x) if bool((x >= 0).all()) else self.net(-x)


def test_gradients_of_a_network_that_branches_on_values_are_taken_one_by_one():
    torch.manual_seed(0)
    odd = LooksAtValues()
    x, y = torch.rand(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    slow, fast = (squared_gradients(model, x, y, torch.ones(len(x))) for model in (odd, odd.net))
    for name, value in fast.items():
        torch.testing.assert_close(slow[f"net.{name}"], value)
