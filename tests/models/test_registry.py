"""Every model: shapes, seeds, records and refused arguments."""

import copy
import json

import pytest
import torch

from residuum.core.errors import InputError
from residuum.models import MODELS, build_model

CASES = [
    ("cnn", (1, 8, 8), 16),
    ("cnn", (3, 32, 32), 4),
    ("cnn", (1, 28, 28), 4),
    ("mlp", (4,), 100),
    ("mlp", (1, 8, 8), 7),
    ("logistic", (4,), 1),
    ("resnet18", (3, 32, 32), 4),
    ("resnet18", (1, 8, 8), 4),
    ("resnet50", (3, 32, 32), 2),
    ("resnet50", (3, 65, 65), 2),
    ("vgg11", (3, 32, 32), 4),
    ("vgg11", (1, 28, 28), 4),
    ("vgg11", (1, 8, 8), 4),
    ("airbench", (3, 32, 32), 4),
    ("airbench", (1, 8, 8), 4),
]


@pytest.mark.parametrize(("name", "shape", "width"), CASES)
def test_logits_normalization_first_and_gradients_everywhere(name, shape, width):
    model = build_model(name, shape, 5, width=width, seed=3)
    logits = model(torch.rand(4, *shape))
    assert logits.shape == (4, 5)
    assert next(child for child, _ in model.named_children()) == "normalize"
    assert [key for key, _ in model.named_buffers()][:2] == ["normalize.mean", "normalize.std"]
    assert not list(model.normalize.parameters())
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", sorted({case[0] for case in CASES}))
def test_weights_depend_on_the_seed_only(name):
    shape = next(case[1] for case in CASES if case[0] == name)

    def weights(seed):
        return torch.cat([p.detach().flatten() for p in build_model(name, shape, 3, width=4, seed=seed).parameters()])

    torch.manual_seed(0)
    first = weights(5)
    torch.manual_seed(99)
    assert torch.equal(first, weights(5))
    assert not torch.equal(first, weights(6))


def test_the_global_generator_is_not_touched():
    before = torch.get_rng_state()
    build_model("cnn", (1, 8, 8), 10, seed=1)
    assert torch.equal(before, torch.get_rng_state())


def test_golden_initial_weight():
    model = build_model("mlp", (2,), 2, width=2, seed=7)
    expected = torch.empty(4).uniform_(-(2**-0.5), 2**-0.5, generator=torch.Generator().manual_seed(7))
    assert torch.equal(model.hidden.weight.flatten(), expected)


def test_initial_spread_follows_the_fan():
    model = build_model("resnet18", (3, 32, 32), 10, width=32, seed=0)
    weight = model.layer3[1].conv1.weight
    assert weight.std().item() == pytest.approx((2 / (128 * 9)) ** 0.5, rel=0.02)
    assert model.fc.weight.abs().max().item() <= 256**-0.5
    assert model.fc.weight.std().item() == pytest.approx(256**-0.5 / 3**0.5, rel=0.05)
    assert model.bn1.weight.eq(1).all()
    assert model.bn1.running_var.eq(1).all()
    assert model.bn1.bias.eq(0).all()
    assert model.bn1.running_mean.eq(0).all()


def test_architecture_is_json_and_survives_copies():
    model = build_model("cnn", torch.Size([3, 32, 32]), 5, mean=(0.1, 0.2, 0.3), std=(0.5,), seed=1)
    expected = {"name": "cnn", "shape": [3, 32, 32], "classes": 5, "width": 16, "mean": [0.1, 0.2, 0.3], "std": [0.5]}
    assert json.loads(json.dumps(model.architecture)) == expected
    assert copy.deepcopy(model).architecture == expected


def test_normalization_is_per_channel():
    model = build_model("logistic", (3, 2, 2), 2, mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 4.0), seed=1)
    x = torch.rand(5, 3, 2, 2)
    by_hand = torch.stack([(x[:, c] - (c + 1) / 10) / 2**c for c in range(3)], dim=1)
    torch.testing.assert_close(model.normalize(x), by_hand)
    torch.testing.assert_close(model(x), by_hand.flatten(1) @ model.fc.weight.T + model.fc.bias)


def test_default_widths():
    assert {name: network.default_width for name, network in MODELS.items()} == {
        "cnn": 16, "mlp": 100, "logistic": 1, "resnet18": 64, "resnet50": 64, "vgg11": 64,
        "airbench": 64,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("resnet", (3, 32, 32), 10), {}, r"unknown model 'resnet'; did you mean resnet"),
        (("cnn", (4,), 3), {}, r"cnn needs images .*got inputs of shape \(4,\); take logistic, mlp"),
        (("mlp", (), 3), {}, r"must be positive sizes"),
        (("mlp", (0,), 3), {}, r"must be positive sizes"),
        (("mlp", (4,), 1), {}, r"at least 2 classes, got 1"),
        (("mlp", (4,), 3), {"width": 0}, r"width must be 1 or more, got 0"),
        (("cnn", (3, 8, 8), 3), {"mean": (0.5, 0.5)}, r"mean must have 1 value or one per channel \(3\), got 2"),
        (("cnn", (3, 8, 8), 3), {"std": (0.5, 0.0, 0.5)}, r"std must be positive, got 0.0"),
    ],
)
def test_bad_arguments_get_one_clear_line(arguments, options, message):
    with pytest.raises(InputError, match=message):
        build_model(*arguments, **options, seed=1)


def test_small_cnn_learns_digits_quickly():
    """Twelve epochs at most until the training set is learned: the bundled scenario rests on it."""
    from residuum.data import load_dataset

    train = load_dataset("digits").train.subset(range(400))
    model = build_model("cnn", (1, 8, 8), 10, seed=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    order = torch.Generator().manual_seed(0)
    for _ in range(12):
        for rows in torch.randperm(400, generator=order).split(50):
            x, y = train.batch(rows)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    model.eval()
    assert (model(train.x).argmax(1) == train.y).float().mean().item() >= 0.99
