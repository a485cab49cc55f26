"""The predictor: a model prepared once, and near-ties decided in float64 by the plain model.

A prediction is the argmax of the plain model in float64. Computing everything that way would be slow, so a fast
float32 copy (batch-norm folded, wide convolutions with channels last) answers wherever its two largest logits are far
enough apart, and the float64 copy answers elsewhere. "Far enough" is 100 times the largest difference between both
copies on a probe batch. Hence the counts do not depend on batch size, order, folding or the number of processes, nor
on how fast the machine is.
"""

import threading

import torch
from torch import Tensor, nn
from torch.nn.utils import convert_conv2d_weight_memory_format

from residuum.auditing.folding import folded
from residuum.core.errors import InputError
from residuum.models import device_of, private_copy

SAFETY = 100.0
EXACT_TIE = 1e-10  # relative; float64 logits this close are equal, and the smaller class index wins
NO_ANSWER = -1  # the prediction of a model whose logits are NaN: never right
PLANES = 4  # narrower convolutions are slower with channels last
SAME_FUNCTION = 1e-3  # relative; a folded copy that deviates more has not been read correctly


class Predictor:
    """Predicts classes with private copies of `model`; the model itself is not touched.

    `probe` is a batch on which the copies are compared. Inputs and answers are on the CPU, wherever the model is. A
    network may keep tensors on itself between its layers, so whoever calls one of the copies holds the `lock`.
    """

    def __init__(self, model: nn.Module, probe: Tensor) -> None:
        self.device, self.lock = device_of(model), threading.Lock()
        self.plain = private_copy(model).eval().requires_grad_(False)
        self.exact: nn.Module | None = private_copy(self.plain).double()
        try:
            with torch.inference_mode():
                self.exact(probe[:1].to(self.device).double())
        except (RuntimeError, TypeError):  # its code insists on float32: then rows are decided one by one
            self.exact = None
        wanted = self.exact_logits(probe)
        self.classes = wanted.shape[1]
        self.fast = fast_copy(self.plain, probe.to(self.device), wanted)
        self.margin = SAFETY * deviation(self.logits(probe), wanted)

    def logits(self, x: Tensor) -> Tensor:
        """Return the fast copy's logits, shape (rows, classes)."""
        with torch.inference_mode():
            return checked_logits(self.fast(x.to(self.device)), len(x))

    def exact_logits(self, x: Tensor) -> Tensor:
        """Return the plain model's logits in float64."""
        with torch.inference_mode():
            if self.exact is not None:
                return checked_logits(self.exact(x.to(self.device).double()), len(x))
            return torch.cat([checked_logits(self.plain(row[None].to(self.device)), 1) for row in x]).double()

    def __call__(self, x: Tensor) -> Tensor:
        """Return the predicted classes, int64 of shape (rows,)."""
        if self.classes == 1:
            return torch.zeros(len(x), dtype=torch.int64)
        with self.lock:
            top = self.logits(x).topk(2, dim=1)
            answer = top.indices[:, 0]
            doubtful = (~(top.values[:, 0] - top.values[:, 1] >= self.margin)).nonzero().flatten()
            if len(doubtful):
                answer[doubtful] = decide(self.exact_logits(x[doubtful]))
        return answer


def fast_copy(plain: nn.Module, probe: Tensor, wanted: Tensor) -> nn.Module:
    """Return the folded copy if it computes the same on the probe, else the plain one; channels last if it is wide."""
    candidate = folded(plain)
    if candidate is None or not computes(candidate, probe, wanted):
        candidate = private_copy(plain)
    planes = [module.out_channels for module in candidate.modules() if isinstance(module, nn.Conv2d)]
    if probe.ndim == 4 and max(planes, default=0) >= PLANES:
        convert_conv2d_weight_memory_format(candidate, torch.channels_last)
    return candidate.requires_grad_(False)


def computes(candidate: nn.Module, probe: Tensor, wanted: Tensor) -> bool:
    """Return whether the candidate runs, and its logits equal the exact ones up to float32 rounding."""
    try:
        with torch.inference_mode():
            logits = candidate(probe)
    except RuntimeError:  # e.g. a sum that cannot be made in place because it broadcasts
        return False
    if not isinstance(logits, Tensor) or logits.shape != wanted.shape:
        return False
    return deviation(logits.cpu(), wanted) <= SAME_FUNCTION * max(1.0, float(wanted.abs().max()))


def deviation(logits: Tensor, wanted: Tensor) -> float:
    """Return the largest difference between fast and exact logits, at least the rounding of one float32."""
    finite = wanted.isfinite() & logits.isfinite()
    rounding = torch.finfo(torch.float32).eps * wanted[finite].abs()
    gap = (logits.double() - wanted)[finite].abs()
    return float(torch.cat([gap, rounding, torch.zeros(1)]).max())


def decide(logits: Tensor) -> Tensor:
    """Return the argmax of float64 logits; equal ones go to the smaller class, NaN to no class."""
    best = logits.max(dim=1, keepdim=True).values
    near = logits >= best - EXACT_TIE * best.abs().clamp(min=1)
    answer = near.to(torch.int8).argmax(dim=1)
    return torch.where(logits.isnan().any(dim=1), NO_ANSWER, answer)


def checked_logits(logits: object, rows: int) -> Tensor:
    """Return the logits on the CPU; refuse outputs that are not one row of logits for each input."""
    if not isinstance(logits, Tensor):
        raise InputError(f"expected a model that returns a tensor of logits, got {type(logits).__name__}")
    if logits.ndim != 2 or len(logits) != rows:
        raise InputError(f"expected logits of shape ({rows}, classes), got {tuple(logits.shape)}")
    return logits.cpu()
