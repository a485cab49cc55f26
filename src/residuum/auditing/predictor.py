"""The predictor: a model prepared once, and near-ties decided in float64 by the plain model.

A prediction is the argmax of the plain model in float64. Computing everything that way would be slow, so a fast
float32 copy (batch-norm folded, wide convolutions with channels last) answers wherever its two largest logits are far
enough apart, and the float64 copy answers elsewhere. "Far enough" is 100 times the largest difference between both
copies on a probe batch. Under `--precision bf16-mixed` the same copy in bfloat16 answers first, where its two largest
logits are 20 times their largest difference apart; bfloat16 is so coarse that 100 times would leave it little to say.
Hence the counts do not depend on batch size, order, folding, precision or the number of processes, nor on how fast the
machine is.
"""

import operator
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import convert_conv2d_weight_memory_format, fuse_conv_bn_eval

from residuum.core import devices
from residuum.core.errors import InputError
from residuum.core.inputs import InputSpace
from residuum.core.samples import Samples
from residuum.models import device_of, private_copy
from residuum.perturbations import block_generator

SAFETY = 100.0
COARSE_SAFETY = 20.0  # of bfloat16; on 1,024 images of CIFAR-10 no logit was further off than 1.5 times the probe's
EXACT_TIE = 1e-10  # relative; float64 logits this close are equal, and the smaller class index wins
NO_ANSWER = -1  # the prediction of a model whose logits are NaN: never right
PLANES = 4  # narrower convolutions are slower with channels last
SAME_FUNCTION = 1e-3  # relative; a folded copy that deviates more has not been read correctly
PROBE = 8  # samples on which the copies are compared, as they are and moved: float64 is slow
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRACE_ERRORS = (RuntimeError, TypeError, ValueError, AttributeError, IndexError, KeyError, NotImplementedError)


