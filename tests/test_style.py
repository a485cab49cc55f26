"""Two smoke tests for the style of the documents: no long sentences where people begin, and few semicolons anywhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FIRST = [ROOT / "README.md", DOCS / "get-started" / "quickstart.md", *sorted((DOCS / "concepts").glob("*.md"))]
FORMAT = DOCS / "reference" / "evidence-format.md"  # formulas and lists of fields, for programmers of verifiers


def prose(path):
    """Return the text of a page without code, tables, comments and link targets."""
    text = path.read_text(encoding="utf-8")
    for what in (r"^ *```.*?^ *```", r"<!--.*?-->", r"^ *\|.*?$", r"`[^`\n]*`", r"(?<=\])\([^)]*\)"):
        text = re.sub(what, "", text, flags=re.M | re.S)
    return text


def sentences(text):
    """Return sentences; lists and headings end them, too.

    >>> sentences("One two. Three\\n- four: five")
    ['One two.', 'Three', 'four:', 'five']
    """
    blocks = re.split(r"\n\s*\n|\n *(?:[-*]|\d+\.|#+|!!!|\?\?\?) ", text)
    return [part for block in blocks for part in re.split(r"(?<=[.?!:]) +", " ".join(block.split())) if part]


@pytest.mark.parametrize("page", FIRST, ids=lambda page: page.stem)
def test_no_sentence_has_more_than_forty_words(page):
    found = sentences(prose(page))
    assert len(found) > 10
    assert [text for text in found if len(text.split()) > 40] == []


def test_semicolons_are_rare():
    texts = [prose(page) for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))) if page != FORMAT]
    words, semicolons = sum(len(text.split()) for text in texts), sum(text.count(";") for text in texts)
    assert words > 10_000
    assert semicolons <= words / 250


def test_code_of_the_guides_fits_a_narrow_window():
    blocks = [
        (page.name, line)
        for page in sorted(DOCS.rglob("*.md"))
        for block in re.findall(r"^```(?:python|sh)\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
        for line in block.splitlines()
    ]
    assert len(blocks) > 500
    assert [(name, line) for name, line in blocks if len(line) > 78] == []
