"""Doctests in docstrings are code on the site; Markdown would take their prompts for quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

BLOCK = re.compile(r"^( *)>>> .*(?:\n\1\S.*)*", re.M)  # up to the next empty line


def fenced(text: str) -> str:
    """Return a docstring in which every doctest stands in a fence."""
    return BLOCK.sub(lambda block: f"{block[1]}```pycon\n{block[0]}\n{block[1]}```", text)


class DoctestBlocks(griffe.Extension):
    """Fences the doctests of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object that was read."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
