"""Plug-ins: users' components, from an installed package's entry point or `FILE.py:NAME`, next to the built-in ones.

Each kind (methods, perturbations, data sets, models, measures, scenarios) has one `Registry`, see `components.py`.
Only `load_plugin` imports users' code. Names that come from a data file are looked up (`Registry.find`) and never
imported.
"""

import hashlib
import importlib
import importlib.util
import sys
from collections import UserDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from residuum.core.errors import InputError, unknown_name

Component = TypeVar("Component")
REGISTRIES: dict[str, "Registry[Any]"] = {}  # by entry-point group
FROM_A_FILE, DIGITS = "residuum_plugin_", 16  # prefix and digits of hash in the name of a module from a file


def load_plugin(source: EntryPoint | str) -> Any:  # noqa: ANN401 (whatever stands there)
    """Return the object that an entry point, `FILE.py:NAME` or `PACKAGE.MODULE:NAME` names, or raise an InputError.

    >>> load_plugin("collections:OrderedDict").__name__
    'OrderedDict'
    """
    text = source if isinstance(source, str) else source.value
    place, _, name = text.rpartition(":")
    try:
        if not isinstance(source, str):
            return source.load()
        module = _module_of_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # importing a user's module may raise anything
        problem = f"{type(error).__name__}: {error}".rstrip(": ")
        raise InputError(f"cannot load {text!r} ({problem}); expected FILE.py:NAME or PACKAGE.MODULE:NAME") from error
    try:
        return getattr(module, name)
    except AttributeError:
        names = [key for key in vars(module) if not key.startswith("_")]
        raise unknown_name(f"name in {place}", name, names) from None


def _module_of_file(path: Path) -> ModuleType:
    """Import a file under a name made from its path and content; the same file is not run twice."""
    digest = hashlib.sha256(str(path.resolve()).encode() + b"\0" + path.read_bytes()).hexdigest()
    name = f"{FROM_A_FILE}{path.stem}_{digest[:DIGITS]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(path.resolve().parent) not in sys.path:
        sys.path.append(str(path.resolve().parent))  # as for a script: it can import the files of its folder
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def home_of(thing: type) -> str:
    """Return the package or the file that a class comes from.

    >>> home_of(EntryPoint)
    'importlib'
    """
    package = thing.__module__.partition(".")[0]
    stem = package.removeprefix(FROM_A_FILE)
    return package if stem == package else f"{stem[: -DIGITS - 1]}.py"


