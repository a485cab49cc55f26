"""The networks: logistic regression, perceptron, convolutional and residual networks, VGG-11 and Airbench."""

import math
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from residuum.models.layers import Classifier, IdentityConv2d, Normalize, PatchBasis

LARGE = 64  # images above this side get the 7x7 stem with stride and max-pool of the original network
WHITENING_EPSILON = 0.02  # variance of normalized pixels below which a coordinate of a patch is not scaled up to 1
# VGG-11: planes in units of the width; a max-pool follows where the flag is set.
VGG_PLAN = ((1, True), (2, True), (4, False), (4, True), (8, False), (8, True), (8, False), (8, True))


class LogisticRegression(Classifier):
    """One linear layer on the flattened input: logits W x + b."""

    def __init__(self, shape: tuple[int, ...], classes: int, width: int, normalize: Normalize) -> None:
        super().__init__(normalize)
        self.fc = nn.Linear(math.prod(shape), classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (n, classes) of inputs (n, ...)."""
        outputs: Tensor = self.fc(self.normalize(x).flatten(1))
        return outputs


class MLP(Classifier):
    """One hidden layer of `width` units on the flattened input, no batch-norm."""

    default_width: ClassVar[int] = 100

    def __init__(self, shape: tuple[int, ...], classes: int, width: int, normalize: Normalize) -> None:
        super().__init__(normalize)
        self.hidden = nn.Linear(math.prod(shape), width)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (n, classes) of inputs (n, ...)."""
        outputs: Tensor = self.fc(self.relu(self.hidden(self.normalize(x).flatten(1))))
        return outputs


class CNN(Classifier):
    """A 3x3 convolution with `width` planes and batch-norm, max-pooled to 8x8, then 16 * width hidden units."""

    default_width: ClassVar[int] = 16
    images: ClassVar[bool] = True

    def __init__(self, shape: tuple[int, ...], classes: int, width: int, normalize: Normalize) -> None:
        super().__init__(normalize)
        self.conv1, self.bn1 = nn.Conv2d(shape[0], width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        # pooling 8x8 to 8x8 changes nothing and would take half of the time
        self.maxpool = nn.Identity() if shape[1:] == (8, 8) else nn.AdaptiveMaxPool2d(8)
        self.hidden = nn.Linear(64 * width, 16 * width)
        self.fc = nn.Linear(16 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (n, classes) of images (n, channels, height, width)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(self.normalize(x)))))
        outputs: Tensor = self.fc(self.relu(self.hidden(x.flatten(1))))
        return outputs


