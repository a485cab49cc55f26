"""Scenarios, stages, store and runner: from a name to a record on disk."""

from residuum.core.components import SCENARIOS
from residuum.studies.planning import plan
from residuum.studies.results import Result, claim_folder, write_requests, write_run
from residuum.studies.runner import run_all
from residuum.studies.scenario_files import load_scenario
from residuum.studies.stages import Stage
from residuum.studies.study import Study