class Registry(UserDict[str, Component], Generic[Component]):
    """Components of one kind by name: built-in ones, those of installed packages and those of files.

    `built_in` maps a name to a component, or to "module:Class", which is imported on first use. `group` names the entry
    points of installed packages, which are read on first use. Packages that fail to import are skipped; you see the
    reason (`broken`) when you use one. `accept` is the class that plug-ins inherit from, or a function that converts a
    plug-in or raises InputError; "module:name" stands for either. Plug-ins cannot have `reserved` names.

    >>> shapes = Registry("shape", "residuum.shapes", {"ordered": "collections:OrderedDict"})
    >>> shapes.find("ordered").__name__, list(shapes)
    ('OrderedDict', ['ordered'])
    >>> shapes.find("orderd")
    Traceback (most recent call last):
    residuum.core.errors.InputError: unknown shape 'orderd'; did you mean ordered? Known: ordered
    >>> del REGISTRIES["residuum.shapes"]
    """

    def __init__(
        self,
        kind: str,
        group: str | None,
        built_in: Mapping[str, Component | str],
        accept: Callable[[Any], Component] | str | None = None,
        reserved: Container[str] = (),
    ) -> None:
        self.kind, self.group, self.reserved = kind, group, reserved
        self.built_in = dict(built_in)
        self.sources: dict[str, str] = {}
        self.broken: dict[str, str] = {}
        self._accept = accept
        if group is not None:
            REGISTRIES[group] = self

    def accept(self, candidate: object) -> Component:
        """Return a plug-in converted for the registry; InputError if it is of another kind."""
        accept = resolve_name(self._accept) if isinstance(self._accept, str) else self._accept
        if accept is None:
            raise InputError(f"expected a built-in {self.kind}, got {candidate!r}")
        if not isinstance(accept, type):
            return accept(candidate)
        if isinstance(candidate, type) and issubclass(candidate, accept):
            return cast(Component, candidate)
        base = str(self._accept).replace(":", ".")
        raise InputError(f"expected a {self.kind}, a subclass of {base}, got {candidate!r}")

    @cached_property
    def data(self) -> dict[str, Any]:  # type: ignore[override]
        """Every component, or "module:Class" of one that was not used yet; built-in ones first."""
        components: dict[str, Any] = dict(self.built_in)
        for entry in () if self.group is None else entry_points(group=self.group):
            try:
                candidate = load_plugin(entry)
                name, component = name_of(candidate, entry.name), self.accept(candidate)
            except InputError as error:
                self.broken[entry.name] = str(error)
                continue
            if name in self.reserved or components.setdefault(name, component) is not component:
                self.broken[entry.name] = f"the name {name!r} of {entry.value} is taken; give it another"
        return components

    def __getitem__(self, name: str) -> Component:
        if isinstance(self.data[name], str):
            self.data[name] = resolve_name(self.data[name])
        component: Component = self.data[name]
        return component

    def find(self, name: str) -> Component:
        """Return the component of this name, or raise an InputError with the nearest names."""
        if name in self:
            return self[name]
        if name in self.broken:
            raise InputError(f"{self.kind} {name!r} is installed, but {self.broken[name]}")
        raise unknown_name(self.kind, name, self)

    def add(self, source: str) -> str:
        """Add the component at `FILE.py:NAME` or `PACKAGE.MODULE:NAME`; return its name in the registry."""
        candidate = load_plugin(source)
        place, _, thing = source.rpartition(":")
        name, origin = (
            name_of(candidate, thing),
            f"{Path(place).resolve()}:{thing}" if place.endswith(".py") else source,
        )
        if name in self.reserved or (name in self and self.sources.get(name) != origin):
            raise InputError(f"{self.kind} {name!r} of {source} is taken; give it another name")
        self[name], self.sources[name] = self.accept(candidate), origin
        return name

    def named(self, spec: str) -> str:
        """Return `NAME[:key=value...]` for a text that may begin with a source, which is then added.

        This imports code, so pass only what the user wrote. Use `find` for texts from data files.

        >>> shapes = Registry("shape", "residuum.shapes", {"square": 4}, accept=len)
        >>> shapes.named("string:digits:size=3"), shapes["digits"]
        ('digits:size=3', 10)
        >>> del REGISTRIES["residuum.shapes"]
        """
        source = self.source_in(spec)
        return spec if source is None else self.add(source) + spec.removeprefix(source)

    def source_in(self, spec: str) -> str | None:
        """Return the source that a text begins with, without importing it; None if it begins with a name.

        >>> shapes = Registry("shape", "residuum.shapes", {"square": 4}, accept=len)
        >>> shapes.source_in("mine.py:Shape:size=3"), shapes.source_in("square:size=3")
        ('mine.py:Shape', None)
        >>> del REGISTRIES["residuum.shapes"]
        """
        first, *rest = spec.split(":")
        return f"{first}:{rest[0]}" if rest and "=" not in rest[0] and first not in self else None

    @contextmanager
    def having(self, name: str, component: Component) -> Iterator[None]:
        """Register the component within a block."""
        if self.get(name, component) is not component:
            raise InputError(f"{self.kind} {name!r} is taken; give it another name")
        was_there = name in self
        self[name] = component
        try:
            yield
        finally:
            if not was_there:
                del self[name]


def split_specs(text: str) -> list[str]:
    """Return the parts of a comma-separated list of NAME[:key=value...]; a number continues the value before it.

    >>> split_specs("scrub:decay_epochs=3,5, gd,rurk:tau=0.1")
    ['scrub:decay_epochs=3,5', 'gd', 'rurk:tau=0.1']
    """
    parts: list[str] = []
    for part in (piece.strip() for piece in text.split(",")):
        if parts and "=" in parts[-1]:
            with suppress(ValueError):
                float(part)
                parts[-1] += f",{part}"
                continue
        parts.append(part)
    return parts


def name_of(thing: object, otherwise: str) -> str:
    """Return the `name` of a class or function if it has one, else `otherwise`."""
    name = getattr(thing, "name", None) if callable(thing) else None
    return name if isinstance(name, str) else otherwise


def described_plugins(used: Container[str]) -> dict[str, dict[str, dict[str, str]]]:
    """Return the used plug-ins that were added by source, by kind and name: file name and hash, or the module."""
    described: dict[str, dict[str, dict[str, str]]] = {}
    for registry in REGISTRIES.values():
        for name, source in registry.sources.items():
            if name in used:
                place, entry = Path(source.rpartition(":")[0]), {"source": source}
                if place.suffix == ".py":
                    entry = {"file": place.name, "sha256": hashlib.sha256(place.read_bytes()).hexdigest()}
                described.setdefault(registry.kind, {})[name] = entry
    return described


def added_plugins() -> tuple[tuple[str, str], ...]:
    """Return group and source of all plug-ins that were added by source, so that other processes can add them."""
    return tuple((group, source) for group, registry in REGISTRIES.items() for source in registry.sources.values())


def add_plugins(added: Iterable[tuple[str, str]]) -> None:
    """Add the plug-ins of another process."""
    for group, source in added:
        if source not in REGISTRIES[group].sources.values():
            REGISTRIES[group].add(source)
