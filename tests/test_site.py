"""The site builds without a warning, opens from a folder, and has a page for every method and every public name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from website import check

import residuum
from residuum.cli import COMMANDS
from residuum.unlearning import METHODS

pytest.importorskip("mkdocs", reason="the site is built with the extra docs")
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, env=quiet, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_no_page_is_twice_in_the_navigation():
    pages = re.findall(r"[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2])
    assert len(pages) > 20
    assert sorted(pages) == sorted(set(pages))


def test_every_link_of_the_site_resolves_and_nothing_is_fetched(site):
    assert list(check.problems(site)) == []


def test_the_check_finds_what_is_wrong(tmp_path):
    away = '<script src="https://example.org/x.js"></script>'
    page = f'<a id="here" href="#there">x</a><img src="none.png">{away}<a href="b.html#no">'
    (tmp_path / "a.html").write_text(page)
    (tmp_path / "b.html").write_text("<p id='yes'>")
    found = [problem.split(": ", 1)[1] for problem in check.problems(tmp_path)]
    assert found == [
        "#there: has no such anchor",
        "none.png: does not exist",
        "https://example.org/x.js: is fetched from elsewhere",
        "b.html#no: has no such anchor",
    ]


def test_every_method_has_a_page_with_all_sections(site):
    for method in map(METHODS.find, METHODS.ours):
        text = (site / "methods" / f"{method.name}.html").read_text(encoding="utf-8")
        for part in (
            "What it does",
            "When to use it",
            "Example",
            "Settings",
            "Cost",
            "What it leaves behind",
            "Reference",
        ):
            assert f">{part}<" in text, (method.name, part)
        assert text.count(f"<td>{method.name}</td>") == 2, method.name  # measured on both scenarios


def test_every_command_is_in_the_reference(site):
    text = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    for words in COMMANDS:
        assert f'id="residuum-{words.replace(" ", "-")}"' in text, words
    assert text.count("--fail-if") >= 3


def test_every_public_name_has_its_documentation(site):
    anchors = set().union(*(check.links(page).ids for page in (site / "api").glob("*.html")))
    homes = {name: home for name, home in residuum._HOMES.items() if home != "residuum"}
    assert {f"{home}.{name}" for name, home in homes.items()} - anchors == set()
    assert "residuum.perturbations" in anchors
    assert {"residuum.perturbations.FGSM", "residuum.perturbations.PGD", "residuum.pack.verify"} <= anchors


def test_doctests_are_code(site):
    assert "&gt;&gt;&gt; </span>" in (site / "api" / "auditing.html").read_text(encoding="utf-8")
