"""The page of a training as it is now: its state, its verdict, and the events that it follows from a byte on."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.api import steps_since, training_state
from fxdebug.features.serve.live_page import events
from fxdebug.features.serve.server import Server
from fxdebug.features.shared.records.training import StepRecord, TrainingEnd
from fxdebug.features.training.saved.training_file import TrainingFile, read_training
from support.begun import ran
from support.serving import serving


def train(folder: Path, steps: int = 25, rate: float = 0.05, on: Any = None, raises: bool = False) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(net.parameters(), rate)
    with warnings.catch_warnings(action="ignore"), fxdebug.watch(net, save=folder, on=on):
        for _ in range(steps):
            x = torch.randn(16, 4)
            nn.functional.mse_loss(net(x), x.sum(1, keepdim=True)).backward()
            optimizer.step()
            if on is None:
                optimizer.zero_grad()
        if raises:
            raise ZeroDivisionError("planted")


KILLED = """
import os, signal, sys, torch, fxdebug
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
with fxdebug.watch(net, save=sys.argv[1]):
    for _ in range(3):
        net(torch.ones(4, 2)).sum().backward()
        optimizer.step()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_training_is_running_late_finished_raised_stopped_or_killed(tmp_path: Path) -> None:
    states = {}
    train(tmp_path / "finished")
    with pytest.raises(ZeroDivisionError):
        train(tmp_path / "raised", raises=True)
    with pytest.raises(fxdebug.api.StopTraining):
        train(tmp_path / "stopped", on={"error": ["stop"]})
    if sys.platform != "win32":
        ran([sys.executable, "-c", KILLED, str(tmp_path / "killed")])
    for folder in tmp_path.iterdir():
        states[folder.name] = training_state(folder).state
    assert states == {name: name for name in states} and len(states) >= 3
    file = TrainingFile(tmp_path / "open", "Net", 50, None)
    for number in range(3):
        file.add(StepRecord(number, 1.0, 1.0, 0.1))
    changed = file.path.stat().st_mtime
    assert training_state(tmp_path / "open", clock=lambda: changed + 4).state == "running"
    assert training_state(tmp_path / "open", clock=lambda: changed + 6).state == "late"
    file.add(TrainingEnd("finished"))
    file.close()
    assert training_state(tmp_path / "open", clock=lambda: changed + 1e6).state == "finished"


def test_a_training_in_the_same_folder_keeps_the_earlier_ones(tmp_path: Path) -> None:
    for steps in (3, 4, 5):
        train(tmp_path, steps)
    folders = [tmp_path / "earlier-1", tmp_path / "earlier-2", tmp_path]
    assert [len(read_training(folder).steps) for folder in folders] == [3, 4, 5]


def test_steps_are_read_from_a_byte_on_and_only_whole_lines(tmp_path: Path) -> None:
    train(tmp_path, 3)
    path = tmp_path / "training.jsonl"
    steps, incidents, offset = steps_since(tmp_path, 0)
    assert [step[0] for step in steps] == [0, 1, 2] and incidents == [] and offset == path.stat().st_size
    with path.open("ab") as file:
        file.write(b'{"step":[3,0.5,1.0,0.1,[0.05]]}\n{"step":[4,0')
    steps, _, after = steps_since(tmp_path, offset)
    assert steps == [[3, 0.5, 1.0, 0.1, [0.05]]] and after == path.stat().st_size - len('{"step":[4,0')
    assert steps_since(tmp_path, after) == ([], [], after)
    assert len(steps_since(tmp_path, 10**9)[0]) == 4  # a file that began anew


def parsed(stream: Iterator[bytes], count: int) -> list[dict[str, Any]]:
    found = []
    for event in stream:
        fields = dict(line.split(": ", 1) for line in event.decode().strip().split("\n"))
        found.append(fields | {"data": json.loads(fields["data"])})
        if len(found) == count:
            break
    return found


def test_events_have_steps_and_the_state_and_say_where_to_go_on(tmp_path: Path) -> None:
    train(tmp_path)
    clock = itertools.count(0, 0.1).__next__
    steps, state = parsed(events(tmp_path, 0, clock, lambda seconds: None), 2)
    assert steps["event"] == "steps" and len(steps["data"]["steps"]) == 25
    third = steps["data"]["steps"][3]
    assert third[0] == 3 and third[2] == 0.05 and third[3] == read_training(tmp_path).signs[3].update
    assert state["event"] == "state" and state["data"]["state"] == "finished"
    assert state["data"]["sentence"].startswith("it learns: ") and state["data"]["steps"] == 25
    (again,) = parsed(events(tmp_path, int(steps["id"]), clock, lambda seconds: None), 1)
    assert again["event"] == "state"  # no step is sent twice


