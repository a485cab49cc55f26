"""Scenarios, stages, store and runner: from a name to a record on disk."""

from residuum.engines import engine
from residuum.experiments.experiment import Experiment, Row, load_scenario, parse_row, scenario_names
from residuum.experiments.planning import Outline, SeedPlan, audit_cost, forget_lines, is_short, outline, plan
from residuum.experiments.request_results import write_requests
from residuum.experiments.results import claim_folder, results_record, write_run
from residuum.experiments.runner import Result, run, run_all
from residuum.experiments.settings import Scenario
from residuum.experiments.store import Stage, Store

__all__ = [
    "Experiment",
    "Outline",
    "Result",
    "Row",
    "Scenario",
    "SeedPlan",
    "Stage",
    "Store",
    "audit_cost",
    "claim_folder",
    "engine",
    "forget_lines",
    "is_short",
    "load_scenario",
    "outline",
    "parse_row",
    "plan",
    "results_record",
    "run",
    "run_all",
    "scenario_names",
    "write_requests",
    "write_run",
]
