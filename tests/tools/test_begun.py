"""A program that is run in a fork sees and tells what it does in a Python of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import begun

SHOWS = """
import atexit, os, sys
atexit.register(print, "ended")
import beside
print(sys.argv, __name__, os.getcwd(), os.environ.get("ONE"), globals().get("__file__"), sys.stdin.read(), beside.HERE)
print("said", file=sys.stderr)
{}
"""
ENDS = {
    "": 0,
    "sys.exit(3)": 3,
    "sys.exit('no')": 1,
    "os._exit(4)": 4,
    "os.kill(os.getpid(), 9)": -9,
    "raise KeyError('planted')": 1,
}


@pytest.mark.parametrize("ends", ENDS)
def test_a_fork_has_the_output_and_the_status_of_a_python_that_begins(ends: str, tmp_path: Path) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    (tmp_path / "beside.py").write_text("HERE = __file__")
    (tmp_path / "shows.py").write_text(SHOWS.format(ends))
    where = {"cwd": tmp_path, "env": os.environ | {"ONE": "1"}}
    for words in (["shows.py", "a b"], ["-m", "shows", "-c"], ["-c", SHOWS.format(ends), "-x"]):
        fresh = subprocess.run([sys.executable, *words], input="täglich", capture_output=True, text=True, **where)  # type: ignore[call-overload]
        told = begun.ran([sys.executable, *words], given="täglich", **where)  # type: ignore[arg-type]
        assert (told.returncode, told.stdout) == (fresh.returncode, fresh.stdout)
        assert told.returncode == ENDS[ends]
        if words[0] != "-m":  # runpy's own lines stand in its traceback
            assert told.stderr == fresh.stderr


def test_a_fork_has_nothing_of_another_one_and_no_thread_but_its_own() -> None:
    leaves = "import random, threading, torch; torch.x = here = 1; print(random.random(), torch.rand(1).item())"
    sees = "import torch, threading; print(hasattr(torch, 'x'), 'here' in globals(), threading.active_count())"
    first, second, other = [
        begun.ran([sys.executable, "-c", code], check=True).stdout for code in (leaves, leaves, sees)
    ]
    assert other == "False False 1\n"
    assert first.split()[0] != second.split()[0] and first.split()[1] == second.split()[1]


def test_what_is_read_when_a_python_begins_is_refused() -> None:
    if not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    told = begun.ran([sys.executable, "-c", ""], env=os.environ | {"PYTHONHASHSEED": "3"})
    assert told.returncode == 1 and "['PYTHONHASHSEED'] are read when a Python begins: start one" in told.stderr
