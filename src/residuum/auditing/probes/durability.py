"""Does it stay forgotten? What a model recognizes after fine-tuning, re-learning, rounding, pruning and averaging."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import nn

from residuum.auditing.auditor import audit
from residuum.auditing.heldout import choose_heldout
from residuum.auditing.probes.base import Evidence, Probe, Value
from residuum.auditing.statistics import Floats, Labels
from residuum.core.errors import InputError, ResiduumWarning
from residuum.core.samples import Splits
from residuum.core.seeds import child_seed
from residuum.models import forward, private_copy
from residuum.training import Recipe, train

FINETUNE, RELEARN, PRUNE, AVERAGE = "finetune", "relearn", "prune", "average"
BITS = {"round8": 8, "round4": 4}
MEASURES = ("recognition", "memory")
FURTHER_EPOCHS = 0.1  # share of the original's epochs that fine-tuning takes
RELEARNED = 0.1  # share of the forget set that is shown again
PRUNED = 0.5  # share of the weights of each layer that become 0
POINTS = 11  # of the straight line to the original at which the loss is measured
MOST = 1000  # retained samples that the loss is measured on
# of the error, 5 %, that each treatment may spend; averaging is a reminder to delete the original, and not judged
SHARES = {FINETUNE: 0.5, RELEARN: 0.2, "round8": 0.1, "round4": 0.1, PRUNE: 0.1, AVERAGE: 0.0}


@dataclass(frozen=True)
class Durability(Probe):
    """How much of the forget set a model recognizes again after a treatment; see `treat` for the treatments.

    Models are treated alike: every row, the original and every retrained model, of one seed with the same random
    numbers. Two measures are taken before and after: the recognition rate p(F), its mean over the radii, and log M up
    to a constant, log p(F) / p(H) with held-out samples H in the class mix of F. The value is the change of recognition
    by fine-tuning.

    A row comes back (`found`) if, under some treatment, a measure changes by more than in retrained models *and* ends
    above theirs, both by Student's t; a model that was trained for too short a time changes, too, but ends where they
    do. Treatments share the error of 5 % (`SHARES`). `distance`, that of the weights to the original's in norms of
    these, and `barrier`, how far the loss on retained samples rises on the straight line between both, are hints.

    References: Siddiqui et al., "From dormant to deleted: tamper-resistant unlearning through weight-space
    regularization", 2025; Zhang et al., "Catastrophic failure of LLM unlearning via quantization", 2024.
    """

    draws: Annotated[int, Field(ge=1, le=1000)] = 20
    name: ClassVar[str] = "durability"
    meaning: ClassVar[str] = "change of recognition by fine-tuning on the retain set; marked if the samples come back"
    reads: ClassVar[Literal["models", "margins"]] = "models"
    columns: ClassVar[Mapping[str, float]] = {
        f"{treatment}_{measure}": share / len(MEASURES) for treatment, share in SHARES.items() for measure in MEASURES
    }
    hints: ClassVar[tuple[str, ...]] = ("distance", "barrier")

    def measure(self, evidence: Evidence) -> dict[str, Value]:
        """Return the change by fine-tuning of every model; the details have all measures before and after."""
        if evidence.further_training is None:
            how = "give recipe=, or a retrain= function that takes model= to start from"
            note = f"expected a way to train a model further, as the original was trained; {how}"
            return dict.fromkeys(evidence.models, Value(None, note=note))
        everything = np.arange(len(evidence.splits.forget))
        hidden = np.delete(everything, relearned_rows(evidence))
        before = recognition_rates(evidence.models, evidence, self.draws)
        details: dict[str, dict[str, float | str | None]] = {label: {} for label in evidence.models}
        for treatment in SHARES:
            rows, treated = hidden if treatment == RELEARN else everything, {}
            for label, model in evidence.models.items():
                try:
                    treated[label] = treat(treatment, model, evidence)
                except NotTreatableError as error:
                    details[label][f"{treatment}_note"] = str(error)
            after = recognition_rates(treated, evidence, self.draws) if treated else {}
            for label, rates in after.items():
                for when, of in (("before", before[label]), ("after", rates)):
                    measured = measures_of(of, rows, evidence.splits.form)
                    details[label] |= {f"{treatment}_{name}_{when}": value for name, value in measured.items()}
        values = {}
        for label, model in evidence.models.items():
            numbers = details[label]
            change = after_minus_before(numbers, f"{FINETUNE}_recognition")
            values[label] = Value(change, details=numbers | way_to_original(model, evidence))
        return values

    def predictions(self, splits: Splits, radii: int) -> int:
        """Return the perturbed samples shown before and after every treatment, and those on the way to the original."""
        shown = len(splits.forget) + len(choose_heldout(splits.heldout, splits.forget))
        return (len(SHARES) + 1) * self.draws * radii * shown + POINTS * min(MOST, len(splits.retain))

    def epochs(self, original: int) -> int:
        """Return the epochs of fine-tuning and of re-learning."""
        return 2 * further_epochs(original)


class NotTreatableError(InputError):
    """A treatment does not exist for a model."""


def after_minus_before(details: Mapping[str, float | str | None], column: str) -> float | None:
    """Return the change of a measure by a treatment, None where it was not measured.

    >>> after_minus_before({"prune_memory_before": 0.25, "prune_memory_after": 0.5}, "prune_memory")
    0.25
    """
    before, after = (details.get(f"{column}_{when}") for when in ("before", "after"))
    return after - before if isinstance(before, float) and isinstance(after, float) else None


class Rates(NamedTuple):
    """Recognition rates of one model, (n, T), with labels: of forgotten samples, and of held-out ones if any."""

    forgotten: Floats
    labels: Labels
    heldout: Floats | None
    heldout_labels: Labels | None


def treat(name: str, model: nn.Module, evidence: Evidence) -> nn.Module:
    """Return what a treatment makes of a model, which stays as it is; a `NotTreatableError` says why there is nothing.

    `finetune` trains on the retain set, `relearn` on the retain set and a tenth of the forget set, both as the original
    was trained for a tenth of its epochs. `round8` and `round4` round the weights of each layer to so many bits,
    `prune` sets the half of them nearest to 0 to 0, and `average` takes the mean with the original's weights.
    """
    if name in (FINETUNE, RELEARN):
        if evidence.further_training is None:
            raise NotTreatableError("the training of the original is not known")
        again = relearned_rows(evidence).tolist() if name == RELEARN else []
        ids = [evidence.splits.forget.ids[row] for row in again]
        return evidence.further_training(model, ids, child_seed(evidence.seed, name))
    if name == AVERAGE:
        return mixed(model, evidence.original)
    treated = private_copy(model)
    with torch.no_grad():
        for weights in (parameter for parameter in treated.parameters() if parameter.ndim > 1):
            if name == PRUNE:
                limit = weights.abs().flatten().kthvalue(max(1, int(PRUNED * weights.numel()))).values
                weights[weights.abs() <= limit] = 0
            elif (largest := weights.abs().max()) > 0:
                step = largest / (2 ** (BITS[name] - 1) - 1)
                weights.copy_((weights / step).round() * step)
    return treated


def trained_further(model: nn.Module, splits: Splits, recipe: Recipe, ids: Sequence[str], seed: int) -> nn.Module:
    """Return a copy trained on the retain set and these forgotten samples, by the recipe for a tenth of its epochs."""
    shown = {*splits.retain.ids, *ids}
    rows = [row for row, name in enumerate(splits.train.ids) if name in shown]
    short = replace(recipe, epochs=further_epochs(recipe.epochs), schedule_epochs=None)
    return train(model, splits.train.subset(rows), short, seed=seed)


def further_epochs(original: int) -> int:
    """Return a tenth of the original's epochs, at least one.

    >>> further_epochs(40), further_epochs(3)
    (4, 1)
    """
    return max(1, round(FURTHER_EPOCHS * original))


def mixed(model: nn.Module, original: nn.Module | None, share: float = 0.5) -> nn.Module:
    """Return a copy of the model whose weights are share * original + (1 - share) * model.

    >>> one, other = nn.Linear(1, 1), nn.Linear(1, 1)
    >>> one.weight.data, other.weight.data = torch.tensor([[1.0]]), torch.tensor([[3.0]])
    >>> mixed(one, other, 0.25).weight.item()
    1.5
    """
    if original is None:
        raise NotTreatableError("the original is not among the models")
    mean, weights, originals = private_copy(model), model.state_dict(), original.state_dict()
    if {key: value.shape for key, value in weights.items()} != {key: value.shape for key, value in originals.items()}:
        raise NotTreatableError("its network is not the original's")
    floats = {key: value for key, value in weights.items() if value.is_floating_point()}
    mixture = {key: torch.lerp(value, originals[key].to(value), share) for key, value in floats.items()}
    mean.load_state_dict(weights | mixture)
    return mean


def way_to_original(model: nn.Module, evidence: Evidence) -> dict[str, float]:
    """Return distance and barrier between the model and the original; nothing where networks differ."""
    if evidence.original is None or evidence.original is model:
        return {}
    samples = evidence.splits.retain
    few = samples.subset(np.unique(np.linspace(0, len(samples) - 1, min(MOST, len(samples))).astype(int)))
    shares = np.linspace(0, 1, POINTS)
    try:
        line = [mixed(model, evidence.original, share) for share in shares]
    except NotTreatableError:
        return {}
    losses = np.array([F.cross_entropy(forward(between, few), few.y).item() for between in line])
    barrier = float((losses - np.linspace(losses[0], losses[-1], POINTS)).max())
    weights = [torch.cat([part.detach().flatten() for part in end.parameters()]) for end in (line[0], line[-1])]
    distance = float((weights[0] - weights[1]).norm() / weights[1].norm())
    return {"distance": distance, "barrier": barrier} if np.isfinite([distance, barrier]).all() else {}


def relearned_rows(evidence: Evidence) -> NDArray[np.int64]:
    """Return the positions of the forgotten samples that are shown again, the same for every model of the seed."""
    number = len(evidence.splits.forget)
    rng = np.random.default_rng(child_seed(evidence.seed, "relearned"))
    size = min(max(1, round(RELEARNED * number)), number - 1)
    return np.sort(rng.permutation(number)[:size])


def recognition_rates(models: Mapping[str, nn.Module], evidence: Evidence, draws: int) -> dict[str, Rates]:
    """Return the recognition rates of the models on the same perturbed inputs."""
    with warnings.catch_warnings():  # they are about the verdict of an audit, and this is none
        warnings.simplefilter("ignore", ResiduumWarning)
        result = audit(
            models,
            next(iter(models.values())),
            evidence.splits.forget,
            evidence.perturbation,
            taus=evidence.taus,
            draws=draws,
            seed=evidence.seed,
            heldout=evidence.heldout if len(evidence.heldout) else None,
            space=evidence.space,
        )
    rates = {}
    for label, counts in result.counts.items():
        other = result.heldout.get(label)
        of_heldout = (None, None) if other is None else (other.method_right / other.draws, other.labels)
        rates[label] = Rates(counts.method_right / counts.draws, counts.labels, *of_heldout)
    return rates


def measures_of(rates: Rates, rows: NDArray[np.int64], form: str) -> dict[str, float]:
    """Return recognition and memory on the forgotten samples of these rows.

    Held-out samples are weighted to the class mix of the forgotten ones. If there are any, forgotten samples of classes
    without them do not count. In class form there is no memory, because the reference recognizes nothing.
    """
    forgotten, labels = rates.forgotten[rows], rates.labels[rows]
    if rates.heldout is None or rates.heldout_labels is None:
        return {"recognition": float(forgotten.mean())}
    inside = np.isin(labels, rates.heldout_labels)
    recognition = float(forgotten[inside].mean())
    if form != "sample":
        return {"recognition": recognition}
    mix = np.bincount(labels[inside], minlength=rates.heldout_labels.max() + 1) / max(inside.sum(), 1)
    weights = (mix / np.maximum(np.bincount(rates.heldout_labels), 1))[rates.heldout_labels]
    half = 0.5 / len(rows)
    ratio = (recognition + half) / (float((weights @ rates.heldout).mean()) + half)
    return {"recognition": recognition, "memory": float(np.log(ratio))}
