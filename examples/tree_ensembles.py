"""Delete patients from tree ensembles of scikit-learn by fitting them again, and audit the result.

python examples/tree_ensembles.py OUT [--draws 50]

The forgotten patients are those that a model fitted on others is least sure of. Writes a run and its report for each
ensemble into OUT and prints the verdicts: the original remembers the patients, the new fit does not.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier

from residuum import Request, Run, Samples, report, wrap

TRAIN, HELD_OUT, FORGOTTEN, CONTROLS = 300, 160, 20, 4

ENSEMBLES: dict[str, Callable[[int], Any]] = {
    "gradient-boosting": lambda seed: GradientBoostingClassifier(n_estimators=60, subsample=0.7, random_state=seed),
    "random-forest": lambda seed: RandomForestClassifier(50, random_state=seed),
}


def patients() -> tuple[np.ndarray, np.ndarray]:
    """Return standardized features and diagnoses in random order."""
    x, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order], y[order]
    others = x[TRAIN + HELD_OUT :]  # on which no audited model is fitted
    return (x - others.mean(0)) / others.std(0), y


def audited(name: str, out: Path, draws: int) -> Run:
    """Return the audit of an ensemble that was fitted again without the patients that are hardest to know."""
    x, y = patients()

    def fit(samples: Samples, seed: int) -> Any:  # noqa: ANN401 (of scikit-learn)
        inputs, labels = samples.batch(torch.arange(len(samples)))
        return ENSEMBLES[name](seed % 2**32).fit(inputs.numpy(), labels.numpy())

    train, held_out, others = (slice(0, TRAIN), slice(TRAIN, TRAIN + HELD_OUT), slice(TRAIN + HELD_OUT, None))
    stranger = ENSEMBLES[name](9).fit(x[others], y[others])
    sure = stranger.predict_proba(x[train])[np.arange(TRAIN), y[train]]
    forget = [str(row) for row in sure.argsort()[:FORGOTTEN]]
    request = Request(
        (x[train], y[train]), forget=forget, held_out=(x[held_out], y[held_out]), retrain=fit, name=f"{name}-patients"
    )
    model = wrap(fit(request.source.samples, 0), bounds=None)
    again = fit(request.splits.retain, 7)
    run = request.audit(
        model, {"fitted-again": again}, controls=CONTROLS, draws=draws, out=out / name, store=out / "store"
    )
    report(run)
    return run


def main() -> None:
    """Audit each ensemble and print its verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--draws", type=int, default=50)
    asked = parser.parse_args()
    for name in ENSEMBLES:
        for label, judgment in audited(name, asked.out, asked.draws).verdicts.items():
            print(f"{name}, {label}: {judgment.verdict.label}")


if __name__ == "__main__":
    main()
