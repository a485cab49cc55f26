"""The decoy audit of a request: which samples are unlearned with it, and how a model treats them afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from residuum.auditing.decoys import PERMUTATIONS, two_sample_test
from residuum.auditing.probes.base import log_odds
from residuum.auditing.statistics import SIGNIFICANCE, Floats
from residuum.core.errors import InputError, plural
from residuum.core.inputs import InputSpace, space_of
from residuum.core.samples import Samples
from residuum.core.seeds import child_seed
from residuum.data.ids import shuffled
from residuum.models import forward
from residuum.record.decoys import DecoyAudit, DecoyConclusion, DecoyScores, Exchangeability
from residuum.studies.decoys import judged_decoys

if TYPE_CHECKING:
    from residuum.request.models import Unlearned
    from residuum.request.request import Request

FEWEST = 10  # decoys, and held-out samples, below which p rarely gets small
PER_DECOY = 4  # held-out samples for each decoy; more add little power
TESTED = 1000  # samples of either kind that the two-sample test looks at
COUNTED = 512  # features that tokens are counted in


def drawn_decoys(request: Request, number: int, seed: int) -> tuple[str, ...]:
    """Return ids of retained samples chosen at random, of classes that were held out too.

    Where the request has the record of a split, they are the first of those for which the coin was tossed.
    """
    if type(number) is not int or number < FEWEST:
        raise InputError(f"decoys: expected a whole number of {FEWEST} or more, or 0 for none, got {number!r}")
    splits = request.splits
    if not len(splits.test):
        raise InputError("decoys are compared with held-out samples that no model was trained on; give held_out=")
    held = torch.unique(splits.test.y)
    ids = [name for name, label in zip(splits.retain.ids, splits.retain.y, strict=True) if label in held]
    if request.split is not None:
        tossed = set(request.split.decoys)
        ids = [name for name in ids if name in tossed]
    if number > len(ids) or number >= len(splits.retain):
        which = "of the recorded split" if request.split is not None else "whose class was held out"
        raise InputError(f"decoys: expected at most the {len(ids)} retained samples {which}, got {number}; take fewer")
    return tuple(ids[row] for row in shuffled(ids, seed, "decoys")[:number])


def decoy_audit(request: Request, unlearned: Unlearned, model: nn.Module | None, *, seed: int = 1) -> DecoyAudit:
    """Return the decoy audit of a model that forgot decoys with the request; see `Request.decoy_audit`."""
    if unlearned.decoys is None:
        raise InputError("the model forgot no decoys; make it with unlearn(..., decoys=200)")
    training = request.source.samples
    named = [row for row, name in enumerate(training.ids) if name in unlearned.decoys]
    requested = {*request.forget_ids, *request.earlier_ids}
    decoys = training.subset([row for row in named if training.ids[row] not in requested])
    if len(decoys) != len(unlearned.decoys.hashes):
        text = f"expected the {len(unlearned.decoys.hashes)} decoys of the model among the data, got {len(decoys)}"
        raise InputError(f"{text}; give the data that it was unlearned with")
    held_out = _held_out(request, decoys, seed)
    if len(held_out) < FEWEST:
        raise InputError(f"expected at least {FEWEST} held-out samples of the decoys' classes, got {len(held_out)}")
    parts = (decoys, held_out)
    unlearned_scores = true_class_probabilities(unlearned.model, parts)
    order = unlearned_scores.argsort(kind="stable")  # which says nothing of where the samples are in the data
    scores = DecoyScores(
        labels=np.concatenate([part.y.numpy() for part in parts])[order].tolist(),
        decoy=(order < len(decoys)).tolist(),
        unlearned=unlearned_scores[order].tolist(),
        original=None if model is None else true_class_probabilities(model, parts)[order].tolist(),
    )
    measured = DecoyAudit(
        conclusion=DecoyConclusion.INCONCLUSIVE,
        decoys=len(decoys),
        held_out=len(held_out),
        seed=seed,
        permutations=PERMUTATIONS,
        exchangeability=_exchangeability(request, decoys, space_of(unlearned.model), seed),
        scores=scores,
        passes=(1 if model is None else 2) * (len(decoys) + len(held_out)),
    )
    return judged_decoys(measured)


def true_class_probabilities(model: nn.Module, parts: Sequence[Samples]) -> Floats:
    """Return the model's probability of each sample's true class."""
    margins = torch.cat([log_odds(forward(model, part), part.y) for part in parts])
    probabilities: Floats = torch.sigmoid(margins).numpy()
    return probabilities


def _held_out(request: Request, decoys: Samples, seed: int) -> Samples:
    """Return held-out samples of the decoys' classes: four for each decoy, chosen at random, or all."""
    pool = request.splits.test
    rows = np.flatnonzero(np.isin(pool.y.numpy(), decoys.y.numpy()))
    if request.split is not None:
        tossed = {f"held_out/{name}" for name in request.split.held_out}
        rows = np.array([row for row in rows if pool.ids[row] in tossed], dtype=np.int64)
    order = shuffled([pool.ids[row] for row in rows], seed, "decoys/held_out")
    return pool.subset(np.sort(rows[order[: PER_DECOY * len(decoys)]]))


def _exchangeability(request: Request, decoys: Samples, space: InputSpace, seed: int) -> Exchangeability:
    """Return whether decoys and held-out samples may be exchanged: by the recorded coin, or by a test of the data."""
    if request.split is not None:
        strangers = [name for name in decoys.ids if name not in set(request.split.decoys)]
        if strangers:
            text = f"{plural(len(strangers), 'decoy')} for which no coin was tossed, the first is {strangers[0]!r}"
            raise InputError(f"expected decoys of the recorded split, got {text}; unlearn again")
        return Exchangeability(passed=True, split_sha256=request.split.sha256)
    apart = {*request.forget_ids, *request.earlier_ids}
    training = request.source.samples
    left = np.array([row for row, name in enumerate(training.ids) if name not in apart], dtype=np.int64)
    held, pool = np.unique(request.splits.test.y.numpy()), training.subset(left)
    sides = [pool.subset(np.flatnonzero(np.isin(pool.y.numpy(), held))), request.splits.test]
    sides = [side.subset(np.sort(shuffled(side.ids, seed, "decoys/test")[:TESTED])) for side in sides]
    common = np.intersect1d(sides[0].y.numpy(), sides[1].y.numpy())
    sides = [side.subset(np.flatnonzero(np.isin(side.y.numpy(), common))) for side in sides]
    test = two_sample_test(
        np.concatenate([plain_features(side, space) for side in sides]),
        np.concatenate([side.y.numpy() for side in sides]),
        np.arange(sum(map(len, sides))) < len(sides[0]),
        seed=child_seed(seed, "decoys/test"),
    )
    passed = test.p > SIGNIFICANCE
    return Exchangeability(passed=passed, p=test.p, auc=test.auc, training=len(sides[0]), held_out=len(sides[1]))


def plain_features(samples: Samples, space: InputSpace) -> Floats:
    """Return inputs as the two-sample test reads them, (n, d): as they are, or how often tokens occur in them."""
    x = torch.cat([x for x, _, _ in samples.batches(torch.split(torch.arange(len(samples)), 256))]).flatten(1)
    if not space.tokens:
        return x.double().numpy()
    counts = torch.zeros(len(x), COUNTED, dtype=torch.float64)
    return counts.scatter_add_(1, x.long() % COUNTED, torch.ones_like(x, dtype=torch.float64)).numpy()
