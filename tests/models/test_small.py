"""The small networks written a second time with functions."""

import torch
from torch.nn import functional as F

from residuum.models import build_model


def normalised(x):
    return (x - 0.5) / 0.25


def test_cnn_forward_pass_written_a_second_way():
    model = build_model("cnn", (3, 16, 16), 4, width=2, std=(0.25,), seed=1).double()
    images = torch.rand(5, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model(images)  # moves the running statistics away from 0 and 1
    w = model.eval().state_dict()
    x = F.conv2d(normalised(images), w["conv1.weight"], padding=1)
    mean, variance = w["bn1.running_mean"].view(2, 1, 1), w["bn1.running_var"].view(2, 1, 1)
    x = ((x - mean) / (variance + 1e-5).sqrt() * w["bn1.weight"].view(2, 1, 1) + w["bn1.bias"].view(2, 1, 1)).relu()
    x = F.max_pool2d(x, 2).flatten(1)  # 16x16 to 8x8
    x = (x @ w["hidden.weight"].T + w["hidden.bias"]).relu()
    torch.testing.assert_close(model(images), x @ w["fc.weight"].T + w["fc.bias"])


def test_cnn_parameter_count_for_digits():
    """Convolution 9 w, batch-norm 2 w, hidden (64 w + 1) 16 w, head (16 w + 1) 10, for w = 16."""
    model = build_model("cnn", (1, 8, 8), 10, seed=0)
    assert sum(p.numel() for p in model.parameters()) == 9 * 16 + 2 * 16 + (64 * 16 + 1) * 256 + 257 * 10


def test_mlp_forward_pass_written_a_second_way():
    model = build_model("mlp", (4,), 3, width=6, std=(0.25,), seed=1)
    x = torch.rand(5, 4, generator=torch.Generator().manual_seed(0))
    hidden = (normalised(x) @ model.hidden.weight.T + model.hidden.bias).relu()
    torch.testing.assert_close(model(x), hidden @ model.fc.weight.T + model.fc.bias)
