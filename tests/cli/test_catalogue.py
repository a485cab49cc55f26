"""What `residuum list` reads from the source is what the imported tables hold, and it imports none of them."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys

import pytest

from residuum.cli.catalogue import KINDS, catalogue
from residuum.cli.listing import as_plain, written
from residuum.data import DATASETS
from residuum.experiments import SCENARIOS, Experiment, load_scenario
from residuum.experiments.experiment import parse_row
from residuum.experiments.parsing import build_perturbation
from residuum.methods import make_method, methods
from residuum.models import MODELS
from residuum.perturbations import PERTURBATIONS
from residuum.plugins import split_specs

THINGS = {
    "methods": methods(),
    "perturbations": PERTURBATIONS,
    "models": {name: blueprint.network for name, blueprint in MODELS.items()},
    "datasets": DATASETS,
}


def first_line(thing):
    return inspect.getdoc(thing).split("\n", maxsplit=1)[0]


@pytest.mark.parametrize("kind", THINGS)
def test_names_and_first_lines_are_those_of_the_tables(kind):
    assert {name: entry.about for name, entry in catalogue(kind).items()} == {
        name: first_line(thing) for name, thing in THINGS[kind].items()
    }
    assert list(catalogue(kind)) == list(THINGS[kind])


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in ("methods", "perturbations") for name in THINGS[kind]]
)
def test_settings_and_defaults_are_those_of_the_class(kind, name):
    fields = {field.name: field.default for field in dataclasses.fields(THINGS[kind][name])}
    assert list(catalogue(kind)[name].settings.items()) == list(fields.items())


def test_scenarios_have_their_descriptions():
    assert list(catalogue("scenarios")) == list(SCENARIOS)
    assert all(entry.about == load_scenario(name).description for name, entry in catalogue("scenarios").items())


def test_the_list_loads_neither_torch_nor_numpy():
    code = (
        "import sys; from residuum.cli import run_command; assert run_command(['list']) == 0; "
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert all(kind in listed for kind in KINDS)


@pytest.mark.parametrize("name", sorted(methods()))
def test_listed_settings_of_a_method_can_be_pasted(name):
    for key, value in catalogue("methods")[name].settings.items():
        text = written({key: value})
        specs = split_specs(f"gd, x={name}:{text}")
        assert len(specs) == 2, text
        assert parse_row(specs[1]).settings[key] == make_method(name).settings[key], text


@pytest.mark.parametrize("name", sorted(PERTURBATIONS))
def test_listed_settings_of_a_perturbation_can_be_pasted(name):
    for key, value in as_plain("perturbations", catalogue("perturbations"))[name]["settings"].items():
        assert build_perturbation(f"{name}:{written({key: value})}") == PERTURBATIONS[name](), key


def test_spaces_after_commas_are_no_part_of_a_name():
    changes = {"audit.perturbations": split_specs("gaussian, fgsm"), "audit.taus.fgsm": "0, 0.1"}
    made = Experiment.create("tiny", methods="gd , scrub:decay_epochs=3,5 , ga", overrides=changes)
    assert made.labels[3:] == ["gd", "scrub:decay_epochs=3,5", "ga"]
    assert made.rows[1].settings["decay_epochs"] == (3, 5)
    assert made.scenario.audit.perturbations == ("gaussian", "fgsm")
    assert load_scenario(
        "tiny", {"audit.perturbations": "gaussian, fgsm", "audit.taus.fgsm": 0.1}
    ).audit.perturbations == ("gaussian", "fgsm")
