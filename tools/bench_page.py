"""Size and times of the page in a browser, beside similar tools on the same models: ``make bench-page``.

Times are of the browser's main thread (the tasks that Chrome's DevTools protocol counts), so that other programs on the
machine disturb them little; the least of some repetitions. ``--peers`` is a folder with torchvista and
ai-edge-model-explorer. ``--write`` puts the tables into docs/page.md. Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch
from playwright.sync_api import Browser, Error, sync_playwright

import fxdebug
import page_samples

DOCS = Path(__file__).resolve().parent.parent / "docs"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
NAMES = {
    "lenet": "LeNet", "minilm": "all-MiniLM-L6-v2", "gpt2": "GPT-2, 12 layers", "mlp500": "500 linear layers",
    "operations10k": "10,000 operations", "operations100k": "100,000 operations",
}  # fmt: skip
FEW = ("lenet", "minilm", "gpt2", "mlp500")  # small enough for the other tools
PATIENCE = 60.0  # seconds for one picture of another tool


@dataclass(frozen=True)
class Bar:
    """The most milliseconds of the main thread: first picture, opening a module, a keystroke, a frame while panning."""

    first: float
    opening: float
    keystroke: float
    frame: float


BARS = {"operations10k": Bar(300, 10, 6, 33), "operations100k": Bar(1_500, 50, 30, 33)}


@dataclass
class Result:
    """What was measured of one model: KB, seconds in Python, milliseconds in the browser."""

    name: str
    operations: int
    kilobytes: float
    writing: float
    first: float
    opening: float
    keystroke: float
    frame: float


class Watched:
    """A page whose tasks on the main thread are timed from the beginning."""

    def __init__(self, browser: Browser, **options: Any) -> None:
        self._context = browser.new_context(viewport={"width": 1280, "height": 800}, **options)
        self.page = self._context.new_page()
        self._session = self._context.new_cdp_session(self.page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})  # of the processor, not of the clock

    def milliseconds(self) -> float:
        """Return the milliseconds of processor time of all tasks so far."""
        metrics = {one["name"]: one["value"] for one in self._session.send("Performance.getMetrics")["metrics"]}
        return float(metrics["TaskDuration"]) * 1e3

    def close(self) -> None:
        self._context.close()


_OPENING = """async () => {
  const run = fxdebug.payload.run, times = [];
  const seen = new Set(), calls = [];
  for (let call = 1; call < run.callCount && calls.length < 8; call++) {
    const body = run.data.calls.body[call];
    if (run.hasChildren(call) || body >= 0 && run.body(call).items.length > 2) if (!seen.has(run.path(call))) {
      seen.add(run.path(call)); calls.push(call);
    }
  }
  for (const call of calls) {
    fxdebug.open(call); await fxdebug.settle();
    const { layoutMs, drawMs } = fxdebug.layout(); times.push(layoutMs + drawMs);
  }
  return Math.max(0, ...times);
}"""
_TYPED = ("t", "ta", "tan", "tanh", "tanh x", "absmax > 0.5", "input.absmax > 0.5", "")
_TYPE = """text => {
  const field = document.querySelector("[role=combobox]");
  field.value = text; field.dispatchEvent(new Event("input", { bubbles: true }));
}"""
_FRAME = """async () => {
  const canvas = document.querySelector("canvas"), times = [];
  for (let i = 0; i < 40; i++) {
    canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: i % 20 < 10 ? 60 : -60, bubbles: true, cancelable: true,
      clientX: 640, clientY: 400 }));
    await new Promise(requestAnimationFrame);
    await new Promise((done) => setTimeout(done));
    times.push(fxdebug.layout().drawMs);
  }
  return times.sort((a, b) => a - b)[20];
}"""


def ours(browser: Browser, name: str, folder: Path, repeats: int) -> Result:
    """Write the page of a model and measure it."""
    trace = trace_of(name)
    operations = len(trace.ops())
    began = time.process_time()
    path = trace.export(folder / f"{name}.html")
    writing = time.process_time() - began
    times: list[tuple[float, float, float, float]] = []
    for _ in range(repeats):
        watched = Watched(browser, reduced_motion="reduce", offline=True)
        page = watched.page
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        page.evaluate("fxdebug.settle()")
        first = watched.milliseconds()
        times.append((first, page.evaluate(_OPENING), keystroke(watched), page.evaluate(_FRAME)))
        watched.close()
    least = [min(column) for column in zip(*times)]
    return Result(NAMES[name], operations, path.stat().st_size / 1024, writing, *least)


def keystroke(watched: Watched) -> float:
    """Return the most milliseconds that a text in the search field takes, after it has been focused."""
    page, times = watched.page, []
    page.focus("[role=combobox]")
    page.evaluate("fxdebug.settle()")
    for text in _TYPED:
        before = watched.milliseconds()
        page.evaluate(_TYPE, text)
        times.append(watched.milliseconds() - before)
        page.evaluate("fxdebug.settle()")
    return max(times)


def lenet() -> page_samples.Given:
    nn = torch.nn
    layers = (nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2))
    head = (nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    return nn.Sequential(*layers, *head), torch.randn(1, 1, 32, 32)


def trace_of(name: str) -> fxdebug.Trace:
    if name != "lenet":
        return page_samples.trace_of(name)
    model, inputs = lenet()
    with torch.no_grad():
        return fxdebug.fx_debug(model, inputs)


# Other tools ---------------------------------------------------------------------------------------


def torchvista(browser: Browser, name: str, folder: Path) -> tuple[float, float]:
    """Return KB and milliseconds until the first picture of torchvista's page."""
    from torchvista import trace_model

    model, inputs = (lenet if name == "lenet" else page_samples.MODELS[name])()
    path = folder / f"{name}-torchvista.html"
    given = next(iter(inputs.values())) if isinstance(inputs, dict) else inputs  # it passes one input on
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            trace_model(model, given, export_path=str(path))
    except RecursionError:
        return math.nan, math.nan
    return path.stat().st_size / 1024, _first_picture(browser, path.as_uri(), "svg g g")


