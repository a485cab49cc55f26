"""What `residuum list` reads from the source is what the imported tables hold, and it imports none of them."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys

import pytest

from residuum.cli.catalogue import KINDS, catalogue
from residuum.data import DATASETS
from residuum.experiments import SCENARIOS, load_scenario
from residuum.methods import methods
from residuum.models import MODELS
from residuum.perturbations import PERTURBATIONS

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
