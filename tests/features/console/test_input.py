"""Where lines come from: options, scripts, pipes, a pseudo-terminal with Tab and history; and nothing loads torch."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.apps.cli import main
from fxdebug.cells import cell_len
from fxdebug.features.console.input.completion import completions
from fxdebug.features.console.input.prompt import history_file
from support.stepped import Counter, Screen, tiny


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny(masked=True).save(tmp_path_factory.mktemp("console") / "run")


def command(saved: Path, *options: str, **given: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "fxdebug", "debug", str(saved), *options]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, **given)  # type: ignore[call-overload, no-any-return]


def test_commands_of_the_line_are_run_and_shown(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["debug", str(saved), "-c", "goto end", "-c", "rc nan > 0", "-c", "print out.nan"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["(fxdebug) print out.nan", "4"]


def test_a_script_and_the_standard_input_show_the_same(saved: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    script = "# to the softmax\ncontinue softmax\n\nbreak nan > 0\ncommands\nwhere\nend\ncontinue\n"
    (tmp_path / "walk.txt").write_text(script)
    assert main.main(["debug", str(saved), "-x", str(tmp_path / "walk.txt")]) == 0
    from_file = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.StringIO(script))
    assert main.main(["debug", str(saved)]) == 0
    assert capsys.readouterr().out == from_file
    assert "(commands 1) where" in from_file and "> h.1.attn#0  Attention" in from_file
    monkeypatch.setattr(sys, "stdin", io.StringIO(script))
    assert main.main(["debug", str(saved), "-x", "-"]) == 0
    assert capsys.readouterr().out == from_file


def test_a_line_that_fails_gives_status_1_and_the_next_ones_still_run(saved: Path, capsys) -> None:
    assert main.main(["debug", str(saved), "-c", "nope", "-c", "print op"]) == 1
    assert capsys.readouterr().out.endswith("(fxdebug) print op\ncall\n")
    assert main.main(["debug", str(saved), "-x", str(saved / "no such file")]) == 2


def test_c1_a_saved_run_is_stepped_and_measured_without_torch(saved: Path) -> None:
    lines = "step next finish until continue where up down list ops code inspect tree findings back help".split()
    lines += ["print absmax", "display std", "break nan > 0", "watch dtype", "goto end", "rc", "find nan > 0"]
    lines += ["compare .", "upstream", "downstream", "condition 1 nan > 3", "print out.nan + out.inf"]
    source = "import sys\nfrom fxdebug.apps.cli.main import main\n"
    source += f"main(['debug', {str(saved)!r}, *[word for line in {lines!r} for word in ('-c', line)]])\n"
    source += "print(sorted({'torch', 'networkx', 'numpy', 'prompt_toolkit'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=saved, timeout=300)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


def test_piped_output_has_no_colours_and_a_terminal_may_refuse_them(saved: Path) -> None:
    assert "\x1b" not in command(saved, "-c", "step").stdout
    forced = dict(os.environ, FORCE_COLOR="1", NO_COLOR="")
    assert "\x1b[1m" in command(saved, "-c", "step", env=forced).stdout
    assert "\x1b" not in command(saved, "-c", "step", env=forced | {"NO_COLOR": "1"}).stdout


def test_an_end_of_input_and_a_closed_output_are_no_errors(saved: Path) -> None:
    done = command(saved, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, "")
    code = "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, '-m', 'fxdebug', *sys.argv[1:]])"
    words = [sys.executable, "-c", code, "debug", str(saved), "-c", "step"]
    closed = subprocess.run(words, stderr=subprocess.PIPE, timeout=300)
    assert (closed.returncode, closed.stderr) == (0, b"")


# A terminal -----------------------------------------------------------------------------------------------------


class Terminal:
    """A process on a pseudo-terminal of 80 columns."""

    def __init__(self, words: list[str], env: dict[str, str]) -> None:
        self.master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        own = (  # so that Ctrl-C is a signal, which workers of xdist ignore
            "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
            "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
        )
        words = [sys.executable, "-c", own, *words]
        self.process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True)
        self.text = ""

    def wait_for(self, text: str, seconds: float = 300.0) -> str:
        """Read until a text appears, and return all up to it that was not returned yet."""
        assert self.appears(text, seconds), f"{text!r} did not appear in {self.text!r}"
        before, found, self.text = self.text.partition(text)
        return re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", before + found)

    def appears(self, text: str, seconds: float) -> bool:
        """Read until a text appears, or for so long."""
        end = time.monotonic() + seconds
        while text not in self.text:
            if time.monotonic() > end:
                return False
            if select.select([self.master], [], [], 0.1)[0]:
                piece = os.read(self.master, 65_536).decode(errors="replace")
                if "\x1b[6n" in piece:  # prompt_toolkit asks where the cursor is
                    os.write(self.master, b"\x1b[1;1R")
                self.text += piece
        return True

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def end(self) -> int:
        code = self.process.wait(300)
        assert termios.tcgetattr(self.slave) == self.before, "the terminal is not as it was"
        os.close(self.master)
        os.close(self.slave)
        return code


@pytest.mark.parametrize("term", ["xterm", "dumb"])  # with prompt_toolkit, and with readline
def test_a_session_on_a_terminal_completes_remembers_and_puts_the_terminal_back(saved, tmp_path, term) -> None:
    env = dict(os.environ, TERM=term, XDG_CACHE_HOME=str(tmp_path), INPUTRC="/dev/null")
    env = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES")}
    terminal = Terminal([sys.executable, "-m", "fxdebug", "debug", str(saved)], env)
    shown = terminal.wait_for("(fxdebug)")
    assert "Tiny  21 calls, 82 stops. help lists commands" in shown
    terminal.type("garbage")
    terminal.wait_for("garbage")
    while not terminal.appears("(fxdebug)", 2.0):  # readline misses a signal that comes while it reads
        terminal.type("\x03")  # Ctrl-C clears the line
    terminal.wait_for("(fxdebug)")
    terminal.type("print op\r")
    assert "no command" not in terminal.wait_for("call")
    terminal.wait_for("(fxdebug)")
    terminal.type("until softm\t")
    terminal.wait_for("ax")
    terminal.type("\r")
    assert "h.0.attn#0/softmax" in terminal.wait_for("[20/82]")
    terminal.wait_for("(fxdebug)")
    terminal.type("nonsense\r")
    terminal.wait_for("there is no command 'nonsense'")
    terminal.wait_for("(fxdebug)")
    terminal.type("\x10\x10\r" if term == "dumb" else "\x1b[A\x1b[A\r")  # the line before the last one again
    terminal.wait_for("h.1.attn#0/softmax")
    terminal.wait_for("(fxdebug)")
    terminal.type("\x04")
    assert terminal.end() == 0
    kept = (tmp_path / "fxdebug" / "console_history").read_text()
    assert "until softmax" in kept and "nonsense" in kept


LIVE = """
import sys

