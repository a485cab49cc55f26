"""Screenshots of a report for the documentation, light and dark: python benchmarks/screenshots.py RUN [OUT].

Writes OUT/report-light.png, report-dark.png, report-gallery.png and report-phone.png (OUT is docs/images by default)
from RUN/report.html, which `residuum run` or `residuum report` has made. Needs playwright and a chromium.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WIDTH, HEIGHT = 1400, 900


def main(run: str, out: str = "docs/images") -> None:
    page, folder = Path(run).resolve() / "report.html", Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None or not page.is_file():
        sys.exit(f"expected a chromium and {page}; make the page with `residuum report {run}`")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=FLAGS)
        for name, section, options in SHOTS:
            print(shoot(browser, page, folder / f"report-{name}.png", section, options))
        browser.close()


DESKTOP: dict[str, Any] = {"viewport": {"width": WIDTH, "height": HEIGHT}}
SHOTS: list[tuple[str, str | None, dict[str, Any]]] = [
    ("light", None, DESKTOP),
    ("dark", None, DESKTOP | {"color_scheme": "dark"}),
    ("gallery", "#gallery", DESKTOP),
    ("phone", None, {"viewport": {"width": 400, "height": HEIGHT}}),
]


def shoot(browser: Browser, page: Path, target: Path, section: str | None, options: dict[str, Any]) -> Path:
    """Open the page, unfold a section and take what a window of this size shows."""
    tab = browser.new_page(**options)
    tab.goto(page.as_uri())
    if section:
        tab.locator(f".fold:has({section})").evaluate(
            "e => { e.open = true; e.scrollIntoView({ behavior: 'instant' }); }"
        )
        tab.evaluate("scrollBy(0, -60)")  # below the bar at the top
    tab.screenshot(path=str(target))
    tab.close()
    return target


if __name__ == "__main__":
    main(*sys.argv[1:])
