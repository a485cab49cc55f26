"""What mkdocs does beside building docs/: pages made of source and records, and links that leave docs/."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from website import api_pages, cli_page, method_pages, notebook_pages  # noqa: E402 (mkdocs runs hooks from anywhere)

PROJECT_FILES = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md", "security.md": "SECURITY.md"}
HOMES = {"README.md": "index.md"} | {original: page for page, original in PROJECT_FILES.items()}
METHOD = re.compile(r"src/residuum/unlearning/(\w+)\.py")
EDIT = "edit/main/docs/"
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Put the pages that are made here, and those that nobody has placed, into the navigation."""
    sections = {name: pages for name, pages in nav_entries(config.nav) if isinstance(pages, list)}
    sections["Methods"] += [{page.title: page.path} for page in method_pages.pages()]
    sections["Notebooks"] += [{page.title: page.path} for page in notebook_pages.pages()]
    sections["Reference"].insert(0, {cli_page.page().title: cli_page.page().path})
    sections["Python API"] += [{page.title: page.path} for page in api_pages.pages()]
    placed = {page for _, page in nav_entries(config.nav) if isinstance(page, str)}
    pages = [path.relative_to(config.docs_dir).as_posix() for path in sorted(Path(config.docs_dir).rglob("*.md"))]
    sections["Guides"] += [page for page in pages if page not in placed]
    config.copyright = f"Residuum {version('residuum')}, {config.copyright}"
    config.edit_uri = EDIT if config.repo_url else None  # without an address there is nothing to edit
    return config


def nav_entries(entries: list[Any]) -> Iterator[tuple[str, Any]]:
    """Yield title and page, or title and list of pages, of everything in the navigation.

    >>> list(nav_entries([{"Home": "index.md"}, {"Guides": ["a.md", {"Text": "b.md"}]}]))
    [('Home', 'index.md'), ('Guides', ['a.md', {'Text': 'b.md'}]), ('', 'a.md'), ('Text', 'b.md')]
    """
    for entry in entries:
        title, page = next(iter(entry.items())) if isinstance(entry, dict) else ("", entry)
        yield title, page
        if isinstance(page, list):
            yield from nav_entries(page)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made here, and the source files that pages link to."""
    made = {page: (ROOT / original).read_text(encoding="utf-8") for page, original in PROJECT_FILES.items()}
    generated = (cli_page.page(), *method_pages.pages(), *notebook_pages.pages(), *api_pages.pages())
    made |= {page.path: page.text for page in generated}
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    for path in linked_sources(files, made):
        files.append(File.generated(config, f"source/{path}.txt", content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the page with links that hold on the site."""
    path = page.file.src_uri
    return LINK.sub(lambda found: f"]({site_link(path, found[1], found[2] or '')})", markdown)


def site_link(page: str, target: str, anchor: str) -> str:
    """Return where a link of the repository leads on the site.

    >>> site_link("changelog.md", "docs/reference/audit.md", "#x"), site_link("guides/text.md", "../../README.md", "")
    ('reference/audit.md#x', '../index.md')
    >>> site_link("methods/index.md", "../../src/residuum/unlearning/rurk.py", "")
    'rurk.md'
    """
    path = repository_path(page, target)
    if not target:
        return anchor
    if (method := METHOD.fullmatch(path)) and method[1] in method_pages.names() and page not in made_of_source():
        goal = f"methods/{method[1]}.md"
    elif path in HOMES:
        goal = HOMES[path]
    elif path.startswith("docs/"):
        goal = path.removeprefix("docs/")
    elif path.endswith(".ipynb"):
        goal = path.replace(".ipynb", ".md")
    else:
        goal = f"source/{source_file(path)}.txt"
    return os.path.relpath(goal, os.path.dirname(page) or ".") + anchor


def made_of_source() -> set[str]:
    """Return the pages that are made of a source file; their links to it lead to the source itself."""
    return {page.path for page in method_pages.pages()}


def repository_path(page: str, target: str) -> str:
    """Return the path from the repository's root that a link on a page means."""
    made = page.replace(".md", ".ipynb") if page.startswith("notebooks/") else f"docs/{page}"
    written = PROJECT_FILES.get(page, made)
    named = (ROOT / written).parent / target if target else ROOT / written
    return Path(os.path.normpath(named)).relative_to(ROOT).as_posix()


def source_file(path: str) -> str:
    """Return the file that stands for a linked path: of a folder, its first file.

    >>> source_file("src/residuum/unlearning/gd.py")
    'src/residuum/unlearning/gd.py'
    """
    here = ROOT / path
    inside = sorted(each for each in here.iterdir() if each.is_file()) if here.is_dir() else [here]
    return inside[0].relative_to(ROOT).as_posix()


def linked_sources(files: Files, made: dict[str, str]) -> list[str]:
    """Return the files outside docs/ that pages link to."""
    texts = made | {
        file.src_uri: file.content_string for file in files.documentation_pages() if file.src_uri not in made
    }
    links = {site_link(path, found[1], "") for path, text in texts.items() for found in LINK.finditer(text)}
    return sorted(
        link.split("source/", 1)[1].removesuffix(".txt") for link in links if link.lstrip("./").startswith("source/")
    )
