"""Witnesses that compare many models by their margins: RMIA, KLoM and U-LiRA."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from residuum.auditing.intervals import Floats
from residuum.auditing.witnesses.base import NO_HELDOUT, REFERENCE, Values, Witness
from residuum.auditing.witnesses.calls import ERROR
from residuum.auditing.witnesses.ranking import HALF, Classes, Labels, Ranking, rank
from residuum.auditing.witnesses.scores import C, klom, klom_of_chance, log_relative, quantiles, refuse_few
from residuum.auditing.witnesses.ulira import FEWEST, crossed_auc, u_lira

Margins = Mapping[str, Floats]  # by part: forget, heldout, retain, validation
Model = tuple[str, str]  # label and seed; references have the label "reference"
INNOCENT = "reference"


@dataclass(frozen=True)
class Ensemble:
    """The margins of all models of a run, which of them are innocent (re-trained without F), and the labels."""

    margins: Mapping[Model, Margins]
    innocent_labels: frozenset[str]
    forgotten: Labels
    heldout: Labels

    def rank(self, forgotten: Floats, heldout: Floats) -> Ranking:
        """Return how these scores rank forgotten samples, of classes that were held out too, among held-out ones."""
        kept = np.isin(self.forgotten, self.heldout)
        return rank(forgotten[kept], heldout, Classes(self.forgotten[kept], self.heldout))

    @property
    def labels(self) -> list[str]:
        """The rows, without the further references."""
        return list(dict.fromkeys(label for label, _ in self.margins if label != INNOCENT))

    def of_row(self, label: str, part: str) -> Floats:
        """Return the margins of one row on a part, (seeds, n)."""
        return np.stack([own[part] for (name, _), own in self.margins.items() if name == label])

    def innocents(self, part: str, without: Sequence[Model]) -> Floats:
        """Return the margins of all innocent models but some, (N, n)."""
        chosen = [model for model in self.margins if model[0] in self.innocent_labels and model not in without]
        return np.stack([self.margins[model][part] for model in chosen]) if chosen else np.empty((0, 0))

    def row_and_innocents(self, label: str, part: str) -> tuple[Floats, Floats]:
        """Return the margins of a row and of the innocents that are not of the row."""
        row = [model for model in self.margins if model[0] == label]
        return self.of_row(label, part), self.innocents(part, row)


class EnsembleWitness(Witness):
    """A witness that reads margins; the values are of each model, or one of each row over its seeds."""

    reads = "margins"
    relative: ClassVar[bool] = False

    @abstractmethod
    def of_ensemble(self, ensemble: Ensemble, *, seed: int) -> dict[str, Any]:
        """Return {"models": {label: {seed: values}}} or {"rows": {label: values}}."""


@dataclass(frozen=True)
class RMIA(EnsembleWitness):
    """AUC of a model's relative probability between forgotten and held-out samples; see `log_relative`."""

    c: float = C
    name: ClassVar[str] = "rmia"
    meaning: ClassVar[str] = "AUC: forgotten samples are likelier, relative to innocent models, than held-out ones"

    def of_ensemble(self, ensemble: Ensemble, *, seed: int) -> dict[str, Any]:
        """Return AUC with interval and its difference from re-train of every model, further references included."""
        if not len(ensemble.heldout):
            return {"rows": dict.fromkeys(ensemble.labels, NO_HELDOUT)}
        rankings = {model: self.ranking(ensemble, model) for model in ensemble.margins}
        found: dict[str, dict[str, Values]] = {}
        for (label, own_seed), ranking in rankings.items():
            low, high = ranking.interval()
            found.setdefault(label, {})[own_seed] = {"value": ranking.auc, "low": low, "high": high}
            if (reference := rankings.get((REFERENCE, own_seed))) and label != INNOCENT:
                *difference, p = ranking.minus(reference)
                found[label][own_seed] |= {"p": p, "above_reference": difference}
        return {"models": found}

    def ranking(self, ensemble: Ensemble, model: Model) -> Ranking:
        """Return how the forgotten samples rank by one model's relative probability."""
        scores = (
            log_relative(ensemble.margins[model][part], ensemble.innocents(part, [model]), c=self.c)
            for part in ("forget", "heldout")
        )
        return ensemble.rank(*scores)


