import pytest
import torch
from torch import nn

from residuum.auditing.predictor import Predictor, folded
from residuum.models import build_model


def scrambled(model, seed=0):
    """Give batch-norm layers statistics that matter."""
    source = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.copy_(torch.randn(module.running_mean.shape, generator=source) * 0.2)
            module.running_var.copy_(torch.rand(module.running_var.shape, generator=source) + 0.5)
            with torch.no_grad():
                module.weight.copy_(torch.rand(module.weight.shape, generator=source) + 0.5)
                module.bias.copy_(torch.randn(module.bias.shape, generator=source) * 0.2)
    return model.eval()


def norms(model):
    return sum(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())


@pytest.mark.parametrize("name", ["resnet18", "vgg11"])
def test_our_models_are_folded_completely_and_compute_the_same(name):
    model = scrambled(build_model(name, (3, 32, 32), 5, width=4, seed=1))
    small = folded(model)
    x = torch.rand(3, 3, 32, 32)
    assert norms(model) > 0
    assert norms(small) == 0
    assert torch.allclose(small(x), model(x), atol=1e-4)


class Shared(nn.Module):
    """The convolution's output is read twice, so folding would be wrong."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3)

    def forward(self, x):
        raw = self.conv(x)
        return (self.norm(raw) + raw).mean((2, 3))


class Twice(nn.Module):
    """The same layers are used twice."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)

    def forward(self, x):
        return self.norm(self.conv(self.norm(self.conv(x)))).mean((2, 3))


class Branching(nn.Module):
    """Looks at its input, so its code cannot be read."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3)

    def forward(self, x):
        y = self.norm(self.conv(x)).mean((2, 3))
        return y if y.sum() > 0 else -y


class Unused(nn.Module):
    """Has batch-norm, but not after a convolution."""

    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm2d(1), nn.Linear(36, 3)

    def forward(self, x):
        return self.head(self.norm(x).flatten(1))


@pytest.mark.parametrize(("model", "channels"), [(Shared(), 1), (Twice(), 3), (Branching(), 1), (Unused(), 1)])
def test_what_must_not_be_folded_is_left_alone(model, channels):
    model = scrambled(model)
    x = torch.rand(8, channels, 6, 6)
    assert folded(model) is None
    assert torch.equal(Predictor(model, x)(x), model(x).argmax(1))


def test_models_without_batch_norm_are_used_as_they_are():
    assert folded(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU())) is None


def test_a_copy_that_computes_something_else_is_not_used(monkeypatch):
    import residuum.auditing.predictor as predictor

    model = scrambled(build_model("resnet18", (3, 32, 32), 5, width=4, seed=1))
    monkeypatch.setattr(predictor, "folded", lambda _: build_model("resnet18", (3, 32, 32), 5, width=4, seed=2).eval())
    x = torch.rand(6, 3, 32, 32)
    predictor = Predictor(model, x)
    assert torch.equal(predictor.logits(x).argmax(1), model(x).argmax(1))
    assert predictor.margin < 0.01


def test_the_original_is_not_touched():
    model = scrambled(build_model("resnet18", (3, 32, 32), 5, width=4, seed=1))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    folded(model)
    assert norms(model) == 20
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_model_that_insists_on_float32_is_decided_in_float32():
    class Single(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            return torch.nn.functional.linear(x, self.head.weight.float(), self.head.bias.float())

    model, x = Single(), torch.rand(9, 4)
    predictor = Predictor(model, x)
    assert predictor.exact is None
    predictor.margin = float("inf")
    assert torch.equal(predictor(x), model(x).argmax(1))


class Reader(nn.Module):
    """Convolutions whose outputs are read before and after a rectifier, and sums that must not overwrite."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.norm = nn.Conv2d(1, 2, 3), nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)
        self.relu, self.other = nn.ReLU(), nn.ReLU()

    def forward(self, x):
        a, b = self.norm(self.one(x)), self.two(x)
        total = self.relu(b) + a
        return (self.other(total) + total + a + b).mean((2, 3))


def test_memory_is_reused_only_where_nobody_else_reads_it():
    model = scrambled(Reader())
    x = torch.rand(4, 1, 6, 6)
    small = folded(model)
    assert norms(small) == 0
    assert torch.allclose(small(x), model(x), atol=1e-6)
    assert not small.relu.inplace
    assert not small.other.inplace


def test_memory_is_reused_in_residual_networks():
    small = folded(scrambled(build_model("resnet18", (3, 32, 32), 5, width=4, seed=1)))
    assert all(module.inplace for module in small.modules() if isinstance(module, nn.ReLU))
    assert "+=" in small.code or "iadd" in small.code


def test_a_sum_that_broadcasts_falls_back_to_the_plain_model():
    class Broadcast(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(1, 2, 6), nn.BatchNorm2d(2)

        def forward(self, x):
            return (self.norm(self.conv(x)) + x[:, :, :2, :2]).mean((2, 3))

    model, x = scrambled(Broadcast()), torch.rand(4, 1, 6, 6)
    assert torch.equal(Predictor(model, x)(x), model(x).argmax(1))
