"""The line that says where a long run is: there when somebody is looking, and gone afterwards."""

from __future__ import annotations

import io
import os
import sys
import types
from typing import Any

import pytest
import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.capture.recorder import progress
from support.begun import ran


class Screen(io.StringIO):
    """A terminal, or what looks like one."""

    def __init__(self, terminal: bool = True) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """A terminal on standard error, outside CI, with no patience: the line comes at once."""
    found = Screen()
    monkeypatch.setattr(progress, "sys", types.SimpleNamespace(stderr=found))  # pytest resets sys.stderr itself
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    return found


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))


def test_on_a_terminal_the_line_says_how_many_calls_and_where_and_is_cleared_at_the_end(screen: Screen) -> None:
    fx_debug(model(), torch.ones(1, 2))
    assert screen.getvalue().split("\r") == [
        "",
        "tracing Sequential · 1 calls · Sequential\x1b[K",
        "tracing Sequential · 2 calls · 0\x1b[K",
        "tracing Sequential · 3 calls · 1\x1b[K",
        "tracing Sequential · 4 calls · 1.0\x1b[K",
        "\x1b[K",
    ]


def test_a_short_run_stays_silent(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 60.0)
    fx_debug(model(), torch.ones(1, 2))
    assert screen.getvalue() == ""


def test_a_long_run_is_shown_now_and_then_and_not_at_every_call(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 60.0)
    fx_debug(model(), torch.ones(1, 2))
    assert screen.getvalue() == "\rtracing Sequential · 1 calls · Sequential\x1b[K\r\x1b[K"


@pytest.mark.parametrize("why", ["piped", "in CI", "on a dumb terminal", "switched off", "no stream"])
def test_nothing_is_shown_when_nobody_is_looking(why: str, screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    screen.terminal = why != "piped"
    if why == "on a dumb terminal":
        monkeypatch.setenv("TERM", "dumb")
    if why == "in CI":
        monkeypatch.setenv("CI", "true")
    if why == "no stream":
        monkeypatch.setattr(progress.sys, "stderr", None)
    trace = fx_debug(model(), torch.ones(1, 2), progress=False if why == "switched off" else None)
    assert screen.getvalue() == "" and len(trace.calls) == 4


@pytest.mark.parametrize("terminal", [True, False])
def test_it_can_be_asked_for(terminal: bool, screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    screen.terminal = terminal
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(progress, "PATIENCE", 60.0)
    fx_debug(model(), torch.ones(1, 2), progress=True)
    assert screen.getvalue().count("tracing Sequential") == 4 and screen.getvalue().endswith("\r\x1b[K")


def test_the_line_is_as_wide_as_the_terminal_and_stays_one_line(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    named = nn.Sequential()
    named.add_module("line\nbreak\x1b[31m" + "long" * 30, nn.ReLU())
    fx_debug(named, torch.ones(1))
    (line,) = [part for part in screen.getvalue().split("\r") if "line?break?[31m" in part]
    assert len(line.removesuffix("\x1b[K")) == 59
    assert "\n" not in screen.getvalue()


@pytest.mark.parametrize("error", [ValueError("it fails"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_the_line_is_cleared_when_the_model_raises(error: BaseException, screen: Screen) -> None:
    class Raises(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise error

    with pytest.raises(type(error)):
        fx_debug(Raises(), torch.ones(1))
    assert screen.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("broken", [OSError(5, "no terminal any more"), ValueError("I/O operation on closed file")])
def test_a_terminal_that_goes_away_ends_the_line_and_not_the_run(
    broken: Exception, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def write(text: str) -> Any:
        tried.append(text)
        raise broken

    monkeypatch.setattr(screen, "write", write)
    trace = fx_debug(model(), torch.ones(1, 2))
    assert len(trace.calls) == 4 and trace.notes == ()
    assert len([text for text in tried if "tracing" in text]) == 1


def test_a_script_whose_output_is_piped_prints_nothing_of_ours() -> None:
    source = "import torch, fxdebug\nfrom fxdebug.capture.recorder import progress\nprogress.PATIENCE = 0\n"
    source += "fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(1))"
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    done = ran([sys.executable, "-c", source], check=True, env=environment)
    assert (done.stdout, done.stderr) == ("", "")