class Predictor:
    """Predicts classes with private copies of `model`; the model itself is not touched.

    `probe` is a batch on which the copies are compared. Inputs and answers are on the CPU, wherever the model is. A
    network may keep tensors on itself between its layers, so a predictor is called by one thread at a time.
    """

    def __init__(self, model: nn.Module, probe: Tensor) -> None:
        self.device = device_of(model)
        self.plain = private_copy(model).eval().requires_grad_(False)
        self.exact: nn.Module | None = private_copy(self.plain).double()
        try:
            with torch.inference_mode():
                self.exact(probe[:1].to(self.device).double())
        except (RuntimeError, TypeError):  # its code insists on float32: then rows are decided one by one
            self.exact = None
        exact = self.exact_logits(probe)
        self.classes = exact.shape[1]
        fast = folded(self.plain)
        sound = fast is not None and computes(fast, probe.to(self.device), exact)
        self.fast = fast if fast is not None and sound else private_copy(self.plain)
        planes = [module.out_channels for module in self.fast.modules() if isinstance(module, nn.Conv2d)]
        if probe.ndim == 4 and max(planes, default=0) >= PLANES:
            convert_conv2d_weight_memory_format(self.fast, torch.channels_last)
        self.fast.requires_grad_(False)
        self.margin = SAFETY * deviation(self.logits(probe), exact)
        self.coarse_margin: float | None = None
        if devices.compute_of(devices.current()).precision == "bf16-mixed" and probe.is_floating_point():
            self.coarse_margin = COARSE_SAFETY * deviation(self.logits(probe, torch.bfloat16), exact)

    def logits(self, x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the fast copy's logits, shape (rows, classes), computed in float32 or bfloat16."""
        if dtype is torch.bfloat16:
            with torch.inference_mode(), torch.autocast(self.device.type, dtype):
                return checked_logits(self.fast(x.to(self.device)), len(x)).float()
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
        answer = torch.zeros(len(x), dtype=torch.int64)
        if self.classes == 1:
            return answer
        doubtful = torch.arange(len(x))
        for dtype, margin in ((torch.bfloat16, self.coarse_margin), (torch.float32, self.margin)):
            if margin is not None and len(doubtful):
                top = self.logits(x[doubtful], dtype).topk(2, dim=1)
                answer[doubtful] = top.indices[:, 0]
                doubtful = doubtful[~(top.values[:, 0] - top.values[:, 1] >= margin)]
        if len(doubtful):
            answer[doubtful] = decide(self.exact_logits(x[doubtful]))
        return answer


def computes(model: nn.Module, probe: Tensor, exact: Tensor) -> bool:
    """Return whether the model runs, and its logits equal the exact ones up to float32 rounding."""
    try:
        with torch.inference_mode():
            logits = model(probe)
    except RuntimeError:  # e.g. a sum that cannot be computed in place because it broadcasts
        return False
    if not isinstance(logits, Tensor) or logits.shape != exact.shape:
        return False
    return deviation(logits.cpu(), exact) <= SAME_FUNCTION * max(1.0, float(exact.abs().max()))


def deviation(logits: Tensor, exact: Tensor) -> float:
    """Return the largest difference between fast and exact logits, at least the rounding of one float32."""
    finite = exact.isfinite() & logits.isfinite()
    rounding = torch.finfo(torch.float32).eps * exact[finite].abs()
    gap = (logits.double() - exact)[finite].abs()
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


def probe_batch(samples: Samples, space: InputSpace, radius: float, seed: int) -> Tensor:
    """Return up to 8 samples (the first by id) as they are and with noise of this radius; tokens twice as they are."""
    first = sorted(range(len(samples)), key=samples.ids.__getitem__)[:PROBE]
    x, _ = samples.batch(torch.tensor(first))
    noise = torch.from_numpy(block_generator(seed, "probe", 0).standard_normal(x.shape, dtype=np.float32))
    return torch.cat([x, x if space.tokens else space.move(x, noise, radius)])


def folded(model: nn.Module) -> nn.Module | None:
    """Return a folded copy of a model in eval mode, or None where it cannot be read or has nothing to fold.

    Forward code that branches on its input cannot be read; such a model is used as it is. Whether the copy computes the
    same is checked by its user on a probe batch.
    """
    if not any(isinstance(module, _BatchNorm) for module in model.modules()):
        return None
    tracer = BatchNormTracer()
    try:
        graph = tracer.trace(private_copy(model))
    except TRACE_ERRORS:
        return None
    traced = fx.GraphModule(tracer.root, graph)
    pairs = [(node.args[0], node) for node in graph.nodes if follows_convolution(traced, node)]
    for convolution, norm in pairs:
        parts: list[Any] = [traced.get_submodule(str(node.target)) for node in (convolution, norm)]
        parent, _, name = str(convolution.target).rpartition(".")
        setattr(traced.get_submodule(parent), name, fuse_conv_bn_eval(parts[0], parts[1]))
        norm.replace_all_uses_with(convolution)
        traced.graph.erase_node(norm)
    reuse_memory(traced)
    traced.delete_all_unused_submodules()
    traced.recompile()
    for hooks in ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks"):
        setattr(traced, hooks, getattr(tracer.root, hooks))  # what a wrapped network does before and after its code
    return traced if pairs else None


class BatchNormTracer(fx.Tracer):
    """Reads only the code of modules that contain batch-norm; all others are black boxes."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether the inside of this module does not matter."""
        return isinstance(m, _BatchNorm) or not any(isinstance(part, _BatchNorm) for part in m.modules())


def follows_convolution(traced: fx.GraphModule, node: fx.Node) -> bool:
    """Return whether this is batch-norm with fixed statistics, the only reader of a convolution's output."""
    if not is_call_of(traced, node, _BatchNorm) or len(node.args) != 1:
        return False
    source, norm = node.args[0], traced.get_submodule(str(node.target))
    return (
        isinstance(source, fx.Node)
        and is_call_of(traced, source, CONVOLUTIONS)
        and len(source.users) == 1
        and times_called(traced, source) == times_called(traced, node) == 1
        and getattr(norm, "running_var", None) is not None
    )


def is_call_of(traced: fx.GraphModule, node: fx.Node, kind: type | tuple[type, ...]) -> bool:
    """Return whether the node calls a module of this kind."""
    return node.op == "call_module" and isinstance(traced.get_submodule(str(node.target)), kind)


def times_called(traced: fx.GraphModule, node: fx.Node) -> int:
    """Return how often the node's module is used: weights used twice must not be folded."""
    module = traced.get_submodule(str(node.target))
    calls = [call for call in traced.graph.nodes if call.op == "call_module"]
    return sum(traced.get_submodule(str(call.target)) is module for call in calls)


def reuse_memory(traced: fx.GraphModule) -> None:
    """Let sums and rectifiers overwrite an input that has no other reader: less memory to walk through."""
    for node in traced.graph.nodes:
        if node.target is operator.add and is_fresh(traced, node.args[0]) and node.args[0] is not node.args[1]:
            node.target = operator.iadd
    rectifiers: dict[int, list[fx.Node]] = {}
    for node in traced.graph.nodes:
        if is_call_of(traced, node, nn.ReLU):
            rectifiers.setdefault(id(traced.get_submodule(str(node.target))), []).append(node)
    for calls in rectifiers.values():
        module: Any = traced.get_submodule(str(calls[0].target))
        module.inplace = bool(module.inplace) or all(is_fresh(traced, call.args[0]) for call in calls)


def is_fresh(traced: fx.GraphModule, node: object) -> bool:
    """Return whether this is a new tensor, made by a convolution or a sum, with one reader."""
    if not isinstance(node, fx.Node) or len(node.users) != 1:
        return False
    return node.target is operator.iadd or is_call_of(traced, node, CONVOLUTIONS)
