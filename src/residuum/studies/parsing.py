"""What users write on the command line and in files: dotted settings, values, and NAME:key=value texts."""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from residuum.auditing.measures import OWN_MEASURES
from residuum.auditing.probes import PROBES, Probe
from residuum.core.errors import InputError, unknown_name
from residuum.core.inputs import PIXELS, SPACE_SETTINGS, InputSpace
from residuum.data.ids import read_ids, read_lines
from residuum.perturbations import PERTURBATIONS, Perturbation
from residuum.studies.settings import AuditSettings, Scenario
from residuum.unlearning import METHODS, Method, first_problem, make_method

NOTHING = ("none", "null")


def override(tree: dict[str, Any], key: str, value: Any) -> None:  # noqa: ANN401 (texts and plain values)
    """Set a dotted key in place; the first part may be a method's name. Texts are read as the field's type says.

    >>> tree = {"audit": {"draws": 100}, "methods": {}}
    >>> override(tree, "audit.draws", "30"); override(tree, "rurk.tau", "0.02"); tree
    {'audit': {'draws': 30}, 'methods': {'rurk': {'tau': 0.02}}}
    """
    parts = key.split(".")
    if parts[0] in METHODS:
        settings = read_fields(METHODS[parts[0]], {".".join(parts[1:]): value})
        make_method(parts[0], settings)
        parts, (value,) = ["methods", *parts], settings.values()
    else:
        value = read_as(field_type(Scenario, parts), value)
    node: Any = tree
    for part in parts[:-1]:
        of_a_method = node is tree.get("methods")
        node = node.setdefault(part, {}) if of_a_method else node.get(part)
        if not isinstance(node, dict):
            raise unknown_name("setting", key, _dotted(tree))
    free = parts[0] == "methods" or parts[-2:-1] == ["taus"]
    if parts[-1] not in node and not free:
        raise unknown_name("setting", key, _dotted(tree))
    node[parts[-1]] = value


def _dotted(tree: Mapping[str, Any], prefix: str = "") -> list[str]:
    inner = {key: _dotted(value, f"{prefix}{key}.") if isinstance(value, dict) else [] for key, value in tree.items()}
    return [name for key, names in inner.items() for name in names or [f"{prefix}{key}"]]


def field_type(kind: Any, path: Sequence[str]) -> Any:  # noqa: ANN401 (types)
    """Return the declared type of a field of a dataclass or model; Any for a field that is not declared.

    >>> from residuum.perturbations import PGD
    >>> field_type(PGD, ["steps"]), field_type(PGD, ["stops"])
    (<class 'int'>, typing.Any)
    """
    for part in path:
        owners = [get_type_hints(owner, include_extras=True) for owner in _choices(kind) if isinstance(owner, type)]
        kind = next((hints[part] for hints in owners if part in hints), Any)
    return kind


