"""Check a built site: every link, picture and script resolves inside its folder, anchors included.

python -m website.check build/site
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = ("script", "link", "img", "iframe", "source")  # what a browser fetches without being asked


class Links(HTMLParser):
    """The links and ids of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[tuple[str, str]] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what the tag names and links to."""
        known = dict(attrs)
        self.ids |= {value for key in ("id", "name") if (value := known.get(key))}
        self.targets += [(tag, value) for key in ("href", "src") if (value := known.get(key))]


@cache
def links(page: Path) -> Links:
    """Return links and ids of a page."""
    return Links(page.read_text(encoding="utf-8"))


def problems(site: Path) -> Iterator[str]:
    """Yield what is wrong with the links of a site."""
    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html":
            continue  # its links are absolute: a server shows it under any address
        for tag, target in links(page).targets:
            if reason := _problem(page, tag, target):
                yield f"{page.relative_to(site)}: {target}: {reason}"


def _problem(page: Path, tag: str, target: str) -> str | None:
    parts = urlsplit(target)
    if parts.scheme in ("data", "mailto") or target == "javascript:void(0)":
        return None
    if parts.scheme or parts.netloc:
        return "is fetched from elsewhere" if tag in LOADED else None
    file = page if not parts.path else (page.parent / unquote(parts.path)).resolve()
    file = file / "index.html" if file.is_dir() else file
    if not file.is_file():
        return "does not exist"
    if parts.fragment and file.suffix == ".html" and unquote(parts.fragment) not in links(file).ids:
        return "has no such anchor"
    return None


def main() -> int:
    """Print the problems of the site that is named; return 1 if there are any."""
    found = list(problems(Path(sys.argv[1])))
    print("\n".join(found) or "all links resolve")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
