"""Pages of other programs in chromium: start the program, open its page, look at it."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fxdebug.exports.viewers import VIEWERS, viewer_command

CHROMIUM = Path("/usr/bin/chromium")
PATIENCE = 100_000  # milliseconds: a page that never gets there fails, a busy machine only takes longer
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
    process, address = _started(command)
    for _ in range(4):  # another process took the port that it had found free
        if address:
            break
        process.wait()
        process, address = _started(command)
    try:
        yield address
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _started(command: list[str]) -> tuple[subprocess.Popen[str], str]:
    """Start a program; return it with the address that it prints once it listens, or none if it ended before."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().partition(": ")[2].strip()


@contextlib.contextmanager
def opened(address: str, width: int = 1400, height: int = 900) -> Iterator[Any]:
    """Yield a page of playwright; Netron asks for consent and takes ``eval`` away, which playwright needs."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=str(CHROMIUM), args=list(ARGUMENTS))
        context = browser.new_context(viewport={"width": width, "height": height})
        context.add_cookies([{"name": "consent", "value": "1", "url": address}])
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
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


SIDEBAR = """() => {
    const sidebar = document.getElementById("sidebar");
    return [sidebar.innerText, ...[...sidebar.querySelectorAll("input")].map(one => one.value)].join("\\n");
}"""


def choose(page: Any, name: str, *texts: str) -> None:
    """Choose a node in Netron's page until the sidebar has its name and these texts among its facts."""
    node = page.locator(f'g.node[id="node-name-{name}"]')
    node.wait_for(state="attached")
    shown = ""
    for tried in range(20):  # a graph that still moves in takes a click for one on another node, or for none
        node.locator("g.node-item").first.dispatch_event("click")
        for _ in range(10 + tried):
            shown = page.evaluate(SIDEBAR)
            if all(text in shown for text in (name, *texts)):
                return
            page.wait_for_timeout(200)
        page.keyboard.press("Escape")  # closes the sidebar
    raise AssertionError(f"the sidebar does not show {texts} of {name}: {shown}")


def wait_until(page: Any, condition: str, arg: object = None) -> None:
    """Wait until a JavaScript expression or function is true in a page, also in one that forbids ``eval``."""
    end = time.monotonic() + PATIENCE / 1000
    while not page.evaluate(condition, arg):
        assert time.monotonic() < end, f"never true: {condition}"
        page.wait_for_timeout(20)


def click_until(page: Any, target: Any, selector: str, state: str, event: str = "click") -> None:
    """Click until an element is there, or gone (``state``): a graph that still moves in takes no clicks."""
    from playwright.sync_api import TimeoutError as TooLate

    for tried in range(40):
        patience = 2_000 + 200 * tried
        with contextlib.suppress(TooLate):  # the target has gone: the click before this one came through late
            target.dispatch_event(event, timeout=patience)
        with contextlib.suppress(TooLate):
            page.wait_for_selector(selector, state=state, timeout=patience)
            return
    raise AssertionError(f"{selector} is not {state}")
