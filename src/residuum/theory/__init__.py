"""Calculators for the literature's guarantees; numpy and scipy only."""

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
    binomial_limits,
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
