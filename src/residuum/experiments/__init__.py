"""Scenarios, stages, store and runner: from a name to a record on disk."""

from residuum.experiments.experiment import Experiment as Experiment
from residuum.experiments.experiment import load_scenario as load_scenario
from residuum.experiments.experiment import scenario_names as scenario_names
from residuum.experiments.planning import plan as plan
from residuum.experiments.request_results import write_requests as write_requests
from residuum.experiments.results import claim_folder as claim_folder
from residuum.experiments.results import write_run as write_run
from residuum.experiments.runner import Result as Result
from residuum.experiments.runner import run_all as run_all
from residuum.experiments.store import Stage as Stage
