"""A real browser for the tests of the page, without a network; the tests say so where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fxdebug import Trace

ARGUMENTS = (
    "--no-sandbox",  # root in a container has no sandbox
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start chromium once for the tests of a file: while it runs, asyncio has a loop, which tests of others start."""
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium on the PATH: apt-get install chromium")
    with driver.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Write the page of a run (or take one that was written) and open it; an error in its script fails the test."""
    contexts: list[Any] = []
    problems: list[str] = []

    def open(
        run: Trace | Path, hash: str = "", *, width: int = 1280, height: int = 800, theme: str = "light", **options: Any
    ) -> Any:
        path = run if isinstance(run, Path) else run.export(tmp_path / f"page{len(contexts)}.html", **options)
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce", offline=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto(path.as_uri() + hash)
        page.wait_for_selector("html[data-ready]", state="attached")
        return page

    yield open
    for context in contexts:
        context.close()
    assert not problems, "\n".join(problems)
