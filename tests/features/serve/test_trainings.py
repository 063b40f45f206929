"""Trainings in `fxdebug serve`: cards with the runs that they kept, several over each other, clicks on the map."""

from __future__ import annotations

import http.client
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.features.serve.runs import runs_in, steps_kept
from fxdebug.features.serve.server import Server
from fxdebug.features.training.overlay import SettingRow, trainings_report
from fxdebug.features.training.saved.training_file import read_training
from support.page_data import data_in
from support.serving import serving


def train(folder: Path, rate: float = 0.05, batch: int = 16, adam: bool = False, poison: int = -1) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer: Any = torch.optim.Adam(net.parameters(), rate) if adam else torch.optim.SGD(net.parameters(), rate)
    with warnings.catch_warnings(action="ignore"), fxdebug.watch(net, every=5, save=folder):
        for step in range(25):
            x = torch.randn(batch, 4)
            loss = nn.functional.mse_loss(net(x), x.sum(1, keepdim=True)) * (float("nan") if step == poison else 1)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("trainings")
    train(root / "base")
    train(root / "base")  # leaves earlier-1
    train(root / "wide batch", batch=32)
    train(root / "adam", rate=0.01, adam=True)
    train(root / "poisoned", poison=12)
    return root


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with serving(folder) as running:
        yield running


def got(server: Server, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)
    token = {"Cookie": f"fxdebug-{server.port}={server.token}", "Host": f"127.0.0.1:{server.port}"}
    connection.request("GET", path, headers=token)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_a_card_has_the_runs_and_the_earlier_trainings_of_its_folder(folder: Path, server: Server) -> None:
    _, start = got(server, "/")
    cards = {re.findall(r'href="/training/([^"]*)"', card)[0]: card for card in start.split("<article")[1:]}
    assert set(cards) == {"base", "wide%20batch", "adam", "poisoned"}
    assert 'href="/run/poisoned%2Fstep-12">step-12</a>' in cards["poisoned"] and "verdict fault" in cards["poisoned"]
    assert 'href="/training/base%2Fearlier-1">earlier-1</a>' in cards["base"]
    now = got(server, "/now/poisoned")[1]
    assert 'Runs that were kept: <a href="/run/poisoned%2Fstep-12">step-12</a>' in now
    assert "Runs that were kept" not in got(server, "/now/base")[1]
    runs = runs_in(folder)
    assert [(step, one.name) for step, one in steps_kept(runs["poisoned"], runs)] == [(12, "poisoned/step-12")]
    assert steps_kept(runs["base"], runs) == []


def test_trainings_over_each_other_have_their_curves_and_what_differs(server: Server) -> None:
    status, text = got(server, "/trainings?run=base&run=wide%20batch&run=adam")
    run = data_in(text)["runs"][0]
    assert status == 200 and run["model"] == "base, wide batch, adam"
    assert [(one["title"], one["names"]) for one in run["charts"]] == [
        (title, ["base", "wide batch", "adam"]) for title in ("loss", "grad norm", "learning rate")
    ]
    (report,) = run["reports"]
    assert [one["heading"] for one in report["columns"]] == ["", "base", "wide batch", "adam"]
    rows = {row[0]: row[1:] for row in report["rows"]}
    differing = {name: rows[name] for name in list(rows)[: list(rows).index("steps")]}
    assert differing == {
        "optimizer": ["SGD", "SGD", "Adam"],
        "learning rate": ["0.05", "0.05", "0.01"],
        "batch": ["16", "32", "16"],
    }
    assert rows["steps"] == ["25"] * 3 and rows["verdict"][0] == "learns"
    assert "loss mse_loss (mean)" in report["notes"][0]["what"]


def test_settings_of_one_kind_of_optimizer_are_told_where_they_differ(tmp_path: Path) -> None:
    records = {}
    for momentum in (0.0, 0.9):
        net = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=momentum)
        with fxdebug.watch(net, save=tmp_path / str(momentum)):
            nn.functional.mse_loss(net(torch.ones(8, 4)), torch.ones(8, 1)).backward()
            optimizer.step()
        records[str(momentum)] = read_training(tmp_path / str(momentum))
    report = trainings_report(records)
    assert report.rows[0] == SettingRow("optimizer momentum", "0.0", "0.9")
    assert report.rows[1].setting == "steps" and "optimizer SGD" in report.notes[0].what


def test_settings_that_changed_no_loss_are_told_and_equal_ones_are_not(tmp_path: Path) -> None:
    records = {}
    for name, drops in (("first", ()), ("again", ()), ("drops", (nn.Dropout(0.5),))):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), *drops, nn.Linear(8, 1)).eval()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        with fxdebug.watch(net, save=tmp_path / name):
            for _ in range(12):
                x = torch.randn(8, 4)
                nn.functional.mse_loss(net(x), x[:, :1]).backward()
                optimizer.step()
                optimizer.zero_grad()
        records[name] = read_training(tmp_path / name)
    told = [finding.what for finding in trainings_report(records).findings]
    assert told == [
        f"drops: the losses of all 12 steps equal those of {name} to the last bit, although dropouts 0 → 1 differs: "
        "what was changed has no effect"
        for name in ("first", "again")
    ]


def test_of_equal_settings_it_is_said_that_nothing_differs(server: Server) -> None:
    report = data_in(got(server, "/trainings?run=base&run=base%2Fearlier-1")[1])["runs"][0]["reports"][0]
    assert report["rows"][0][0] == "steps"
    assert report["notes"][0]["what"].startswith("Nothing that is recorded of their settings differs")


@pytest.mark.parametrize("query, count", [("", 0), ("?run=base", 1), ("?run=base&run=base", 1)])
def test_one_training_alone_is_laid_over_nothing(server: Server, query: str, count: int) -> None:
    status, text = got(server, f"/trainings{query}")
    assert status == 422 and f"{count} trainings cannot be laid over each other: choose 2 to 5" in text


def test_what_is_no_training_is_told(server: Server) -> None:
    status, text = got(server, "/trainings?run=base&run=poisoned%2Fstep-12")
    assert status == 422 and "holds no training.jsonl" in text


def test_a_click_on_the_map_opens_the_run_of_the_step(server: Server) -> None:
    driver = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    from support.browser import ARGUMENTS, CHROMIUM, require_browser

    require_browser()
    with driver.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=str(CHROMIUM), args=list(ARGUMENTS))
        page = browser.new_page()
        page.set_default_timeout(100_000)
        page.goto(server.url)
        page.get_by_role("link", name="poisoned", exact=True).click()
        cells = page.locator(".heat-cells").first
        cells.focus()
        for _ in range(2):
            page.keyboard.press("ArrowRight")  # from none to step 5, then 10, which stands for those up to 14
        assert "a click opens the run of step 12" in page.locator(".heat-map .chart-reading").inner_text()
        page.keyboard.press("Enter")
        page.wait_for_url("**/run/poisoned%2Fstep-12")
        page.go_back()
        assert page.get_by_role("link", name="All runs").get_attribute("href") == "/"
        assert page.locator(".heat-runs a").all_inner_texts() == ["step 12"]
        browser.close()
