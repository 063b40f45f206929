"""``watch(on=…)`` acts on a finding: it stops after the step, keeps a run, posts a message."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug
from fxdebug.data.findings import Finding
from fxdebug.features.training.actions import _message

CENTRES = 2 * torch.randn(5, 8, generator=torch.Generator().manual_seed(1))


def trained(
    on: Any, save: Path | None = None, steps: int = 30, loss: Callable[[int, Tensor, Tensor], Tensor] | None = None
) -> tuple[int, BaseException | None, fxdebug.api.Watch]:
    """The steps that were made, what was raised, and the watch."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 5))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    made, raised = 0, None
    with warnings.catch_warnings(action="ignore"):
        try:
            with fxdebug.watch(net, save=save, on=on) as watched:
                for step in range(steps):
                    y = torch.randint(0, 5, (32,))
                    out = net(CENTRES[y] + torch.randn(32, 8))
                    (F.cross_entropy(out, y) if loss is None else loss(step, out, y)).backward()
                    made += 1
                    optimizer.step()
                    if loss is not not_cleared:
                        optimizer.zero_grad()
        except fxdebug.api.StopTraining as error:
            raised = error
    return made, raised, watched


def not_cleared(step: int, out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y)


def nan_at_7(step: int, out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y) * (float("nan") if step == 7 else 1.0)


def test_an_error_stops_the_training_after_its_step_and_the_exception_has_the_finding() -> None:
    made, raised, watched = trained({"error": ["stop"]}, loss=nan_at_7)
    assert isinstance(raised, fxdebug.api.StopTraining) and made == 8 and len(watched.steps) == 8
    assert raised.finding.rule == "loss not finite" and "step 7" in str(raised)
    assert [incident.trouble for incident in watched.incidents] == ["loss"]  # the stop is none


def test_a_rule_of_the_verdict_stops_it_too_and_a_healthy_loop_runs_to_its_end() -> None:
    made, raised, _ = trained({"error": ["stop"]}, loss=not_cleared)
    assert isinstance(raised, fxdebug.api.StopTraining) and raised.finding.rule == "not cleared" and made <= 10
    made, raised, watched = trained({"error": ["stop"], "warning": ["stop"]})
    assert (made, raised, watched.verdict().state) == (30, None, "learns")


def test_a_dump_keeps_a_run_of_the_step_that_check_reads(tmp_path: Path) -> None:
    _, raised, watched = trained({"error": ["dump"]}, tmp_path, loss=not_cleared)
    (folder,) = tmp_path.glob("dump-*")
    assert raised is None and fxdebug.load(folder).calls[0].type == "Sequential"
    assert [note.what for note in watched.report().notes if "a run was kept, as not cleared was found" in note.what]


def test_an_action_has_the_number_of_the_step_that_the_report_has(tmp_path: Path) -> None:
    trained({"error": ["dump"]}, tmp_path, loss=nan_at_7)
    assert [one.name for one in tmp_path.glob("dump-*")] == ["dump-7"]


class _Inbox(HTTPServer):
    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Takes)
        self.status = status
        self.bodies: list[dict[str, Any]] = []


class _Takes(BaseHTTPRequestHandler):
    server: _Inbox

    def do_POST(self) -> None:
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(params=[200, 500])
def inbox(request: pytest.FixtureRequest) -> Iterator[_Inbox]:
    server = _Inbox(request.param)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_message_is_posted_once_for_each_rule_and_one_that_is_not_taken_is_a_note(inbox: _Inbox) -> None:
    url = f"http://127.0.0.1:{inbox.server_address[1]}/secret"
    made, raised, watched = trained({"error": [url]}, loss=not_cleared)
    assert (made, raised) == (30, None)
    assert [(one["rule"], one["level"], one["title"].partition(" at")[0]) for one in inbox.bodies] == [
        ("not cleared", "error", "Sequential: not cleared")
    ]
    failed = [note.what for note in watched.report().notes if note.what.startswith("a message to 127.0.0.1")]
    assert len(failed) == (inbox.status == 500) and "secret" not in "".join(failed)


def test_services_that_take_a_text_get_one() -> None:
    finding = Finding("not cleared", "error", "", "#0", "", "it is so", advice="Do that.")
    for host, name in (("hooks.slack.com", "text"), ("discord.com", "content")):
        body = json.loads(_message(f"https://{host}/x", finding, "Net", 5, None))
        assert body == {name: "Net: not cleared at step 5\nit is so. Do that."}


@pytest.mark.parametrize(
    ("on", "told"),
    [
        ({"fatal": ["stop"]}, "a severity is 'error', 'warning' or 'advice'"),
        ({"error": "stop"}, r"give a list of actions, \['stop'\]"),
        ({"error": ["halt"]}, "an action is 'stop', 'dump', or the URL of a webhook"),
        ({"error": ["ftp://host/x"]}, "an action is 'stop', 'dump', or the URL of a webhook"),
        ({"error": ["dump"]}, "needs a folder"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(on: Any, told: str) -> None:
    with pytest.raises(fxdebug.UsageError, match=told):
        fxdebug.watch(nn.Linear(1, 1), save=None, on=on)