def _downsample(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes)
        self.relu = nn.ReLU()
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False), nn.BatchNorm2d(planes)
        self.downsample = _downsample(inputs, planes, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (n, planes, height / stride, width / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        outputs: Tensor = self.relu(self.bn2(self.conv2(x)) + shortcut)
        return outputs


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride, as in torchvision) and 1x1 convolutions and a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, planes, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv3, self.bn3 = nn.Conv2d(planes, 4 * planes, 1, bias=False), nn.BatchNorm2d(4 * planes)
        self.relu = nn.ReLU()
        self.downsample = _downsample(inputs, 4 * planes, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (n, 4 planes, height / stride, width / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        outputs: Tensor = self.relu(self.bn3(self.conv3(x)) + shortcut)
        return outputs


Block = type[BasicBlock] | type[Bottleneck]


class ResNet(Classifier):
    """Stem, four groups of residual blocks of width, 2, 4 and 8 width planes, global mean, one linear layer.

    Parameter names are torchvision's; small images get a stem that keeps their size.
    Reference: He et al., "Deep residual learning for image recognition", 2016.
    """

    default_width: ClassVar[int] = 64
    images: ClassVar[bool] = True

    block: Block = BasicBlock
    blocks: tuple[int, int, int, int] = (2, 2, 2, 2)

    def __init__(self, shape: tuple[int, ...], classes: int, width: int, normalize: Normalize) -> None:
        super().__init__(normalize)
        large = max(shape[1:]) > LARGE
        self.conv1 = nn.Conv2d(shape[0], width, 7 if large else 3, 2 if large else 1, 3 if large else 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1) if large else nn.Identity()
        inputs = [width] + [width * 2**k * self.block.expansion for k in range(4)]
        groups = (self._group(inputs[k], width * 2**k, k) for k in range(4))
        self.layer1, self.layer2, self.layer3, self.layer4 = groups
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs[4], classes)

    def _group(self, inputs: int, planes: int, number: int) -> nn.Sequential:
        first = self.block(inputs, planes, 1 if number == 0 else 2)
        outputs = planes * self.block.expansion
        return nn.Sequential(first, *(self.block(outputs, planes, 1) for _ in range(self.blocks[number] - 1)))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (n, classes) of images (n, channels, height, width)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(self.normalize(x)))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        outputs: Tensor = self.fc(self.avgpool(x).flatten(1))
        return outputs


class ResNet18(ResNet):
    """Eight basic blocks: 11,173,962 parameters for 10 classes of 32x32 color images at width 64."""


class ResNet50(ResNet):
    """Sixteen bottleneck blocks: 25,557,032 parameters for 1,000 classes of 224x224 color images at width 64."""

    block = Bottleneck
    blocks = (3, 4, 6, 3)


class VGG11(Classifier):
    """VGG-11: eight 3x3 convolutions with batch-norm, five max-pools, global mean, one linear layer `classifier`.

    Parameter names are torchvision's (`features.*`). Its two hidden layers of 4,096 units and their dropout are left
    out, as is usual for 32x32 images. Max-pools round up, so that images below 32x32 pass as well.
    Reference: Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition", 2015.
    """

    default_width: ClassVar[int] = 64
    images: ClassVar[bool] = True

    def __init__(self, shape: tuple[int, ...], classes: int, width: int, normalize: Normalize) -> None:
        super().__init__(normalize)
        planes = [shape[0], *(factor * width for factor, _ in VGG_PLAN)]
        layers: list[nn.Module] = []
        for (inputs, outputs), (_, pool) in zip(pairwise(planes), VGG_PLAN, strict=True):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
            layers += [nn.MaxPool2d(2, ceil_mode=True)] if pool else []
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(planes[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (n, classes) of images (n, channels, height, width)."""
        outputs: Tensor = self.classifier(self.avgpool(self.features(self.normalize(x))).flatten(1))
        return outputs


class ConvGroup(nn.Module):
    """Two 3x3 convolutions with batch-norm and GELU, a max-pool after the first one."""

    def __init__(self, inputs: int, planes: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = IdentityConv2d(inputs, planes, 3, padding=1, bias=False), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = IdentityConv2d(planes, planes, 3, padding=1, bias=False), nn.BatchNorm2d(planes)
        self.maxpool, self.gelu = nn.MaxPool2d(2, ceil_mode=True), nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        """Return features (n, planes, height / 2, width / 2)."""
        x = self.gelu(self.bn1(self.maxpool(self.conv1(x))))
        outputs: Tensor = self.gelu(self.bn2(self.conv2(x)))
        return outputs


class Airbench(Classifier):
    """Six 3x3 convolutions in three groups of width, 4 and 4 width planes on nearly whitened 2x2 patches, global max.

    It learns all of CIFAR-10 in minutes on two cores. The patches' basis is fixed, and batch-norm scales its
    coordinates by the model's own training data; its epsilon limits how much noise in fine detail is amplified.
    Features are halved before the last layer, as logits are in the reference.
    Reference: Jordan, "94% on CIFAR-10 in 3.29 seconds on a single GPU", 2024 (airbench94).
    """

    default_width: ClassVar[int] = 64
    images: ClassVar[bool] = True

    def __init__(self, shape: tuple[int, ...], classes: int, width: int, normalize: Normalize) -> None:
        super().__init__(normalize)
        self.patches = PatchBasis(shape[0])
        self.bn1 = nn.BatchNorm2d(4 * shape[0], eps=WHITENING_EPSILON)
        self.gelu = nn.GELU()
        self.layer1 = ConvGroup(8 * shape[0], width)
        self.layer2 = ConvGroup(width, 4 * width)
        self.layer3 = ConvGroup(4 * width, 4 * width)
        self.maxpool = nn.AdaptiveMaxPool2d(1)
        self.fc = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (n, classes) of images (n, channels, height, width)."""
        x = self.bn1(self.patches(self.normalize(x)))
        x = self.layer3(self.layer2(self.layer1(self.gelu(torch.cat([x, -x], dim=1)))))
        outputs: Tensor = self.fc(self.maxpool(x).flatten(1) / 2)
        return outputs
