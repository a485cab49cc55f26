"""VGG-11 with batch-norm: torchvision's `features.*` names, one linear layer as head.

Reference: Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition", 2015.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from residuum.models.layers import Classifier, Normalise

# Planes in units of the width; a max-pool follows where the flag is set.
PLAN = ((1, True), (2, True), (4, False), (4, True), (8, False), (8, True), (8, False), (8, True))


class VGG11(Classifier):
    """Eight 3x3 convolutions with batch-norm, five max-pools, global mean, one linear layer `classifier`.

    The two hidden layers of 4,096 units and their dropout are left out, as is usual for 32x32 images. Max-pools round
    up, so that images below 32x32 pass as well.
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: int, normalise: Normalise) -> None:
        super().__init__()
        self.normalise = normalise
        planes = [shape[0], *(factor * width for factor, _ in PLAN)]
        layers: list[nn.Module] = []
        for (inputs, outputs), (_, pool) in zip(pairwise(planes), PLAN, strict=True):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
            layers += [nn.MaxPool2d(2, ceil_mode=True)] if pool else []
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(planes[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (n, classes) of images (n, channels, height, width)."""
        return self.classifier(self.avgpool(self.features(self.normalise(x))).flatten(1))  # type: ignore[no-any-return]
