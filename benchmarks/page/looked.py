"""The page in a real browser: when it first shows data, and how long it takes to draw."""

from __future__ import annotations

import shutil
import statistics
from typing import Final

from watched import Node

#: Visits of which the median counts; the first, in a cold browser, does not.
VISITS: Final = 11
PATIENCE_MS: Final = 60_000
PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
OPTIONS: Final = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


def figures(node: Node, seconds: float) -> dict[str, float | None]:
    """None where no browser is to be had, which is said. Raises RuntimeError where it fails."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        print("no Chromium is installed: apt-get install chromium")
        return {"first_data_ms": None, "draw_p99_ms": None}
    from playwright.sync_api import Error

    try:
        first, drawn = _seen(program, node, seconds)
    except Error as problem:
        raise RuntimeError(f"the browser: {problem}") from problem
    print("first data, ms: " + ", ".join(f"{one:.0f}" for one in first))
    drawn.sort()
    p99 = drawn[min(len(drawn) - 1, int(len(drawn) * 0.99))]
    said = f"p50 {statistics.median(drawn):.1f} ms, p99 {p99:.1f}, worst {drawn[-1]:.1f}"
    print(f"{len(drawn)} draws of the functions: {said}")
    return {"first_data_ms": statistics.median(first[1:]), "draw_p99_ms": p99}


def _seen(program: str, node: Node, seconds: float) -> tuple[list[float], list[float]]:
    """Milliseconds until each visit had data, and of each time that the functions were drawn."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(OPTIONS))
        try:
            first = []
            for _ in range(VISITS):
                context = browser.new_context()
                page = context.new_page()
                page.goto(node.link())
                page.wait_for_function("performance.getEntriesByName('data').length > 0", timeout=PATIENCE_MS)
                first.append(page.evaluate("performance.getEntriesByName('data')[0].startTime"))
                context.close()
            page = browser.new_context(viewport={"width": 1360, "height": 860}).new_page()
            page.goto(f"{node.link()}")
            page.evaluate("location.hash = '#/functions'")
            page.wait_for_timeout(seconds * 1e3)
            return first, page.evaluate("performance.getEntriesByName('draw').map(one => one.duration)")
        finally:
            browser.close()
