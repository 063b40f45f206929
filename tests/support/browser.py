"""Pages of other programs in chromium: start the program, open its page, look at it."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fxdebug.exports.programs.viewers import VIEWERS, viewer_command

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def require_browser() -> None:
    """Skip a test where there is no browser to open a page in."""
    pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    if not CHROMIUM.exists():
        pytest.skip(f"no browser at {CHROMIUM}: pages of other programs are not opened")


@contextlib.contextmanager
def served(program: str, path: Path) -> Iterator[str]:
    """Start a program as ``fxdebug open`` does, and yield the address of its page."""
    pytest.importorskip(program, reason=f"{program} is not installed: its page is not opened")
    command = viewer_command(VIEWERS[program], path, browse=False)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().partition(": ")[2].strip()
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@contextlib.contextmanager
def opened(address: str, width: int = 1400, height: int = 900) -> Iterator[Any]:
    """Yield a page of playwright; Netron asks for consent and takes ``eval`` away, which playwright needs."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=str(CHROMIUM), args=list(ARGUMENTS))
        context = browser.new_context(viewport={"width": width, "height": height})
        context.add_cookies([{"name": "consent", "value": "1", "url": address}])
        page = context.new_page()
        keep = "const kept = window.eval; Object.defineProperty(window, 'eval', {get: () => kept, set: () => {}})"
        page.add_init_script(keep)
        page.goto(address)
        yield page
        browser.close()


def drill(page: Any, name: str) -> None:
    """Open the function of a node in Netron's page."""
    selector = f'g.node[id="node-name-{name}"]'
    mark = page.locator(selector).locator("g.node-item", has_text="Show Function Definition").first
    click_until(page, mark, selector, "detached")


def choose(page: Any, name: str) -> None:
    """Choose a node in Netron's page: its facts are in the sidebar."""
    node = page.locator(f'g.node[id="node-name-{name}"]')
    node.wait_for(state="attached")
    click_until(page, node.locator("g.node-item").first, "#sidebar input", "attached")


def click_until(page: Any, target: Any, selector: str, state: str) -> None:
    """Click until an element is there, or gone (``state``): a graph that still moves in takes no clicks."""
    from playwright.sync_api import TimeoutError as TooLate

    for _ in range(15):
        target.dispatch_event("click")
        try:
            page.wait_for_selector(selector, state=state, timeout=2_000)
        except TooLate:
            continue
        return
    raise AssertionError(f"{selector} is not {state}")
