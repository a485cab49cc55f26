"""Calculators for the literature's guarantees; numpy and scipy only."""

from __future__ import annotations

from residuum.theory.deletion import (
    descend,
    distance_bound,
    objective_epsilon,
    output_epsilon,
    publish,
    publishing_epsilon,
    publishing_noise,
)
from residuum.theory.disagreement import (
    disagreement_from_ratio,
    half_sphere_bound,
    half_sphere_share,
    inevitable_disagreement,
    nearest_boundary_point,
    ratio_statement,
    ratio_violation,
)
from residuum.theory.empirical import (
    adversarial_statistics,
    clopper_pearson,
    epsilon_lower_bound,
    readout_certificate,
    signed_distances,
)
from residuum.theory.langevin import Chain, published_epsilon, removal_gap, request_gaps
from residuum.theory.logistic import Logistic, accuracy, noisy_descent, predictions, unit_rows
from residuum.theory.renyi import curve_to_epsilon, gaussian_epsilon, minimal_epsilon, renyi_to_epsilon
from residuum.theory.result import Bound, finite_or_none
from residuum.theory.robust import forget_pull, robust_drift, robust_epsilon
from residuum.theory.shifted import Phase, divergence_rate, request_phases, shifted_epsilon, steps_needed

__all__ = [
    "Bound",
    "Chain",
    "Logistic",
    "Phase",
    "accuracy",
    "adversarial_statistics",
    "clopper_pearson",
    "curve_to_epsilon",
    "descend",
    "disagreement_from_ratio",
    "distance_bound",
    "divergence_rate",
    "epsilon_lower_bound",
    "finite_or_none",
    "forget_pull",
    "gaussian_epsilon",
    "half_sphere_bound",
    "half_sphere_share",
    "inevitable_disagreement",
    "minimal_epsilon",
    "nearest_boundary_point",
    "noisy_descent",
    "objective_epsilon",
    "output_epsilon",
    "predictions",
    "publish",
    "published_epsilon",
    "publishing_epsilon",
    "publishing_noise",
    "ratio_statement",
    "ratio_violation",
    "readout_certificate",
    "removal_gap",
    "renyi_to_epsilon",
    "request_gaps",
    "request_phases",
    "robust_drift",
    "robust_epsilon",
    "shifted_epsilon",
    "signed_distances",
    "steps_needed",
    "unit_rows",
]
