"""Fold batch-norm into the convolution before it: the same function with fewer passes over memory."""

import operator
from typing import Any

from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import fuse_conv_bn_eval

from residuum.models import private_copy

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRACE_ERRORS = (RuntimeError, TypeError, ValueError, AttributeError, IndexError, KeyError, NotImplementedError)


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
    """Return whether this is batch-norm with fixed statistics on a convolution's output that nobody else reads."""
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
    wanted = traced.get_submodule(str(node.target))
    calls = [other for other in traced.graph.nodes if other.op == "call_module"]
    return sum(traced.get_submodule(str(other.target)) is wanted for other in calls)


def reuse_memory(traced: fx.GraphModule) -> None:
    """Let sums and rectifiers overwrite their input where nobody else reads it: less memory to walk through."""
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
