"""The command-line reference: one section for each command, from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from typer.main import get_command

from residuum.cli import COMMANDS, make_app
from website.pages import Page

INTRODUCTION = """# Command line

A command exits with 0 when it is done, with 1 if a gate failed or a check found a difference, with 2 for bad input, and
with 130 if it was interrupted. `residuum COMMAND --help` describes the same options. `residuum --install-completion`
lets your shell complete names and options.
"""


@cache
def page() -> Page:
    """Return the reference of all commands."""
    top = get_command(make_app())
    overview = ["| command | what it does |", "|---|---|"]
    sections = []
    for words in COMMANDS:
        command: Any = top
        for word in words.split():
            command = command.commands[word]
        first, _, rest = (command.help or "").strip().partition("\n\n")
        overview.append(f"| [`residuum {words}`](#residuum-{words.replace(' ', '-')}) | {first.rstrip('.')} |")
        sections.append("\n\n".join([f"## residuum {words}", first, rest, *_tables(words, command)]))
    return Page("reference/cli.md", "Command line", "\n\n".join([INTRODUCTION, "\n".join(overview), *sections]) + "\n")


def _tables(words: str, command: Any) -> Iterator[str]:
    """Yield how a command is called, and a table for each group of its options."""
    context = command.make_context(words, [], resilient_parsing=True)
    yield f"```text\nresiduum {' '.join([words, *command.collect_usage_pieces(context)])}\n```"
    groups: dict[str, list[str]] = {"Arguments": [], "Options": []}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None or parameter.name == "help":
            continue
        group = (getattr(parameter, "rich_help_panel", None) or "Options") if _is_option(parameter) else "Arguments"
        name, text = (" ".join(part.split()).replace("|", "\\|") for part in record)
        groups.setdefault(group, []).append(f"| `{_named(name)}` | {_shown(text)} |")
    for group, lines in groups.items():
        if lines:
            yield "\n".join([f"| {group.lower()} | meaning |", "|---|---|", *lines])


def _is_option(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "option")


def _named(name: str) -> str:
    """Return an option with its value as shells write it, not as Python does.

    >>> _named("--seed <int range>"), _named("--set <list[str]>"), _named("--json")
    ('--seed N', '--set TEXT', '--json')
    """
    kind = re.compile(r"<(?:list\[)?(str|Path|int|float)(?: range)?\]?>")
    return kind.sub(lambda found: {"str": "TEXT", "Path": "PATH", "int": "N", "float": "X"}[found[1]], name)


def _shown(text: str) -> str:
    """Return a help text as Markdown: the default as code, the range and what is required in words.

    >>> _shown("Folder.  [default: .residuum/store]")
    'Folder. Default: `.residuum/store`.'
    >>> _shown("Processes. [1<=x<=1024]"), _shown("Seeds. [default: 7; x>=1]"), _shown("Method. [required]")
    ('Processes. 1 to 1024.', 'Seeds. Default: `7`. At least 1.', 'Method. Required.')
    """
    text = re.sub(r"\s*\[default: ([^\];]+)(?:; ([^\]]+))?\]", lambda found: _default(*found.groups()), text)
    text = text.replace("docs/guides/long-runs.md", "[long runs](../guides/long-runs.md)")
    text = re.sub(r"\s*\[(\d+)<=x<=(\d+)\]", r" \1 to \2.", text)
    return re.sub(r"\s*\[x>=(\d+)\]", r" At least \1.", text).replace("[required]", "Required.").strip()


def _default(value: str, limits: str | None) -> str:
    """Return the default in words, and after it what is left of the brackets."""
    return f" Default: `{value}`." + (f" [{limits}]" if limits else "")
