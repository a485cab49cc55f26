"""Plug-ins: things of a user's own beside ours, by an entry point of an installed package or by `FILE.py:NAME`.

There is one table of each kind (methods, perturbations, data sets, models, measures, scenarios); all are `Table`s, and
`load_plugin` is the one place where code that is not ours is imported.
"""

import hashlib
import importlib
import importlib.util
import sys
from collections import UserDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from residuum.errors import InputError, unknown_name

Thing = TypeVar("Thing")
Accept = Callable[[Any], Thing]
TABLES: dict[str, "Table[Any]"] = {}  # by entry-point group
FROM_A_FILE, DIGITS = "residuum_plugin_", 16  # how a module is named that stands in a file, before and after its name


def load_plugin(source: EntryPoint | str) -> Any:  # noqa: ANN401 (whatever stands there)
    """Return what an entry point, `FILE.py:NAME` or `PACKAGE.MODULE:NAME` names; whatever fails is an InputError.

    >>> load_plugin("collections:OrderedDict").__name__
    'OrderedDict'
    """
    text = source.value if isinstance(source, EntryPoint) else source
    place, _, name = text.rpartition(":")
    try:
        if isinstance(source, EntryPoint):
            return source.load()
        module = _module_of_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a stranger's module does when it is imported is the finding
        problem = f"{type(error).__name__}: {error}".rstrip(": ")
        raise InputError(f"cannot load {text!r} ({problem}); expected FILE.py:NAME or PACKAGE.MODULE:NAME") from error
    try:
        return getattr(module, name)
    except AttributeError:
        known = [key for key in vars(module) if not key.startswith("_")]
        raise unknown_name(f"name in {place}", name, known) from None


def _module_of_file(path: Path) -> ModuleType:
    """Import a file under a name that its place and content decide; what was imported once is not run again."""
    digest = hashlib.sha256(str(path.resolve()).encode() + b"\0" + path.read_bytes()).hexdigest()
    name = f"{FROM_A_FILE}{path.stem}_{digest[:DIGITS]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(path.resolve().parent) not in sys.path:
        sys.path.append(str(path.resolve().parent))  # as for a script: what stands beside it can be imported
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


class Table(UserDict[str, Thing], Generic[Thing]):
    """Things of one kind by name: ours, those of installed packages, those of files.

    `accept` returns the thing as the table holds it, or raises InputError where it is none of this kind; names that are
    `reserved` mean something else already. Entry points are read on first use; one that cannot be loaded is left out,
    and whoever asks for it is told why (`broken`).

    >>> table = Table("shape", "residuum.shapes", {"square": 4}, accept=int)
    >>> table.find("square"), list(table)
    (4, ['square'])
    >>> table.find("squire")
    Traceback (most recent call last):
    residuum.errors.InputError: unknown shape 'squire'; did you mean square? Known: square
    >>> del TABLES["residuum.shapes"]
    """

    def __init__(
        self, kind: str, group: str, ours: Mapping[str, Thing], accept: Accept[Thing], reserved: Container[str] = ()
    ) -> None:
        self.kind, self.group, self.ours, self.accept, self.reserved = kind, group, dict(ours), accept, reserved
        self.sources: dict[str, str] = {}
        self.broken: dict[str, str] = {}
        TABLES[group] = self

    @cached_property
    def data(self) -> dict[str, Thing]:  # type: ignore[override]
        """All things: ours first."""
        table = dict(self.ours)
        for entry in entry_points(group=self.group):
            try:
                thing = load_plugin(entry)
                name, accepted = name_of(thing, entry.name), self.accept(thing)
            except InputError as error:
                self.broken[entry.name] = str(error)
                continue
            if name in self.reserved or table.setdefault(name, accepted) is not accepted:
                self.broken[entry.name] = f"the name {name!r} of {entry.value} is taken; give it another"
        return table

    def find(self, name: str) -> Thing:
        """Return the thing of this name; an unknown one is an error with the nearest names."""
        if name in self:
            return self[name]
        if name in self.broken:
            raise InputError(f"{self.kind} {name!r} is installed, but {self.broken[name]}")
        raise unknown_name(self.kind, name, self)

    def add(self, source: str) -> str:
        """Have what stands at `FILE.py:NAME` or `PACKAGE.MODULE:NAME` in the table; return its name there."""
        thing = load_plugin(source)
        name = name_of(thing, source.rpartition(":")[2])
        place = whole_source(source)
        if name in self.reserved or (name in self and self.sources.get(name) != place):
            raise InputError(f"{self.kind} {name!r} of {source} is taken; give it another name")
        self[name], self.sources[name] = self.accept(thing), place
        return name

    def named(self, spec: str) -> str:
        """Return `NAME[:key=value...]` for a text that may begin with a source, which is then in the table.

        >>> table = Table("shape", "residuum.shapes", {"square": 4}, accept=len)
        >>> table.named("string:digits:size=3"), table["digits"]
        ('digits:size=3', 10)
        >>> del TABLES["residuum.shapes"]
        """
        first, *rest = spec.split(":")
        if not rest or "=" in rest[0] or first in self:
            return spec
        return ":".join([self.add(f"{first}:{rest[0]}"), *rest[1:]])

    @contextmanager
    def having(self, name: str, thing: Thing) -> Iterator[None]:
        """Have the thing in the table for a while."""
        if self.get(name, thing) is not thing:
            raise InputError(f"{self.kind} {name!r} is taken; give it another name")
        known = name in self
        self[name] = thing
        try:
            yield
        finally:
            if not known:
                del self[name]