@dataclass(frozen=True)
class KLoM(EnsembleWitness):
    """The 95th percentile over forgotten samples of KLoM between a row's seeds and the innocents; see `klom`.

    Found where models permuted at random seldom differ so much (p), and forgotten samples have larger values than
    held-out ones of their class (`above_heldout`, the AUC with its interval): else the row differs everywhere.
    """

    reference: bool = False
    permutations: int = 99
    name: ClassVar[str] = "klom"
    meaning: ClassVar[str] = "KL of margins from innocent models', 95th percentile; memory if above validation's"

    def of_ensemble(self, ensemble: Ensemble, *, seed: int) -> dict[str, Any]:
        """Return the value of each row with what chance makes of it; p permutes models."""
        rng = np.random.default_rng(seed)
        return {"rows": {label: self.of_row(ensemble, label, rng) for label in ensemble.labels}}

    def of_row(self, ensemble: Ensemble, label: str, rng: np.random.Generator) -> Values:
        """Return one row's values."""
        own, innocent = ensemble.row_and_innocents(label, "forget")
        if reason := refuse_few(len(own), len(innocent)):
            return {"value": None, "note": reason}
        parts = {
            part: klom(*ensemble.row_and_innocents(label, part), reference=self.reference)
            for part in ("forget", "heldout", "retain", "validation")
            if ensemble.of_row(label, part).size
        }
        p = self.permutation_p(own, innocent, rng)
        ranking = ensemble.rank(parts["forget"], parts["heldout"]) if "heldout" in parts else None
        above = [ranking.auc, *ranking.interval()] if ranking else None
        return {
            "value": quantiles(parts["forget"])["q95"],
            "p": p,
            "found": p <= ERROR and (above is None or above[1] > HALF),
            "above_heldout": above,
            "models": [len(own), len(innocent)],
            "mean": float(parts["forget"].mean()),
            "expected_of_nothing": float(klom_of_chance(own, innocent).mean()),
            "of_random_halves": self.of_halves(innocent, rng),
            **{f"{part}_q95": quantiles(values)["q95"] for part, values in parts.items()},
        }

    def of_halves(self, innocent: Floats, rng: np.random.Generator) -> float:
        """Return the mean KLoM of two random halves of the innocents."""
        mixed = innocent[rng.permutation(len(innocent))]
        return float(klom(mixed[::2], mixed[1::2], reference=self.reference).mean())

    def permutation_p(self, own: Floats, innocent: Floats, rng: np.random.Generator) -> float:
        """Return the share of permutations of the models, this one included, whose mean KLoM is as large."""
        models, k = np.concatenate([own, innocent]), len(own)
        value, larger = klom(own, innocent, reference=self.reference).mean(), 0
        for _ in range(self.permutations):
            mixed = models[rng.permutation(len(models))]
            larger += int(klom(mixed[:k], mixed[k:], reference=self.reference).mean() >= value)
        return (1 + larger) / (1 + self.permutations)


@dataclass(frozen=True)
class ULiRA(EnsembleWitness):
    """AUC of the likelihood ratio between a row's seeds and the innocents, on forgotten samples; see `u_lira`.

    Found where models permuted at random are seldom told apart so well (p), and its low end is above the AUC on
    held-out samples: else the row differs everywhere, which is no memory.
    """

    name: ClassVar[str] = "ulira"
    meaning: ClassVar[str] = "AUC: margins tell the row's models from innocent ones; memory if above held-out's"

    def of_ensemble(self, ensemble: Ensemble, *, seed: int) -> dict[str, Any]:
        """Return AUC with interval over models, TPR at 1 % FPR and p of each row."""
        return {"rows": {label: self.of_row(ensemble, label, seed) for label in ensemble.labels}}

    def of_row(self, ensemble: Ensemble, label: str, seed: int) -> Values:
        """Return one row's values."""
        own, innocent = ensemble.row_and_innocents(label, "forget")
        if reason := refuse_few(len(own), len(innocent), FEWEST):
            return {"value": None, "note": reason}
        found = u_lira(own, innocent, seed=seed)
        heldout = self.of_heldout(*ensemble.row_and_innocents(label, "heldout"))
        beside = {"tpr": found.tpr, "left_out_auc": found.left_out_auc, "heldout_auc": heldout}
        return {
            "value": found.auc,
            "low": found.low,
            "high": found.high,
            "p": found.p,
            "found": found.p <= ERROR and (heldout is None or found.low > heldout),
            "models": [len(own), len(innocent)],
        } | beside

    def of_heldout(self, own: Floats, innocent: Floats) -> float | None:
        """Return the AUC on held-out samples: as large, it shows models that differ everywhere, not memory."""
        if not own.size:
            return None
        return crossed_auc(np.concatenate([own, innocent]), np.arange(len(own) + len(innocent)) < len(own))
