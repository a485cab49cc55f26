"""Check a plug-in of any kind by the promises that everything of its kind keeps."""

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

from residuum.auditing.own_measures import OWN_MEASURES
from residuum.checks import PROMISES, Trial, fault_of
from residuum.data import DATASETS
from residuum.experiments import SCENARIOS
from residuum.methods import Method, methods
from residuum.models import MODELS, Classifier
from residuum.perturbations import PERTURBATIONS, Perturbation
from residuum.plugin_promises import PROMISES_OF, Promise
from residuum.plugins import Table, load_plugin
from residuum.types import InputError, unknown_name


def _tried(promise: Callable[[Trial], None]) -> Promise:
    @wraps(promise)
    def check(method: type[Method]) -> None:
        promise(Trial.of(method))

    return check


KINDS: Mapping[str, tuple[Promise, ...]] = {"method": tuple(map(_tried, PROMISES)), **PROMISES_OF}


def tables() -> dict[str, Table[Any]]:
    """Return the table of each kind."""
    others: dict[str, Table[Any]] = {
        "dataset": DATASETS,
        "model": MODELS,
        "measure": OWN_MEASURES,
        "scenario": SCENARIOS,
    }
    return {"method": methods(), "perturbation": PERTURBATIONS, **others}


def check_plugin(target: str, kind: str | None = None) -> dict[Promise, str | None]:
    """Return for each promise of its kind what breaks it, or None.

    `target` is a name in one of the tables, FILE.py:NAME, PACKAGE.MODULE:NAME, or a scenario's .toml file. Functions do
    not show what they are meant for: say with `kind` whether it is a dataset, a measure or a perturbation.

    >>> {promise.__name__: fault for promise, fault in check_plugin("uniform_l2").items() if fault}
    {}
    """
    kind = kind or kind_of(target)
    if kind not in KINDS:
        raise unknown_name("kind of plug-in", kind, KINDS)
    thing: Any = target
    if not target.endswith(".toml"):
        table = tables()[kind]
        name = table.add(target) if ":" in target else target
        thing = table.find(name)
        thing = name if kind in ("model", "scenario") else thing
    return {promise: fault_of(partial(promise, thing)) for promise in KINDS[kind]}


def kind_of(target: str) -> str:
    """Return the kind of a target, where that can be seen."""
    if target.endswith(".toml"):
        return "scenario"
    if ":" not in target:
        known = tables()
        found = next((kind for kind, table in known.items() if target in table or target in table.broken), None)
        if found is None:
            raise unknown_name("method or other plug-in", target, [name for table in known.values() for name in table])
        return found
    thing = load_plugin(target)
    kinds = {"method": Method, "perturbation": Perturbation, "model": Classifier}
    found = next((kind for kind, base in kinds.items() if isinstance(thing, type) and issubclass(thing, base)), None)
    if found is None:
        raise InputError(f"{target} does not show what it is meant for; give --kind, one of {', '.join(KINDS)}")
    return found
