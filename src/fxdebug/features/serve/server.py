"""The server: this machine only, with a token, for reading only.

Every request must name this machine as its host, so that no page of another site can reach the server under a name of
its own (DNS rebinding), and must bring the token: the first one in its address, later ones in a cookie. Nothing but
the runs of the list can be asked for, and nothing is written.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from fxdebug import api
from fxdebug.errors import FxDebugError, UsageError
from fxdebug.exports.report.html import report_page
from fxdebug.features.serve import live_page
from fxdebug.features.serve.runs import RunEntry, run_in, runs_in, steps_kept
from fxdebug.features.serve.start_page import POLICY, message_page, start_page
from fxdebug.plugins.feature import OURS
from fxdebug.plugins.features import feature_of, folder_kinds, part
from fxdebug.plugins.given import Card, Folder
from fxdebug.plugins.installed import FAILURES
from fxdebug.version import __version__

ADDRESS = "127.0.0.1"
KEPT = 4  # pages that are kept until their runs change
MOST_STATES, MOST_STREAMS = 20, 16  # trainings whose card the list has; pages that follow one
SIDE_BY_SIDE, MOST_MAKING = 2, 16  # pages that are made at a time; those and the ones that wait
_MOST_PORT = 65_535
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Server(ThreadingHTTPServer):
    """Serves the runs of a folder; ``url`` has the token. Raises ``UsageError`` for a folder or port it cannot use."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, folder: Path, port: int = 8080) -> None:
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder: give the one that your runs are in")
        if not 0 <= port <= _MOST_PORT:
            raise UsageError(f"{port} is no port: give one from 0 (any free one) to {_MOST_PORT}")
        self.folder = folder.resolve()
        self.token = secrets.token_urlsafe(24)
        self.pages = _Pages()
        self.cards = _Cards()
        self.streams = threading.Semaphore(MOST_STREAMS)
        self._is_over = threading.Event()
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            raise UsageError(
                f"port {port} cannot be used ({error.strerror}): give another one, --port 0 any free one"
            ) from None

    def rest(self, seconds: float) -> None:
        """Wait, at most until the server is closed. Raises ``OSError`` then."""
        if self._is_over.wait(seconds):
            raise OSError("the server is closed")

    def server_close(self) -> None:
        """Close the server, and the streams that follow trainings."""
        self._is_over.set()
        super().server_close()

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """The address to open, with the token."""
        return f"http://{ADDRESS}:{self.port}/?token={self.token}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of this server that a request may give."""
        return f"{ADDRESS}:{self.port}", f"localhost:{self.port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Do nothing: a browser that closes a connection early is no error."""


class _Cards:
    """The cards of the newest folders that features read, by their revision."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, Card]] = {}

    def of(self, runs: Iterable[RunEntry]) -> dict[str, Card]:
        found: dict[str, tuple[str, Card]] = {}
        for one in [one for one in runs if one.has_card][:MOST_STATES]:
            known = self._known.get(one.name)
            if known is not None and known[0] == one.revision and not known[1].moves:
                found[one.name] = known
                continue
            feature = feature_of(one.kind)
            make = None if feature is None else part(feature, feature.card)
            with suppress(FxDebugError, *(() if feature is None or feature.package == OURS else FAILURES)):
                if make is not None:
                    found[one.name] = (one.revision, make(one.path))
        self._known = found
        return {name: card for name, (_, card) in found.items()}


class _Pages:
    """The pages that were made last, by what they show and its revision.

    A page that is there is given at once. Each is made once, whoever asks for it meanwhile. A few are made side by
    side, and some may wait.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, ...], str] = OrderedDict()
        self._making: dict[tuple[str, ...], Future[str]] = {}
        self._lock = threading.Lock()
        self._places = threading.Semaphore(SIDE_BY_SIDE)

    def get(self, key: tuple[str, ...], make: Callable[[], str]) -> str:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            made = self._making.get(key)
            if made is not None:
                mine = False
            elif len(self._making) >= MOST_MAKING:
                raise _Refused(503, "too many pages are being made: ask again when some of them are done")
            else:
                made, mine = Future(), True
                self._making[key] = made
        return self._make(key, made, make) if mine else made.result()

    def _make(self, key: tuple[str, ...], made: Future[str], make: Callable[[], str]) -> str:
        try:
            with self._places:
                text = make()
        except BaseException as error:
            with self._lock:
                del self._making[key]
            made.set_exception(error)
            raise
        with self._lock:
            self._kept[key] = text
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            del self._making[key]
        made.set_result(text)
        return text