def read_fields(kind: Any, texts: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 (types)
    """Return what texts mean for the fields of a dataclass, or for the settings of a method."""
    owners = kind.setting_owners() if isinstance(kind, type) and issubclass(kind, Method) else {}
    return {key: read_as(field_type(owners.get(key, kind), [key]), value) for key, value in texts.items()}


def read_as(kind: Any, value: Any) -> Any:  # noqa: ANN401 (types, texts and plain values)
    """Return what a text means for a field of this type: a text field keeps it, whatever it looks like.

    Several texts are split at their commas, an empty text is nothing where the field may be empty, and true is no
    number; anything else is read by `parse_value`.

    >>> read_as(str, "true"), read_as(bool, "true"), read_as(float, "true"), read_as(str | None, "")
    ('true', True, 'true', None)
    >>> read_as(tuple[str, ...], "1, 2"), read_as(tuple[int, ...], "3"), read_as(tuple[int, ...], "")
    (['1', '2'], [3], [])
    """
    choices = _choices(kind)
    if not isinstance(value, str):
        return value
    named = any(get_origin(choice) is Literal and value in get_args(choice) for choice in choices)
    if str in choices or Path in choices or named:
        return None if value == "" and NoneType in choices else value
    lists = [get_args(choice) for choice in choices if get_origin(choice) in (list, tuple)]
    texts = int not in choices and any(str in parts or Path in parts for parts in lists)
    if texts and value.lower() not in NOTHING:
        return [part.strip() for part in value.split(",") if part.strip()] if "," in value else value
    single = any(get_origin(choice) is None and isinstance(choice, type) for choice in {*choices} - {NoneType})
    if not single and any(get_origin(choice) in (list, tuple) for choice in choices):
        parsed = parse_value(value) if value else []
        return parsed if isinstance(parsed, list | str | None) else [parsed]
    parsed = parse_value(value)
    return value if isinstance(parsed, bool) and choices != [Any] and bool not in choices else parsed


def _choices(kind: Any) -> list[Any]:  # noqa: ANN401 (types)
    if get_origin(kind) in (Union, UnionType, Annotated):
        return [choice for part in get_args(kind) for choice in _choices(part)]
    return [kind]


def parse_value(value: Any) -> Any:  # noqa: ANN401 (texts and plain values)
    """Return a text as the value it means: "0,0.1" a list, "1e-3" a number, "none" nothing, else itself.

    >>> parse_value("0,0.5"), parse_value("none"), parse_value("gaussian"), parse_value(3)
    ([0, 0.5], None, 'gaussian', 3)
    """
    if not isinstance(value, str):
        return value
    if "," in value:
        return [parse_value(part.strip()) for part in value.split(",") if part.strip()]
    if value.lower() in NOTHING:
        return None
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):  # no JSON, more digits than Python reads, or nested without end
        return value
    return value if isinstance(parsed, int) and abs(parsed) >= 2**63 else parsed  # which no field takes


def as_text(value: object) -> str:
    """Return a setting as one writes it on the command line.

    >>> as_text(None), as_text(True), as_text((3, 5)), as_text(1e-05)
    ('none', 'true', '3,5,', '1e-05')
    """
    if value is None:
        return "none"
    if isinstance(value, list | tuple):
        return "".join(f"{as_text(part)}," for part in value) or ","
    return value if isinstance(value, str) else json.dumps(value)


def split_spec(spec: str) -> tuple[str, dict[str, str]]:
    """Return name and settings of `NAME[:key=value...]`, keys sorted."""
    name, *pairs = spec.split(":")
    for pair in pairs:
        if "=" not in pair:
            raise InputError(f"expected NAME:key=value, got {pair!r} in {spec!r}")
    keys = [pair.partition("=")[0] for pair in pairs]
    if len(set(keys)) < len(keys):
        raise InputError(f"expected each setting once, got {spec!r}")
    return name, dict(pair.split("=", 1) for pair in sorted(pairs))


def build_perturbation(spec: str, space: InputSpace = PIXELS) -> tuple[Perturbation, InputSpace]:
    """Return the perturbation of `NAME[:key=value...]` and the space that it acts in; its source was added before.

    `space` is that of the model; the settings bounds, scale, at and unit change it.

    >>> perturbation, space = build_perturbation("fgsm:target=true:bounds=-1,1")
    >>> perturbation, space.bounds
    (FGSM(target='true'), (-1.0, 1.0))
    """
    name, texts = split_spec(spec)
    kind = PERTURBATIONS.find(name)
    changes = read_fields(InputSpace, {key: text for key, text in texts.items() if key in SPACE_SETTINGS})
    perturbation = cast(
        Perturbation,
        _with_fields(kind, name, {key: texts[key] for key in texts if key not in SPACE_SETTINGS}, SPACE_SETTINGS),
    )
    layer = changes.pop("at", None)
    if layer is not None and layer.lower() in NOTHING:
        layer = None  # rather than a layer of that name
    if not kind.moves_in_units and (layer is not None or changes.get("scale") is not None):
        raise InputError(f"{name}: expected it to act on the inputs themselves, got a layer (at=) or a scale")
    if layer is not None and changes.get("scale") is not None:
        raise InputError(f"{name}: expected a scale or a layer (at=), got both; a layer has unit=std")
    try:
        if layer is not None:  # its output has neither bounds nor a scale
            space = dataclasses.replace(space, bounds=None, scale=None, fixed=(), at=layer, unit="raw")
        space = dataclasses.replace(space, **{key: changes[key] for key in changes if key != "bounds" or layer is None})
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    return perturbation, perturbation.space_for(space)


