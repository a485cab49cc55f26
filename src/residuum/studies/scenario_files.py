"""Scenario files: from a name, a profile and overrides to a checked scenario."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from residuum.auditing.measures import OWN_MEASURES
from residuum.core.components import SCENARIOS
from residuum.core.errors import InputError, unknown_name
from residuum.core.files import regular_file
from residuum.core.registry import Registry
from residuum.data import DATASETS
from residuum.models import MODELS
from residuum.perturbations import PERTURBATIONS
from residuum.record import refuse_no_file_name
from residuum.studies.parsing import build_perturbation, check_measure, override
from residuum.studies.settings import DEFAULT_PROFILE, Scenario
from residuum.unlearning import METHODS, first_problem, make_method


def load_scenario(
    name: str, overrides: Mapping[str, Any] | None = None, *, profile: str = DEFAULT_PROFILE, import_code: bool = True
) -> Scenario:
    """Return a named scenario in one of its profiles, with overrides such as {"train.epochs": 5, "rurk.tau": 0.02}.

    With `import_code=False`, code that the file names is refused, and code that the overrides name is imported.
    """
    complete = _validated(scenario_tree(name, profile)).model_dump()
    usual_data = complete["data"]["name"]
    for key, value in (overrides or {}).items():
        override(complete, key, value)
    scenario = _validated(complete)
    if not import_code:
        named = {"data.name": [scenario.data.name] if ".py:" in scenario.data.name else []}
        named |= {"model.name": [scenario.model.name], "audit.perturbations": list(scenario.audit.perturbations)}
        named |= {"measures": list(scenario.measures)}
        refuse_code(name, {key: specs for key, specs in named.items() if key not in (overrides or {})})
    scenario = _with_plugins(scenario)
    _check_names(scenario)
    if complete["data"]["name"] == usual_data:
        return scenario
    data = scenario.data.name
    other = f"{scenario.name}-on-{re.sub(r'[^A-Za-z0-9._-]+', '_', Path(data).stem)}"
    return scenario.model_copy(update={"name": other, "description": f"settings of {scenario.name} on {data}"})


def refuse_code(file: str, named: Mapping[str, Sequence[str]]) -> None:
    """Refuse a user's scenario file that names code; an installed scenario may, because its package is code as well."""
    if file in SCENARIOS:
        return
    registries: dict[str, Registry[Any]] = {"data.name": DATASETS, "model.name": MODELS, "rows": METHODS}
    registries |= {"audit.perturbations": PERTURBATIONS, "measures": OWN_MEASURES}
    for key, specs in named.items():
        if source := next(filter(None, map(registries[key].source_in, specs)), None):
            how = f"--methods {source}" if key == "rows" else f"--set {key}={source}"
            text = f"{file}: {key} names code, {source}, which a dry run does not import from a file"
            raise InputError(f"{text}; if you trust it, leave --dry-run out or add {how}")


def _with_plugins(scenario: Scenario) -> Scenario:
    """Return the scenario with everything that it has by its source, FILE.py:NAME, by its name in the tables."""
    data, model, audit = scenario.data, scenario.model, scenario.audit
    names: dict[str, Any] = {
        "data": data.model_copy(update={"name": DATASETS.add(data.name)}) if ".py:" in data.name else data,
        "model": model.model_copy(update={"name": MODELS.named(model.name)}),
        "audit": audit.model_copy(update={"perturbations": tuple(map(PERTURBATIONS.named, audit.perturbations))}),
        "measures": tuple(map(OWN_MEASURES.named, scenario.measures)),
    }
    return scenario.model_copy(update=names)


def scenario_tree(name: str, profile: str = DEFAULT_PROFILE) -> dict[str, Any]:
    """Return the values of a scenario's file with those of one of its profiles; every file has the profile `cpu`.

    `name` is one of `SCENARIOS`, or the path of a .toml file, which is called by its stem.
    """
    tree = _file_tree(name)
    name = name if name in SCENARIOS else Path(name).stem
    tables = tree.pop("profiles", {})
    if not isinstance(tables, dict) or not all(isinstance(values, dict) for values in tables.values()):
        raise InputError(f"{name}: profiles: expected tables such as [profiles.paper], got {tables!r}")
    profiles = {DEFAULT_PROFILE: {}, **tables}
    if profile not in profiles:
        raise unknown_name(f"profile of {name}", profile, profiles)
    return {"name": name, "profile": profile, **merged(tree, profiles[profile])}


def _file_tree(name: str, after: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a file's values; `based_on` takes those of another scenario first, but for what that one forgets."""
    try:
        file = regular_file(name) if name.endswith(".toml") and name not in SCENARIOS else SCENARIOS.find(name)
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}; expected a scenario's .toml file") from None
    except (ValueError, RecursionError) as error:  # neither TOML nor UTF-8
        raise InputError(f"{name}: expected a scenario in TOML, got {error}") from None
    base = tree.pop("based_on", None)
    if base is None:
        return tree
    if not isinstance(base, str) or base in (name, *after):
        raise InputError(f"{name}: based_on: expected the name of another scenario, got {base!r}")
    return merged(_file_tree(base, (name, *after)) | {"forget": {}}, tree)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the base with the changes: tables are merged, other values replaced, dotted keys reach inside."""
    tree = dict(base)
    for key, value in changes.items():
        head, _, rest = key.partition(".")
        new = {rest: value} if rest else value
        old = tree.get(head)
        tree[head] = merged(old if isinstance(old, Mapping) else {}, new) if isinstance(new, Mapping) else new
    return tree


def _validated(tree: Mapping[str, Any]) -> Scenario:
    try:
        return Scenario.model_validate(tree)
    except ValidationError as error:
        raise InputError(first_problem(error)) from None


def _check_names(scenario: Scenario) -> None:
    refuse_no_file_name(scenario.name, "a scenario's name")
    MODELS.find(scenario.model.name)
    for name, values in scenario.methods.items():
        make_method(name, values)
    if scenario.train.epochs < 1:
        raise InputError("train.epochs: expected 1 or more, got 0: what was never trained has nothing to forget")
    if scenario.controls < 1:
        raise InputError("controls: expected 1 or more, got 0: a control says how far retrained models are apart")
    if not scenario.seeds or len(set(scenario.seeds)) != len(scenario.seeds):
        raise InputError(f"expected at least one seed and none twice, got {scenario.seeds}")
    audit = scenario.audit
    for spec in scenario.measures:
        check_measure(spec, audit)
    if len(set(audit.perturbations)) < len(audit.perturbations):
        raise InputError(f"expected each perturbation once, got {', '.join(audit.perturbations)}")
    for spec in {**audit.taus, **dict.fromkeys(audit.perturbations)}:
        build_perturbation(spec)
    for spec in audit.perturbations:
        if not audit.radii(spec):
            name = spec.partition(":")[0]
            raise InputError(f"expected radii for {name}; give --set audit.taus.{name}=0,0.01,...")
        if len(set(radii := audit.radii(spec))) < len(radii):
            raise InputError(f"expected one or more different finite radii >= 0 for {spec}, got {radii}")
    if (audit.draws is None) == (audit.half_width is None):
        raise InputError("expected either draws or a half-width for the audit; set the other to none")
    if audit.until is not None and audit.draws is None:
        raise InputError("expected draws with audit.until=verdict, got a half-width; the draws are the most it makes")
