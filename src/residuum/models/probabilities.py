"""A module around a classifier that is no network, such as one of scikit-learn: it takes arrays to probabilities."""

from __future__ import annotations

import copy
import hashlib
import pickle
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from residuum.core.errors import InputError, first_line

LEAST = 1e-12  # probabilities below it count as this one, so that every logarithm is finite
ROUNDING = 0.02  # by which the probabilities of a row may miss 1: some services round them
Predict = Callable[[NDArray[Any]], Any]


class Probabilities(nn.Module):
    """Return log p(x) for inputs (n, ...), from a classifier with `predict_proba` or from a function of an array.

    The argmax is that of the probabilities, and softmax(log p) = p, so everything that reads logits can read these.
    There are neither gradients nor weights. `fingerprint` takes the place of weights: the hash of a classifier's
    pickle, which is never read back. That of a function is random, because a function cannot be compared.

    >>> coin = Probabilities(lambda x: np.full((len(x), 2), 0.5))
    >>> coin(torch.zeros(1, 3)).exp().tolist()
    [[0.5, 0.5]]
    """

    fingerprint: Tensor

    def __init__(self, classifier: Any, classes: int | None = None) -> None:  # noqa: ANN401 (see above)
        super().__init__()
        owner = getattr(classifier, "__self__", None)
        if owner is not None and getattr(classifier, "__name__", "") == "predict_proba":
            classifier = owner  # its bound method
        self.fitted = hasattr(classifier, "predict_proba")
        self.title = type(classifier).__name__ if self.fitted else getattr(classifier, "__name__", "function")
        self.labels: NDArray[np.int64] | None = None
        digest = secrets.token_bytes(32)
        if self.fitted:
            try:
                digest = hashlib.sha256(pickle.dumps(classifier)).digest()
                classifier = copy.deepcopy(classifier)  # the user's own may be fitted again
            except Exception as error:  # copying runs code of any library
                text = f"expected a classifier that can be copied and pickled, got {self.title} ({first_line(error)})"
                raise InputError(f"{text}; give a function: wrap(lambda x: model.predict_proba(x))") from error
            labels = np.asarray(getattr(classifier, "classes_", None))  # of its columns, where they are numbers from 0
            if labels.ndim == 1 and labels.dtype.kind in "iu" and (labels >= 0).all():
                self.labels = labels.astype(np.int64)
        self.classes = classes if self.labels is None else max(classes or 0, int(self.labels.max()) + 1)
        self.predict: Predict = classifier.predict_proba if self.fitted else classifier
        self.register_buffer("fingerprint", torch.frombuffer(bytearray(digest), dtype=torch.uint8).clone())

    def forward(self, x: Tensor) -> Tensor:
        """Return log p, shape (n, classes), in the type of the inputs; a classifier gets float64 rows (n, features)."""
        values = x.detach().cpu().numpy()
        values = values.astype(np.float64) if values.dtype.kind == "f" else values
        rows = values.reshape(len(values), -1) if self.fitted else values
        share = _checked(self.predict(rows), len(rows), self.title)
        if self.labels is not None and self.classes is not None and len(self.labels) == share.shape[1]:
            columns, share = share, np.zeros((len(share), self.classes))  # none for classes that it was not fitted on
            share[:, self.labels] = columns
        logarithms = torch.from_numpy(np.log(np.maximum(share, LEAST))).to(x.device)
        return logarithms.to(x.dtype) if x.is_floating_point() else logarithms

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:  # noqa: ANN401 (as in torch)
        """Refuse what is of another classifier: nothing can turn this one into it."""
        if not torch.equal(state_dict.get("fingerprint", self.fingerprint), self.fingerprint):
            raise InputError(f"{self.title}: a classifier cannot be read from a file; fit it again")
        return super().load_state_dict(state_dict, strict, assign)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy that asks the same classifier, which nothing changes."""
        new = self.__class__.__new__(self.__class__)
        memo[id(self)] = new
        memo[id(self.predict)] = self.predict
        new.__dict__ = copy.deepcopy({**self.__dict__, "predict": None}, memo) | {"predict": self.predict}
        return new

    def extra_repr(self) -> str:
        """Show the classifier."""
        return self.title


def refuse_probabilities(model: nn.Module, what: str, instead: str) -> None:
    """Raise an InputError if the model gives probabilities only, for what needs a network."""
    if isinstance(model, Probabilities):
        raise InputError(f"{what}, and {model.title} gives probabilities only; {instead}")


def network_name(model: nn.Module) -> str:
    """Return the name of a model in records: its class, or that of the classifier inside."""
    return model.title if isinstance(model, Probabilities) else type(model).__name__


def _checked(answer: object, rows: int, title: str) -> NDArray[np.float64]:
    """Return probabilities (rows, classes), or say what they should be."""
    expected = f"expected probabilities ({rows}, classes) from {title}"
    try:
        share = np.asarray(answer, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{expected}, got {type(answer).__name__}") from None
    if share.shape in ((rows,), (rows, 1)):
        raise InputError(f"{expected}, got shape {share.shape}; return np.stack([1 - p, p], 1) for two classes")
    if share.ndim != 2 or len(share) != rows:
        raise InputError(f"{expected}, got shape {share.shape}")
    if not np.isfinite(share).all() or (share < 0).any() or (abs(share.sum(1) - 1) > ROUNDING).any():
        raise InputError(f"{expected}, got rows that are not between 0 and 1 with sum 1; apply a softmax to scores")
    return share
