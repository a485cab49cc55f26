"""Calculators for the literature's guarantees; numpy and scipy only."""

from __future__ import annotations

from residuum.theory.deletion import descend as descend
from residuum.theory.deletion import distance_bound as distance_bound
from residuum.theory.deletion import objective_epsilon as objective_epsilon
from residuum.theory.deletion import output_epsilon as output_epsilon
from residuum.theory.deletion import publish as publish
from residuum.theory.deletion import publishing_epsilon as publishing_epsilon
from residuum.theory.deletion import publishing_noise as publishing_noise
from residuum.theory.disagreement import disagreement_from_ratio as disagreement_from_ratio
from residuum.theory.disagreement import half_sphere_bound as half_sphere_bound
from residuum.theory.disagreement import half_sphere_share as half_sphere_share
from residuum.theory.disagreement import inevitable_disagreement as inevitable_disagreement
from residuum.theory.disagreement import nearest_boundary_point as nearest_boundary_point
from residuum.theory.disagreement import ratio_statement as ratio_statement
from residuum.theory.disagreement import ratio_violation as ratio_violation
from residuum.theory.empirical import adversarial_statistics as adversarial_statistics
from residuum.theory.empirical import binomial_limits as binomial_limits
from residuum.theory.empirical import epsilon_lower_bound as epsilon_lower_bound
from residuum.theory.empirical import readout_certificate as readout_certificate
from residuum.theory.empirical import signed_distances as signed_distances
from residuum.theory.langevin import Chain as Chain
from residuum.theory.langevin import published_epsilon as published_epsilon
from residuum.theory.langevin import removal_gap as removal_gap
from residuum.theory.langevin import request_gaps as request_gaps
from residuum.theory.logistic import Logistic as Logistic
from residuum.theory.logistic import accuracy as accuracy
from residuum.theory.logistic import noisy_descent as noisy_descent
from residuum.theory.logistic import predictions as predictions
from residuum.theory.logistic import unit_rows as unit_rows
from residuum.theory.renyi import curve_to_epsilon as curve_to_epsilon
from residuum.theory.renyi import gaussian_epsilon as gaussian_epsilon
from residuum.theory.renyi import minimal_epsilon as minimal_epsilon
from residuum.theory.renyi import renyi_to_epsilon as renyi_to_epsilon
from residuum.theory.result import Bound as Bound
from residuum.theory.result import finite_or_none as finite_or_none
from residuum.theory.robust import forget_pull as forget_pull
from residuum.theory.robust import robust_drift as robust_drift
from residuum.theory.robust import robust_epsilon as robust_epsilon
from residuum.theory.shifted import Phase as Phase
from residuum.theory.shifted import divergence_rate as divergence_rate
from residuum.theory.shifted import request_phases as request_phases
from residuum.theory.shifted import shifted_epsilon as shifted_epsilon
from residuum.theory.shifted import steps_needed as steps_needed