def split_specs(text: str) -> list[str]:
    """Return the parts of a comma-separated list of NAME[:key=value...]; a number goes on a value before it.

    >>> split_specs("scrub:decay_epochs=3,5, gd,rurk:tau=0.1")
    ['scrub:decay_epochs=3,5', 'gd', 'rurk:tau=0.1']
    """
    parts: list[str] = []
    for part in (piece.strip() for piece in text.split(",")):
        if parts and "=" in parts[-1] and _is_number(part):
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return parts


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def name_of(thing: Any, otherwise: str) -> str:  # noqa: ANN401 (classes and functions)
    """Return a thing's own `name`, or what it is called where it stands."""
    name = getattr(thing, "name", None) if callable(thing) else None
    return name if isinstance(name, str) else otherwise


def whole_source(source: str) -> str:
    """Return a source that means the same in any folder.

    >>> whole_source("/tmp/mine.py:Blur"), whole_source("package.module:Blur")
    ('/tmp/mine.py:Blur', 'package.module:Blur')
    """
    place, _, name = source.rpartition(":")
    return f"{Path(place).resolve()}:{name}" if place.endswith(".py") else source


def described_plugins(used: Container[str]) -> dict[str, dict[str, dict[str, str]]]:
    """Return by kind and name what was added by its source and is used: its file's name and hash, or its module."""
    return {
        table.kind: found
        for table in TABLES.values()
        if (found := {name: _described(source) for name, source in table.sources.items() if name in used})
    }


def _described(source: str) -> dict[str, str]:
    place = source.rpartition(":")[0]
    if not place.endswith(".py"):
        return {"source": source}
    content = Path(place).read_bytes()
    return {"file": Path(place).name, "sha256": hashlib.sha256(content).hexdigest()}


def added_plugins() -> tuple[tuple[str, str], ...]:
    """Return group and source of everything that was added by its source, for other processes to add too."""
    return tuple((group, source) for group, table in TABLES.items() for source in table.sources.values())


def add_plugins(added: Iterable[tuple[str, str]]) -> None:
    """Add what another process has added."""
    for group, source in added:
        if source not in TABLES[group].sources.values():
            TABLES[group].add(source)
