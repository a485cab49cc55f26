"""Scenario files: a base, and profiles that change some of its values."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from residuum.types import unknown_name

SCENARIOS = files("residuum.experiments") / "scenarios"
DEFAULT = "cpu"


def scenario_names() -> list[str]:
    """Return the names of the scenarios that come with the package.

    >>> "digits" in scenario_names()
    True
    """
    return sorted(entry.name.removesuffix(".toml") for entry in SCENARIOS.iterdir() if entry.name.endswith(".toml"))


def scenario_tree(name: str, profile: str = DEFAULT) -> dict[str, Any]:
    """Return the values of a scenario's file with those of one of its profiles; every file has the profile `cpu`.

    >>> scenario_tree("digits", "papre")
    Traceback (most recent call last):
        ...
    residuum.errors.InputError: unknown profile of digits 'papre'; did you mean paper? Known: cpu, paper
    """
    if name not in scenario_names():
        raise unknown_name("scenario", name, scenario_names())
    tree = tomllib.loads((SCENARIOS / f"{name}.toml").read_text(encoding="utf-8"))
    profiles = {DEFAULT: {}, **tree.pop("profiles", {})}
    if profile not in profiles:
        raise unknown_name(f"profile of {name}", profile, profiles)
    return {"name": name, "profile": profile, **merged(tree, profiles[profile])}


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the base with the changes: tables are merged, other values replaced, dotted keys reach inside.

    >>> merged({"train": {"epochs": 5, "lr": 0.1}, "rows": ["gd"]}, {"train.epochs": 2, "rows": []})
    {'train': {'epochs': 2, 'lr': 0.1}, 'rows': []}
    """
    tree = dict(base)
    for key, value in changes.items():
        head, _, rest = key.partition(".")
        new = {rest: value} if rest else value
        old = tree.get(head)
        tree[head] = merged(old if isinstance(old, Mapping) else {}, new) if isinstance(new, Mapping) else new
    return tree
