"""Commands that are asked to end, by a signal or by Ctrl-C: they end at once and leave nothing."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
MODEL = """
import time, torch
class Sleeps(torch.nn.Module):
    def forward(self, x):
        print("INSIDE", flush=True)
        time.sleep(100)
def build():
    return Sleeps(), torch.ones(1)
"""


def started(arguments: list[str], folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "fxdebug", *arguments], cwd=folder, env={**os.environ, "TMPDIR": str(folder / "tmp")},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_run_that_is_ended_keeps_what_it_has_and_leaves_no_temporary_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "model.py").write_text(MODEL)
    with started(["run", "model.py:build", "--values", "tensors", "--save", "run"], tmp_path) as process:
        assert process.stdout is not None and process.stdout.readline() == b"INSIDE\n"
        process.send_signal(getattr(signal, name))
        process.communicate(timeout=60)
    assert process.returncode == 128 + getattr(signal, name)
    assert list((tmp_path / "tmp").iterdir()) == []
    names = [path.name for path in (tmp_path / "run").iterdir()]
    assert "trace.json" in names and not [one for one in names if one.startswith(".")]


@pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="the package mcp is not installed")
@pytest.mark.parametrize(("name", "status"), [("SIGINT", 0), ("SIGTERM", 128 + signal.SIGTERM)])
def test_the_server_for_agents_ends_while_it_waits_for_a_question(name: str, status: int, tmp_path: Path) -> None:
    hello = (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},'
        b'"clientInfo":{"name":"a","version":"1"}}}\n'
    )
    with started(["mcp", "."], tmp_path) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(hello)
        process.stdin.flush()
        assert b"serverInfo" in process.stdout.readline()
        process.send_signal(getattr(signal, name))
        assert process.wait(60) == status