def test_ten_thousand_steps_are_sent_in_less_than_a_megabyte_and_watched_ones_are_not(tmp_path: Path) -> None:
    file = TrainingFile(tmp_path, "Net", 50, None)
    for number in range(10_000):
        file.add(StepRecord(number, 1.2345678901234567, 0.1234567890123, 0.1, (0.001,)))
    file.close()
    stream = events(tmp_path, 0, itertools.count(0, 0.1).__next__, lambda seconds: None)
    assert len(next(stream)) < 1_000_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path) as running:
        yield running


def asked(server: Server, path: str, cookie: bool = True, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)
    token = {"Cookie": f"fxdebug-{server.port}={server.token}"} if cookie else {}
    connection.request("GET", path, headers={"Host": f"127.0.0.1:{server.port}", **token, **headers})
    return connection.getresponse()


def test_the_list_and_the_page_have_the_state_and_the_verdict(tmp_path: Path, server: Server) -> None:
    train(tmp_path / "a <b>")
    start = asked(server, "/").read().decode()
    assert '<span class="state finished">finished</span>' in start and "<span>25 steps</span>" in start
    assert '<p class="verdict learns">it learns: ' in start and 'href="/now/a%20%3Cb%3E"' in start
    answer = asked(server, "/now/a%20%3Cb%3E")
    page, policy = answer.read().decode(), answer.headers["Content-Security-Policy"]
    assert (
        "<h1>a &lt;b&gt; " in page and '<b id="state" class="finished">finished</b>' in page and "it learns: " in page
    )
    nonce = policy.partition("'nonce-")[2].partition("'")[0]
    assert nonce and f'<script nonce="{nonce}">' in page and page.count("<script") == 1
    assert asked(server, "/now/a%20%3Cb%3E", cookie=False).status == 403


def test_a_browser_follows_a_training_and_goes_on_where_it_was(tmp_path: Path, server: Server) -> None:
    train(tmp_path / "run", 5)
    assert asked(server, "/live/run", cookie=False).status == 403
    answer = asked(server, "/live/run")
    assert answer.headers["Content-Type"] == "text/event-stream"
    lines = [answer.readline().decode().strip() for _ in range(3)]
    assert lines[1] == "event: steps" and len(json.loads(lines[2].partition(": ")[2])["steps"]) == 5
    answer.close()  # and nothing of the server or the training depends on it
    file = tmp_path / "run" / "training.jsonl"
    with file.open("ab") as more:
        more.write(b'{"step":[5,0.5,1.0,0.1,[0.05]]}\n')
    again = asked(server, "/live/run", **{"Last-Event-ID": lines[0].partition(": ")[2]})
    told = [again.readline().decode().strip() for _ in range(3)]
    assert json.loads(told[2].partition(": ")[2]) == {"steps": [[5, 0.5, 0.05, None]], "incidents": []}
    again.close()


def test_viewers_that_come_late_reload_or_are_gone_change_nothing(tmp_path: Path, server: Server) -> None:
    train(tmp_path / "alone", 40)
    stop, failures = threading.Event(), []

    def look() -> None:
        while not stop.is_set():
            try:
                asked(server, "/").read()
                if (tmp_path / "seen" / "training.jsonl").exists():
                    asked(server, "/live/seen").close()  # gone in mid-stream
                    asked(server, "/training/seen").read()
            except Exception as error:
                failures.append(error)

    viewers = [threading.Thread(target=look) for _ in range(2)]
    for one in viewers:
        one.start()
    train(tmp_path / "seen", 40)
    stop.set()
    for one in viewers:
        one.join()
    alone, seen = read_training(tmp_path / "alone"), read_training(tmp_path / "seen")
    assert [(one.loss, one.norm) for one in alone.steps] == [(one.loss, one.norm) for one in seen.steps]
    assert seen.end is not None and len(seen.steps) == 40 and seen.notes == seen.gaps == () and failures == []


def test_a_training_that_goes_away_is_told(tmp_path: Path) -> None:
    train(tmp_path / "run", 2)
    stream = events(tmp_path / "run", 0, itertools.count(0, 0.1).__next__, lambda seconds: None)
    assert b"event: steps" in next(stream)
    os.remove(tmp_path / "run" / "training.jsonl")
    assert b"event: gone" in list(stream)[-1]
