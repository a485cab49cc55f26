"""The site builds without a warning, opens from a folder, and has a page for every method and every public name."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.resources import files
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
    for method in map(METHODS.find, METHODS.built_in):
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


def test_the_search_shows_guides_before_signatures(site):
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    boosts = {entry["location"].partition("#")[0]: entry.get("boost", 1) for entry in index["docs"]}
    assert {boost for page, boost in boosts.items() if page.startswith("api/")} == {0.1}
    assert {boosts[page] for page in ("guides/privacy.html", "get-started/quickstart.html")} == {1}
    assert any("GDPR" in entry["text"] for entry in index["docs"] if entry["location"].startswith("guides/privacy"))


def test_doctests_are_code(site):
    assert "&gt;&gt;&gt; </span>" in (site / "api" / "auditing.html").read_text(encoding="utf-8")


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LOOKED_AT = (
    *("index.html", "get-started/quickstart.html", "get-started/glossary.html", "concepts/residual-knowledge.html"),
    *("guides/decoys.html", "methods/index.html", "methods/soft_reset.html", "reference/verdict.html"),
    *("reference/calibration.html", "reference/evidence-format.html", "reference/cli.html", "api/index.html"),
    *("api/auditing.html", "benchmarks/digits.html", "benchmarks/cifar10.html", "benchmarks/cifar10-details.html"),
    *("notebooks/04-read-a-report.html", "changelog.html"),
)


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_have_no_violation_of_accessibility_and_fit_the_window(site, scheme, width):
    api = pytest.importorskip("playwright.sync_api")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=flags)
        for name in LOOKED_AT:
            tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            tab.goto((site / name).as_uri())
            tab.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
            tab.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
            found = tab.evaluate("async () => await axe.run()")
            assert found["passes"]
            assert [(v["id"], v["nodes"][0]["html"][:120]) for v in found["violations"]] == [], name
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, name
        browser.close()
