"""Ways to make a trained classifier forget; one file each, one table of all."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from residuum.core import components
from residuum.core.errors import InputError
from residuum.core.registry import Registry
from residuum.core.samples import Splits
from residuum.models import check_model, private_copy
from residuum.training import Progress
from residuum.unlearning.amun import AMUN
from residuum.unlearning.base import GradientMethod, InheritedRecipe, Method, component, first_problem
from residuum.unlearning.cf_k import CFk
from residuum.unlearning.context import Context, Origin, Unlearning
from residuum.unlearning.cr import CR
from residuum.unlearning.ct import CT
from residuum.unlearning.eu_k import EUk
from residuum.unlearning.falw import FaLW
from residuum.unlearning.fisher import Fisher
from residuum.unlearning.ga import GA
from residuum.unlearning.gd import GD
from residuum.unlearning.guard import check_answer, guarded
from residuum.unlearning.layers import Layers
from residuum.unlearning.msg import MSG
from residuum.unlearning.neggrad import NegGrad
from residuum.unlearning.ngd import NGD
from residuum.unlearning.ntk import NTK
from residuum.unlearning.regun import ReGUn
from residuum.unlearning.rurk import RURK
from residuum.unlearning.salun import SalUn
from residuum.unlearning.scrub import SCRUB
from residuum.unlearning.soft_reset import SoftReset
from residuum.unlearning.ssd import SSD
from residuum.unlearning.start import KnownStart, Start
from residuum.unlearning.teacher import Teacher

METHODS: Registry[type[Method]] = components.METHODS


def make_method(name: str, settings: Mapping[str, Any] | None = None) -> Method:
    """Return the method of this name with these hyper-parameters; the others keep their defaults.

    >>> make_method("rurk", {"tau": "0.05"}).tau
    0.05
    """
    return METHODS.find(name).configured(settings or {})


def unlearn(
    model: nn.Module,
    splits: Splits,
    method: str | Method,
    *,
    seed: int,
    origin: Origin | None = None,
    progress: Progress | None = None,
) -> Unlearning:
    """Return an unlearned copy of `model`, which stays as it is, with what it cost and the method's notes.

    A method that raises, returns no usable model or writes into `splits` is a MethodError that names it.

    Args:
        model: The original.
        splits: What to forget, what to retain, and the other parts of the data.
        method: A name ("rurk") or a configured method (`RURK(tau=0.03)`).
        seed: Seed of batches, noise and fresh weights.
        origin: How the original was trained and from which weights, where a method needs to know.
        progress: Called with steps done and steps to do.

    >>> from residuum import build_model, load_dataset, make_splits
    >>> splits = make_splits(load_dataset("iris"), forget_fraction=0.1, test_size=30)
    >>> original = build_model("mlp", (4,), 3, seed=0)
    >>> unlearning = unlearn(original, splits, "gd", seed=1)
    >>> unlearning.passes == 10 * len(splits.retain), unlearning.unchanged
    (True, False)
    """
    method = make_method(method) if isinstance(method, str) else method
    check_model(model, splits.retain, splits.classes)
    if reason := why_refused(method, splits):
        raise InputError(reason)
    context = Context(seed, origin or Origin(), progress)
    if method.needs_recipe and context.origin.recipe is None:
        how = f"{method.name} trains as the original was trained, which is not known"
        raise InputError(f"{how}; give its recipe: origin=Origin(recipe=)")
    with guarded(method, splits) as private_splits:
        answer = method.edit(private_copy(model), private_splits, context)
    result = check_answer(method, model, answer, splits, context)
    before, after = model.state_dict(), result.state_dict()
    unchanged = before.keys() == after.keys() and all(torch.equal(after[name], before[name]) for name in before)
    return Unlearning(result, context.passes, context.notes, unchanged)


def why_refused(method: Method, splits: Splits) -> str | None:
    """Return why a method cannot carry out this request, if so."""
    with guarded(method, splits) as private_splits:
        return method.refusal(private_splits)
