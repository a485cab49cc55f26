"""What leaves a run before it becomes evidence: ids, labels, names and paths."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from residuum.auditing import Counts
from residuum.errors import InputError
from residuum.pack.hashing import Pseudonyms
from residuum.record import Results

OWN_DATA = "own data"
LEFT_OUT_TEXT = "a text that names a file or a sample is left out"
PATH = re.compile(r"(?:[A-Za-z]:)?(?:[/\\][\w.+ -]+){2,}|~[/\\]|\.\.[/\\]")
SHORT_ID = 6  # an id of fewer characters, such as a row's number, is in any file by chance


def class_numbers(labels: Iterable[int], pseudonyms: Pseudonyms) -> dict[int, int]:
    """Return for each label a number in an order that the key decides."""
    names = {label: pseudonyms(f"class {label}") for label in set(labels)}
    return {label: k for k, label in enumerate(sorted(names, key=names.__getitem__))}


def private_counts(counts: Counts, pseudonyms: Pseudonyms, numbers: Mapping[int, int]) -> Counts:
    """Return the counts with pseudonyms for ids, in their order, and with other numbers for the classes.

    Which samples belong to one class remains, because memory is measured class by class; which class that is does not.
    """
    labels = np.array([numbers[int(label)] for label in counts.labels], dtype=np.int64)
    ids = [pseudonyms(sample_id) for sample_id in counts.ids]
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__), dtype=np.int64)
    fields = {name: getattr(counts, name) for name in ("draws", "method_right", "reference_right", "both_right")}
    fields |= {"same_prediction": counts.same_prediction, "joint": counts.joint}
    return Counts(tuple(ids), labels, counts.taus, **fields).rows(order)


def private_record(record: Results) -> dict[str, Any]:
    """Return the record's content without ids, names of data and files, and paths."""
    content = record.as_dict()
    content.pop("files", None)  # the manifest has those of the pack
    scenario = content["scenario"]
    settings = scenario.setdefault("settings", {})
    if not record.scenario.public_data:
        scenario["name"] = OWN_DATA
        settings["data"] = {**settings.get("data", {}), "name": OWN_DATA}
    for request in [settings.get("forget") or {}, *settings.get("earlier", [])]:
        if request.get("forget_ids") is not None:
            request |= {"forget_ids": None, "listed": True}
    settings |= {"picture": None} if settings.get("picture") else {}
    _forget_file_names(scenario)
    noted = [content, *(result for row in content["methods"].values() for result in row["per_seed"].values())]
    for part in [*noted, *content["methods"].values()]:
        for name, found in part.get("witnesses", {}).items():
            part["witnesses"][name] = {key: value for key, value in found.items() if not _names_things(value)}
    for part in noted:
        for name in ("warnings", "notes"):
            if isinstance(part.get(name), list):
                part[name] = [without_paths(text) for text in part[name]]
    return content


def _names_things(value: object) -> bool:
    """Tell whether a value of a witness could list samples: anything but a number, a text, or a list of numbers."""
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(each, str | dict) for each in value))


def _forget_file_names(scenario: dict[str, Any]) -> None:
    used = [found for things in scenario.get("plugins", {}).values() for found in things.values()]
    for found in [*used, *(scenario.get("init_from") or {}).values()]:
        if found:
            found.pop("file", None)


def without_paths(text: str) -> str:
    """Return the text, or a note in its place if it names a path.

    >>> without_paths("5 draws are few"), without_paths("/home/ann/store: broken")
    ('5 draws are few', 'a text that names a file or a sample is left out')
    """
    return LEFT_OUT_TEXT if PATH.search(text) else text


def refuse_leaks(contents: dict[str, bytes], ids: Iterable[str], folder: Path) -> None:
    """Refuse to write a text that still names a sample or the run's folder: no list of places to clean is complete."""
    wanted = [sample_id for sample_id in ids if len(sample_id) >= SHORT_ID]
    resolved = str(folder.resolve())
    for path, content in contents.items():
        if path.endswith(".npz"):
            continue  # made of pseudonyms and integers
        text = content.decode("utf-8", errors="replace")
        found = next((name for name in wanted if name in text), None)
        if found is not None or (len(resolved) > SHORT_ID and resolved in text):
            what = f"the id {found!r}" if found is not None else "the path of the run"
            raise InputError(f"the pack would hold {what} in {path}; rename what carries it (a row's label, a class)")
