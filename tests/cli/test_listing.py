"""`residuum list` names every component, says what each is about, and imports nothing to name them."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys

import pytest

from residuum.cli.listing import as_plain, described, written
from residuum.cli.options import REGISTRIES, names
from residuum.core import components
from residuum.core.registry import Registry, split_specs
from residuum.data import DATASETS
from residuum.models import MODELS
from residuum.perturbations import PERTURBATIONS
from residuum.studies import SCENARIOS, Study, load_scenario
from residuum.studies.artifacts import import_closure
from residuum.studies.parsing import build_perturbation
from residuum.studies.study import parse_row
from residuum.unlearning import METHODS, make_method

THINGS = {"methods": METHODS, "perturbations": PERTURBATIONS, "models": MODELS, "datasets": DATASETS}


def first_line(thing):
    return inspect.getdoc(thing).split("\n", maxsplit=1)[0]


@pytest.mark.parametrize("kind", THINGS)
def test_names_and_first_lines_are_those_of_the_tables(kind):
    assert {name: entry.about for name, entry in described(kind).items()} == {
        name: first_line(thing) for name, thing in THINGS[kind].items()
    }
    assert list(described(kind)) == names(kind) == list(THINGS[kind])


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in ("methods", "perturbations") for name in THINGS[kind]]
)
def test_settings_and_defaults_are_those_of_the_class(kind, name):
    fields = {field.name: field.default for field in dataclasses.fields(THINGS[kind][name])}
    if kind == "methods":
        fields = make_method(name).settings
    elif name != "substitution":
        fields |= {"bounds": (0, 1), "scale": None, "at": None, "unit": "raw"}
    assert list(described(kind)[name].settings.items()) == list(fields.items())


@pytest.mark.parametrize("registry", [components.METHODS, components.PERTURBATIONS, components.PROBES])
def test_built_in_components_have_the_name_they_are_listed_under(registry: Registry):
    assert [registry[name].name for name in registry.built_in] == list(registry.built_in)


def test_the_code_of_every_built_in_component_decides_the_keys_of_the_store():
    registries = (
        components.METHODS,
        components.PERTURBATIONS,
        components.MODELS,
        components.DATASETS,
        components.PROBES,
    )
    modules = {registry[name].__module__ for registry in registries for name in registry.built_in}
    assert modules <= import_closure(["residuum.studies.stages"])


def test_scenarios_have_their_descriptions():
    assert list(described("scenarios")) == list(SCENARIOS)
    assert all(entry.about == load_scenario(name).description for name, entry in described("scenarios").items())


def test_the_list_loads_neither_torch_nor_numpy():
    code = (
        "import sys; from residuum.cli import run_command; assert run_command(['list']) == 0; "
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert all(kind in listed for kind in REGISTRIES)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_listed_settings_of_a_method_can_be_pasted(name):
    for key, value in described("methods")[name].settings.items():
        text = written({key: value})
        specs = split_specs(f"gd, x={name}:{text}")
        assert len(specs) == 2, text
        assert parse_row(specs[1]).settings[key] == make_method(name).settings[key], text


@pytest.mark.parametrize("name", sorted(PERTURBATIONS))
def test_listed_settings_of_a_perturbation_can_be_pasted(name):
    for key, value in as_plain("perturbations", described("perturbations"))[name]["settings"].items():
        assert build_perturbation(f"{name}:{written({key: value})}") == build_perturbation(name), key


def test_spaces_after_commas_are_no_part_of_a_name():
    changes = {"audit.perturbations": split_specs("gaussian, fgsm"), "audit.taus.fgsm": "0, 0.1"}
    made = Study.create("tiny", methods="gd , scrub:decay_epochs=3,5 , ga", overrides=changes)
    assert made.labels[3:] == ["gd", "scrub:decay_epochs=3,5", "ga"]
    assert made.rows[1].settings["decay_epochs"] == (3, 5)
    assert made.scenario.audit.perturbations == ("gaussian", "fgsm")
    assert load_scenario(
        "tiny", {"audit.perturbations": "gaussian, fgsm", "audit.taus.fgsm": 0.1}
    ).audit.perturbations == ("gaussian", "fgsm")