def model_explorer(browser: Browser, name: str, folder: Path, server: str) -> tuple[float, float]:
    """Return KB of the graph's file and milliseconds until Model Explorer's first picture of it."""
    path = folder / f"{name}-explorer.json"
    path.write_text(json.dumps(explorer_graph(trace_of(name))), encoding="utf-8")
    asked = quote(json.dumps({"models": [{"url": str(path)}]}))
    return path.stat().st_size / 1024, _first_picture(browser, f"{server}/?data={asked}", "canvas")


@contextlib.contextmanager
def explorer_server(peers: Path) -> Iterator[str]:
    """Run Model Explorer's server, and return its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "model_explorer",
        "--no_open_in_browser",
        "--skip_health_check",
        "--port",
        str(port),
    ]
    environment = {**os.environ, "PYTHONPATH": str(peers.resolve())}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as process:
        try:
            for _ in range(600):
                time.sleep(0.1)
                with contextlib.suppress(OSError), socket.create_connection(("localhost", port), 1):
                    break
            yield f"http://localhost:{port}"
        finally:
            process.kill()


def explorer_graph(trace: fxdebug.Trace) -> list[dict[str, Any]]:
    """Return the operations of a run as a graph of Model Explorer, module paths as namespaces."""
    graph = trace.graph_at()
    nodes = []
    for id, facts in graph.nodes(data=True):
        path = str(facts.get("path", "")).replace(".", "/")
        edges = [
            {"sourceNodeId": source, "sourceNodeOutputId": "0", "targetNodeInputId": str(i)}
            for i, (source, _) in enumerate(graph.in_edges(id))
        ]
        nodes.append({"id": id, "label": str(facts.get("op", id)), "namespace": path, "incomingEdges": edges})
    return [{"id": trace.model, "nodes": nodes}]


def _first_picture(browser: Browser, url: str, selector: str) -> float:
    """Return the milliseconds until a page has drawn something and is at rest."""
    watched = Watched(browser)
    try:
        watched.page.goto(url)
        watched.page.wait_for_selector(selector, state="attached", timeout=PATIENCE * 1e3)
        before = -1.0
        while (now := watched.milliseconds()) > before + 5:
            before = now
            watched.page.wait_for_timeout(1_000)
        return now
    except Error:
        return math.inf
    finally:
        watched.close()


# Tables ----------------------------------------------------------------------------------------------


def tables(results: list[Result], peers: dict[str, dict[str, tuple[float, float]]]) -> tuple[str, str]:
    """Return the rows on sizes, and the table of times."""
    sizes = "\n".join(f"| {one.name} | {one.operations:,} | {one.kilobytes:.0f} KB |" for one in results)
    names = list(peers)
    heads = ["run", "first picture", "open a module", "keystroke", "frame", "written in"]
    heads += [f"{name}: first picture, size" for name in names]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for one in results:
        cells = [one.name, *(f"{ms:.0f} ms" for ms in (one.first, one.opening, one.keystroke, one.frame))]
        cells.append(f"{one.writing:.1f} s")
        for name in names:
            size, first = peers[name].get(one.name, (math.nan, math.nan))
            left_out = "fails" if one.name in peers[name] else ""
            cells.append(left_out if math.isnan(size) else f"{_milliseconds(first)}, {size:,.0f} KB")
        lines.append("| " + " | ".join(cells) + " |")
    return sizes, "\n".join(lines)


def _milliseconds(number: float) -> str:
    return f"over {PATIENCE:.0f} s" if math.isinf(number) else f"{number:,.0f} ms"


def missed(name: str, one: Result) -> list[str]:
    """Return the bars that a model misses."""
    bar = BARS.get(name)
    if bar is None:
        return []
    pairs = {"first": one.first, "opening": one.opening, "keystroke": one.keystroke, "frame": one.frame}
    return [
        f"{one.name}: {what} {ms:.0f} ms, the bar is {getattr(bar, what):.0f} ms"
        for what, ms in pairs.items()
        if ms > getattr(bar, what)
    ]


def written(sizes: str, times: str) -> None:
    """Put the tables into the docs, between their headings."""
    path = DOCS / "page.md"
    text = path.read_text(encoding="utf-8")
    head, mark, rest = text.partition("| run | operations | page |\n|---|---|---|\n")
    after = rest[rest.index("\n\n`make bench-page`") :]
    sentence, _, tail = after.partition(":\n\n|")
    tail = tail[tail.index("\n\nA page holds names") :]
    path.write_text(head + mark + sizes + sentence + ":\n\n" + times + tail, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"models, of {', '.join(NAMES)}")
    parser.add_argument("--peers", type=Path, help="the folder with torchvista")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/page.md")
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("no chromium on the PATH: apt-get install chromium", file=sys.stderr)
        return 1
    torch.set_num_threads(1)
    if options.peers:
        sys.path.append(str(options.peers.resolve()))
    names = options.names or list(NAMES)
    results: list[Result] = []
    peers: dict[str, dict[str, tuple[float, float]]] = {}
    failures: list[str] = []
    with contextlib.ExitStack() as stack:
        driver, folder = stack.enter_context(sync_playwright()), stack.enter_context(tempfile.TemporaryDirectory())
        explorer = stack.enter_context(explorer_server(options.peers)) if options.peers else ""
        browser = driver.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        for name in names:
            one = ours(browser, name, Path(folder), options.repeats)
            results.append(one)
            print(one, flush=True)
            failures += missed(name, one)
            if options.peers and name in FEW:
                peers.setdefault("torchvista", {})[one.name] = torchvista(browser, name, Path(folder))
                peers.setdefault("Model Explorer", {})[one.name] = model_explorer(browser, name, Path(folder), explorer)
                print({tool: found[one.name] for tool, found in peers.items()}, flush=True)
        browser.close()
    sizes, times = tables(results, peers)
    print(f"\n{sizes}\n\n{times}")
    if options.write:
        written(sizes, times)
    print(*failures, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
