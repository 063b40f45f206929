"""Act on what is found while a training runs: stop it, keep a run of the step, tell a person by a webhook."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from fxdebug.data.findings import ADVICE, ERROR, NOT_LOOKED_AT, WARNING, Finding
from fxdebug.errors import UsageError, first_line

Level: TypeAlias = Literal["error", "warning", "advice"]
Actions: TypeAlias = Mapping[str, Sequence[str]]
STOP, DUMP = "stop", "dump"
SECONDS = 2.0  # that a message may take
_TEXT_ONLY = {"slack": "text", "discord": "content"}  # services that take a text, and its name there


class StopTraining(Exception):
    """A finding stopped a training, as ``watch(on={"error": ["stop"]})`` asks; the optimizer's step is complete.

    ``finding`` is what was found.
    """

    def __init__(self, finding: Finding) -> None:
        super().__init__(f"{finding.what}. {finding.advice}".rstrip())
        self.finding = finding


def checked_actions(on: Mapping[str, Iterable[str]] | None, *, saves: bool) -> dict[str, tuple[str, ...]]:
    """Return the actions of each severity. Raises ``UsageError`` for others than there are."""
    found: dict[str, tuple[str, ...]] = {}
    for level, actions in (on or {}).items():
        if level not in (ERROR, WARNING, ADVICE):
            raise UsageError(f"on={{{level!r}: …}}: a severity is 'error', 'warning' or 'advice'")
        if isinstance(actions, str):
            raise UsageError(f"on={{{level!r}: {actions!r}}}: give a list of actions, [{actions!r}]")
        found[level] = tuple(actions)
        for action in found[level]:
            is_url = isinstance(action, str) and urlsplit(action).scheme in ("http", "https")
            if action not in (STOP, DUMP) and not is_url:
                raise UsageError(
                    f"on={{{level!r}: [{action!r}]}}: an action is 'stop', 'dump', or the URL of a webhook"
                )
            if action == DUMP and not saves:
                raise UsageError("on={…: ['dump']} needs a folder: watch(…, save='runs/train')")
    return found


class Acting:
    """The actions on the findings of one training: each rule has each of its actions once."""

    def __init__(self, actions: Mapping[str, Sequence[str]], model: str, folder: Path | None) -> None:
        self._actions, self._model, self._folder = actions, model, folder
        self._done: set[tuple[str, str]] = set()
        self._threads: list[threading.Thread] = []
        self._failures: list[str] = []

    def due(self, findings: Iterable[Finding]) -> Iterator[tuple[str, Finding]]:
        """Yield the actions that findings ask for now, a stop last; messages are on their way already."""
        stops: list[tuple[str, Finding]] = []
        for finding in findings:
            for action in self._actions.get(finding.severity, ()) if finding.rule != NOT_LOOKED_AT else ():
                if (finding.rule, action) in self._done:
                    continue
                self._done.add((finding.rule, action))
                if action == STOP:
                    stops.append((action, finding))
                else:
                    yield action, finding
        yield from stops[:1]

    def send(self, url: str, finding: Finding, step: int) -> None:
        """Send a message from a thread of its own: the training does not wait for it."""
        body = _message(url, finding, self._model, step, self._folder)
        thread = threading.Thread(target=self._post, args=(url, body), name="fxdebug webhook", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _post(self, url: str, body: bytes) -> None:
        try:
            request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")
            with urllib.request.urlopen(request, timeout=SECONDS):
                return
        except Exception as error:  # the address may have a secret: it is not repeated
            host = urlsplit(url).hostname
            self._failures.append(f"a message to {host} was not taken: {type(error).__name__}: {first_line(error)}")

    def failures(self, *, waits: bool = False) -> list[str]:
        """Return what messages failed since the last call; with ``waits``, after those that are on their way."""
        if waits:
            for thread in self._threads:
                thread.join(SECONDS)
        found, self._failures = self._failures, []
        return found


def _message(url: str, finding: Finding, model: str, step: int, folder: Path | None) -> bytes:
    title = f"{model}: {finding.rule} at step {step}"
    text = f"{finding.what}. {finding.advice}".rstrip()
    host = urlsplit(url).hostname or ""
    name = next((field for service, field in _TEXT_ONLY.items() if service in host.split(".")), None)
    content: dict[str, Any] = {name: f"{title}\n{text}"} if name else {
        "title": title, "text": text, "level": finding.severity, "rule": finding.rule, "run": str(folder or ""),
        "step": step,
    }  # fmt: skip
    return json.dumps(content).encode()
