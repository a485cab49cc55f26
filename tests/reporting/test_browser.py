"""The page in a real browser, opened from disk."""

from __future__ import annotations

from importlib.resources import files

import pytest

from residuum.core.roles import Role
from residuum.record import Verdict
from residuum.record.run import load_runs
from residuum.reporting.gallery import gallery_of
from residuum.reporting.glossary import ANSWERS
from residuum.reporting.page import page_text
from residuum.reporting.plots import column_at, picture_of
from residuum.reporting.samples import samples_of

OVERFLOWING = """[...document.querySelectorAll('main *')]
    .filter(e => e.getBoundingClientRect().right > 391 && !e.closest('.scroll, pre, svg, .hidden'))
    .map(e => e.outerHTML.slice(0, 80))"""
CONTRAST = {"runOnly": ["color-contrast"]}
HOSTILE_ROW = '<img src=x onerror="alert(1)">'


def written(folders, out):
    runs = load_runs(folders)
    path = out / "report.html"
    galleries, samples = [gallery_of(run, None) for run in runs], [samples_of(run, None) for run in runs]
    path.write_text(page_text(runs, galleries, samples=samples), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def address(demo_folder, tmp_path_factory):
    return written([demo_folder], tmp_path_factory.mktemp("report"))


@pytest.fixture
def open_page(browser, address):
    """Return a function that opens the page; afterwards nothing may have gone wrong or over the network."""
    pages, trouble, asked = [], [], set()

    def watch(page):
        page.on(
            "console", lambda message: trouble.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("dialog", lambda dialog: trouble.append(dialog.message))
        page.on("request", lambda request: trouble.append(request.url) if not _local(request.url) else None)

    def _local(url):
        return url in asked or url.startswith("data:")

    def opened(width=1280, target=None, **options):
        page = browser.new_page(viewport={"width": width, "height": 900}, **options)
        watch(page)
        asked.add(target or address)
        page.goto(target or address)
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert trouble == []


def test_it_opens_without_trouble(open_page):
    page = open_page()
    assert page.title().startswith("Residuum report")
    loaded = "performance.getEntriesByType('resource').filter(e => !e.name.startsWith('data:')).length"
    assert page.evaluate(loaded) == 0


def test_names_show_as_text(open_page):
    page = open_page()
    assert page.get_by_text("half of class <script>alert(1)</script>").count() >= 1
    assert page.locator("#results-table").get_by_text(HOSTILE_ROW).count() == 1
    assert page.locator("#curves title", has_text=HOSTILE_ROW).count() > 1
    assert page.locator("img[src=x]").count() == 0


def opened_section(open_page, anchor, **options):
    """Return a page whose folded section was opened from the navigation."""
    page = open_page(**options)
    page.locator(f"nav a[href='#{anchor}']").click()
    assert page.locator(f"#{anchor}").is_visible()
    return page


def test_sorting(open_page):
    page = opened_section(open_page, "results")
    names = "#results-table tbody tr th .name"
    first = page.locator(names).all_inner_texts()
    head = page.locator("#results-table th").filter(has=page.locator("[data-key=cost]"))
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    costs = page.eval_on_selector_all("#results-table tbody tr td:last-child", "all => all.map(e => +e.dataset.value)")
    assert costs == sorted(costs)
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    costs = page.eval_on_selector_all("#results-table tbody tr td:last-child", "all => all.map(e => +e.dataset.value)")
    assert costs == sorted(costs, reverse=True)
    assert sorted(page.locator(names).all_inner_texts()) == sorted(first)
    relearn = page.locator("#results-table th").filter(has=page.locator("[data-key=relearn_epochs]"))
    for _ in range(2):  # what does not exist stays last in both directions
        relearn.get_by_role("button").click()
        assert page.locator(names).last.inner_text() == "original"
    assert "membership-inference" in page.locator("[data-key=mia_accuracy]").get_attribute("title")


def test_the_gallery_shows_other_models(open_page, demo_folder):
    import numpy as np

    arrays = np.load(demo_folder / "gallery" / "1.npz")
    page = opened_section(open_page, "gallery")
    page.locator("[data-pick=row]").select_option("gd")
    cards = page.locator(".cards")
    assert cards.locator(".card").count() == 6
    row = list(arrays["rows"]).index("gd")
    shown = cards.locator("[data-who=model] .tick").all_text_contents()
    assert shown == ["✓" if right else "✗" for right in arrays["right"][row].ravel()]
    only = cards.locator("[data-who=model] .only").count()
    assert only == int((arrays["right"][row] & ~arrays["reference_right"]).sum())
    assert cards.locator("code").first.inner_text() == arrays["ids"][0]


def test_light_and_dark(open_page):
    page = open_page(color_scheme="dark")

    def paper():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    dark = paper()
    page.locator("#theme").click()
    light = paper()
    assert dark != light
    page.locator("#theme").click()
    assert paper() == dark
    page.emulate_media(media="print")
    assert paper() == light


@pytest.fixture
def one_model(make_run, change, tmp_path):
    """Return the address of the report of a request with one model."""
    rows = {label: row for label, row in make_run.rows.items() if label != "rurk"}
    run = change(make_run(rows=rows, data="own"), with_heldout)
    path = tmp_path / "one.html"
    path.write_text(page_text([run]), encoding="utf-8")
    return path.as_uri()


def with_heldout(record):
    for row in record["methods"].values():
        for seed in row["per_seed"].values():
            seed["audits"]["gaussian"]["heldout"] = {
                "samples": 50,
                "rate": [0.6, 0.62, 0.61],
                "reference_rate": [0.6, 0.6, 0.6],
            }


def test_nothing_overflows_on_a_phone(open_page, one_model):
    for target in (None, one_model):
        page = open_page(width=390, target=target)
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        wide = page.evaluate(OVERFLOWING)
        assert wide == []


@pytest.mark.parametrize("kind", ["comparison", "one model"])
@pytest.mark.parametrize(("scheme", "width", "rules"), [("light", 1400, {}), ("dark", 400, CONTRAST)])
def test_no_accessibility_violation(open_page, one_model, kind, scheme, width, rules):
    page = open_page(width=width, target=one_model if kind == "one model" else None, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('.fold').forEach(d => { d.open = true; })")
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("rules => axe.run(rules)", rules)
    assert found["passes"]
    bad = [(v["id"], v["nodes"][0]["html"][:120], v["nodes"][0].get("failureSummary")) for v in found["violations"]]
    assert bad == []


def test_several_runs_and_a_forgotten_class(open_page, make_run, tmp_path):
    first, second = make_run(name="a"), make_run(name="b", form="class", reference=0.0)
    page = open_page(target=written([first.folder, second.folder], tmp_path))
    assert page.locator("h1").inner_text() == "2 runs compared"
    assert page.locator(".matrix tbody tr").count() == 3
    assert page.locator("article[data-run=b] .picture").count() == 1
    page.locator("nav a[href='#curves']").click()
    assert page.locator("#curves > .panels .panel").all_inner_texts()[1].startswith("Pr[model right]")


def test_printing_opens_what_is_folded(open_page):
    page = open_page()
    folded = page.locator(".fold:not([open])")
    before = folded.count()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert folded.count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert folded.count() == before
    assert len(page.pdf(format="A4")) > 10_000


def test_every_verdict_is_read_off_the_first_screen(open_page, demo_run):
    page = open_page(width=1400)
    assert page.locator("h1").bounding_box()["y"] < 200
    for label, judgment in demo_run.verdicts.items():
        row = page.locator(f'.picture tr[data-row="{label}"]') if "<" not in label else page.get_by_text(label).first
        assert row.bounding_box()["y"] <= 900
        if "<" not in label:
            assert row.get_attribute("data-verdict") == judgment.verdict.name
    verdicts = [demo_run.verdicts[label].verdict for label in demo_run.record.rows_of(Role.METHOD)]
    groups = [f"{ANSWERS[v.name].group}: {verdicts.count(v)}" for v in Verdict if v in verdicts]
    assert len(groups) > 1
    assert [text.partition(" ")[2].strip() for text in page.locator(".picture .group th").all_inner_texts()] == groups


def test_the_picture_is_drawn_at_the_numbers_it_says(open_page, demo_run):
    page = open_page(width=1400)
    picture = picture_of(demo_run)
    for label in ("original", "gd"):
        row = page.locator(f".picture tr[data-row={label}]")
        plot, dot = (row.locator(part).first.bounding_box() for part in ("svg", ".level"))
        share = (dot["x"] + dot["width"] / 2 - plot["x"]) / plot["width"]
        value = picture.axis.low + share * (picture.axis.high - picture.axis.low)
        column = column_at(demo_run, label, picture.place)
        assert value == pytest.approx(column.value, abs=0.004)
        assert picture.text(column.value) in row.locator("svg").get_attribute("aria-label")
        assert picture.text(column.value) in row.inner_text()


def test_the_answer_comes_first_and_everything_else_is_folded(open_page, one_model):
    for width in (1400, 400):
        page = open_page(width=width, target=one_model)
        assert page.locator("h1").inner_text() == "Not convincingly forgotten."
        assert "still recognizes the 40 deleted samples" in page.locator(".lead").inner_text()
        assert page.locator(".chips li").count() == 4
        assert page.locator(".chips").bounding_box()["y"] < 500
        badge, plot = (page.locator(f".picture [data-row=gd] {part}").bounding_box() for part in (".badge", "svg"))
        assert badge["y"] < 1000
        if width == 400:
            assert plot["width"] > 330
        assert not any(part.is_visible() for part in page.locator(".fold > section").all())
        assert page.locator("nav a").all_inner_texts() == [
            "Answer",
            "Verdicts",
            "Results",
            "Curves",
            "Limits",
            "Rule",
            "Recompute",
        ]


def test_it_can_be_read_without_javascript(browser, address):
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(address)
    assert page.locator(".picture .level").count() == 13
    page.locator("nav a[href='#curves']").click()
    assert page.locator("#curves .curve").first.is_visible()
    page.locator("summary", has_text="Gallery").click()
    assert page.locator(".strip img").first.is_visible()
    page.context.close()


def test_gallery_pictures_are_large_enough_to_see(open_page):
    for width in (1400, 400):
        strip = opened_section(open_page, "gallery", width=width).locator(".strip img").first
        assert strip.bounding_box()["width"] / 6 >= 48


def test_samples_are_found_by_their_id(open_page):
    page = open_page()
    table = page.locator("#samples table")
    assert not table.is_visible()
    page.locator("summary", has_text="The forgotten samples one by one").click()
    assert table.locator("tbody tr:visible").count() == 30
    page.locator("#samples input").fill("0007")
    assert table.locator("tbody tr:visible").count() == 1
    assert "0007" in table.locator("tbody tr:visible th").inner_text()
    assert page.locator("#samples [role=status]").inner_text() == "1 of 30 samples"
    page.locator("#samples input").fill("nothing")
    assert page.locator("#samples [role=status]").inner_text() == "0 of 30 samples"
