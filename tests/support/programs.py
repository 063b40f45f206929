"""Other programs, started on files that we wrote: Model Explorer's server and page, Mermaid and speedscope in pages.

``make programs`` installs them into the folder ``.programs``. A test of one that is not there is skipped.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parents[2] / ".programs"
PATIENCE = 100_000  # milliseconds: what never comes fails, a busy machine only takes longer
_ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
    "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--allow-file-access-from-files",
)  # fmt: skip


def installed(*parts: str) -> Path:
    """The place of a program in ``.programs``; skips the test where it is not there."""
    place = PROGRAMS.joinpath(*parts)
    if not place.exists():
        pytest.skip(f"{'/'.join(parts)} is not installed: make programs")
    return place


@contextlib.contextmanager
def chromium(width: int = 1400, height: int = 900) -> Iterator[Any]:
    """A page of a chromium without a window; skips the test where there is none."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not installed")
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser, args=list(_ARGUMENTS))
        try:
            page = opened.new_page(viewport={"width": width, "height": height})
            page.set_default_timeout(PATIENCE)
            yield page
        finally:
            opened.close()


@contextlib.contextmanager
def model_explorer(graph: Path, overlays: Sequence[Path] = ()) -> Iterator[str]:
    """The address of Model Explorer's server with a graph and its overlays."""
    program = installed("bin", "model-explorer")
    server, port = _started([str(program), str(graph), "--no_open_in_browser", "--skip_health_check"])
    try:
        data = {"models": [{"url": str(graph)}], "nodeData": [str(one) for one in overlays]}
        data["nodeDataTargets"] = [""] * len(overlays)
        yield f"http://127.0.0.1:{port}/?data={urllib.parse.quote(json.dumps(data))}"
    finally:
        server.terminate()
        server.wait()


def with_panes(address: str, *panes: tuple[str, str, str]) -> str:
    """The same address with panes open: of a graph, down to a layer, with a node selected."""
    base, _, text = address.partition("?data=")
    states = [
        {
            "deepestExpandedGroupNodeIds": [layer] if layer else [], "selectedNodeId": node, "selectedGraphId": graph,
            "selectedCollectionLabel": "", "widthFraction": 1 / len(panes),
        }
        for graph, layer, node in panes
    ]  # fmt: skip
    data = json.loads(urllib.parse.unquote(text)) | {"uiState": {"paneStates": states}}
    return f"{base}?data={urllib.parse.quote(json.dumps(data))}"


def _started(command: list[str]) -> tuple[subprocess.Popen[bytes], int]:
    """Start a server on a free port, and wait until it listens; once more where another process took the port."""
    for _ in range(5):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(PATIENCE // 200):
            if server.poll() is not None:
                break
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return server, port
            time.sleep(0.2)
        server.kill()
        server.wait()
    raise TimeoutError(f"{command[0]} does not listen")


def drawn_by_mermaid(page: Any, text: str) -> str:
    """The SVG that Mermaid draws in a page with its default limits; fails as Mermaid does."""
    script = installed("node_modules", "mermaid", "dist", "mermaid.min.js")
    page.goto("about:blank")
    page.set_content('<div id="here"></div>')
    page.add_script_tag(path=str(script))
    draw = """async text => {
        mermaid.initialize({startOnLoad: false});
        const {svg} = await mermaid.render('drawn', text);
        document.getElementById('here').innerHTML = svg;
        return svg;
    }"""
    svg: str = page.evaluate(draw, text)
    return svg


def open_speedscope(page: Any, file: Path) -> None:
    """Open a profile in speedscope's own page."""
    release = installed("node_modules", "speedscope", "dist", "release")
    page.goto((release / "index.html").as_uri())
    page.set_input_files("input[type=file]", str(file))
