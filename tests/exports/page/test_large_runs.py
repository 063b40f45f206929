"""Pages of large runs: what the first picture, opening and moving take in a browser without a GPU.

Times are those of processors, not of the clock, and the bars wide: other programs take caches and share cores.
``make bench-page`` measures the same at 100,000 operations, with the bars that are promised.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug import Trace
from support.many_operations import Steps

Page = Any
Open = Callable[..., Page]

FIRST_PICTURE = 5 * 0.75  # seconds; 1.5 are promised at 100,000 operations
OPENING = 5 * 0.05  # seconds
FRAMES = 30 / 5  # a second


class Branches(nn.Module):
    """Fifty branches of different operations, side by side, and their sum."""

    def forward(self, x: Tensor) -> Tensor:
        total = x
        for seed in range(50):
            choose, branch = random.Random(seed), x
            for _ in range(42):
                branch = choose.choice((torch.tanh, torch.relu, torch.sin, torch.cos, torch.abs))(branch)
            total = total + branch
        return total


@pytest.fixture(scope="module")
def many() -> Trace:
    """10,000 operations in a hundred modules of ten groups."""
    with torch.no_grad():
        model = nn.Sequential(*[nn.Sequential(*[Steps() for _ in range(10)]) for _ in range(10)])
        return fxdebug.fx_debug(model, torch.randn(2, 4))


@pytest.fixture(scope="module")
def wide() -> Trace:
    with torch.no_grad():
        return fxdebug.fx_debug(Branches(), torch.randn(2, 4))


def main_thread(session: Any) -> float:
    """Return the seconds that the page's main thread has worked."""
    return {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}["TaskDuration"]


def session_of(page: Page) -> Any:
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    return session


def processes(browser: Any) -> dict[int, float]:
    """Return the seconds that each process of the browser has worked: that of the page, that of the screen."""
    session = browser.new_browser_cdp_session()
    found = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    return {one["id"]: one["cpuTime"] for one in found}


def busiest(browser: Any, before: dict[int, float]) -> float:
    return max(now - before.get(process, 0) for process, now in processes(browser).items())


def test_the_first_picture_of_ten_thousand_operations_comes_at_once(many: Trace, browser: Any, open_page: Open) -> None:
    before = processes(browser)
    page = open_page(many, check=False)
    page.evaluate("fxdebug.settle()")
    took = busiest(browser, before)
    assert page.evaluate("fxdebug.payload.run.data.steps.value.length") > 10_000
    assert page.evaluate("fxdebug.layout().items") > 0
    assert took <= FIRST_PICTURE


def test_any_module_opens_at_once(many: Trace, open_page: Open) -> None:
    page = open_page(many, check=False)
    session = session_of(page)
    page.evaluate("fxdebug.settle()")
    times = {}
    for path in ("0", "5.3", "9.9", "9.9.mix"):
        before = main_thread(session)
        page.evaluate("path => { fxdebug.open(path); return fxdebug.settle(); }", path)
        times[path] = main_thread(session) - before
        assert page.evaluate("path => fxdebug.where(path).open", path)
    assert max(times.values()) <= OPENING, times


def test_moving_over_two_thousand_boxes_is_smooth(wide: Trace, browser: Any, open_page: Open) -> None:
    page = open_page(wide, check=False)
    page.evaluate("fxdebug.fit()")
    page.evaluate("fxdebug.settle()")
    before = processes(browser)
    frames, boxes = page.evaluate(
        """async () => {
            const canvas = document.querySelector(".graph canvas"), before = fxdebug.layout().frames;
            let fewest = Infinity;
            for (let k = 0; k < 60; k++) {
                const step = { deltaX: k % 20 < 10 ? 2 : -2, deltaY: k % 10 < 5 ? 3 : -3, cancelable: true };
                canvas.dispatchEvent(new WheelEvent("wheel", step));
                await new Promise(done => requestAnimationFrame(done));
                const { boxes, items } = fxdebug.layout();
                fewest = Math.min(fewest, boxes + items);
            }
            return [fxdebug.layout().frames - before, fewest];
        }"""
    )
    took = busiest(browser, before)
    assert boxes >= 2000
    assert frames >= 50
    assert took / frames <= 1 / FRAMES
