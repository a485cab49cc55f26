"""The page in a real browser, opened from disk."""

from __future__ import annotations

from importlib.resources import files

import pytest

from residuum.record.run import load_runs
from residuum.reporting.gallery import gallery_of
from residuum.reporting.page import page_text
from residuum.reporting.plots import picture_of
from residuum.reporting.samples import samples_of

OVERFLOWING = """[...document.querySelectorAll('main *')]
    .filter(e => e.getBoundingClientRect().right > 391 && !e.closest('.scroll, pre, svg, .hidden'))
    .map(e => e.outerHTML.slice(0, 80))"""
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


def lines(page):
    return page.eval_on_selector_all("#panels figure:first-child g[data-row]", "all => all.map(e => e.dataset.row)")


def test_it_opens_with_plots_and_without_trouble(open_page):
    page = open_page()
    assert page.title().startswith("Residuum report")
    assert page.locator("#panels svg.plot").count() == 2
    assert page.locator("#tradeoffs svg.plot").count() == 2
    assert page.locator("#panels .floor").count() >= 2
    assert (
        page.evaluate("performance.getEntriesByType('resource').filter(e => !e.name.startsWith('data:')).length") == 0
    )


def test_names_show_as_text(open_page):
    page = open_page()
    assert page.get_by_text("half of class <script>alert(1)</script>").count() == 1
    assert page.locator("#results-table").get_by_text(HOSTILE_ROW).count() == 1
    page.get_by_role("button", name="All", exact=True).click()
    assert page.locator(".chip").filter(has_text=HOSTILE_ROW).get_attribute("aria-pressed") == "true"
    assert HOSTILE_ROW in lines(page)
    assert page.locator("img[src=x]").count() == 0


def test_sorting(open_page):
    page = open_page()
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


def test_methods_are_switched_on_and_off(open_page):
    page = open_page()
    assert len(lines(page)) == 4
    chip = page.locator(".chip[data-row=original]")
    assert chip.get_attribute("aria-pressed") == "true"
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    assert "original" not in lines(page)
    chip.press("Space")
    assert "original" in lines(page)
    page.get_by_role("button", name="All", exact=True).click()
    assert len(lines(page)) == 15
    assert page.eval_on_selector_all("#tradeoffs figure:first-child circle", "all => all.length") == 45
    page.get_by_role("button", name="None", exact=True).click()
    assert lines(page) == []
    page.get_by_role("button", name="Default", exact=True).click()
    assert len(lines(page)) == 4


def drawn(page):
    return page.locator("#panels figure:first-child g[data-row=gd] path").get_attribute("d")


def test_measures_scales_and_seeds(open_page):
    page = open_page()
    page.get_by_role("button", name="All", exact=True).click()
    shapes = {}
    for name in ("Mean of ratios", "Difference", "Disagreement", "Unlearn accuracy, perturbed", "Prevalence"):
        page.get_by_role("button", name=name, exact=True).click()
        shapes[name] = drawn(page)
        assert name.split(",")[0] in page.locator("#panels svg").first.get_attribute("aria-label")
    assert len(set(shapes.values())) == 5
    log = page.get_by_role("button", name="Log", exact=True)
    assert log.is_disabled()
    page.get_by_role("button", name="Residual knowledge (pooled)").click()
    linear = drawn(page)
    log.click()
    assert drawn(page) != linear
    assert log.get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name="Linear", exact=True).click()
    page.locator("#seeds").select_option("2")
    assert drawn(page) != linear


def test_values_can_be_read_with_the_keyboard_and_in_a_table(open_page, demo_folder):
    import json

    record = json.loads((demo_folder / "results.json").read_text())
    seeds = record["methods"]["original"]["per_seed"].values()
    mean = sum(seed["audits"]["gaussian"]["residual_knowledge"]["pooled"][1] for seed in seeds) / 3
    page = open_page()
    plot = page.locator("#panels svg").first
    plot.focus()
    plot.press("ArrowRight")
    plot.press("ArrowRight")
    readout = page.locator("#panels .readout").first
    assert "radius 0.1" in readout.inner_text()
    assert f"{float(f'{mean:.3g}'):g}" in readout.inner_text()
    plot.press("Escape")
    assert readout.is_hidden()
    page.locator("#panels details summary").first.click()
    row = page.locator("#panels figure:first-child details tr").filter(has_text="original")
    assert f"{float(f'{mean:.3g}'):g} [" in row.inner_text()


def test_the_gallery_shows_other_models_and_seeds(open_page, demo_folder):
    import numpy as np

    arrays = np.load(demo_folder / "gallery" / "2.npz")
    page = open_page()
    page.locator("[data-pick=seed]").select_option("2")
    page.locator("[data-pick=row]").select_option("gd")
    cards = page.locator(".cards[data-seed='2']")
    assert cards.is_visible()
    assert not page.locator(".cards[data-seed='1']").is_visible()
    assert cards.locator(".card").count() == 6
    assert cards.locator("details .card").count() == 2  # folded after the first four
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


