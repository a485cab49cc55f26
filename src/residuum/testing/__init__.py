"""Check that your plug-in behaves as built-in components do.

Methods, perturbations, data sets and networks have promises (`PROMISES`) that every built-in component keeps.
`residuum check` tests yours.
"""

from collections.abc import Callable, Mapping
from typing import Any

from residuum.core.errors import InputError, MethodError, unknown_name
from residuum.core.registry import Registry, load_plugin
from residuum.data import DATASETS
from residuum.models import MODELS, Classifier
from residuum.perturbations import PERTURBATIONS, Perturbation
from residuum.testing.component_promises import PROMISES_OF
from residuum.testing.method_promises import PROMISES as METHOD_PROMISES
from residuum.testing.method_promises import BrokenPromise, Trial, state_restored
from residuum.unlearning import METHODS, Method

Promise = Callable[[Any], None]
PROMISES: Mapping[str, tuple[Promise, ...]] = {"method": METHOD_PROMISES, **PROMISES_OF}
REGISTRIES: Mapping[str, Registry[Any]] = {
    "method": METHODS,
    "perturbation": PERTURBATIONS,
    "dataset": DATASETS,
    "model": MODELS,
}


def check_promises(method: type[Method] | Method) -> dict[str, str | None]:
    """Return the faults of a method by promise; None where it keeps the promise.

    >>> from residuum.unlearning import GD
    >>> {promise: fault for promise, fault in check_promises(GD).items() if fault}
    {}
    """
    return {promise.__name__: _fault(promise, lambda: Trial.of(method)) for promise in METHOD_PROMISES}


def check_plugin(target: str, kind: str | None = None) -> dict[Promise, str | None]:
    """Return the faults of a component by promise; None where it keeps the promise.

    `target` is a registered name, FILE.py:NAME or PACKAGE.MODULE:NAME. For a function, give its `kind`: dataset or
    perturbation.

    >>> {promise.__name__: fault for promise, fault in check_plugin("uniform_l2").items() if fault}
    {}
    """
    kind = kind or _kind_of(target)
    if kind not in PROMISES:
        raise unknown_name("kind of plug-in", kind, PROMISES)
    registry = REGISTRIES[kind]
    name = registry.add(target) if ":" in target else target
    component = registry.find(name)
    subjects: dict[str, Callable[[], Any]] = {"method": lambda: Trial.of(component), "model": lambda: name}
    return {promise: _fault(promise, subjects.get(kind, lambda: component)) for promise in PROMISES[kind]}


def _kind_of(target: str) -> str:
    if target.endswith(".toml"):
        text = f"{target} has no promises: residuum run {target} --dry-run checks it if it is a scenario"
        raise InputError(f"{text}, residuum check {target} if it is a request")
    if ":" not in target:
        for kind, registry in REGISTRIES.items():
            if target in registry or target in registry.broken:
                return kind
        names = [name for registry in REGISTRIES.values() for name in registry]
        raise unknown_name("method or other plug-in", target, names)
    component = load_plugin(target)
    for kind, base in {"method": Method, "perturbation": Perturbation, "model": Classifier}.items():
        if isinstance(component, type) and issubclass(component, base):
            return kind
    raise InputError(f"cannot tell what kind of plug-in {target} is; give --kind, one of {', '.join(PROMISES)}")


def _fault(promise: Promise, subject: Callable[[], Any]) -> str | None:
    try:
        with state_restored():
            promise(subject())
    except BrokenPromise as broken:
        return str(broken)
    except (Exception, SystemExit) as error:  # the report shows whatever the plug-in raises
        cause = error.__cause__ if isinstance(error, MethodError) and error.__cause__ else error
        return f"{type(cause).__name__}: {cause}"
    return None