class _Refused(Exception):
    """A request that is not answered, with its status and a sentence."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = f"fxdebug/{__version__}"
    sys_version = ""
    timeout = 30
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        try:
            answer = self._answer()
        except _Refused as refused:
            self._send(refused.status, message_page("Not here", str(refused)), POLICY)
            return
        except FxDebugError as error:
            self._send(422, message_page("This run cannot be shown", str(error)), POLICY)
            return
        if answer is not None:
            self._send(200, *answer)

    def _answer(self) -> tuple[str, str] | None:
        """Return the text and the policy of the answer; ``None`` where it is sent already."""
        if self.headers.get("Host", "") not in self.server.hosts:
            raise _Refused(403, f"this server answers at {self.server.hosts[0]} only")
        address = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(address.query).items()}
        if hmac.compare_digest(asked.get("token", "").encode(), self.server.token.encode()):
            self._send_home()
            return None
        if not self._has_cookie():
            raise _Refused(403, "open the address that fxdebug serve printed: it has the token")
        kind, _, name = address.path.strip("/").partition("/")
        if not kind:
            runs = runs_in(self.server.folder)
            return start_page(self.server.folder, runs, self.server.cards.of(runs.values())), POLICY
        if kind == "compare":
            return self._compared(asked.get("a", ""), asked.get("b", "")), ""
        if kind == "run":
            return self._run(self._entry(unquote(name))), ""
        if kind == "revision":
            return self._entry(unquote(name)).revision, POLICY
        if kind == "training":
            return self._training(self._entry(unquote(name))), ""
        if kind == "trainings":
            return self._overlaid(parse_qs(address.query).get("run", [])), ""
        if kind == "now":
            return self._now(self._entry(unquote(name)))
        if kind == "live":
            self._stream(self._entry(unquote(name)))
            return None
        raise _Refused(404, "there is no such page")

    def _entry(self, name: str) -> RunEntry:
        entry = run_in(self.server.folder, name)
        if entry is None:
            raise _Refused(404, f"there is no run {name[:200]!r} in this folder")
        return entry

    def _run(self, entry: RunEntry) -> str:
        return self.server.pages.get(
            ("run", entry.name, entry.revision), lambda: api.page_of(api.load(entry.path), live=self._live(entry))
        )

    def _live(self, entry: RunEntry) -> dict[str, Any]:
        return {"revision": entry.revision, "url": f"/revision/{quote(entry.name, safe='')}"}

    def _compared(self, a: str, b: str) -> str:
        one, other = self._entry(a), self._entry(b)
        key = ("compare", one.name, one.revision, other.name, other.revision)
        return self.server.pages.get(key, lambda: api.page_of(api.compare(api.load(one.path), api.load(other.path))))

    def _training(self, entry: RunEntry) -> str:
        def make() -> str:
            kept = steps_kept(entry, runs_in(self.server.folder))
            runs = [(step, f"/run/{quote(one.name, safe='')}") for step, one in kept]
            page = self._kind(entry).page
            if page is None:
                return report_page(api.check(entry.path))
            return page(entry.path, self._live(entry) | {"runs": runs})

        return self.server.pages.get(("training", entry.name, entry.revision), make)

    def _kind(self, entry: RunEntry) -> Folder:
        kind = next((kind for feature, kind in folder_kinds() if feature.name == entry.kind), None)
        if kind is None:
            raise _Refused(404, f"{entry.name[:200]!r} is a run, not a training")
        return kind

    def _overlaid(self, names: list[str]) -> str:
        entries = [self._entry(name) for name in dict.fromkeys(names)]
        key = ("trainings", *[part for one in entries for part in (one.name, one.revision)])
        followed = next((one for one in entries if one.is_written), entries[0]) if entries else None
        live = None if followed is None else self._live(followed)
        kinds = {entry.kind for entry in entries[:1]}
        lay_over = next((kind.pages for one, kind in folder_kinds() if kind.pages and {one.name} >= kinds), None)
        if lay_over is None:
            raise _Refused(404, "choose two or more trainings to lay over each other")
        return self.server.pages.get(key, lambda: lay_over({one.name: one.path for one in entries}, live))

    def _now(self, entry: RunEntry) -> tuple[str, str]:
        nonce = secrets.token_urlsafe(12)
        kept = [run.name for _, run in steps_kept(entry, runs_in(self.server.folder))]
        page = live_page.live_page(entry.name, api.training_state(entry.path), nonce, kept)
        return page, live_page.POLICY.format(nonce=nonce)

    def _stream(self, entry: RunEntry) -> None:
        """Send what is written to a training, until the browser is gone; it asks again from where it was."""
        asked = self.headers.get("Last-Event-ID", "0")
        if not self.server.streams.acquire(blocking=False):
            raise _Refused(503, "too many pages follow trainings: close some of them")
        try:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.close_connection = True
            self._end()
            offset = int(asked) if asked.isdecimal() and len(asked) < 16 else 0
            for event in live_page.events(entry.path, offset, live_page.now, self.server.rest):
                self.wfile.write(event)
        except OSError:
            pass  # the browser is gone
        finally:
            self.server.streams.release()

    # Tokens and answers ----------------------------------------------------------------------------

    def _cookie(self) -> str:
        return f"fxdebug-{self.server.port}"  # cookies of one host are shared by all its ports

    def _has_cookie(self) -> bool:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(self._cookie())
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value.encode(), self.server.token.encode())

    def _send_home(self) -> None:
        """Keep the token in a cookie, and out of the address: addresses are shared."""
        self.send_response(303)
        self.send_header("Location", urlsplit(self.path).path if self.path.startswith("/?") else "/")
        self.send_header("Set-Cookie", f"{self._cookie()}={self.server.token}; HttpOnly; SameSite=Strict; Path=/")
        self.send_header("Content-Length", "0")
        self._end()

    def _send(self, status: int, text: str, policy: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        self.send_response(status)
        self.send_header(
            "Content-Type", "text/html; charset=utf-8" if text.startswith("<") else "text/plain; charset=utf-8"
        )
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Security-Policy", policy or "frame-ancestors 'none'")  # a run's page has its own too
        self._end()
        self.wfile.write(data)

    def _end(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing: the terminal belongs to the person who started the server."""
