"""`fxdebug serve`, asked with real requests: runs are listed, shown, compared and followed; strangers get nothing."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree, rmtree
from urllib.parse import quote

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.errors import UsageError
from fxdebug.features.serve.runs import runs_in
from fxdebug.features.serve.server import MOST_MAKING, SIDE_BY_SIDE, Server, _Pages
from fxdebug.features.training.saved.training_file import TrainingFile
from fxdebug.store.trace_json import journal
from support.page_data import data_in
from support.serving import serving


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("served") / "runs"
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    fx_debug(model, torch.ones(1, 3), save=root / "first")
    with torch.no_grad():
        model[0].weight.mul_(2)
    fx_debug(model, torch.ones(1, 3), save=root / "deep" / "sécond <b>")
    (root.parent / "outside").mkdir()
    fx_debug(nn.Tanh(), torch.ones(1), save=root.parent / "outside" / "secret")
    (root / "link").symlink_to(root.parent / "outside", target_is_directory=True)
    (root / "damaged").mkdir()
    (root / "damaged" / "trace.json").write_text('{\n"format": "fxdebug-trace",\n')
    return root


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with serving(folder) as running:
        yield running


class Answer:
    def __init__(
        self, server: Server, path: str, *, method: str = "GET", host: str | None = None, cookie: bool = True
    ) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)
        headers = {"Host": host or f"127.0.0.1:{server.port}"}
        if cookie:
            headers["Cookie"] = f"other=1; fxdebug-{server.port}={server.token}"
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        self.status, self.text, self.headers = response.status, response.read().decode(), response.headers
        connection.close()


def address(name: str) -> str:
    return quote(name, safe="")


# Strangers -----------------------------------------------------------------------------------------


def test_it_listens_on_this_machine_only(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"


def test_without_the_token_there_is_nothing(server: Server) -> None:
    for path in ("/", "/run/first", "/revision/first", "/?token=wrong", "/?token="):
        answer = Answer(server, path, cookie=False)
        assert answer.status == 403 and "Linear" not in answer.text and "first" not in answer.text


def test_the_token_moves_from_the_address_to_a_cookie_that_scripts_cannot_read(server: Server) -> None:
    answer = Answer(server, f"/?token={server.token}", cookie=False)
    assert (answer.status, answer.headers["Location"], answer.text) == (303, "/", "")
    expected = f"fxdebug-{server.port}={server.token}; HttpOnly; SameSite=Strict; Path=/"
    assert answer.headers["Set-Cookie"] == expected


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:80", ""])
def test_a_request_under_another_name_is_refused_even_with_the_token(server: Server, host: str) -> None:
    host = host or "x"
    assert Answer(server, "/", host=host).status == 403
    assert Answer(server, f"/?token={server.token}", host=host, cookie=False).status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_it_is_for_reading_only(server: Server, method: str) -> None:
    assert Answer(server, "/", method=method).status == 501


def test_every_answer_forbids_frames_caches_and_guesses(server: Server) -> None:
    for path in ("/", "/run/first", "/nothing"):
        headers = Answer(server, path).headers
        assert headers["X-Frame-Options"] == "DENY" and "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store" and headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Access-Control-Allow-Origin"] is None


OUTSIDE = (
    "..",
    "../outside/secret",
    "/etc",
    "link",
    "link/secret",
    "first/../first",
    "first/trace.json",
    "",
    "%00",
    "nope",
)


@pytest.mark.parametrize("name", OUTSIDE)
def test_only_what_is_listed_can_be_asked_for(server: Server, name: str) -> None:
    for kind in ("run", "revision", "training"):
        assert Answer(server, f"/{kind}/{address(name)}").status == 404
    assert Answer(server, f"/compare?a=first&b={address(name)}").status == 404


# Runs ------------------------------------------------------------------------------------------------


def test_the_runs_below_the_folder_are_listed_the_newest_first(server: Server) -> None:
    text = Answer(server, "/").text
    links = re.findall(r'<a href="/run/([^"]*)">([^<]*)</a></td><td>([^<]*)</td>', text)
    assert links == [
        ("damaged", "damaged", ""),
        (address("deep/sécond <b>"), "deep/sécond &lt;b&gt;", "Sequential"),
        ("first", "first", "Sequential"),
    ]


def test_a_run_is_shown_and_asks_only_this_server(server: Server, folder: Path) -> None:
    answer = Answer(server, f"/run/{address('deep/sécond <b>')}")
    data = data_in(answer.text)
    assert answer.status == 200 and data["runs"][0]["model"] == "Sequential"
    assert data["live"]["url"] == f"/revision/{address('deep/sécond <b>')}"
    assert Answer(server, data["live"]["url"]).text == data["live"]["revision"]
    assert "connect-src 'self'" in answer.text and answer.text.count("http://") == 0


def test_two_runs_are_compared(server: Server) -> None:
    answer = Answer(server, f"/compare?a=first&b={address('deep/sécond <b>')}")
    data = data_in(answer.text)
    assert data["comparison"]["verdict"] == "different" and len(data["runs"]) == 2


def test_a_run_that_is_damaged_says_so(server: Server) -> None:
    answer = Answer(server, "/run/damaged")
    assert answer.status == 422 and "is cut short or damaged" in answer.text


def test_a_run_is_followed_while_it_is_written(folder: Path, tmp_path: Path, server: Server) -> None:
    class Watched(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(Answer(server, "/run/live"))
            revisions.append(Answer(server, "/revision/live").text)
            return x

    seen: list[Answer] = []
    revisions: list[str] = []
    model = nn.Sequential(nn.Linear(2, 2), Watched(), nn.Linear(2, 2), Watched())
    fx_debug(model, torch.ones(1, 2), save=folder / "live")
    runs = [data_in(answer.text)["runs"][0] for answer in seen]
    assert [len(run["calls"]["path"]) for run in runs] == [3, 5]
    assert "this was read while this call ran" in runs[0]["partial"] or "raised Unfinished" in runs[0]["partial"]
    revisions.append(Answer(server, "/revision/live").text)
    assert len(set(revisions)) == 3
    whole = data_in(Answer(server, "/run/live").text)["runs"][0]
    assert whole["partial"] == "" and len(whole["calls"]["path"]) == 5 and whole["hasGraphs"]
    assert not list((folder / "live").glob(f"*/{journal.FILE}"))


def test_the_list_tells_the_living_from_the_dead(folder: Path, server: Server) -> None:
    states: list[str] = []

    class Asks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            states.append(state_of("alive"))
            copytree(folder / "alive", folder / "dead")  # what a killed process leaves: nobody has it open
            states.append(state_of("dead"))
            return x

    def state_of(name: str) -> str:
        row = next(row for row in Answer(server, "/").text.split("<tr>") if f">{name}</a>" in row)
        return re.sub("<[^>]*>", "", row.split("<td>")[-1]).strip()

    fx_debug(nn.Sequential(Asks()), torch.ones(1, 2), save=folder / "alive")
    assert states == ["being written", "its process ended"] and state_of("alive") == ""
    rmtree(folder / "dead")


def test_a_training_of_several_ranks_is_one_entry(folder: Path, server: Server) -> None:
    files = [TrainingFile(folder / "ranks", "Net", 50, rank) for rank in (0, 1)]
    assert runs_in(folder)["ranks"].kind == "training" and runs_in(folder)["ranks"].is_written
    for file in files:
        file.close()
    assert not runs_in(folder)["ranks"].is_written
    assert "<span>2 ranks</span>" in Answer(server, "/").text
    assert Answer(server, "/training/ranks").status == 200
    rmtree(folder / "ranks")


def test_a_watched_training_has_a_page_that_is_followed(folder: Path, server: Server) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with fxdebug.watch(model, optimizer, save=folder / "training"):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 2)).sum().backward()
            optimizer.step()
    answer = Answer(server, "/training/training")
    data = data_in(answer.text)
    assert answer.status == 200 and data["title"] == "Linear"
    titles = [chart["title"] for chart in data["runs"][0]["charts"]]
    assert titles == ["loss", "learning rate", "update/weight", "grad norm", "time"]
    assert data["live"]["revision"] == Answer(server, data["live"]["url"]).text


# The program -----------------------------------------------------------------------------------------


def test_a_folder_or_a_port_that_cannot_be_served_is_refused(tmp_path: Path, server: Server) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        Server(tmp_path / "nothing", 0)
    with pytest.raises(UsageError, match=r"cannot be used .* --port 0"):
        Server(tmp_path, server.port)


@pytest.mark.skipif(sys.platform == "win32", reason="a process group of Windows has no SIGINT")
def test_the_command_prints_its_address_and_stops_on_ctrl_c(folder: Path) -> None:
    command = [sys.executable, "-m", "fxdebug", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        url = process.stdout.readline()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}\n", url)
        assert process.stdout.readline().startswith("shows the runs in ")
        with pytest.raises(urllib.error.HTTPError, match="403"):  # it answers: from now on Ctrl-C ends it
            urllib.request.urlopen(url.partition("?")[0], timeout=100)
        process.send_signal(signal.SIGINT)
        assert process.wait(100) == 0
        assert process.stderr.read() == ""


def test_a_page_that_is_there_is_given_while_others_are_made_once_and_a_few_at_a_time() -> None:
    pages, going, started = _Pages(), threading.Event(), threading.Semaphore(0)
    made: list[str] = []

    def make(name: str) -> str:
        started.release()
        assert going.wait(60)
        made.append(name)
        return name

    assert pages.get(("ready",), lambda: "ready") == "ready"
    with ThreadPoolExecutor(40) as pool:
        asked = [pool.submit(pages.get, (name,), lambda name=name: make(name)) for name in ("a", "b", "c", "a", "b")]
        for _ in range(SIDE_BY_SIDE):
            assert started.acquire(timeout=60)
        assert pages.get(("ready",), lambda: "made again") == "ready"
        assert not started.acquire(blocking=False)
        going.set()
        assert sorted(one.result() for one in asked) == ["a", "a", "b", "b", "c"]
    assert sorted(made) == ["a", "b", "c"]


def test_more_pages_than_may_wait_are_refused() -> None:
    pages, going = _Pages(), threading.Event()
    with ThreadPoolExecutor(MOST_MAKING) as pool:
        asked = [pool.submit(pages.get, (f"{i}",), lambda i=i: f"{going.wait(60)} {i}") for i in range(MOST_MAKING)]
        while len(pages._making) < MOST_MAKING:
            threading.Event().wait(0.01)
        with pytest.raises(Exception, match="too many pages are being made"):
            pages.get(("one more",), lambda: "made")
        going.set()
        assert [one.result() for one in asked] == [f"True {i}" for i in range(MOST_MAKING)]


def test_a_page_that_cannot_be_made_is_tried_anew() -> None:
    pages = _Pages()
    for _ in range(2):
        with pytest.raises(ValueError, match="damaged"):
            pages.get(("a",), lambda: raised(ValueError("damaged")))
    assert pages.get(("a",), lambda: "whole") == "whole"


def raised(error: Exception) -> str:
    raise error
