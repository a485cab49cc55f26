"""The networks written a second time with functions, counted, and their names compared with torchvision's."""

import pytest
import torch
from torch.nn import functional as F

from residuum.models import build_model


def normalized(x):
    return (x - 0.5) / 0.25


def test_cnn_forward_pass_written_a_second_way():
    model = build_model("cnn", (3, 16, 16), 4, width=2, std=(0.25,), seed=1).double()
    images = torch.rand(5, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model(images)  # moves the running statistics away from 0 and 1
    w = model.eval().state_dict()
    x = F.conv2d(normalized(images), w["conv1.weight"], padding=1)
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
    hidden = (normalized(x) @ model.hidden.weight.T + model.hidden.bias).relu()
    torch.testing.assert_close(model(x), hidden @ model.fc.weight.T + model.fc.bias)


NAMES = [
    "conv1.weight",
    "bn1.running_mean",
    "layer1.0.conv1.weight",
    "layer1.0.bn1.weight",
    "layer1.1.bn2.bias",
    "layer2.0.downsample.0.weight",
    "layer2.0.downsample.1.running_var",
    "layer4.1.conv2.weight",
    "layer4.1.bn2.num_batches_tracked",
    "fc.weight",
    "fc.bias",
]


def parameters(name, shape, classes):
    return sum(p.numel() for p in build_model(name, shape, classes, seed=0).parameters())


@pytest.mark.parametrize(
    ("name", "shape", "classes", "count"),
    [
        ("resnet18", (3, 32, 32), 10, 11_173_962),
        ("resnet18", (3, 224, 224), 1000, 11_689_512),  # torchvision's resnet18
        ("resnet50", (3, 224, 224), 1000, 25_557_032),  # torchvision's resnet50
        ("vgg11", (3, 32, 32), 10, 9_225_984 + 5_130),  # torchvision's vgg11_bn features, and 512 x 10 + 10
    ],
)
def test_parameter_counts(name, shape, classes, count):
    assert parameters(name, shape, classes) == count


def test_resnet18_has_torchvisions_names():
    names = list(build_model("resnet18", (3, 32, 32), 10, width=2, seed=0).state_dict())
    assert names[:2] == ["normalize.mean", "normalize.std"]
    assert len(names) == 122 + 2  # torchvision's resnet18 has 122 entries
    assert [name for name in names if name in NAMES] == NAMES
    assert not [name for name in names if name.startswith("layer1.0.downsample")]


def test_resnet50_and_vgg11_names():
    resnet = build_model("resnet50", (3, 32, 32), 10, width=2, seed=0).state_dict()
    assert len(resnet) == 320 + 2  # torchvision's resnet50 has 320 entries
    assert {"layer1.0.downsample.0.weight", "layer3.5.conv3.weight", "layer4.2.bn3.weight"} <= resnet.keys()
    vgg = build_model("vgg11", (3, 32, 32), 10, width=2, seed=0).state_dict()
    convolutions = [int(name.split(".")[1]) for name, w in vgg.items() if name.startswith("features") and w.ndim == 4]
    assert convolutions == [0, 4, 8, 11, 15, 18, 22, 25]  # torchvision's vgg11_bn
    assert {"features.1.running_mean", "features.26.bias", "classifier.weight"} <= vgg.keys()


def test_images_of_8_by_8_need_no_pooling():
    model, x = build_model("cnn", (1, 8, 8), 10, width=2, seed=0), torch.rand(5, 1, 8, 8)
    without = model(x)
    assert isinstance(model.maxpool, torch.nn.Identity)
    model.maxpool = torch.nn.AdaptiveMaxPool2d(8)
    assert torch.equal(model(x), without)


def test_stem_follows_the_image_size():
    small, large = (build_model("resnet50", (3, side, side), 10, width=2, seed=0) for side in (64, 65))
    assert (small.conv1.kernel_size, small.conv1.stride) == ((3, 3), (1, 1))
    assert (large.conv1.kernel_size, large.conv1.stride) == ((7, 7), (2, 2))
    assert isinstance(large.maxpool, torch.nn.MaxPool2d)


def batch_norm(x, w, name):
    parts = (w[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
    return F.batch_norm(x, *parts, training=False)


def block(x, w, name, stride, convolutions):
    """One residual block from its weights; `convolutions` lists (number, has the stride)."""
    shortcut = x
    if f"{name}.downsample.0.weight" in w:
        shortcut = batch_norm(F.conv2d(x, w[f"{name}.downsample.0.weight"], stride=stride), w, f"{name}.downsample.1")
    for k, strided in convolutions:
        weight = w[f"{name}.conv{k}.weight"]
        x = F.conv2d(x, weight, stride=stride if strided else 1, padding=weight.shape[-1] // 2)
        x = batch_norm(x, w, f"{name}.bn{k}")
        x = x.relu() if k < len(convolutions) else x
    return (x + shortcut).relu()


@pytest.mark.parametrize(
    ("name", "side", "blocks", "convolutions"),
    [
        ("resnet18", 16, (2, 2, 2, 2), [(1, True), (2, False)]),
        ("resnet50", 16, (3, 4, 6, 3), [(1, False), (2, True), (3, False)]),
        ("resnet50", 70, (3, 4, 6, 3), [(1, False), (2, True), (3, False)]),
    ],
)
def test_forward_pass_written_a_second_way(name, side, blocks, convolutions):
    torch.manual_seed(0)
    model = build_model(name, (3, side, side), 4, width=2, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7), seed=1).double()
    images = torch.rand(3, 3, side, side, dtype=torch.float64)
    model(images)  # moves the running statistics away from 0 and 1
    w = model.eval().state_dict()
    x = (images - torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)) / torch.tensor([0.5, 0.6, 0.7]).view(3, 1, 1)
    x = F.conv2d(x, w["conv1.weight"], stride=2 if side > 64 else 1, padding=3 if side > 64 else 1)
    x = batch_norm(x, w, "bn1").relu()
    x = F.max_pool2d(x, 3, 2, 1) if side > 64 else x
    for group, count in enumerate(blocks, start=1):
        for i in range(count):
            x = block(x, w, f"layer{group}.{i}", 2 if group > 1 and i == 0 else 1, convolutions)
    expected = x.mean((2, 3)) @ w["fc.weight"].T + w["fc.bias"]
    torch.testing.assert_close(model(images), expected)


def test_airbench_forward_pass_written_a_second_way():
    model = build_model("airbench", (3, 32, 32), 4, width=2, std=(0.25,), seed=1).double().train()
    images = torch.rand(5, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model(images)  # moves the running statistics away from 0 and 1
    w = model.eval().state_dict()

    def bn(x, name, eps=1e-5):
        return F.batch_norm(
            x, *(w[f"{name}.{key}"] for key in ("running_mean", "running_var", "weight", "bias")), eps=eps
        )

    x = bn(F.conv2d(normalized(images), w["patches.filters"]), "bn1", eps=0.02)
    x = F.gelu(torch.cat([x, -x], 1))
    for group in ("layer1", "layer2", "layer3"):
        x = F.max_pool2d(F.conv2d(x, w[f"{group}.conv1.weight"], padding=1), 2, ceil_mode=True)
        x = F.conv2d(F.gelu(bn(x, f"{group}.bn1")), w[f"{group}.conv2.weight"], padding=1)
        x = F.gelu(bn(x, f"{group}.bn2"))
    torch.testing.assert_close(model(images), x.amax((2, 3)) / 2 @ w["fc.weight"].T + w["fc.bias"])


def test_airbench_starts_by_passing_its_inputs_on():
    model = build_model("airbench", (3, 32, 32), 4, width=32, seed=1)
    for group in (model.layer1, model.layer2, model.layer3):
        for conv in (group.conv1, group.conv2):
            passed = conv.weight[: conv.in_channels]
            assert torch.equal(passed, torch.nn.init.dirac_(torch.empty_like(passed)))
            assert conv.weight[conv.in_channels :].ne(0).all()


def test_the_first_layer_of_airbench_nearly_whitens_smooth_images():
    noise = torch.randn(64, 3, 40, 40, generator=torch.Generator().manual_seed(0))
    model = build_model("airbench", (3, 32, 32), 4, width=2, seed=1)
    coordinates = model.patches(F.avg_pool2d(noise, 9, stride=1)).transpose(0, 1).flatten(1)
    correlation = torch.corrcoef(coordinates)
    assert (correlation - torch.eye(12)).abs().max() < 0.15