def test_nothing_overflows_on_a_phone(open_page):
    page = open_page(width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    wide = page.evaluate(OVERFLOWING)
    assert wide == []


@pytest.mark.parametrize(("scheme", "rules"), [("light", {}), ("dark", {"runOnly": ["color-contrast"]})])
def test_no_serious_accessibility_violation(open_page, scheme, rules):
    page = open_page(color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details:not(.numbers)').forEach(d => { d.open = true; })")
    page.evaluate("document.querySelector('details.numbers').open = true")
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("rules => axe.run(rules)", rules)
    assert found["passes"]
    bad = [v for v in found["violations"] if v["impact"] in ("serious", "critical")]
    assert [(v["id"], v["nodes"][0]["html"][:120], v["nodes"][0].get("failureSummary")) for v in bad] == []


def test_several_runs_and_a_forgotten_class(open_page, make_run, tmp_path):
    first, second = make_run(name="a"), make_run(name="b", form="class", reference=0.0)
    page = open_page(target=written([first.folder, second.folder], tmp_path))
    assert page.locator("#panels svg").count() == 2
    assert page.get_by_text("no value exists here").count() == 1
    page.get_by_role("button", name="Difference", exact=True).click()
    assert page.get_by_text("no value exists here").count() == 0


def test_printing_opens_what_is_folded(open_page):
    page = open_page()
    folded = page.locator("details:not(.numbers):not([open])")
    before = folded.count()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert folded.count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert folded.count() == before
    assert len(page.pdf(format="A4")) > 10_000


def test_every_verdict_is_read_off_the_first_screen(open_page, demo_run):
    page = open_page(width=1400)
    rows = page.locator(".picture tbody tr")
    assert rows.count() == len(demo_run.verdicts) == 13
    for row in rows.all():
        label = row.locator(".name").inner_text()
        assert demo_run.verdicts[label].verdict.label in row.locator(".badge").inner_text()
        places = [part.bounding_box() for part in (row, row.locator(".badge"), row.locator("svg"))]
        assert all(place["y"] + place["height"] <= 900 for place in places)
    assert page.locator(".advice").bounding_box()["y"] <= 900


def test_the_picture_is_drawn_at_the_numbers_it_says(open_page, demo_run):
    page = open_page(width=1400)
    column = picture_of(demo_run).columns[0]
    for label in ("original", "gd"):
        row = page.locator(".picture tbody tr").filter(has=page.get_by_text(label, exact=True))
        plot, dot = (row.locator(what).first.bounding_box() for what in ("svg", ".level"))
        share = (dot["x"] + dot["width"] / 2 - plot["x"]) / plot["width"]
        value = column.axis.low + share * (column.axis.high - column.axis.low)
        assert value == pytest.approx(column.findings[label].value(), abs=0.004)
        assert row.locator(".seed").count() == 3
        assert column.text(label) in row.locator("svg").get_attribute("aria-label")
        assert column.text(label) in row.inner_text()


def test_the_picture_is_stacked_on_a_phone(open_page):
    page = open_page(width=400)
    row = page.locator(".picture tbody tr").first
    badge, plot = row.locator(".badge").bounding_box(), row.locator("svg").bounding_box()
    assert plot["y"] >= badge["y"] + badge["height"]
    assert plot["width"] > 330


def test_names_sit_at_their_points(open_page):
    page = open_page(width=400)
    far = page.eval_on_selector_all(
        "#tradeoffs figure:first-child [data-at]",
        """all => all.filter(text => {
            const a = text.getBoundingClientRect();
            return ![...text.closest('svg').querySelectorAll('circle')].some(circle => {
                const b = circle.getBoundingClientRect();
                return circle.dataset.row === text.dataset.at && a.right > b.left - 12 && a.left < b.right + 12
                    && a.bottom > b.top - 12 && a.top < b.bottom + 12;
            });
        }).map(text => text.textContent)""",
    )
    assert far == []
    assert page.locator("#tradeoffs figure:first-child [data-at]").count() == 4


def test_gallery_pictures_are_large_enough_to_see(open_page):
    for width in (1400, 400):
        strip = open_page(width=width).locator(".strip img").first
        assert strip.bounding_box()["width"] / 6 >= 48


def test_samples_are_found_by_their_id(open_page):
    page = open_page()
    table = page.locator("#samples table")
    assert not table.is_visible()
    page.locator("#samples summary").click()
    assert table.locator("tbody tr:visible").count() == 12
    page.locator("#samples input").fill("0007")
    assert table.locator("tbody tr:visible").count() == 1
    assert "0007" in table.locator("tbody tr:visible th").inner_text()
    assert page.locator("#samples [role=status]").inner_text() == "1 of 12 samples"
    page.locator("#samples input").fill("nothing")
    assert page.locator("#samples [role=status]").inner_text() == "0 of 12 samples"