def perturbation_defaults(kind: type[Perturbation]) -> dict[str, Any]:
    """Return the settings that the text of a perturbation may have, with their defaults.

    >>> from residuum.perturbations import FGSM
    >>> perturbation_defaults(FGSM)
    {'target': 'untargeted', 'bounds': (0.0, 1.0), 'scale': None, 'at': None, 'unit': 'raw'}
    """
    settings = {field.name: field.default for field in dataclasses.fields(kind) if field.name != "function"}
    return settings | {key: getattr(PIXELS, key) for key in SPACE_SETTINGS if kind.moves_in_units}


def _with_fields(kind: type[Any], name: str, texts: Mapping[str, str], others: Sequence[str] = ()) -> Any:  # noqa: ANN401 (an object of the kind)
    fields = [field.name for field in dataclasses.fields(kind)]
    for key in texts:
        if key not in fields:
            raise unknown_name(f"setting of {name}", key, [*fields, *others])
    try:
        return TypeAdapter(kind).validate_python(read_fields(kind, texts))
    except ValidationError as error:
        raise InputError(f"{name}: {first_problem(error)}") from None


def build_probe(spec: str) -> Probe:
    """Return the probe of `NAME[:key=value...]`.

    >>> build_probe("rmia:c=0.2").c
    0.2
    """
    name, texts = split_spec(spec)
    if name not in PROBES:
        raise unknown_name("measure", name, [*PROBES, *OWN_MEASURES])
    return cast(Probe, _with_fields(PROBES[name], name, texts))


def check_measure(spec: str, audit: AuditSettings) -> None:
    """Refuse a measure that is not known or lacks what it reads."""
    if spec in OWN_MEASURES or spec in OWN_MEASURES.broken:
        OWN_MEASURES.find(spec)
        return
    if build_probe(spec).searches and not audit.search_radii:
        raise InputError(f"expected radii above 0 for {spec}; give --set audit.taus.pgd=0.01,0.02,...")


REQUEST_KEYS = ("class", "fraction", "id", "ids")


def parse_request(text: str, folder: Path | str = ".") -> dict[str, Any]:
    """Return the fields of a deletion request: comma-separated class=, fraction=, id= (repeatable) or ids=FILE.

    A class stays the text it is, whatever it looks like. A comma ends a value only before another `key=`. A file of
    ids has one a line; its path is relative to `folder`.

    >>> parse_request("class=8,fraction=0.5")
    {'forget_class': '8', 'forget_fraction': 0.5}
    >>> parse_request("class=black, white")
    {'forget_class': 'black, white'}
    >>> parse_request("id=digits/0001,id=digits/0002")
    {'forget_ids': ['digits/0001', 'digits/0002']}
    """
    pairs = [part.strip().partition("=") for part in re.split(r",(?=\s*\w+=)", text)]
    for key, equals, value in pairs:
        if not equals or not value:
            raise InputError(f"expected a request such as class=8,fraction=0.5 or ids=FILE, got {text!r}")
        if key not in REQUEST_KEYS:
            raise unknown_name("key of a request", key, REQUEST_KEYS)
    values: dict[str, list[str]] = {key: [v for k, _, v in pairs if k == key] for key in REQUEST_KEYS}
    for key in ("class", "fraction", "ids"):
        if len(values[key]) > 1:
            raise InputError(f"expected {key}= once in a request, got {text!r}; write two requests")
    ids = [name for file in values["ids"] for name in read_ids(Path(folder) / file)] + values["id"]
    if values["ids"] and not ids:
        raise InputError(f"{values['ids'][0]} has no ids; expected one a line")
    label, fraction = (next(iter(values[key]), None) for key in ("class", "fraction"))
    try:
        share = None if fraction is None else float(fraction)
    except ValueError:
        raise InputError(f"forget_fraction: expected a valid number such as fraction=0.5, got {fraction!r}") from None
    fields = {"forget_class": label, "forget_fraction": share, "forget_ids": ids or None}
    return {field: value for field, value in fields.items() if value is not None}


def read_requests(path: Path) -> list[dict[str, Any]]:
    """Return the requests of a text file: one a line, blank lines and lines that start with # skipped."""
    requests = [parse_request(line, path.parent) for line in read_lines(path, "one request a line")]
    if not requests:
        raise InputError(f"{path} has no requests; expected one a line such as class=8,fraction=0.5")
    return requests
