"""MSG: draw the convolution weights anew that tell retain and forget set apart least, then train gently."""

import copy
from typing import ClassVar, Literal

import torch
from torch import nn

from residuum.core.errors import InputError
from residuum.core.samples import Samples, Splits
from residuum.core.seeds import child_seed, generator
from residuum.training import Fraction, Hooks, NonNegative, Recipe
from residuum.unlearning.base import GradientMethod, component
from residuum.unlearning.context import Context
from residuum.unlearning.gradients import first_by_rank, scaled_gradients, summed_gradient
from residuum.unlearning.start import reinitialize

GRADIENT_BATCH = 64  # samples whose gradients are summed


@component
class MSG(GradientMethod):
    """Draw again the weights whose gradients hardly tell the forget set from the retain set.

    MSG (mask small gradients) compares the gradients of the forget set and of as many retain samples, `g = grad L(R') -
    grad L(S_f)`. In each selected layer it draws again the `share` of the weights with the smallest |g| and multiplies
    the gradients of the others by `damp`. It then trains on the retain set, with a rate that rises to the middle and
    falls again. Frozen layers stay as they are.

    Use it when you can read the forget set once but may not train on it.

    Attributes:
        share: Share of each layer's weights that are drawn again.
        damp: Factor of the gradients of the other weights.
        layers: conv selects convolutions; all selects linear layers as well.

    Reference: "kgltop2" (Kookmin) of the NeurIPS 2023 unlearning challenge, in Cadet et al., "Deep Unlearn:
    Benchmarking Machine Unlearning", 2024, https://arxiv.org/abs/2410.01276

    >>> [round(MSG().rate(epoch) / MSG().recipe.lr, 2) for epoch in range(5)]
    [0.33, 0.67, 1.0, 0.67, 0.33]
    """

    name: ClassVar[str] = "msg"
    title: ClassVar[str] = "MSG"

    recipe: Recipe = Recipe(epochs=5, lr=1e-3, weight_decay=5e-4)
    share: Fraction = 0.3
    damp: NonNegative = 0.1
    layers: Literal["conv", "all"] = "conv"

    def rate(self, epoch: int) -> float:
        """Return the rate of an epoch, counted from 0: up to the middle of the training, then down."""
        epochs, done = self.recipe.epochs, epoch + 1
        top = (epochs + 1) // 2
        share = done / top if done <= top else (epochs + 1 - done) / (epochs + 1 - top)
        return self.recipe.rate(epoch) * share

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Draw weights of the copy again and train."""
        layers = self.layers_of(model)
        some = a_sample_of(splits.retain, len(splits.forget), child_seed(context.batch_seed, "msg"))
        retain, forget = (summed_gradient(model, part, GRADIENT_BATCH) for part in (some, splits.forget))
        context.passes += len(some) + len(splits.forget)
        sizes = [(layer.weight, (retain[layer.weight] - forget[layer.weight]).abs()) for layer in layers]
        small = {p: first_by_rank(g, round(self.share * g.numel()), largest=False) for p, g in sizes}
        context.notes |= {"redrawn_weights": sum(int(mask.sum()) for mask in small.values())}
        self.soften(model, splits, context)
        fresh = [copy.deepcopy(layer) for layer in layers]
        reinitialize(fresh, child_seed(context.reset_seed, "msg"))
        with torch.no_grad():
            for layer, new in zip(layers, fresh, strict=True):
                layer.weight.copy_(torch.where(small[layer.weight], new.weight, layer.weight))
        with scaled_gradients({p: torch.where(mask, 1.0, self.damp).to(p) for p, mask in small.items()}):
            self.descend(model, splits, context, hooks=Hooks(rate=self.rate))
        return model

    def layers_of(self, model: nn.Module) -> list[nn.Conv2d | nn.Linear]:
        """Return the layers whose weights are drawn again; frozen ones are left alone."""
        kinds = (nn.Conv2d,) if self.layers == "conv" else (nn.Conv2d, nn.Linear)
        layers = [module for module in model.modules() if isinstance(module, kinds)]
        if not layers:
            raise InputError(f"msg: expected a network with convolutions, got {type(model).__name__}; set layers=all")
        trainable = [layer for layer in layers if layer.weight.requires_grad]
        if not trainable:
            raise InputError(f"msg: expected a layer with weights to train, got {len(layers)} frozen; set layers=all")
        return trainable


def a_sample_of(samples: Samples, size: int, seed: int) -> Samples:
    """Return `size` samples drawn without replacement, all where there are no more."""
    return samples.subset(torch.randperm(len(samples), generator=generator(seed))[:size].numpy())
