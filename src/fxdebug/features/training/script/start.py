"""Start a script in this process's place, with the watching prepared: by a folder that Python imports from first."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fxdebug.errors import UsageError

WATCH = "FXDEBUG_WATCH"  # the folder to write: of a script, and of processes that it starts
SCRIPT = "FXDEBUG_WATCH_SCRIPT"  # the same of one script alone; it does not see the variable
TRY = "FXDEBUG_TRY"  # the seconds in which advice is tried at the end
HERE = Path(__file__).resolve().parent
FIRST = HERE / "first"  # has a sitecustomize


def start(script: Path, arguments: Sequence[str], folder: Path, tries: float = 0.0) -> int:
    """Run ``python script arguments…`` in place of this process: exit status, output and signals are the script's.

    Raises ``UsageError`` for a script that is not there.
    """
    if not script.is_file():
        raise UsageError(f"{script} is no file: give a Python script, or the folder of a watched training")
    own = os.environ.get("PYTHONPATH")
    places = [str(FIRST), *([own] if own else [])]
    environment = {name: text for name, text in os.environ.items() if name != WATCH}  # it is watched by us
    environment |= {"PYTHONPATH": os.pathsep.join(places), SCRIPT: str(folder), TRY: str(tries)}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, str(script), *arguments], environment)