import torch
from torch import nn


class 注意(nn.Module):
    def __init__(self):
        super().__init__()
        self.查询 = nn.Linear(4, 4)

    def forward(self, 隠れ状態):
        return self.查询(隠れ状態).softmax(-1)  # とても長いコメントがここにあります。とても長いコメント


class Long(nn.Module):
    def __init__(self):
        super().__init__()
        self.層 = nn.ModuleList([注意(), 注意()])

    def forward(self, x):
        for layer in self.層:
            x = layer(x)
        for step in range(1_000_000):
            x = x + 1
            if step == 50:
                sys.stdout.write("it runs\\n")
        return x


def build():
    return Long(), torch.ones(1, 4)
"""


def test_a_live_session_on_a_terminal_is_paused_by_ctrl_c_and_ends_with_ctrl_d(tmp_path) -> None:
    (tmp_path / "live.py").write_text(LIVE)
    env = dict(os.environ, TERM="xterm", XDG_CACHE_HOME=str(tmp_path), NO_COLOR="1")
    env = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES")}
    terminal = Terminal([sys.executable, "-m", "fxdebug", "debug", f"{tmp_path / 'live.py'}:build"], env)
    shown = terminal.wait_for("(fxdebug)")
    assert "Long  paused where it begins. help lists commands" in shown
    for line, answer in {
        "break 層.1\t\r": "breakpoint 1: path 層.1",
        "continue\r": "--Call-- 層.1#0  注意  live.py:24",
        "print 隠れ状態.shape\r": "1×4",
        "until softmax\r": "> 層.1#0/softmax  softmax  live.py:14",
        "list\r": "14 -> return self.查询(隠れ状態).softmax(-1)",
        "set out = nonsense\r": "*** 'nonsense' has no value here",
        "print 3 +\r": "*** '3 +' is not an expression: invalid syntax",
    }.items():
        terminal.type(line)
        terminal.wait_for(answer)
        shown += terminal.wait_for("(fxdebug)")
    terminal.type("continue\r")
    terminal.wait_for("it runs\r\n")
    terminal.type("\x03")
    assert "^C\r\npaused by Ctrl-C\r\n" in terminal.wait_for("Long#0/add_")
    shown += terminal.wait_for("(fxdebug)")
    assert max(map(cell_len, shown.split("\r\n"))) <= 80
    terminal.type("\x04")
    assert terminal.end() == 0


def test_the_history_lies_in_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert history_file() == Path("/somewhere/fxdebug/console_history")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert history_file() == Path.home() / ".cache" / "fxdebug" / "console_history"


# Tab ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rev", ["reverse-continue", "reverse-next", "reverse-step"]),
        ("step ", []),
        ("nope x", []),
        ("help und", ["undo", "undisplay"]),
        ("break h.", ["h.0", "h.1"]),
        ("break h.0.at", ["h.0.attn"]),
        ("tbreak Attent", ["Attention"]),
        ("until softm", ["softmax"]),
        ("break absm", ["absmax"]),
        ("goto head", ["head", "head.weight"][:1]),
        ("goto h.0.attn#0/soft", ["h.0.attn#0/softmax"]),
        ("print 1 + absm", ["absmax"]),
        ("inspect tot", []),
    ],
)
def test_tab_offers_what_fits(line: str, expected: list[str]) -> None:
    start, words = completions(Screen(tiny()).session, line)
    assert words == expected
    assert all(word.startswith(line[start:]) for word in words)


def test_tab_offers_the_names_of_the_present_call_and_files(tmp_path, monkeypatch) -> None:
    screen = Screen(tiny())
    screen.type("goto h.0.attn#0/softmax")
    assert completions(screen.session, "print qk") == (6, ["qkv"])
    assert "softmax" in completions(screen.session, "print ")[1]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert completions(screen.session, "compare r") == (8, ["runs/"])
    assert completions(screen.session, "compare nowhere/") == (8, [])


# Post mortem ----------------------------------------------------------------------------------------------------


def test_post_mortem_opens_the_partial_run_at_the_line_that_raised(
    capsys: pytest.CaptureFixture[str], tmp_path
) -> None:
    model = nn.Sequential(Counter(raises=True), nn.ReLU())
    with pytest.raises(RuntimeError):
        fxdebug.fx_debug(model, torch.ones(3), save=tmp_path / "run")
    fxdebug.post_mortem(commands=["print y", "back"])
    shown = capsys.readouterr().out
    assert shown.splitlines()[1:4] == [
        "--Raised-- 0#0  Counter  stepped.py:79  [9/10]",
        "-> y = y.view(7, 7)",
        "   RuntimeError: shape '[7, 7]' is invalid for input of size 3",
    ]
    assert "> 0#0/mul  mul  stepped.py:77  [8/10]" in shown
    assert main.main(["debug", str(tmp_path / "run"), "-c", "back"]) == 0
    assert "--Raised-- 0#0  Counter  stepped.py:79  [9/10]" in capsys.readouterr().out


def test_post_mortem_against_another_run_opens_at_the_first_difference(capsys: pytest.CaptureFixture[str]) -> None:
    fxdebug.post_mortem(tiny(masked=True), against=tiny(), commands=["print op"])
    assert "Here they differ first" in capsys.readouterr().out
    fxdebug.post_mortem(tiny(), against=tiny(), commands=["print op"])
    assert "the runs are equal" in " ".join(capsys.readouterr().out.split())
