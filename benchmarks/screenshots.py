"""Screenshots of a report for the documentation, light and dark: python benchmarks/screenshots.py RUN [OUT].

Writes OUT/report-light.png and report-dark.png, and of the answer alone verdict.png and verdict-dark.png (OUT is
docs/images by default), from RUN/report.html, which `residuum run` or `residuum report` has made. Needs playwright and
a chromium.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, sync_playwright

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WIDTH, HEIGHT, EDGE = 1400, 900, 15


def main(run: str, out: str = "docs/images") -> None:
    page, folder = Path(run).resolve() / "report.html", Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None or not page.is_file():
        sys.exit(f"expected a chromium and {page}; make the page with `residuum report {run}`")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=FLAGS)
        for light, dark in (("report-light", "report-dark"), ("verdict", "verdict-dark")):
            print(shoot(browser, page, folder / f"{light}.png", "light"))
            print(shoot(browser, page, folder / f"{dark}.png", "dark"))
        browser.close()


def shoot(browser: Browser, page: Path, target: Path, scheme: Literal["light", "dark"]) -> Path:
    """Open the page and take what a window shows; of the verdict, the answer down to the end of its picture."""
    tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
    tab.goto(page.as_uri())
    if target.stem.startswith("verdict"):
        first, last = (tab.locator(what).first.bounding_box() for what in ("#answer div:has(> h1)", "table.picture"))
        if not first or not last:
            sys.exit(f"expected an answer with a picture in {page}")
        edges = first["x"] - EDGE, first["y"] - EDGE, first["width"] + 2 * EDGE
        height = last["y"] + last["height"] + EDGE - edges[1]
        tab.screenshot(path=str(target), clip={"x": edges[0], "y": edges[1], "width": edges[2], "height": height})
    else:
        tab.screenshot(path=str(target))
    tab.close()
    return target


if __name__ == "__main__":
    main(*sys.argv[1:])
