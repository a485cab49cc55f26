"""Grids of settings: `--grid field=value,value` of `run` and `tune`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from residuum.cli import options
from residuum.core.errors import InputError

ALIASES = {"rurk": {"lambda": ("lambda_f", "lambda_a")}}  # the ablations of the literature vary both at once
MOST_POINTS = 1000


def grid_points(method: str | None, grid: Sequence[str]) -> list[dict[str, str]]:
    """Return every combination of the grid's values."""
    if not method or not method.replace("_", "").isalnum():
        raise InputError(f"expected one method with --grid, such as --methods rurk, got {method!r}")
    fields = dict(options.parse_setting(text) for text in grid)
    if len(fields) < len(grid):
        raise InputError(f"expected each field once in --grid, got {', '.join(grid)}")
    values = [[value.strip() for value in text.split(",")] for text in fields.values()]
    if not all(all(listed) for listed in values):
        raise InputError(f"expected field=value,value,... for --grid, none of them empty, got {', '.join(grid)}")
    if (points := math.prod(map(len, values))) > MOST_POINTS:
        raise InputError(f"expected at most {MOST_POINTS} settings in a grid, got {points}; leave some values out")
    return [dict(zip(fields, point, strict=True)) for point in itertools.product(*values)]


def row_text(method: str, point: Mapping[str, str]) -> str:
    """Return the row of a grid point, with a label.

    >>> row_text("rurk", {"lambda": "0.1"})
    'rurk lambda 0.1=rurk:lambda_f=0.1:lambda_a=0.1'
    """
    label = " ".join([method, *(f"{field} {value}" for field, value in point.items())])
    aliases = ALIASES.get(method, {})
    pairs = [f"{name}={value}" for field, value in point.items() for name in aliases.get(field, (field,))]
    return f"{label}={':'.join([method, *pairs])}"
