"""Small networks: logistic regression, a perceptron with one hidden layer, a convolutional network."""

from __future__ import annotations

import math

from torch import Tensor, nn

from residuum.models.layers import Classifier, Normalise


class LogisticRegression(Classifier):
    """One linear layer on the flattened input: logits W x + b."""

    def __init__(self, shape: tuple[int, ...], classes: int, width: int, normalise: Normalise) -> None:
        super().__init__()
        self.normalise = normalise
        self.fc = nn.Linear(math.prod(shape), classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (n, classes) of inputs (n, ...)."""
        return self.fc(self.normalise(x).flatten(1))  # type: ignore[no-any-return]


class MLP(Classifier):
    """One hidden layer of `width` units on the flattened input, no batch-norm."""

    def __init__(self, shape: tuple[int, ...], classes: int, width: int, normalise: Normalise) -> None:
        super().__init__()
        self.normalise = normalise
        self.hidden = nn.Linear(math.prod(shape), width)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (n, classes) of inputs (n, ...)."""
        return self.fc(self.relu(self.hidden(self.normalise(x).flatten(1))))  # type: ignore[no-any-return]


class CNN(Classifier):
    """A 3x3 convolution with `width` planes and batch-norm, max-pooled to 8x8, then 16 * width hidden units."""

    def __init__(self, shape: tuple[int, ...], classes: int, width: int, normalise: Normalise) -> None:
        super().__init__()
        self.normalise = normalise
        self.conv1, self.bn1 = nn.Conv2d(shape[0], width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.AdaptiveMaxPool2d(8)
        self.hidden = nn.Linear(64 * width, 16 * width)
        self.fc = nn.Linear(16 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (n, classes) of images (n, channels, height, width)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(self.normalise(x)))))
        return self.fc(self.relu(self.hidden(x.flatten(1))))  # type: ignore[no-any-return]
