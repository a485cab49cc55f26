"""Calculators for the literature's guarantees; numpy and scipy only."""

from __future__ import annotations

from residuum.theory.deletion import descend, distance_bound, publish, publishing_epsilon, publishing_noise
from residuum.theory.disagreement import disagreement_from_ratio, inevitable_disagreement
from residuum.theory.empirical import adversarial_statistics, epsilon_lower_bound, signed_distances
from residuum.theory.indistinguishability import ratio_statement, ratio_violation
from residuum.theory.langevin import Chain, published_epsilon
from residuum.theory.logistic import Logistic, accuracy, noisy_descent, predictions, unit_rows
from residuum.theory.readout import readout_certificate
from residuum.theory.removal import fit_head, objective_epsilon, output_epsilon, remove
from residuum.theory.renyi import curve_to_epsilon, gaussian_epsilon, minimal_epsilon, renyi_to_epsilon
from residuum.theory.requests import removal_gap, request_phases
from residuum.theory.result import Bound
from residuum.theory.robust import forget_pull, robust_drift, robust_epsilon
from residuum.theory.shifted import Phase, divergence_rate, shifted_epsilon, steps_needed
from residuum.theory.sphere import half_sphere_bound, half_sphere_share, nearest_boundary_point

__all__ = [
    "Bound",
    "Chain",
    "Logistic",
    "Phase",
    "accuracy",
    "adversarial_statistics",
    "curve_to_epsilon",
    "descend",
    "disagreement_from_ratio",
    "distance_bound",
    "divergence_rate",
    "epsilon_lower_bound",
    "fit_head",
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
    "remove",
    "renyi_to_epsilon",
    "request_phases",
    "robust_drift",
    "robust_epsilon",
    "shifted_epsilon",
    "signed_distances",
    "steps_needed",
    "unit_rows",
]
