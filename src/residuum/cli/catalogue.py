"""What there is to choose from, read from the source: importing it would load torch, which takes seconds."""

import ast
import dataclasses
import inspect
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pkgutil import resolve_name
from typing import Any

from residuum import plugins

PACKAGE = files("residuum")
TABLES = {
    "methods": ("residuum.methods", "BUILT_IN"),
    "datasets": ("residuum.data.loaders", "DATASETS"),
    "models": ("residuum.models.registry", "MODELS"),
    "perturbations": ("residuum.perturbations", "PERTURBATIONS"),
    "measures": ("residuum.auditing.probes", "KINDS"),
}
PLUGINS = {
    "methods": "residuum.methods:methods",
    "scenarios": "residuum.experiments.scenario_table:SCENARIOS",
    "datasets": "residuum.data.loaders:DATASETS",
    "models": "residuum.models.registry:MODELS",
    "perturbations": "residuum.perturbations:PERTURBATIONS",
    "measures": "residuum.auditing.own_measures:OWN_MEASURES",
}
KINDS = tuple(PLUGINS)

Definition = tuple[str, ast.AST]  # a module, and the class, function or value in it


@dataclasses.dataclass(frozen=True)
class Entry:
    """Something to choose: a line on it, and its settings with their defaults."""

    about: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def settings_beside(self, shared: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that are not among those shared with others, or have another default."""
        return {name: value for name, value in self.settings.items() if name not in shared or shared[name] != value}


def catalogue(kind: str) -> dict[str, Entry]:
    """Return everything of one kind by name, in the order of its table.

    >>> catalogue("methods")["scrub"].settings["msteps"], list(catalogue("datasets"))[:2]
    (2, ['digits', 'iris'])
    """
    found = dict(_scenarios()) if kind == "scenarios" else {}
    if kind in TABLES:
        module, name = TABLES[kind]
        table = _found(module, name)[1]
        listed = table.args[2] if isinstance(table, ast.Call) else table  # Table(kind, group, ours, accept)
        found = {name: _entry(*definition) for name, definition in _rows(module, listed)}
    return found | _plugins(kind, found)


def _scenarios() -> Iterator[tuple[str, Entry]]:
    texts = {file.name: file for file in (PACKAGE / "experiments" / "scenarios").iterdir()}
    for name in sorted(file.removesuffix(".toml") for file in texts if file.endswith(".toml")):
        content = tomllib.loads(texts[f"{name}.toml"].read_text(encoding="utf-8"))
        yield name, Entry(content["description"])


def _plugins(kind: str, ours: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return what other packages bring, which has to be imported to be known."""
    if not plugins.entry_points(group=f"residuum.{kind}"):
        return {}
    table = resolve_name(PLUGINS[kind])
    things = table() if kind == "methods" else table
    return {name: _plugin(thing) for name, thing in things.items() if name not in ours}


def _plugin(thing: Any) -> Entry:  # noqa: ANN401 (a class, a function, a blueprint, a file or a measure)
    if hasattr(thing, "read_text"):
        return Entry(tomllib.loads(thing.read_text(encoding="utf-8")).get("description", ""))
    if hasattr(thing, "words"):
        return Entry(thing.words["meaning"])
    shown = getattr(thing, "network", thing)
    about = (inspect.getdoc(shown) or "").partition("\n")[0]
    if hasattr(shown, "setting_owners"):  # a method
        return Entry(about, shown().settings)
    fields = dataclasses.fields(shown) if dataclasses.is_dataclass(shown) else ()
    return Entry(about, {field.name: field.default for field in fields if not callable(field.default)})


def _rows(module: str, table: ast.AST) -> Iterator[tuple[str, Definition]]:
    """Yield the rows of a table: a dictionary's keys, or the `name` of each class that is listed."""
    if isinstance(table, ast.Dict):
        for key, value in zip(table.keys, table.values, strict=True):
            named = value.args[0] if isinstance(value, ast.Call) else value
            yield ast.literal_eval(key or ast.Constant("")), _found(module, ast.unparse(named))
        return
    for node in ast.walk(table):
        if isinstance(node, ast.Name) and node.id[0].isupper():
            home, definition = _found(module, node.id)
            yield str(_value(home, _declared(definition)["name"])), (home, definition)


def _entry(module: str, definition: ast.AST) -> Entry:
    about = (ast.get_docstring(definition) or "").partition("\n")[0]  # type: ignore[arg-type]
    fields = _settings(module, definition) if isinstance(definition, ast.ClassDef) else {}
    flat = [value.items() if isinstance(value, dict) else [(name, value)] for name, value in fields.items()]
    return Entry(about, {name: value for items in flat for name, value in items})


def _settings(module: str, definition: ast.ClassDef) -> dict[str, Any]:
    """Return the fields of a dataclass with their defaults, those of its bases first."""
    settings: dict[str, Any] = {}
    for base in reversed(definition.bases):
        home, node = _found(module, ast.unparse(base))
        settings |= _settings(home, node) if isinstance(node, ast.ClassDef) else {}
    fields = {name: value for name, value in _declared(definition).items() if name not in ("name", "title")}
    return settings | {name: _default(module, value) for name, value in fields.items()}


def _default(module: str, node: ast.expr) -> Any:  # noqa: ANN401 (a setting is of any type)
    """Return the default of a field; of a value of several settings, such as a recipe, their defaults by name."""
    home, kind = _found(module, ast.unparse(node.func)) if isinstance(node, ast.Call) else (module, node)
    if not isinstance(node, ast.Call) or not isinstance(kind, ast.ClassDef):
        return _value(module, node)
    return _settings(home, kind) | {str(key.arg): _value(module, key.value) for key in node.keywords}


def _declared(definition: ast.AST) -> dict[str, ast.expr]:
    """Return the annotated names of a class that have a value, `name` among them, but no other class variable."""
    fields = definition.body if isinstance(definition, ast.ClassDef) else []
    return {
        node.target.id: node.value
        for node in fields
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None
        if node.target.id == "name" or not ast.unparse(node.annotation).startswith("ClassVar")
    }


def _value(module: str, node: ast.expr) -> Any:  # noqa: ANN401 (a setting is of any type)
    """Return what an expression of constants means: a literal, a quotient, a named constant, or a field's default."""
    if isinstance(node, ast.Name):
        home, assigned = _found(module, node.id)
        return _value(home, assigned) if isinstance(assigned, ast.expr) else node.id
    if isinstance(node, ast.Call):
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        return _value(module, given["default"]) if "default" in given else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return _value(module, node.left) / _value(module, node.right)
    return ast.literal_eval(node)


def _found(module: str, name: str) -> Definition:
    """Return where a module's name is defined, and the class, function or value that it stands for."""
    for node in _tree(module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return module, node
        if isinstance(node, ast.AnnAssign | ast.Assign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if name in map(ast.unparse, targets):
                return module, node.value
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("residuum"):
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return _found(str(node.module), alias.name)
    return module, ast.Constant(None)


@cache
def _tree(module: str) -> ast.Module:
    *folders, last = module.split(".")[1:]
    file = PACKAGE.joinpath(*folders, f"{last}.py")
    file = file if file.is_file() else PACKAGE.joinpath(*folders, last, "__init__.py")
    return ast.parse(file.read_text(encoding="utf-8"))
