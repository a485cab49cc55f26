"""The predictor: a model prepared once, and near-ties decided in float64 by the plain model.

A prediction is the argmax of the plain model in float64. Computing everything that way would be slow, so a fast
float32 copy (batch-norm folded, wide convolutions with channels last) answers wherever its two largest logits are far
enough apart, and the float64 copy answers elsewhere. "Far enough" is 100 times the largest difference between both
copies on a probe batch. Hence the counts do not depend on batch size, order, folding or the number of processes.
Where a processor has fast bfloat16, a wide network has a third copy, asked first: with it "far enough" is 10 times
the largest difference, whose typical size is a fifth of the largest, so that an error would be one of fifty times it.
"""

import copy
import time

import torch
from torch import Tensor, nn

from residuum.auditing.folding import folded
from residuum.models import device_of
from residuum.types import InputError

SAFETY, HALF_SAFETY = 100.0, 10.0
EXACT_TIE = 1e-10  # relative; float64 logits this close are equal, and the smaller class index wins
NO_ANSWER = -1  # the prediction of a model whose logits are NaN: never right
PLANES = 4  # narrower convolutions are slower with channels last
WIDE = 128  # networks with fewer planes gain nothing from bfloat16
GAIN = 1.5  # bfloat16 that is less than so much faster is not worth asking twice
SAME_FUNCTION = 1e-3  # relative; a folded copy that deviates more has not been read correctly


class Predictor:
    """Predicts classes with private copies of `model`; the model itself is not touched.

    `probe` is a batch on which the copies are compared. Inputs and answers are on the CPU, wherever the model is.
    """

    def __init__(self, model: nn.Module, probe: Tensor) -> None:
        self.device = device_of(model)
        self.plain = copy.deepcopy(model).eval().requires_grad_(False)
        self.exact = double_copy(self.plain, probe.to(self.device))
        wanted = self.exact_logits(probe)
        self.classes = wanted.shape[1]
        self.fast = fast_copy(self.plain, probe.to(self.device), wanted)
        self.margin = SAFETY * deviation(self.logits(probe), wanted)
        self.half = half_copy(self.fast, probe) if self.device.type == "cpu" else None
        self.half_margin = HALF_SAFETY * deviation(self.half_logits(probe), wanted) if self.half else 0.0

    def logits(self, x: Tensor) -> Tensor:
        """Return the fast copy's logits, shape (rows, classes)."""
        with torch.inference_mode():
            return checked_logits(self.fast(x.to(self.device)), len(x))

    def half_logits(self, x: Tensor) -> Tensor:
        """Return the bfloat16 copy's logits, which must exist."""
        with torch.inference_mode():
            return checked_logits(self.half(x.bfloat16()).float(), len(x))  # type: ignore[misc]

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
        answer, doubtful = torch.empty(len(x), dtype=torch.int64), torch.arange(len(x))
        quick = ((self.half_logits, self.half_margin), (self.logits, self.margin))
        for logits, margin in quick if self.half else quick[1:]:
            top = logits(x[doubtful]).topk(2, dim=1)
            answer[doubtful] = top.indices[:, 0]
            doubtful = doubtful[~(top.values[:, 0] - top.values[:, 1] >= margin)]
            if not len(doubtful):
                return answer
        answer[doubtful] = decide(self.exact_logits(x[doubtful]))
        return answer


def double_copy(plain: nn.Module, probe: Tensor) -> nn.Module | None:
    """Return the model in float64, or None where its code insists on float32 (then rows are decided one by one)."""
    exact = copy.deepcopy(plain).double()
    try:
        with torch.inference_mode():
            exact(probe[:1].double())
    except (RuntimeError, TypeError):
        return None
    return exact


def fast_copy(plain: nn.Module, probe: Tensor, wanted: Tensor) -> nn.Module:
    """Return the folded copy if it computes the same on the probe, else the plain one; channels last if it is wide."""
    candidate = folded(plain)
    if candidate is None or not computes(candidate, probe, wanted):
        candidate = copy.deepcopy(plain)
    if probe.ndim == 4 and max(conv_planes(candidate), default=0) >= PLANES:
        candidate = candidate.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return candidate.requires_grad_(False)


def half_copy(fast: nn.Module, probe: Tensor) -> nn.Module | None:
    """Return a wide network in bfloat16 if it runs and is faster here, else None."""
    if max(conv_planes(fast), default=0) < WIDE:
        return None
    half = copy.deepcopy(fast).to(torch.bfloat16)
    try:
        gain = seconds(fast, probe) / seconds(half, probe.bfloat16())
    except RuntimeError:  # a layer without bfloat16, or one that insists on float32
        return None
    return half if gain >= GAIN else None


def conv_planes(model: nn.Module) -> list[int]:
    """Return the width of each convolution."""
    return [module.out_channels for module in model.modules() if isinstance(module, nn.Conv2d)]


def seconds(model: nn.Module, x: Tensor) -> float:
    """Return how long the model takes, the smaller of two times: the first finds nothing prepared."""
    spent = []
    for _ in range(2):
        start = time.perf_counter()
        with torch.inference_mode():
            model(x)
        spent.append(time.perf_counter() - start)
    return min(spent)


def computes(candidate: nn.Module, probe: Tensor, wanted: Tensor) -> bool:
    """Return whether the candidate runs, and its logits are the wanted ones up to float32 rounding."""
    try:
        with torch.inference_mode():
            found = candidate(probe)
    except RuntimeError:  # e.g. a sum that cannot be made in place because it broadcasts
        return False
    if not isinstance(found, Tensor) or found.shape != wanted.shape:
        return False
    return deviation(found.cpu(), wanted) <= SAME_FUNCTION * max(1.0, float(wanted.abs().max()))


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
