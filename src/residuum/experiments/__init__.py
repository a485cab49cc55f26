"""Scenarios, stages, store and runner: from a name to a record on disk."""

from residuum.components import SCENARIOS
from residuum.experiments.experiment import Experiment, load_scenario
from residuum.experiments.planning import plan
from residuum.experiments.request_results import write_requests
from residuum.experiments.results import Result, claim_folder, write_run
from residuum.experiments.runner import run_all
from residuum.experiments.store import Stage
